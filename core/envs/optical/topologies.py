"""Networks by name, and the `Topology` that everything else reads.

Links are sorted by (source, destination) node *position*; a directed topology has one link per
direction, each with its own spectrum, an undirected one shares a single link.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from ....errors import ConfigError, UnknownNameError
from .topology_tables import TABLES

if TYPE_CHECKING:  # networkx costs 0.2 s to import and is needed only to search paths
    import networkx

__all__ = ["NodeId", "Topology", "make_topology", "topology_names"]

NodeId = int | str


@dataclass(frozen=True)
class Topology:
    """A connected network with link lengths in km.

    Attributes:
        name: what it was asked for as.
        node_ids: the ids its makers gave the nodes, [N]; inside, a node is its position here.
        arcs: (source position, destination position, km) in the order of the table or file.
            An undirected topology lists each link once, a directed one once per direction.
        directed: whether each direction has a link, and so a spectrum, of its own.
    """

    name: str
    node_ids: tuple[NodeId, ...]
    arcs: tuple[tuple[int, int, float], ...]
    directed: bool

    @property
    def num_nodes(self) -> int:
        """N."""
        return len(self.node_ids)

    @property
    def num_links(self) -> int:
        """Links with a spectrum of their own."""
        return len(self.arcs)

    @cached_property
    def links(self) -> tuple[tuple[int, int, float], ...]:
        """(source, destination, km) in link order: sorted by (source, destination) position.

        An undirected link is listed with its smaller position first.
        """
        arcs = self.arcs if self.directed else [(*sorted(a[:2]), a[2]) for a in self.arcs]
        return tuple(sorted((int(u), int(v), float(km)) for u, v, km in arcs))

    @cached_property
    def link_index(self) -> dict[tuple[int, int], int]:
        """Link number by (source, destination) position, both orders when undirected."""
        index = {(u, v): number for number, (u, v, _) in enumerate(self.links)}
        if not self.directed:
            index |= {(v, u): number for (u, v), number in index.items()}
        return index

    def graph(self) -> networkx.Graph:
        """The networkx graph over the published ids, neighbours in the order of the table."""
        import networkx as nx

        graph = nx.DiGraph() if self.directed else nx.Graph()
        graph.add_nodes_from(self.node_ids)
        for source, destination, km in self.arcs:
            graph.add_edge(self.node_ids[source], self.node_ids[destination], km=km)
        return graph


def topology_names() -> tuple[str, ...]:
    """The names `make_topology` knows, sorted.

    >>> topology_names()[0]
    '5node'
    """
    return tuple(sorted(TABLES))


@lru_cache(maxsize=64)
def make_topology(name: str, directed: bool = True) -> Topology:
    """Return the topology of a name, or of a `.json` or `.graphml` file.

    Args:
        name: one of `topology_names()`, or the path of a node-link JSON or GraphML file.
        directed: a link (and spectrum) per direction, or one for both.

    Raises:
        UnknownNameError: no such name.
        ConfigError: the file is missing or describes no usable network.

    >>> make_topology("ring4", directed=False).num_links
    4
    """
    if name in TABLES:
        return _from_table(name, directed)
    if Path(name).suffix.lower() in (".json", ".graphml", ".xml"):
        from .topology_files import read_topology

        return read_topology(Path(name), directed)
    for ending in ("_directed", "_undirected"):
        if name.endswith(ending) and name.removesuffix(ending) in TABLES:
            raise ConfigError(
                f"unknown topology {name!r}; type topology: {name.removesuffix(ending)} and "
                f"directed: {str(ending == '_directed').lower()}"
            )
    network = name.lower().split("_")[0]
    namesakes = [known for known in TABLES if known.split("_")[0] == network]
    if namesakes:
        raise ConfigError(f"unknown topology {name!r}; did you mean {' or '.join(namesakes)}?")
    raise UnknownNameError("topology", name, (*TABLES, "FILE.json", "FILE.graphml"))


def _from_table(name: str, directed: bool) -> Topology:
    edges = []
    for entry in TABLES[name].split():
        ends, km = entry.split(":")
        source, destination = ends.split("-")
        edges.append((int(source), int(destination), float(km)))
    node_ids = tuple(sorted({node for edge in edges for node in edge[:2]}))
    position = {node: number for number, node in enumerate(node_ids)}
    arcs = [(position[u], position[v], km) for u, v, km in edges]
    if directed:  # all edges one way first, then all the other way: the published neighbour order
        arcs += [(v, u, km) for u, v, km in arcs]
    return Topology(name, node_ids, tuple(arcs), directed)
