"""The policy of a plan: network, action distribution and observation normaliser put together."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, PRNGKeyArray

from ..errors import ConfigError
from .actions import (
    action_shape,
    distribution_kind,
    environment_action,
    has_log_std,
    head_outputs,
    make_distribution,
)
from .distributions import Distribution
from .envs import registry as environments
from .envs.contract import Environment
from .networks import registry as networks
from .networks.outputs import Outputs
from .normalise import RunningStatistics
from .state import Hypers, Plan

__all__ = [
    "action_shape",
    "apply",
    "distribution_kind",
    "distribution_of",
    "environment_action",
    "init_params",
    "is_critic",
    "normalised",
    "statistics_shape",
]

_PRECISIONS = {"float32": "float32", "tf32": "tensorfloat32", "bfloat16": "bfloat16"}


def _network(plan: Plan, env: Environment) -> nn.Module:
    return networks.make(plan, head_outputs(plan, env), env.observation_struct)


def init_params(plan: Plan, hypers: Hypers, key: PRNGKeyArray) -> dict[str, Any]:
    """Give fresh parameters of one lane, each drawn from the key and its own name.

    Orthogonal initialisation is a QR decomposition, which must not run vmapped inside a program
    (two batched QR calls in flight deadlock on a two-core CPU): call this under `lax.map`.
    """
    env = environments.make(plan.env)
    probe = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), env.observation_struct)
    params = dict(_network(plan, env).init(key, probe)["params"])
    if has_log_std(plan, env):
        params["log_std"] = jnp.full(action_shape(env), 1.0, jnp.float32) * hypers.log_std_init
    return params


def is_critic(name: str) -> bool:
    """Say whether a top-level parameter name belongs to the critic's optimiser."""
    return name.startswith("critic")


def apply(plan: Plan, params: dict[str, Any], observation: Any) -> Outputs:
    """Run the network of one lane on (normalised) observations with any leading axes."""
    env = environments.make(plan.env)
    network = {name: value for name, value in params.items() if name != "log_std"}
    with jax.default_matmul_precision(_PRECISIONS[plan.matmul_precision]):  # gradients inherit it
        outputs = _network(plan, env).apply({"params": network}, observation)
    assert isinstance(outputs, Outputs)  # the networks' contract
    return outputs


def distribution_of(
    plan: Plan,
    hypers: Hypers,
    params: dict[str, Any],
    outputs: Outputs,
    mask: Bool[Array, "... A"] | None,
) -> Distribution:
    """Give the action distribution of one lane's outputs."""
    env = environments.make(plan.env)
    if mask is not None:
        mask = mask | (hypers.action_masking == 0.0)
    log_std = None
    if has_log_std(plan, env):
        log_std = jnp.clip(params["log_std"], hypers.log_std_min, hypers.log_std_max)
    return make_distribution(plan, env, outputs.policy, mask, log_std)


def statistics_shape(plan: Plan) -> tuple[int, ...]:
    """Give the shape of the observation statistics, [] if they are compiled out."""
    if "normalise_observations" not in plan.features:
        return ()
    struct = environments.make(plan.env).observation_struct
    if not hasattr(struct, "shape"):
        raise ConfigError(
            f"normalise_observations needs flat observations; those of {plan.env.id} are a tree"
        )
    return tuple(struct.shape)


def normalised(plan: Plan, hypers: Hypers, statistics: RunningStatistics, observation: Any) -> Any:
    """Give the observation as one lane's network sees it (leading axes allowed)."""
    if "normalise_observations" not in plan.features:
        return observation
    raw = observation.astype(jnp.float32)
    clean = statistics.normalise(raw, hypers.observation_clip)
    return jnp.where(hypers.normalise_observations > 0.0, clean, raw)
