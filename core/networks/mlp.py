"""The multilayer perceptron: actor and critic towers, separate or over a shared encoder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..plan import Plan
from .dense import JoinedDense
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


_WIDE, _MANY = 1024, 64  # inputs and rows from which on a product is bound by operations


def initialiser(plan: Plan, gain: float) -> nn.initializers.Initializer:
    """Return the weight initialiser of a plan, scaled by `gain`."""
    if plan.initialisation == "orthogonal":
        return nn.initializers.orthogonal(gain)
    return nn.initializers.variance_scaling(gain**2, "fan_in", "truncated_normal")


def _dense(plan: Plan, x: Float[Array, "... D"], width: int) -> Callable[..., nn.Module]:
    """Return the layer that a tower is made of, for inputs x."""
    inputs = x.shape[-1]
    if plan.backend.joins_biases and inputs < width:
        return JoinedDense
    precision: Any = None
    in_float32 = plan.dtype == plan.matmul_precision == "float32"
    bound = inputs >= _WIDE and x.size >= _MANY * inputs
    if plan.backend.splits_wide_products and in_float32 and bound:
        precision = jax.lax.DotAlgorithmPreset.BF16_BF16_F32_X6
    return lambda width, kernel, name: nn.Dense(
        width, kernel_init=kernel, name=name, precision=precision
    )


class Tower(nn.Module):
    """Hidden layers: dense, layer norm if asked, activation."""

    plan: Plan

    @nn.compact
    def __call__(self, x: Float[Array, "... D"]) -> Float[Array, "... H"]:
        """Return the last hidden layer."""
        activation = ACTIVATIONS[self.plan.activation]
        for i, width in enumerate(self.plan.hidden_sizes):
            kernel = initialiser(self.plan, self.plan.hidden_gain)
            x = _dense(self.plan, x, width)(width, kernel, name=f"dense_{i}")(x)
            if self.plan.layer_norm:
                x = nn.LayerNorm(name=f"norm_{i}")(x)
            x = activation(x)
        return x


class Head(nn.Module):
    """A linear layer of few outputs, its kernel stored output-first.

    On a CPU the gradient of [H, A] kernels with small A takes five times as long as that of
    [A, H] ones.
    """

    outputs: int
    kernel_init: nn.initializers.Initializer
    biased: bool = True

    @nn.compact
    def __call__(self, x: Float[Array, "... H"]) -> Float[Array, "... A"]:
        """Return x W^T + b."""

        def transposed(key: PRNGKeyArray, shape: tuple[int, int]) -> Float[Array, "A H"]:
            return self.kernel_init(key, shape[::-1], jnp.float32).T

        kernel = self.param("kernel", transposed, (self.outputs, x.shape[-1]))
        contracted = (((x.ndim - 1,), (1,)), ((), ()))
        y = jax.lax.dot_general(x, kernel, contracted)
        if not self.biased:
            return y
        bias = self.param("bias", nn.initializers.zeros, (self.outputs,))
        return y + bias.reshape((1,) * (y.ndim - 1) + bias.shape)


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
        """Return policy outputs [..., A] and values [...] of observations of any shape."""
        plan = self.plan
        lead = observation.shape[: observation.ndim - self.observation_ndim]
        observation = observation.reshape((*lead, -1)).astype(plan.dtype)
        if plan.shared_encoder:
            actor = critic = Tower(plan, name="encoder")(observation)
        else:
            actor = Tower(plan, name="actor")(observation)
            critic = Tower(plan, name="critic")(observation)
        policy = Head(self.outputs, initialiser(plan, plan.policy_gain), name="actor_head")(actor)
        value = Head(1, initialiser(plan, plan.value_gain), name="critic_head")(critic)
        return Outputs(policy, value[..., 0])
