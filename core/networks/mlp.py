"""The multilayer perceptron: actor and critic towers, separate or over a shared encoder."""

from __future__ import annotations

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..state import Plan
from .outputs import Outputs

__all__ = ["ACTIVATIONS", "MLP"]

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "tanh": jnp.tanh,
    "relu": jax.nn.relu,
    "elu": jax.nn.elu,
    "gelu": jax.nn.gelu,
    "leaky_relu": jax.nn.leaky_relu,
    "silu": jax.nn.silu,
}


def initialiser(plan: Plan, gain: float) -> nn.initializers.Initializer:
    """Give the weight initialiser of a plan, scaled by `gain`."""
    if plan.initialisation == "orthogonal":
        return nn.initializers.orthogonal(gain)
    return nn.initializers.variance_scaling(gain**2, "fan_in", "truncated_normal")


class Tower(nn.Module):
    """Hidden layers: dense, layer norm if asked, activation."""

    plan: Plan

    @nn.compact
    def __call__(self, x: Float[Array, "... D"]) -> Float[Array, "... H"]:
        """Give the last hidden layer."""
        activation = ACTIVATIONS[self.plan.activation]
        for i, width in enumerate(self.plan.hidden_sizes):
            kernel = initialiser(self.plan, self.plan.hidden_gain)
            x = nn.Dense(width, kernel_init=kernel, name=f"dense_{i}")(x)
            if self.plan.layer_norm:
                x = nn.LayerNorm(name=f"norm_{i}")(x)
            x = activation(x)
        return x


class MLP(nn.Module):
    """Flat observations to policy outputs and a value.

    Top-level parameter names that start with `critic` belong to the critic's optimiser, all
    others (a shared encoder too) to the policy's.
    """

    plan: Plan
    outputs: int
    observation_ndim: int

    @nn.compact
    def __call__(self, observation: Array) -> Outputs:
        """Give policy outputs [..., A] and values [...] of observations of any shape and dtype."""
        plan = self.plan
        lead = observation.shape[: observation.ndim - self.observation_ndim]
        observation = observation.reshape((*lead, -1)).astype(jnp.float32)
        if plan.shared_encoder:
            actor = critic = Tower(plan, name="encoder")(observation)
        else:
            actor = Tower(plan, name="actor")(observation)
            critic = Tower(plan, name="critic")(observation)
        policy = nn.Dense(
            self.outputs, kernel_init=initialiser(plan, plan.policy_gain), name="actor_head"
        )(actor)
        value = nn.Dense(1, kernel_init=initialiser(plan, plan.value_gain), name="critic_head")(
            critic
        )
        return Outputs(policy, value[..., 0])
