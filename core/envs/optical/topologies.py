"""Networks by name: published link tables, small rings, and the `Topology` everything else reads.

Links are sorted by (source, destination) node *position*; a directed topology has one link per
direction, each with its own spectrum, an undirected one shares a single link.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from ....errors import ConfigError, UnknownNameError

if TYPE_CHECKING:  # networkx costs 0.2 s to import and is needed only to search paths
    import networkx

__all__ = ["NodeId", "Topology", "make_topology", "topology_names"]

NodeId = int | str

# Each entry is `u-v:km`, ids as published; the order of the entries fixes how ties between
# equally short paths are broken, because the path search walks neighbours in this order.
NSFNET_DEEPRMSA = """1-2:1050 1-3:1500 1-8:2400 2-3:600 2-4:750 3-6:1800 4-5:600 4-11:1950
5-6:1200 5-7:600 6-10:1050 6-14:1800 7-8:750 7-10:1350 8-9:750 9-10:750 9-12:300 9-13:300
11-12:600 11-13:750 12-14:300 13-14:150"""
COST239_DEEPRMSA = """1-2:900 1-3:780 1-4:1100 1-8:2620 2-3:600 2-5:800 2-6:1200 2-7:1640 2-9:2180
3-4:420 3-5:440 3-7:1860 4-5:780 4-8:1520 4-9:1320 5-6:700 5-10:1460 6-7:640 6-10:1130 6-11:1460
7-11:1640 8-9:780 8-10:1480 9-10:680 9-11:1320 10-11:640"""
USNET_GCNRNN = """1-2:252 1-6:364 2-3:216 2-6:360 3-4:276 3-5:432 3-7:304 4-5:220 4-7:280 5-8:368
6-7:292 6-9:360 6-11:572 7-8:464 7-9:328 8-10:272 9-10:440 9-11:364 9-12:320 10-13:320 10-14:268
11-12:288 11-15:344 11-19:648 12-13:236 12-16:280 13-14:244 13-17:332 14-18:388 15-16:228
15-20:272 16-17:224 16-21:288 16-22:272 17-18:280 17-22:168 17-23:364 18-24:280 19-20:188
20-21:216 21-22:164 22-23:260 23-24:180"""
JPN48 = """0-1:476 0-2:409 1-2:178 1-4:181 2-3:183 2-4:127 3-5:61 3-6:79 3-7:245 4-5:211 4-15:273
5-15:187 6-8:163 6-15:180 7-8:95 7-10:117 7-11:127 8-9:106 8-10:79 9-10:74 9-13:96 9-15:228
9-20:117 10-11:66 10-12:30 11-12:39 12-13:47 12-14:28 13-14:36 13-19:86 14-22:151 15-16:254
15-20:211 16-17:59 16-20:192 17-18:76 18-26:148 19-20:164 19-22:122 19-23:262 20-23:250 21-23:30
21-25:107 22-23:185 23-24:66 24-25:84 24-29:89 24-30:365 25-26:10 26-27:39 26-28:77 26-29:41
26-31:253 27-28:36 27-29:52 27-30:76 28-33:143 30-36:65 31-32:121 31-33:141 32-35:256 33-34:161
33-37:71 34-35:132 34-38:66 35-40:147 36-37:74 36-39:156 37-38:194 37-39:159 38-39:251 38-44:166
40-41:53 40-43:118 40-44:198 41-42:100 42-47:758 43-44:148 43-46:170 44-45:207 45-46:125
46-47:673"""
TABLES = {
    "nsfnet_deeprmsa": NSFNET_DEEPRMSA,
    "cost239_deeprmsa": COST239_DEEPRMSA,
    "usnet_gcnrnn": USNET_GCNRNN,
    "jpn48": JPN48,
    "ring4": "0-1:4 1-2:3 2-3:2 0-3:1",
    "ring7": "0-1:7 1-2:6 2-3:5 3-4:4 4-5:3 5-6:2 0-6:1",
}
"""Link tables by name; the rings are for tests and first steps."""


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
    'cost239_deeprmsa'
    """
    return tuple(sorted(TABLES))


@lru_cache(maxsize=64)
def make_topology(name: str, directed: bool = True) -> Topology:
    """Give the topology of a name, or of a `.json` or `.graphml` file.

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
