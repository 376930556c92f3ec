"""Running means and variances by Welford's method, merged a batch at a time (Chan et al. 1983)."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from .pytree import Pytree, pytree

__all__ = ["RunningStatistics"]


@pytree
class RunningStatistics(Pytree):
    """Count, mean and summed squared deviation of everything seen.

    Attributes:
        count: samples seen; starts at 0.
        mean: per component.
        square: sum of squared deviations from the mean, per component.
    """

    count: Float[Array, ""]
    mean: Float[Array, "*shape"]
    square: Float[Array, "*shape"]

    @classmethod
    def empty(cls, shape: tuple[int, ...]) -> RunningStatistics:
        """Return statistics of nothing: mean 0, deviation 1."""
        return cls(
            jnp.zeros((), jnp.float32),
            jnp.zeros(shape, jnp.float32),
            jnp.zeros(shape, jnp.float32),
        )

    def merge(self, batch: Float[Array, "N *shape"]) -> RunningStatistics:
        """Add a batch of N samples."""
        size = jnp.float32(batch.shape[0])
        mean = jnp.mean(batch, axis=0)
        square = jnp.sum((batch - mean[None]) ** 2, axis=0)
        total = self.count + size
        shift = mean - self.mean
        return RunningStatistics(
            total,
            self.mean + shift * (size / total),
            self.square + square + shift**2 * (self.count * size / total),
        )

    def std(self) -> Float[Array, "*shape"]:
        """Return the standard deviation (divisor N), 1 before anything was seen, at least 1e-4."""
        variance = self.square / jnp.maximum(self.count, 1.0)
        return jnp.where(self.count > 0.0, jnp.sqrt(jnp.maximum(variance, 1e-8)), 1.0)

    def normalise(
        self, values: Float[Array, "... *shape"], clip: Float[Array, ""]
    ) -> Float[Array, "... *shape"]:
        """Return (values - mean) / std, clipped to +-clip."""
        lead = (1,) * (values.ndim - self.mean.ndim)
        mean, std = (jnp.reshape(x, lead + x.shape) for x in (self.mean, self.std()))
        return jnp.clip((values - mean) / std, -clip, clip)
