"""L lanes as one program: refill some, then run K updates of all, in tiles, on all local devices.

`advance` is the whole inner loop of a study: one dispatch per chunk, its arguments donated, and
only arrays of a fixed shape cross to the host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from .pytree import Leaf, Pytree, pytree, where
from .refill import Initial, Lanes, Refills, init_lane, refill_lanes
from .update import update

Device = Any  # a `jax.Device`, which type checkers take for a variable

LANES, EVERYWHERE = PartitionSpec("lanes"), PartitionSpec()
TIME_FIRST = PartitionSpec(None, "lanes")
COPIED_AT_A_TIME = 64  # lanes per batch of copies between devices
_WORDS = {1: jnp.uint8, 2: jnp.uint8, 4: jnp.uint32, 8: jnp.uint64}  # NCCL adds none of two bytes


@pytree
class Changes(Pytree):
    # lane whose training state, as it was before, each lane takes; itself: none
    source: Int[Leaf, " L"]
    mask: Bool[Leaf, " L"]  # lanes that get new hyperparameters
    hypers: Any  # rows of other lanes are ignored


def lane_mesh(devices: Sequence[Device]) -> Mesh:
    return Mesh(np.asarray(devices), ("lanes",))


def advance_function(plan: Plan, mesh: Mesh, tile: int, updates: int) -> Any:
    """Return the jitted `advance(seed, lanes, refills, initial) -> (lanes, metrics [K, L])`.

    `initial` replaces the fresh parameters of refilled lanes, or is None. Lanes are spread over
    the mesh without any collective. On each device they run in tiles of a fixed number of lanes,
    one tile after the other for all K updates, so that temporaries stay in cache, a lane's bits do
    not depend on the number of lanes, and idle tiles cost nothing. `tile` divides the lanes of a
    device.
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
    """Return the result of `run` for a tile with a busy lane, else its state and zeros."""
    return jax.lax.cond(jnp.any(busy), run, lambda: (state, zeros_of(run)[1]))


def zeros_of(run: Callable[[], Any]) -> Any:
    return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(run))


def in_tiles(lanes: Any, tile: int) -> Any:
    return jax.tree.map(lambda x: x.reshape((x.shape[0] // tile, tile, *x.shape[1:])), lanes)


def untiled(tiles: Any) -> Any:
    return jax.tree.map(lambda x: x.reshape((x.shape[0] * x.shape[1], *x.shape[2:])), tiles)


def change_function(mesh: Mesh) -> Any:
    """Return the jitted `change(lanes, changes) -> lanes`, a separate program.

    `lanes` has `hypers` and a `state` with `updates`, `changes` the fields of `Changes`.

    A lane may take over the state of a lane on another device, so this program communicates; for a
    batch of copied lanes at a time, so that a device needs no more memory than its lanes twice (a
    copy is of the state before all copies) and one batch.
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
    """Return a device's lanes after all copies; `source` is of the lanes of all devices."""
    count = source.shape[0]
    own = state.updates.shape[0]
    first = jax.lax.axis_index("lanes") * own
    batch = min(COPIED_AT_A_TIME, count)
    kept = source == jnp.arange(count)
    order = jnp.argsort(kept)  # of lanes: those that are copied come first

    def copy(index: Array, after: Any) -> Any:
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
    """Return all rows on every device, each row from the device where `mine` is true.

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
