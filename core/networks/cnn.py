"""The convolutional network: images to policy outputs and a value, with separate towers.

A convolution is a matrix product over sliced patches. Every lane has different weights, and
vmapped convolutions become grouped ones, which are many times slower on a CPU.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...errors import ConfigError
from ..plan import Plan
from .layers import Outputs
from .mlp import activated, both_heads, both_towers, initialiser

_SMALL = 36  # pixels; the large default leaves nothing of smaller images


@dataclass(frozen=True)
class Convolutions:
    channels: tuple[int, ...]
    kernels: tuple[int, ...]
    strides: tuple[int, ...]
    dense: tuple[int, ...]


def convolutions_of(plan: Plan, height: int, width: int) -> Convolutions:
    """Return the plan's sizes, or the published ones for this image size.

    Sizes are from Mnih et al. 2015 (Nature 518) or, for images below 36 pixels, Young and Tian
    2019 (MinAtar): one convolution of 16 3x3 kernels and a dense layer of 128.
    """
    small = min(height, width) < _SMALL
    sizes = ((16,), (3,), (1,), (128,)) if small else ((32, 64, 64), (8, 4, 3), (4, 2, 1), (512,))
    given = (plan.cnn_channels, plan.cnn_kernels, plan.cnn_strides, plan.cnn_dense)
    made = Convolutions(*(b if a is None else a for a, b in zip(given, sizes, strict=True)))
    left = min(height, width)
    for number, (kernel, stride) in enumerate(zip(made.kernels, made.strides, strict=True)):
        if left < kernel:
            raise ConfigError(
                f"cnn_kernels[{number}] is {kernel}, but images of {height} x {width} pixels are "
                f"{left} wide by then; use smaller kernels or strides"
            )
        left = (left - kernel) // stride + 1
    return made


class Convolution(nn.Module):
    """A convolution without padding, as a product with patches [.., H', W', kernel^2 C]."""

    channels: int
    kernel: int
    stride: int
    kernel_init: nn.initializers.Initializer

    @nn.compact
    def __call__(self, x: Float[Array, "... H W C"]) -> Float[Array, "... H2 W2 C2"]:
        height, width = (
            (size - self.kernel) // self.stride + 1 for size in (x.shape[-3], x.shape[-2])
        )

        def shifted(row: int, column: int) -> Array:
            rows = slice(row, row + (height - 1) * self.stride + 1, self.stride)
            columns = slice(column, column + (width - 1) * self.stride + 1, self.stride)
            return x[..., rows, columns, :]

        reach = range(self.kernel)
        patches = jnp.concatenate([shifted(row, column) for row in reach for column in reach], -1)
        return nn.Dense(self.channels, kernel_init=self.kernel_init, name="patches")(patches)


class Encoder(nn.Module):
    plan: Plan
    sizes: Convolutions

    @nn.compact
    def __call__(self, x: Float[Array, "... H W C"]) -> Float[Array, "... D"]:
        plan, sizes = self.plan, self.sizes
        kernel_init = initialiser(plan, plan.hidden_gain)
        triples = zip(sizes.channels, sizes.kernels, sizes.strides, strict=True)
        for i, (channels, kernel, stride) in enumerate(triples):
            x = Convolution(channels, kernel, stride, kernel_init, name=f"convolution_{i}")(x)
            x = activated(plan, x, f"convolution_norm_{i}")
        x = x.reshape((*x.shape[:-3], -1))
        for i, width in enumerate(sizes.dense):
            x = nn.Dense(width, kernel_init=kernel_init, name=f"dense_{i}")(x)
            x = activated(plan, x, f"norm_{i}")
        return x


class CNN(nn.Module):
    """Maps images [H, W], [H, W, C] or stacks (as channels) to policy outputs and a value."""

    plan: Plan
    outputs: int
    shape: tuple[int, ...]

    @nn.compact
    def __call__(self, observation: Array) -> Outputs:
        plan = self.plan
        image = as_image(observation, self.shape, plan.env.history > 1).astype(plan.dtype)
        sizes = convolutions_of(plan, image.shape[-3], image.shape[-2])
        towers = both_towers(plan, partial(Encoder, plan, sizes), image)
        return both_heads(plan, self.outputs, *towers)


def as_image(
    observation: Array, shape: tuple[int, ...], stacked: bool = False
) -> Float[Array, "... H W C"]:
    """Return channels-last images; the first of four axes (of three: `is_stacked`) is frames."""
    lead = observation.shape[: observation.ndim - len(shape)]
    image = unit_bytes(observation)
    if is_stacked(shape, stacked):
        frames = image if len(shape) == 4 else image[..., None]
        image = jnp.moveaxis(frames, -4, -2)
        return image.reshape((*lead, *image.shape[-4:-2], math.prod(image.shape[-2:])))
    return image[..., None] if len(shape) == 2 else image


def is_stacked(shape: tuple[int, ...], stacked: bool) -> bool:
    """Return whether the first axis is frames or channels, as in Atari's [4, 84, 84].

    In images with three axes this is so if it is smaller than both others.

    >>> is_stacked((4, 84, 84), False), is_stacked((10, 10, 16), False)
    (True, False)
    """
    if len(shape) != 3:
        return len(shape) == 4
    return stacked or shape[0] < min(shape[1:])


def unit_bytes(observation: Array) -> Float[Array, "..."]:
    scale = np.float32(1.0 / 255.0 if observation.dtype == jnp.uint8 else 1.0)
    return observation.astype(jnp.float32) * scale
