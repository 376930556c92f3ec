"""Runs L lanes as one program: refills some, then runs K updates of all, in tiles on all devices.

`advance` is the whole inner loop of a study: one dispatch per chunk with donated arguments. Only
arrays of fixed shape are transferred to the host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, Int

from ..errors import ConfigError
from . import optimisers, policy
from .envs import registry as environments
from .envs.contract import agents_of, reset_all
from .hypers import OFF, Hypers
from .lane_state import LaneState, RewardState, RunningStatistics, lane_key, use_key
from .metrics import Metrics
from .plan import Plan
from .pytree import Leaf, Pytree, named_leaves, pytree, where
from .update import update

Keep = Literal["all", "critic", "policy"]


@pytree
class Initial(Pytree):
    """Initial values of lanes, from a saved policy; None where lanes start fresh."""

    params: dict[str, Any]  # top-level parameters that are kept, by name
    statistics: RunningStatistics | None  # of the observation normaliser
    moments: Any  # of the optimiser
    rewards: RewardState = RewardState()  # the critic's reward units


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
    *,
    normalised: bool = True,
    rewards: RewardState | None = None,
) -> Initial:
    """Select the part of a saved policy that is kept, and check its names and shapes.

    Shared layers count as part of the policy. `normalised` is whether the saved policy normalised
    its observations. A study that searches `normalise_observations` gathers observation statistics
    in all lanes. `rewards` is kept with the critic, whose values are in the units of these
    rewards.

    Raises:
        ConfigError: names or shapes differ from this plan's.
    """
    names = [name for name in params | shapes.params if _is_kept(keep, name)]
    wanted = {name: params[name] for name in names if name in params}
    _check_shapes(wanted, {name: shapes.params[name] for name in names if name in shapes.params})
    normalises = "normalise_observations" in plan.features
    own = shapes.observation_statistics.mean.shape
    if normalises:
        _check_statistics(statistics.mean.shape, own)
    elif normalised and statistics.mean.shape != ():
        raise ConfigError(
            "init: the saved policy was trained on normalised observations; fix "
            "normalise_observations at true"
        )
    remembered = RewardState()
    if rewards is not None and keep != "policy":
        remembered = rewards.for_plan(plan)
    if not normalises:
        return Initial(wanted, None, None, remembered)
    return Initial(wanted, statistics, None, remembered)


def _is_kept(keep: Keep, name: str) -> bool:
    """Return whether a top-level parameter belongs to the part that is kept."""
    return keep == "all" or policy.is_critic(name) == (keep == "critic")


def _check_statistics(saved: tuple[int, ...], own: tuple[int, ...]) -> None:
    """Raise if saved observation statistics have a different shape; () means no statistics."""
    if saved == own:
        return
    if saved:
        raise ConfigError(
            "init: the saved policy's observations have a different shape, so its normalisation "
            "statistics cannot be used; use a policy trained on these observations"
        )
    raise ConfigError(
        "init: the saved policy was trained without normalise_observations, but this "
        "study can switch it on; fix normalise_observations at false"
    )


def _leaf_shapes(tree: Any) -> dict[str, tuple[int, ...]]:
    return {name: tuple(leaf.shape) for name, leaf in named_leaves(tree).items()}


def _check_shapes(given: Any, here: Any) -> None:
    wanted, found = _leaf_shapes(here), _leaf_shapes(given)
    for name in wanted | found:
        one, other = wanted.get(name), found.get(name)
        if one != other:
            raise ConfigError(
                f"init: the parameter {name} has shape {other or 'none'} in the saved "
                f"policy and {one or 'none'} here; use the saved policy's network and layer "
                "sizes (see its policy.json), or a different init.keep"
            )


INIT, ENV_RESET = 0, 4  # uses of a lane's key; see also rollout.py, epochs.py, evaluation.py


@pytree
class Lanes(Pytree):
    """The contents of lanes, [L, ...].

    These are `Hypers` and `LaneState`, or the hyperparameters and state of a custom training
    class.
    """

    hypers: Any
    state: Any


@pytree
class Refills(Pytree):
    mask: Bool[Leaf, " L"]  # lanes to refill
    busy: Bool[Leaf, " L"]  # lanes that run in this chunk; a tile without any is skipped
    hypers: Hypers  # rows of other lanes are ignored
    stream: Int[Leaf, " L"]  # number of the seed stream
    replicate: Int[Leaf, " L"]  # index within it
    updates: Int[Leaf, " L"]  # warm-up updates, negated (0 without warm-up)
    total_updates: Int[Leaf, " L"]  # updates of the full run


@pytree
class Drawn(Pytree):
    params: Any
    env_state: Any
    observation: Any


def init_lane(
    plan: Plan,
    seed: Leaf,
    hypers: Hypers,
    stream: Array,
    replicate: Array,
    updates: Array,
    total_updates: Array,
) -> LaneState:
    raw = lane_key(seed, stream, replicate)
    drawn = _draw_lane(plan, hypers, raw)
    return _fresh_state(plan, hypers, raw, updates, total_updates, drawn=drawn)


def _draw_lane(plan: Plan, hypers: Hypers, raw: Array) -> Drawn:
    env = environments.make(plan.env)
    params = policy.init_params(plan, hypers, use_key(raw, INIT))
    keys = jax.random.split(use_key(raw, ENV_RESET), plan.num_envs)
    return Drawn(params, *reset_all(env, keys, hypers.env_params))


def _fresh_state(
    plan: Plan, hypers: Hypers, raw: Array, updates: Array, total_updates: Array, *, drawn: Drawn
) -> LaneState:
    segments = plan.num_envs * agents_of(environments.make(plan.env))
    initial = hypers.average_reward_initial
    begins = (hypers.reward_centering > 0.0) & (initial < OFF)  # see `update._centre_rewards`
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
    """Start new replicates in the lanes where the mask is set.

    Only the random draws are made in a loop over fresh lanes. The rest of the state is selected
    for all lanes at once, because each array written in a loop needs several more kernels.
    """
    state = lanes.state
    before = state.key, Drawn(state.params, state.env_state, state.observation)
    draw = _draw_in_turn
    if plan.backend.refill_batch > 1:
        draw = _draw_in_batches
    keys, drawn = draw(plan, seed, refills, before)

    def started(refill: Refills, raw: Array, drawn: Drawn) -> Lanes:
        times = (refill.updates, refill.total_updates)
        state = _fresh_state(plan, refill.hypers, raw, *times, drawn=drawn)
        return Lanes(refill.hypers, start_from(state, initial))

    whole = where(refills.mask, jax.vmap(started)(refills, keys, drawn), lanes)
    # The drawn arrays already contain the old values of all other lanes.
    ready = {"key": keys, "env_state": drawn.env_state, "observation": drawn.observation}
    if initial is None:
        ready["params"] = drawn.params
    return whole.replace(state=whole.state.replace(**ready))


_Draws = tuple[Array, Drawn]  # the keys of lanes, and the draws made from them


def _draw_in_turn(plan: Plan, seed: Leaf, refills: Refills, before: _Draws) -> _Draws:
    # With an unsigned index, XLA adds no check for negative values in each array.
    order = jnp.argsort(~refills.mask).astype(jnp.uint32)

    def start(index: Int[Array, ""], draws: _Draws) -> _Draws:
        at = order[index]

        def row(leaf: Array) -> Array:
            return jax.lax.dynamic_index_in_dim(leaf, at, keepdims=False)

        def put(old: Array, new: Array) -> Array:
            return jax.lax.dynamic_update_index_in_dim(old, new, at, 0)

        raw = lane_key(seed, row(refills.stream), row(refills.replicate))
        fresh = raw, _draw_lane(plan, jax.tree.map(row, refills.hypers), raw)
        return jax.tree.map(put, draws, fresh)

    return jax.lax.fori_loop(0, jnp.sum(refills.mask), start, before)


def _draw_in_batches(plan: Plan, seed: Leaf, refills: Refills, before: _Draws) -> _Draws:
    # A batch of draws has enough lanes to fill a GPU.
    count = refills.mask.shape[0]
    batch = min(plan.backend.refill_batch, count)
    order = jnp.argsort(~refills.mask)
    keys = jax.vmap(lambda s, r: lane_key(seed, s, r))(refills.stream, refills.replicate)

    def start(index: Int[Array, ""], drawn: Drawn) -> Drawn:
        # The last batch is shifted back over lanes already started, or also covers running lanes.
        at = jax.lax.dynamic_slice_in_dim(order, index * batch, batch)
        hypers, raw, starts = jax.tree.map(
            lambda leaf: leaf[at], (refills.hypers, keys, refills.mask)
        )
        fresh = jax.vmap(lambda *lane: _draw_lane(plan, *lane))(hypers, raw)

        def put(old: Array, new: Array) -> Array:
            kept = where(starts, new, old[at])
            return old.at[at].set(kept, unique_indices=True, mode="promise_in_bounds")

        return jax.tree.map(put, drawn, fresh)

    rounds = (jnp.sum(refills.mask) + batch - 1) // batch
    drawn = jax.lax.fori_loop(0, rounds, start, before[1])
    return where(refills.mask, keys, before[0]), drawn


Device = Any  # a `jax.Device`, which type checkers take for a variable

LANES, EVERYWHERE = PartitionSpec("lanes"), PartitionSpec()
TIME_FIRST = PartitionSpec(None, "lanes")
COPIED_AT_A_TIME = 64  # lanes per batch of copies between devices
_WORDS = {1: jnp.uint8, 2: jnp.uint8, 4: jnp.uint32, 8: jnp.uint64}  # NCCL adds no 2-byte words


@pytree
class Changes(Pytree):
    # the lane whose previous training state each lane takes; a lane's own index: none
    source: Int[Leaf, " L"]
    mask: Bool[Leaf, " L"]  # lanes that get new hyperparameters
    hypers: Any  # rows of other lanes are ignored


def lane_mesh(devices: Sequence[Device]) -> Mesh:
    return Mesh(np.asarray(devices), ("lanes",))


def advance_function(plan: Plan, mesh: Mesh, tile: int, updates: int) -> Any:
    """Return the jitted `advance(seed, lanes, refills, initial) -> (lanes, metrics [K, L])`.

    `initial` replaces the fresh parameters of refilled lanes; it may be None. Lanes are spread
    over the mesh without collectives. On each device, lanes run in tiles of a fixed number of
    lanes, and each tile runs all K updates before the next one starts. So temporaries stay in
    cache, idle tiles cost nothing, and a lane's results are bitwise independent of the number of
    lanes. `tile` must divide the number of lanes on a device.
    """

    def tile_chunk(args: tuple[Lanes, Bool[Array, " tile"]]) -> tuple[LaneState, Metrics]:
        lanes, busy = args

        def one(state: LaneState, _: None) -> tuple[LaneState, Metrics]:
            return update(plan, lanes.hypers, state)

        def run() -> tuple[LaneState, Metrics]:
            return jax.lax.scan(one, lanes.state, None, length=updates)

        return unless_idle(busy, run, lanes.state)

    def local(
        seed: Leaf, lanes: Lanes, refills: Refills, initial: Initial | None
    ) -> tuple[Lanes, Metrics]:
        with jax.named_scope("refill"):
            lanes = refill_lanes(plan, seed, lanes, refills, initial)
        states, metrics = jax.lax.map(tile_chunk, in_tiles((lanes, refills.busy), tile))
        joined = untiled(states)
        # [tiles, K, lanes of a tile] -> [K, lanes]
        rows = jax.tree.map(lambda x: jnp.moveaxis(x, 0, 1).reshape((updates, -1)), metrics)
        return Lanes(lanes.hypers, joined), rows

    into = (EVERYWHERE, LANES, LANES, EVERYWHERE)
    return jax.jit(over_devices(local, mesh, into, (LANES, TIME_FIRST)), donate_argnums=1)


def over_devices(function: Callable[..., Any], mesh: Mesh, into: Any, out: Any) -> Any:
    return jax.shard_map(function, mesh=mesh, in_specs=into, out_specs=out, check_vma=False)


def unless_idle(
    busy: Bool[Array, " tile"], run: Callable[[], tuple[Any, Any]], state: Any
) -> tuple[Any, Any]:
    """Return the result of `run` if the tile has a busy lane, otherwise its state and zeros."""
    return jax.lax.cond(jnp.any(busy), run, lambda: (state, zeros_of(run)[1]))


def zeros_of(run: Callable[[], Any]) -> Any:
    return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(run))


def in_tiles(lanes: Any, tile: int) -> Any:
    return jax.tree.map(lambda x: x.reshape((x.shape[0] // tile, tile, *x.shape[1:])), lanes)


def untiled(tiles: Any) -> Any:
    return jax.tree.map(lambda x: x.reshape((x.shape[0] * x.shape[1], *x.shape[2:])), tiles)


def change_function(mesh: Mesh) -> Any:
    """Return the jitted `change(lanes, changes) -> lanes`, which is a separate program.

    `lanes` has `hypers` and a `state` with `updates`; `changes` has the fields of `Changes`.

    A lane may copy the state of a lane on another device, so devices communicate. Lanes are copied
    in batches, one after the other. A device needs memory for one batch and for twice its lanes,
    because all sources are read before any lane is overwritten.
    """

    def local(lanes: Any, source: Array, mask: Array, hypers: Any) -> Any:
        return lanes.replace(
            hypers=where(mask, hypers, lanes.hypers), state=_copy_states(lanes.state, source)
        )

    sharded = over_devices(local, mesh, (LANES, EVERYWHERE, LANES, LANES), LANES)

    def change(lanes: Any, changes: Any) -> Any:
        return sharded(lanes, changes.source, changes.mask, changes.hypers)

    return jax.jit(change, donate_argnums=0)


def _copy_states(state: Any, source: Int[Array, " L"]) -> Any:
    """Return a device's lanes after all copies; `source` indexes the lanes of all devices."""
    count = source.shape[0]
    own = state.updates.shape[0]
    first = jax.lax.axis_index("lanes") * own
    batch = min(COPIED_AT_A_TIME, count)
    kept = source == jnp.arange(count)
    order = jnp.argsort(kept)  # of lanes, those to be copied first

    def copy(index: Array, after: Any) -> Any:
        # The last batch is shifted back over lanes already copied, or also covers unchanged lanes.
        lanes = jax.lax.dynamic_slice_in_dim(order, index * batch, batch)
        sent, got = source[lanes] - first, lanes - first
        mine = (sent >= 0) & (sent < own)
        put = jnp.where((got >= 0) & (got < own), got, own)  # own: out of range, dropped

        def move(new: Array, old: Array) -> Array:
            rows = _all_gather_rows(old[jnp.clip(sent, 0, own - 1)], mine)
            return new.at[put].set(rows, mode="drop")

        return jax.tree.map(move, after, state)

    rounds = (count - jnp.sum(kept) + batch - 1) // batch
    return jax.lax.fori_loop(0, rounds, copy, state)


def _all_gather_rows(rows: Array, mine: Bool[Array, " rows"]) -> Array:
    """Return all rows on every device, taking each row from the device where `mine` is true.

    Rows are sent as integer words, each summed with zeros. A sum of floats would lose the sign of
    zero and NaN payloads, but a copy must be exact.
    """
    if rows.dtype == jnp.bool_:
        return _sum_over_devices(rows.astype(jnp.uint8), mine).astype(bool)
    words = jax.lax.bitcast_convert_type(rows, _WORDS[rows.dtype.itemsize])
    return jax.lax.bitcast_convert_type(_sum_over_devices(words, mine), rows.dtype)


def _sum_over_devices(words: Array, mine: Bool[Array, " rows"]) -> Array:
    mask = mine.reshape((-1,) + (1,) * (words.ndim - 1))
    return jax.lax.psum(jnp.where(mask, words, jnp.zeros_like(words)), "lanes")


def lane_shapes(plan: Plan, hypers: Hypers) -> LaneState:
    scalar = jax.ShapeDtypeStruct((), np.int32)
    return jax.eval_shape(
        lambda *args: init_lane(plan, *args), scalar, hypers, scalar, scalar, scalar, scalar
    )


def empty_lanes(plan: Plan, count: int, hypers: Hypers, mesh: Mesh) -> Lanes:
    shapes = lane_shapes(plan, hypers)
    sharding = NamedSharding(mesh, LANES)

    def zeros(leaf: Any) -> Array:
        return jax.device_put(np.zeros((count, *leaf.shape), leaf.dtype), sharding)

    return jax.tree.map(zeros, Lanes(hypers, shapes))
