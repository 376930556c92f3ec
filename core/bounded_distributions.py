"""Distributions of real actions within a box: the tanh-squashed Gaussian and the Beta.

Both keep their actions as unbounded numbers (before tanh, before the logistic function), so that
no density is taken at a rounded edge of the box; `actions.environment_action` maps them into it.
Densities and entropies are per unit of the environment's action: `log_volume` is the log of the
factor between the box and the interval that the distribution lives on, summed over components.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .distributions import BETA_PROPOSALS, Gaussian
from .pytree import Pytree, pytree

__all__ = ["Beta", "TanhGaussian"]

_LOG_2 = math.log(2.0)
_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)
_TINY = 1e-30


@pytree
class TanhGaussian(Pytree):
    """low + (high - low) (tanh(u) + 1) / 2 with u Gaussian; actions are kept as u, [..., D].

    Haarnoja et al. 2018, appendix C, with u stored rather than recovered by atanh.
    """

    base: Gaussian
    log_volume: Float[Array, ""]

    def sample(self, noise: Float[Array, "... D"]) -> Float[Array, "... D"]:
        """Return u = mean + std * noise, noise standard normal."""
        return self.base.sample(noise)

    def log_prob(self, action: Float[Array, "... D"]) -> Float[Array, "..."]:
        """Return log N(u) - sum(log d/du tanh(u)) - log_volume."""
        return self.base.log_prob(action) - jnp.sum(_log_slope(action), axis=-1) - self.log_volume

    def entropy(self, noise: Float[Array, "... K D"] | None = None) -> Float[Array, "..."]:
        """Estimate the entropy, which has no closed form, from K standard normal draws.

        H = H_Gaussian + E[sum(log d/du tanh(u))] + log_volume: the first term is exact, the
        expectation a mean over u_k = mean + std noise_k, through which gradients flow.

        Raises:
            ValueError: without noise (see `distributions.draw_entropy_noise`).
        """
        if noise is None:
            raise ValueError("the entropy of a tanh_gaussian is sampled; give it noise")
        mean, std = self.base.mean, jnp.exp(self.base.log_std)
        drawn = mean[..., None, :] + std[..., None, :] * noise
        slope = jnp.mean(jnp.sum(_log_slope(drawn), axis=-1), axis=-1)
        return self.base.entropy() + slope + self.log_volume

    def mode(self) -> Float[Array, "... D"]:
        """Return the greedy u, the Gaussian's mean (the median of the action)."""
        return self.base.mean


def _log_slope(u: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2u)), exact for any u."""
    return 2.0 * (_LOG_2 - u - jax.nn.softplus(-2.0 * u))


@pytree
class Beta(Pytree):
    """low + (high - low) x with x ~ Beta(alpha, beta), both at least 1: never at an edge's pole.

    Chou et al. 2017. Actions are kept as y = log(x / (1 - x)), [..., D]; the density is that of x.
    """

    alpha: Float[Array, "... D"]
    beta: Float[Array, "... D"]
    log_volume: Float[Array, ""]

    @classmethod
    def make(cls, outputs: Float[Array, "... P"], log_volume: Float[Array, ""]) -> Beta:
        """Return it from P = 2D outputs of a head: alpha, then beta, are softplus(.) + 1."""
        alpha, beta = jnp.split(jax.nn.softplus(outputs) + 1.0, 2, axis=-1)
        return cls(alpha, beta, log_volume)

    def sample(self, noise: Float[Array, "... D two J both"]) -> Float[Array, "... D"]:
        """Return y = log g - log g' of two Gamma draws g, g', made from noise of `draw_noise`."""
        shapes = jnp.stack([self.alpha, self.beta], axis=-1)
        drawn = _log_gamma_draw(shapes, noise[..., 0], noise[..., 1])
        return drawn[..., 0] - drawn[..., 1]

    def log_prob(self, action: Float[Array, "... D"]) -> Float[Array, "..."]:
        """Return sum((alpha - 1) log x + (beta - 1) log(1 - x) - log B(alpha, beta)) - log_volume.

        Written around the mean m = alpha / (alpha + beta), so that no large terms cancel: with
        t = logit(x) - logit(m), log(x / m) = c and log((1 - x) / (1 - m)) = c - t, where
        c = -log(1 + (1 - m) (exp(-t) - 1)); likewise with the sides exchanged if t < 0.
        """
        both = self.alpha + self.beta
        t = action - self.mode()
        far = jnp.where(t > 0.0, self.beta, self.alpha)
        c = -jnp.log1p(far / both * jnp.expm1(-jnp.abs(t)))
        of_mean = both * c - far * jnp.abs(t)
        edges = jax.nn.softplus(action) + jax.nn.softplus(-action)  # -log x - log(1 - x)
        return jnp.sum(of_mean + edges + self._spread(), axis=-1) - self.log_volume

    def entropy(self, noise: Any = None) -> Float[Array, "..."]:
        """Return log B - (alpha-1) psi(alpha) - (beta-1) psi(beta) + (sum-2) psi(sum), summed."""
        both = self.alpha + self.beta
        at_mean = self.alpha * jnp.log(self.alpha / both) + self.beta * jnp.log(self.beta / both)
        own = (self.alpha - 1.0) * _digamma(self.alpha) + (self.beta - 1.0) * _digamma(self.beta)
        each = at_mean - self._spread() - own + (both - 2.0) * _digamma(both)
        return jnp.sum(each, axis=-1) + self.log_volume

    def mode(self) -> Float[Array, "... D"]:
        """Return the greedy y, that of the mean alpha / (alpha + beta)."""
        return jnp.log(self.alpha) - jnp.log(self.beta)

    def _spread(self) -> Float[Array, "... D"]:
        """Return alpha log m + beta log(1 - m) - log B, by Stirling's formula: small numbers."""
        both = self.alpha + self.beta
        width = 0.5 * jnp.log(self.alpha * (self.beta / both)) - _HALF_LOG_2PI
        return width - _remainder(self.alpha) - _remainder(self.beta) + _remainder(both)


def _log_gamma_draw(
    shape: Float[Array, "*rows"], normal: Float[Array, "*rows J"], uniform: Float[Array, "*rows J"]
) -> Float[Array, "*rows"]:
    """Return log g, g ~ Gamma(shape), for shapes of at least 1 (Marsaglia and Tsang 2000).

    The first accepted of J proposals, instead of a loop until one is. Each is accepted with a
    chance of at least 0.951, so that all are refused less often than float32 can tell.
    """
    d = (shape - 1.0 / 3.0)[..., None]
    root = 1.0 + normal * jax.lax.rsqrt(9.0 * d)
    cube = root**3
    log_cube = 3.0 * jnp.log(jnp.maximum(root, _TINY))
    bound = 0.5 * normal**2 + d - d * cube + d * log_cube
    accepted = (root > 0.0) & (jnp.log(jnp.maximum(uniform, _TINY)) < bound)
    first = jnp.argmax(accepted, axis=-1)[..., None]
    return jnp.log(d[..., 0]) + jnp.take_along_axis(log_cube, first, axis=-1)[..., 0]


def _remainder(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return log Gamma(x) - ((x - 1/2) log x - x + log(2 pi) / 2) for x of at least 1.

    Three steps of its recurrence, then the asymptotic series (Abramowitz and Stegun 6.1.41; the
    first term left out is below 4e-9). `lgamma` itself is 4e-6 off in float32.
    """
    steps = sum((x + (i + 0.5)) * jnp.log1p(1.0 / (x + float(i))) - 1.0 for i in range(3))
    inverse = 1.0 / (x + 3.0)
    square = inverse * inverse
    inner = 1.0 / 360.0 - square * (1.0 / 1260.0 - square / 1680.0)
    return steps + inverse * (1.0 / 12.0 - square * inner)


@jax.custom_jvp
def _digamma(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return psi(x) for x of at least 1; its derivative is a short series, not a zeta function."""
    return jax.lax.digamma(x)


@_digamma.defjvp
def _digamma_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (change,) = primals, tangents
    return _digamma(x), _trigamma(x) * change


def _trigamma(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return psi'(x) for x of at least 1: six steps of its recurrence, then the asymptotic series.

    (Abramowitz and Stegun 6.4.6 and 6.4.12; the first term left out is below 1e-9.)
    """
    steps = sum(jnp.square(1.0 / (x + float(i))) for i in range(6))
    inverse = 1.0 / (x + 6.0)
    square = inverse * inverse
    series = 1.0 + square * (1.0 / 6.0 + square * (-1.0 / 30.0 + square / 42.0))
    return steps + inverse * (series + 0.5 * inverse)


assert 0.0489**BETA_PROPOSALS < 2.0**-24  # see `_log_gamma_draw`
