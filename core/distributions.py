"""Action distributions over the outputs of a policy head, as small frozen pytrees.

A distribution is sampled from random numbers drawn beforehand (`noise_shape`, `noise`), because
drawing those of a whole rollout at once is cheaper than splitting keys step by step.
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
from ..errors import ConfigError
from ..knobs import allow_choice, known_choices
from .envs.contract import ActionSpace
from .pytree import Pytree, pytree, static

BETA_PROPOSALS = 6
"""Proposals of a Gamma draw, of which the first accepted one is taken."""

ENTROPY_DRAWS = 2
"""Draws that a sampled entropy is the mean of."""

_MASKED = -1e9  # finite: -inf gives NaN gradients of the entropy
_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)


@runtime_checkable
class Distribution(Protocol):
    """Distribution of one action; leading axes are batch axes.

    An action is what `log_prob` takes: what the environment takes may be a function of it (see
    `actions.environment_action`).
    """

    def sample(self, noise: Array) -> Array:
        """Return an action from noise made by `draw_noise`."""
        ...

    def log_prob(self, action: Any) -> Array:
        """Return the log probability (density) of an action."""
        ...

    def entropy(self, noise: Any = None) -> Array:
        """Return the entropy in nats; where it is sampled, from noise of `draw_entropy_noise`."""
        ...

    def mode(self) -> Array:
        """Return the greedy action."""
        ...


@pytree
class Categorical(Pytree):
    """Categorical over A actions.

    Attributes:
        log_probs: normalised [..., A].
        selects: the one of an action is summed out of all, whose gradient a GPU makes together
            with that of the normalisation; else looked up, whose gradient is scattered.
    """

    log_probs: Float[Array, "... A"]
    selects: bool = static(default=False)

    @classmethod
    def make(
        cls,
        logits: Float[Array, "... A"],
        mask: Bool[Array, "... A"] | None = None,
        selects: bool = False,
    ) -> Categorical:
        """Normalise logits; masked actions get probability 0 and no gradient.

        Where a mask allows nothing, it is ignored: the raw policy acts and the action fails in
        the environment.
        """
        if mask is not None:
            usable = mask | ~jnp.any(mask, axis=-1, keepdims=True)
            logits = jnp.where(usable, logits, _MASKED)
        return cls(jax.nn.log_softmax(logits, axis=-1), selects)

    def sample(self, noise: Float[Array, "..."]) -> Int[Array, "..."]:
        """Invert the cumulative distribution at `noise` in [0, 1); never gives a masked action."""
        probs = jnp.exp(self.log_probs)
        possible = probs > 0.0
        # Sums of more than 256 terms are trees: a masked action may seem to add a rounding error
        # (and later sums may be smaller), so that only possible actions are looked at.
        cumulative = jnp.cumsum(probs, axis=-1)
        total = jnp.max(jnp.where(possible, cumulative, 0.0), axis=-1)
        point = (noise * total)[..., None]  # below the total, which one of them reaches
        places = jax.lax.broadcasted_iota(jnp.int32, probs.shape, probs.ndim - 1)
        above = jnp.where(possible & (cumulative > point), places, probs.shape[-1] - 1)
        return jnp.min(above, axis=-1)

    def log_prob(self, action: Int[Array, "..."]) -> Float[Array, "..."]:
        """Return log pi(action)."""
        if self.selects:
            places = jax.lax.broadcasted_iota(action.dtype, self.log_probs.shape, action.ndim)
            chosen = jnp.where(places == action[..., None], self.log_probs, 0.0)
            return jnp.sum(chosen, axis=-1)
        return jnp.take_along_axis(self.log_probs, action[..., None], axis=-1)[..., 0]

    def entropy(self, noise: Any = None) -> Float[Array, "..."]:
        """Return -sum p log p."""
        return -jnp.sum(jnp.exp(self.log_probs) * self.log_probs, axis=-1)

    def mode(self) -> Int[Array, "..."]:
        """Return the most probable action (the first of equals)."""
        return jnp.argmax(self.log_probs, axis=-1).astype(jnp.int32)


@pytree
class MultiCategorical(Pytree):
    """C independent categoricals, one a component of the action, padded to the widest.

    `parts.log_probs` is [..., C, widest]; the padding has probability 0.
    """

    parts: Categorical

    @classmethod
    def make(
        cls,
        logits: Float[Array, "... P"],
        sizes: tuple[int, ...],
        mask: Bool[Array, "... P"] | None = None,
        selects: bool = False,
    ) -> MultiCategorical:
        """Normalise each component's logits; masks work in each as in `Categorical.make`.

        Args:
            logits: of all components, one after the other; P is the sum of sizes.
            sizes: actions of each component.
            mask: valid actions of each component, in the same order.
            selects: as in `Categorical`.
        """
        valid = None if mask is None else _by_component(mask, sizes, False)
        return cls(Categorical.make(_by_component(logits, sizes, _MASKED), valid, selects))

    def sample(self, noise: Float[Array, "... C"]) -> Int[Array, "... C"]:
        """Draw each component by its own number in [0, 1)."""
        return self.parts.sample(noise)

    def log_prob(self, action: Int[Array, "... C"]) -> Float[Array, "..."]:
        """Return the sum of the components' log probabilities."""
        return jnp.sum(self.parts.log_prob(action), axis=-1)

    def entropy(self, noise: Any = None) -> Float[Array, "..."]:
        """Return the sum of the components' entropies."""
        return jnp.sum(self.parts.entropy(), axis=-1)

    def mode(self) -> Int[Array, "... C"]:
        """Return the most probable action of each component."""
        return self.parts.mode()


def _by_component(flat: Array, sizes: tuple[int, ...], fill: float | bool) -> Array:
    """Return [..., C, widest] from components one after the other, padded with `fill`."""
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    lead = [(0, 0)] * (flat.ndim - 1)
    parts = [
        jnp.pad(flat[..., end - size : end], [*lead, (0, max(sizes) - size)], constant_values=fill)
        for end, size in zip(ends, sizes, strict=True)
    ]
    return jnp.stack(parts, axis=-2)


@pytree
class Gaussian(Pytree):
    """Diagonal Gaussian by mean and log standard deviation [..., D].

    Its actions are unbounded; the environment adapter clips them to the action box (as SB3 does).
    """

    mean: Float[Array, "... D"]
    log_std: Float[Array, "... D"]

    def sample(self, noise: Float[Array, "... D"]) -> Float[Array, "... D"]:
        """Return mean + std * noise, noise standard normal."""
        return self.mean + jnp.exp(self.log_std) * noise

    def log_prob(self, action: Float[Array, "... D"]) -> Float[Array, "..."]:
        """Return the log density, summed over components."""
        z = (action - self.mean) * jnp.exp(-self.log_std)
        return jnp.sum(-0.5 * z * z - self.log_std - _HALF_LOG_2PI, axis=-1)

    def entropy(self, noise: Any = None) -> Float[Array, "..."]:
        """Return sum(log_std + 0.5 log(2 pi e))."""
        return jnp.sum(self.log_std + (0.5 + _HALF_LOG_2PI), axis=-1)

    def mode(self) -> Float[Array, "... D"]:
        """Return the mean."""
        return self.mean


def draw_noise(
    kind: str, key: PRNGKeyArray, batch: tuple[int, ...], action_shape: tuple[int, ...]
) -> Array:
    """Draw what `sample` needs for a batch.

    Uniform [batch, *action_shape] for integers, standard normal for Gaussians; for a Beta
    [batch, D, 2, J, 2], a normal and a uniform number for each of J proposals of two Gamma draws.
    """
    if kind in ("categorical", "multi_discrete"):
        return jax.random.uniform(key, (*batch, *action_shape), jnp.float32)
    if kind == "beta":
        shape = (*batch, *action_shape, 2, BETA_PROPOSALS)
        normal = jax.random.normal(jax.random.fold_in(key, 0), shape, jnp.float32)
        uniform = jax.random.uniform(jax.random.fold_in(key, 1), shape, jnp.float32)
        return jnp.stack([normal, uniform], axis=-1)
    return jax.random.normal(key, (*batch, *action_shape), jnp.float32)


def draw_entropy_noise(
    kind: str, key: PRNGKeyArray, batch: tuple[int, ...], action_shape: tuple[int, ...]
) -> Array | None:
    """Draw what `entropy` needs for a batch, standard normal [batch, K, D], or None if nothing."""
    if kind != "tanh_gaussian":
        return None
    return jax.random.normal(key, (*batch, ENTROPY_DRAWS, *action_shape), jnp.float32)


_LOG_2 = math.log(2.0)
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


Kind = Literal["discrete", "multi_discrete", "continuous"]


@dataclass(frozen=True, eq=False)
class Actions:
    """The actions of an environment, as NumPy and plain numbers.

    Attributes:
        space: of the environment.
        shape: of one action of the policy: [] for one choice, [C] choices, [D] real numbers.
        low: smallest real action [D], after `action_low`; empty for choices.
        high: largest, likewise.
    """

    space: ActionSpace
    shape: tuple[int, ...]
    low: np.ndarray
    high: np.ndarray

    @property
    def components(self) -> int:
        """Numbers in one action."""
        return math.prod(self.shape)


class Family:
    """What user code says of a distribution; subclass it and `register` an instance.

    Methods are pure functions of arrays and run inside compiled programs.

    Attributes:
        actions: the kind of action space that it is for.
        bounded: it needs a finite range; the user is told where there is none.
        has_log_std: it takes a log standard deviation a component, parameters of the policy that
            see no observation (`log_std_init`, `log_std_min`, `log_std_max`).
    """

    actions: ClassVar[Kind] = "continuous"
    bounded: ClassVar[bool] = False
    has_log_std: ClassVar[bool] = False

    def outputs(self, actions: Actions) -> int:
        """Return how many numbers the policy head gives; one a component unless overridden.

        A distribution of choices has one a choice.
        """
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
    ) -> Distribution:
        """Return the distribution.

        Args:
            outputs: of the policy head.
            actions: of the environment.
            mask: valid choices, or None; what is not valid must have probability 0, but where
                nothing is valid the mask must be ignored.
            log_std: with `has_log_std`, clipped; else None.
        """
        raise NotImplementedError(f"{type(self).__name__} has no `make`")

    def noise(
        self, key: PRNGKeyArray, batch: tuple[int, ...], shape: tuple[int, ...]
    ) -> Float[Array, "..."]:
        """Draw what `sample` needs, [batch, ...]: one number a component unless overridden.

        Uniform in [0, 1) for choices, standard normal for real actions.
        """
        draw = jax.random.normal if self.actions == "continuous" else jax.random.uniform
        return draw(key, (*batch, *shape), jnp.float32)

    def entropy_noise(
        self, key: PRNGKeyArray, batch: tuple[int, ...], shape: tuple[int, ...]
    ) -> Float[Array, "..."] | None:
        """Draw what `entropy` needs, [batch, ...], or None where it is exact."""
        return None

    def environment_action(
        self, action: Float[Array, "... D"], actions: Actions
    ) -> Float[Array, "... D"]:
        """Return what the environment takes for real actions of the policy.

        Where density is to be taken away from the edges of a box, an action of the policy may be
        an unbounded number, mapped into the box here.
        """
        return action

    def logits(self, outputs: Float[Array, "... P"], actions: Actions) -> Float[Array, "... A"]:
        """Return logits of the choices without a mask, by which valid mass is counted."""
        return outputs


_OWN: dict[str, Family] = {}


def register(name: str, family: Family) -> None:
    """Add a distribution; `testing.DistributionContract` checks all that is asked.

    Args:
        name: for the knob `distribution`.
        family: makes it.

    Raises:
        ConfigError: the name is taken, or it says no known kind of actions.
    """
    if name in known_choices("distribution"):
        raise ConfigError(
            f"a distribution {name!r} exists already; register it under another name"
        )
    kinds = ("discrete", "multi_discrete", "continuous")
    if family.actions not in kinds:
        raise ConfigError(
            f"distribution {name!r} is for actions {family.actions!r}; allowed: {', '.join(kinds)}"
        )
    _OWN[name] = family
    allow_distribution(family.actions, name)
    allow_choice("distribution", name)


def own_family(name: str | None) -> Family | None:
    """Return the family that is registered under a name, or None."""
    return None if name is None else _OWN.get(name)
