"""What a trial was evaluated in: values of unlike environments are not set beside each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...environments import find
from ...studies.own_evaluation import OF_THE_POLICY
from ...studies.several import has_key

__all__ = ["apart", "evaluated_in"]


def evaluated_in(study: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the environment that a trial was evaluated in: its id, every key and parameter.

    Args:
        study: the resolved study as plain data, as its journal has it.
        params: the searched knobs of the trial.
    """
    greedy = study["evaluation"]["greedy"]
    if isinstance(study["env"], list):
        listed: list[Mapping[str, Any]] = study["env"]
        named = " and ".join(str(one["id"]) for one in listed)
        each = [_world(one, params, {}) for one in listed]
        numbered = {
            f"{one['env']} ({at + 1}) {key}": value
            for at, one in enumerate(each)
            for key, value in one.items()
            if key != "env"
        }
        return {"env": named, "greedy": greedy, **numbered}
    world = _world(study["env"], params, study.get("eval_env") or {})
    return {"env": world["env"], "greedy": greedy, **world}


def _world(
    given: Mapping[str, Any], params: Mapping[str, Any], held_out: Mapping[str, Any]
) -> dict[str, Any]:
    """Return one environment with every key: its defaults, what is given, searched, and changed.

    Of several, what scores 0 and 1 on it, too.
    """
    env = str(given["id"])
    searched = {
        key[4:]: value
        for key, value in params.items()
        if key.startswith("env.") and has_key(env, key)
    }
    values = {key: value for key, value in given.items() if key != "id"}
    own = {**values, **searched, **held_out}
    kept = {key: value for key, value in own.items() if key not in OF_THE_POLICY}
    return {"env": env, **_defaults(env), **kept}


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
