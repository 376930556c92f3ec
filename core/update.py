"""One PPO update of a tile of lanes: a rollout, advantages, then epochs of minibatches.

Loops run over the whole tile with bounds traced per lane: a lane that has done its epochs, or was
stopped by target_kl, is masked until the slowest lane of the tile is done.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped

from . import optimisers, policy
from .advantages import gae
from .distributions import draw_entropy_noise
from .envs import registry as environments
from .losses import Coefficients, Losses, Samples, ppo_loss
from .metrics import Metrics
from .pytree import Pytree, pytree
from .rollout import EpisodeSums, Trajectory, rollout
from .schedules import annealed_lambda, scheduled
from .state import Hypers, LaneState, Plan, use_key

__all__ = ["learn", "minibatch_shape", "permutation", "update"]

SHUFFLE, ENTROPY_NOISE = 3, 6  # uses of a lane's key; see also rollout.py, population.py
_KL_FACTOR = 1.5
_WEIGHT_LIMIT = 100.0  # root mean square of a parameter; trained networks stay below 1
_KL_LIMIT = 1e3


@pytree
class _Scheduled(Pytree):
    """Values of one update, per lane."""

    progress: Float[Array, ""]
    gae_lambda: Float[Array, ""]
    coefficients: Coefficients
    sizes: optimisers.StepSizes


@pytree
class _Learning(Pytree):
    """What the gradient steps of one update carry, per lane.

    Attributes:
        params: of the networks.
        moments: of the optimiser.
        stopped: target_kl was exceeded.
        sums: of `Losses` over the gradient steps taken.
        start_error: largest |ratio - 1| of the first minibatch.
        grad_norm: sum over the steps taken.
        taken: gradient steps taken.
        skipped: gradient steps that target_kl skipped.
    """

    params: Any
    moments: Any
    stopped: Bool[Array, "..."]
    sums: Losses
    start_error: Float[Array, "..."]
    grad_norm: Float[Array, "..."]
    taken: Float[Array, "..."]
    skipped: Float[Array, "..."]


def update(plan: Plan, hypers: Hypers, state: LaneState) -> tuple[LaneState, Metrics]:
    """Give the lanes [L] after one update, and what it showed.

    Lanes in warm-up (negative `updates`) step their environments and learn nothing.
    """
    state, trajectory, sums, last_value = rollout(plan, hypers, state)
    return learn(plan, hypers, state, trajectory, sums, last_value)


def learn(
    plan: Plan,
    hypers: Hypers,
    state: LaneState,
    trajectory: Trajectory,
    sums: EpisodeSums,
    last_value: Float[Array, "L E"],
) -> tuple[LaneState, Metrics]:
    """Give the lanes [L] after learning from a rollout, and what it showed.

    Args:
        plan: static part.
        hypers: traced part.
        state: of the lanes after the rollout; its `updates` are those before this update.
        trajectory: the rollout, time first.
        sums: of the episodes that ended in it.
        last_value: V of the observation after it.
    """
    values = jax.vmap(_schedule)(hypers, state)
    in_lanes = jax.tree.map(lambda x: jnp.moveaxis(x, 1, 0), trajectory)
    state, samples = jax.vmap(lambda *lane: _prepare(plan, *lane))(
        hypers, values, state, in_lanes, last_value
    )
    learning = _learn(plan, hypers, values, state, samples)
    metrics = jax.vmap(lambda *lane: _measure(plan, *lane))(
        hypers, values, learning, samples, trajectory_rewards(in_lanes), sums
    )
    state = state.replace(
        params=learning.params, moments=learning.moments, updates=state.updates + 1
    )
    return state, metrics


def trajectory_rewards(trajectory: Trajectory) -> Float[Array, " L"]:
    """Give the mean unscaled reward per env step of lane-major trajectories."""
    return jnp.mean(trajectory.reward, axis=(1, 2))


def _schedule(hypers: Hypers, state: LaneState) -> _Scheduled:
    done = jnp.maximum(state.updates, 0).astype(jnp.float32)
    progress = done / jnp.maximum(state.total_updates, 1).astype(jnp.float32)
    one = jnp.ones_like(progress)
    warmup = {
        "exponent": hypers.lr_decay_exponent,
        "warmup_fraction": hypers.lr_warmup_fraction,
        "peak_multiplier": one,
        "start_fraction": hypers.lr_warmup_start_fraction,
    }
    clip_eps = scheduled(
        hypers.clip_eps,
        hypers.clip_eps_schedule,
        progress,
        end_fraction=hypers.clip_eps_end_fraction,
        multiplier=one,
        **warmup,
    )
    ent_coef = scheduled(
        hypers.ent_coef,
        hypers.ent_schedule,
        progress,
        end_fraction=hypers.ent_end_fraction,
        multiplier=hypers.ent_schedule_multiplier,
        **warmup,
    )
    return _Scheduled(
        progress=progress,
        gae_lambda=annealed_lambda(
            hypers.gae_lambda_initial,
            hypers.gae_lambda_final,
            progress,
            hypers.gae_lambda_schedule_multiplier,
        ),
        coefficients=Coefficients(clip_eps, ent_coef),
        sizes=optimisers.step_sizes(hypers, progress),
    )


def _prepare(
    plan: Plan,
    hypers: Hypers,
    values: _Scheduled,
    state: LaneState,
    seen: Trajectory,
    last_value: Float[Array, " E"],
) -> tuple[LaneState, Samples]:
    """Give one lane's samples with advantages, [N, ...]; updates its running statistics."""
    learns = state.updates >= 0
    rewards, state = _shape_rewards(plan, hypers, state, seen, learns)
    following = jnp.concatenate([seen.value[1:], last_value[None]])
    next_values = jnp.where(seen.truncated, seen.bootstrap, following)
    advantages = gae(
        rewards,
        seen.value,
        next_values,
        seen.terminated,
        seen.truncated,
        hypers.gamma,
        values.gae_lambda,
    )
    observation = policy.normalised(plan, hypers, state.observation_statistics, seen.observation)
    if "normalise_observations" in plan.features:
        raw = policy.plain(seen.observation).astype(jnp.float32)
        raw = raw.reshape((-1, *raw.shape[2:]))
        merged = state.observation_statistics.merge(raw)
        state = state.replace(
            observation_statistics=_where(learns, merged, state.observation_statistics)
        )
    parts = (observation, seen.action, seen.mask, seen.log_prob, seen.value, advantages)
    rows = jax.tree.map(lambda x: _rows(plan, x), parts)
    noise = _entropy_noise(plan, state, rows[5].shape)
    samples = Samples(*rows, target=rows[5] + rows[4], noise=noise)
    if policy.is_recurrent(plan):
        ended = seen.terminated | seen.truncated
        first = jnp.concatenate([jnp.zeros_like(ended[:1]), ended[:-1]])
        first, carry = jax.tree.map(lambda x: _rows(plan, x), (first, seen.carry))
        samples = samples.replace(first=first, carry=carry)
    return state, samples


def _entropy_noise(plan: Plan, state: LaneState, rows: tuple[int, ...]) -> Array | None:
    """Draw one lane's noise for sampled entropies, the same in all epochs of this update."""
    env = environments.make(plan.env)
    key = use_key(state.key, ENTROPY_NOISE, state.updates)
    kind = policy.distribution_kind(plan, env)
    return draw_entropy_noise(kind, key, rows, policy.action_shape(env))


def _rows(plan: Plan, x: Shaped[Array, "T E ..."]) -> Shaped[Array, "N ..."]:
    """Give single steps [T E, ...], or whole segments [E, T, ...]."""
    return jnp.moveaxis(x, 1, 0) if plan.by_segments else x.reshape((-1, *x.shape[2:]))


def _where(condition: Bool[Array, ""], new: Any, old: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)


def _shape_rewards(
    plan: Plan, hypers: Hypers, state: LaneState, seen: Trajectory, learns: Bool[Array, ""]
) -> tuple[Float[Array, "T E"], LaneState]:
    """Give the learner's rewards: scaled, divided by the deviation of the return, clipped.

    The deviation is that of R_t = gamma R_{t-1} (1 - done_{t-1}) + r_t over all steps seen, this
    rollout included (Engstrom et al. 2020, section 3).
    """
    rewards = seen.reward * hypers.reward_scale
    if "normalise_rewards" in plan.features:
        ended = seen.terminated | seen.truncated

        def forward(running: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
            reward, end = step
            running = hypers.gamma * running + reward
            return jnp.where(end, 0.0, running), running

        carried, returns = jax.lax.scan(forward, state.discounted_return, (rewards, ended))
        merged = state.return_statistics.merge(returns.reshape(-1))
        statistics = _where(learns, merged, state.return_statistics)
        state = state.replace(return_statistics=statistics, discounted_return=carried)
        on = hypers.normalise_rewards > 0.0
        rewards = jnp.where(on, rewards / statistics.std(), rewards)
    return jnp.clip(rewards, -hypers.reward_clip, hypers.reward_clip), state


def permutation(key: Array, size: int) -> Int[Array, " N"]:
    """Give a random permutation of 0 .. size-1 by one sort of random words.

    The low bits of each word hold the index, the high bits are random; sorting single words is
    several times faster than `jax.random.permutation`, which sorts keys with values, twice.
    """
    bits = max(1, (size - 1).bit_length())
    low = np.uint32((1 << bits) - 1)
    words = (jax.random.bits(key, (size,)) & ~low) | jnp.arange(size, dtype=jnp.uint32)
    return (jnp.sort(words) & low).astype(jnp.int32)


def _learn(
    plan: Plan, hypers: Hypers, values: _Scheduled, state: LaneState, samples: Samples
) -> _Learning:
    """Run the epochs of all lanes; the loop ends when the last lane that learns is done."""
    lanes = state.updates.shape[0]
    size = samples.advantage.shape[1]
    count, _ = minibatch_shape(plan, size)
    zero = jnp.zeros(lanes, jnp.float32)
    sums = Losses(**dict.fromkeys(Losses.__dataclass_fields__, zero))
    sums = sums.replace(ratio_min=zero + jnp.inf, ratio_max=zero - jnp.inf)
    start = _Learning(
        state.params, state.moments, jnp.zeros(lanes, bool), sums, zero, zero, zero, zero
    )
    epochs = jnp.where(state.updates >= 0, hypers.update_epochs, 0)
    step = jax.vmap(lambda *lane: _gradient_step(plan, *lane), in_axes=(0, 0, 0, 0, 0, None))

    def epoch(index: Int[Array, ""], learning: _Learning) -> _Learning:
        live = index < epochs
        if count == 1:
            return step(hypers, values, learning, samples, live, None)

        def shuffle(key: Array, updates: Array) -> Array:
            return permutation(jax.random.fold_in(use_key(key, SHUFFLE, updates), index), size)

        order = jax.vmap(shuffle)(state.key, state.updates)
        places, weights = _split(plan, order)

        def minibatch(learning: _Learning, part: tuple[Array, Array | None]) -> Any:
            rows = jax.vmap(lambda tree, at: jax.tree.map(lambda x: x[at], tree))(samples, part[0])
            return step(hypers, values, learning, rows, live, part[1]), None

        learning, _ = jax.lax.scan(minibatch, learning, (places, weights))
        return learning

    def more(carry: tuple[Array, _Learning]) -> Bool[Array, ""]:
        index, learning = carry
        return jnp.any((index < epochs) & ~learning.stopped)

    def body(carry: tuple[Array, _Learning]) -> tuple[Array, _Learning]:
        index, learning = carry
        return index + 1, epoch(index, learning)

    done, learning = jax.lax.while_loop(more, body, (jnp.int32(0), start))
    # Epochs that were never entered because every lane had stopped count as skipped too.
    left = jnp.maximum(epochs - done, 0).astype(jnp.float32) * count
    return learning.replace(skipped=learning.skipped + jnp.where(learning.stopped, left, 0.0))


def minibatch_shape(plan: Plan, rows: int) -> tuple[int, int]:
    """Give the number of minibatches and the rows of each but the last, which may have fewer."""
    if plan.by_segments:
        size = math.ceil(rows / plan.num_minibatches)
    else:
        size = plan.minibatch_size * rows // plan.steps_per_update
    return math.ceil(rows / size), size


def _split(plan: Plan, order: Int[Array, "L N"]) -> tuple[Array, Array | None]:
    """Give minibatch indices [M, L, B] and, with a remainder, weights [M, B] (0 fills up)."""
    lanes, size = order.shape
    count, rows = minibatch_shape(plan, size)
    padding = count * rows - size
    weights = None
    if padding:
        order = jnp.concatenate([order, order[:, :padding]], axis=1)
        flat = (np.arange(count * rows) < size).astype(np.float32)
        weights = jnp.asarray(flat.reshape(count, rows))
    return jnp.moveaxis(order.reshape(lanes, count, rows), 1, 0), weights


def _gradient_step(
    plan: Plan,
    hypers: Hypers,
    values: _Scheduled,
    learning: _Learning,
    rows: Samples,
    live: Bool[Array, ""],
    weight: Float[Array, " B"] | None,
) -> _Learning:
    """Take one gradient step of one lane, unless it is done or target_kl stops it."""
    (_, losses), gradients = jax.value_and_grad(ppo_loss, has_aux=True)(
        learning.params, plan, hypers, values.coefficients, rows, weight
    )
    stopped = learning.stopped | (live & (losses.approx_kl > _KL_FACTOR * hypers.target_kl))
    takes = live & ~stopped
    params, moments, norm = optimisers.apply_gradients(
        plan, hypers, values.sizes, learning.params, learning.moments, gradients
    )
    first = learning.taken + learning.skipped == 0.0
    spread = jnp.maximum(jnp.abs(losses.ratio_max - 1.0), jnp.abs(losses.ratio_min - 1.0))
    return _Learning(
        params=_where(takes, params, learning.params),
        moments=_where(takes, moments, learning.moments),
        stopped=stopped,
        sums=_add(learning.sums, losses, takes),
        start_error=jnp.where(live & first, spread, learning.start_error),
        grad_norm=learning.grad_norm + jnp.where(takes, norm, 0.0),
        taken=learning.taken + takes.astype(jnp.float32),
        skipped=learning.skipped + (live & stopped).astype(jnp.float32),
    )


def _add(sums: Losses, losses: Losses, takes: Bool[Array, ""]) -> Losses:
    added = jax.tree.map(lambda a, b: a + jnp.where(takes, b, 0.0), sums, losses)
    low = jnp.minimum(sums.ratio_min, jnp.where(takes, losses.ratio_min, jnp.inf))
    high = jnp.maximum(sums.ratio_max, jnp.where(takes, losses.ratio_max, -jnp.inf))
    return added.replace(ratio_min=low, ratio_max=high)


def _measure(
    plan: Plan,
    hypers: Hypers,
    values: _Scheduled,
    learning: _Learning,
    samples: Samples,
    reward_mean: Float[Array, ""],
    sums: EpisodeSums,
) -> Metrics:
    """Give the metrics of one lane's update."""
    taken = jnp.maximum(learning.taken, 1.0)
    means = jax.tree.map(lambda x: x / taken, learning.sums)
    some = learning.taken > 0.0
    variance = jnp.var(samples.target)
    residual = jnp.var(samples.target - samples.value)
    norm = optimisers.tree_norm(learning.params)
    count = sum(leaf.size for leaf in jax.tree.leaves(learning.params))
    sane = (
        jnp.isfinite(means.loss)
        & jnp.isfinite(norm)
        & (norm <= _WEIGHT_LIMIT * np.sqrt(count))
        & (means.approx_kl <= _KL_LIMIT)
    )
    std = jnp.zeros((), jnp.float32)
    if "log_std" in learning.params:
        bounded = jnp.clip(learning.params["log_std"], hypers.log_std_min, hypers.log_std_max)
        std = jnp.mean(jnp.exp(bounded))
    env = environments.make(plan.env)
    steps = jnp.float32(plan.steps_per_update)
    return Metrics(
        episodes=sums.episodes,
        episode_return=sums.returns,
        episode_length=sums.lengths,
        reward_mean=reward_mean,
        loss=means.loss,
        policy_loss=means.policy_loss,
        value_loss=means.value_loss,
        entropy=means.entropy,
        approx_kl=means.approx_kl,
        clip_fraction=means.clip_fraction,
        ratio_mean=means.ratio_mean,
        ratio_std=means.ratio_std,
        ratio_min=jnp.where(some, learning.sums.ratio_min, 1.0),
        ratio_max=jnp.where(some, learning.sums.ratio_max, 1.0),
        ratio_start_error=learning.start_error,
        early_stopped=learning.skipped / jnp.maximum(learning.taken + learning.skipped, 1.0),
        explained_variance=1.0 - residual / jnp.maximum(variance, 1e-12),
        value_target_mean=jnp.mean(samples.target),
        advantage_mean=jnp.mean(samples.advantage),
        advantage_std=jnp.std(samples.advantage),
        grad_norm=learning.grad_norm / taken,
        param_norm=norm,
        policy_std=std,
        learning_rate=values.sizes.policy,
        clip_eps=values.coefficients.clip_eps,
        ent_coef=values.coefficients.ent_coef,
        gae_lambda=values.gae_lambda,
        diverged=~sane,
        env=env.summarise(sums.info, steps),
    )
