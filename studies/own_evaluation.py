"""Trials that are evaluated in environments of their own, because a study searches these."""

from __future__ import annotations

from .spec import Study

__all__ = ["OF_THE_POLICY", "own_evaluation_note"]

OF_THE_POLICY = (
    "aggregate_slots",
    "disjoint_paths",
    "fits",
    "histograms",
    "k",
    "no_op",
    "observation",
    "path_order",
    "shadow",
)
"""Keys of what a policy observes and may choose; the task and its metric stay the same."""
_PREFIX = "env."


def own_evaluation_note(study: Study) -> str:
    """Return a warning where a searched key of the environment also evaluates; else ""."""
    keys = {
        parameter.name.removeprefix(_PREFIX): parameter.default
        for parameter in study.space.parameters
        if parameter.name.startswith(_PREFIX)
    }
    loose = {
        key: value
        for key, value in keys.items()
        if key not in study.evaluation.env and key not in OF_THE_POLICY
    }
    if not loose:
        return ""
    names = ", ".join(f"env.{key}" for key in loose)
    what = f"{names} is searched, and evaluates" if len(loose) == 1 else (
        f"{names} are searched, and evaluate"
    )  # fmt: skip
    if study.more_envs:  # which have no eval_env
        return f"{what} too: whoever has the easier environment wins; fix what is the same for all"
    typed = ", ".join(f"{key}: {_shown(value)}" for key, value in loose.items())
    return (
        f"{what} too: whoever has the easier environment wins; for one that is the same for all "
        f"type eval_env: {{{typed}}}"
    )


def _shown(value: object) -> str:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else f"{value}"
