"""The multilayer perceptron: actor and critic towers, separate or over a shared encoder."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..observations import Flagged
from ..plan import Plan
from .dense import JoinedDense
from .flag_dense import FlagDense
from .outputs import Outputs

__all__ = ["ACTIVATIONS", "MLP", "takes_flags"]

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "tanh": jnp.tanh,
    "relu": jax.nn.relu,
    "elu": jax.nn.elu,
    "gelu": jax.nn.gelu,
    "leaky_relu": jax.nn.leaky_relu,
    "silu": jax.nn.silu,
}


_WIDE, _MANY = 1024, 64  # inputs and rows from which on a product is bound by operations
_MANY_ACTIONS = 256  # likewise, of a head whose inputs are few
_SPLIT: Any = jax.lax.DotAlgorithmPreset.BF16_BF16_F32_X6


def takes_flags(plan: Plan, rows: int) -> bool:
    """Return whether the network of a plan reads so many rows as `Flagged`, if it can have them.

    Of few rows a product is bound by reading the kernel, which parts make longer.
    """
    fitting = plan.network == "mlp" and bool(plan.hidden_sizes) and plan.dtype == "float32"
    fitting = fitting and plan.matmul_precision in ("float32", "tf32")
    return plan.backend.reads_flags and fitting and rows >= _MANY


def _in_float32(plan: Plan) -> bool:
    return plan.dtype == plan.matmul_precision == "float32"


def initialiser(plan: Plan, gain: float) -> nn.initializers.Initializer:
    """Return the weight initialiser of a plan, scaled by `gain`."""
    if plan.initialisation == "orthogonal":
        return nn.initializers.orthogonal(gain)
    return nn.initializers.variance_scaling(gain**2, "fan_in", "truncated_normal")


def _dense(plan: Plan, x: Float[Array, "... D"] | Flagged, width: int) -> Callable[..., nn.Module]:
    """Return the layer that a tower is made of, for inputs x."""
    if isinstance(x, Flagged):
        return partial(FlagDense, rounds=plan.matmul_precision == "tf32")
    inputs = x.shape[-1]
    if plan.backend.joins_biases and inputs < width:
        return JoinedDense
    precision: Any = None
    bound = inputs >= _WIDE and x.size >= _MANY * inputs
    if plan.backend.splits_wide_products and _in_float32(plan) and bound:
        precision = _SPLIT
    return lambda width, kernel, name: nn.Dense(
        width, kernel_init=kernel, name=name, precision=precision
    )


class Tower(nn.Module):
    """Hidden layers: dense, layer norm if asked, activation."""

    plan: Plan

    @nn.compact
    def __call__(self, x: Float[Array, "... D"] | Flagged) -> Any:
        """Return the last hidden layer [..., H]."""
        activation: Any = ACTIVATIONS[self.plan.activation]  # of arrays, which layers give
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
    splits: bool = False

    @nn.compact
    def __call__(self, x: Float[Array, "... H"]) -> Float[Array, "... A"]:
        """Return x W^T + b; where it `splits`, of many outputs by products of parts."""

        def transposed(key: PRNGKeyArray, shape: tuple[int, int]) -> Float[Array, "A H"]:
            return self.kernel_init(key, shape[::-1], jnp.float32).T

        kernel = self.param("kernel", transposed, (self.outputs, x.shape[-1]))
        contracted = (((x.ndim - 1,), (1,)), ((), ()))
        many = self.outputs >= _MANY_ACTIONS and x.size >= _MANY * x.shape[-1]
        y = jax.lax.dot_general(x, kernel, contracted, _SPLIT if self.splits and many else None)
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
    def __call__(self, observation: Array | Flagged) -> Outputs:
        """Return policy outputs [..., A] and values [...] of observations of any shape."""
        plan = self.plan
        if not isinstance(observation, Flagged):
            lead = observation.shape[: observation.ndim - self.observation_ndim]
            observation = observation.reshape((*lead, -1)).astype(plan.dtype)
        if plan.shared_encoder:
            actor = critic = Tower(plan, name="encoder")(observation)
        else:
            actor = Tower(plan, name="actor")(observation)
            critic = Tower(plan, name="critic")(observation)
        splits = plan.backend.splits_wide_products and _in_float32(plan)
        head = Head(
            self.outputs, initialiser(plan, plan.policy_gain), splits=splits, name="actor_head"
        )
        policy = head(actor)
        value = Head(1, initialiser(plan, plan.value_gain), name="critic_head")(critic)
        return Outputs(policy, value[..., 0])
