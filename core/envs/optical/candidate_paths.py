"""Candidate paths for every node pair, computed once on the host and cached.

The candidates are the first k of networkx's `shortest_simple_paths`, which depend on the order of
nodes and links in the network's file. They are then sorted by `path_order`. Ties are broken by
length and by a hash of the node numbers. First-fit heuristics try the paths in this order. Nodes
are numbered in file order (see `Topology.first_number`), so their names have no effect.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, islice, pairwise
from typing import Any

import numpy as np

from ....errors import ConfigError, UnknownNameError
from .modulation import Format, spectral_efficiency
from .topology import Topology

# Criteria by which the k candidates of a pair are sorted, ascending
PATH_ORDERS = ("spectral_resources", "hops", "distance", "hops_distance", "capacity")

Path = tuple[int, ...]  # node numbers


@dataclass(frozen=True, eq=False)
class PathTable:
    """Arrays over all R pairs (in the row order of `pair_index`) and their K candidate paths."""

    # node positions of each path, nested [R][K]; () where a pair has fewer paths
    nodes: tuple[tuple[tuple[int, ...], ...], ...]
    pairs: np.ndarray  # int32 [R, 2], source and destination position
    hops: np.ndarray  # int32 [R, K, H], link numbers, padded with the number of links
    hop_counts: np.ndarray  # int32 [R, K], 0 where missing
    lengths: np.ndarray  # float64 [R, K], km; 0 where missing
    efficiency: np.ndarray  # float64 [R, K], bit/s/Hz (1 without modulation); 1 where missing
    capacity: np.ndarray  # float64 [R, K], Gb/s of a lightpath; 0 where missing or not requested


def pair_index(source: int, destination: int, num_nodes: int, directed: bool) -> int:
    """Return a pair's row: first all (s, d) with s < d, then all (d, s) if links are directed.

    >>> [pair_index(s, d, 3, True) for s, d in ((0, 1), (0, 2), (1, 2), (1, 0), (2, 0), (2, 1))]
    [0, 1, 2, 3, 4, 5]
    """
    low, high = sorted((source, destination))
    row = num_nodes * low + high - low * (low - 1) // 2 - 2 * low - 1
    if directed and source > destination:
        row += num_nodes * (num_nodes - 1) // 2
    return row


@lru_cache(maxsize=32)
def make_path_table(
    topology: Topology,
    k: int,
    order: str = "spectral_resources",
    *,
    disjoint: bool = False,
    formats: tuple[Format, ...] | None = None,
    capacity: Callable[[float], float] | None = None,
) -> PathTable:
    if order not in PATH_ORDERS:
        raise UnknownNameError("path_order", order, PATH_ORDERS)
    if k < 1:
        raise ConfigError(f"k is {k}; allowed: 1 or more candidate paths")
    finder = _Finder(topology, k, order, disjoint, formats, capacity)
    pairs = list(combinations(range(topology.num_nodes), 2))
    if topology.directed:
        pairs += [(destination, source) for source, destination in pairs]
    nodes = tuple(finder.candidates(source, destination) for source, destination in pairs)
    short = sum(len(paths) < k for paths in nodes)
    if short:
        warnings.warn(
            f"{topology.name}: {short} of {len(nodes)} node pairs have fewer than k={k} simple "
            "paths; missing paths are never valid actions",
            stacklevel=2,
        )
    return finder.table(pairs, nodes)


@dataclass(frozen=True)
class _Finder:
    topology: Topology
    k: int
    order: str
    disjoint: bool
    formats: tuple[Format, ...] | None
    capacity: Callable[[float], float] | None

    def candidates(self, source: int, destination: int) -> tuple[tuple[int, ...], ...]:
        first = self.topology.first_number
        paths = self._find_paths(source + first, destination + first)
        paths.sort(key=self._tie_break)
        paths.sort(key=self._sort_key)  # stable: the order above breaks ties

        def from_zero(path: Path) -> tuple[int, ...]:
            return tuple(number - first for number in path)

        return tuple(map(from_zero, paths))

    def _find_paths(self, source: int, destination: int) -> list[Path]:
        by_km = self.order == "distance"
        if not self.disjoint:
            return list(_k_shortest_paths(self.topology, source, destination, self.k, by_km))
        import networkx as nx

        disjoint = map(tuple, nx.edge_disjoint_paths(self.topology.graph, source, destination))
        chosen = dict.fromkeys(sorted(disjoint, key=self._tie_break)[: self.k])
        for path in _shortest_paths(self.topology.graph, source, destination, by_km):
            if len(chosen) == self.k:
                break
            chosen.setdefault(path)
        return list(chosen)

    def _tie_break(self, path: Path) -> tuple[float, int, int]:
        weight = float(len(path) - 1)
        if self.order == "distance":
            weight = self._path_km(path)
        fingerprint = hashlib.sha256(str(list(path)).encode()).hexdigest()
        return weight, len(path), int(fingerprint, 16)

    def _sort_key(self, path: Path) -> tuple[float, ...]:
        hops, km = float(len(path) - 1), self._path_km(path)
        if self.order == "hops":
            return (hops,)
        if self.order == "distance":
            return (km,)
        if self.order == "hops_distance":
            return (hops, km)
        carried = self._spectral_efficiency(km)
        if self.capacity is not None:
            carried = self.capacity(km)
        if self.order == "capacity":
            return (carried,)
        return (hops / max(carried, 1.0),)

    def _path_km(self, path: Path) -> float:
        return sum(self.topology.graph[u][v]["km"] for u, v in pairwise(path))

    def _spectral_efficiency(self, km: float) -> float:
        if self.formats is None:
            return 1.0
        return spectral_efficiency(self.formats, km)

    def table(
        self, pairs: Sequence[tuple[int, int]], nodes: tuple[tuple[tuple[int, ...], ...], ...]
    ) -> PathTable:
        longest = max(len(path) - 1 for paths in nodes for path in paths)
        shape = (len(pairs), self.k)
        hops = np.full((*shape, longest), self.topology.num_links, np.int32)
        lengths, efficiency, capacity = np.zeros(shape), np.ones(shape), np.zeros(shape)
        counts = np.zeros(shape, np.int32)
        kms = self.topology.link_kms
        for row, paths in enumerate(nodes):
            for column, path in enumerate(paths):
                links = [self.topology.link_index[hop] for hop in pairwise(path)]
                hops[row, column, : len(links)] = links
                km = sum(kms[link] for link in links)
                counts[row, column], lengths[row, column] = len(links), km
                efficiency[row, column] = self._spectral_efficiency(km)
                if self.capacity is not None:
                    capacity[row, column] = self.capacity(km)
        arrays = (np.array(pairs, np.int32), hops, counts, lengths, efficiency, capacity)
        for array in arrays:
            array.setflags(write=False)  # cached and shared
        return PathTable(nodes, *arrays)


@lru_cache(maxsize=65_536)
def _k_shortest_paths(
    topology: Topology, source: int, destination: int, k: int, by_km: bool
) -> tuple[Path, ...]:
    return tuple(islice(_shortest_paths(topology.graph, source, destination, by_km), k))


def _shortest_paths(graph: Any, source: int, destination: int, by_km: bool) -> Iterator[Path]:
    import networkx as nx

    weight = None
    if by_km:
        weight = "km"
    return (tuple(path) for path in nx.shortest_simple_paths(graph, source, destination, weight))
