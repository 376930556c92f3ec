"""The convolutional network: maps images to policy outputs and a value, in separate towers.

A convolution is computed as a matrix product over patches. With different weights per lane, a
vmapped convolution would become a grouped one, which is many times slower on a CPU.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial, reduce

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...errors import ConfigError
from ..plan import Plan
from .layers import Outputs
from .mlp import activated, both_heads, both_towers, initialiser

_SMALL = 36  # pixels; the default sizes leave nothing of smaller images
_POOLED = 3  # side of a max-pooling window in pixels


@dataclass(frozen=True)
class Convolutions:
    channels: tuple[int, ...]
    kernels: tuple[int, ...]
    strides: tuple[int, ...]
    dense: tuple[int, ...]


def convolutions_of(plan: Plan, height: int, width: int) -> Convolutions:
    """Return the plan's sizes, or the published ones for this image size.

    Sizes are from Mnih et al. 2015 (Nature 518) or, for images below 36 pixels, Young and Tian
    2019 (MinAtar): one convolution of 16 3x3 kernels and a dense layer of 128. With residual
    blocks, sizes are from Espeholt et al. 2018 (IMPALA); strides then apply to max pooling.
    """
    sizes = _usual_sizes(plan, min(height, width) < _SMALL)
    given = (plan.cnn_channels, plan.cnn_kernels, plan.cnn_strides, plan.cnn_dense)
    made = Convolutions(*(b if a is None else a for a, b in zip(given, sizes, strict=True)))
    if plan.cnn_residual_blocks:  # padded, so every size fits
        return made
    left = min(height, width)
    for number, (kernel, stride) in enumerate(zip(made.kernels, made.strides, strict=True)):
        if left < kernel:
            raise ConfigError(
                f"cnn_kernels[{number}] is {kernel}, but its input is only {left} pixels wide "
                f"(images of {height} x {width} pixels); use smaller kernels or strides"
            )
        left = (left - kernel) // stride + 1
    return made


def _usual_sizes(plan: Plan, small: bool) -> tuple[tuple[int, ...], ...]:
    if plan.cnn_residual_blocks:
        return ((16, 32, 32), (3, 3, 3), (2, 2, 2), (256,))
    if small:
        return ((16,), (3,), (1,), (128,))
    return ((32, 64, 64), (8, 4, 3), (4, 2, 1), (512,))


class Convolution(nn.Module):
    """A convolution, computed as a product with patches [.., H', W', kernel^2 C]."""

    channels: int
    kernel: int
    stride: int
    kernel_init: nn.initializers.Initializer
    padded: bool = False  # with zeros, to H / stride, rounded up

    @nn.compact
    def __call__(self, x: Float[Array, "... H W C"]) -> Float[Array, "... H2 W2 C2"]:
        if self.padded:
            x = _pad_same(x, self.kernel, self.stride, 0.0)
        patches = jnp.concatenate(_unfold_windows(x, self.kernel, self.stride), -1)
        return nn.Dense(self.channels, kernel_init=self.kernel_init, name="patches")(patches)


def _unfold_windows(x: Float[Array, "... H W C"], size: int, stride: int) -> list[Array]:
    """Return, for each position within a window, the image [.., H', W', C] of its values."""
    height, width = ((side - size) // stride + 1 for side in (x.shape[-3], x.shape[-2]))

    def shifted(row: int, column: int) -> Array:
        rows = slice(row, row + (height - 1) * stride + 1, stride)
        columns = slice(column, column + (width - 1) * stride + 1, stride)
        return x[..., rows, columns, :]

    return [shifted(row, column) for row in range(size) for column in range(size)]


def _pad_same(
    x: Float[Array, "... H W C"], size: int, stride: int, value: float
) -> Float[Array, "... H2 W2 C"]:
    """Pad an image on both sides so that H / stride windows fit, rounded up."""
    lead = [(0, 0)] * (x.ndim - 3)
    sides = [_same_padding(side, size, stride) for side in (x.shape[-3], x.shape[-2])]
    return jnp.pad(x, [*lead, *sides, (0, 0)], constant_values=value)


def _same_padding(side: int, size: int, stride: int) -> tuple[int, int]:
    missing = max(0, (math.ceil(side / stride) - 1) * stride + size - side)
    return missing // 2, missing - missing // 2


def max_pool(x: Float[Array, "... H W C"], size: int, stride: int) -> Float[Array, "... H2 W2 C"]:
    """Return the largest value of each window; H2 is H / stride, rounded up."""
    return reduce(jnp.maximum, _unfold_windows(_pad_same(x, size, stride, -jnp.inf), size, stride))


class ImpalaStage(nn.Module):
    """A convolution, max pooling and residual blocks: Espeholt et al. 2018, figure 3, right."""

    plan: Plan
    channels: int
    kernel: int
    stride: int
    kernel_init: nn.initializers.Initializer

    @nn.compact
    def __call__(self, x: Float[Array, "... H W C"]) -> Float[Array, "... H2 W2 C2"]:
        # patches are recomputed for the gradient: stored, they are 9 times as large as the images
        layer = nn.remat(Convolution)

        def convolved(image: Array, name: str) -> Array:
            return layer(self.channels, self.kernel, 1, self.kernel_init, True, name=name)(image)

        x = max_pool(convolved(x, "convolution"), _POOLED, self.stride)
        for block in range(self.plan.cnn_residual_blocks):
            inner = x
            for part in ("a", "b"):
                inner = activated(self.plan, inner, f"norm_{block}{part}")
                inner = convolved(inner, f"convolution_{block}{part}")
            x = x + inner
        return x


class Encoder(nn.Module):
    plan: Plan
    sizes: Convolutions

    @nn.compact
    def __call__(self, x: Float[Array, "... H W C"]) -> Float[Array, "... D"]:
        plan, sizes = self.plan, self.sizes
        kernel_init = initialiser(plan, plan.hidden_gain)
        triples = zip(sizes.channels, sizes.kernels, sizes.strides, strict=True)
        for i, (channels, kernel, stride) in enumerate(triples):
            if plan.cnn_residual_blocks:
                x = ImpalaStage(plan, channels, kernel, stride, kernel_init, name=f"stage_{i}")(x)
                continue
            x = Convolution(channels, kernel, stride, kernel_init, name=f"convolution_{i}")(x)
            x = activated(plan, x, f"convolution_norm_{i}")
        if plan.cnn_residual_blocks:
            x = activated(plan, x, "stages_norm")
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
    """Return channels-last images; stacked frames or channels (`is_stacked`) become channels."""
    lead = observation.shape[: observation.ndim - len(shape)]
    image = unit_bytes(observation)
    if is_stacked(shape, stacked):
        if len(shape) == 3:
            image = image[..., None]
        image = jnp.moveaxis(image, -4, -2)
        return image.reshape((*lead, *image.shape[-4:-2], math.prod(image.shape[-2:])))
    if len(shape) == 2:
        return image[..., None]
    return image


def is_stacked(shape: tuple[int, ...], stacked: bool) -> bool:
    """Return whether the first axis indexes frames or channels, as in Atari's [4, 84, 84].

    With three axes, this is the case if the first axis is smaller than both others.

    >>> is_stacked((4, 84, 84), False), is_stacked((10, 10, 16), False)
    (True, False)
    """
    if len(shape) != 3:
        return len(shape) == 4
    return stacked or shape[0] < min(shape[1:])


def unit_bytes(observation: Array) -> Float[Array, "..."]:
    scale = np.float32(1.0 / 255.0 if observation.dtype == jnp.uint8 else 1.0)
    return observation.astype(jnp.float32) * scale
