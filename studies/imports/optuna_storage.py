"""Studies of Optuna as studies of ours: the same space, their best trials tried first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import ConfigError
from ...spaces.from_optuna import OptunaStudy, read_study
from .draft import Draft

__all__ = ["read_storage"]

_BEST = 10


def read_storage(storage: str, name: str | None, given: Mapping[str, Any]) -> Draft:
    """Read a study from Optuna's storage; its ten best trials are enqueued.

    Raises:
        ConfigError: no such study, several objectives, or an objective we cannot name.
    """
    theirs = read_study(storage, name)
    if len(theirs.directions) != 1:
        raise ConfigError(f"{storage}: {theirs.name!r} has {len(theirs.directions)} objectives; "
                          "a study is imported with one")  # fmt: skip
    draft = Draft(f"{storage} ({theirs.name})")
    if "env" in given:
        draft.constant("env", given["env"])
    for parameter, fields in theirs.space.items():
        if len(fields.get("values", ())) == 1:
            draft.constant(parameter, fields["values"][0])
        else:
            draft.searched(parameter, fields)
        if parameter in theirs.sometimes:
            draft.note(f"{parameter}: only some trials had it; here all do, or add a `when`")
    _objective(draft, theirs, given)
    _enqueue(draft, theirs)
    draft.section("search")["method"] = "tpe"
    return draft


def _objective(draft: Draft, theirs: OptunaStudy, given: Mapping[str, Any]) -> None:
    goal = theirs.directions[0]
    if goal not in ("minimize", "maximize"):
        raise ConfigError(f"{draft.source}: it has no direction")
    if "metric" not in given and goal == "minimize":
        raise ConfigError(
            f"{draft.source}: it minimises what Optuna has no name for; say which metric is "
            "meant, such as -- --metric eval/service_blocking_probability"
        )
    draft.rest["metric"] = {"name": str(given.get("metric", "eval/return_mean")), "goal": goal}
    if "metric" not in given:
        draft.note("metric: Optuna names none; eval/return_mean is ours")


def _enqueue(draft: Draft, theirs: OptunaStudy) -> None:
    sign = -1.0 if theirs.directions[0] == "maximize" else 1.0
    best = sorted(theirs.trials, key=lambda trial: sign * trial[1][0])[:_BEST]
    named = [
        {ours: value for name, value in params.items() if (ours := draft.target(name))}
        for params, _ in best
    ]
    draft.rest["enqueue"] = [
        {name: value for name, value in params.items() if name in draft.space} for params in named
    ]
    if best:
        draft.note(f"enqueue: its {len(best)} best of {len(theirs.trials)} finished trials")
