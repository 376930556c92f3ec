"""A plan's policy: network, action distribution and observation normaliser combined.

All acting goes through `act` and `act_to_learn`, so that normaliser, memory and mask are always
applied.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from contextlib import nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Bool, Float, PRNGKeyArray, UInt32

from ..environments.registry import fitting_distributions
from ..errors import ConfigError
from .distributions import ActionDistribution, Actions, Family, Squashed, family_of, spread_bounds
from .envs import registry as environments
from .envs.contract import Box, Discrete, Environment, MultiDiscrete, as_array
from .hypers import Hypers
from .lane_state import LaneState, RunningStatistics
from .masking import valid_mass_of
from .networks import registry as networks
from .networks.cnn import unit_bytes
from .networks.layers import Outputs
from .networks.mlp import Head, takes_flags
from .networks.transformer import Keyed
from .plan import RECURRENT, Plan
from .pytree import Pytree, pytree

_KINDS = {Discrete: "discrete", MultiDiscrete: "multi_discrete", Box: "continuous"}


def distribution_kind(plan: Plan, env: Environment) -> str:
    """Return the name of a plan's distribution; by default the first that fits its actions."""
    fitting = fitting_distributions(_KINDS.get(type(env.action_space), ""))
    if not fitting:
        kind = type(env.action_space).__name__
        raise ConfigError(f"{env.id} has actions of type {kind}, which no distribution supports")
    if plan.distribution is None:
        return fitting[0]
    if plan.distribution not in fitting:
        raise ConfigError(
            f"distribution is {plan.distribution!r}, which does not fit the actions of "
            f"{env.id}; remove it, or use one of: {', '.join(fitting)}"
        )
    return plan.distribution


def action_shape(env: Environment) -> tuple[int, ...]:
    space = env.action_space
    if isinstance(space, Discrete):
        return ()
    if isinstance(space, MultiDiscrete):
        return (len(space.nvec),)
    return (math.prod(space.shape),)


def component_sizes(env: Environment) -> tuple[int, ...] | None:
    space = env.action_space
    if not isinstance(space, MultiDiscrete):
        return None
    return space.nvec


def head_outputs(plan: Plan, env: Environment) -> int:
    """Return the width of the policy head: the number of logits or means, or two per component."""
    family, actions = _family_and_actions(plan, env)
    return family.outputs(actions)


def has_log_std(plan: Plan, env: Environment) -> bool:
    return family_of(distribution_kind(plan, env)).has_log_std


def draw_noise(plan: Plan, env: Environment, key: PRNGKeyArray, batch: tuple[int, ...]) -> Array:
    return family_of(distribution_kind(plan, env)).noise(key, batch, action_shape(env))


def draw_entropy_noise(
    plan: Plan, env: Environment, key: PRNGKeyArray, batch: tuple[int, ...]
) -> Array | None:
    return family_of(distribution_kind(plan, env)).entropy_noise(key, batch, action_shape(env))


def raw_logits(
    plan: Plan, env: Environment, outputs: Float[Array, "... P"]
) -> Float[Array, "... A"]:
    family, actions = _family_and_actions(plan, env)
    return family.logits(outputs, actions)


def _family_and_actions(plan: Plan, env: Environment) -> tuple[Family, Actions]:
    family, space = family_of(distribution_kind(plan, env)), env.action_space
    low = high = np.zeros(0, np.float32)
    if isinstance(space, Box):
        low, high = np.asarray(space.low, np.float32), np.asarray(space.high, np.float32)
        if family.bounded or _has_own_range(plan):
            low, high = action_range(plan, space)
        if family.bounded and not (np.all(np.isfinite(low)) and np.all(np.isfinite(high))):
            raise ConfigError(
                f"distribution {plan.distribution} needs bounded actions, but those of "
                f"{env.id} are unbounded; set action_low and action_high, or use gaussian"
            )
    return family, Actions(space, action_shape(env), low, high, plan.backend.selects_actions)


def _has_own_range(plan: Plan) -> bool:
    return plan.action_low is not None or plan.action_high is not None


def action_range(plan: Plan, space: Box) -> tuple[np.ndarray, np.ndarray]:
    low, high = np.asarray(space.low, np.float32), np.asarray(space.high, np.float32)
    if plan.action_low is not None:
        low = np.full_like(low, plan.action_low)
    if plan.action_high is not None:
        high = np.full_like(high, plan.action_high)
    if not np.all(low < high):
        at = int(np.argmin(low < high))
        raise ConfigError(
            f"actions would range from {low[at]:g} to {high[at]:g}; action_low must be below "
            "action_high (their defaults are the environment's bounds)"
        )
    return low, high


def environment_action(plan: Plan, env: Environment, action: Array) -> Array:
    """Return the environment's action for a policy's action; leading axes are allowed.

    Integers are returned unchanged. Real actions are mapped by the distribution, and clipped to
    `action_low` and `action_high` if either is set. Otherwise the environment clips them to its
    box.
    """
    space = env.action_space
    if not isinstance(space, Box):
        return action
    family, actions = _family_and_actions(plan, env)
    action = family.environment_action(action, actions)
    if _has_own_range(plan) and not isinstance(family, Squashed):  # it clips
        action = jnp.clip(action, *spread_bounds(actions, action))
    return action.reshape((*action.shape[:-1], *space.shape))


_DROPOUT_WORD = np.uint32(0x7F4A7C15)
_PRECISIONS = {"float32": "float32", "tf32": "tensorfloat32", "bfloat16": "bfloat16"}


def _make_network(plan: Plan, env: Environment) -> nn.Module:
    struct = jax.eval_shape(_expand_observation, env.observation_struct)
    return networks.make(plan, head_outputs(plan, env), struct)


def init_params(plan: Plan, hypers: Hypers, key: PRNGKeyArray) -> dict[str, Any]:
    """Return fresh parameters of one lane, drawn from the key and each parameter's name.

    Orthogonal initialisation is a QR decomposition, which must not run vmapped inside a program
    (two concurrent batched QR calls deadlock on a two-core CPU). Call this under `lax.map`.
    """
    env = environments.make(plan.env)
    probe = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), env.observation_struct)
    plan = dataclasses.replace(plan, dtype="float32")
    params = dict(_make_network(plan, env).init(key, _expand_observation(probe))["params"])
    if has_log_std(plan, env):
        params["log_std"] = jnp.full(action_shape(env), 1.0, jnp.float32) * hypers.log_std_init
    return params


@functools.lru_cache(maxsize=256)
def kernels_of_heads(plan: Plan) -> frozenset[str]:
    """Return the paths of the kernels that are stored output-first: those of every `Head`."""
    env, found = environments.make(plan.env), set[str]()

    def watch(call: Any, args: Any, given: Any, context: Any) -> Any:
        if isinstance(context.module, Head):
            found.add("/".join((*context.module.path, "kernel")))
        return call(*args, **given)

    key = jax.eval_shape(lambda: jax.random.key(0, impl="threefry2x32"))
    seen = jax.eval_shape(_expand_observation, env.observation_struct)
    with nn.intercept_methods(watch):
        network = _make_network(dataclasses.replace(plan, dtype="float32"), env)
        jax.eval_shape(network.init, key, seen)
    return frozenset(found)


def is_critic(name: str) -> bool:
    return name.startswith("critic")


def is_recurrent(plan: Plan) -> bool:
    return plan.network in RECURRENT


def initial_carry(plan: Plan, lead: tuple[int, ...]) -> Any:
    """Return the initial carry, [lead, ...]; () for networks that are not recurrent."""
    if not is_recurrent(plan):
        return ()
    network: Any = _make_network(plan, environments.make(plan.env))  # a `RecurrentNetwork`
    return network.initial_carry(lead)


def apply(plan: Plan, params: dict[str, Any], observation: Any) -> Outputs:
    """Run the network of one lane on (normalised) observations with any leading axes.

    A recurrent network treats each observation as the first of its episode. With `dtype: bfloat16`
    the network receives parameters and real observations in bfloat16 and returns float32;
    gradients are with respect to the float32 parameters.
    """
    return _apply_network(plan, params, None, observation)


def step(plan: Plan, params: dict[str, Any], observation: Any, carry: Any) -> tuple[Outputs, Any]:
    """Run the network for one step; return outputs and memory.

    If `carry` is None, an episode starts.
    """
    if not is_recurrent(plan):
        return apply(plan, params, observation), carry
    if carry is None:
        struct = environments.make(plan.env).observation_struct
        first, known = jax.tree.leaves(observation)[0], jax.tree.leaves(struct)[0]
        carry = initial_carry(plan, first.shape[: first.ndim - len(known.shape)])
    return _apply_network(plan, params, "step", observation, carry)


def unroll(
    plan: Plan, params: dict[str, Any], observation: Any, first: Bool[Array, "T S"], carry: Any
) -> Outputs:
    """Return outputs [T, S] of one lane's sequences; `first` marks the starts of episodes."""
    if not is_recurrent(plan):
        return apply(plan, params, observation)
    return _apply_network(plan, params, "unroll", observation, first, carry)


def _apply_network(
    plan: Plan, params: dict[str, Any], method: str | None, observation: Any, *rest: Any
) -> Any:
    env = environments.make(plan.env)
    network = {name: value for name, value in params.items() if name != "log_std"}
    args = (_network_input(plan, observation), *rest)
    mixing = nullcontext()
    if plan.dtype != "float32":
        network, args = _cast_floats((network, args), plan.dtype)
        mixing = jax.numpy_dtype_promotion("standard")  # flax's norms compute in float32
    precision = jax.default_matmul_precision(_PRECISIONS[plan.matmul_precision])
    with precision, mixing:  # gradients inherit the precision
        made = _make_network(plan, env).apply({"params": network}, *args, method=method)
    if plan.dtype == "float32":
        return made
    return _cast_floats(made, "float32")


def to_act(plan: Plan, params: dict[str, Any]) -> dict[str, Any]:
    if plan.dtype == "float32" or not plan.backend.cast_once:
        return params
    own = {name: params[name] for name in params if name == "log_std"}  # never cast
    return _cast_floats(params, plan.dtype) | own


def _cast_floats(tree: Any, dtype: str) -> Any:
    def cast(x: Array) -> Array:
        if not jnp.issubdtype(x.dtype, jnp.floating):
            return x
        return x.astype(dtype)

    return jax.tree.map(cast, tree)


def _expand_observation(observation: Any) -> Any:
    """Return an observation in the form that the network reads; packed ones are expanded.

    Matrix products then see the same floats as if the rollout had stored them expanded, so outputs
    are bitwise equal.
    """
    if isinstance(observation, Keyed):
        return observation.replace(observation=as_array(observation.observation))
    return as_array(observation)


def _network_input(plan: Plan, observation: Any) -> Any:
    if hasattr(observation, "as_flags") and takes_flags(plan, math.prod(observation.lead)):
        return observation.as_flags()
    return _expand_observation(observation)


def keyed(plan: Plan, observation: Any, words: UInt32[Array, "... 2"]) -> Any:
    """Return an observation with random bits for dropout masks, which learning reuses."""
    if not plan.transformer_enable_dropout:
        return observation
    return Keyed(observation, words ^ _DROPOUT_WORD)


def shown_like(observations: Any, observation: Any) -> Any:
    """Return an observation as a one-step rollout with the last dropout bits of `observations`."""
    one = jax.tree.map(lambda x: x[None], observation)
    if not isinstance(observations, Keyed):
        return one
    return observations.replace(observation=one, words=observations.words[-1:])


def plain(observation: Any) -> Any:
    if isinstance(observation, Keyed):
        return observation.observation
    return observation


def distribution_of(
    plan: Plan,
    hypers: Hypers,
    params: dict[str, Any],
    outputs: Outputs,
    mask: Bool[Array, "... A"] | None,
) -> ActionDistribution:
    family, actions = _family_and_actions(plan, environments.make(plan.env))
    wanted, given = family.outputs(actions), outputs.policy.shape[-1]
    if given != wanted:
        raise ConfigError(
            f"distribution {plan.distribution} needs {wanted} outputs, but network "
            f"{plan.network} has {given} here; change the distribution or the network"
        )
    if mask is not None:
        mask = mask | (hypers.action_masking == 0.0)
    log_std = None
    if family.has_log_std:
        log_std = jnp.clip(params["log_std"], hypers.log_std_min, hypers.log_std_max)
    return family.make(outputs.policy, actions, mask, log_std)


def statistics_shape(plan: Plan) -> tuple[int, ...]:
    if "normalise_observations" not in plan.features:
        return ()
    struct = jax.eval_shape(_expand_observation, environments.make(plan.env).observation_struct)
    if not hasattr(struct, "shape"):
        raise ConfigError(
            f"normalise_observations needs flat observations, but those of {plan.env.id} are a "
            "pytree; set it to false"
        )
    return tuple(struct.shape)


def normalised(plan: Plan, hypers: Hypers, statistics: RunningStatistics, observation: Any) -> Any:
    """Return the observation as one lane's network sees it (leading axes allowed).

    If lanes may differ in `normalise_observations`, bytes are converted to floats in all of them.
    Without normalisation, bytes for a cnn are divided by 255, as in the cnn itself.
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


@pytree
class Acted(Pytree):
    action: Array
    taken: Array  # the environment's action
    mask: Bool[Array, "... A"] | None  # valid actions
    log_prob: Float[Array, "..."]
    value: Float[Array, "..."]
    valid_mass: Float[Array, "..."] | None  # see `rollout.Trajectory`
    memory: Any  # after the step


def _step_outputs(
    plan: Plan,
    hypers: Hypers,
    params: Any,
    statistics: RunningStatistics,
    observation: Any,
    *,
    memory: Any,
) -> tuple[Outputs, Any]:
    inputs = normalised(plan, hypers, statistics, observation)
    return step(plan, params, inputs, memory)


def act(
    plan: Plan,
    env: Environment,
    hypers: Hypers,
    params: Any,
    statistics: RunningStatistics,
    *,
    observation: Any,
    mask: Bool[Array, "... A"] | None,
    memory: Any,
    key: PRNGKeyArray | None,
) -> tuple[Array, Any]:
    """Return one lane's environment action for raw observations [...], and the updated memory.

    If `history` is above 1, the observations must already be stacked. If `mask` is None, every
    action is valid; if `memory` is None, the initial carry is used. Actions are sampled with
    `key`; without a key, the mode is returned.
    """
    outputs, memory = _step_outputs(plan, hypers, params, statistics, observation, memory=memory)
    distribution = distribution_of(plan, hypers, params, outputs, mask)
    if key is None:
        return environment_action(plan, env, distribution.mode()), memory
    noise = draw_noise(plan, env, key, outputs.value.shape)
    return environment_action(plan, env, distribution.sample(noise)), memory


def act_to_learn(
    plan: Plan,
    env: Environment,
    hypers: Hypers,
    state: LaneState,
    shown: Any,
    *,
    mask: Bool[Array, "S A"] | None,
    noise: Array,
) -> Acted:
    """Return one lane's action, with the other data that learning needs.

    `shown` is the observation, plus the random bits for dropout if dropout is on.
    """
    params = state.params
    outputs, memory = _step_outputs(
        plan, hypers, params, state.observation_statistics, shown, memory=state.carry
    )
    distribution = distribution_of(plan, hypers, params, outputs, mask)
    action = distribution.sample(noise)
    valid_mass = None
    if mask is not None:
        logits = raw_logits(plan, env, outputs.policy)
        valid_mass = valid_mass_of(logits, mask, component_sizes(env))
    return Acted(
        action=action,
        taken=environment_action(plan, env, action),
        mask=mask,
        log_prob=distribution.log_prob(action),
        value=outputs.value,
        valid_mass=valid_mass,
        memory=memory,
    )


def value_of(plan: Plan, hypers: Hypers, state: LaneState, observation: Any) -> Float[Array, "*S"]:
    return look_ahead(plan, hypers, state, observation, state.carry)[0]


def look_ahead(
    plan: Plan, hypers: Hypers, state: LaneState, observation: Any, memory: Any
) -> tuple[Float[Array, "*S"], Any]:
    """Return V for one lane's observations [*S, ...] and memory, and the updated memory."""
    statistics = state.observation_statistics
    outputs, memory = _step_outputs(
        plan, hypers, state.params, statistics, observation, memory=memory
    )
    return outputs.value, memory
