"""The optical environments: a single class for five kinds of problem.

A step serves the current request, then draws the next. The action mask and acceptance use the same
bits in `Offers`: a request is accepted if the mask allows its action, and blocked otherwise.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt32

from ..contract import ActionSpace, Discrete, Routes, Step
from . import network_state
from .heuristics import make_heuristic, start_of
from .network_state import FlexibleGrid, NetworkTables, Offers, OpticalState, Resources, take
from .observers import SPECTRAL_FEATURES, Observer, line_graph_features, make_observer
from .optical_settings import OpticalSettings
from .spectrum import NONE, ZERO, band_words, first_set, unpack, window, word_count
from .traffic import WORDS_PER_REQUEST, OpticalParams, Request, Traffic, random_words
from .traffic_files import pair_weights, read_requests, read_traffic_matrix


class OpticalEnvironment:
    """An environment of one kind: rsa, rmsa, deeprmsa, rwa or rwa_lightpath_reuse.

    Actions (A in total) are path * blocks + block; a service is placed at the first feasible start
    slot of the block, which has `aggregate_slots` start slots. In deeprmsa, actions are
    path * fits + fit. With `no_op`, the last action refuses the request. The reward is 0 for an
    accepted request, and -1 or -bitrate / largest bitrate for a blocked one.
    """

    has_mask = True

    def __init__(self, settings: OpticalSettings, unrolled: bool = False):
        self.settings = settings
        self.id = settings.id
        self.tables: NetworkTables = network_state.make_tables(settings)
        self.traffic = _make_traffic(settings, self.tables)
        requests = self.traffic.requests
        self.resources: Resources = self._make_resources(unrolled)
        self.max_requests = settings.max_requests
        if requests is not None:
            self.max_requests = len(requests)
        self.never_ends = settings.continuous and not settings.end_first_blocking
        self.warmup_steps = settings.warmup_requests
        self.has_shadow = bool(settings.shadow)
        self.blocks = -(-settings.slots // settings.aggregate_slots)
        self.num_paths, self.slots = settings.k, settings.slots
        self.per_path = self.blocks
        if settings.id == "deeprmsa":
            self.per_path = len(settings.fits)
        count = self.num_paths * self.per_path + int(settings.no_op)
        self.action_space: ActionSpace = Discrete(count)
        self.default_params = OpticalParams(
            load=jnp.asarray(settings.load, jnp.float32),
            mean_holding_time=jnp.asarray(settings.mean_holding_time, jnp.float32),
            bitrate_scale=jnp.asarray(settings.bitrate_scale, jnp.float32),
        )
        self.observe: Observer = make_observer(self)
        shapes = jax.eval_shape(self.reset, jax.random.key(0), self.default_params)
        self.observation_struct = shapes[1]

    def _make_resources(self, unrolled: bool) -> Resources:
        settings, tables, requests = self.settings, self.tables, self.traffic.requests
        services_end = not settings.incremental
        if not settings.reuses_lightpaths:
            return FlexibleGrid(tables, settings.slots, settings.guardband, services_end, unrolled)
        bitrates = settings.bitrate_list
        if requests is not None:
            bitrates = requests.bitrate.tolist()
        smallest = min(bitrates) * settings.bitrate_scale
        most = max(1, int(float(tables.capacity.max()) / smallest + 1e-6))
        return network_state.SharedLightpaths(tables, settings.slots, most, services_end)

    def reset(self, key: PRNGKeyArray, params: OpticalParams) -> tuple[OpticalState, Any]:
        words = random_words(key, WORDS_PER_REQUEST + self.traffic.words_at_reset)
        shares = self.traffic.pair_shares(words[WORDS_PER_REQUEST:])
        number = jnp.zeros((), jnp.int32)
        request = self.traffic.request(words[:WORDS_PER_REQUEST], number, shares)
        state = OpticalState(self.resources.empty(), request, number, shares)
        return state, self.observe(state, params)

    def step(
        self, key: PRNGKeyArray, state: OpticalState, action: Int[Array, ""], params: OpticalParams
    ) -> Step:
        offers = self.offers(state, params)
        path, start = self.decode(state, offers, action)
        words = random_words(key, WORDS_PER_REQUEST)
        return self.serve(words, state, offers, path, start, params=params)

    def shadow_step(self, key: PRNGKeyArray, state: OpticalState, params: OpticalParams) -> Step:
        """Serve the current request with the heuristic `shadow`, with the same draws as `step`."""
        offers = self.offers(state, params)
        path, start = make_heuristic(self.settings.shadow, self)(state, offers, params)
        words = random_words(key, WORDS_PER_REQUEST)
        return self.serve(words, state, offers, path, start, params=params)

    def action_mask(self, state: OpticalState, params: OpticalParams) -> Bool[Array, " A"]:
        starts = self.offers(state, params).starts
        if self.id == "deeprmsa":
            room = (starts != ZERO).any(-1)
            # As published: if no path has room, all actions are allowed.
            return jnp.repeat(room | ~room.any(), self.per_path)
        if self.settings.aggregate_slots == 1:
            mask = unpack(starts, self.slots).reshape(-1)
        else:
            mask = ((starts[:, None, :] & self._block_words[None]) != ZERO).any(-1).reshape(-1)
        if self.settings.no_op:
            mask = jnp.append(mask, True)
        return mask

    def offers(self, state: OpticalState, params: OpticalParams) -> Offers:
        return self.resources.offers(state.held, state.request, params)

    def decode(
        self, state: OpticalState, offers: Offers, action: Int[Array, ""]
    ) -> tuple[Int[Array, ""], Int[Array, ""]]:
        """Return an action's (path, start slot); the refusing action has path K."""
        action = action.astype(jnp.int32)
        if self.id == "deeprmsa":
            path, fit = action // self.per_path, action % self.per_path
            return path, start_of(self, state, offers, jnp.clip(path, 0, self.num_paths - 1), fit)
        path, block = action // self.blocks, action % self.blocks
        if self.settings.aggregate_slots == 1:
            return path, block
        starts = take(offers.starts, jnp.clip(path, 0, self.num_paths - 1))
        inside = first_set(starts & take(self._block_words, block))
        none = (inside == NONE) | (path >= self.num_paths)
        return path, jnp.where(none, block * self.settings.aggregate_slots, inside)

    def encode(
        self, state: OpticalState, offers: Offers, path: Int[Array, ""], start: Int[Array, ""]
    ) -> Int[Array, ""]:
        """Return the action for a path and start; in deeprmsa, the first fit with that start."""
        if self.id == "deeprmsa":
            fits = jnp.arange(self.per_path, dtype=jnp.int32)
            starts = jax.vmap(lambda fit: start_of(self, state, offers, path, fit))(fits)
            return path * self.per_path + jnp.argmax(starts == start).astype(jnp.int32)
        return path * self.blocks + start // self.settings.aggregate_slots

    def serve(
        self,
        words: UInt32[Array, " 4"],
        state: OpticalState,
        offers: Offers,
        path: Int[Array, ""],
        start: Int[Array, ""],
        *,
        params: OpticalParams,
    ) -> Step:
        """Serve the current request on a path and start slot; draw the next one from `words`."""
        exists = (path >= 0) & (path < self.num_paths)
        path = jnp.clip(path, 0, self.num_paths - 1)
        start = jnp.clip(start, 0, self.slots - 1)
        at_start = window(word_count(self.slots), start, jnp.ones((), jnp.int32))
        accepted = exists & ((take(offers.starts, path) & at_start) != ZERO).any()
        place = network_state.Place(path, start, take(offers.need, path), accepted)
        elapsed = self.traffic.wait(words, state.number, params)
        held = self.resources.serve(state.held, state.request, place, elapsed, params)
        number = state.number + 1
        request = self.traffic.request(words, number, state.shares)
        after = OpticalState(held, request, number, state.shares)
        terminated = jnp.logical_and(~accepted, self.settings.end_first_blocking)
        truncated = (number >= self.max_requests) & ~terminated
        if self.settings.continuous:
            truncated = jnp.zeros_like(truncated)
        return Step(
            state=after,
            observation=self.observe(after, params),
            reward=self._reward(state.request, accepted),
            terminated=terminated,
            truncated=truncated,
            info=self._step_info(state, path, accepted, held, params),
        )

    def summarise(self, sums: Mapping[str, Array], steps: Array) -> dict[str, Array]:
        requests = jnp.maximum(jnp.asarray(steps, jnp.float32), 1.0)
        offered = jnp.maximum(sums["bitrate"], np.finfo(np.float32).tiny)
        accepted = jnp.asarray(steps, jnp.float32) - sums["blocked"]
        metrics = {
            "service_blocking_probability": sums["blocked"] / requests,
            "bitrate_blocking_probability": sums["bitrate_blocked"] / offered,
            "utilisation": sums["utilisation"] / requests,
            "requests": jnp.asarray(steps, jnp.float32),
            "accepted_services": accepted,
            "accepted_bitrate": sums["bitrate"] - sums["bitrate_blocked"],
        }
        for name in sums:
            if name.startswith(("path_", "hops_")):
                metrics[f"{name}_share"] = sums[name] / jnp.maximum(accepted, 1.0)
        return metrics

    @functools.cached_property
    def routes(self) -> Routes:
        topology, tables = self.tables.topology, self.tables
        ends = np.array(topology.link_ends, np.int32)
        return Routes(
            num_nodes=topology.num_nodes,
            senders=ends[:, 0],
            receivers=ends[:, 1],
            pairs=tables.paths.pairs,
            hops=np.asarray(tables.hops),
            hop_counts=np.asarray(tables.hop_counts),
            km=tables.km,
            coordinates=line_graph_features(topology, SPECTRAL_FEATURES),
            outputs=self.per_path,
        )

    @functools.cached_property
    def _block_words(self) -> np.ndarray:
        size = self.settings.aggregate_slots
        below = [band_words(min(b * size, self.slots)) for b in range(self.blocks + 1)]
        padded = [np.pad(w, (0, word_count(self.slots) - len(w))) for w in below]
        return np.stack([high & ~low for low, high in itertools.pairwise(padded)])

    def _reward(self, request: Request, accepted: Bool[Array, ""]) -> Float[Array, ""]:
        lost = jnp.ones((), jnp.float32)
        if self.settings.reward == "bitrate":
            lost = request.bitrate / np.float32(self.largest_bitrate)
        return jnp.where(accepted, jnp.float32(0.0), -lost)

    @property
    def largest_bitrate(self) -> float:
        """The largest bitrate (Gb/s) in the settings or request list, before `bitrate_scale`."""
        if self.traffic.requests is None:
            return float(self.traffic.bitrates.max())
        return float(self.traffic.requests.bitrate.max())

    def _step_info(
        self,
        state: OpticalState,
        path: Int[Array, ""],
        accepted: Bool[Array, ""],
        held: Any,
        params: OpticalParams,
    ) -> dict[str, Array]:
        blocked = (~accepted).astype(jnp.float32)
        bitrate = state.request.bitrate * params.bitrate_scale
        info = {"blocked": blocked, "bitrate": bitrate, "bitrate_blocked": blocked * bitrate}
        occupied = self.resources.occupancy(held)
        info["utilisation"] = network_state.share_of_slots(occupied, self.slots)
        if self.settings.histograms:
            hops = take(take(self.tables.hop_counts, state.request.pair), path)
            for rank in range(self.num_paths):
                info[f"path_{rank}"] = (accepted & (path == rank)).astype(jnp.float32)
            for count in range(1, self.tables.hops.shape[-1] + 1):
                info[f"hops_{count}"] = (accepted & (hops == count)).astype(jnp.float32)
        return info


@functools.lru_cache(maxsize=64)
def make_environment(settings: OpticalSettings, unrolled: bool = False) -> OpticalEnvironment:
    return OpticalEnvironment(settings, unrolled)


def make_from_keys(unrolled: bool = False, **keys: Any) -> OpticalEnvironment:
    return make_environment(OpticalSettings.from_mapping(keys), unrolled)


def _make_traffic(settings: OpticalSettings, tables: NetworkTables) -> Traffic:
    topology = tables.topology
    matrix = read_traffic_matrix(settings.traffic_matrix, topology)
    weights = requests = None
    if matrix is not None:
        weights = pair_weights(matrix, topology)
    if settings.requests:
        requests = read_requests(settings.requests, topology)
    return Traffic(
        bitrates=np.array(settings.bitrate_list),
        weights=weights,
        num_pairs=len(tables.hops),
        both_ways=not settings.directed,
        truncated=settings.truncate_holding_time,
        requests=requests,
    )
