"""Studies over several environments: each environment by itself, and their common part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..environments.references import Reference
from ..environments.registry import find
from ..errors import ConfigError
from .spec import EnvSpec, Study, labels_of

SCORE = "score"  # the value of a trial on several environments, in tables


def environments_of(study: Study) -> tuple[EnvSpec, ...]:
    return (study.env, *study.more_envs)


def labels(study: Study) -> tuple[str, ...]:
    """Return the environments' names in tables; () for a single environment."""
    return labels_of(environments_of(study)) if study.more_envs else ()


def scales(study: Study) -> tuple[Reference, ...]:
    """Return the references of scores; () for a single environment."""
    found = tuple(one.scale for one in environments_of(study) if one.scale is not None)
    return found if study.more_envs else ()


def each_alone(study: Study) -> tuple[Study, ...]:
    return tuple(alone(study, i) for i in range(study.spread)) if study.more_envs else (study,)


def alone(study: Study, index: int) -> Study:
    """Return the study over one of its environments, with the knobs that this one has.

    Its replicates are those of the whole study: replicate r of either has the same random numbers.
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
    """Return the environments in words: an id, or those of several, two of many by name.

    >>> first, *more = map(EnvSpec, "abc")
    >>> env_words(Study(name="s", env=first, env_steps=1, more_envs=tuple(more)))
    'a, b and c'
    """
    names = labels(study) or (study.env.id,)
    if len(names) > 3:
        return f"{names[0]}, {names[1]} and {len(names) - 2} more environments"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def metric_words(study: Study) -> str:
    return SCORE if study.more_envs else study.metric.name


def only_one_environment(study: Study, what: str) -> None:
    if study.more_envs:
        raise ConfigError(
            f"{what} is for one environment, but {study.name} is over {env_words(study)}; give a "
            f"study with env: {study.env.id}"
        )


def only_ppo(study: Study, what: str) -> None:
    if not study.algorithm.is_ppo:
        raise ConfigError(f"{what} is for PPO, but {study.name} trains {study.algorithm.label}")


def own_config(id_: str, config: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if has_key(id_, name)}


def has_key(id_: str, name: str) -> bool:
    """Return whether an environment has a parameter `env.<name>`; True for other knobs.

    An environment that only imported code knows has all parameters.

    >>> has_key("CartPole-v1", "env.gravity"), has_key("Acrobot-v1", "env.gravity")
    (True, False)
    """
    if not name.startswith("env."):
        return True
    known, key = find(id_), name.removeprefix("env.")
    return known is None or key in known.params or key in known.keys
