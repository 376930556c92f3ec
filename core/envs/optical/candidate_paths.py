"""Candidate paths of every node pair, computed once on the host and cached.

The candidates are the first k of networkx's `shortest_simple_paths`; their order decides what a
first-fit heuristic prefers, so every tie is broken by a written rule and not by luck.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice, pairwise
from typing import Any

import numpy as np

from ....errors import ConfigError, UnknownNameError
from .modulation import Format, spectral_efficiency
from .topology import NodeId, Topology

PATH_ORDERS = ("spectral_resources", "hops", "distance", "hops_distance", "capacity")
"""Criteria by which the k candidates of a pair are sorted, ascending."""

Path = tuple[NodeId, ...]


@dataclass(frozen=True, eq=False)
class PathTable:
    """Arrays over all pairs (R pairs in row order of `pair_index`) and their K candidate paths.

    Attributes:
        nodes: node positions of each path, nested [R][K]; () where a pair has fewer paths.
        pairs: int32 [R, 2], source and destination position.
        hops: int32 [R, K, H], link numbers, padded with the number of links.
        lengths: float64 [R, K], km; 0 where missing.
        efficiency: float64 [R, K], bit/s/Hz (1 without modulation); 1 where missing.
        capacity: float64 [R, K], Gb/s of a lightpath, 0 where missing or not asked for.
        exists: bool [R, K].
        num_links: links of the topology.
    """

    nodes: tuple[tuple[tuple[int, ...], ...], ...]
    pairs: np.ndarray
    hops: np.ndarray
    lengths: np.ndarray
    efficiency: np.ndarray
    capacity: np.ndarray
    exists: np.ndarray
    num_links: int

    @property
    def hop_counts(self) -> np.ndarray:
        """Links of each path, int32 [R, K]."""
        return (self.hops < self.num_links).sum(-1).astype(np.int32)


def pair_index(source: int, destination: int, num_nodes: int, directed: bool) -> int:
    """Row of a pair: all (s, d) with s < d first, then, if directed, all (d, s) in that order.

    >>> [pair_index(s, d, 3, True) for s, d in ((0, 1), (0, 2), (1, 2), (1, 0), (2, 0), (2, 1))]
    [0, 1, 2, 3, 4, 5]
    """
    low, high = sorted((source, destination))
    row = num_nodes * low + high - low * (low - 1) // 2 - 2 * low - 1
    backward = directed and source > destination
    return row + (num_nodes * (num_nodes - 1) // 2 if backward else 0)


@lru_cache(maxsize=32)
def make_path_table(
    topology: Topology,
    k: int,
    order: str = "spectral_resources",
    disjoint: bool = False,
    formats: tuple[Format, ...] | None = None,
    capacity: Callable[[float], float] | None = None,
) -> PathTable:
    """Find and sort the k candidate paths of every pair.

    Args:
        topology: the network.
        k: candidates a pair; pairs with fewer simple paths are padded, and that is said once.
        order: one of `PATH_ORDERS`. The candidate *set* is the k paths of fewest hops, or of
            fewest km for `distance`; the order only sorts it.
        disjoint: fill the set with edge-disjoint paths first, then with the k shortest.
        formats: modulation formats; None gives efficiency 1 everywhere.
        capacity: Gb/s of a lightpath by its km; given for lightpath reuse only.

    Raises:
        UnknownNameError: no such order.
        ConfigError: k below 1.
    """
    if order not in PATH_ORDERS:
        raise UnknownNameError("path_order", order, PATH_ORDERS)
    if k < 1:
        raise ConfigError(f"k is {k}; it is the number of candidate paths, 1 or more")
    finder = _Finder(topology, k, order, disjoint, formats, capacity)
    halves = [(s, d) for s in range(topology.num_nodes) for d in range(s + 1, topology.num_nodes)]
    pairs = halves + [(d, s) for s, d in halves] if topology.directed else halves
    nodes = tuple(finder.candidates(source, destination) for source, destination in pairs)
    short = sum(len(paths) < k for paths in nodes)
    if short:
        warnings.warn(
            f"{topology.name}: {short} of {len(nodes)} node pairs have fewer than k={k} simple "
            "paths; the missing ones are never valid actions",
            stacklevel=2,
        )
    return finder.table(pairs, nodes)


@dataclass(frozen=True)
class _Finder:
    """The path search of one topology with its criteria."""

    topology: Topology
    k: int
    order: str
    disjoint: bool
    formats: tuple[Format, ...] | None
    capacity: Callable[[float], float] | None

    @cached_property
    def graph(self) -> Any:
        """The networkx graph that is searched."""
        return _graph(self.topology)

    def candidates(self, source: int, destination: int) -> tuple[tuple[int, ...], ...]:
        """Return the sorted candidate paths of a pair as node positions."""
        ids = self.topology.node_ids
        position = {node: number for number, node in enumerate(ids)}
        paths = self._search(ids[source], ids[destination])
        paths.sort(key=lambda path: (self._search_weight(path), len(path), _fingerprint(path)))
        paths.sort(key=self._criterion)  # stable: the line above breaks its ties
        return tuple(tuple(position[node] for node in path) for path in paths)

    def _search(self, source: NodeId, destination: NodeId) -> list[Path]:
        by_km = self.order == "distance"
        if not self.disjoint:
            return list(_shortest(self.topology, source, destination, self.k, by_km))
        import networkx as nx

        shortest = _shortest_paths(self.graph, source, destination, by_km)
        apart = [tuple(path) for path in nx.edge_disjoint_paths(self.graph, source, destination)]
        apart.sort(key=lambda path: (self._search_weight(path), len(path), _fingerprint(path)))
        chosen = dict.fromkeys(apart[: self.k])
        for path in shortest:
            if len(chosen) == self.k:
                break
            chosen.setdefault(path)
        return list(chosen)

    def _search_weight(self, path: Path) -> float:
        return self._km(path) if self.order == "distance" else float(len(path) - 1)

    def _criterion(self, path: Path) -> tuple[float, ...]:
        hops, km = float(len(path) - 1), self._km(path)
        if self.order == "hops":
            return (hops,)
        if self.order == "distance":
            return (km,)
        if self.order == "hops_distance":
            return (hops, km)
        if self.capacity is not None:
            gigabits = self.capacity(km)
            return (gigabits,) if self.order == "capacity" else (hops / max(gigabits, 1.0),)
        efficiency = self._efficiency(km)
        return (efficiency,) if self.order == "capacity" else (hops / max(efficiency, 1.0),)

    def _km(self, path: Path) -> float:
        return sum(self.graph[u][v]["km"] for u, v in pairwise(path))

    def _efficiency(self, km: float) -> float:
        return 1.0 if self.formats is None else spectral_efficiency(self.formats, km)

    def table(
        self, pairs: Sequence[tuple[int, int]], nodes: tuple[tuple[tuple[int, ...], ...], ...]
    ) -> PathTable:
        """Lay the found paths out as arrays."""
        longest = max(len(path) - 1 for paths in nodes for path in paths)
        shape = (len(pairs), self.k)
        hops = np.full((*shape, longest), self.topology.num_links, np.int32)
        lengths, efficiency, capacity = np.zeros(shape), np.ones(shape), np.zeros(shape)
        exists = np.zeros(shape, bool)
        kms = [km for _, _, km in self.topology.links]
        for row, paths in enumerate(nodes):
            for column, path in enumerate(paths):
                links = [self.topology.link_index[hop] for hop in pairwise(path)]
                hops[row, column, : len(links)] = links
                km = sum(kms[link] for link in links)
                exists[row, column], lengths[row, column] = True, km
                efficiency[row, column] = self._efficiency(km)
                capacity[row, column] = self.capacity(km) if self.capacity else 0.0
        arrays = (np.array(pairs, np.int32), hops, lengths, efficiency, capacity, exists)
        for array in arrays:
            array.setflags(write=False)  # cached and shared: nobody may change it
        return PathTable(nodes, *arrays, num_links=self.topology.num_links)


@lru_cache(maxsize=65_536)
def _shortest(
    topology: Topology, source: NodeId, destination: NodeId, k: int, by_km: bool
) -> tuple[Path, ...]:
    """Return the first k paths of a pair: the same set for all orders but `distance`."""
    found = _shortest_paths(_graph(topology), source, destination, by_km)
    return tuple(islice(found, k))


@lru_cache(maxsize=8)
def _graph(topology: Topology) -> Any:
    return topology.graph()


def _shortest_paths(
    graph: Any, source: NodeId, destination: NodeId, by_km: bool
) -> Iterator[Path]:
    """Return all simple paths of a pair, by km or by hops."""
    import networkx as nx

    weight = "km" if by_km else None
    return (tuple(path) for path in nx.shortest_simple_paths(graph, source, destination, weight))


def _fingerprint(path: Path) -> int:
    return int(hashlib.sha256(str(list(path)).encode()).hexdigest(), 16)
