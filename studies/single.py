"""The study that trains one configuration: what `hpo train` makes of a study file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..spaces.space import Space
from .several import has_key
from .spec import EnvSpec, SearchSpec, Study

__all__ = ["single"]

_EVALUATIONS = 10


def single(study: Study) -> Study:
    """Return the study of one trial: the default configuration, run to its end on every seed.

    Nobody is stopped and nothing is confirmed; where the file leaves evaluations to rungs there
    are ten, equally far apart over what schedules are laid out over, and the policies of all
    seeds are kept.
    """
    default = study.space.default()
    env = {name.removeprefix("env."): v for name, v in default.items() if _of_env(name)}
    knobs = {name: value for name, value in default.items() if not _of_env(name)}
    evaluation, budget = study.evaluation, study.budget
    if evaluation.every == "rungs":
        evaluation = replace(evaluation, every=max(1, study.horizon // _EVALUATIONS))
    return replace(
        study,
        env=_with(study.env, env),
        more_envs=tuple(_with(one, env) for one in study.more_envs),
        fixed={**study.fixed, **knobs},
        space=Space(),
        enqueue=(),
        search=SearchSpec("random"),
        early_terminate=None,
        seeds=replace(study.seeds, racing=None),
        confirm=None,
        evaluation=evaluation,
        budget=replace(budget, trials=1, env_steps=None),
        checkpoint=replace(
            study.checkpoint,
            keep_best=max(1, study.checkpoint.keep_best),
            each_seed=study.checkpoint.each_seed or study.seeds.per_config > 1,
        ),
    )


def _with(one: EnvSpec, searched: Mapping[str, Any]) -> EnvSpec:
    """Return an environment with those of some parameters that it has."""
    own = {name: value for name, value in searched.items() if has_key(one.id, f"env.{name}")}
    return replace(one, values={**one.values, **own})


def _of_env(name: str) -> bool:
    return name.startswith("env.")
