"""L lanes as one program: refill some, then run K updates of all, in tiles, on all local devices.

`advance` is the whole inner loop of a study: one dispatch a chunk, its arguments donated, and
nothing but arrays of a fixed shape crosses to the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, Int

from .hypers import Hypers
from .lane_state import LaneState
from .metrics import Metrics
from .plan import Plan
from .pytree import Leaf, Pytree, pytree
from .refill import Initial, Lanes, Refills, init_lane, refill_lanes
from .rollout import rollout
from .update import update

Device = Any
"""A `jax.Device`, which type checkers take for a variable."""

COPIED_AT_A_TIME = 64
"""Lanes whose states are told to all devices in one go."""
_WORDS = {1: jnp.uint8, 2: jnp.uint8, 4: jnp.uint32, 8: jnp.uint64}  # NCCL adds none of two bytes


@pytree
class Changes(Pytree):
    """What to change in lanes between two chunks.

    Attributes:
        source: the lane whose whole training state each lane takes over, as it was before any of
            these changes; its own number where it keeps its own.
        mask: lanes that get other hyperparameters.
        hypers: theirs (rows of other lanes are ignored).
    """

    source: Int[Leaf, " L"]
    mask: Bool[Leaf, " L"]
    hypers: Hypers


def lane_mesh(devices: Sequence[Device]) -> Mesh:
    """Return the one-dimensional mesh that lanes are spread over."""
    return Mesh(np.asarray(devices), ("lanes",))


def advance_function(plan: Plan, mesh: Mesh, tile: int, updates: int) -> Any:
    """Return the jitted `advance(seed, lanes, refills, initial) -> (lanes, metrics [K, L])`.

    `initial` is what refilled lanes start with instead of fresh parameters, or None.

    Lanes are spread over the mesh without any collective; on each device they run in tiles of a
    fixed number of lanes, one tile after the other for all K updates, so that temporaries stay in
    cache, a lane's bits do not depend on the number of lanes, and idle tiles cost nothing.

    Args:
        plan: the static part.
        mesh: from `lane_mesh`.
        tile: lanes a tile; divides the lanes of a device.
        updates: K, updates a chunk.
    """

    def tile_chunk(args: tuple[Lanes, Bool[Array, " tile"]]) -> tuple[LaneState, Metrics]:
        lanes, busy = args

        def one(state: LaneState, _: None) -> tuple[LaneState, Metrics]:
            return update(plan, lanes.hypers, state)

        def run() -> tuple[LaneState, Metrics]:
            return jax.lax.scan(one, lanes.state, None, length=updates)

        def rest() -> tuple[LaneState, Metrics]:
            shapes = jax.eval_shape(run)[1]
            return lanes.state, jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)

        return jax.lax.cond(jnp.any(busy), run, rest)

    def local(
        seed: Leaf, lanes: Lanes, refills: Refills, initial: Initial | None
    ) -> tuple[Lanes, Metrics]:
        lanes = refill_lanes(plan, seed, lanes, refills, initial)
        states, metrics = jax.lax.map(tile_chunk, _in_tiles((lanes, refills.busy), tile))
        joined = _joined(states)
        # [tiles, K, lanes of a tile] -> [K, lanes]
        rows = jax.tree.map(lambda x: jnp.moveaxis(x, 0, 1).reshape((updates, -1)), metrics)
        return Lanes(lanes.hypers, joined), rows

    spread, everywhere = PartitionSpec("lanes"), PartitionSpec()
    sharded = jax.shard_map(
        local,
        mesh=mesh,
        in_specs=(everywhere, spread, spread, everywhere),
        out_specs=(spread, PartitionSpec(None, "lanes")),
        check_vma=False,
    )
    return jax.jit(sharded, donate_argnums=1)


def _in_tiles(lanes: Any, tile: int) -> Any:
    """Return [lanes, ...] as [tiles, lanes of a tile, ...]."""
    return jax.tree.map(lambda x: x.reshape((x.shape[0] // tile, tile, *x.shape[1:])), lanes)


def _joined(tiles: Any) -> Any:
    """Return [tiles, lanes of a tile, ...] as [lanes, ...]."""
    return jax.tree.map(lambda x: x.reshape((x.shape[0] * x.shape[1], *x.shape[2:])), tiles)


def rollout_function(plan: Plan, mesh: Mesh, tile: int, updates: int) -> Any:
    """Return the jitted `roll_out(lanes) -> (lanes, sums [L])`: a chunk's rollouts, no learning.

    It is there to be timed beside `advance`. Every array of a trajectory goes into the sums, so
    that all of it is computed and written as it is for learning.

    Args:
        plan: the static part.
        mesh: from `lane_mesh`.
        tile: lanes a tile; divides the lanes of a device.
        updates: K, rollouts a chunk.
    """

    def total(x: Array) -> Array:  # [T, lanes of a tile, ...] -> [lanes of a tile]
        return jnp.sum(x.astype(jnp.float32), axis=(0, *range(2, x.ndim)))

    def tile_chunk(lanes: Lanes) -> tuple[LaneState, Array]:
        def one(state: LaneState, _: None) -> tuple[LaneState, Array]:
            played = rollout(plan, lanes.hypers, state)
            sums = [total(leaf) for leaf in jax.tree.leaves(played.trajectory)]
            after = played.state.replace(updates=state.updates + 1)
            return after, sum(sums, jnp.sum(played.last_value, axis=1))

        state, sums = jax.lax.scan(one, lanes.state, None, length=updates)
        return state, jnp.sum(sums, axis=0)

    def local(lanes: Lanes) -> tuple[Lanes, Array]:
        states, sums = jax.lax.map(tile_chunk, _in_tiles(lanes, tile))
        return Lanes(lanes.hypers, _joined(states)), _joined(sums)

    spread = PartitionSpec("lanes")
    sharded = jax.shard_map(local, mesh=mesh, in_specs=spread, out_specs=spread, check_vma=False)
    return jax.jit(sharded, donate_argnums=0)


def change_function(mesh: Mesh) -> Any:
    """Return the jitted `change(lanes, changes) -> lanes`, a program of its own beside `advance`.

    A lane may take over the state of a lane on another device, so unlike `advance` this one
    communicates. It does so for a batch of copied lanes at a time, so that a device holds no more
    than its own lanes twice (a copy is of what was there before any other) and one batch.
    """

    def local(lanes: Lanes, source: Array, mask: Array, hypers: Hypers) -> Lanes:
        def pick(new: Array, old: Array) -> Array:
            return jnp.where(mask.reshape((-1,) + (1,) * (old.ndim - 1)), new, old)

        return Lanes(
            hypers=jax.tree.map(pick, hypers, lanes.hypers), state=_copied(lanes.state, source)
        )

    spread, everywhere = PartitionSpec("lanes"), PartitionSpec()
    sharded = jax.shard_map(
        local, mesh=mesh, in_specs=(spread, everywhere, spread, spread), out_specs=spread,
        check_vma=False,
    )  # fmt: skip

    def change(lanes: Lanes, changes: Changes) -> Lanes:
        return sharded(lanes, changes.source, changes.mask, changes.hypers)

    return jax.jit(change, donate_argnums=0)


def _copied(state: LaneState, source: Int[Array, " L"]) -> LaneState:
    """Return the states of a device's own lanes after all copies, in a `shard_map` over "lanes".

    Args:
        state: [lanes of the device, ...].
        source: whose state each lane of all devices takes over.
    """
    count = source.shape[0]
    own = state.updates.shape[0]
    first = jax.lax.axis_index("lanes") * own
    batch = min(COPIED_AT_A_TIME, count)
    kept = source == jnp.arange(count)
    order = jnp.argsort(kept)  # of lanes: those that are copied come first

    def copy(index: Array, after: LaneState) -> LaneState:
        # The last batch reaches back over lanes that were copied, or on to some that stay.
        lanes = jax.lax.dynamic_slice_in_dim(order, index * batch, batch)
        sent, got = source[lanes] - first, lanes - first
        mine = (sent >= 0) & (sent < own)
        put = jnp.where((got >= 0) & (got < own), got, own)  # which is none, and dropped

        def move(new: Array, old: Array) -> Array:
            rows = _all_gather_rows(old[jnp.clip(sent, 0, own - 1)], mine)
            return new.at[put].set(rows, mode="drop")

        return jax.tree.map(move, after, state)

    rounds = (count - jnp.sum(kept) + batch - 1) // batch
    return jax.lax.fori_loop(0, rounds, copy, state)


def _all_gather_rows(rows: Array, mine: Bool[Array, " rows"]) -> Array:
    """Return rows [rows, ...], of which each device has some, as all devices then know them.

    They travel as words of bits, each summed with zeros: a sum of floats would lose the sign of
    zero and bits of NaN, and a copy must be exact.
    """
    flags = rows.dtype == jnp.bool_
    words = (
        rows.astype(jnp.uint8)
        if flags
        else jax.lax.bitcast_convert_type(rows, _WORDS[rows.dtype.itemsize])
    )
    mask = mine.reshape((-1,) + (1,) * (words.ndim - 1))
    total = jax.lax.psum(jnp.where(mask, words, jnp.zeros_like(words)), "lanes")
    return total.astype(bool) if flags else jax.lax.bitcast_convert_type(total, rows.dtype)


def lane_shapes(plan: Plan, hypers: Hypers) -> LaneState:
    """Return the shapes and dtypes of one lane's state, without computing anything."""
    scalar = jax.ShapeDtypeStruct((), np.int32)
    return jax.eval_shape(
        lambda *args: init_lane(plan, *args), scalar, hypers, scalar, scalar, scalar, scalar
    )


def empty_lanes(plan: Plan, count: int, hypers: Hypers, mesh: Mesh) -> Lanes:
    """Return lanes of zeros in which nothing runs yet; every one is refilled before it matters.

    Args:
        plan: the static part.
        count: lanes.
        hypers: any lane's, for the shapes of its leaves.
        mesh: from `lane_mesh`.
    """
    shapes = lane_shapes(plan, hypers)
    sharding = NamedSharding(mesh, PartitionSpec("lanes"))

    def zeros(leaf: Any) -> Array:
        return jax.device_put(np.zeros((count, *leaf.shape), leaf.dtype), sharding)

    return jax.tree.map(zeros, Lanes(hypers, shapes))
