"""A dense layer of rows that are mostly flags, by products of bytes and parts in bfloat16.

A float32 is the sum of three numbers in bfloat16 (8 significant bits each), and a flag is one
number in it. So flags times a kernel are three products of tensor cores, exact but for the sums
in float32, where a product of two arrays of floats takes six. In tf32 one product is enough.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..observations import Flagged

__all__ = ["FlagDense", "in_parts"]

_ONE: Any = jax.lax.DotAlgorithmPreset.BF16_BF16_F32
_SIX: Any = jax.lax.DotAlgorithmPreset.BF16_BF16_F32_X6
_TF32: Any = "tensorfloat32"


class FlagDense(nn.Module):
    """x W + b of `Flagged` rows, with the parameters of `flax.linen.Dense`.

    Attributes:
        width: of the output.
        kernel_init: makes the kernel.
        rounds: products round their inputs to tf32, and are one each.
    """

    width: int
    kernel_init: nn.initializers.Initializer
    rounds: bool = False

    @nn.compact
    def __call__(self, x: Flagged) -> Float[Array, "*B W"]:
        """Return the layer's output."""
        numbers, flags = (rows.reshape((-1, rows.shape[-1])) for rows in (x.numbers, x.flags))
        size = numbers.shape[-1] + flags.shape[-1]
        kernel = self.param("kernel", self.kernel_init, (size, self.width), jnp.float32)
        bias = self.param("bias", nn.initializers.zeros, (self.width,), jnp.float32)
        made: Any = _layer(self.rounds, numbers, flags, kernel, bias)
        return made.reshape((*x.flags.shape[:-1], self.width))


def in_parts(x: Float[Array, "..."]) -> tuple[Array, Array, Array]:
    """Return three arrays in bfloat16 whose sum is x, the largest first.

    Roundings are marked, because XLA drops a conversion there and back.

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
def _layer(rounds: bool, numbers: Any, flags: Any, kernel: Any, bias: Any) -> Float[Array, "N W"]:
    few = numbers.shape[1]
    if rounds:
        made = jnp.matmul(_read(flags, jnp.float32), kernel[few:], precision=_TF32)
    else:
        made = _exactly(flags, kernel[few:])
    made = made + jnp.sum(numbers[:, :, None] * kernel[None, :few], axis=1)
    return made + bias[None]


def _exactly(flags: Any, kernel: Any) -> Array:
    """Return flags times a kernel by its three parts, added from the smallest."""
    width = kernel.shape[1]
    parts = jnp.concatenate(in_parts(kernel), axis=1)
    halves = _read(flags, jnp.bfloat16)
    sums = jnp.matmul(halves, parts, precision=_ONE, preferred_element_type=jnp.float32)
    return sums[:, 2 * width :] + sums[:, width : 2 * width] + sums[:, :width]


def _product(one: Any, other: Any) -> Array:
    """Return a product in float32; gradients are traced where no precision is set."""
    return jnp.matmul(one, other, precision="float32")


def _read(flags: Any, dtype: Any) -> Array:
    """Return flags in the dtype of one product, which reads them as bytes.

    Behind a barrier, or products that need the same conversion would share an array of it.
    """
    return jax.lax.optimization_barrier(flags).astype(dtype)


def _forward(rounds: bool, numbers: Any, flags: Any, kernel: Any, bias: Any) -> Any:
    return _layer(rounds, numbers, flags, kernel, bias), (numbers, flags, kernel)


def _backward(rounds: bool, kept: tuple[Any, Any, Any], given: Any) -> tuple[Any, None, Any, Any]:
    numbers, flags, kernel = kept
    few = numbers.shape[1]
    # Three products give three arrays as large as the kernel, whose sum costs what they save.
    precision = _TF32 if rounds else _SIX
    wide = jnp.matmul(_read(flags, jnp.float32).T, given, precision=precision)
    ends = _product(jnp.concatenate([numbers, jnp.ones_like(numbers[:, :1])], axis=1).T, given)
    of_kernel = jnp.pad(wide, ((few, 0), (0, 0))) + jnp.pad(ends[:few], ((0, len(wide)), (0, 0)))
    return _product(given, kernel[:few].T), None, of_kernel, ends[few]


_layer.defvjp(_forward, _backward)
