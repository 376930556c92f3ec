"""The state of an optical network, and what an observation of it may read beside it."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt32

from ...pytree import Pytree, pytree
from .candidate_paths import PathTable, make_path_table
from .modulation import lightpath_capacity, make_modulation
from .optical_settings import OpticalSettings
from .spectrum import (
    ZERO,
    Spectrum,
    advance,
    band_words,
    count_bits,
    empty_spectrum,
    pack,
    slot_ticks,
    starts_of_free_runs,
    unpack,
    window,
    word_count,
)
from .topology import Topology, make_topology
from .traffic import OpticalParams, Request, Traffic


@dataclass(frozen=True, eq=False)
class NetworkTables:
    """Arrays over R pairs, K paths and H hops, of the host unless `survey` traces them.

    Attributes:
        topology: the network.
        paths: the path table they come from.
        hops: int32 [R, K, H], link numbers, padded with the path's first link (link 0 if missing).
        hop_counts: int32 [R, K]; 0 where the path is missing.
        width: float32 [R, K], Gb/s in one slot: spectral efficiency times slot width.
        capacity: float32 [R, K], Gb/s of a lightpath; 0 without lightpath reuse.
        km: float64 [links].
    """

    topology: Topology
    paths: PathTable
    hops: np.ndarray | Array
    hop_counts: np.ndarray | Array
    width: np.ndarray | Array
    capacity: np.ndarray | Array
    km: np.ndarray


def make_tables(settings: OpticalSettings) -> NetworkTables:
    """Search the paths of an environment's network and lay them out.

    Raises:
        ConfigError: the topology or modulation is unknown or unusable.
    """
    topology = make_topology(settings.topology, settings.directed)
    paths = make_path_table(
        topology,
        settings.k,
        settings.path_order,
        settings.disjoint_paths,
        make_modulation(settings.modulation) if settings.modulated else None,
        _capacity(settings) if settings.reuses_lightpaths else None,
    )
    links = topology.num_links
    first = np.where(paths.hops[..., :1] == links, 0, paths.hops[..., :1])
    return NetworkTables(
        topology=topology,
        paths=paths,
        hops=np.where(paths.hops == links, first, paths.hops),
        hop_counts=paths.hop_counts,
        width=(paths.efficiency * settings.width).astype(np.float32),
        capacity=paths.capacity.astype(np.float32),
        km=np.array([km for _, _, km in topology.links]),
    )


def _capacity(settings: OpticalSettings) -> functools.partial[float]:
    smallest = min(settings.bitrate_list)
    band = settings.width * settings.slots
    return functools.partial(
        lightpath_capacity,
        bandwidth_ghz=band,
        scale_factor=settings.scale_factor,
        granularity=smallest,
    )


def take(table: np.ndarray | Array, index: Int[Array, "*batch"]) -> Array:
    """Rows of a table, without a bounds check: the caller guarantees 0 <= index < rows."""
    return jnp.asarray(table).at[index].get(mode="promise_in_bounds", wrap_negative_indices=False)


@pytree
class Offers(Pytree):
    """What the K candidate paths offer to the current request.

    Attributes:
        starts: bits of the slots at which it could start, none on missing paths; uint32 [K, W].
        need: slots it takes on each path, guard slots included; int32 [K].
        free: bits of the slots free on all links of each path; uint32 [K, W].
        hops: link numbers, padded by repetition; int32 [K, H].
    """

    starts: UInt32[Array, "K W"]
    need: Int[Array, " K"]
    free: UInt32[Array, "K W"]
    hops: Int[Array, "K H"]


@pytree
class Place(Pytree):
    """Where a request is put.

    Attributes:
        path: rank among the candidates, below K; int32 [].
        start: first slot; int32 [].
        need: slots it takes; int32 [].
        accepted: False puts nothing anywhere; bool [].
    """

    path: Int[Array, ""]
    start: Int[Array, ""]
    need: Int[Array, ""]
    accepted: Bool[Array, ""]


@runtime_checkable
class Resources(Protocol):
    """How services use the network; `held` is a pytree that `empty` makes."""

    @property
    def unrolled(self) -> bool:
        """Whether short loops are written out, for a GPU."""
        ...

    def empty(self) -> Any:
        """Return a network without services."""
        ...

    def offers(self, held: Any, request: Request, params: OpticalParams) -> Offers:
        """Return where the request could start."""
        ...

    def serve(
        self,
        held: Any,
        request: Request,
        place: Place,
        elapsed: Int[Array, ""],
        params: OpticalParams,
    ) -> Any:
        """Place the request if it is accepted, then let `elapsed` ticks pass."""
        ...

    def occupancy(self, held: Any) -> UInt32[Array, "links W"]:
        """Return bits of the slots in use."""
        ...

    def ticks(self, held: Any) -> Int[Array, "links S"]:
        """Ticks until each slot is free, 0 where it is; only where services end."""
        ...


@dataclass(frozen=True, eq=False)
class FlexibleGrid:
    """A service takes the same n slots in a row on every link of its path (rsa, rmsa, rwa).

    Attributes:
        tables: of the network.
        slots: S.
        guardband: slots added to every service.
        services_end: False for incremental loading.
        unrolled: short loops are written out.
    """

    tables: NetworkTables
    slots: int
    guardband: int
    services_end: bool
    unrolled: bool = False

    def empty(self) -> Spectrum:
        """Return a network without services."""
        return empty_spectrum(len(self.tables.km) * word_count(self.slots), self.services_end)

    def offers(self, held: Spectrum, request: Request, params: OpticalParams) -> Offers:
        """Return where the request could start: n slots in a row, free on all links of a path."""
        hops, need = _hops(self.tables, request), self._need(request, params)
        paths = need.shape[0]
        words = take(held.occupancy.reshape(len(self.tables.km), -1), hops)
        busy = words[:, 0]
        for hop in range(1, hops.shape[1]):
            busy = busy | words[:, hop]
        band = jnp.broadcast_to(band_words(self.slots), busy.shape)
        exists = take(self.tables.hop_counts, request.pair) > 0
        free = jnp.where(exists.reshape(paths, 1), ~busy & band, ZERO)
        starts = starts_of_free_runs(free, need, self.slots, self.unrolled)
        return Offers(starts, need, free, hops)

    def _need(self, request: Request, params: OpticalParams) -> Int[Array, " K"]:
        bitrate = request.bitrate * params.bitrate_scale
        width = take(self.tables.width, request.pair)
        # XLA may turn the division into a product with a rounded reciprocal; the two comparisons
        # make a bitrate that fills its slots exactly need exactly those slots.
        slots = jnp.ceil(bitrate / width)
        slots = jnp.where((slots - 1.0) * width >= bitrate, slots - 1.0, slots)
        slots = jnp.where(slots * width < bitrate, slots + 1.0, slots)
        return slots.astype(jnp.int32) + self.guardband

    def serve(
        self,
        held: Spectrum,
        request: Request,
        place: Place,
        elapsed: Int[Array, ""],
        params: OpticalParams,
    ) -> Spectrum:
        """Place the request if it is accepted, then let `elapsed` ticks pass."""
        on_path = _links_of(self.tables, request, place.path) & place.accepted
        bits = window(word_count(self.slots), place.start, place.need)
        placed = jnp.where(on_path[:, None], bits[None, :], ZERO).reshape(-1)
        return advance(held, placed, request.holding, elapsed, self.unrolled)

    def occupancy(self, held: Spectrum) -> UInt32[Array, "links W"]:
        """Return bits of the slots in use."""
        return held.occupancy.reshape(len(self.tables.km), -1)

    def ticks(self, held: Spectrum) -> Int[Array, "links S"]:
        """Ticks until each slot is free, 0 where it is."""
        assert held.clock is not None
        return slot_ticks(held.clock, len(self.tables.km), self.slots)


@pytree
class Lightpaths(Pytree):
    """Lightpaths in use; every link of a lightpath carries the same entries.

    Attributes:
        row: number of the path (pair * K + rank) that lights each slot, -1 where dark; int32
            [links, S].
        used: Gb/s in use on it; float32 [links, S].
        services: how many services share it; int32 [links, S].
        ticks: time left of each of them, 0 where none; int32 [Q, links, S]. None where services
            never end.
        bitrates: Gb/s of each of them; float32 [Q, links, S], or None.
    """

    row: Int[Array, "links S"]
    used: Float[Array, "links S"]
    services: Int[Array, "links S"]
    ticks: Int[Array, "Q links S"] | None
    bitrates: Float[Array, "Q links S"] | None


@dataclass(frozen=True, eq=False)
class SharedLightpaths:
    """Services share lightpaths: one path on one wavelength, as long as its capacity lasts.

    Attributes:
        tables: of the network, with capacities.
        slots: wavelengths, S.
        most_services: Q, services that fit on one lightpath; a lane whose `bitrate_scale` is so
            far below the environment's own that more would fit is held to Q.
        services_end: False for incremental loading.
    """

    tables: NetworkTables
    slots: int
    most_services: int
    services_end: bool
    unrolled: bool = False

    def empty(self) -> Lightpaths:
        """Return a network without services."""
        shape = (len(self.tables.km), self.slots)
        zero, none = jnp.zeros(shape), jnp.zeros(shape, jnp.int32)
        dark = jnp.full(shape, -1, jnp.int32)
        if not self.services_end:
            return Lightpaths(dark, zero, none, None, None)
        many = (self.most_services, *shape)
        return Lightpaths(dark, zero, none, jnp.zeros(many, jnp.int32), jnp.zeros(many))

    def offers(self, held: Lightpaths, request: Request, params: OpticalParams) -> Offers:
        """Wavelengths dark on all links of a path, or lit by this very path with room left."""
        hops = _hops(self.tables, request)
        paths = hops.shape[0]
        bitrate = request.bitrate * params.bitrate_scale
        capacity = take(self.tables.capacity, request.pair)
        exists = take(self.tables.hop_counts, request.pair) > 0
        rows = (request.pair * paths + jnp.arange(paths, dtype=jnp.int32)).reshape(paths, 1)
        # All links of a lightpath agree, so its first link tells what is left on it.
        first = hops[:, 0]
        room = capacity.reshape(paths, 1) - take(held.used, first) >= bitrate
        lit_by = take(held.row, hops)
        if self.services_end:
            room &= take(held.services, first) < self.most_services
        dark = (lit_by == -1).all(1)
        mine = (lit_by == rows[:, :, None]).all(1)
        valid = (dark | mine) & room & exists.reshape(paths, 1)
        return Offers(
            pack(valid), jnp.ones(paths, jnp.int32), pack(dark & exists.reshape(paths, 1)), hops
        )

    def serve(
        self,
        held: Lightpaths,
        request: Request,
        place: Place,
        elapsed: Int[Array, ""],
        params: OpticalParams,
    ) -> Lightpaths:
        """Place the request if it is accepted, then let `elapsed` ticks pass."""
        path, start, accepted = place.path, place.start, place.accepted
        paths = self.tables.hops.shape[1]
        at_slot = jnp.arange(self.slots, dtype=jnp.int32) == start
        here = (_links_of(self.tables, request, path) & accepted)[:, None] & at_slot[None, :]
        row = jnp.where(here, request.pair * paths + path, held.row)
        bitrate = request.bitrate * params.bitrate_scale
        if held.ticks is None or held.bitrates is None:
            added = here.astype(jnp.int32)
            used = held.used + jnp.where(here, bitrate, jnp.float32(0.0))
            return Lightpaths(row, used, held.services + added, None, None)
        vacant = held.ticks == 0
        entry = jnp.argmax(vacant, 0).astype(jnp.int32)  # the first vacant entry of every slot
        numbers = jnp.arange(self.most_services, dtype=jnp.int32)[:, None, None]
        new = (numbers == entry[None]) & here[None]
        ticks = jnp.maximum(jnp.where(new, request.holding, held.ticks) - elapsed, 0)
        bitrates = jnp.where(ticks > 0, jnp.where(new, bitrate, held.bitrates), jnp.float32(0.0))
        services = (ticks > 0).sum(0, dtype=jnp.int32)
        row = jnp.where(services > 0, row, -1)
        return Lightpaths(row, bitrates.sum(0), services, ticks, bitrates)

    def occupancy(self, held: Lightpaths) -> UInt32[Array, "links W"]:
        """Return bits of the slots lit by a lightpath, full or not."""
        return pack(held.row >= 0)

    def ticks(self, held: Lightpaths) -> Int[Array, "links S"]:
        """Ticks until each slot is dark, 0 where it is."""
        assert held.ticks is not None
        return held.ticks.max(0)

    def room(self, held: Lightpaths) -> Float[Array, "links S"]:
        """Return Gb/s left on each lightpath, 0 where dark."""
        capacity = jnp.asarray(self.tables.capacity.reshape(-1))
        lit = held.row >= 0
        return jnp.where(lit, capacity[jnp.maximum(held.row, 0)] - held.used, jnp.float32(0.0))


def _hops(tables: NetworkTables, request: Request) -> Int[Array, "K H"]:
    return take(tables.hops, request.pair)


def _links_of(
    tables: NetworkTables, request: Request, path: Int[Array, ""]
) -> Bool[Array, " links"]:
    """Return which links are on a path of the current pair."""
    paths, longest = tables.hops.shape[1:]
    hops = take(tables.hops.reshape(-1, longest), request.pair * paths + path)
    numbers = jnp.arange(len(tables.km), dtype=jnp.int32)
    return (hops[:, None] == numbers[None, :]).any(0)


def share_of_slots(words: UInt32[Array, "links W"], slots: int) -> Float[Array, ""]:
    """Return the fraction of set bits among all slots of all links."""
    total = count_bits(words).sum(dtype=jnp.int32).astype(jnp.float32)
    return total / np.float32(words.shape[0] * slots)


def links_by_slot(words: UInt32[Array, "links W"], slots: int) -> Int[Array, " S"]:
    """In how many links each slot is in use."""
    return unpack(words, slots).sum(0, dtype=jnp.int32)


@pytree
class OpticalState(Pytree):
    """State of one network at the moment a request arrives.

    Attributes:
        held: what services hold (`Spectrum` or `Lightpaths`).
        request: the request to serve now.
        number: how many requests came before it in this episode; int32 [].
        shares: cumulative shares of the pairs, float32 [R]; None unless redrawn at each reset.
    """

    held: Any
    request: Request
    number: Int[Array, ""]
    shares: Float[Array, " R"] | None


@runtime_checkable
class Network(Protocol):
    """What does not change while requests come and go, as `OpticalEnvironment` has it."""

    settings: OpticalSettings
    tables: NetworkTables
    traffic: Traffic
    resources: Resources
    num_paths: int
    slots: int

    @property
    def largest_bitrate(self) -> float:
        """Gb/s before `bitrate_scale`: of the traffic's list, or of the given requests."""
        ...

    def offers(self, state: OpticalState, params: OpticalParams) -> Offers:
        """Return where the current request could start on each candidate path."""
        ...
