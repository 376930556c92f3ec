from __future__ import annotations

import json
from pathlib import Path
from random import Random

import networkx as nx
import pytest

from hpo.core.envs.optical.topology import make_topology, topology_names
from hpo.errors import ConfigError, UnknownNameError

# (nodes, bidirectional edges, km one way) as published with the tables.
PUBLISHED = {
    "nsfnet_deeprmsa": (14, 22, 21_300),
    "cost239_deeprmsa": (11, 26, 30_090),
    "usnet_gcnrnn": (24, 43, 13_216),
    "jpn48": (48, 82, 12_576),
    "nsfnet_nevin": (14, 22, 20_800),
    "cost239_nevin": (11, 26, 15_100),
    "cost239_ptrnet_published": (11, 26, 14_954),
    "cost239_ptrnet_real": (11, 26, 14_954),
    "usnet_ptrnet": (24, 43, 43_000),
    "german17": (17, 24, 6_719),
    "conus": (75, 99, 41_210),
    "5node": (5, 6, 2_004),
    "dt17": (17, 19, 6_803),
    "nobel_germany": (17, 26, 5_593),
    "nobel_eu": (28, 41, 25_509),
    "nobel_us": (14, 21, 30_760),
    "polska": (12, 18, 5_079),
    "eon": (19, 37, 51_017),
    "geant2": (35, 55, 117_299),
    "coronet": (60, 79, 42_964),
    "janos_us": (26, 42, 37_050),
    "japan12": (12, 17, 10_598),
    "japan25": (25, 43, 13_702),
    "usa100": (100, 171, 70_412),
    "tataind": (143, 181, 36_141),
    "ring4": (4, 4, 10),
    "ring7": (7, 7, 28),
}


def test_every_topology_has_a_published_reference():
    assert set(topology_names()) == set(PUBLISHED)


@pytest.mark.parametrize("name", PUBLISHED)
def test_topology_sizes_match_published_figures(name):
    nodes, edges, km = PUBLISHED[name]
    both, one = make_topology(name, True), make_topology(name, False)
    assert both.num_nodes == one.num_nodes == nodes
    assert (both.num_links, one.num_links) == (2 * edges, edges)
    assert sum(link[2] for link in one.links) == km
    assert sum(link[2] for link in both.links) == 2 * km


def test_links_are_sorted_and_indexed_by_direction():
    directed, undirected = make_topology("ring4", True), make_topology("ring4", False)
    assert [link[:2] for link in directed.links] == sorted(link[:2] for link in directed.links)
    assert directed.link_index[0, 1] != directed.link_index[1, 0]
    assert undirected.link_index[0, 1] == undirected.link_index[1, 0] == 0


def test_unknown_topology_gets_a_suggestion():
    with pytest.raises(UnknownNameError, match="did you mean 'jpn48'"):
        make_topology("jpn84")
    with pytest.raises(ConfigError, match="did you mean nsfnet_deeprmsa"):
        make_topology("nsfnet")
    with pytest.raises(ConfigError, match="topology: jpn48 and directed: false"):
        make_topology("jpn48_undirected")


def _triangle(**changes):
    links = [
        {"source": "A", "target": "B", "length": 10},
        {"source": "B", "target": "C", "length": 20.5},
        {"source": "A", "target": "C", "length": 30},
    ]
    document = {
        "directed": False,
        "multigraph": False,
        "graph": {},
        "nodes": [{"id": name} for name in "ABC"],
        "links": links,
    }
    return document | changes


def _write(tmp_path, document):
    file = tmp_path / "net.json"
    file.write_text(json.dumps(document))
    return str(file)


@pytest.mark.parametrize("directed", [True, False])
def test_json_and_graphml_give_the_same_network(tmp_path, directed):
    document = _triangle()
    graph = nx.node_link_graph(document, edges="links")
    nx.write_graphml(graph, tmp_path / "net.graphml")
    from_json = make_topology(_write(tmp_path, document), directed)
    from_graphml = make_topology(str(tmp_path / "net.graphml"), directed)
    assert from_json.links == from_graphml.links
    assert from_json.node_ids == ("A", "B", "C")
    assert from_json.num_links == (6 if directed else 3)


def test_directed_file_folds_only_if_both_directions_match(tmp_path):
    links = [
        {"source": a, "target": b, "length": 5} for a, b in ("AB", "BA", "BC", "CB", "CA", "AC")
    ]
    file = _write(tmp_path, _triangle(directed=True, links=links))
    assert make_topology(file, False).num_links == 3
    links[1]["length"] = 6
    file = _write(tmp_path, _triangle(directed=True, links=links))
    make_topology.cache_clear()
    with pytest.raises(ConfigError, match="no reverse link of the same length"):
        make_topology(file, False)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"links": _triangle()["links"][:1]}, "not connected"),
        ({"links": [{"source": "A", "target": "B"}]}, "has no length"),
        ({"links": [{"source": "A", "target": "B", "length": 0}]}, "must be above 0 km"),
        ({"links": [{"source": "A", "target": "B", "length": "far"}]}, "must be above 0 km"),
        ({"links": [{"source": "A", "target": "A", "length": 1}]}, "to itself"),
        ({"multigraph": True, "links": _triangle()["links"] * 2}, "parallel links"),
        ({"nodes": [{"id": "A"}], "links": []}, "at least 2 nodes"),
        ({"nodes": 7}, "not a node-link JSON"),
    ],
)
def test_malformed_topology_files_get_one_line_errors(tmp_path, changes, message):
    make_topology.cache_clear()
    with pytest.raises(ConfigError, match=message) as caught:
        make_topology(_write(tmp_path, _triangle(**changes)), True)
    assert "\n" not in str(caught.value)


def test_topology_file_may_omit_multigraph(tmp_path):
    document = _triangle()
    del document["multigraph"]
    assert make_topology(_write(tmp_path, document), False).num_links == 3


def test_missing_or_unparsable_topology_files_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="does not exist"):
        make_topology(str(tmp_path / "none.json"))
    (tmp_path / "x.graphml").write_text("<graphml")
    with pytest.raises(ConfigError, match="not a node-link JSON or GraphML"):
        make_topology(str(tmp_path / "x.graphml"))


@pytest.mark.parametrize("directed", [True, False])
def test_topology_file_order_matches_networkx(tmp_path, directed):
    """As networkx's own path search breaks them over the graph that it reads from the file."""
    grid = nx.grid_2d_graph(3, 4)
    links = [{"source": u, "target": v, "distance": 10} for u, v in grid.edges()]
    if directed:
        links += [{**link, "source": link["target"], "target": link["source"]} for link in links]
    Random(3).shuffle(links)
    nodes = [{"id": node} for node in grid.nodes]
    file = _write(tmp_path, _triangle(directed=directed, links=links, nodes=nodes))
    theirs = nx.node_link_graph(json.loads(Path(file).read_text()), edges="links")
    ours = make_topology(file, directed).graph
    assert list(theirs.edges()) != [tuple(link.values())[:2] for link in links]
    number = {node: place for place, node in enumerate(theirs, start=1)}
    for node in theirs:
        assert list(ours[number[node]]) == [number[other] for other in theirs[node]]


@pytest.mark.parametrize("name", PUBLISHED)
def test_shipped_networks_use_published_node_numbers(name):
    for directed in (True, False):
        topology = make_topology(name, directed)
        assert tuple(topology.graph) == topology.node_ids


@pytest.mark.parametrize("name", ["5node", "ring7", "jpn48", "nsfnet_deeprmsa"])
def test_file_copy_of_a_shipped_network_keeps_node_numbers(tmp_path, name):
    shipped = make_topology(name, True)
    nodes = [{"id": f"city {node}"} for node in shipped.node_ids]
    links = [
        {"source": nodes[u]["id"], "target": nodes[v]["id"], "km": km}
        for u, v, km in make_topology(name, False).arcs
    ]
    for directed in (True, False):
        file = _write(tmp_path, _triangle(nodes=nodes, links=links))
        copied = make_topology(file, directed)
        assert tuple(copied.graph) == shipped.node_ids
        assert copied.arcs == make_topology(name, directed).arcs
        make_topology.cache_clear()
    links[0]["km"] += 1
    other = make_topology(_write(tmp_path, _triangle(nodes=nodes, links=links)), True)
    assert tuple(other.graph) == tuple(range(1, shipped.num_nodes + 1))


def test_disconnected_node_is_named_in_the_error(tmp_path):
    make_topology.cache_clear()
    document = _triangle(nodes=[{"id": name} for name in ["A", "B", "C", "far"]])
    with pytest.raises(ConfigError, match="node 'far' cannot reach"):
        make_topology(_write(tmp_path, document), True)
