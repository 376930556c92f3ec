"""The Weights & Biases logger: a run for the study and for each followed trial, in one group.

The ids of runs are kept in the study's folder, so that a resumed study adds to the same runs;
offline runs are written there, for `wandb sync`. Only this module imports wandb.
"""

from __future__ import annotations

import importlib
import math
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..errors import ConfigError, MissingExtraError
from .follow import Follower, FollowingSink, News, Point, TrialNews

if TYPE_CHECKING:  # an optional package, loaded on use
    import wandb
    from wandb.sdk.wandb_run import Run

_COLUMNS = ("rank", "trial", "state", "value", "ci_low", "ci_high", "value_from", "seeds",
            "env_steps", "params")  # fmt: skip
_FINAL = ("state", "value", "ci_low", "ci_high", "rank", "rung", "rung_value", "env_steps",
          "report_value", "stop_rule")  # fmt: skip


@dataclass(frozen=True)
class WandbSettings:
    """Where runs go, and their names and configurations."""

    name: str  # of the study's run; trials are `<name>/trial-<n>`
    mode: Literal["online", "offline"] = "online"
    project: str = "hpo"
    entity: str | None = None  # user or team; None is the account's default
    group: str | None = None  # None is the name
    policy: bool = True  # log the winner's policy as an artifact
    study: Mapping[str, Any] = field(default_factory=dict[str, Any])  # as plain data
    fixed: Mapping[str, Any] = field(default_factory=dict[str, Any])  # not searched


class WandbSink(FollowingSink):
    name = "wandb"

    def __init__(self, follower: Follower, settings: WandbSettings, target: Path | None = None):
        try:
            importlib.import_module("wandb")  # in the study's thread: `store.sinks`
        except ImportError as error:
            raise MissingExtraError("wandb", "wandb", "the wandb logger") from error
        if settings.mode == "online" and not _logged_in():
            raise ConfigError(
                "the wandb logger is online, but there is no login here; type: wandb login, "
                "or write mode: offline in `loggers`"
            )
        super().__init__(follower, target)
        self._settings = settings
        self._runs: dict[str, Run] = {}

    def _close_all(self) -> None:
        for run in self._runs.values():
            run.finish()
        self._runs = {}

    def _write(self, directory: Path, news: News) -> None:
        study = self._run(directory, "study", self._settings.name, self._settings.study)
        _log(study, news.point)
        for row in news.ended:
            if row["value"] is not None and math.isfinite(row["value"]):
                study.log({"trial": row["trial"], "value_of_trial": row["value"]})
        for trial in news.trials:
            self._write_trial(directory, trial)

    def _write_trial(self, directory: Path, news: TrialNews) -> None:
        name = f"trial-{news.trial}"
        config = {**self._settings.fixed, **news.params, "trial": news.trial}
        run = self._run(directory, name, f"{self._settings.name}/{name}", config)
        for point in news.points:
            _log(run, point)
        if news.ended:
            _summarise(run, {key: news.row[key] for key in _FINAL if news.row[key] is not None})
            self._runs.pop(name).finish()

    def _write_end(self, directory: Path, news: News) -> None:
        import wandb

        study = self._runs["study"]
        columns = [news.table[name] for name in _COLUMNS]
        rows: list[Any] = [list(row) for row in zip(*columns, strict=True)]
        study.log({"leaderboard": wandb.Table(columns=list(_COLUMNS), data=rows)})
        if not rows or news.best is None:
            return
        winner = news.table["trial"][0]
        _summarise(study, {"best": news.best, "best_trial": winner})
        policy = directory / "policies" / f"trial_{winner}"
        if self._settings.policy and policy.is_dir():
            about = {"trial": winner, "value": news.best, "params": news.table["params"][0]}
            artifact = wandb.Artifact(f"{directory.name}-policy", "policy", metadata=about)
            for file in sorted(path for path in policy.rglob("*") if path.is_file()):
                artifact.add_file(str(file), name=file.relative_to(policy).as_posix())
            study.log_artifact(artifact)

    def _run(self, directory: Path, key: str, name: str, config: Mapping[str, Any]) -> Run:
        """Return the run of this key, started or resumed."""
        if key in self._runs:
            return self._runs[key]
        import wandb

        ids: dict[str, str] = self._mark.kept.setdefault("runs", {})
        if key not in ids:
            ids[key] = uuid.uuid4().hex[:12]
            self._keep_mark(directory)  # first, so that a crash does not cause a second run
        settings, offline = self._settings, self._settings.mode == "offline"
        run = wandb.init(
            project=settings.project,
            entity=settings.entity,
            group=settings.group or settings.name,
            name=name,
            job_type="study" if key == "study" else "trial",
            id=ids[key],
            resume=None if offline else "allow",
            mode=settings.mode,
            dir=str(self._place(directory)),
            config=dict(config),
            reinit="create_new",
            settings=_quiet(wandb),
        )
        for metric, step in (("*", "env_steps"), ("value_of_trial", "trial")):
            run.define_metric(metric, step_metric=step)
        self._runs[key] = run
        return run


def _log(run: Run, point: Point) -> None:
    values = {name: value for name, value in point.values.items() if math.isfinite(value)}
    run.log({"env_steps": point.env_steps, **values})


def _summarise(run: Run, values: dict[str, Any]) -> None:
    run.summary.update(values)  # pyright: ignore[reportUnknownMemberType] # a bare dict there


def _quiet(wandb: Any) -> wandb.Settings:
    """Return settings without wandb's prints, system metrics and code uploads."""
    return wandb.Settings(silent=True, console="off", x_disable_stats=True, disable_code=True,
                          disable_git=True, save_code=False)  # fmt: skip


def _logged_in() -> bool:
    """Return whether wandb has an account here, without a prompt."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    import wandb

    return bool(wandb.api.api_key)
