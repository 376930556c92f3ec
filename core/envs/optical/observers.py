"""Observations: flat bits, deeprmsa's path features, a graph, or one token per link.

Node numbers start at 0. Times are fractions of the mean holding time, except deeprmsa's holding
time, which is in units of time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt32

from ...pytree import Pytree, pytree, static
from ..contract import Flagged
from .network_state import Network, Offers, OpticalState, SharedLightpaths, take
from .spectrum import NONE, ONE, band_words, count_bits, first_set, shift_up, unpack, window
from .topology import Topology
from .traffic import OpticalParams

# A 4-bit number times the first constant has each bit at the end of a separate byte.
_SPREAD, _FOUR_BITS, _BIT_PER_BYTE = (np.uint32(x) for x in (0x00204081, 0xF, 0x01010101))


@pytree
class PackedObservation(Pytree):
    """The flat observation in a packed form, 25 times smaller; `as_vector` restores the floats."""

    request: Float[Array, "... 3"]  # source, bitrate, destination
    words: UInt32[Array, "... links W"]  # bits of the slots in use
    slots: int = static()  # S: each link has one bit per slot
    unrolled: bool = static(default=False)  # expanded number by number, in one GPU kernel

    @property
    def lead(self) -> tuple[int, ...]:
        return self.request.shape[:-1]

    def as_vector(self) -> Float[Array, "... n"]:
        """Return the flat observation, float32 [..., 3 + links * S], for any leading axes."""
        lead = self.lead
        if not self.unrolled:
            flags = unpack(self.words, self.slots).astype(jnp.float32)
            return jnp.concatenate([self.request, flags.reshape(*lead, -1)], -1)
        # On a GPU a concatenation would branch for every number.
        flags = (self._shift_words(1) & ONE).astype(jnp.float32).reshape((*lead, -1))
        no_pad = ((0, 0),) * (flags.ndim - 1)
        padded = jnp.pad(flags, (*no_pad, (self.request.shape[-1], 0)))
        return padded + jnp.pad(self.request, (*no_pad, (0, flags.shape[-1])))

    def as_flags(self) -> Flagged:
        lead = self.lead
        if self.slots % 4:
            flags = (self._shift_words(1) & ONE).astype(jnp.int8)
            return Flagged(self.request, flags.reshape((*lead, -1)))
        # On a GPU bytes take a quarter of the time of floats to write, and a quarter of that if
        # four of them are made at once, as one word.
        four = self._shift_words(4) & _FOUR_BITS
        four = ((four * _SPREAD) & _BIT_PER_BYTE).reshape((*lead, -1))
        flags = jax.lax.bitcast_convert_type(four, jnp.int8).reshape((*lead, -1))
        return Flagged(self.request, flags)

    def _shift_words(self, stride: int) -> UInt32[Array, "... links p"]:
        place = np.arange(0, self.slots, stride)
        shifts = (place % 32).astype(np.uint32).reshape((1,) * (self.words.ndim - 1) + (-1,))
        return self.words[..., place // 32] >> shifts


def laplacian_features(topology: Topology, count: int) -> np.ndarray:
    """Return the nodes' spectral features, float32 [N, count]; links are treated as undirected."""
    adjacency = np.zeros((topology.num_nodes, topology.num_nodes))
    for source, destination, _ in topology.links:
        adjacency[source, destination] = adjacency[destination, source] = 1.0
    return _smallest_eigenvectors(adjacency, count)


def line_graph_features(topology: Topology, count: int) -> np.ndarray:
    """Return the links' spectral features, float32 [links, count]; adjacent links share a node."""
    ends = np.array(topology.link_ends)
    shared = (ends[:, None, :, None] == ends[None, :, None, :]).any((-1, -2))
    np.fill_diagonal(shared, False)
    return _smallest_eigenvectors(shared.astype(float), count)


def _smallest_eigenvectors(adjacency: np.ndarray, count: int) -> np.ndarray:
    laplacian = np.diag(adjacency.sum(1)) - adjacency
    _, vectors = np.linalg.eigh(laplacian)
    vectors = vectors[:, :count]
    largest = vectors[np.abs(vectors).round(6).argmax(0), np.arange(vectors.shape[1])]
    vectors = vectors * np.where(largest < 0, -1.0, 1.0)
    missing = count - vectors.shape[1]
    return np.pad(vectors, ((0, 0), (0, missing))).astype(np.float32)


Observer = Callable[[OpticalState, OpticalParams], Any]

SPECTRAL_FEATURES = 8


@pytree
class LinkTokens(Pytree):
    position: Float[Array, "... links P"]  # spectral coordinates in the line graph, constant
    # for each slot, its remaining time, whether it is taken, or the capacity left on it
    slots: Float[Array, "... links S"]
    # shares of all traffic that leave and enter the link's two nodes
    marginals: Float[Array, "... links 2"]
    # holding time and bitrate; then, for the candidate paths that use the link, weight by rank and
    # quality (sum 1), share of the k paths, best rank, best quality
    request: Float[Array, "... links C"]
    pair: Int[Array, "..."]  # row of `Routes.pairs`


def make_observer(environment: Network) -> Observer:
    kind = environment.settings.observation
    if kind == "graph":
        return _graph_observer(environment)
    if kind.startswith("link_"):
        return _link_tokens(environment, kind.removeprefix("link_"))
    arrays = {
        "flat": _flat_observation,
        "packed": _packed_observation,
        "deeprmsa": _deeprmsa_observation,
        "paths": _paths_observation,
    }
    return functools.partial(arrays[kind], environment)


def _flat_observation(
    env: Network, state: OpticalState, params: OpticalParams
) -> Float[Array, " n"]:
    """float32 [3 + links * S]: source, bitrate, destination, and the share of each slot in use."""
    request = _raw_request(env, state, params)
    if isinstance(env.resources, SharedLightpaths):
        room, used = env.resources.room(state.held), state.held.used
        slots = used / jnp.maximum(room + used, np.finfo(np.float32).tiny)
    else:
        slots = _slot_occupancy(env, state)
    return jnp.concatenate([request, slots.reshape(-1)])


def _packed_observation(
    env: Network, state: OpticalState, params: OpticalParams
) -> PackedObservation:
    request, words = _raw_request(env, state, params), env.resources.occupancy(state.held)
    return PackedObservation(request, words, env.slots, env.resources.unrolled)


def _raw_request(env: Network, state: OpticalState, params: OpticalParams) -> Float[Array, "3"]:
    source, destination = _request_ends(env, state)
    bitrate = state.request.bitrate * params.bitrate_scale
    return jnp.stack([source.astype(jnp.float32), bitrate, destination.astype(jnp.float32)])


def _deeprmsa_observation(
    env: Network, state: OpticalState, params: OpticalParams
) -> Float[Array, " n"]:
    """float32 [2 N + 1 + 5 K]: end nodes, holding time, path features (Chen et al. 2019)."""
    holding = state.request.holding.astype(jnp.float32) * env.traffic.time_per_tick(params)
    features = _path_features(env, state, env.offers(state, params), params)
    return jnp.concatenate([_one_hot_ends(env, state), holding[None], features.reshape(-1)])


def _paths_observation(
    env: Network, state: OpticalState, params: OpticalParams
) -> Float[Array, " n"]:
    """float32 [2 N + 3 + 8 K + links]: the costs of each path, and each link's free share.

    First come the one-hot end nodes, holding time / its mean, bitrate / the largest bitrate, and
    the share of slots in use. Each path adds the five deeprmsa features, hops / the largest number
    of hops of any path, the link-slots that the service would use / S, and the free share of its
    fullest link. The free share of every link comes last.
    """
    slots = np.float32(env.slots)
    most = np.float32(env.tables.hops.shape[-1])
    offers = env.offers(state, params)
    counts = take(env.tables.hop_counts, state.request.pair)
    exists = (counts > 0).astype(jnp.float32)
    taken = count_bits(env.resources.occupancy(state.held)).astype(jnp.float32)
    free = 1.0 - taken / slots
    hops, fullest = counts.astype(jnp.float32), take(free, offers.hops).min(-1)
    taken_up = hops * offers.need.astype(jnp.float32) / slots
    costs = jnp.stack([hops / most, taken_up, fullest * exists], -1)
    holding, bitrate = _relative_sizes(env, state, params)
    ends, request = _one_hot_ends(env, state), jnp.stack([holding, bitrate, 1.0 - free.mean()])
    of_paths = jnp.concatenate([_path_features(env, state, offers, params), costs], -1)
    return jnp.concatenate([ends, request, of_paths.reshape(-1), free])


def _relative_sizes(
    env: Network, state: OpticalState, params: OpticalParams
) -> tuple[Array, Array]:
    """Return the request's holding time / its mean, and its bitrate / the largest bitrate."""
    mean = params.mean_holding_time / env.traffic.time_per_tick(params)
    holding = state.request.holding.astype(jnp.float32) / mean
    return holding, state.request.bitrate / np.float32(env.largest_bitrate)


def _one_hot_ends(env: Network, state: OpticalState) -> Float[Array, " n"]:
    nodes = env.tables.topology.num_nodes
    return jnp.concatenate([jax.nn.one_hot(end, nodes) for end in _request_ends(env, state)])


def _path_features(
    env: Network, state: OpticalState, offers: Offers, params: OpticalParams
) -> Float[Array, "K 5"]:
    """Return DeepRMSA's five features of each path; they are 0 if the path is missing.

    The features are: size of the first block that fits / slots needed; its start / S; requested
    bitrate / largest bitrate; mean size of free blocks / slots needed; share of free slots. If
    nothing fits, the free block at slot 0 is described (0 if that slot is taken).
    """
    slots, band = env.slots, band_words(env.slots)
    first = first_set(offers.starts)
    start = jnp.where(first == NONE, 0, first)
    upwards = jax.vmap(lambda s: window(len(band), s, jnp.asarray(env.slots)))(start)
    # The block ends at the first slot from its start on that is not free.
    end = first_set(~offers.free & upwards & jnp.broadcast_to(band, offers.free.shape))
    size = jnp.minimum(end, slots) - start
    blocks = count_bits(offers.free & ~shift_up(offers.free))
    free = count_bits(offers.free)
    need = jnp.maximum(offers.need, 1).astype(jnp.float32)
    mean = free.astype(jnp.float32) / jnp.maximum(blocks, 1).astype(jnp.float32)
    exists = (take(env.tables.hop_counts, state.request.pair) > 0).astype(jnp.float32)
    width = np.float32(env.settings.width)
    features = jnp.stack(
        [
            size.astype(jnp.float32) / need,
            start.astype(jnp.float32) / slots,
            need * width / (np.float32(env.largest_bitrate) * params.bitrate_scale),
            mean / need,
            free.astype(jnp.float32) / slots,
        ],
        -1,
    )
    return features * exists[:, None]


def _graph_observer(env: Network) -> Observer:
    """Return an observer whose observations are `jraph.GraphsTuple`s with one graph.

    nodes [N, 8 + 2]: Laplacian eigenvectors, then a column with +1 at the source and one with -1
    at the destination. edges [links, S]: remaining time of each slot / the mean holding time (0 or
    1 if services never end), with undirected links in both directions. globals [1, 1]: bitrate /
    the largest bitrate.
    """
    import jraph

    topology = env.tables.topology
    spectral = laplacian_features(topology, SPECTRAL_FEATURES)
    ends = np.array(topology.link_ends, np.int32)
    senders, receivers = ends[:, 0], ends[:, 1]
    if not topology.directed:
        senders, receivers = np.append(senders, receivers), np.append(receivers, senders)

    def observe(state: OpticalState, params: OpticalParams) -> Any:
        source, destination = _request_ends(env, state)
        start, end = (jax.nn.one_hot(node, topology.num_nodes) for node in (source, destination))
        marks = jnp.stack([start, -end], -1)
        if env.settings.incremental:
            edges = _slot_occupancy(env, state)
        else:
            edges = _time_left(env, state, params)
        share = state.request.bitrate / np.float32(env.largest_bitrate)
        return jraph.GraphsTuple(
            nodes=jnp.concatenate([jnp.asarray(spectral), marks], -1),
            edges=edges if topology.directed else jnp.concatenate([edges, edges]),
            senders=jnp.asarray(senders),
            receivers=jnp.asarray(receivers),
            globals=share.reshape(1, 1),
            n_node=jnp.asarray([topology.num_nodes], jnp.int32),
            n_edge=jnp.asarray([len(senders)], jnp.int32),
        )

    return observe


def _link_tokens(env: Network, kind: str) -> Observer:
    topology = env.tables.topology
    position = line_graph_features(topology, SPECTRAL_FEATURES)
    ends = np.array(topology.link_ends)

    def observe(state: OpticalState, params: OpticalParams) -> LinkTokens:
        if kind == "departure" and not env.settings.incremental:
            slots = _time_left(env, state, params)
        elif kind == "capacity" and isinstance(env.resources, SharedLightpaths):
            mean = np.float32(np.mean(env.traffic.bitrates))
            slots = env.resources.room(state.held) / (100.0 * mean * params.bitrate_scale)
        else:
            slots = _slot_occupancy(env, state)
        leaving, entering = _node_probabilities(env, state)
        marginals = jnp.stack([leaving[ends].sum(-1), entering[ends].sum(-1)], -1)
        request = _relevance_of_links(env, state, params)
        return LinkTokens(jnp.asarray(position), slots, marginals, request, state.request.pair)

    return observe


def _relevance_of_links(
    env: Network, state: OpticalState, params: OpticalParams
) -> Float[Array, "links 6"]:
    links, paths = len(env.tables.km), env.num_paths
    offers = env.offers(state, params)
    exists = take(env.tables.hop_counts, state.request.pair) > 0
    numbers = jnp.arange(links, dtype=jnp.int32)
    on_path = (offers.hops[:, :, None] == numbers[None, None]).any(1) & exists[:, None]
    if env.settings.reuses_lightpaths:
        largest = np.float32(max(env.tables.capacity.max(), 1.0))
        quality = take(env.tables.capacity, state.request.pair) / largest
    else:
        quality = 1.0 / jnp.maximum(offers.need, 1).astype(jnp.float32)
    ranks = jnp.arange(paths, dtype=jnp.int32)[:, None]
    uses = on_path.astype(jnp.float32)
    weighted = (uses * (quality / (ranks[:, 0] + 1).astype(jnp.float32))[:, None]).sum(0)
    best_rank = jnp.where(on_path, ranks, paths).min(0).astype(jnp.float32)
    best_quality = (uses * quality[:, None]).max(0)
    usable = jnp.where(exists, quality, jnp.float32(0.0)).max()
    holding, bitrate = _relative_sizes(env, state, params)
    tiny = np.finfo(np.float32).tiny
    return jnp.stack(
        [
            jnp.broadcast_to(holding, (links,)),
            jnp.broadcast_to(bitrate, (links,)),
            weighted / jnp.maximum(weighted.sum(), tiny),
            uses.sum(0) / paths,
            1.0 - best_rank / paths,
            best_quality / jnp.maximum(usable, tiny),
        ],
        -1,
    )


def _request_ends(env: Network, state: OpticalState) -> tuple[Array, Array]:
    ends = take(env.tables.paths.pairs, state.request.pair)
    return ends[0], ends[1]


def _slot_occupancy(env: Network, state: OpticalState) -> Float[Array, "links S"]:
    return unpack(env.resources.occupancy(state.held), env.slots).astype(jnp.float32)


def _time_left(
    env: Network, state: OpticalState, params: OpticalParams
) -> Float[Array, "links S"]:
    per_tick = env.traffic.time_per_tick(params) / params.mean_holding_time
    return env.resources.ticks(state.held).astype(jnp.float32) * per_tick


def _node_probabilities(env: Network, state: OpticalState) -> tuple[Array, Array]:
    pairs, nodes = env.tables.paths.pairs, env.tables.topology.num_nodes
    if state.shares is not None:
        weights = jnp.diff(state.shares, prepend=jnp.zeros(1))
    else:
        assert env.traffic.weights is not None
        weights = jnp.asarray(env.traffic.weights, jnp.float32)
    both = [jnp.zeros(nodes).at[pairs[:, column]].add(weights) for column in (0, 1)]
    if not env.settings.directed:  # a pair covers both directions
        both = [(both[0] + both[1]) / 2.0] * 2
    return both[0], both[1]
