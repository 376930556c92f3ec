"""What a trial was evaluated in: values of unlike environments are not set beside each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...environments import find
from ...studies.own_evaluation import OF_THE_POLICY

__all__ = ["apart", "evaluated_in"]


def evaluated_in(study: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the environment that a trial was evaluated in: its id, every key and parameter.

    Args:
        study: the resolved study as plain data, as its journal has it.
        params: the searched knobs of the trial.
    """
    searched = {key[4:]: value for key, value in params.items() if key.startswith("env.")}
    values = {key: value for key, value in study["env"].items() if key != "id"}
    given = {**values, **searched, **(study.get("eval_env") or {})}
    env = str(study["env"]["id"])
    world = {"env": env, "greedy": study["evaluation"]["greedy"], **_defaults(env)}
    return world | {key: value for key, value in given.items() if key not in OF_THE_POLICY}


def _defaults(env: str) -> dict[str, Any]:
    """Return the defaults of an environment's keys and parameters."""
    known = find(env)
    if known is None:
        return {}
    keys = {name: key.default for name, key in known.keys.items() if name not in OF_THE_POLICY}
    return {**keys, **known.params}


def apart(a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
    """Return the keys in which two environments differ, with both values; "" for none."""
    keys = [key for key in {**a, **b} if _plain(a.get(key)) != _plain(b.get(key))]
    return ", ".join(f"{key}: {a.get(key)} and {b.get(key)}" for key in keys)


def _plain(value: Any) -> Any:
    return tuple(map(_plain, value)) if isinstance(value, list | tuple) else value
