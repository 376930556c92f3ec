import jax
import jax.numpy as jnp
import jraph
import numpy as np
import pytest

from helpers import slow_networks as slow
from hpo.core.envs import registry as environments
from hpo.core.networks import registry
from hpo.core.networks.gnn import GNN
from hpo.core.networks.path_pooling import (
    marked_pairs,
    membership,
    nearby,
    pairs_by_ends,
    picked,
    routes_of,
)
from hpo.core.plan import EnvPlan, make_plan
from hpo.errors import ConfigError

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quickly_compiled")]

SMALL = {"network": "gnn", "gnn_message_passing_steps": 2, "gnn_edge_embedding_size": 5,
         "gnn_node_embedding_size": 4, "gnn_global_embedding_size": 3, "gnn_edge_mlp_latent": 6,
         "gnn_node_mlp_latent": 5, "gnn_global_mlp_latent": 4,
         "gnn_attn_mlp_latent": 3}  # fmt: skip


def plan_of(keys, **knobs):
    keys = {"topology": "ring7", "slots": 8, "k": 2, "warmup_requests": 0, **keys}
    where = EnvPlan("rmsa", tuple(sorted(keys.items())))
    return make_plan({**SMALL, **knobs}, where, features=())


def graphs(env, count=3):
    """Return graphs of random requests, with random features on edges and nodes."""
    keys = jax.random.split(jax.random.key(4, impl="threefry2x32"), count)
    reset = jax.jit(jax.vmap(env.reset, in_axes=(0, None)))
    states, seen = reset(keys, env.default_params)
    rng = np.random.default_rng(0)
    nodes = np.array(seen.nodes)
    nodes[..., :-2] = rng.normal(size=nodes[..., :-2].shape)
    edges = rng.normal(size=seen.edges.shape).astype(np.float32)
    return np.asarray(states.request.pair), seen._replace(nodes=nodes, edges=edges)


def expected(plan, params, env, pair, graph):
    """Return (logits, value) of one graph, path by path and link by link."""
    routes, rounds = env.routes, plan.gnn_message_passing_steps
    columns = [*range(plan.gnn_num_spectral_features), -2, -1]
    nodes = graph.nodes[:, columns] if plan.gnn_node_features else np.zeros((routes.num_nodes, 1))
    ends = (graph.senders, graph.receivers)
    shared = "encoder" in params
    edges, row = slow.messages(
        params["encoder" if shared else "actor"],
        graph.edges,
        nodes,
        graph.globals[0],
        *ends,
        rounds,
    )
    if not shared:
        slots, places = graph.edges, nodes
        if plan.link_critic_sees == "shares":
            slots = np.array([[4.0 * sum(x > 0 for x in row) / len(row) - 2.0] for row in slots])
            places = nodes[:, :-2] if plan.gnn_node_features else nodes
            places = places if places.shape[1] else np.zeros((len(nodes), 1))
        _, critic = slow.messages(
            params["critic"], slots, places, graph.globals[0], *ends, rounds, False
        )
    links, logits = len(routes.km), []
    for path in range(routes.hops.shape[1]):
        taken = routes.hops[pair, path][: routes.hop_counts[pair, path]]
        total = np.zeros(plan.gnn_edge_embedding_size)
        for link in taken:
            share = routes.km[link] / routes.km[taken].sum()
            weight = share if plan.gnn_normalise_by_link_length else 1.0
            both = edges[link] + (edges[link + links] if len(edges) > links else 0.0)
            total += weight * both
        logits += list(slow.head(params["actor_head"], total))
    if "actor_further" in params:
        logits += list(slow.head(params["actor_further"], row))
    return np.array(logits), slow.head(params["critic_head"], row if shared else critic)[0]


@pytest.mark.parametrize(
    ("keys", "knobs"),
    [
        ({}, {}),
        (
            {"directed": False, "no_op": True},
            {
                "gnn_normalise_by_link_length": True,
                "gnn_num_spectral_features": 3,
                "gnn_mlp_layer_norm": True,
                "link_critic_sees": "shares",
            },
        ),
        (
            {"directed": False, "k": 1},
            {
                "gnn_message_passing_steps": 1,
                "gnn_node_features": False,
                "link_critic_sees": "shares",
            },
        ),
        (
            {"k": 1},
            {
                "gnn_message_passing_steps": 1,
                "gnn_num_spectral_features": 0,
                "link_critic_sees": "shares",
            },
        ),
        (
            {"aggregate_slots": 3},
            {"shared_encoder": True, "gnn_attn_mlp_layers": 0, "gnn_layer_norm": False},
        ),
    ],
)
def test_it_computes_what_the_loop_computes(keys, knobs):
    plan = plan_of(keys, **knobs)
    env = environments.make(plan.env)
    module = registry.make(plan, env.action_space.n, env.observation_struct)
    pairs, seen = graphs(env)
    params = slow.drawn(module, jax.tree.map(lambda x: x[0], seen))
    made = jax.jit(lambda p, x: module.apply({"params": p}, x))(params, seen)
    exact = slow.as_float64(params)
    for i, pair in enumerate(pairs):
        graph = jax.tree.map(lambda x, i=i: np.asarray(x[i]), seen)
        logits, value = expected(plan, exact, env, pair, graph)
        np.testing.assert_allclose(made.policy[i], logits, rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(made.value[i], value, rtol=1e-3, atol=1e-3)


def test_gnn_uses_edges_from_the_observed_graph():
    plan = make_plan(SMALL, EnvPlan("CartPole-v1"), features=())
    module = GNN(plan, 2, None)
    rng = np.random.default_rng(2)
    seen = jraph.GraphsTuple(
        nodes=rng.normal(size=(3, 4, 3)).astype(np.float32),
        edges=rng.normal(size=(3, 5, 2)).astype(np.float32),
        senders=rng.integers(0, 4, size=(3, 5)).astype(np.int32),
        receivers=rng.integers(0, 4, size=(3, 5)).astype(np.int32),
        globals=rng.normal(size=(3, 1, 2)).astype(np.float32),
        n_node=np.full((3, 1), 4, np.int32),
        n_edge=np.full((3, 1), 5, np.int32),
    )
    params = slow.drawn(module, jax.tree.map(lambda x: x[0], seen))
    made = jax.jit(lambda p, x: module.apply({"params": p}, x))(params, seen)
    exact = slow.as_float64(params)
    for i in range(3):
        ends = (seen.senders[i], seen.receivers[i])
        rest = (seen.edges[i], seen.nodes[i], seen.globals[i, 0], *ends, 2)
        _, row = slow.messages(exact["actor"], *rest)
        _, critic = slow.messages(exact["critic"], *rest, False)
        logits = slow.head(exact["actor_head"], row)
        np.testing.assert_allclose(made.policy[i], logits, rtol=1e-3, atol=1e-3)
        value = slow.head(exact["critic_head"], critic)[0]
        np.testing.assert_allclose(made.value[i], value, rtol=1e-3, atol=1e-3)


def test_paths_are_those_of_the_environment():
    env = environments.make(plan_of({}).env)
    routes = env.routes
    pairs, seen = graphs(env, 8)
    np.testing.assert_array_equal(marked_pairs(routes, jnp.asarray(seen.nodes)), pairs)
    inside = np.asarray(membership(routes, jnp.asarray(pairs)))
    for i, pair in enumerate(pairs):
        source, destination = routes.pairs[pair]
        assert pairs_by_ends(routes)[source, destination] == pair
        for path in range(inside.shape[1]):
            links = np.flatnonzero(inside[i, path])
            at = source  # walk the path: every link leaves where the last one arrived
            for _ in links:
                (link,) = [x for x in links if routes.senders[x] == at]
                at = routes.receivers[link]
            assert at == destination and len(links) == routes.hop_counts[pair, path]


@pytest.mark.parametrize("both_ways", [False, True])
def test_nearby_links_are_those_on_candidate_paths(both_ways):
    routes = environments.make(plan_of({"k": 1}).env).routes
    near, links = nearby(routes), len(routes.km)
    near = near.both_ways() if both_ways else near
    rows = np.arange(links * (2 if both_ways else 1), dtype=np.float32)
    most = near.links.shape[1]
    assert most < links
    for pair in range(len(routes.pairs)):
        taken = set(routes.hops[pair, 0, : routes.hop_counts[pair, 0]])
        taken |= {link + links for link in taken} if both_ways else set()
        at, places = near.links[pair], near.places[pair]
        assert len(set(at)) == most
        assert set(rows[places < most]) == taken
        assert all(at[place] == link for link, place in enumerate(places) if place < most)
    pairs = jnp.asarray([3, 0, 5], jnp.int32)
    batch = jnp.asarray(np.stack([rows, rows + 100.0, rows + 200.0]))[..., None]
    expected = batch[np.arange(3)[:, None], near.links[np.asarray(pairs)]]
    np.testing.assert_array_equal(near.of_tokens(batch, pairs), expected)
    swapped = near.of_entities(jnp.swapaxes(batch, 0, 1), pairs)
    np.testing.assert_array_equal(jnp.swapaxes(swapped, 0, 1), expected)


def test_picked_rows_gradient_matches_indexing():
    rng = np.random.default_rng(1)
    rows = jnp.asarray(rng.normal(size=(6, 3)), jnp.float32)
    at = jnp.asarray([[4, 1], [5, 0]])  # the last one only fills up
    back = jnp.asarray([4, 1, 4, 4, 0, 2])
    weights = np.array(rng.normal(size=(2, 2, 3)), np.float32)
    weights[1, 1] = 0.0
    slopes = jax.grad(lambda rows: jnp.sum(jnp.sin(picked(rows, at, back)) * weights))(rows)
    exact = jax.grad(lambda rows: jnp.sum(jnp.sin(rows[at]) * weights))(rows)
    np.testing.assert_allclose(slopes, exact, rtol=1e-6)


def test_an_undirected_pair_is_found_both_ways():
    routes = environments.make(plan_of({"directed": False}).env).routes
    table = pairs_by_ends(routes)
    np.testing.assert_array_equal(table, table.T)


def test_gnn_refuses_envs_without_graphs_or_with_different_routes():
    plan = make_plan(SMALL, EnvPlan("CartPole-v1"), features=())
    with pytest.raises(ConfigError, match="gnn reads graphs, which CartPole-v1 does not provide"):
        registry.make(plan, 2, jax.ShapeDtypeStruct((4,), np.float32))
    here, there = (environments.make(plan_of(keys).env) for keys in ({}, {"k": 1}))
    assert routes_of(here, here) is here.routes
    with pytest.raises(ConfigError, match="different links or candidate paths"):
        routes_of(here, there)
