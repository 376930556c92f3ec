"""Dense layers as one product of rows, whatever leads them, and products that layers share.

With several leading axes XLA copies a transposed operand for the gradient of a kernel.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

__all__ = ["Dense", "JoinedDense", "Weights", "row_product", "side_by_side"]


class Weights(nn.Module):
    """Kernel and bias of a dense layer."""

    width: int
    kernel_init: nn.initializers.Initializer
    biased: bool = True

    @nn.compact
    def __call__(self, size: int) -> tuple[Float[Array, "D W"], Float[Array, " W"]]:
        """Return both for inputs of a size; zeros where there is no bias."""
        kernel = self.param("kernel", self.kernel_init, (size, self.width), jnp.float32)
        if not self.biased:
            return kernel, jnp.zeros(self.width, kernel.dtype)
        return kernel, self.param("bias", nn.initializers.zeros, (self.width,), jnp.float32)


class Dense(nn.Module):
    """x W + b over the last axis of x."""

    width: int
    kernel_init: nn.initializers.Initializer
    biased: bool = True

    @nn.compact
    def __call__(self, x: Float[Array, "*B D"]) -> Float[Array, "*B W"]:
        """Return the layer's output."""
        kernel = self.param("kernel", self.kernel_init, (x.shape[-1], self.width), jnp.float32)
        made = row_product(x, kernel)
        if not self.biased:
            return made
        bias = self.param("bias", nn.initializers.zeros, (self.width,), jnp.float32)
        return made + bias.reshape((1,) * (made.ndim - 1) + (-1,))


class JoinedDense(nn.Module):
    """x W + b like `flax.linen.Dense`, with both gradients from one product.

    The rows get a column of ones for it, which costs little where they are short. On a GPU a sum
    over rows is a kernel of its own, or holds up the one that makes what is summed.
    """

    width: int
    kernel_init: nn.initializers.Initializer

    @nn.compact
    def __call__(self, x: Float[Array, "*B D"]) -> Float[Array, "*B W"]:
        """Return the layer's output."""
        kernel = self.param("kernel", self.kernel_init, (x.shape[-1], self.width), jnp.float32)
        bias = self.param("bias", nn.initializers.zeros, (self.width,), jnp.float32)
        made: Any = _joined(x.reshape((-1, x.shape[-1])), kernel, bias, _precision())
        return made.reshape((*x.shape[:-1], self.width))


def _precision() -> Any:
    """Return the precision that products have here; their gradients are traced elsewhere."""
    return jax.config.jax_default_matmul_precision  # type: ignore[attr-defined]


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def _joined(x: Any, kernel: Any, bias: Any, precision: Any) -> Float[Array, "N W"]:
    return jnp.matmul(x, kernel, precision=precision) + bias[None]


def _joined_forward(x: Any, kernel: Any, bias: Any, precision: Any) -> Any:
    return _joined(x, kernel, bias, precision), (x, kernel)


def _joined_backward(precision: Any, kept: tuple[Any, Any], given: Any) -> tuple[Any, Any, Any]:
    x, kernel = kept
    longer = jnp.concatenate([x, jnp.ones_like(x[:, :1])], axis=1)
    both = jnp.matmul(longer.T, given, precision=precision)
    return jnp.matmul(given, kernel.T, precision=precision), both[:-1], both[-1]


_joined.defvjp(_joined_forward, _joined_backward)


def row_product(x: Float[Array, "*B D"], kernel: Float[Array, "D W"]) -> Float[Array, "*B W"]:
    """Return x W by one product of all rows of x.

    >>> row_product(jnp.ones((2, 3, 4)), jnp.ones((4, 5))).shape
    (2, 3, 5)
    """
    made = x.reshape((-1, x.shape[-1])) @ kernel
    return made.reshape((*x.shape[:-1], kernel.shape[-1]))


def side_by_side(
    x: Float[Array, "*B D"], *weights: tuple[Float[Array, "D W"], Float[Array, " W"]]
) -> tuple[Float[Array, "*B W"], ...]:
    """Return what several layers of equal width make of the same rows, by one product."""
    kernels, biases = (jnp.concatenate(parts, axis=-1) for parts in zip(*weights, strict=True))
    made = row_product(x, kernels) + biases.reshape((1,) * (x.ndim - 1) + (-1,))
    return tuple(jnp.split(made, len(weights), axis=-1))
