"""`hpo train`: a study with one trial, and the conditions for extending its run.

Schedules, chunks and evaluations of `hpo train` are planned for a horizon: the length of a run, or
`schedule_env_steps`. As long as the horizon is unchanged, a run can be extended; the result is
bitwise identical to a single run of the full length.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..knobs import KNOBS, SCHEDULE_KNOBS
from ..spaces.space import Space
from .env_spec import EnvSpec, has_key
from .search_spec import SearchSpec
from .spec import Study

LENGTH_KEYS = ("env_steps", "schedule_env_steps")  # compared together
_OTHERWISE = "start another study"
_EVALUATIONS = 10


def can_grow(study: Study) -> bool:
    """Return whether runs can be extended: one configuration, trained to completion."""
    plain = study.early_terminate is None and study.seeds.racing is None
    alone = not study.space.parameters and study.confirm is None
    return plain and alone and study.search.driver == "lanes"


def moving_schedules(fixed: Mapping[str, Any]) -> list[str]:
    """Return the settings that depend on a run's progress, as `knob: value`.

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
    """Return a longer study with the resolved study's horizon, unless a schedule prevents that."""
    began, grows = horizon_of(old), study.env_steps >= old["env_steps"]
    given = study.schedule_env_steps is not None or study.horizon == began
    if given or not grows or not can_grow(study) or moving_schedules(study.fixed):
        return study
    return replace(study, schedule_env_steps=began)


def why_not_longer(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Return why a resolved study cannot resume with a different run length; "" if it can."""
    if new["env_steps"] < old["env_steps"]:
        return f"a run can only be lengthened; {_OTHERWISE}"
    began, now = horizon_of(old), horizon_of(new)
    if began == now and new["env_steps"] == old["env_steps"]:
        return ""
    plain = new["early_terminate"] is None and new["seeds"]["racing"] is None
    alone = not new["space"] and new["confirm"] is None
    if not (plain and alone and new["search"].get("driver", "lanes") == "lanes"):
        text = "only a study of one configuration without early stopping or confirm can be "
        text += "lengthened; "
        if "algorithm" not in new:
            text += "continue training a policy with init: {from: .../policies/trial_N}, or "
        return f"{text}{_OTHERWISE}"
    if began == now:
        return ""
    words = f"schedules over {began} env steps"
    if moving := ", ".join(moving_schedules(new["fixed"])):
        words += f" ({moving})"
    words += f" would change to {now} env steps; set schedule_env_steps: {began} to keep them"
    return f"{words}, or {_OTHERWISE}"


def horizon_of(data: Mapping[str, Any]) -> int:
    over = data.get("schedule_env_steps")
    if over is None:
        return data["env_steps"]
    return over


def single(study: Study) -> Study:
    """Return the study with one trial: the default configuration, run to completion on every seed.

    It has no early stopping and no confirm stage. Evaluations at rungs are replaced by ten that
    are evenly spaced over the horizon, and the policies of all seeds are saved.
    """
    default = study.space.default()
    env = {name: value for name, value in default.items() if name.startswith("env.")}
    knobs = {name: value for name, value in default.items() if name not in env}
    evaluation, checkpoint = study.evaluation, study.checkpoint
    if evaluation.every == "rungs":
        evaluation = replace(evaluation, every=max(1, study.horizon // _EVALUATIONS))
    all_seeds = checkpoint.each_seed or study.seeds.per_config > 1
    kept = replace(checkpoint, keep_best=max(1, checkpoint.keep_best), each_seed=all_seeds)
    return replace(
        study,
        env=_with_searched_values(study.env, env),
        more_envs=tuple(_with_searched_values(one, env) for one in study.more_envs),
        fixed={**study.fixed, **knobs},
        space=Space(),
        enqueue=(),
        search=SearchSpec("random"),
        early_terminate=None,
        seeds=replace(study.seeds, racing=None),
        confirm=None,
        evaluation=evaluation,
        budget=replace(study.budget, trials=1, env_steps=None),
        checkpoint=kept,
    )


def _with_searched_values(one: EnvSpec, searched: Mapping[str, Any]) -> EnvSpec:
    own = {name[4:]: value for name, value in searched.items() if has_key(one.id, name)}
    return replace(one, values={**one.values, **own})
