"""Lanes that start: their draws from their keys, and how these get to where lanes run.

On a CPU one lane starts after the other; on a GPU so many side by side that their draws fill it,
and everything else of a fresh lane is chosen for all lanes at once.
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
from .pytree import Leaf, Pytree, named_leaves, pytree, where

Keep = Literal["all", "critic", "policy"]


@pytree
class Initial(Pytree):
    """The start of lanes from a saved policy; None where they start fresh."""

    params: dict[str, Any]  # top-level parameters that are kept, by name
    statistics: RunningStatistics | None  # of the observation normaliser
    moments: Any  # of the optimiser
    rewards: RewardState = RewardState()  # of the critic's reward units


def start_from(state: LaneState, initial: Initial | None) -> LaneState:
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
    """Choose the kept part of a saved policy, and check that it fits.

    Shared layers are the policy's. `normalised`: the saved policy saw observations normalised by
    its statistics, which a study that searches `normalise_observations` gathers in all lanes.
    `rewards` are kept with the critic, whose values are in their units.

    Raises:
        ConfigError: names or shapes differ from this plan's.
    """
    names = [name for name in params | shapes.params
             if keep == "all" or policy.is_critic(name) == (keep == "critic")]  # fmt: skip
    wanted = {name: params[name] for name in names if name in params}
    _check(wanted, {name: shapes.params[name] for name in names if name in shapes.params})
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
    shapes: list[dict[str, tuple[int, ...]]] = [
        {name: tuple(leaf.shape) for name, leaf in named_leaves(tree).items()}
        for tree in (here, given)
    ]
    for name in shapes[0] | shapes[1]:
        one, other = (found.get(name) for found in shapes)
        if one != other:
            raise ConfigError(
                f"init: the parameter {name} has shape {other or 'none'} in the saved policy and "
                f"{one or 'none'} here; give the network and its sizes as they were saved (they "
                "are in its policy.json), or keep less of it"
            )


INIT, ENV_RESET = 0, 4  # uses of a lane's key; see also rollout.py, epochs.py, evaluate.py


@pytree
class Lanes(Pytree):
    """What lanes carry, [L, ...]: `Hypers` and `LaneState`, or those of a custom training."""

    hypers: Any
    state: Any


@pytree
class Refills(Pytree):
    mask: Bool[Leaf, " L"]  # lanes to refill
    busy: Bool[Leaf, " L"]  # lanes that run in this chunk; a tile without any is skipped
    hypers: Hypers  # rows of other lanes are ignored
    stream: Int[Leaf, " L"]  # number of the seed stream
    replicate: Int[Leaf, " L"]  # index within it
    updates: Int[Leaf, " L"]  # before the first one that learns, negated (0 without warm-up)
    total_updates: Int[Leaf, " L"]  # of the full run


@pytree
class Drawn(Pytree):
    params: Any
    env_state: Any
    observation: Any


def init_lane(
    plan: Plan, seed: Leaf, hypers: Hypers, stream: Array, replicate: Array,
    updates: Array, total_updates: Array,
) -> LaneState:  # fmt: skip
    raw = lane_key(seed, stream, replicate)
    return _fresh_state(plan, hypers, raw, updates, total_updates, _draw(plan, hypers, raw))


def _draw(plan: Plan, hypers: Hypers, raw: Array) -> Drawn:
    env = environments.make(plan.env)
    params = policy.init_params(plan, hypers, use_key(raw, INIT))
    keys = jax.random.split(use_key(raw, ENV_RESET), plan.num_envs)
    return Drawn(params, *reset_all(env, keys, hypers.env_params))


def _fresh_state(
    plan: Plan, hypers: Hypers, raw: Array, updates: Array, total_updates: Array, drawn: Drawn
) -> LaneState:
    segments = plan.num_envs * agents_of(environments.make(plan.env))
    initial = hypers.average_reward_initial
    begins = (hypers.reward_centering > 0.0) & (initial != 0.0)  # see `update._centre_rewards`
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
    """Start new replicates where the mask says so, as many side by side as the backend says."""
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
        fresh = jax.vmap(lambda *lane: _draw(plan, *lane))(hypers, raw)

        def put(old: Array, new: Array) -> Array:
            kept = where(starts, new, old[at])
            return old.at[at].set(kept, unique_indices=True, mode="promise_in_bounds")

        return jax.tree.map(put, drawn, fresh)

    before = Drawn(state.params, state.env_state, state.observation)
    rounds = (jnp.sum(refills.mask) + batch - 1) // batch
    drawn = jax.lax.fori_loop(0, rounds, start, before)

    def begun(refill: Refills, raw: Array, drawn: Drawn) -> Lanes:
        times = (refill.updates, refill.total_updates)
        state = _fresh_state(plan, refill.hypers, raw, *times, drawn)
        return Lanes(refill.hypers, start_from(state, initial))

    made = jax.vmap(begun)(refills, keys, drawn)
    return where(refills.mask, made, lanes)
