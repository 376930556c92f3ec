"""A trained policy at work: load it, let it act, evaluate it, here or in another environment.

from hpo.core import evaluate, load_policy, predict
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from numbers import Real
from typing import Any

from jaxtyping import Array, PRNGKeyArray

from ..environments import find
from ..errors import ConfigError, UnknownNameError
from .envs import registry as environments
from .envs.contract import same_observations
from .evaluation import Episodes
from .plan import EnvPlan, as_seen
from .saved_policy import SavedPolicy

__all__ = ["evaluate", "predict"]


def predict(
    policy: SavedPolicy,
    observation: Any,
    *,
    mask: Array | None = None,
    carry: Any = None,
    key: PRNGKeyArray | None = None,
    deterministic: bool = True,
) -> tuple[Array, Any]:
    """Return an action for one observation, or one each for a batch, and the carry.

    Args:
        policy: from `load_policy`.
        observation: as the environment gives it, a list or an array; leading batch axes are
            allowed. With `history: n` its last n ones, oldest first, zeros before the start.
        mask: valid actions, if the environment has them.
        carry: what the last call gave, None at the start of an episode; recurrent networks
            remember by it, others pass it through.
        key: a random key, needed unless `deterministic`.
        deterministic: the mode of the distribution instead of a sample.

    Raises:
        ConfigError: the observation has not the shape the policy was trained for.
    """
    return policy.predict(
        observation, mask=mask, carry=carry, key=key, deterministic=deterministic
    )


def evaluate(
    policy: SavedPolicy,
    env: str | Mapping[str, Any] | None = None,
    *,
    episodes: int = 20,
    seed: int = 0,
    greedy: bool = True,
    steps: int | None = None,
) -> Episodes:
    """Return returns and lengths [1, episodes] on seeds that no study uses.

    Args:
        policy: from `load_policy`.
        env: another environment than the one it was evaluated in: an id, or a mapping of `id` and
            keys as under `env:` of a study; left out, `id` is the policy's own.
        episodes: how many.
        seed: of the episodes.
        greedy: the mode of the distribution instead of a sample.
        steps: count so many env steps after the warm-up instead, in continuous operation.

    Raises:
        ConfigError: the environment has other observations or actions than the policy.
    """
    if env is not None:
        policy = _moved(policy, {"id": env} if isinstance(env, str) else env)
    return policy.evaluate(episodes, seed, greedy, steps)


def _moved(policy: SavedPolicy, env: Mapping[str, Any]) -> SavedPolicy:
    """Return the policy with another environment to be evaluated in."""
    before = policy.plan.eval_env
    given = {name: value for name, value in env.items() if name != "id"}
    id_ = env.get("id", before.id)
    _check_keys(id_, given)
    floats = environments.float_params(id_)
    keys = {name: _frozen(value) for name, value in given.items() if name not in floats}
    params = {name: _number(id_, name, given[name]) for name in given if name in floats}
    if id_ == before.id:
        keys, params = {**dict(before.keys), **keys}, {**policy.eval_params, **params}
    plan = as_seen(EnvPlan(id_, tuple(sorted(keys.items())), before.folder), policy.config)
    ours, theirs = environments.make(policy.plan.env), environments.make(plan)
    alike = {
        "action_space": ours.action_space == theirs.action_space,
        "observation_struct": same_observations(ours, theirs),
    }
    for name, same in alike.items():
        if not same:
            what = "actions" if name == "action_space" else "observations"
            raise ConfigError(
                f"{id_} has other {what} ({getattr(theirs, name)}) than {policy.plan.env.id}, "
                f"where this policy was trained ({getattr(ours, name)})"
            )
    moved = dataclasses.replace(policy.plan, eval_env=plan)
    return dataclasses.replace(policy, plan=moved, eval_params=params)


def _check_keys(id_: str, given: Mapping[str, Any]) -> None:
    """Refuse keys that an environment of the table does not have."""
    known = find(id_)
    if known is not None:
        names = [*known.keys, *known.params]
        for name in given:
            if name not in names:
                raise UnknownNameError(f"key of {id_}", name, names)


def _number(id_: str, name: str, value: Any) -> float:
    """Return the value of a parameter."""
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise ConfigError(f"{name} of {id_} is {value!r}; allowed: a number")
    return float(value)


def _frozen(value: Any) -> Any:
    return tuple(_frozen(item) for item in value) if isinstance(value, (list, tuple)) else value
