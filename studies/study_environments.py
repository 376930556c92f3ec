"""A study's environments: restriction to one of them, reference scores, and displayed names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..environments.registry import Reference
from ..errors import ConfigError
from .env_spec import EnvSpec, has_key, labels_of, own_config
from .spec import Study

SCORE = "score"  # name, in tables, of a trial's value over several environments
WITH_TRAINING = " with training returns"


def environments_of(study: Study) -> tuple[EnvSpec, ...]:
    return (study.env, *study.more_envs)


def env_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration's environment settings, without the prefix `env.`.

    >>> env_settings({"gamma": 0.99, "env.gravity": 9.8})
    {'gravity': 9.8}
    """
    return {name[4:]: value for name, value in config.items() if name.startswith("env.")}


def searched_settings(study: Study) -> list[str]:
    """Return the names of searched environment settings."""
    return [name for name in study.space.names if name.startswith("env.")]


def labels(study: Study) -> tuple[str, ...]:
    """Return the environments' names in tables; () for a single environment."""
    if not study.more_envs:
        return ()
    return labels_of(environments_of(study))


def scales(study: Study) -> tuple[Reference, ...]:
    """Return the reference scores; () for a single environment."""
    if not study.more_envs:
        return ()
    return tuple(one.scale for one in environments_of(study) if one.scale is not None)


def each_alone(study: Study) -> tuple[Study, ...]:
    if not study.more_envs:
        return (study,)
    return tuple(alone(study, index) for index in range(study.spread))


def alone(study: Study, index: int) -> Study:
    """Return the study restricted to one environment, with that environment's hyperparameters.

    Replicates are numbered as in the whole study: replicate r has the same random numbers in both.
    """
    env = environments_of(study)[index]
    searched = tuple(p for p in study.space.parameters if has_key(env.id, p.name))
    return replace(
        study,
        env=replace(env, scale=None),
        more_envs=(),
        over_environments="mean",
        space=replace(study.space, parameters=searched, forbid=()),
        enqueue=tuple(own_config(env.id, entry) for entry in study.enqueue),
    )


def env_words(study: Study) -> str:
    """Return the environments' names as a phrase; only two names if there are more than three.

    >>> first, *more = map(EnvSpec, "abc")
    >>> env_words(Study(name="s", env=first, env_steps=1, more_envs=tuple(more)))
    'a, b and c'
    """
    names = list(labels(study))
    if not names:
        return study.env.id
    if len(names) > 3:
        return f"{names[0]}, {names[1]} and {len(names) - 2} more environments"
    *others, last = names
    return f"{', '.join(others)} and {last}"


def metric_words(study: Study) -> str:
    if study.more_envs:
        return SCORE
    return study.metric.name


def value_words(study: Study, alone: bool = False) -> str:
    """Return the name of selection values, which may include training returns.

    With `alone`, training returns do not count, because some trial had none.
    """
    words = metric_words(study)
    if study.metric.training_weight and not alone:
        words += WITH_TRAINING
    return words


def only_one_environment(study: Study, what: str) -> None:
    if study.more_envs:
        text = (
            f"{what} supports only a single environment, but {study.name} has {env_words(study)}"
        )
        raise ConfigError(f"{text}; use a study with env: {study.env.id}")
