"""Networks by name, or from a file."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from ....errors import ConfigError, UnknownNameError
from .topology import Topology
from .topology_files import read_topology
from .topology_tables import TABLES

__all__ = ["make_topology", "topology_names"]


def topology_names() -> tuple[str, ...]:
    """Return the names `make_topology` knows, sorted.

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
