"""A dense layer for rows that are mostly flags, computed with bfloat16 parts of the kernel.

A float32 is the sum of three bfloat16 numbers (8 significant bits each), and a flag is exact in
bfloat16. So multiplying flags by a kernel takes three tensor-core products, instead of six for two
float arrays. The result is exact, except for rounding in the float32 sums. In tf32, one product
suffices.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..envs.contract import Flagged
from ..pytree import Pytree, pytree


class Weights(nn.Module):
    width: int
    kernel_init: nn.initializers.Initializer
    biased: bool = True

    @nn.compact
    def __call__(self, size: int) -> tuple[Float[Array, "D W"], Float[Array, " W"]]:
        kernel = self.param("kernel", self.kernel_init, (size, self.width), jnp.float32)
        if not self.biased:
            return kernel, jnp.zeros(self.width, kernel.dtype)
        return kernel, self.param("bias", nn.initializers.zeros, (self.width,), jnp.float32)


class Dense(nn.Module):
    width: int
    kernel_init: nn.initializers.Initializer
    biased: bool = True

    @nn.compact
    def __call__(self, x: Float[Array, "*B D"]) -> Float[Array, "*B W"]:
        kernel = self.param("kernel", self.kernel_init, (x.shape[-1], self.width), jnp.float32)
        made = row_product(x, kernel)
        if not self.biased:
            return made
        bias = self.param("bias", nn.initializers.zeros, (self.width,), jnp.float32)
        return made + bias.reshape((1,) * (made.ndim - 1) + (-1,))


class JoinedDense(nn.Module):
    """x W + b like `flax.linen.Dense`, with the gradients of W and b from one product.

    A column of ones is appended to the rows, which costs little because the rows are short. On a
    GPU, a separate sum over rows would be another kernel, or would delay the kernel that computes
    its terms.
    """

    width: int
    kernel_init: nn.initializers.Initializer

    @nn.compact
    def __call__(self, x: Float[Array, "*B D"]) -> Float[Array, "*B W"]:
        kernel = self.param("kernel", self.kernel_init, (x.shape[-1], self.width), jnp.float32)
        bias = self.param("bias", nn.initializers.zeros, (self.width,), jnp.float32)
        # products here use this precision; their gradients are traced elsewhere
        precision = jax.config.jax_default_matmul_precision  # type: ignore[attr-defined]
        made: Any = _joint_product(x.reshape((-1, x.shape[-1])), kernel, bias, precision)
        return made.reshape((*x.shape[:-1], self.width))


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def _joint_product(x: Any, kernel: Any, bias: Any, precision: Any) -> Float[Array, "N W"]:
    return jnp.matmul(x, kernel, precision=precision) + bias[None]


def _joint_forward(x: Any, kernel: Any, bias: Any, precision: Any) -> Any:
    return _joint_product(x, kernel, bias, precision), (x, kernel)


def _joint_backward(precision: Any, kept: tuple[Any, Any], given: Any) -> tuple[Any, Any, Any]:
    x, kernel = kept
    longer = jnp.concatenate([x, jnp.ones_like(x[:, :1])], axis=1)
    both = jnp.matmul(longer.T, given, precision=precision)
    return jnp.matmul(given, kernel.T, precision=precision), both[:-1], both[-1]


_joint_product.defvjp(_joint_forward, _joint_backward)


def row_product(x: Float[Array, "*B D"], kernel: Float[Array, "D W"]) -> Float[Array, "*B W"]:
    """Return x W, computed as one matrix product over all rows of x."""
    made = x.reshape((-1, x.shape[-1])) @ kernel
    return made.reshape((*x.shape[:-1], kernel.shape[-1]))


def side_by_side(
    x: Float[Array, "*B D"], *weights: tuple[Float[Array, "D W"], Float[Array, " W"]]
) -> tuple[Float[Array, "*B W"], ...]:
    """Return the outputs of equally wide layers for the same rows, with one matrix product."""
    kernels, biases = (jnp.concatenate(parts, axis=-1) for parts in zip(*weights, strict=True))
    made = row_product(x, kernels) + biases.reshape((1,) * (x.ndim - 1) + (-1,))
    return tuple(jnp.split(made, len(weights), axis=-1))


_ONE: Any = jax.lax.DotAlgorithmPreset.BF16_BF16_F32
_SIX: Any = jax.lax.DotAlgorithmPreset.BF16_BF16_F32_X6
_TF32: Any = "tensorfloat32"


class FlagDense(nn.Module):
    """x W + b of `Flagged` rows, with the parameters of `flax.linen.Dense`."""

    width: int
    kernel_init: nn.initializers.Initializer
    rounds: bool = False  # inputs are rounded to tf32, and each product is a single one

    @nn.compact
    def __call__(self, x: Flagged) -> Float[Array, "*B W"]:
        numbers, flags = (rows.reshape((-1, rows.shape[-1])) for rows in (x.numbers, x.flags))
        size = numbers.shape[-1] + flags.shape[-1]
        kernel = self.param("kernel", self.kernel_init, (size, self.width), jnp.float32)
        bias = self.param("bias", nn.initializers.zeros, (self.width,), jnp.float32)
        made: Any = _flag_dense(self.rounds, numbers, flags, kernel, bias)
        return made.reshape((*x.flags.shape[:-1], self.width))


def in_parts(x: Float[Array, "..."]) -> tuple[Array, Array, Array]:
    """Return three bfloat16 arrays whose sum is x, the largest first.

    Rounding is explicit, because XLA removes round-trip conversions.

    >>> [float(part) for part in in_parts(jnp.float32(1 + 2**-9 + 2**-20))]
    [1.0, 0.001953125, 9.5367431640625e-07]
    """

    def rounded(x: Array) -> Array:
        return jax.lax.reduce_precision(x, exponent_bits=8, mantissa_bits=7)

    high = rounded(x)
    middle = rounded(x - high)
    low = rounded(x - high - middle)
    return high.astype(jnp.bfloat16), middle.astype(jnp.bfloat16), low.astype(jnp.bfloat16)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _flag_dense(
    rounds: bool, numbers: Any, flags: Any, kernel: Any, bias: Any
) -> Float[Array, "N W"]:
    few = numbers.shape[1]
    if rounds:
        made = jnp.matmul(_cast_flags(flags, jnp.float32), kernel[few:], precision=_TF32)
    else:
        made = _exact_product(flags, kernel[few:])
    made = made + jnp.sum(numbers[:, :, None] * kernel[None, :few], axis=1)
    return made + bias[None]


def _exact_product(flags: Any, kernel: Any) -> Array:
    width = kernel.shape[1]
    parts = jnp.concatenate(in_parts(kernel), axis=1)
    halves = _cast_flags(flags, jnp.bfloat16)
    sums = jnp.matmul(halves, parts, precision=_ONE, preferred_element_type=jnp.float32)
    return sums[:, 2 * width :] + sums[:, width : 2 * width] + sums[:, :width]


def _float32_product(one: Any, other: Any) -> Array:
    """Return a matrix product in float32, whatever jax's default precision is."""
    return jnp.matmul(one, other, precision="float32")


def _cast_flags(flags: Any, dtype: Any) -> Array:
    """Cast flags to a product's dtype; a barrier prevents products from sharing the result."""
    return jax.lax.optimization_barrier(flags).astype(dtype)


def _flag_dense_forward(rounds: bool, numbers: Any, flags: Any, kernel: Any, bias: Any) -> Any:
    return _flag_dense(rounds, numbers, flags, kernel, bias), (numbers, flags, kernel)


def _flag_dense_backward(
    rounds: bool, kept: tuple[Any, Any, Any], given: Any
) -> tuple[Any, None, Any, Any]:
    numbers, flags, kernel = kept
    few = numbers.shape[1]
    # The sum of three products, each as large as the kernel, would cost what they save.
    precision = _TF32 if rounds else _SIX
    wide = jnp.matmul(_cast_flags(flags, jnp.float32).T, given, precision=precision)
    ends = _float32_product(
        jnp.concatenate([numbers, jnp.ones_like(numbers[:, :1])], axis=1).T, given
    )
    of_kernel = jnp.pad(wide, ((few, 0), (0, 0))) + jnp.pad(ends[:few], ((0, len(wide)), (0, 0)))
    return _float32_product(given, kernel[:few].T), None, of_kernel, ends[few]


_flag_dense.defvjp(_flag_dense_forward, _flag_dense_backward)


@pytree
class Outputs(Pytree):
    policy: Float[Array, "... A"]  # logits, or means
    value: Float[Array, "..."]  # V(s)
