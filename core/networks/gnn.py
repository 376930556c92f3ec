"""The graph network: computes a path's logits from its links, and a value from the whole graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..envs.contract import Routes
from ..plan import Plan
from ..pytree import Pytree, pytree
from . import path_pooling
from .layers import Dense, Outputs
from .mlp import Head, activated, initialiser, value_head
from .path_pooling import SHARES, Nearby, further_actions, nearby, shares

Chosen = Callable[[Float[Array, "E B D"]], Float[Array, "U B D"]]


@dataclass(frozen=True)
class Incidence:
    """The nodes that each edge leaves and enters, as matrices of zeros and ones."""

    sent: Array  # [edges, nodes], or [B, edges, nodes] if samples have different topologies
    received: Array

    @classmethod
    def make(
        cls,
        senders: Int[Array, "... E"],
        receivers: Int[Array, "... E"],
        nodes: int,
        dtype: jnp.dtype,
    ) -> Incidence:
        return cls(*(jax.nn.one_hot(end, nodes, dtype=dtype) for end in (senders, receivers)))

    def at_ends(self, nodes: Float[Array, "N B D"]) -> Float[Array, "E B D2"]:
        both = _pool_rows(jnp.concatenate([self.sent, self.received], axis=-2), nodes)
        return jnp.concatenate(jnp.split(both, 2), axis=-1)

    def at_receivers(self, nodes: Float[Array, "N B D"]) -> Float[Array, "E B D"]:
        return _pool_rows(self.received, nodes)

    def sums_at_nodes(self, edges: Float[Array, "E B D"]) -> Float[Array, "N B D2"]:
        matrix = jnp.concatenate([self.sent, self.received], axis=-1)
        both = _pool_rows(jnp.swapaxes(matrix, -1, -2), edges)
        return jnp.concatenate(jnp.split(both, 2), axis=-1)

    def softmax_at_receivers(self, logits: Float[Array, "E B"]) -> Float[Array, "E B"]:
        """Softmax over the edges into the same node; stable for logits of any magnitude."""
        inside = (self.received if self.received.ndim == 3 else self.received[None]) > 0.0
        far = jnp.asarray(-1e30, logits.dtype)  # finite: it is multiplied by zeros below
        held = jax.lax.stop_gradient(logits).T[:, :, None]  # [B, E, 1]
        largest = jnp.max(jnp.where(inside, held, far), axis=1).T[..., None]  # [N, B, 1]
        raised = jnp.exp(logits - self.at_receivers(largest)[..., 0])
        into = jnp.swapaxes(self.received, -1, -2)
        total = self.at_receivers(_pool_rows(into, raised[..., None]))[..., 0]
        return raised / total


def _pool_rows(matrix: Array, items: Float[Array, "M B D"]) -> Float[Array, "K B D"]:
    pattern = {2: "km,mbd->kbd", 3: "bkm,mbd->kbd"}[matrix.ndim]
    return jnp.einsum(pattern, matrix, items)


@pytree
class GraphState(Pytree):
    edges: Float[Array, "E B De"]
    nodes: Float[Array, "N B Dn"]
    graph: Float[Array, "B Dg"]


class Joint(nn.Module):
    """A dense layer W_a a + W_g g of an entity's inputs a and the graph's embedding g."""

    width: int
    kernel_init: nn.initializers.Initializer

    @nn.compact
    def __call__(
        self, inputs: Float[Array, "*M B D"], graph: Float[Array, "B G"]
    ) -> Float[Array, "*M B W"]:
        size = inputs.shape[-1]
        shape = (size + graph.shape[-1], self.width)
        kernel = self.param("kernel", self.kernel_init, shape, jnp.float32)
        bias = self.param("bias", nn.initializers.zeros, (self.width,), jnp.float32)
        shared = graph @ kernel[size:] + bias[None]
        own = inputs @ kernel[:size]
        if own.ndim > shared.ndim:
            shared = shared[None]
        return own + shared


class Processor(nn.Module):
    plan: Plan
    layers: int
    latent: int  # width of each layer
    outputs: int
    # the last layer outputs one number without a bias, which would not change a softmax
    logit: bool = False

    @nn.compact
    def __call__(
        self, inputs: Float[Array, "*M B D"], graph: Float[Array, "B G"]
    ) -> Float[Array, "*M B O"]:
        plan = self.plan
        hidden = initialiser(plan, plan.hidden_gain)
        final = initialiser(plan, 1.0)
        if self.layers == 0:
            return Joint(self.outputs, final, name="out")(inputs, graph)
        norm = plan.gnn_mlp_layer_norm
        x = Joint(self.latent, hidden, name="dense_0")(inputs, graph)
        x = activated(plan, x, "norm_0", norm)
        for i in range(1, self.layers):
            x = Dense(self.latent, kernel_init=hidden, name=f"dense_{i}")(x)
            x = activated(plan, x, f"norm_{i}", norm)
        if self.logit:
            return Head(1, final, biased=False, name="out")(x)
        return Dense(self.outputs, kernel_init=final, name="out")(x)


class Messages(nn.Module):
    """Rounds of message passing on a graph (Battaglia et al. 2018, section 3.2).

    A round updates edges from (edge, sender, receiver, graph), nodes from (node, sums of sent and
    of received messages, graph), and the graph from (mean node, mean edge, graph). Each update is
    added to the old values; the sum is layer-normalised if layer norm is on. With attention, the
    messages that a node receives are weighted by softmax(a^T act(W [edge, sender, receiver,
    graph])), normalised over its incoming edges (Brody et al. 2022, eq. 7). Edge updates are not
    weighted. The graph update receives means instead of sums, so its inputs do not grow with the
    network's size.
    """

    plan: Plan
    # which of `edges` and `graph` are read after the last round; others are not computed
    reads: tuple[str, ...]
    sees_graph: bool = True  # embed the graph's features; else its row starts as zeros

    @nn.compact
    def __call__(
        self, raw: GraphState, incidence: Incidence, chosen: Chosen | None = None
    ) -> GraphState:
        """Return edges and graph after all rounds; the last round updates only `chosen` edges."""
        plan = self.plan
        linear = initialiser(plan, 1.0)

        def embedded(x: Array, width: int, name: str) -> Array:
            return Dense(width, kernel_init=linear, name=name)(x)

        size = plan.gnn_global_embedding_size
        state = GraphState(
            embedded(raw.edges, plan.gnn_edge_embedding_size, "embed_edges"),
            embedded(raw.nodes, plan.gnn_node_embedding_size, "embed_nodes"),
            embedded(raw.graph, size, "embed_graph")
            if self.sees_graph
            else jnp.zeros((raw.graph.shape[0], size), raw.graph.dtype),
        )
        rounds = plan.gnn_message_passing_steps
        for number in range(rounds):
            last = number == rounds - 1
            state = self._message_round(state, incidence, number, last, chosen if last else None)
        return state

    def _message_round(
        self,
        state: GraphState,
        incidence: Incidence,
        number: int,
        last: bool,
        chosen: Chosen | None,
    ) -> GraphState:
        plan = self.plan
        ends = incidence.at_ends(state.nodes)
        inputs = jnp.concatenate([state.edges, ends], axis=-1)
        if chosen is not None:
            inputs = chosen(inputs)
            state = state.replace(edges=inputs[..., : state.edges.shape[-1]])
        messages = self._make_processor("edge", f"edges_{number}")(inputs, state.graph)
        edges = state.edges
        if not last or "edges" in self.reads:
            edges = self._add_residual(state.edges, messages, f"edge_norm_{number}")
        if last and "graph" not in self.reads:
            return state.replace(edges=edges)
        weighted = messages
        if plan.gnn_attn_mlp_layers:
            logits = Processor(
                plan,
                plan.gnn_attn_mlp_layers,
                plan.gnn_attn_mlp_latent,
                1,
                logit=True,
                name=f"attention_{number}",
            )(jnp.concatenate([messages, ends], axis=-1), state.graph)
            logits = logits[..., 0]
            weighted = messages * incidence.softmax_at_receivers(logits)[..., None]
        exchanged = jnp.concatenate([state.nodes, incidence.sums_at_nodes(weighted)], axis=-1)
        node_update = self._make_processor("node", f"nodes_{number}")(exchanged, state.graph)
        nodes = state.nodes
        if not last:
            nodes = self._add_residual(state.nodes, node_update, f"node_norm_{number}")
        means = [jnp.mean(node_update, axis=0), jnp.mean(messages, axis=0)]
        joined = jnp.concatenate(means, axis=-1)
        graph_update = self._make_processor("global", f"graph_{number}")(joined, state.graph)
        graph = self._add_residual(state.graph, graph_update, f"graph_norm_{number}")
        return GraphState(edges, nodes, graph)

    def _make_processor(self, of: str, name: str) -> Processor:
        names = (f"gnn_{of}_{size}" for size in ("mlp_layers", "mlp_latent", "embedding_size"))
        return Processor(self.plan, *(getattr(self.plan, size) for size in names), name=name)

    def _add_residual(self, old: Array, update: Array, name: str) -> Array:
        total = old + update
        if self.plan.gnn_layer_norm:
            total = nn.LayerNorm(name=name)(total)
        return total


_MARKS = 2  # columns that mark a request's source and destination


class GNN(nn.Module):
    """Maps `jraph.GraphsTuple`s of one graph each to policy outputs and a value.

    With routes, actor logits come from a linear layer over the sum of a candidate path's links.
    The logits of actions without a path come from the embedding of the graph's globals. All
    samples share one topology. Without routes, all outputs are computed from that embedding.
    Senders and receivers may then differ between samples. A separate critic does not see the
    graph's features (as published).
    With `link_critic_sees: shares` it sees neither the request's end nodes nor single slots.
    """

    plan: Plan
    outputs: int
    routes: Routes | None

    @nn.compact
    def __call__(self, observation: Any) -> Outputs:
        plan = self.plan
        lead = observation.nodes.shape[:-2]
        graph = observation._replace(
            nodes=observation.nodes.reshape((-1, *observation.nodes.shape[-2:])),
            edges=observation.edges.reshape((-1, *observation.edges.shape[-2:])),
            globals=observation.globals.reshape((-1, observation.globals.shape[-1])),
            senders=observation.senders.reshape((-1, observation.senders.shape[-1])),
            receivers=observation.receivers.reshape((-1, observation.receivers.shape[-1])),
        )
        start, incidence = self._graph_features(graph), self._incidence(graph)
        both, routes = plan.shared_encoder, self.routes
        reads, pair, near, chosen = ("graph",), None, None, None
        if routes is not None:
            pair = path_pooling.marked_pairs(routes, graph.nodes)
            reads = ("edges", "graph")
            if not (both or self._further_actions):
                reads, near = ("edges",), nearby(routes)
        if routes is not None and pair is not None and near is not None:
            entities = near
            if graph.edges.shape[-2] == 2 * len(routes.km):
                entities = near.both_ways()
            chosen = partial(entities.of_entities, pair=pair)
        encoder = Messages(plan, reads, name="encoder" if both else "actor")
        critic = actor = encoder(start, incidence, chosen)
        if not both:
            critic_input = start
            if plan.link_critic_sees == SHARES:
                critic_input = self._feature_shares(start)
            critic = Messages(plan, ("graph",), False, name="critic")(critic_input, incidence)
        policy = self._logits(actor, pair, near)
        value = value_head(plan, critic.graph)
        return Outputs(policy.reshape((*lead, self.outputs)), value.reshape(lead))

    @property
    def _further_actions(self) -> int:
        if self.routes is None:
            return 0
        return further_actions(self.routes, self.outputs)

    def _graph_features(self, graph: Any) -> GraphState:
        plan, nodes = self.plan, graph.nodes
        if not plan.gnn_node_features:
            nodes = jnp.zeros((*nodes.shape[:-1], 1), nodes.dtype)
        elif self.routes is not None:
            coordinates = nodes[..., :-_MARKS][..., : plan.gnn_num_spectral_features]
            nodes = jnp.concatenate([coordinates, nodes[..., -_MARKS:]], axis=-1)
        edges, nodes = (jnp.moveaxis(x, 0, 1) for x in (graph.edges, nodes))
        return GraphState(edges, nodes, graph.globals)

    def _feature_shares(self, start: GraphState) -> GraphState:
        nodes = start.nodes
        if self.plan.gnn_node_features and nodes.shape[-1] > _MARKS:
            nodes = nodes[..., :-_MARKS]
        elif self.plan.gnn_node_features:  # gnn_num_spectral_features is 0
            nodes = jnp.zeros_like(nodes[..., :1])
        return start.replace(edges=shares(start.edges), nodes=nodes)

    def _incidence(self, graph: Any) -> Incidence:
        count, dtype = graph.nodes.shape[-2], graph.edges.dtype
        if self.routes is None:
            return Incidence.make(graph.senders, graph.receivers, count, dtype)
        senders, receivers = self.routes.senders, self.routes.receivers
        if graph.edges.shape[-2] == 2 * len(senders):  # undirected links, once per direction
            senders, receivers = np.append(senders, receivers), np.append(receivers, senders)
        return Incidence.make(jnp.asarray(senders), jnp.asarray(receivers), count, dtype)

    def _logits(
        self, state: GraphState, pair: Array | None, near: Nearby | None
    ) -> Float[Array, "B A"]:
        plan, routes = self.plan, self.routes
        if routes is None or pair is None:
            kernel_init = initialiser(plan, plan.policy_gain)
            return Head(self.outputs, kernel_init, name="actor_head")(state.graph)
        links = None if near is None else jnp.asarray(near.links)[pair]
        weights = self._link_weights(routes, pair, links).astype(state.edges.dtype)
        edges = state.edges
        if edges.shape[0] == 2 * weights.shape[-1]:  # undirected links, once per direction
            half = weights.shape[-1]
            edges = edges[:half] + edges[half:]
        # Summed before the linear layer, which then has K rows instead of one per link.
        paths = jnp.einsum("bku,ubd->bkd", weights, edges)
        return path_pooling.path_logits(plan, routes, self.outputs, paths, lambda: state.graph)

    def _link_weights(
        self, routes: Routes, pair: Int[Array, " B"], links: Int[Array, "B U"] | None
    ) -> Float[Array, "B K U"]:
        inside = path_pooling.membership(routes, pair, links)
        if not self.plan.gnn_normalise_by_link_length:
            return inside.astype(jnp.float32)
        km = jnp.asarray(routes.km, jnp.float32)
        length = jnp.where(inside, (km[None] if links is None else km[links])[:, None], 0.0)
        return length / jnp.maximum(jnp.sum(length, axis=-1, keepdims=True), 1e-6)
