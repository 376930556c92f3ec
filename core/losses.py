"""The PPO loss of one minibatch of one lane (Schulman et al. 2017), with every switch traced.

Rows are single steps, or whole segments if a plan learns from segments. Terms that only some plans
need (see `plan.FEATURES`) are compiled only for those plans.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from . import policy
from .advantages import Steps, v_trace
from .envs import registry as environments
from .hypers import OFF, SAME, Hypers
from .masking import log_valid_mass
from .minibatches import Samples
from .networks.layers import Outputs
from .optimisers import Coefficients
from .plan import Plan
from .policy import component_sizes, raw_logits
from .pytree import Pytree, pytree

_LEAST_TOTAL = 1e-8  # least total weight: a minibatch whose rows all have weight 0 has no loss
Mean = Callable[[Array], Array]


class _Purposes(NamedTuple):
    """One value per `masking.RowWeights` field: step weights (None if equal), totals or means."""

    policy: Any
    value: Any
    mass: Any
    choice: Any


@pytree
class Losses(Pytree):
    """Results of one minibatch; means over its rows unless stated otherwise."""

    loss: Float[Array, "..."]
    policy_loss: Float[Array, "..."]
    value_loss: Float[Array, "..."]
    entropy: Float[Array, "..."]
    valid_mass_loss: Float[Array, "..."]
    approx_kl: Float[Array, "..."]
    clip_fraction: Float[Array, "..."]
    ratio_mean: Float[Array, "..."]
    ratio_std: Float[Array, "..."]
    ratio_min: Float[Array, "..."]
    ratio_max: Float[Array, "..."]
    # of the actions taken, under the policy that the ratio is computed from
    log_prob: Float[Array, "..."]
    log_prob_min: Float[Array, "..."]
    # normalised, clipped, times the importance weight
    normalised_advantage_mean: Float[Array, "..."]
    # over steps with two or more valid actions, as choice_entropy
    choice_log_prob: Float[Array, "..."]
    choice_entropy: Float[Array, "..."]

    @classmethod
    def of_none(cls, zero: Float[Array, "..."]) -> Losses:
        starts = {none: zero + none for none in (jnp.inf, -jnp.inf)}
        extremes = {name: starts[none] for name, (_, none) in _EXTREMES.items()}
        return cls(**{**dict.fromkeys(cls.__dataclass_fields__, zero), **extremes})

    def plus(self, other: Losses, takes: Bool[Array, "..."] | bool = True) -> Losses:
        added: Losses = jax.tree.map(lambda a, b: a + jnp.where(takes, b, 0.0), self, other)
        extremes: dict[str, Array] = {}
        for name, (further, none) in _EXTREMES.items():
            taken = jnp.where(takes, getattr(other, name), none)
            extremes[name] = further(getattr(self, name), taken)
        return added.replace(**extremes)


# Smallest and largest values: how they are combined, and what they start from.
_EXTREMES = {
    "ratio_min": (jnp.minimum, jnp.inf),
    "log_prob_min": (jnp.minimum, jnp.inf),
    "ratio_max": (jnp.maximum, -jnp.inf),
}


@pytree
class _Terms(Pytree):
    change: Float[Array, "B *T"]  # log pi - log pi_old of the action, both masked
    entropy: Float[Array, "B *T"]
    value: Float[Array, "B *T"]
    log_mass: Float[Array, "B *T"] | None  # log of the valid mass; None if no feature needs it
    last_value: Float[Array, " B"] | None  # V of the observation after the rollout, for V-trace


@pytree
class _Targets(Pytree):
    advantage: Float[Array, "B *T"]
    target: Float[Array, "B *T"]


def ppo_loss(
    params: dict[str, Any],
    plan: Plan,
    hypers: Hypers,
    coefficients: Coefficients,
    rows: Samples,
    *,
    weight: Float[Array, " B"] | None,
) -> tuple[Float[Array, ""], Losses]:
    """Return the loss and its components.

    L = -mean(min(r A, clip(r, 1 - eps, 1 + eps) A)) + vf_coef L_V - ent_coef mean(H), with r =
    exp(clip(log pi - log pi_old, +-logr_clip)). A is normalised over the minibatch with the
    weights of the policy loss, so that steps without a choice do not count. If there is only one
    row, A is not normalised. L_V = 0.5 mean((V - R)^2); with value_clip_eps, each square is the
    larger of those for V and for V clipped to V_old +- value_clip_eps. approx_kl = mean((r - 1) -
    log r) (Schulman 2020, estimator k3).

    With masks, means are weighted as in `masking.row_weights`. With V-trace, A and R = A + V are
    recomputed from the current parameters. With priorities, A includes the importance weight only
    in the policy loss. With `off_policy_masking`, r is the raw policy's probability divided by
    that of the masked policy that acted. approx_kl still compares the two masked policies, so that
    target_kl keeps its meaning. The valid-mass loss is -valid_mass_coef mean(log valid mass).

    `weight` is 0 for padding rows in the last minibatch; it is None without padding.
    """
    terms = _forward_terms(params, plan, hypers, rows)
    learned = _learning_targets(plan, hypers, coefficients, rows, terms)
    flat_rows, terms, learned = (_steps_of(plan, part) for part in (rows, terms, learned))
    weights = _row_weights(plan, rows, weight)
    means = _Purposes(*map(_weighted_mean, weights))
    advantage = _normalise(learned.advantage, hypers, weights.policy)
    learned = learned.replace(advantage=advantage)
    batch = _Batch(flat_rows, terms, learned, weights.value)
    return _minibatch_loss(plan, hypers, coefficients, batch, means)


def loss_and_gradient(
    params: dict[str, Any],
    plan: Plan,
    hypers: Hypers,
    coefficients: Coefficients,
    rows: Samples,
    *,
    weight: Float[Array, " B"] | None,
) -> tuple[Losses, dict[str, Any]]:
    """Return the losses and gradient of `ppo_loss`, computed in `gradient_accumulation` parts.

    The parts have equal size and are computed one after the other; their sum equals the result for
    the whole minibatch. Advantages are normalised over the whole minibatch, and means are divided
    by its total weight.
    """
    count = plan.gradient_parts
    if count == 1:
        (_, losses), gradient = jax.value_and_grad(ppo_loss, has_aux=True)(
            params, plan, hypers, coefficients, rows, weight=weight
        )
        return losses, gradient
    rows, fills = jax.tree.map(lambda x: x.reshape((count, -1, *x.shape[1:])), (rows, weight))

    def targets(rows: Samples) -> _Targets:
        terms = None if rows.segments is None else _forward_terms(params, plan, hypers, rows)
        return _steps_of(plan, _learning_targets(plan, hypers, coefficients, rows, terms))

    learned: _Targets = jax.lax.map(targets, rows)
    weights = jax.vmap(lambda part, fills: _row_weights(plan, part, fills))(rows, fills)
    flat: _Purposes = jax.tree.map(lambda w: w.reshape(-1), weights)

    def total(weight: Array | None) -> Array:
        whole = jnp.float32(learned.advantage.size)
        return whole if weight is None else jnp.maximum(jnp.sum(weight), _LEAST_TOTAL)

    totals = _Purposes(*map(total, flat))
    advantage = _normalise(learned.advantage.reshape(-1), hypers, flat.policy)
    learned = learned.replace(advantage=advantage.reshape(learned.advantage.shape))

    def loss(params: dict[str, Any], part: tuple[Any, ...]) -> tuple[Array, Losses]:
        rows, weights, learned = part
        terms = _steps_of(plan, _forward_terms(params, plan, hypers, rows))
        means = _Purposes(*map(_weighted_mean, weights, totals))
        rows = _steps_of(plan, rows)
        batch = _Batch(rows, terms, learned, weights.value)
        return _minibatch_loss(plan, hypers, coefficients, batch, means, in_parts=True)

    def add(sums: tuple[Losses, Any], part: tuple[Any, ...]) -> tuple[tuple[Losses, Any], None]:
        (_, losses), gradient = jax.value_and_grad(loss, has_aux=True)(params, part)
        before, slopes = sums
        return (before.plus(losses), jax.tree.map(jnp.add, slopes, gradient)), None

    start = Losses.of_none(jnp.zeros((), jnp.float32))
    zeros = jax.tree.map(jnp.zeros_like, params)
    (losses, gradient), _ = jax.lax.scan(add, (start, zeros), (rows, weights, learned))
    square = losses.ratio_std - jnp.square(losses.ratio_mean - 1.0)  # see `_minibatch_loss`
    return losses.replace(ratio_std=jnp.sqrt(jnp.maximum(square, 0.0))), gradient


def _forward_terms(params: dict[str, Any], plan: Plan, hypers: Hypers, rows: Samples) -> _Terms:
    outputs = _network_outputs(plan, params, rows)
    last_value = None
    if "v_trace" in plan.features:
        last_value = outputs.value[:, -1]
        outputs = jax.tree.map(lambda x: x[:, :-1], outputs)
    distribution = policy.distribution_of(plan, hypers, params, outputs, rows.mask)
    change = distribution.log_prob(rows.action) - rows.log_prob
    log_mass = None
    needed = {"off_policy_masking", "valid_mass_loss"} & set(plan.features)
    if needed and rows.mask is not None and rows.weights is not None:
        env = environments.make(plan.env)
        logits = raw_logits(plan, env, outputs.policy)
        log_mass = log_valid_mass(logits, rows.mask, component_sizes(env))
    return _Terms(change, distribution.entropy(rows.noise), outputs.value, log_mass, last_value)


def _learning_targets(
    plan: Plan, hypers: Hypers, coefficients: Coefficients, rows: Samples, terms: _Terms | None
) -> _Targets:
    """Return advantages and targets: the rollout's, or V-trace's in lanes that use it.

    For truncated episodes, V of the final observation is taken from the rollout. Such steps are
    rare, and recomputing V would double the number of observations that the network reads.
    """
    segments = rows.segments
    if segments is None or terms is None or terms.last_value is None:
        return _Targets(rows.advantage, rows.target)
    value, last, change = jax.lax.stop_gradient((terms.value, terms.last_value, terms.change))
    next_step_values = jnp.concatenate([value[:, 1:], last[:, None]], axis=1)
    next_values = jnp.where(segments.truncated, segments.bootstrap, next_step_values)
    ratio = jnp.exp(jnp.clip(change, -hypers.logr_clip, hypers.logr_clip))
    rows_first = Steps(
        segments.reward, value, next_values, segments.terminated, segments.truncated
    )
    steps, weight = jax.tree.map(lambda x: jnp.moveaxis(x, 1, 0), (rows_first, ratio))

    def traced(decay: Array) -> Array:
        found = v_trace(
            steps,
            hypers.gamma,
            decay,
            weight,
            rho_clip=hypers.rho_clip,
            c_clip=hypers.c_clip,
            unroll=plan.backend.advantage_unroll,
        )
        return jnp.moveaxis(found, 0, 1)

    advantage = target_advantage = traced(coefficients.gae_lambda)
    if "vf_gae_lambda" in plan.features:
        target_advantage = traced(coefficients.vf_gae_lambda)
    if rows.shadow is not None:
        advantage = advantage - rows.shadow
    on = hypers.rho_clip < OFF
    return _Targets(
        jnp.where(on, advantage, rows.advantage),
        jnp.where(on, target_advantage + value, rows.target),
    )


def _steps_of(plan: Plan, tree: Any) -> Any:
    if not plan.by_segments:
        return tree
    steps = plan.rollout_length

    def flat(x: Array) -> Array:
        return jnp.repeat(x, steps) if x.ndim == 1 else x.reshape((-1, *x.shape[2:]))

    return jax.tree.map(flat, tree)


def _row_weights(plan: Plan, rows: Samples, weight: Float[Array, " B"] | None) -> _Purposes:
    fills = _steps_of(plan, weight)
    if rows.weights is None:
        return _Purposes(fills, fills, fills, fills)
    each = jax.tree.leaves(_steps_of(plan, rows.weights))
    return _Purposes(*(each if fills is None else (weight * fills for weight in each)))


def _weighted_mean(weight: Array | None, total: Array | None = None) -> Mean:
    """Return the weighted mean, or one part of a mean whose total weight is `total`."""
    if weight is None:
        return jnp.mean if total is None else lambda x: jnp.sum(x) / total
    whole = jnp.maximum(jnp.sum(weight), _LEAST_TOTAL) if total is None else total
    return lambda x: jnp.sum(x * weight) / whole


class _Batch(NamedTuple):
    """A minibatch of single steps: the inputs of the loss."""

    rows: Samples
    terms: _Terms
    learned: _Targets
    counts: Float[Array, " B"] | None  # weights of the value loss, 0 for padding


def _minibatch_loss(
    plan: Plan,
    hypers: Hypers,
    coefficients: Coefficients,
    batch: _Batch,
    means: _Purposes,
    *,
    in_parts: bool = False,
) -> tuple[Float[Array, ""], Losses]:
    """Return the loss of a minibatch of single steps.

    With `in_parts`, `ratio_std` is this part's contribution to the mean of (r - 1)^2.
    """
    rows, terms, learned, counts = batch
    over_policy, over_value, over_mass = means.policy, means.value, means.mass
    # r = pi(a|s) / pi_old(a|s), and KL(pi_old, pi) by the estimator k3
    log_ratio = jnp.clip(terms.change, -hypers.logr_clip, hypers.logr_clip)
    ratio = jnp.exp(log_ratio)
    approx_kl = over_value((ratio - 1.0) - log_ratio)
    log_prob = rows.log_prob + terms.change
    if terms.log_mass is not None and "off_policy_masking" in plan.features:
        # the unmasked policy: its probability is the masked one times the valid mass
        raw = jnp.clip(terms.change + terms.log_mass, -hypers.logr_clip, hypers.logr_clip)
        off_policy = (hypers.off_policy_masking > 0.0) & (hypers.action_masking > 0.0)
        ratio = jnp.where(off_policy, jnp.exp(raw), ratio)
        log_prob = log_prob + jnp.where(off_policy, terms.log_mass, 0.0)
    advantage = learned.advantage
    if rows.importance is not None:
        advantage = advantage * rows.importance
    # clipped surrogate: min(r A, clip(r, 1 - eps, 1 + eps) A)
    eps = coefficients.clip_eps
    clipped = jnp.clip(ratio, 1.0 - eps, 1.0 + eps)
    policy_loss = -over_policy(jnp.minimum(ratio * advantage, clipped * advantage))
    value_loss = over_value(_value_errors(terms.value, rows.value, learned.target, hypers, eps))
    entropy = over_policy(terms.entropy)
    # L = L_pi + vf_coef L_V - ent_coef H
    loss = policy_loss + hypers.vf_coef * value_loss - coefficients.ent_coef * entropy
    mass_loss = zero = jnp.zeros_like(loss)
    if terms.log_mass is not None and "valid_mass_loss" in plan.features:
        mass_loss = -over_mass(terms.log_mass)
        loss = loss + coefficients.valid_mass_coef * mass_loss
    ratio_mean = over_value(ratio)
    present, spoken = ratio, log_prob  # extremes leave out padding rows
    if counts is not None:
        present = jnp.where(counts > 0.0, ratio, 1.0)
        spoken = jnp.where(counts > 0.0, log_prob, jnp.inf)
    if in_parts:
        ratio_std = over_value(jnp.square(ratio - 1.0))
    else:
        ratio_std = jnp.sqrt(jnp.maximum(over_value(jnp.square(ratio - ratio_mean)), 0.0))
    return loss, Losses(
        loss=loss,
        policy_loss=policy_loss,
        value_loss=value_loss,
        entropy=entropy,
        valid_mass_loss=mass_loss,
        approx_kl=approx_kl,
        clip_fraction=over_value((jnp.abs(ratio - 1.0) > eps).astype(jnp.float32)),
        ratio_mean=ratio_mean,
        ratio_std=ratio_std,
        ratio_min=jnp.min(present),
        ratio_max=jnp.max(present),
        log_prob=over_value(log_prob),
        log_prob_min=jnp.min(spoken),
        normalised_advantage_mean=over_value(advantage),
        choice_log_prob=means.choice(log_prob) if rows.weights is not None else zero,
        choice_entropy=means.choice(terms.entropy) if rows.weights is not None else zero,
    )


def _network_outputs(plan: Plan, params: dict[str, Any], rows: Samples) -> Outputs:
    if rows.first is None:
        return policy.apply(plan, params, rows.observation)

    def swapped(tree: Any) -> Any:
        return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), tree)

    observation, first = swapped((rows.observation, rows.first))
    carry = jax.tree.map(lambda x: x[:, 0], rows.carry)
    return swapped(policy.unroll(plan, params, observation, first, carry))


def _normalise(
    advantage: Float[Array, " B"], hypers: Hypers, weight: Float[Array, " B"] | None
) -> Float[Array, " B"]:
    """Normalise advantages to mean 0 and std 1 over counted rows; a single row is unchanged."""
    if weight is None and advantage.size == 1:
        return advantage
    mean = _weighted_mean(weight)
    centre = mean(advantage)
    deviation = jnp.sqrt(mean(jnp.square(advantage - centre)))
    clean = (advantage - centre) / (deviation + 1e-8)
    clean = jnp.clip(clean, -hypers.adv_clip, hypers.adv_clip)
    on = hypers.normalise_advantages > 0.0
    if weight is not None:
        on = on & (jnp.sum(weight > 0.0) != 1)
    return jnp.where(on, clean, advantage)


def _value_errors(
    value: Float[Array, " B"],
    old: Float[Array, " B"],
    target: Float[Array, " B"],
    hypers: Hypers,
    clip_eps: Float[Array, ""],
) -> Float[Array, " B"]:
    limit = jnp.where(hypers.value_clip_eps == SAME, clip_eps, hypers.value_clip_eps)
    near = old + jnp.clip(value - old, -limit, limit)
    free = jnp.square(value - target)
    held = jnp.where(jnp.isinf(limit), free, jnp.square(near - target))
    return 0.5 * jnp.maximum(free, held)
