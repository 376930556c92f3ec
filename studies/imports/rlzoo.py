"""Hyperparameter files of rl-zoo3 as studies: one configuration for each environment.

Read are `hyperparams/ppo.yml`, `ppo_lstm.yml`, their Python form (which is not run), and the
`config.yml` that stands beside a trained agent.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...elsewhere import SYSTEMS
from ...elsewhere.python_words import NotPlain, assigned
from ...errors import ConfigError, listed
from ...plain_data import is_dict
from .draft import Draft
from .loose_yaml import read_yaml
from .settings import one_configuration
from .take import Source

__all__ = ["read_hyperparameters"]

_FALLBACKS = ("default", "atari")
_OTHERS = ("a2c", "ars", "crossq", "ddpg", "dqn", "her", "qrdqn", "sac", "td3", "tqc", "trpo")


def read_hyperparameters(path: Path, given: Mapping[str, Any]) -> Draft:
    """Read one environment's configuration.

    Args:
        path: of the file.
        given: flags that override it; `env` says whose is meant, unless the file has one alone.

    Raises:
        ConfigError: the file has no such environment, or its configuration changes what is
            trained in a way that a study cannot say.
    """
    if path.stem in _OTHERS:
        raise ConfigError(f"{path}: hyperparameters of {path.stem}; a study trains with PPO alone")
    data = _data(path)
    env = next((str(given[name]) for name in ("env", "env_id") if name in given), None)
    draft = Draft(str(path))
    constants = _chosen(draft, data, None if env is None else env.removeprefix("gym:"))
    return one_configuration(draft, "rlzoo", Source(constants), given, SYSTEMS["sb3"])


def _data(path: Path) -> dict[str, Any]:
    if path.suffix == ".py":
        try:
            data = assigned(path.read_text(encoding="utf-8")).get("hyperparams")
        except (NotPlain, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: {error}") from None
        if data is None:
            raise ConfigError(f"{path}: no plain dictionary `hyperparams`")
    else:
        data = read_yaml(path)
    if not is_dict(data) or not data:
        raise ConfigError(f"{path}: no hyperparameters; they are a mapping for each environment")
    return data


def _chosen(draft: Draft, data: dict[str, Any], env: str | None) -> dict[str, Any]:
    """Return the configuration of an environment; a trained agent's file is one by itself."""
    if not any(isinstance(value, dict) for value in data.values()):
        if env is None:
            raise ConfigError(
                f"{draft.source}: one configuration; say of which environment, such as "
                "--env CartPole-v1"
            )
        return data
    envs = [str(name) for name in data if name not in _FALLBACKS]
    if env is None:
        if len(envs) != 1:
            raise ConfigError(
                f"{draft.source}: {len(envs)} environments; choose one with --env, such as "
                f"--env {(envs or ['CartPole-v1'])[0]}"
            )
        env = envs[0]
        data = {**data, env: {**_mapping(draft, env, data[env]), "env": env}}
    if env in data:
        return _mapping(draft, env, data[env])
    fallback = "atari" if "NoFrameskip" in env or env.startswith("ALE/") else "default"
    if fallback not in data:
        raise ConfigError(f"{draft.source}: no environment {env!r}. {listed(env, envs)}")
    draft.note(f"{env} is not in the file; its {fallback!r} is taken, as rl-zoo3 does")
    return _mapping(draft, fallback, data[fallback])


def _mapping(draft: Draft, name: str, value: Any) -> dict[str, Any]:
    if not is_dict(value):
        raise ConfigError(f"{draft.source}: {name} is {value!r}; allowed: a mapping")
    return {str(key): one for key, one in value.items()}
