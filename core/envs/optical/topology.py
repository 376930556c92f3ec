"""Network topologies: nodes and links.

Links are sorted by (source, destination) node *position*. A directed topology has one link per
direction, each with a separate spectrum; in an undirected one, both directions share one link and
its spectrum.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from configparser import ConfigParser
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree.ElementTree import ParseError

from ....errors import ConfigError, UnknownNameError
from ....files.plain_data import parse_json, reading

_FILE = ConfigParser(interpolation=None)
_FILE.read_string(Path(__file__).with_name("topologies.ini").read_text("utf-8"))

# Network -> its links
TABLES: Mapping[str, str] = {name: _FILE[name]["links"] for name in _FILE.sections()}

if TYPE_CHECKING:  # networkx costs 0.2 s to import and is needed only to search paths
    import networkx

NodeId = int | str


@dataclass(frozen=True)
class Topology:
    name: str  # as requested
    node_ids: tuple[NodeId, ...]  # names of nodes; in arrays a node is its position here
    # (source position, destination position, km) in the order of the table or file; an undirected
    # topology lists each link once, a directed one once per direction
    arcs: tuple[tuple[int, int, float], ...]
    directed: bool

    @property
    def num_nodes(self) -> int:
        return len(self.node_ids)

    @property
    def num_links(self) -> int:
        return len(self.arcs)

    @cached_property
    def links(self) -> tuple[tuple[int, int, float], ...]:
        """(source, destination, km), sorted; undirected links have the smaller position first."""
        arcs = self.arcs
        if not self.directed:
            arcs = [(*sorted(ends), km) for *ends, km in arcs]
        return tuple(sorted((int(u), int(v), float(km)) for u, v, km in arcs))

    @property
    def link_ends(self) -> list[tuple[int, int]]:
        """(source, destination) of each link."""
        return [link[:2] for link in self.links]

    @property
    def link_kms(self) -> list[float]:
        return [km for _, _, km in self.links]

    @cached_property
    def link_index(self) -> dict[tuple[int, int], int]:
        index = {(u, v): number for number, (u, v, _) in enumerate(self.links)}
        if not self.directed:
            index |= {(v, u): number for (u, v), number in index.items()}
        return index

    @cached_property
    def first_number(self) -> int:
        """The number of the first node: 1, or 0 for networks that were published with a node 0.

        The number depends only on nodes and links, so a file with the nodes and links of a shipped
        network uses that network's numbering, regardless of node names.
        """
        return int(_both_ways_as_one(self.arcs) not in _published_from_zero())

    @cached_property
    def graph(self) -> networkx.Graph[int]:
        """The network with numbered nodes, so that path searches never see node names."""
        import networkx as nx

        first = self.first_number
        graph = nx.Graph()
        if self.directed:
            graph = nx.DiGraph()
        graph.add_nodes_from(range(first, first + self.num_nodes))
        for source, destination, km in self.arcs:
            graph.add_edge(source + first, destination + first, km=km)
        return graph


_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, ParseError)
# Link attributes read as the length in km; the first present one counts
LENGTH_NAMES = ("length", "km", "distance", "weight")


def read_topology(path: Path, directed: bool) -> Topology:
    graph, edges = _read_graph(path)
    if graph.number_of_nodes() < 2:
        raise ConfigError(f"{path}: a topology needs at least 2 nodes, found {len(graph)}")
    position = {node: number for number, node in enumerate(graph.nodes)}
    arcs: dict[tuple[int, int], float] = {}
    for source, destination in edges:
        if source == destination:
            raise ConfigError(f"{path}: link {source}-{destination} joins a node to itself")
        km = _link_km(path, source, destination, graph.edges[source, destination])
        arcs[position[source], position[destination]] = km
    if directed and not graph.is_directed():
        arcs |= {(v, u): km for (u, v), km in arcs.items()}
    if not directed and graph.is_directed():
        arcs = _fold_arcs(path, tuple(position), arcs)
    ids = tuple(node if isinstance(node, int) else str(node) for node in position)
    links = tuple((u, v, km) for (u, v), km in arcs.items())
    topology = Topology(str(path), ids, links, directed)
    _require_connected(path, topology)
    return topology


def _read_graph(path: Path) -> tuple[Any, list[tuple[Any, Any]]]:
    """Return the graph and its links in file order, which breaks ties between paths."""
    import networkx as nx

    try:
        with reading(path, "topology file"):
            if path.suffix.lower() != ".json":
                graph = _simple_graph(path, nx.read_graphml(path))
                return graph, list(graph.edges())
            document = parse_json(path.read_text(encoding="utf-8"))
        if not isinstance(document, dict) or "nodes" not in document:
            raise ConfigError(f"{path}: expected node-link JSON with 'nodes' and 'links'")
        edges = "edges"
        if "links" in document:
            edges = "links"
        graph = _simple_graph(path, nx.node_link_graph(document, edges=edges))
        first: dict[Any, tuple[Any, Any]] = {}
        for link in document[edges]:
            ends = _node_id(link["source"]), _node_id(link["target"])
            key = ends if graph.is_directed() else frozenset(ends)
            first.setdefault(key, ends)
        return graph, list(first.values())
    except (*_UNREADABLE, nx.NetworkXError) as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ConfigError(f"{path}: not a node-link JSON or GraphML network ({reason})") from error


def _simple_graph(path: Path, graph: Any) -> Any:
    if len(set(graph.edges())) < graph.number_of_edges():
        raise ConfigError(
            f"{path}: parallel links are not supported; merge each pair into one link"
        )
    if not graph.is_multigraph():
        return graph
    import networkx as nx

    if graph.is_directed():
        return nx.DiGraph(graph)
    return nx.Graph(graph)


def _node_id(given: Any) -> Any:
    """Return a node's id in the form that networkx stores: lists become tuples."""
    if isinstance(given, list):
        return tuple(map(_node_id, given))
    return given


def _link_km(path: Path, source: Any, destination: Any, attributes: Mapping[str, Any]) -> float:
    name = next((name for name in LENGTH_NAMES if name in attributes), None)
    if name is None:
        raise ConfigError(
            f"{path}: link {source}-{destination} has no length; give each link a length in km "
            f"as one of: {', '.join(LENGTH_NAMES)}"
        )
    value = attributes[name]
    try:
        km = float(value)
    except (TypeError, ValueError):
        km = math.nan
    if not (math.isfinite(km) and km > 0):
        raise ConfigError(
            f"{path}: link {source}-{destination} has {name} {value!r}; lengths must be above 0 km"
        )
    return km


def _fold_arcs(
    path: Path, node_ids: tuple[Any, ...], arcs: Mapping[tuple[int, int], float]
) -> dict[tuple[int, int], float]:
    folded: dict[tuple[int, int], float] = {}
    for (u, v), km in arcs.items():
        if arcs.get((v, u)) != km:
            raise ConfigError(
                f"{path}: link {node_ids[u]}-{node_ids[v]} has no reverse link of the same "
                "length, so the network cannot be undirected; set directed: true"
            )
        if (v, u) not in folded:
            folded[u, v] = km
    return folded


def _require_connected(path: Path, topology: Topology) -> None:
    import networkx as nx

    # Both directions of a directed link are needed: requests between unconnected nodes always
    # fail.
    parts = nx.strongly_connected_components(topology.graph.to_directed())
    first, *rest = sorted(parts, key=len, reverse=True)
    if rest:
        outside = topology.node_ids[min(rest[0]) - topology.first_number]
        raise ConfigError(
            f"{path}: the network is not connected, because node {outside!r} cannot reach, or be "
            f"reached from, the {len(first)} nodes of the largest component"
        )


def topology_names() -> tuple[str, ...]:
    return tuple(sorted(TABLES))


@lru_cache(maxsize=64)
def make_topology(name: str, directed: bool = True) -> Topology:
    if name in TABLES:
        return _from_table(name, directed)
    if Path(name).suffix.lower() in (".json", ".graphml", ".xml"):
        return read_topology(Path(name), directed)
    for ending in ("_directed", "_undirected"):
        if name.endswith(ending) and name.removesuffix(ending) in TABLES:
            raise ConfigError(
                f"unknown topology {name!r}; set topology: {name.removesuffix(ending)} and "
                f"directed: {str(ending == '_directed').lower()}"
            )
    network = name.lower().split("_")[0]
    namesakes = [known for known in TABLES if known.split("_")[0] == network]
    if namesakes:
        raise ConfigError(f"unknown topology {name!r}; did you mean {' or '.join(namesakes)}?")
    raise UnknownNameError("topology", name, (*TABLES, "FILE.json", "FILE.graphml"))


def _from_table(name: str, directed: bool) -> Topology:
    edges = _published_links(name)
    node_ids = tuple(sorted({node for edge in edges for node in edge[:2]}))
    position = {node: number for number, node in enumerate(node_ids)}
    arcs = [(position[u], position[v], km) for u, v, km in edges]
    if directed:  # all edges in one direction, then their reverses: the published neighbour order
        arcs += [(v, u, km) for u, v, km in arcs]
    return Topology(name, node_ids, tuple(arcs), directed)


def _published_links(name: str) -> list[tuple[int, int, float]]:
    edges = []
    for entry in TABLES[name].split():
        ends, km = entry.split(":")
        source, destination = ends.split("-")
        edges.append((int(source), int(destination), float(km)))
    return edges


_Links = frozenset[tuple[int, int, float]]


def _both_ways_as_one(arcs: Iterable[tuple[int, int, float]]) -> _Links:
    return frozenset((min(u, v), max(u, v), km) for u, v, km in arcs)


@lru_cache(maxsize=1)
def _published_from_zero() -> frozenset[_Links]:
    networks = map(_published_links, TABLES)
    return frozenset(_both_ways_as_one(edges) for edges in networks if min(edges)[0] == 0)
