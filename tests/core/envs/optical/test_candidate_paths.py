from __future__ import annotations

import collections
import hashlib
import json
from itertools import combinations, pairwise
from random import Random

import numpy as np
import pytest

from hpo.core.envs.optical.candidate_paths import PATH_ORDERS, make_path_table, pair_index
from hpo.core.envs.optical.modulation import make_modulation
from hpo.core.envs.optical.topology import make_topology
from hpo.errors import ConfigError, UnknownNameError

FORMATS = make_modulation("deeprmsa")


def test_pair_index_numbers_all_pairs_without_gaps():
    for size in (2, 5, 14):
        pairs = [(s, d) for s in range(size) for d in range(size) if s != d]
        rows = [pair_index(s, d, size, True) for s, d in pairs]
        assert sorted(rows) == list(range(size * (size - 1)))
        assert {pair_index(s, d, size, False) for s, d in pairs} == set(
            range(size * (size - 1) // 2)
        )


def test_rows_of_the_table_follow_pair_index():
    for directed in (True, False):
        table = make_path_table(make_topology("nsfnet_deeprmsa", directed), 2)
        for row, (source, destination) in enumerate(table.pairs.tolist()):
            assert pair_index(source, destination, 14, directed) == row
            assert {path[0] for path in table.nodes[row]} == {source}
            assert {path[-1] for path in table.nodes[row]} == {destination}


def test_directed_nsfnet_has_the_published_modulation_counts():
    # 910 paths with k = 5: 690 BPSK, 144 QPSK, 52 8QAM, 24 16QAM; first paths 64, 64, 34, 20 with
    # 2.19 hops and 2,102 km on average.
    table = make_path_table(make_topology("nsfnet_deeprmsa", True), 5, formats=FORMATS)
    counts = collections.Counter(table.efficiency.ravel().tolist())
    assert counts == {1.0: 690, 2.0: 144, 3.0: 52, 4.0: 24}
    first = collections.Counter(table.efficiency[:, 0].tolist())
    assert first == {1.0: 64, 2.0: 64, 3.0: 34, 4.0: 20}
    assert round(table.hop_counts[:, 0].mean(), 2) == 2.19
    assert round(table.lengths[:, 0].mean()) == 2102


def test_first_path_is_not_always_the_shortest():
    # Pair 1 -> 14: first 5,100 km over 3 hops, second 3,600 km over 4, both BPSK.
    table = make_path_table(make_topology("nsfnet_deeprmsa", True), 5, formats=FORMATS)
    row = pair_index(0, 13, 14, True)
    assert table.lengths[row, :2].tolist() == [5100, 3600]
    assert table.hop_counts[row, :2].tolist() == [3, 4]


def test_reverse_pair_may_order_equal_paths_differently():
    table = make_path_table(make_topology("nsfnet_deeprmsa", True), 5, formats=FORMATS)
    forth = table.nodes[pair_index(0, 13, 14, True)]
    back = [path[::-1] for path in table.nodes[pair_index(13, 0, 14, True)]]
    assert list(forth) != back


@pytest.mark.parametrize("order", PATH_ORDERS)
def test_path_orders_ascend_and_break_ties_by_the_documented_rule(order):
    topology = make_topology("cost239_deeprmsa", True)
    table = make_path_table(topology, 5, order, formats=FORMATS)
    hops, km, se = table.hop_counts, table.lengths, table.efficiency

    def key(row, rank):
        numbers = [node + 1 for node in table.nodes[row][rank]]
        digest = int(hashlib.sha256(str(numbers).encode()).hexdigest(), 16)
        weight = km[row, rank] if order == "distance" else hops[row, rank]
        tie = (weight, len(numbers), digest)
        criterion = {
            "spectral_resources": (hops[row, rank] / se[row, rank],),
            "hops": (hops[row, rank],),
            "distance": (km[row, rank],),
            "hops_distance": (hops[row, rank], km[row, rank]),
            "capacity": (se[row, rank],),
        }[order]
        return criterion, tie

    for row in range(len(hops)):
        keys = [key(row, rank) for rank in range(5)]
        assert keys == sorted(keys)


def _random_network(random: Random) -> tuple[int, list[tuple[int, int, int]]]:
    """Return the number of nodes and the links of a ring with chords; few lengths, many ties."""
    size = random.randint(5, 9)
    around = [(node, (node + 1) % size) for node in range(size)]
    chords = [
        pair for pair in combinations(range(size), 2) if pair[1] - pair[0] not in (1, size - 1)
    ]
    ends = around + random.sample(chords, min(5, len(chords)))
    random.shuffle(ends)
    return size, [(u, v, random.choice((100, 400, 2500))) for u, v in ends]


def _labels(size: int, random: Random) -> list[list[int | str]]:
    """Return different labellings of the nodes, in the order of the file."""
    names = [f"node {random.random()}" for _ in range(size)]
    return [
        list(range(size)),
        list(range(1, size + 1)),
        [-7 * node for node in range(size)],
        random.sample(range(1000), size),
        [str(node) for node in range(size)],
        list("zyxwvutsr"[:size]),
        names,
        [0, "0", *names[2:]],
    ]


@pytest.mark.parametrize("disjoint", [False, True])
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("order", PATH_ORDERS)
def test_node_names_do_not_affect_candidate_paths(tmp_path, order, directed, disjoint):
    random = Random(f"{order} {directed} {disjoint}")
    for _ in range(3):
        size, links = _random_network(random)
        tables = [
            make_path_table(
                _from_file(tmp_path, labels, links, directed),
                3,
                order,
                disjoint=disjoint,
                formats=FORMATS,
            )
            for labels in _labels(size, random)
        ]
        for table in tables[1:]:
            assert table.nodes == tables[0].nodes
            np.testing.assert_array_equal(table.hops, tables[0].hops)
            np.testing.assert_array_equal(table.lengths, tables[0].lengths)


def _from_file(tmp_path, labels, links, directed):
    document = {
        "directed": False,
        "multigraph": False,
        "graph": {},
        "nodes": [{"id": label} for label in labels],
        "links": [{"source": labels[u], "target": labels[v], "km": km} for u, v, km in links],
    }
    file = tmp_path / "network.json"
    file.write_text(json.dumps(document))
    make_topology.cache_clear()
    return make_topology(str(file), directed)


def test_distance_order_selects_different_paths_than_hops():
    topology = make_topology("nsfnet_deeprmsa", True)
    by_hops = make_path_table(topology, 5, "hops")
    by_km = make_path_table(topology, 5, "distance")
    assert {frozenset(p) for p in by_hops.nodes} != {frozenset(p) for p in by_km.nodes}
    assert by_km.lengths.sum() < by_hops.lengths.sum()


def test_disjoint_paths_come_before_overlapping_ones():
    topology = make_topology("nsfnet_deeprmsa", True)
    apart = make_path_table(topology, 2, "hops", disjoint=True)
    for paths in apart.nodes:  # every NSFNET pair has two edge-disjoint paths
        links = [set(pairwise(path)) for path in paths]
        assert not links[0] & links[1]
    many = make_path_table(topology, 6, "hops", disjoint=True)
    assert many.hop_counts.all()
    assert all(len(set(paths)) == 6 for paths in many.nodes)


def test_missing_paths_are_padded_with_a_single_warning():
    topology = make_topology("ring4", True)
    make_path_table.cache_clear()
    with pytest.warns(UserWarning, match="12 of 12 node pairs have fewer than k=5"):
        table = make_path_table(topology, 5)
    assert (table.hop_counts > 0).sum(1).tolist() == [2] * 12
    assert (table.hops[:, 2:] == topology.num_links).all()
    assert make_path_table(topology, 5) is table  # cached: not said again


def test_path_hops_match_the_node_sequence():
    topology = make_topology("usnet_gcnrnn", False)
    table = make_path_table(topology, 3)
    for row, paths in enumerate(table.nodes):
        for rank, path in enumerate(paths):
            ends = [
                set(topology.links[link][:2])
                for link in table.hops[row, rank]
                if link < topology.num_links
            ]
            assert ends == [{a, b} for a, b in pairwise(path)]


def test_tables_cannot_be_changed():
    table = make_path_table(make_topology("nsfnet_deeprmsa", True), 2)
    with pytest.raises(ValueError, match="read-only"):
        table.hops[0, 0, 0] = 1


def test_errors():
    topology = make_topology("ring4", True)
    with pytest.raises(UnknownNameError, match="did you mean 'hops'"):
        make_path_table(topology, 2, "hop")
    with pytest.raises(ConfigError, match="k is 0"):
        make_path_table(topology, 0)


def test_lightpath_capacity_order_ascends():
    def capacity(km):
        return 1000.0 if km < 2000 else 500.0

    topology = make_topology("nsfnet_deeprmsa", True)
    table = make_path_table(topology, 4, "capacity", capacity=capacity)
    assert (np.diff(table.capacity, axis=1) >= 0).all()
    cost = make_path_table(topology, 4, capacity=capacity)
    ratio = cost.hop_counts / cost.capacity
    assert (np.diff(ratio, axis=1) >= 0).all()
