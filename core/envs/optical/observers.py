"""What a policy sees: flat bits, deeprmsa's path features, a graph, or one token per link.

Every observation is finite from the first request on, node numbers count from 0, and times are
fractions of the mean holding time (deeprmsa's holding time excepted, which is in units of time).
"""

from __future__ import annotations

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

# A number of four bits, times the first, has each of them at the end of a byte of its own.
_APART, _FOUR_BITS, _A_BIT_A_BYTE = (np.uint32(x) for x in (0x00204081, 0xF, 0x01010101))


@pytree
class PackedObservation(Pytree):
    """The flat observation in a twenty-fifth of the memory; `as_vector` gives the floats back.

    A rollout of flat observations spends more time moving them than the environment takes to step.

    Attributes:
        request: source, bitrate, destination; float32 [3].
        words: bits of the slots in use; uint32 [links, W].
        slots: S, of which each link has a bit.
        unrolled: it is expanded number by number, in one kernel of a GPU, not word by word.
    """

    request: Float[Array, "... 3"]
    words: UInt32[Array, "... links W"]
    slots: int = static()
    unrolled: bool = static(default=False)

    @property
    def lead(self) -> tuple[int, ...]:
        """The leading axes."""
        return self.request.shape[:-1]

    def as_vector(self) -> Float[Array, "... n"]:
        """Return the flat observation, float32 [..., 3 + links * S], for any leading axes."""
        if self.unrolled:
            return self._number_by_number()
        flags = unpack(self.words, self.slots).astype(jnp.float32)
        return jnp.concatenate([self.request, flags.reshape(*self.lead, -1)], -1)

    def _number_by_number(self) -> Float[Array, "... n"]:
        # On a GPU a concatenation asks every number which of its parts it is from.
        place = np.arange(self.slots)
        flags = (self._words_of(place) >> self._shifts(place)) & ONE
        flags = flags.astype(jnp.float32).reshape((*self.lead, -1))
        lead = ((0, 0),) * (flags.ndim - 1)
        behind = jnp.pad(flags, (*lead, (self.request.shape[-1], 0)))
        return behind + jnp.pad(self.request, (*lead, (0, flags.shape[-1])))

    def as_flags(self) -> Flagged:
        """Return the flat observation as numbers and flags, for any leading axes.

        On a GPU bytes take a quarter of the time to write that floats do, and a quarter of that
        where four of them are made at once, as one word.
        """
        lead = self.lead
        if self.slots % 4:
            place = np.arange(self.slots)
            flags = ((self._words_of(place) >> self._shifts(place)) & ONE).astype(jnp.int8)
            return Flagged(self.request, flags.reshape((*lead, -1)))
        place = np.arange(0, self.slots, 4)
        four = (self._words_of(place) >> self._shifts(place)) & _FOUR_BITS
        four = ((four * _APART) & _A_BIT_A_BYTE).reshape((*lead, -1))
        flags = jax.lax.bitcast_convert_type(four, jnp.int8).reshape((*lead, -1))
        return Flagged(self.request, flags)

    def _words_of(self, place: np.ndarray) -> UInt32[Array, "... links p"]:
        return self.words[..., place // 32]

    def _shifts(self, place: np.ndarray) -> np.ndarray:
        return (place % 32).astype(np.uint32).reshape((1,) * (self.words.ndim - 1) + (-1,))


def laplacian_features(topology: Topology, count: int) -> np.ndarray:
    """Return float32 [N, count] from the graph of the nodes, links taken as undirected."""
    adjacency = np.zeros((topology.num_nodes, topology.num_nodes))
    for source, destination, _ in topology.links:
        adjacency[source, destination] = adjacency[destination, source] = 1.0
    return _smallest_eigenvectors(adjacency, count)


def line_graph_features(topology: Topology, count: int) -> np.ndarray:
    """float32 [links, count] from the line graph, where links that share a node are neighbours."""
    ends = np.array([link[:2] for link in topology.links])
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
    """One row per link; a network joins the columns it wants (the critic leaves `request` out).

    Attributes:
        position: spectral coordinates in the line graph, constant; float32 [links, 8].
        slots: of each slot the time left, whether it is taken, or the capacity left on it;
            float32 [links, S].
        marginals: share of all traffic that leaves, and that enters, the link's two ends;
            float32 [links, 2].
        request: of the current request; float32 [links, 6]: holding time, bitrate, then four
            columns of the candidate paths over the link (weighted by rank and quality and summing
            to 1, share of the k paths, best rank, best quality).
        pair: number of the request's source and destination (`Routes.pairs`); int32 [].
    """

    position: Float[Array, "... links P"]
    slots: Float[Array, "... links S"]
    marginals: Float[Array, "... links 2"]
    request: Float[Array, "... links C"]
    pair: Int[Array, "..."]


def make_observer(environment: Network) -> Observer:
    """Return the observation function that the environment's settings name."""
    kind = environment.settings.observation
    if kind == "flat":
        return _flat(environment)
    if kind == "packed":
        return _packed(environment)
    if kind == "deeprmsa":
        return _deeprmsa(environment)
    if kind == "paths":
        return _paths(environment)
    if kind == "graph":
        return _graph(environment)
    return _link_tokens(environment, kind.removeprefix("link_"))


def _flat(env: Network) -> Observer:
    """float32 [3 + links * S]: source, bitrate, destination, then how full each slot is.

    A slot is 0 or 1; where lightpaths are shared it is the used part of the lightpath's capacity.
    """

    def observe(state: OpticalState, params: OpticalParams) -> Float[Array, " n"]:
        request = _raw_request(env, state, params)
        return jnp.concatenate([request, _fullness(env, state).reshape(-1)])

    return observe


def _packed(env: Network) -> Observer:
    """`PackedObservation`, one bit a slot."""

    def observe(state: OpticalState, params: OpticalParams) -> PackedObservation:
        return PackedObservation(
            _raw_request(env, state, params),
            env.resources.occupancy(state.held),
            env.slots,
            env.resources.unrolled,
        )

    return observe


def _raw_request(env: Network, state: OpticalState, params: OpticalParams) -> Float[Array, "3"]:
    source, destination = _ends(env, state)
    bitrate = state.request.bitrate * params.bitrate_scale
    return jnp.stack([source.astype(jnp.float32), bitrate, destination.astype(jnp.float32)])


def _deeprmsa(env: Network) -> Observer:
    """float32 [2 N + 1 + 5 K]: one-hot ends, holding time, five features of each path.

    Chen et al., "DeepRMSA", JLT 37(16), 2019; see `_path_features`.
    """
    features = _path_features(env)

    def observe(state: OpticalState, params: OpticalParams) -> Float[Array, " n"]:
        holding = state.request.holding.astype(jnp.float32) * env.traffic.time_per_tick(params)
        offers = env.offers(state, params)
        described = features(state, offers, params)
        return jnp.concatenate([_one_hot_ends(env, state), holding[None], described.reshape(-1)])

    return observe


def _paths(env: Network) -> Observer:
    """float32 [2 N + 3 + 8 K + links]: what a choice of path costs, and how full the network is.

    One-hot ends; holding time over its mean, bitrate over the largest, share of slots in use; of
    each path the five features of deeprmsa, then hops over the most of any path, the link-slots
    that the service would take over S, and the free share of its fullest link; the free share of
    every link.
    """
    features, slots = _path_features(env), np.float32(env.slots)
    most = np.float32(env.tables.hops.shape[-1])

    def observe(state: OpticalState, params: OpticalParams) -> Float[Array, " n"]:
        offers = env.offers(state, params)
        counts = take(env.tables.hop_counts, state.request.pair)
        exists = (counts > 0).astype(jnp.float32)
        taken = count_bits(env.resources.occupancy(state.held)).astype(jnp.float32)
        free = 1.0 - taken / slots
        hops = counts.astype(jnp.float32)
        costs = jnp.stack(
            [
                hops / most,
                hops * offers.need.astype(jnp.float32) / slots,
                take(free, offers.hops).min(-1) * exists,
            ],
            -1,
        )
        mean = params.mean_holding_time / env.traffic.time_per_tick(params)
        request = [
            state.request.holding.astype(jnp.float32) / mean,
            state.request.bitrate / np.float32(env.largest_bitrate),
            1.0 - free.mean(),
        ]
        return jnp.concatenate(
            [
                _one_hot_ends(env, state),
                jnp.stack(request),
                jnp.concatenate([features(state, offers, params), costs], -1).reshape(-1),
                free,
            ]
        )

    return observe


def _one_hot_ends(env: Network, state: OpticalState) -> Float[Array, " n"]:
    nodes = env.tables.topology.num_nodes
    return jnp.concatenate([jax.nn.one_hot(end, nodes) for end in _ends(env, state)])


def _path_features(
    env: Network,
) -> Callable[[OpticalState, Offers, OpticalParams], Float[Array, "K 5"]]:
    """DeepRMSA's five features of each path, 0 where it is missing.

    Size of the first block that fits over the need, its start / S, need in bitrate over the
    largest bitrate, mean free block over the need, free share. Where nothing fits, the free block
    at slot 0 is described (0 if that slot is taken).
    """
    slots, band = env.slots, band_words(env.slots)

    def describe(
        state: OpticalState, offers: Offers, params: OpticalParams
    ) -> Float[Array, "K 5"]:
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

    return describe


def _graph(env: Network) -> Observer:
    """A `jraph.GraphsTuple` of one graph.

    nodes [N, 8 + 2]: Laplacian eigenvectors, then +1 at the source and -1 at the destination in a
    column each; edges [links, S]: time left of each slot over the mean holding time (whether it is
    taken, where services never end), undirected links once each way; globals [1, 1]: bitrate over
    the largest bitrate.
    """
    import jraph

    topology = env.tables.topology
    spectral = laplacian_features(topology, SPECTRAL_FEATURES)
    ends = np.array([link[:2] for link in topology.links], np.int32)
    senders, receivers = ends[:, 0], ends[:, 1]
    if not topology.directed:
        senders, receivers = np.append(senders, receivers), np.append(receivers, senders)

    def observe(state: OpticalState, params: OpticalParams) -> Any:
        source, destination = _ends(env, state)
        marks = jnp.stack(
            [
                jax.nn.one_hot(source, topology.num_nodes),
                -jax.nn.one_hot(destination, topology.num_nodes),
            ],
            -1,
        )
        edges = (
            _occupancy(env, state) if env.settings.incremental else _time_left(env, state, params)
        )
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
    """`LinkTokens` whose slots show departure, occupancy or capacity."""
    topology = env.tables.topology
    position = line_graph_features(topology, SPECTRAL_FEATURES)
    ends = np.array([link[:2] for link in topology.links])

    def observe(state: OpticalState, params: OpticalParams) -> LinkTokens:
        if kind == "departure" and not env.settings.incremental:
            slots = _time_left(env, state, params)
        elif kind == "capacity" and isinstance(env.resources, SharedLightpaths):
            mean = np.float32(np.mean(env.traffic.bitrates))
            slots = env.resources.room(state.held) / (100.0 * mean * params.bitrate_scale)
        else:
            slots = _occupancy(env, state)
        leaving, entering = _marginals(env, state)
        marginals = jnp.stack([leaving[ends].sum(-1), entering[ends].sum(-1)], -1)
        request = _relevance(env, state, params)
        return LinkTokens(jnp.asarray(position), slots, marginals, request, state.request.pair)

    return observe


def _relevance(
    env: Network, state: OpticalState, params: OpticalParams
) -> Float[Array, "links 6"]:
    """Columns of `LinkTokens.request`: what the current request has to do with each link."""
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
    mean = params.mean_holding_time / env.traffic.time_per_tick(params)
    holding = state.request.holding.astype(jnp.float32) / mean
    bitrate = state.request.bitrate / np.float32(env.largest_bitrate)
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


def _ends(env: Network, state: OpticalState) -> tuple[Array, Array]:
    """Return node numbers of the current source and destination."""
    ends = take(env.tables.paths.pairs, state.request.pair)
    return ends[0], ends[1]


def _occupancy(env: Network, state: OpticalState) -> Float[Array, "links S"]:
    words = env.resources.occupancy(state.held)
    return unpack(words, env.slots).astype(jnp.float32)


def _fullness(env: Network, state: OpticalState) -> Float[Array, "links S"]:
    if not isinstance(env.resources, SharedLightpaths):
        return _occupancy(env, state)
    room, used = env.resources.room(state.held), state.held.used
    return used / jnp.maximum(room + used, np.finfo(np.float32).tiny)


def _time_left(
    env: Network, state: OpticalState, params: OpticalParams
) -> Float[Array, "links S"]:
    """Return time left of each slot over the mean holding time."""
    per_tick = env.traffic.time_per_tick(params) / params.mean_holding_time
    return env.resources.ticks(state.held).astype(jnp.float32) * per_tick


def _marginals(env: Network, state: OpticalState) -> tuple[Array, Array]:
    """Return shares of traffic by source and by destination node, float32 [N] each."""
    pairs, nodes = env.tables.paths.pairs, env.tables.topology.num_nodes
    if state.shares is not None:
        weights = jnp.diff(state.shares, prepend=jnp.zeros(1))
    else:
        assert env.traffic.weights is not None
        weights = jnp.asarray(env.traffic.weights, jnp.float32)
    both = [jnp.zeros(nodes).at[pairs[:, column]].add(weights) for column in (0, 1)]
    if not env.settings.directed:  # a pair stands for both ways
        both = [(both[0] + both[1]) / 2.0] * 2
    return both[0], both[1]
