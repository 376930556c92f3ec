from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hpo.core.envs.optical.observers import laplacian_features, line_graph_features
from hpo.core.envs.optical.optical_environment import make_environment
from hpo.core.envs.optical.optical_settings import OpticalSettings
from hpo.core.envs.optical.spectrum import TICKS_PER_HOLDING, unpack
from hpo.core.envs.optical.topology import make_topology

pytestmark = pytest.mark.usefixtures("quickly_compiled")

STEPS = 120


def walk(**keys):
    """(env, list of (state, observation)) under random valid actions."""
    base = {"slots": 40, "k": 3, "warmup_requests": 0, "load": 60.0, "mean_holding_time": 8.0}
    env = make_environment(OpticalSettings.from_mapping(base | keys))
    params = env.default_params

    def one(carry, key):
        state, observation = carry
        mask = env.action_mask(state, params)
        action = jax.random.categorical(key, jnp.where(mask, 0.0, -1e9)).astype(jnp.int32)
        step = env.step(key, state, action, params)
        shown = (state.request, observation, env.resources.occupancy(state.held), action)
        if not env.settings.incremental and not env.settings.reuses_lightpaths:
            shown += (env.resources.ticks(state.held),)
        return (step.state, step.observation), shown

    keys_ = jax.random.split(jax.random.key(1), STEPS)
    _, seen = jax.jit(lambda: jax.lax.scan(one, env.reset(keys_[0], params), keys_))()
    seen = jax.device_get(seen)
    return env, [jax.tree.map(lambda x, t=t: x[t], seen) for t in range(STEPS)]


def test_flat_observation_is_request_followed_by_slots():
    env, seen = walk()
    for request, observation, occupancy, *_ in seen:
        source, destination = env.tables.paths.pairs[request.pair]
        np.testing.assert_array_equal(observation[:3], [source, request.bitrate, destination])
        grid = unpack(jnp.asarray(occupancy), 40)
        np.testing.assert_array_equal(observation[3:].reshape(44, 40), grid)
    assert seen[-1][2].any()


def test_packed_expands_to_flat():
    _, flat = walk()
    env, packed = walk(observation="packed")
    for (_, observation, *_), (_, small, *_) in zip(flat, packed, strict=True):
        np.testing.assert_array_equal(jax.tree.map(jnp.asarray, small).as_vector(), observation)
    batch = jax.tree.map(lambda *leaves: jnp.stack(leaves), *[seen[1] for seen in packed])
    assert batch.as_vector().shape == (STEPS, 3 + 44 * 40)
    unrolled = batch.replace(unrolled=True)
    assert np.asarray(unrolled.as_vector()).tobytes() == np.asarray(batch.as_vector()).tobytes()
    flagged = batch.as_flags()
    np.testing.assert_array_equal(flagged.numbers, batch.request)
    assert flagged.flags.dtype == np.int8
    np.testing.assert_array_equal(flagged.flags, batch.as_vector()[:, 3:])
    small = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(packed[0][1]))
    assert small == 12 + 44 * 2 * 4 and env.observation_struct.words.shape == (44, 2)


def test_observation_sizes_match_the_published_setting():
    flat = make_environment(OpticalSettings.from_mapping({}))
    assert flat.observation_struct.shape == (4403,)
    deep = make_environment(OpticalSettings.from_mapping({"id": "deeprmsa"}))
    assert deep.observation_struct.shape == (54,)


def test_flat_observation_of_reused_lightpaths_is_their_utilisation():
    _, seen = walk(id="rwa_lightpath_reuse", bitrates=[100, 200], scale_factor=0.5, load=300.0)
    shares = np.concatenate([observation[3:] for _, observation, *_ in seen])
    assert shares.min() == 0 and 0 < shares[(shares > 0)].min() < 1 and shares.max() <= 1


def test_deeprmsa_features_match_loops(simulator):
    env, seen = walk(id="deeprmsa", load=200.0)
    slow = simulator.SlowNetwork(env.tables, "deeprmsa", 40, 12.5, 1)
    nothing_fitted = 0
    for request, observation, occupancy, *_ in seen:
        slow.grid = np.array(unpack(jnp.asarray(occupancy), 40))
        slow.ask(int(request.pair), float(request.bitrate))
        source, destination = env.tables.paths.pairs[request.pair]
        expected = np.zeros(14 + 14 + 1)
        expected[source] = expected[14 + destination] = 1
        expected[28] = request.holding / TICKS_PER_HOLDING * 8.0
        features = []
        for rank in range(3):
            taken = slow.grid[slow.links[rank]].any(0)
            blocks, run = [], 0
            for slot in range(41):
                if slot < 40 and not taken[slot]:
                    run += 1
                elif run:
                    blocks.append((slot - run, run))
                    run = 0
            need = slow.need[rank]
            fitting = [block for block in blocks if block[1] >= need]
            at_zero = next((block for block in blocks if block[0] == 0), (0, 0))
            start, size = fitting[0] if fitting else at_zero
            nothing_fitted += not fitting
            mean = np.mean([size for _, size in blocks]) if blocks else 0.0
            free = 40 - taken.sum()
            features += [size / need, start / 40, need * 12.5 / 100, mean / need, free / 40]
        np.testing.assert_allclose(observation, [*expected, *features], rtol=1e-5, atol=1e-6)
    assert nothing_fitted > 5


def test_paths_observation_extends_deeprmsa_features():
    _, deep = walk(id="deeprmsa", load=200.0)
    env, seen = walk(id="deeprmsa", load=200.0, observation="paths")
    paths, longest = env.tables.paths, env.tables.hops.shape[-1]
    assert env.observation_struct.shape == (2 * 14 + 3 + 8 * 3 + 44,)
    for (_, theirs, *_), (request, observation, occupancy, *_) in zip(deep, seen, strict=True):
        np.testing.assert_array_equal(observation[:28], theirs[:28])
        grid = np.array(unpack(jnp.asarray(occupancy), 40))
        about = [request.holding / TICKS_PER_HOLDING, request.bitrate / 100.0, grid.mean()]
        np.testing.assert_allclose(observation[28:31], about, rtol=1e-5, atol=1e-6)
        features = observation[31:55].reshape(3, 8)
        np.testing.assert_array_equal(features[:, :5], theirs[29:].reshape(3, 5))
        for rank in range(3):
            links = [link for link in paths.hops[request.pair, rank] if link < 44]
            need = np.ceil(request.bitrate / (paths.efficiency[request.pair, rank] * 12.5)) + 1
            fullest = min(1.0 - grid[link].mean() for link in links)
            costs = [len(links) / longest, len(links) * need / 40, fullest]
            np.testing.assert_allclose(features[rank, 5:], costs, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(observation[55:], 1.0 - grid.mean(1), rtol=1e-5, atol=1e-6)
    assert seen[-1][2].any()


@pytest.mark.parametrize("directed", [True, False])
def test_graph_observation_matches_topology_and_occupancy(directed):
    env, seen = walk(observation="graph", directed=directed)
    links = env.tables.topology.links
    for request, graph, _, _, ticks in seen:
        source, destination = env.tables.paths.pairs[request.pair]
        marks = np.zeros((14, 2))
        marks[source, 0], marks[destination, 1] = 1, -1
        np.testing.assert_array_equal(graph.nodes[:, 8:], marks)
        ways = 1 if directed else 2
        assert graph.n_node == [14] and graph.n_edge == [len(links) * ways]
        left = ticks / TICKS_PER_HOLDING
        np.testing.assert_allclose(graph.edges, np.concatenate([left] * ways), rtol=1e-6)
        for edge, link in enumerate([*links] * ways):
            ends = link[:2] if edge < len(links) else link[1::-1]
            assert (graph.senders[edge], graph.receivers[edge]) == ends
        np.testing.assert_allclose(graph.globals, [[request.bitrate / 100.0]], 1e-6)
    assert graph.edges.max() > 0.1
    _, seen = walk(observation="graph", incremental=True)
    assert set(np.unique(seen[-1][1].edges)) == {0.0, 1.0}


def test_link_tokens_match_loops():
    env, seen = walk(observation="link_departure")
    topology, paths = env.tables.topology, env.tables.paths
    for request, tokens, _, _, ticks in seen[::7]:
        np.testing.assert_allclose(tokens.slots, ticks / TICKS_PER_HOLDING, rtol=1e-6)
        pair = int(request.pair)
        quality = [1 / np.ceil(request.bitrate / (se * 12.5) + 1) for se in paths.efficiency[pair]]
        expected = np.zeros((44, 6))
        expected[:, 0] = request.holding / TICKS_PER_HOLDING
        expected[:, 1] = request.bitrate / 100.0
        for link in range(44):
            ranks = [rank for rank in range(3) if link in paths.hops[pair, rank]]
            expected[link, 2] = sum(quality[rank] / (rank + 1) for rank in ranks)
            expected[link, 3] = len(ranks) / 3
            if ranks:
                expected[link, 4] = 1 - min(ranks) / 3
                expected[link, 5] = max(quality[rank] for rank in ranks) / max(quality)
        expected[:, 2] /= expected[:, 2].sum()
        np.testing.assert_allclose(tokens.request, expected, rtol=1e-5, atol=1e-6)
        for link, (u, v, _) in enumerate(topology.links):
            # Uniform traffic: every node starts, and ends, 1/14 of it.
            np.testing.assert_allclose(tokens.marginals[link], [2 / 14, 2 / 14], rtol=1e-5)
            assert u != v
    occupancy = walk(observation="link_occupancy")[1][-1]
    np.testing.assert_array_equal(
        occupancy[1].slots, unpack(jnp.asarray(occupancy[2]), 40).astype(jnp.float32)
    )


def test_link_capacity_observation_is_the_remaining_capacity():
    _, seen = walk(
        id="rwa_lightpath_reuse",
        bitrates=[100, 300],
        scale_factor=0.5,
        observation="link_capacity",
    )
    dark = ~np.array(unpack(jnp.asarray(seen[-1][2]), 40))
    slots = seen[-1][1].slots
    assert (slots[dark] == 0).all() and (slots >= 0).all() and slots.max() > 0
    # Gb/s left over 100 x mean bitrate (200): capacities are multiples of 100 Gb/s.
    np.testing.assert_allclose(slots * 200, np.round(slots * 200), atol=1e-4)


def test_link_marginals_follow_the_traffic_matrix(tmp_path):
    matrix = np.zeros((4, 4))
    matrix[0, 1], matrix[2, 3] = 3, 1
    np.savetxt(tmp_path / "m.csv", matrix, delimiter=",")
    keys = {"topology": "ring4", "k": 2, "slots": 8, "traffic_matrix": str(tmp_path / "m.csv")}
    env, seen = walk(observation="link_occupancy", **keys)
    leaving, entering = [0.75, 0, 0.25, 0], [0, 0.75, 0, 0.25]
    for link, (u, v, _) in enumerate(env.tables.topology.links):
        expected = [leaving[u] + leaving[v], entering[u] + entering[v]]
        np.testing.assert_allclose(seen[0][1].marginals[link], expected)


def test_spectral_features_are_eigenvectors_with_fixed_signs():
    topology = make_topology("nsfnet_deeprmsa", True)
    nodes = laplacian_features(topology, 8)
    assert nodes.shape == (14, 8)
    np.testing.assert_allclose(nodes.T @ nodes, np.eye(8), atol=1e-5)
    np.testing.assert_allclose(nodes[:, 0], 14**-0.5, rtol=1e-5)  # connected: constant
    adjacency = np.zeros((14, 14))
    for u, v, _ in topology.links:
        adjacency[u, v] = 1
    laplacian = np.diag(adjacency.sum(1)) - adjacency
    image = laplacian @ nodes
    values = (nodes * image).sum(0)
    np.testing.assert_allclose(image, nodes * values, atol=1e-4)
    assert (np.diff(values) >= -1e-5).all()
    links = line_graph_features(topology, 8)
    assert links.shape == (44, 8) and np.isfinite(links).all()
    small = laplacian_features(make_topology("ring4", True), 8)
    assert (small[:, 4:] == 0).all()
