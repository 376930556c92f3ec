"""The multilayer perceptron: actor and critic towers, separate or over a shared encoder."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..envs.contract import Flagged, Routes
from ..plan import Plan
from .layers import Dense, FlagDense, JoinedDense, Outputs

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "tanh": jnp.tanh,
    "relu": jax.nn.relu,
    "elu": jax.nn.elu,
    "gelu": jax.nn.gelu,
    "leaky_relu": jax.nn.leaky_relu,
    "silu": jax.nn.silu,
}


_WIDE, _MANY = 1024, 64  # inputs and rows from which on a product is compute-bound
_MANY_ACTIONS = 256  # the same for a head with few inputs
_SPLIT: Any = jax.lax.DotAlgorithmPreset.BF16_BF16_F32_X6


def takes_flags(plan: Plan, rows: int) -> bool:
    """Return whether a network reads `rows` rows as `Flagged`, which pays only for many rows."""
    fitting = plan.network == "mlp" and bool(plan.hidden_sizes) and plan.dtype == "float32"
    fitting = fitting and plan.matmul_precision in ("float32", "tf32")
    return plan.backend.reads_flags and fitting and rows >= _MANY


def _in_float32(plan: Plan) -> bool:
    return plan.dtype == plan.matmul_precision == "float32"


def initialiser(plan: Plan, gain: float) -> nn.initializers.Initializer:
    if plan.initialisation == "orthogonal":
        return nn.initializers.orthogonal(gain)
    return nn.initializers.variance_scaling(gain**2, "fan_in", "truncated_normal")


def _choose_dense(
    plan: Plan, x: Float[Array, "... D"] | Flagged, width: int
) -> Callable[..., nn.Module]:
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


def activated(plan: Plan, x: Any, norm: str, normalise: bool = False) -> Any:
    """Apply layer norm (if on) and the activation; call this in a compact module."""
    if plan.layer_norm or normalise:
        x = nn.LayerNorm(name=norm)(x)
    return ACTIVATIONS[plan.activation](x)


def both_towers(plan: Plan, tower: Callable[..., nn.Module], *inputs: Any) -> tuple[Any, Any]:
    if plan.shared_encoder:
        shared: Any = tower(name="encoder")(*inputs)
        return shared, shared
    return tower(name="actor")(*inputs), tower(name="critic")(*inputs)


def both_heads(
    plan: Plan, outputs: int, actor: Array, critic: Array, splits: bool = False
) -> Outputs:
    policy = Head(outputs, initialiser(plan, plan.policy_gain), splits=splits, name="actor_head")(
        actor
    )
    return Outputs(policy, value_head(plan, critic)[..., 0])


def value_head(plan: Plan, critic: Array) -> Float[Array, "... 1"]:
    return Head(1, initialiser(plan, plan.value_gain), name="critic_head")(critic)


class Tower(nn.Module):
    plan: Plan

    @nn.compact
    def __call__(self, x: Float[Array, "... D"] | Flagged) -> Any:
        for i, width in enumerate(self.plan.hidden_sizes):
            kernel = initialiser(self.plan, self.plan.hidden_gain)
            x = _choose_dense(self.plan, x, width)(width, kernel, name=f"dense_{i}")(x)
            x = activated(self.plan, x, f"norm_{i}")
        return x


class Head(nn.Module):
    """A linear layer with few outputs, whose kernel is stored output-first.

    On a CPU, the gradient of [H, A] kernels with small A takes five times as long as that of [A,
    H] kernels. With `splits`, a product with many outputs is computed from bfloat16 parts.
    """

    outputs: int
    kernel_init: nn.initializers.Initializer
    biased: bool = True
    splits: bool = False

    @nn.compact
    def __call__(self, x: Float[Array, "... H"]) -> Float[Array, "... A"]:
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
    """Maps flat observations to policy outputs and a value.

    Top-level parameters whose names start with `critic` are updated by the critic's optimiser, and
    all others (including a shared encoder) by the policy's.
    """

    plan: Plan
    outputs: int
    observation_ndim: int

    @nn.compact
    def __call__(self, observation: Array | Flagged) -> Outputs:
        plan = self.plan
        if not isinstance(observation, Flagged):
            lead = observation.shape[: observation.ndim - self.observation_ndim]
            observation = observation.reshape((*lead, -1)).astype(plan.dtype)
        splits = plan.backend.splits_wide_products and _in_float32(plan)
        towers = both_towers(plan, partial(Tower, plan), observation)
        return both_heads(plan, self.outputs, *towers, splits=splits)


SLOT = "slot"  # `path_mlp_begins`: untrained, prefer low slots to early paths

_REQUEST, _LOAD = 3, 1  # numbers about the request and the network (share in use)
_PATH, _START = 8, 1  # numbers about a path, and the index of its lowest start over S


def observed_size(routes: Routes) -> int:
    return 2 * routes.num_nodes + _REQUEST + _PATH * routes.hops.shape[1] + len(routes.km)


class PathMLP(nn.Module):
    """Maps the `paths` observations of optical environments to logits and values.

    Option o (of O) of path i has the logit f(path, request, links)_o - a i - b o / O. a and b
    start at 1, and f starts near 0, because its head has small initial weights. If
    `path_mlp_begins` is `slot`, the logit is f(path, request, links)_o - a i / K - b o / O - c s,
    where s is the path's lowest start and c also starts at 1. Path features are squashed by
    arcsinh, because free blocks are up to S times as long as a request needs. The critic sees how
    full the links are but not the request, so its value does not depend on the request that
    happens to arrive next.
    """

    plan: Plan
    outputs: int
    routes: Routes
    slots: int  # S

    @nn.compact
    def __call__(self, observation: Float[Array, "... D"]) -> Outputs:
        plan, routes = self.plan, self.routes
        lead, paths = observation.shape[:-1], routes.hops.shape[1]
        rows = observation.reshape((-1, observation.shape[-1])).astype(plan.dtype)
        ends = 2 * routes.num_nodes
        request, path_features, free = jnp.split(
            rows, [ends + _REQUEST, ends + _REQUEST + _PATH * paths], axis=-1
        )
        path_features = path_features.reshape((-1, paths, _PATH))
        loads = jnp.concatenate([request[:, -_LOAD:], 2.0 - 4.0 * free], axis=-1)
        hidden = self._of_paths(path_features, jnp.append(request, loads, -1))
        initial = initialiser(plan, plan.policy_gain)
        logits = Head(routes.outputs, initial, name="actor_head")(hidden)
        by_slot = plan.path_mlp_begins == SLOT
        slopes = self.param("slopes", nn.initializers.ones, (3 if by_slot else 2,), jnp.float32)
        places = jnp.asarray(np.indices((paths, routes.outputs)), jnp.float32)
        if by_slot:
            logits = logits - slopes[2] * (path_features[..., _START, None] * self.slots)
        steps = jnp.array([1.0 / paths if by_slot else 1.0, 1.0 / routes.outputs])
        order = jnp.einsum("s,sko->ko", slopes[:2] * steps, places)
        logits = (logits - order[None]).reshape((rows.shape[0], -1))
        further = self.outputs - logits.shape[-1]
        if further:  # actions without a path, ranked last at first
            rest = Head(further, initial, name="actor_further")(jnp.mean(hidden, axis=-2))
            most = jnp.array([1.0, 1.0, self.slots] if by_slot else [paths, 1.0])
            logits = jnp.append(logits, rest - jnp.sum(slopes * most), axis=-1)
        for i, width in enumerate(plan.hidden_sizes):
            loads = Dense(width, self._kernel_init, name=f"critic_{i}")(loads)
            loads = activated(plan, loads, f"critic_norm_{i}")
        value = value_head(plan, loads)
        return Outputs(logits.reshape((*lead, -1)), value.reshape(lead))

    @property
    def _kernel_init(self) -> Any:
        return initialiser(self.plan, self.plan.hidden_gain)

    def _of_paths(
        self, path_features: Float[Array, "B K 8"], shared: Float[Array, "B C"]
    ) -> Float[Array, "B K H"]:
        """Return each path's last hidden layer; inputs shared by the paths are multiplied once."""
        rank = np.arange(path_features.shape[1], dtype=np.float32)
        ranks = jnp.asarray(
            np.stack([rank / len(rank), 1.0 / (1.0 + rank)], -1), path_features.dtype
        )
        ranks = jnp.broadcast_to(ranks[None], (*path_features.shape[:2], 2))
        x = jnp.concatenate([jnp.arcsinh(path_features), ranks], axis=-1)
        for i, width in enumerate(self.plan.hidden_sizes):
            x = Dense(width, self._kernel_init, name=f"path_{i}")(x)
            if i == 0:
                x = (
                    x
                    + Dense(width, self._kernel_init, biased=False, name="shared")(shared)[:, None]
                )
            x = activated(self.plan, x, f"norm_{i}")
        return x
