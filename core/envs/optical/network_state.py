"""The state of an optical network, and how services occupy it."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt32

from ...pytree import Pytree, pytree
from . import spectrum
from .candidate_paths import PathTable, make_path_table
from .modulation import lightpath_capacity, make_modulation
from .optical_settings import OpticalSettings
from .spectrum import ZERO, Spectrum, pack, word_count
from .topology import Topology, make_topology
from .traffic import OpticalParams, Request, Traffic


@dataclass(frozen=True, eq=False)
class NetworkTables:
    """Tables of R pairs, K paths per pair and H hops per path, as host arrays."""

    topology: Topology
    paths: PathTable
    # int32 [R, K, H], link numbers, padded with the path's first link (link 0 if missing)
    hops: np.ndarray
    hop_counts: np.ndarray  # int32 [R, K]; 0 where the path is missing
    # float32 [R, K], Gb/s in one slot: spectral efficiency times slot width
    width: np.ndarray
    capacity: np.ndarray  # float32 [R, K], Gb/s of a lightpath; 0 without lightpath reuse
    km: np.ndarray  # float64 [links]


def make_tables(settings: OpticalSettings) -> NetworkTables:
    topology = make_topology(settings.topology, settings.directed)
    capacity = functools.partial(
        lightpath_capacity,
        bandwidth_ghz=settings.width * settings.slots,
        scale_factor=settings.scale_factor,
        granularity=min(settings.bitrate_list),
    )
    formats = None
    if settings.modulated:
        formats = make_modulation(settings.modulation)
    paths = make_path_table(
        topology,
        settings.k,
        settings.path_order,
        disjoint=settings.disjoint_paths,
        formats=formats,
        capacity=capacity if settings.reuses_lightpaths else None,
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
        km=np.array(topology.link_kms),
    )


def take(table: np.ndarray | Array, index: Int[Array, "*batch"]) -> Array:
    """Return rows of a table without a bounds check; the index must satisfy 0 <= index < rows."""
    return jnp.asarray(table).at[index].get(mode="promise_in_bounds", wrap_negative_indices=False)


@pytree
class Offers(Pytree):
    # bits of the slots at which it could start, none on missing paths
    starts: UInt32[Array, "K W"]
    need: Int[Array, " K"]  # slots it takes on each path, guard slots included
    free: UInt32[Array, "K W"]  # bits of the slots free on all links of each path
    hops: Int[Array, "K H"]  # link numbers, padded by repetition


Ticks = Int[Array, ""]


@pytree
class Place(Pytree):
    path: Int[Array, ""]  # rank among the candidates, below K
    start: Int[Array, ""]  # first slot
    need: Int[Array, ""]  # slots it takes
    accepted: Bool[Array, ""]  # if False, nothing is placed


@dataclass(frozen=True, eq=False)
class FlexibleGrid:
    """A service uses the same n contiguous slots on every link of its path (rsa, rmsa, rwa)."""

    tables: NetworkTables
    slots: int  # S
    guardband: int  # slots added to every service
    services_end: bool  # False for incremental loading
    unrolled: bool = False  # short loops are written out, for a GPU

    def empty(self) -> Spectrum:
        words = len(self.tables.km) * word_count(self.slots)
        return spectrum.empty_spectrum(words, self.services_end)

    def offers(self, held: Spectrum, request: Request, params: OpticalParams) -> Offers:
        hops, need = take(self.tables.hops, request.pair), self._needed_slots(request, params)
        paths = need.shape[0]
        words = take(held.occupancy.reshape(len(self.tables.km), -1), hops)
        busy = words[:, 0]
        for hop in range(1, hops.shape[1]):
            busy = busy | words[:, hop]
        band = jnp.broadcast_to(spectrum.band_words(self.slots), busy.shape)
        exists = take(self.tables.hop_counts, request.pair) > 0
        free = jnp.where(exists.reshape(paths, 1), ~busy & band, ZERO)
        starts = spectrum.starts_of_free_runs(free, need, self.slots, self.unrolled)
        return Offers(starts, need, free, hops)

    def _needed_slots(self, request: Request, params: OpticalParams) -> Int[Array, " K"]:
        bitrate = request.bitrate * params.bitrate_scale
        width = take(self.tables.width, request.pair)
        # XLA may turn the division into a product with a rounded reciprocal; the two comparisons
        # make a bitrate that fills its slots exactly need exactly those slots.
        slots = jnp.ceil(bitrate / width)
        slots = jnp.where((slots - 1.0) * width >= bitrate, slots - 1.0, slots)
        slots = jnp.where(slots * width < bitrate, slots + 1.0, slots)
        return slots.astype(jnp.int32) + self.guardband

    def serve(
        self, held: Spectrum, request: Request, place: Place, elapsed: Ticks, params: OpticalParams
    ) -> Spectrum:
        on_path = _links_of(self.tables, request, place.path) & place.accepted
        bits = spectrum.window(word_count(self.slots), place.start, place.need)
        placed = jnp.where(on_path[:, None], bits[None, :], ZERO).reshape(-1)
        return spectrum.advance(held, placed, request.holding, elapsed, self.unrolled)

    def occupancy(self, held: Spectrum) -> UInt32[Array, "links W"]:
        return held.occupancy.reshape(len(self.tables.km), -1)

    def ticks(self, held: Spectrum) -> Int[Array, "links S"]:
        """Return the ticks until each slot is free (0 if it is); needs `services_end`."""
        assert held.clock is not None
        return spectrum.slot_ticks(held.clock, len(self.tables.km), self.slots)


@pytree
class Lightpaths(Pytree):
    """Lightpaths in use; all links of a lightpath have the same entries."""

    # number of the path (pair * K + rank) that lights each slot, -1 where dark
    row: Int[Array, "links S"]
    used: Float[Array, "links S"]  # Gb/s in use on it
    services: Int[Array, "links S"]  # how many services share it
    ticks: Int[Array, "Q links S"] | None  # time left of each; None where services never end
    bitrates: Float[Array, "Q links S"] | None  # Gb/s of each


@dataclass(frozen=True, eq=False)
class SharedLightpaths:
    """Services share a lightpath (one path on one wavelength) until its capacity is used up."""

    tables: NetworkTables
    slots: int  # wavelengths, S
    most_services: int  # Q per lightpath, from the environment's `bitrate_scale` (not the lane's)
    services_end: bool  # False for incremental loading
    unrolled: bool = False

    def empty(self) -> Lightpaths:
        shape = (len(self.tables.km), self.slots)
        zero, none = jnp.zeros(shape), jnp.zeros(shape, jnp.int32)
        dark = jnp.full(shape, -1, jnp.int32)
        if not self.services_end:
            return Lightpaths(dark, zero, none, None, None)
        many = (self.most_services, *shape)
        return Lightpaths(dark, zero, none, jnp.zeros(many, jnp.int32), jnp.zeros(many))

    def offers(self, held: Lightpaths, request: Request, params: OpticalParams) -> Offers:
        """Return the wavelengths that are dark on the whole path, or whose lightpath has room."""
        hops = take(self.tables.hops, request.pair)
        paths = hops.shape[0]
        bitrate = request.bitrate * params.bitrate_scale
        capacity = take(self.tables.capacity, request.pair)
        exists = take(self.tables.hop_counts, request.pair) > 0
        rows = (request.pair * paths + jnp.arange(paths, dtype=jnp.int32)).reshape(paths, 1)
        # All links of a lightpath agree, so its first link shows the room left on it.
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
        elapsed: Ticks,
        params: OpticalParams,
    ) -> Lightpaths:
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
        return pack(held.row >= 0)

    def ticks(self, held: Lightpaths) -> Int[Array, "links S"]:
        assert held.ticks is not None
        return held.ticks.max(0)

    def room(self, held: Lightpaths) -> Float[Array, "links S"]:
        """Return the remaining capacity of each lightpath in Gb/s; 0 where dark."""
        capacity = jnp.asarray(self.tables.capacity.reshape(-1))
        lit = held.row >= 0
        return jnp.where(lit, capacity[jnp.maximum(held.row, 0)] - held.used, jnp.float32(0.0))


# How services use the network; `held` is what their `empty` returns
Resources = FlexibleGrid | SharedLightpaths


def _links_of(
    tables: NetworkTables, request: Request, path: Int[Array, ""]
) -> Bool[Array, " links"]:
    paths, longest = tables.hops.shape[1:]
    hops = take(tables.hops.reshape(-1, longest), request.pair * paths + path)
    numbers = jnp.arange(len(tables.km), dtype=jnp.int32)
    return (hops[:, None] == numbers[None, :]).any(0)


def share_of_slots(words: UInt32[Array, "links W"], slots: int) -> Float[Array, ""]:
    total = spectrum.count_bits(words).sum(dtype=jnp.int32).astype(jnp.float32)
    return total / np.float32(words.shape[0] * slots)


@pytree
class OpticalState(Pytree):
    held: Any  # `Spectrum` or `Lightpaths`
    request: Request  # to serve now
    number: Int[Array, ""]  # requests before it in this episode
    shares: Float[Array, " R"] | None  # cumulative, of pairs; None unless redrawn at each reset


@runtime_checkable
class Network(Protocol):
    settings: OpticalSettings
    tables: NetworkTables
    traffic: Traffic
    resources: Resources
    num_paths: int
    slots: int

    @property
    def largest_bitrate(self) -> float: ...

    def offers(self, state: OpticalState, params: OpticalParams) -> Offers: ...
