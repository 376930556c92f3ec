"""A run made longer: when it equals the run that was long from the start, and why not otherwise.

Schedules, chunks and the evaluations of `hpo train` are laid out over a horizon, which is the
length of a run unless `schedule_env_steps` says another. A run may grow as long as its horizon
stays: then everything it did so far is what the long run would have done.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..knobs import KNOBS, SCHEDULE_KNOBS
from ..spaces.space import Space
from .several_environments import has_key
from .spec import EnvSpec, SearchSpec, Study

LENGTH_KEYS = ("env_steps", "schedule_env_steps")
"""Keys of a study that say how long a run is; they are judged together."""

_OTHERWISE = "start another study"


def can_grow(study: Study) -> bool:
    """Return whether runs of a study can be lengthened: it trains one configuration to its end."""
    plain = study.early_terminate is None and study.seeds.racing is None
    alone = not study.space.parameters and study.confirm is None
    return plain and alone and study.search.driver == "lanes"


def moving_schedules(fixed: Mapping[str, Any]) -> list[str]:
    """Return what depends on the progress of a run, as `knob: value`.

    Args:
        fixed: knob -> value, as in a study.

    >>> moving_schedules({"lr_schedule": "linear"}), moving_schedules({})
    (['lr_schedule: linear'], [])
    """
    config = {name: fixed.get(name, knob.default) for name, knob in KNOBS.items()}
    names = [name for name in SCHEDULE_KNOBS if config[name] not in ("constant", None)]
    if config["gae_lambda_initial"] != config["gae_lambda_final"]:
        names.append("gae_lambda_final")
    if config["priority_alpha"] > 0 and config["anneal_priority_beta"]:
        names.append("anneal_priority_beta")
    return [f"{name}: {str(config[name]).lower()}" for name in names]


def with_horizon_of(study: Study, old: Mapping[str, Any]) -> Study:
    """Return a study whose run grew with the horizon it began with, where no schedule minds.

    Args:
        study: as it is asked for now.
        old: the resolved study that ran.
    """
    began, grows = horizon_of(old), study.env_steps >= old["env_steps"]
    given = study.schedule_env_steps is not None or study.horizon == began
    if given or not grows or not can_grow(study) or moving_schedules(study.fixed):
        return study
    return replace(study, schedule_env_steps=began)


def why_not_longer(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Return why a study cannot go on with another length of its runs; "" if it can.

    Args:
        old: the resolved study that ran.
        new: the one asked for now.
    """
    if new["env_steps"] < old["env_steps"]:
        return f"a run may only grow; {_OTHERWISE}"
    began, now = horizon_of(old), horizon_of(new)
    if began == now and new["env_steps"] == old["env_steps"]:
        return ""
    if not _trains_one(new):
        return (
            "only a run of one configuration, which nothing stops and nothing confirms, can be "
            "lengthened; train a policy on with "
            f"init: {{from: .../policies/trial_N}}, or {_OTHERWISE}"
        )
    if began == now:
        return ""
    moving = ", ".join(moving_schedules(new["fixed"]))
    words = f"what is counted over {began} env steps{f' ({moving})' if moving else ''} "
    words += f"would be counted over {now}; "
    return f"{words}type schedule_env_steps: {began} to keep that, or {_OTHERWISE}"


def horizon_of(data: Mapping[str, Any]) -> int:
    """Return `Study.horizon` of a resolved study."""
    over = data.get("schedule_env_steps")
    return data["env_steps"] if over is None else over


def _trains_one(data: Mapping[str, Any]) -> bool:
    """As `can_grow`, of a resolved study."""
    plain = data["early_terminate"] is None and data["seeds"]["racing"] is None
    alone = not data["space"] and data["confirm"] is None
    return plain and alone and data["search"].get("driver", "lanes") == "lanes"


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
