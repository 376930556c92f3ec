"""Lanes that start anew: what they draw from their keys, and how it gets to where they run.

On a CPU one lane starts after the other; on a GPU so many side by side that what they draw fills
it, and all else of a fresh lane is chosen for all lanes at once.
"""

from __future__ import annotations

from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from ..errors import ConfigError
from . import optimisers, policy
from .envs import registry as environments
from .envs.contract import agents_of, reset_all
from .hypers import Hypers
from .lane_state import LaneState, RewardState, RunningStatistics, lane_key, use_key
from .plan import Plan
from .pytree import Leaf, Pytree, pytree

Keep = Literal["all", "critic", "policy"]


@pytree
class Initial(Pytree):
    """What lanes start with; None where they start fresh.

    Attributes:
        params: top-level parameters that are kept, by name.
        statistics: of the observation normaliser.
        moments: of the optimiser.
        rewards: what the critic's rewards were measured by.
    """

    params: dict[str, Any]
    statistics: RunningStatistics | None
    moments: Any
    rewards: RewardState = RewardState()


def start_from(state: LaneState, initial: Initial | None) -> LaneState:
    """Return a fresh lane with what is kept in its place."""
    if initial is None:
        return state
    changes: dict[str, Any] = {"params": {**state.params, **initial.params}}
    if initial.statistics is not None:
        changes["observation_statistics"] = initial.statistics
    if initial.moments is not None:
        changes["moments"] = initial.moments
    changes |= initial.rewards.fields()
    return state.replace(**changes)


def kept(
    plan: Plan,
    shapes: LaneState,
    params: dict[str, Any],
    statistics: RunningStatistics,
    keep: Keep,
    normalised: bool = True,
    rewards: RewardState | None = None,
) -> Initial:
    """Choose what is kept of a saved policy, and check that it fits.

    Args:
        plan: of the lanes.
        shapes: of one of them, from `population.lane_shapes`.
        params: saved.
        statistics: saved; kept if these lanes can normalise observations.
        keep: all parameters, the critic's, or the policy's (shared layers are the policy's).
        normalised: the saved policy saw observations normalised by its statistics, which a study
            that searches `normalise_observations` gathers in all lanes.
        rewards: saved, None if unknown; kept with the critic, whose values are in their units.

    Raises:
        ConfigError: names or shapes are others than this plan's.
    """
    wanted = {
        name: tree
        for name, tree in params.items()
        if keep == "all" or policy.is_critic(name) == (keep == "critic")
    }
    here = {
        name: tree
        for name, tree in shapes.params.items()
        if keep == "all" or policy.is_critic(name) == (keep == "critic")
    }
    _check(wanted, here)
    normalises = "normalise_observations" in plan.features
    fits = statistics.mean.shape == shapes.observation_statistics.mean.shape
    if normalises and not fits and statistics.mean.shape:
        raise ConfigError(
            "init: the saved policy saw observations of another shape, so its statistics do not "
            "fit; take one that saw what this study shows"
        )
    if normalises and not fits:
        raise ConfigError(
            "init: the saved policy was trained without normalise_observations, this study can "
            "switch it on; fix normalise_observations to false"
        )
    if not normalises and normalised and statistics.mean.shape != ():
        raise ConfigError(
            "init: the saved policy saw normalised observations; fix normalise_observations to "
            "true"
        )
    remembered = RewardState() if rewards is None or keep == "policy" else rewards.for_plan(plan)
    return Initial(wanted, statistics if normalises else None, None, remembered)


def _check(given: Any, here: Any) -> None:
    """Refuse parameters of other names or shapes.

    Raises:
        ConfigError: says the first difference.
    """
    ours, theirs = _shapes(here), _shapes(given)
    for name in [*ours, *theirs]:
        one, other = ours.get(name), theirs.get(name)
        if one != other:
            raise ConfigError(
                f"init: the parameter {name} has shape {other or 'none'} in the saved policy and "
                f"{one or 'none'} here; give the network and its sizes as they were saved (they "
                "are in its policy.json), or keep less of it"
            )


def _shapes(tree: Any) -> dict[str, tuple[int, ...]]:
    leaves: list[tuple[Any, Array]] = jax.tree_util.tree_leaves_with_path(tree)
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): tuple(leaf.shape)
        for path, leaf in leaves
    }


INIT, ENV_RESET = 0, 4  # uses of a lane's key; see also rollout.py, epochs.py, evaluate.py


@pytree
class Lanes(Pytree):
    """All lanes of a program: their hyperparameters and states, [L, ...]."""

    hypers: Hypers
    state: LaneState


@pytree
class Refills(Pytree):
    """What to start in which lanes.

    Attributes:
        mask: lanes to refill.
        busy: lanes that run in this chunk; a tile without any is skipped.
        hypers: theirs (rows of other lanes are ignored).
        stream: number of the seed stream.
        replicate: index within it.
        updates: updates before the first one that learns, negated (0 without warm-up).
        total_updates: updates of the full run.
    """

    mask: Bool[Leaf, " L"]
    busy: Bool[Leaf, " L"]
    hypers: Hypers
    stream: Int[Leaf, " L"]
    replicate: Int[Leaf, " L"]
    updates: Int[Leaf, " L"]
    total_updates: Int[Leaf, " L"]


@pytree
class Drawn(Pytree):
    """What a fresh lane draws: parameters, states and observations of its environments."""

    params: Any
    env_state: Any
    observation: Any


def init_lane(
    plan: Plan, seed: Leaf, hypers: Hypers, stream: Array, replicate: Array,
    updates: Array, total_updates: Array,
) -> LaneState:  # fmt: skip
    """Return the fresh state of one lane; a function of its arguments alone."""
    raw = lane_key(seed, stream, replicate)
    return _begun(plan, hypers, raw, updates, total_updates, _drawn(plan, hypers, raw))


def _drawn(plan: Plan, hypers: Hypers, raw: Array) -> Drawn:
    """Draw what a lane starts with from its raw key."""
    env = environments.make(plan.env)
    params = policy.init_params(plan, hypers, use_key(raw, INIT))
    keys = jax.random.split(use_key(raw, ENV_RESET), plan.num_envs)
    return Drawn(params, *reset_all(env, keys, hypers.env_params))


def _begun(
    plan: Plan, hypers: Hypers, raw: Array, updates: Array, total_updates: Array, drawn: Drawn
) -> LaneState:
    """Return the state of a lane that starts with what was drawn."""
    segments = plan.num_envs * agents_of(environments.make(plan.env))
    initial = hypers.average_reward_initial
    begins = (hypers.reward_centering > 0.0) & (initial != 0.0)  # see `update._centre`
    return LaneState(
        key=raw,
        updates=updates,
        total_updates=total_updates,
        params=drawn.params,
        moments=optimisers.init_moments(plan, drawn.params),
        gradient_steps=jnp.int32(0),
        env_state=drawn.env_state,
        observation=drawn.observation,
        carry=policy.initial_carry(plan, (segments,)),
        observation_statistics=RunningStatistics.empty(policy.statistics_shape(plan)),
        return_statistics=RunningStatistics.empty(()),
        discounted_return=jnp.zeros(segments, jnp.float32),
        average_reward=jnp.where(begins, initial, 0.0),
        average_trace=jnp.asarray(begins, jnp.float32),
        episode_return=jnp.zeros(segments, jnp.float32),
        episode_length=jnp.zeros(segments, jnp.int32),
    )


def refill_lanes(
    plan: Plan, seed: Leaf, lanes: Lanes, refills: Refills, initial: Initial | None = None
) -> Lanes:
    """Start new replicates where the mask says so, as many side by side as the backend says.

    One after the other only those lanes are looked at, so that a refill costs what it starts,
    however many lanes run.
    """
    if plan.backend.refill_batch > 1:
        return _refill_in_batches(plan, seed, lanes, refills, initial)
    order = jnp.argsort(~refills.mask)

    def start(index: Int[Array, ""], lanes: Lanes) -> Lanes:
        at = order[index]
        refill: Refills = jax.tree.map(lambda leaf: leaf[at], refills)
        state = init_lane(
            plan, seed, refill.hypers, refill.stream, refill.replicate,
            refill.updates, refill.total_updates,
        )  # fmt: skip
        fresh = Lanes(refill.hypers, start_from(state, initial))
        return jax.tree.map(lambda old, new: old.at[at].set(new), lanes, fresh)

    return jax.lax.fori_loop(0, jnp.sum(refills.mask), start, lanes)


def _refill_in_batches(
    plan: Plan, seed: Leaf, lanes: Lanes, refills: Refills, initial: Initial | None
) -> Lanes:
    """Start new replicates, `refill_batch` at a time."""
    state, count = lanes.state, refills.mask.shape[0]
    batch = min(plan.backend.refill_batch, count)
    order = jnp.argsort(~refills.mask)
    keys = jax.vmap(lambda s, r: lane_key(seed, s, r))(refills.stream, refills.replicate)

    def start(index: Int[Array, ""], drawn: Drawn) -> Drawn:
        # The last batch reaches back over lanes that have started, or on to some that run on.
        at = jax.lax.dynamic_slice_in_dim(order, index * batch, batch)
        hypers, raw, starts = jax.tree.map(
            lambda leaf: leaf[at], (refills.hypers, keys, refills.mask)
        )
        fresh = jax.vmap(lambda *lane: _drawn(plan, *lane))(hypers, raw)

        def put(old: Array, new: Array) -> Array:
            kept = _where(starts, new, old[at])
            return old.at[at].set(kept, unique_indices=True, mode="promise_in_bounds")

        return jax.tree.map(put, drawn, fresh)

    before = Drawn(state.params, state.env_state, state.observation)
    rounds = (jnp.sum(refills.mask) + batch - 1) // batch
    drawn = jax.lax.fori_loop(0, rounds, start, before)

    def begun(refill: Refills, raw: Array, drawn: Drawn) -> Lanes:
        times = (refill.updates, refill.total_updates)
        state = _begun(plan, refill.hypers, raw, *times, drawn)
        return Lanes(refill.hypers, start_from(state, initial))

    made = jax.vmap(begun)(refills, keys, drawn)
    return jax.tree.map(lambda new, old: _where(refills.mask, new, old), made, lanes)


def _where(mask: Bool[Array, " L"], new: Array, old: Array) -> Array:
    return jnp.where(mask.reshape((-1,) + (1,) * (new.ndim - 1)), new, old)
