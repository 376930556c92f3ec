"""A network of nodes and links: the `Topology` that everything else reads.

Links are sorted by (source, destination) node *position*; a directed topology has one link per
direction, each with its own spectrum, an undirected one shares a single link.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # networkx costs 0.2 s to import and is needed only to search paths
    import networkx

__all__ = ["NodeId", "Topology"]

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

    def graph(self) -> networkx.Graph[NodeId]:
        """The networkx graph over the published ids, neighbours in the order of the table."""
        import networkx as nx

        graph = nx.DiGraph() if self.directed else nx.Graph()
        graph.add_nodes_from(self.node_ids)
        for source, destination, km in self.arcs:
            graph.add_edge(self.node_ids[source], self.node_ids[destination], km=km)
        return graph
