"""Gradient steps of one update: epochs over shuffled minibatches, for a whole tile of lanes.

Loop bounds are traced and differ per lane. A lane that has finished its epochs, or was stopped by
target_kl, is masked until the slowest lane in the tile is done.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from . import optimisers
from .hypers import Hypers
from .lane_state import LaneState, use_key
from .losses import Losses, loss_and_gradient
from .minibatches import Samples, choose_rows, permutation
from .optimisers import Scheduled, progress_of, scheduled_values
from .plan import Plan
from .pytree import Pytree, over_lanes, pytree

SHUFFLE, PRIORITY = 3, 7  # uses of a lane's key; see also rollout.py, population.py, update.py
_KL_FACTOR = 1.5


@pytree
class Held(Pytree):
    """Minibatch gradients that `accumulate_minibatches` has summed but not yet applied."""

    gradient: Any  # their sum
    count: Float[Array, "..."]
    minibatches: Float[Array, "..."]  # number used in this update so far, including these


@pytree
class Learning(Pytree):
    params: Any
    moments: Any
    stopped: Bool[Array, "..."]  # target_kl was exceeded
    sums: Losses  # over the minibatches used
    start_error: Float[Array, "..."]  # largest |ratio - 1| of the first minibatch
    grad_norm: Float[Array, "..."]  # sum over the steps taken
    grad_mean: Any  # mean of their gradients
    # sum of the squared distances of their gradients from that mean
    grad_spread: Float[Array, "..."]
    taken: Float[Array, "..."]  # gradient steps
    skipped: Float[Array, "..."]  # minibatches that target_kl skipped
    held: Held | None = None  # None where every minibatch makes a step

    @property
    def minibatches(self) -> Float[Array, "..."]:
        if self.held is None:
            return self.taken
        return self.held.minibatches


@pytree
class _Lane(Pytree):
    """The inputs of one lane's gradient step; its rows are passed separately."""

    hypers: Hypers
    values: Scheduled
    state: LaneState  # at the start of the update
    learning: Learning


class _Minibatch(NamedTuple):
    rows: Samples
    live: Bool[Array, ""]  # whether the lane still runs this epoch
    weight: Float[Array, " B"] | None  # 0 for padding rows; None without padding
    closes: Bool[Array, ""] | None  # apply held gradients here; None: every minibatch steps


def run_epochs(
    plan: Plan, hypers: Hypers, values: Scheduled, state: LaneState, samples: Samples
) -> Learning:
    rows = samples.advantage.shape[1]
    count, size = minibatch_shape(plan, rows)
    drawn = _epoch_rows(plan, hypers, state, samples, count * size)
    shuffled = rows
    if drawn is not None:
        shuffled = drawn.shape[1]
    epochs = jnp.where(state.updates >= 0, hypers.update_epochs, 0)
    closes = _closing_minibatches(plan, count)

    def step(
        learning: Learning, rows: Samples, live: Array, weight: Array | None, closes: Array | None
    ) -> Learning:
        def of_lane(lane: _Lane, rows: Samples, live: Array) -> Learning:
            part = _Minibatch(rows, live, weight, closes)
            return _train_on_minibatch(plan, count, lane, part)

        return over_lanes(of_lane)(_Lane(hypers, values, state, learning), rows, live)

    def epoch(index: Int[Array, ""], learning: Learning) -> Learning:
        live = index < epochs
        if count == 1 and plan.gradient_parts == 1 and drawn is None:
            return step(learning, samples, live, None, closes)

        def shuffle(key: Array, updates: Array) -> Array:
            key = jax.random.fold_in(use_key(key, SHUFFLE, updates), index)
            return permutation(key, shuffled)

        order = over_lanes(shuffle)(state.key, state.updates)
        if drawn is not None:
            order = jnp.take_along_axis(drawn, order, axis=1)
        places, weights = _split_minibatches(plan, order, count, size)

        def minibatch(learning: Learning, part: tuple[Array, Array | None, Array | None]) -> Any:
            places, weight, closes = part
            rows = over_lanes(lambda tree, at: jax.tree.map(lambda x: x[at], tree))(
                samples, places
            )
            return step(learning, rows, live, weight, closes), None

        learning, _ = jax.lax.scan(minibatch, learning, (places, weights, closes))
        return learning

    def more(carry: tuple[Array, Learning]) -> Bool[Array, ""]:
        index, learning = carry
        return jnp.any((index < epochs) & ~learning.stopped)

    def body(carry: tuple[Array, Learning]) -> tuple[Array, Learning]:
        index, learning = carry
        return index + 1, epoch(index, learning)

    done, learning = jax.lax.while_loop(more, body, (jnp.int32(0), _start_learning(plan, state)))
    # Epochs that were never entered because every lane had stopped count as skipped too.
    left = jnp.maximum(epochs - done, 0).astype(jnp.float32) * count
    return learning.replace(skipped=learning.skipped + jnp.where(learning.stopped, left, 0.0))


def _closing_minibatches(plan: Plan, count: int) -> Bool[Array, " M"] | None:
    if count == 1 or plan.accumulate_minibatches == 1:
        return None
    place = np.arange(1, count + 1)
    return jnp.asarray((place % plan.accumulate_minibatches == 0) | (place == count))


def _start_learning(plan: Plan, state: LaneState) -> Learning:
    lanes = state.updates.shape[0]
    zero = jnp.zeros(lanes, jnp.float32)
    nothing = jax.tree.map(jnp.zeros_like, state.params)
    held = None
    if plan.accumulate_minibatches > 1:
        held = Held(nothing, zero, zero)
    return Learning(
        held=held,
        params=state.params,
        moments=state.moments,
        stopped=jnp.zeros(lanes, bool),
        sums=Losses.of_none(zero),
        start_error=zero,
        grad_norm=zero,
        grad_mean=nothing,
        grad_spread=zero,
        taken=zero,
        skipped=zero,
    )


def minibatch_shape(plan: Plan, rows: int) -> tuple[int, int]:
    """Return the number of minibatches, and the rows in each; the last one may have fewer.

    `rows` counts single steps, or whole segments (of all agents). If rows are drawn by priority,
    and the number and the size of minibatches are both given, they are used unchanged.
    """
    bodies, steps = rows // plan.steps_per_update, 1
    if plan.by_segments:
        bodies, steps = rows // plan.num_envs, plan.rollout_length
    size = plan.minibatch_size * bodies
    if plan.has_free_minibatches:
        return plan.num_minibatches, math.ceil(size / steps)
    if plan.by_segments:
        size = math.ceil(rows / plan.num_minibatches)
    return math.ceil(rows / size), size


def _epoch_rows(
    plan: Plan, hypers: Hypers, state: LaneState, samples: Samples, count: int
) -> Int[Array, "L D"] | None:
    if "priority" not in plan.features:
        return None
    if not plan.has_free_minibatches:
        count = samples.advantage.shape[1]

    def choose(hypers: Hypers, state: LaneState, advantage: Array) -> Int[Array, " D"]:
        key = use_key(state.key, PRIORITY, state.updates)
        return choose_rows(key, advantage, hypers.priority_alpha, count)

    return over_lanes(choose)(hypers, state, samples.advantage)


def _split_minibatches(
    plan: Plan, order: Int[Array, "L N"], count: int, size: int
) -> tuple[Int[Array, "M L B"], Float[Array, "M B"] | None]:
    """Return minibatch indices and, if the last one is padded, weights (0 for padding)."""
    lanes, rows = order.shape
    parts = plan.gradient_parts
    wide = math.ceil(size / parts) * parts
    flat = np.arange(count * wide)
    place = size * (flat // wide) + flat % wide  # position in the order, repeated without end
    real = (flat % wide < size) & (place < rows)
    if wide != size:
        order = order[:, place % rows]
    elif not real.all():
        order = jnp.concatenate([order, order[:, : count * size - rows]], axis=1)
    places = jnp.moveaxis(order.reshape(lanes, count, wide), 1, 0)
    if real.all():
        return places, None
    return places, jnp.asarray(real.astype(np.float32).reshape(count, wide))


def _train_on_minibatch(plan: Plan, count: int, lane: _Lane, part: _Minibatch) -> Learning:
    """Train on one of `count` minibatches, unless the lane is done or target_kl stopped it.

    Without `closes`, every call takes a gradient step. Otherwise gradients are accumulated, and a
    step with their mean is taken where `closes` is true. A stopped lane drops its accumulated
    gradients.
    """
    hypers, values, learning, live = lane.hypers, lane.values, lane.learning, part.live
    if "schedule_on_gradient_steps" in plan.features:
        now = scheduled_values(
            hypers, progress_of(plan, hypers, lane.state, count, learning.taken)
        )
        values = values.replace(coefficients=now.coefficients, sizes=now.sizes)
    losses, gradients = loss_and_gradient(
        learning.params, plan, hypers, values.coefficients, part.rows, weight=part.weight
    )
    # an update ends before the step at which the KL of the policies exceeds 1.5 target_kl
    stopped = learning.stopped | (live & (losses.approx_kl > _KL_FACTOR * hypers.target_kl))
    takes = live & ~stopped
    first = learning.minibatches + learning.skipped == 0.0
    spread = jnp.maximum(jnp.abs(losses.ratio_max - 1.0), jnp.abs(losses.ratio_min - 1.0))
    learning = learning.replace(
        stopped=stopped,
        sums=learning.sums.plus(losses, takes),
        start_error=jnp.where(live & first, spread, learning.start_error),
        skipped=learning.skipped + (live & stopped).astype(jnp.float32),
    )
    if learning.held is None:
        return _optimiser_step(
            plan, lane.replace(values=values, learning=learning), gradients, takes
        )
    held, one = learning.held, takes.astype(jnp.float32)
    total = jax.tree.map(lambda h, g: jnp.where(takes, h + g, h), held.gradient, gradients)
    held = Held(total, held.count + one, held.minibatches + one)

    def close() -> Learning:
        mean = jax.tree.map(lambda x: x / jnp.maximum(held.count, 1.0), held.gradient)
        moved = _optimiser_step(plan, lane.replace(values=values, learning=learning), mean, takes)
        gradient, waiting = jax.tree.map(jnp.zeros_like, (held.gradient, held.count))
        return moved.replace(held=held.replace(gradient=gradient, count=waiting))

    if part.closes is None:
        return close()
    return jax.lax.cond(part.closes, close, lambda: learning.replace(held=held))


def _optimiser_step(plan: Plan, lane: _Lane, gradients: Any, takes: Bool[Array, ""]) -> Learning:
    """Take one optimiser step if `takes` is true; otherwise parameters and sums stay the same."""
    learning = lane.learning
    squares = distance = None
    if plan.backend.sums_first:
        sums = optimisers.squares_and_distance(gradients, learning.grad_mean)
        mean, (squares, distance) = jax.lax.optimization_barrier((learning.grad_mean, sums))
        learning = learning.replace(grad_mean=mean)
    params, moments, norm = optimisers.apply_gradients(
        plan,
        lane.hypers,
        lane.values.sizes,
        gradients,
        params=learning.params,
        moments=learning.moments,
        squares=squares,
    )

    def add(total: Array, part: Array) -> Array:
        return total + jnp.where(takes, part, 0.0)

    def moved(new: Any, old: Any) -> Any:
        return jax.tree.map(lambda a, b: jnp.where(takes, a, b), new, old)

    grad_mean, grad_spread = _moved_spread(learning.grad_mean, learning.taken, gradients, distance)
    return learning.replace(
        params=moved(params, learning.params),
        moments=moved(moments, learning.moments),
        grad_norm=add(learning.grad_norm, norm),
        grad_mean=moved(grad_mean, learning.grad_mean),
        grad_spread=add(learning.grad_spread, grad_spread),
        taken=learning.taken + takes.astype(jnp.float32),
    )


def _moved_spread(
    mean: Any, taken: Float[Array, ""], gradients: Any, distance: Float[Array, ""] | None = None
) -> tuple[Any, Float[Array, ""]]:
    """Return the mean after one more gradient, and the increase in the sum of squared distances.

    The n-th gradient g moves the mean m by (g - m) / n and adds |g - m|^2 (n - 1) / n (Welford
    1962). Subtracting |mean(g)|^2 from mean(|g|^2) would lose precision by cancellation.
    `distance` is |g - m| if it is already known.
    """
    away = jax.tree.map(jnp.subtract, gradients, mean)
    count = taken + 1.0
    moved = jax.tree.map(lambda m, d: m + d / count, mean, away)
    if distance is None:
        distance = optimisers.tree_norm(away)
    return moved, jnp.square(distance) * (taken / count)
