"""Dense layers as one product of rows, whatever leads them, and products that layers share.

With several leading axes XLA copies a transposed operand for the gradient of a kernel.
"""

from __future__ import annotations

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float

__all__ = ["Dense", "Weights", "row_product", "side_by_side"]


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
