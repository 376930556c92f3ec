"""The policy of a plan: network, action distribution and observation normaliser put together."""

from __future__ import annotations

import dataclasses
import math
from contextlib import nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Bool, PRNGKeyArray, UInt32

from ..errors import ConfigError
from .actions import action_shape, has_log_std, head_outputs, make_distribution
from .distributions import Distribution
from .envs import registry as environments
from .envs.contract import Environment, as_array
from .hypers import Hypers
from .lane_state import RunningStatistics
from .networks import registry as networks
from .networks.cnn import unit_bytes
from .networks.layers import Outputs
from .networks.mlp import takes_flags
from .networks.transformer import Keyed
from .plan import RECURRENT, Plan

_DROPOUT_WORD = np.uint32(0x7F4A7C15)
_PRECISIONS = {"float32": "float32", "tf32": "tensorfloat32", "bfloat16": "bfloat16"}


def _network(plan: Plan, env: Environment) -> nn.Module:
    struct = jax.eval_shape(_read, env.observation_struct)
    return networks.make(plan, head_outputs(plan, env), struct)


def init_params(plan: Plan, hypers: Hypers, key: PRNGKeyArray) -> dict[str, Any]:
    """Return fresh parameters of one lane, each drawn from the key and its name.

    Orthogonal initialisation is a QR decomposition, which must not run vmapped inside a program
    (two batched QR calls in flight deadlock on a two-core CPU): call this under `lax.map`.
    """
    env = environments.make(plan.env)
    probe = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), env.observation_struct)
    plan = dataclasses.replace(plan, dtype="float32")
    params = dict(_network(plan, env).init(key, _read(probe))["params"])
    if has_log_std(plan, env):
        params["log_std"] = jnp.full(action_shape(env), 1.0, jnp.float32) * hypers.log_std_init
    return params


def is_critic(name: str) -> bool:
    return name.startswith("critic")


def is_recurrent(plan: Plan) -> bool:
    return plan.network in RECURRENT


def initial_carry(plan: Plan, lead: tuple[int, ...]) -> Any:
    """Return the memory at the start of episodes, [lead, ...]; () for networks without one."""
    if not is_recurrent(plan):
        return ()
    network: Any = _network(plan, environments.make(plan.env))  # a `RecurrentNetwork`
    return network.initial_carry(lead)


def apply(plan: Plan, params: dict[str, Any], observation: Any) -> Outputs:
    """Run the network of one lane on (normalised) observations with any leading axes.

    A network with a memory takes each as the first of its episode. With `dtype: bfloat16` the
    network gets parameters and real observations in it, and gives float32; gradients arrive at
    float32 parameters.
    """
    return _call(plan, params, None, observation)


def step(plan: Plan, params: dict[str, Any], observation: Any, carry: Any) -> tuple[Outputs, Any]:
    """Run the network for one step; return outputs and memory. A `carry` of None is fresh."""
    if not is_recurrent(plan):
        return apply(plan, params, observation), carry
    if carry is None:
        struct = environments.make(plan.env).observation_struct
        first, known = jax.tree.leaves(observation)[0], jax.tree.leaves(struct)[0]
        carry = initial_carry(plan, first.shape[: first.ndim - len(known.shape)])
    return _call(plan, params, "step", observation, carry)


def unroll(
    plan: Plan, params: dict[str, Any], observation: Any, first: Bool[Array, "T S"], carry: Any
) -> Outputs:
    """Return the outputs [T, S] of one lane's sequences; `first` marks where an episode starts."""
    if not is_recurrent(plan):
        return apply(plan, params, observation)
    return _call(plan, params, "unroll", observation, first, carry)


def _call(
    plan: Plan, params: dict[str, Any], method: str | None, observation: Any, *rest: Any
) -> Any:
    env = environments.make(plan.env)
    network = {name: value for name, value in params.items() if name != "log_std"}
    args = (_network_input(plan, observation), *rest)
    mixing = nullcontext()
    if plan.dtype != "float32":
        network, args = _cast((network, args), plan.dtype)
        mixing = jax.numpy_dtype_promotion("standard")  # flax's norms are float32 inside
    precision = jax.default_matmul_precision(_PRECISIONS[plan.matmul_precision])
    with precision, mixing:  # gradients inherit the precision
        made = _network(plan, env).apply({"params": network}, *args, method=method)
    return made if plan.dtype == "float32" else _cast(made, "float32")


def to_act(plan: Plan, params: dict[str, Any]) -> dict[str, Any]:
    if plan.dtype == "float32" or not plan.backend.cast_once:
        return params
    own = {name: params[name] for name in params if name == "log_std"}  # never cast
    return _cast(params, plan.dtype) | own


def _cast(tree: Any, dtype: str) -> Any:
    def cast(x: Array) -> Array:
        return x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x

    return jax.tree.map(cast, tree)


def _read(observation: Any) -> Any:
    """Return an observation as networks read it, packed ones expanded.

    Products see the same floats as if a rollout had stored them, so outputs are the same bits.
    """
    if isinstance(observation, Keyed):
        return observation.replace(observation=as_array(observation.observation))
    return as_array(observation)


def _network_input(plan: Plan, observation: Any) -> Any:
    if hasattr(observation, "as_flags"):
        rows = math.prod(observation.lead)
        return observation.as_flags() if takes_flags(plan, rows) else _read(observation)
    return _read(observation)


def keyed(plan: Plan, observation: Any, words: UInt32[Array, "... 2"]) -> Any:
    """Return an observation with words for dropout masks, so that learning drops as acting did."""
    if not plan.transformer_enable_dropout:
        return observation
    return Keyed(observation, words ^ _DROPOUT_WORD)


def shown_like(seen: Any, observation: Any) -> Any:
    """Return one more observation [...] as a rollout shows it, [1, ...], with its last dropout."""
    one = jax.tree.map(lambda x: x[None], observation)
    return seen.replace(observation=one, words=seen.words[-1:]) if isinstance(seen, Keyed) else one


def plain(observation: Any) -> Any:
    return observation.observation if isinstance(observation, Keyed) else observation


def distribution_of(
    plan: Plan,
    hypers: Hypers,
    params: dict[str, Any],
    outputs: Outputs,
    mask: Bool[Array, "... A"] | None,
) -> Distribution:
    env = environments.make(plan.env)
    if mask is not None:
        mask = mask | (hypers.action_masking == 0.0)
    log_std = None
    if has_log_std(plan, env):
        log_std = jnp.clip(params["log_std"], hypers.log_std_min, hypers.log_std_max)
    return make_distribution(plan, env, outputs.policy, mask, log_std)


def statistics_shape(plan: Plan) -> tuple[int, ...]:
    if "normalise_observations" not in plan.features:
        return ()
    struct = jax.eval_shape(_read, environments.make(plan.env).observation_struct)
    if not hasattr(struct, "shape"):
        raise ConfigError(
            f"normalise_observations needs flat observations; those of {plan.env.id} are a tree"
        )
    return tuple(struct.shape)


def normalised(plan: Plan, hypers: Hypers, statistics: RunningStatistics, observation: Any) -> Any:
    """Return the observation as one lane's network sees it (leading axes allowed).

    Where lanes may differ in `normalise_observations`, bytes reach all networks as floats; a lane
    that does not normalise sees those of a cnn divided by 255, as that network does with bytes.
    """
    if "normalise_observations" not in plan.features:
        return observation
    if isinstance(observation, Keyed):
        inner = normalised(plan, hypers, statistics, observation.observation)
        return observation.replace(observation=inner)
    given = as_array(observation)
    raw = given.astype(jnp.float32)
    clean = statistics.normalise(raw, hypers.observation_clip)
    if plan.network == "cnn":
        raw = unit_bytes(given)
    return jnp.where(hypers.normalise_observations > 0.0, clean, raw)
