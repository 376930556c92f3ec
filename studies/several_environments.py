"""Studies over several environments: each environment by itself, and what they share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..environments.references import Reference
from ..environments.registry import find
from ..errors import ConfigError
from .spec import EnvSpec, Study, labels_of

SCORE = "score"
"""What tables call the value of a trial on several environments."""


def environments_of(study: Study) -> tuple[EnvSpec, ...]:
    """Return all environments that a trial is trained on, in the order of the file."""
    return (study.env, *study.more_envs)


def labels(study: Study) -> tuple[str, ...]:
    """Return what tables call them; none where there is one environment alone."""
    return labels_of(environments_of(study)) if study.more_envs else ()


def scales(study: Study) -> tuple[Reference, ...]:
    """Return what scores 0 and 1 on each; none where there is one environment alone."""
    found = tuple(one.scale for one in environments_of(study) if one.scale is not None)
    return found if study.more_envs else ()


def each_alone(study: Study) -> tuple[Study, ...]:
    """Return the study once for each of its environments, as one over that one alone."""
    if not study.more_envs:
        return (study,)
    return tuple(alone(study, index) for index in range(study.spread))


def alone(study: Study, index: int) -> Study:
    """Return the study as one over one of its environments, with the knobs that this one has.

    Its replicates are those of the whole study: replicate r of either has the same random numbers.
    """
    env = environments_of(study)[index]
    searched = tuple(
        parameter for parameter in study.space.parameters if has_key(env.id, parameter.name)
    )
    given = tuple(own_config(env.id, entry) for entry in study.enqueue)
    return replace(
        study,
        env=replace(env, scale=None),
        more_envs=(),
        over_environments="mean",
        space=replace(study.space, parameters=searched, forbid=()),
        enqueue=given,
    )


def env_words(study: Study) -> str:
    """Return the environments in words: an id, or those of several, two of many by name.

    >>> from ..spaces.space import Space
    >>> env_words(Study("s", EnvSpec("a"), 1, Space(), more_envs=(EnvSpec("b"), EnvSpec("c"))))
    'a, b and c'
    """
    names = labels(study) or (study.env.id,)
    if len(names) > 3:
        return f"{names[0]}, {names[1]} and {len(names) - 2} more environments"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def metric_words(study: Study) -> str:
    """Return what tables and words call the value of a trial."""
    return SCORE if study.more_envs else study.metric.name


def several_lines(study: Study) -> list[str]:
    """Return what `hpo check` says of a trial over several environments; nothing of one."""
    each = f"{study.env_steps:,} env steps on each of {study.spread}"
    words = f"a trial    trains on all: {each}; {study.over_environments} of their scores"
    return [words] if study.more_envs else []


def programs_words(study: Study) -> str:
    """Return the training programs of a bucket in words."""
    return f"{study.spread} training programs" if study.more_envs else "one training program"


def only_one_environment(study: Study, what: str) -> None:
    """Refuse what only a study over one environment can have.

    Raises:
        ConfigError: this one is over several.
    """
    if study.more_envs:
        raise ConfigError(
            f"{what} is for one environment, but {study.name} is over {env_words(study)}; give a "
            f"study with env: {study.env.id}"
        )


def own_config(id_: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration without the parameters that an environment does not have."""
    return {name: value for name, value in config.items() if has_key(id_, name)}


def has_key(id_: str, name: str) -> bool:
    """Return whether a knob or parameter of the environment, `env.<name>`, is one of this one.

    One that only imported code knows has all of them.

    >>> has_key("CartPole-v1", "env.gravity"), has_key("Acrobot-v1", "env.gravity")
    (True, False)
    """
    if not name.startswith("env."):
        return True
    known, key = find(id_), name.removeprefix("env.")
    return known is None or key in known.params or key in known.keys
