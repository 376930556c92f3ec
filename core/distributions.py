"""Action distributions as small frozen pytrees, parameterised by the outputs of a policy head.

Distributions are sampled from random numbers drawn beforehand (`Family.noise`), because drawing
them for a whole rollout at once is cheaper than splitting keys at each step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ..environments.registry import allow_distribution
from ..errors import ConfigError, require_new
from ..knobs import allow_choice, known_choices
from .envs.contract import ActionSpace, MultiDiscrete
from .pytree import Pytree, pytree, static

BETA_PROPOSALS = 6  # proposals per Gamma draw; the first accepted one is used

ENTROPY_DRAWS = 2  # draws averaged in a sampled entropy

_MASKED = -1e9  # finite: -inf gives NaN gradients of the entropy
_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)


@runtime_checkable
class ActionDistribution(Protocol):
    """The distribution of an action; leading axes are batch axes.

    The action has the form that `log_prob` accepts. The environment's action may be a function of
    it (see `policy.environment_action`).
    """

    def sample(self, noise: Array) -> Array:
        """Return an action for noise drawn by `Family.noise`."""
        ...

    def log_prob(self, action: Any) -> Array:
        """Return the log probability (density) of an action."""
        ...

    def entropy(self, noise: Any = None) -> Array:
        """Return the entropy in nats; estimates need noise from `Family.entropy_noise`."""
        ...

    def mode(self) -> Array:
        """Return the greedy action."""
        ...


@pytree
class CategoricalActions(Pytree):
    log_probs: Float[Array, "... A"]  # normalised
    selects: bool = static(default=False)

    @classmethod
    def make(
        cls,
        logits: Float[Array, "... A"],
        mask: Bool[Array, "... A"] | None = None,
        selects: bool = False,
    ) -> CategoricalActions:
        """Normalise logits; masked actions get probability 0 and no gradient.

        A mask that allows no action is ignored: the raw policy acts, and the environment rejects
        the action.
        """
        if mask is not None:
            usable = mask | ~jnp.any(mask, axis=-1, keepdims=True)
            logits = jnp.where(usable, logits, _MASKED)
        return cls(jax.nn.log_softmax(logits, axis=-1), selects)

    def sample(self, noise: Float[Array, "..."]) -> Int[Array, "..."]:
        """Return the action at quantile `noise`, in [0, 1); masked actions are never returned."""
        probs = jnp.exp(self.log_probs)
        possible = probs > 0.0
        # Sums of more than 256 terms are computed as trees: rounding may make a masked action seem
        # to add to the sum (and later sums may be smaller). Only possible actions are therefore
        # compared.
        cumulative = jnp.cumsum(probs, axis=-1)
        total = jnp.max(jnp.where(possible, cumulative, 0.0), axis=-1)
        point = (noise * total)[..., None]  # below the total, so some action reaches it
        places = jax.lax.broadcasted_iota(jnp.int32, probs.shape, probs.ndim - 1)
        above = jnp.where(possible & (cumulative > point), places, probs.shape[-1] - 1)
        return jnp.min(above, axis=-1)

    def log_prob(self, action: Int[Array, "..."]) -> Float[Array, "..."]:
        if self.selects:
            places = jax.lax.broadcasted_iota(action.dtype, self.log_probs.shape, action.ndim)
            return jnp.sum(jnp.where(places == action[..., None], self.log_probs, 0.0), axis=-1)
        return jnp.take_along_axis(self.log_probs, action[..., None], axis=-1)[..., 0]

    def entropy(self, noise: Any = None) -> Float[Array, "..."]:
        return -jnp.sum(jnp.exp(self.log_probs) * self.log_probs, axis=-1)

    def mode(self) -> Int[Array, "..."]:
        return jnp.argmax(self.log_probs, axis=-1).astype(jnp.int32)


@pytree
class MultiCategorical(Pytree):
    """C independent categoricals; `parts.log_probs` [..., C, widest] is padded to equal width.

    Padding has probability 0.
    """

    parts: CategoricalActions

    @classmethod
    def make(
        cls,
        logits: Float[Array, "... P"],
        sizes: tuple[int, ...],
        mask: Bool[Array, "... P"] | None = None,
        selects: bool = False,
    ) -> MultiCategorical:
        """Normalise the logits of each component (P in total); masks work as in `Categorical`."""
        valid = mask
        if mask is not None:
            valid = _by_component(mask, sizes, False)
        return cls(CategoricalActions.make(_by_component(logits, sizes, _MASKED), valid, selects))

    def sample(self, noise: Float[Array, "... C"]) -> Int[Array, "... C"]:
        return self.parts.sample(noise)

    def log_prob(self, action: Int[Array, "... C"]) -> Float[Array, "..."]:
        return jnp.sum(self.parts.log_prob(action), axis=-1)

    def entropy(self, noise: Any = None) -> Float[Array, "..."]:
        return jnp.sum(self.parts.entropy(), axis=-1)

    def mode(self) -> Int[Array, "... C"]:
        return self.parts.mode()


def _by_component(flat: Array, sizes: tuple[int, ...], fill: float | bool) -> Array:
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    lead = [(0, 0)] * (flat.ndim - 1)
    parts = [
        jnp.pad(flat[..., end - size : end], [*lead, (0, max(sizes) - size)], constant_values=fill)
        for end, size in zip(ends, sizes, strict=True)
    ]
    return jnp.stack(parts, axis=-2)


@pytree
class Gaussian(Pytree):
    """Diagonal Gaussian over unbounded actions, which the environment's adapter clips."""

    mean: Float[Array, "... D"]
    log_std: Float[Array, "... D"]

    def sample(self, noise: Float[Array, "... D"]) -> Float[Array, "... D"]:
        return self.mean + jnp.exp(self.log_std) * noise

    def log_prob(self, action: Float[Array, "... D"]) -> Float[Array, "..."]:
        z = (action - self.mean) * jnp.exp(-self.log_std)
        return jnp.sum(-0.5 * z * z - self.log_std - _HALF_LOG_2PI, axis=-1)

    def entropy(self, noise: Any = None) -> Float[Array, "..."]:
        return jnp.sum(self.log_std + (0.5 + _HALF_LOG_2PI), axis=-1)

    def mode(self) -> Float[Array, "... D"]:
        return self.mean


_LOG_2 = math.log(2.0)
_TINY = 1e-30


@pytree
class TanhGaussian(Pytree):
    """low + (high - low) (tanh(u) + 1) / 2 with u Gaussian; actions are stored as u, [..., D].

    Haarnoja et al. 2018, appendix C, with u stored rather than recovered by atanh.
    """

    base: Gaussian
    log_volume: Float[Array, ""]

    def sample(self, noise: Float[Array, "... D"]) -> Float[Array, "... D"]:
        return self.base.sample(noise)

    def log_prob(self, action: Float[Array, "... D"]) -> Float[Array, "..."]:
        return self.base.log_prob(action) - jnp.sum(_log_slope(action), axis=-1) - self.log_volume

    def entropy(self, noise: Float[Array, "... K D"] | None = None) -> Float[Array, "..."]:
        """Estimate the entropy, which has no closed form, from K standard normal draws.

        H = H_Gaussian + E[sum(log d/du tanh(u))] + log_volume. The first term is exact; the
        expectation is a mean over u_k = mean + std noise_k, through which gradients flow.
        """
        if noise is None:
            raise ValueError("the entropy of a tanh_gaussian is estimated by sampling; pass noise")
        mean, std = self.base.mean, jnp.exp(self.base.log_std)
        drawn = mean[..., None, :] + std[..., None, :] * noise
        slope = jnp.mean(jnp.sum(_log_slope(drawn), axis=-1), axis=-1)
        return self.base.entropy() + slope + self.log_volume

    def mode(self) -> Float[Array, "... D"]:
        return self.base.mean


def _log_slope(u: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2u)), exact for any u."""
    return 2.0 * (_LOG_2 - u - jax.nn.softplus(-2.0 * u))


@pytree
class Beta(Pytree):
    """low + (high - low) x with x ~ Beta(alpha, beta), both at least 1, which avoids poles.

    Chou et al. 2017. Actions are stored as y = log(x / (1 - x)), [..., D], but densities are those
    of x.
    """

    alpha: Float[Array, "... D"]
    beta: Float[Array, "... D"]
    log_volume: Float[Array, ""]

    @classmethod
    def make(cls, outputs: Float[Array, "... P"], log_volume: Float[Array, ""]) -> Beta:
        """Return the distribution for P = 2D outputs: alpha, then beta, each softplus(.) + 1."""
        alpha, beta = jnp.split(jax.nn.softplus(outputs) + 1.0, 2, axis=-1)
        return cls(alpha, beta, log_volume)

    def sample(self, noise: Float[Array, "... D two J both"]) -> Float[Array, "... D"]:
        """Return y = log g - log g' for two Gamma draws g and g'."""
        shapes = jnp.stack([self.alpha, self.beta], axis=-1)
        drawn = _log_gamma_draw(shapes, noise[..., 0], noise[..., 1])
        return drawn[..., 0] - drawn[..., 1]

    def log_prob(self, action: Float[Array, "... D"]) -> Float[Array, "..."]:
        """Return sum((alpha - 1) log x + (beta - 1) log(1 - x) - log B(alpha, beta)) - log_volume.

        The density is expressed in terms of the mean m = alpha / (alpha + beta), which avoids the
        cancellation of large terms. With t = logit(x) - logit(m), log(x / m) = c and log((1 - x) /
        (1 - m)) = c - t, where c = -log(1 + (1 - m) (exp(-t) - 1)). If t < 0, x and 1 - x are
        exchanged.
        """
        both = self.alpha + self.beta
        t = action - self.mode()
        far = jnp.where(t > 0.0, self.beta, self.alpha)
        c = -jnp.log1p(far / both * jnp.expm1(-jnp.abs(t)))
        of_mean = both * c - far * jnp.abs(t)
        edges = jax.nn.softplus(action) + jax.nn.softplus(-action)  # -log x - log(1 - x)
        return jnp.sum(of_mean + edges + self._log_normaliser(), axis=-1) - self.log_volume

    def entropy(self, noise: Any = None) -> Float[Array, "..."]:
        """Return log B - (alpha-1) psi(alpha) - (beta-1) psi(beta) + (sum-2) psi(sum), summed."""
        both = self.alpha + self.beta
        at_mean = self.alpha * jnp.log(self.alpha / both) + self.beta * jnp.log(self.beta / both)
        own = (self.alpha - 1.0) * _digamma(self.alpha) + (self.beta - 1.0) * _digamma(self.beta)
        each = at_mean - self._log_normaliser() - own + (both - 2.0) * _digamma(both)
        return jnp.sum(each, axis=-1) + self.log_volume

    def mode(self) -> Float[Array, "... D"]:
        """Return the greedy y, at the mean x = alpha / (alpha + beta)."""
        return jnp.log(self.alpha) - jnp.log(self.beta)

    def _log_normaliser(self) -> Float[Array, "... D"]:
        """Return alpha log m + beta log(1 - m) - log B, using small terms (Stirling's formula)."""
        both = self.alpha + self.beta
        width = 0.5 * jnp.log(self.alpha * (self.beta / both)) - _HALF_LOG_2PI
        return (
            width
            - _stirling_remainder(self.alpha)
            - _stirling_remainder(self.beta)
            + _stirling_remainder(both)
        )


def _log_gamma_draw(
    shape: Float[Array, "*rows"], normal: Float[Array, "*rows J"], uniform: Float[Array, "*rows J"]
) -> Float[Array, "*rows"]:
    """Return log g, g ~ Gamma(shape), for shapes of at least 1 (Marsaglia and Tsang 2000).

    Takes the first accepted of J proposals, instead of looping until a proposal is accepted. Each
    proposal is accepted with probability at least 0.951, so the probability that all are rejected
    is below float32's resolution.
    """
    d = (shape - 1.0 / 3.0)[..., None]
    root = 1.0 + normal * jax.lax.rsqrt(9.0 * d)
    cube = root**3
    log_cube = 3.0 * jnp.log(jnp.maximum(root, _TINY))
    bound = 0.5 * normal**2 + d - d * cube + d * log_cube
    accepted = (root > 0.0) & (jnp.log(jnp.maximum(uniform, _TINY)) < bound)
    first = jnp.argmax(accepted, axis=-1)[..., None]
    return jnp.log(d[..., 0]) + jnp.take_along_axis(log_cube, first, axis=-1)[..., 0]


def _stirling_remainder(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return log Gamma(x) - ((x - 1/2) log x - x + log(2 pi) / 2) for x of at least 1.

    Uses three steps of the recurrence, then the asymptotic series (Abramowitz and Stegun 6.1.41;
    the first omitted term is below 4e-9). `lgamma` itself has an error of 4e-6 in float32.
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
    """Return psi'(x) for x of at least 1: six recurrence steps, then the asymptotic series.

    (Abramowitz and Stegun 6.4.6 and 6.4.12; the first omitted term is below 1e-9.)
    """
    steps = sum(jnp.square(1.0 / (x + float(i))) for i in range(6))
    inverse = 1.0 / (x + 6.0)
    square = inverse * inverse
    series = 1.0 + square * (1.0 / 6.0 + square * (-1.0 / 30.0 + square / 42.0))
    return steps + inverse * (series + 0.5 * inverse)


assert 0.0489**BETA_PROPOSALS < 2.0**-24  # see `_log_gamma_draw`


@dataclass(frozen=True, eq=False)
class Actions:
    """An environment's action space, as NumPy arrays and plain numbers."""

    space: ActionSpace
    shape: tuple[int, ...]  # of a policy's action: [] for one choice, [C] choices, [D] reals
    low: np.ndarray  # smallest real action [D], after `action_low`; empty for choices
    high: np.ndarray
    selects: bool = False  # see `plan.Backend.selects_actions`

    @property
    def components(self) -> int:
        return math.prod(self.shape)


class Family:
    """A distribution family; to add one, subclass this class and `register` an instance.

    Methods are pure functions of arrays and run inside compiled programs.
    """

    # the kind of action space that it supports
    actions: ClassVar[Literal["discrete", "multi_discrete", "continuous"]] = "continuous"
    bounded: ClassVar[bool] = False  # needs a finite range; any other is a user error
    # It uses one log standard deviation per component: policy parameters that do not depend on the
    # observation (`log_std_init`, `log_std_min`, `log_std_max`).
    has_log_std: ClassVar[bool] = False

    def outputs(self, actions: Actions) -> int:
        """Return the width of the policy head; by default, one output per choice or component."""
        space = actions.space
        if self.actions == "discrete":
            return getattr(space, "n", 0)
        if self.actions == "multi_discrete":
            return sum(getattr(space, "nvec", ()))
        return actions.components

    def make(
        self,
        outputs: Float[Array, "... P"],
        actions: Actions,
        mask: Bool[Array, "... A"] | None,
        log_std: Float[Array, " D"] | None,
    ) -> ActionDistribution:
        """Return the distribution.

        Args:
            outputs: outputs of the policy head.
            actions: the environment's actions.
            mask: valid choices, or None. An invalid choice must get probability 0; a mask without
                any valid choice must be ignored.
            log_std: log standard deviations, clipped, if `has_log_std`; else None.
        """
        raise NotImplementedError(f"{type(self).__name__} has no `make`")

    def noise(
        self, key: PRNGKeyArray, batch: tuple[int, ...], shape: tuple[int, ...]
    ) -> Float[Array, "..."]:
        """Draw the noise for `sample`, [batch, ...]; by default, one number per component.

        The noise is uniform in [0, 1) for choices and standard normal for real actions.
        """
        draw = jax.random.uniform
        if self.actions == "continuous":
            draw = jax.random.normal
        return draw(key, (*batch, *shape), jnp.float32)

    def entropy_noise(
        self, key: PRNGKeyArray, batch: tuple[int, ...], shape: tuple[int, ...]
    ) -> Float[Array, "..."] | None:
        """Draw the noise for `entropy`, [batch, ...], or return None if the entropy is exact."""
        return None

    def environment_action(
        self, action: Float[Array, "... D"], actions: Actions
    ) -> Float[Array, "... D"]:
        """Map the policy's real-valued actions to the environment's actions.

        Before this mapping, actions are unbounded, because densities are inaccurate near the edges
        of a box.
        """
        return action

    def logits(self, outputs: Float[Array, "... P"], actions: Actions) -> Float[Array, "... A"]:
        """Return the unmasked logits of the choices, from which the valid mass is computed."""
        return outputs


class _Categorical(Family):
    actions = "discrete"

    def make(
        self, outputs: Array, actions: Actions, mask: Any, log_std: Any
    ) -> ActionDistribution:
        return CategoricalActions.make(outputs, mask, actions.selects)


class _MultiCategorical(Family):
    actions = "multi_discrete"

    def make(
        self, outputs: Array, actions: Actions, mask: Any, log_std: Any
    ) -> ActionDistribution:
        assert isinstance(actions.space, MultiDiscrete)
        return MultiCategorical.make(outputs, actions.space.nvec, mask, actions.selects)


class _Gaussian(Family):
    has_log_std = True

    def make(self, outputs: Array, actions: Actions, mask: Any, log_std: Any) -> Gaussian:
        spread = log_std.reshape((*(1,) * (outputs.ndim - 1), -1))
        return Gaussian(outputs, jnp.broadcast_to(spread, outputs.shape))


class Squashed(Family):
    """A family with actions low + (high - low) share(action); `share` is a sigmoid by default."""

    bounded = True

    def share(self, action: Array) -> Array:
        return jax.nn.sigmoid(action)

    def environment_action(
        self, action: Float[Array, "... D"], actions: Actions
    ) -> Float[Array, "... D"]:
        low, high = spread_bounds(actions, action)
        share = self.share(action)
        return jnp.clip(low + (high - low) * share, low, high)  # rounding may leave the box


class _TanhGaussian(Squashed):
    has_log_std = True

    def make(
        self, outputs: Array, actions: Actions, mask: Any, log_std: Any
    ) -> ActionDistribution:
        volume = _log_volume(0.5 * (actions.high - actions.low))
        return TanhGaussian(_Gaussian().make(outputs, actions, mask, log_std), volume)

    def entropy_noise(self, key: PRNGKeyArray, batch: Any, shape: Any) -> Array:
        return jax.random.normal(key, (*batch, ENTROPY_DRAWS, *shape), jnp.float32)

    def share(self, action: Array) -> Array:
        return 0.5 * (jnp.tanh(action) + 1.0)


class _Beta(Squashed):
    def outputs(self, actions: Actions) -> int:
        return 2 * actions.components

    def make(
        self, outputs: Array, actions: Actions, mask: Any, log_std: Any
    ) -> ActionDistribution:
        return Beta.make(outputs, _log_volume(actions.high - actions.low))

    def noise(self, key: PRNGKeyArray, batch: Any, shape: Any) -> Array:
        """Draw the noise for two Gamma draws, [batch, D, 2, J, 2].

        Each of the J proposals needs a normal and a uniform number.
        """
        shape = (*batch, *shape, 2, BETA_PROPOSALS)
        normal = jax.random.normal(jax.random.fold_in(key, 0), shape, jnp.float32)
        uniform = jax.random.uniform(jax.random.fold_in(key, 1), shape, jnp.float32)
        return jnp.stack([normal, uniform], axis=-1)


def _log_volume(widths: np.ndarray) -> Float[Array, ""]:
    return jnp.float32(np.sum(np.log(widths.astype(np.float64))))


def spread_bounds(actions: Actions, like: Array) -> tuple[Array, Array]:
    low, high = (
        jnp.asarray(x).reshape((1,) * (like.ndim - 1) + x.shape)
        for x in (actions.low, actions.high)
    )
    return low, high


_FAMILIES: dict[str, Family] = {
    "categorical": _Categorical(),
    "multi_discrete": _MultiCategorical(),
    "gaussian": _Gaussian(),
    "tanh_gaussian": _TanhGaussian(),
    "beta": _Beta(),
}


def register(name: str, family: Family) -> None:
    """Add a distribution, so that studies can select it by `distribution: name`.

    `testing.DistributionContract` checks all requirements.

    Raises:
        ConfigError: the name is taken, or the family has an unknown kind of actions.
    """
    require_new("distribution", name, known_choices("distribution"))
    kinds = ("discrete", "multi_discrete", "continuous")
    if family.actions not in kinds:
        raise ConfigError(
            f"distribution {name!r} has actions of type {family.actions!r}; "
            f"allowed: {', '.join(kinds)}"
        )
    _FAMILIES[name] = family
    allow_distribution(family.actions, name)
    allow_choice("distribution", name)


def family_of(name: str) -> Family:
    return _FAMILIES[name]
