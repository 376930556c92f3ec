"""The graph network: a logit for every option of a path from its links, a value from the graph."""

from __future__ import annotations

from functools import partial
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..envs.contract import Routes
from ..plan import Plan
from .graph import GraphState, Incidence, Messages
from .link_shares import SHARES, shares
from .mlp import Head, initialiser
from .outputs import Outputs
from .path_pooling import Nearby, marked_pairs, membership, nearby

__all__ = ["GNN"]

_MARKS = 2  # columns that mark the ends of a request


class GNN(nn.Module):
    """`jraph.GraphsTuple`s of one graph each to policy outputs and a value.

    With routes, actor logits are a linear layer over the sum of a candidate path's links, actions
    of no path come from the graph's own row, and one topology serves all samples. Without routes
    everything is read from the graph's row, and every sample brings its own senders and receivers.
    A separate critic does not see the graph's features (as published); with `link_critic_sees:
    shares` neither the request's ends nor single slots.

    Attributes:
        plan: sizes.
        outputs: logits or means, A.
        routes: links and candidate paths, or None.
    """

    plan: Plan
    outputs: int
    routes: Routes | None

    @nn.compact
    def __call__(self, observation: Any) -> Outputs:
        """Return policy outputs [..., A] and values [...] of graphs with any leading axes."""
        plan = self.plan
        lead = observation.nodes.shape[:-2]
        graph = observation._replace(
            nodes=observation.nodes.reshape((-1, *observation.nodes.shape[-2:])),
            edges=observation.edges.reshape((-1, *observation.edges.shape[-2:])),
            globals=observation.globals.reshape((-1, observation.globals.shape[-1])),
            senders=observation.senders.reshape((-1, observation.senders.shape[-1])),
            receivers=observation.receivers.reshape((-1, observation.receivers.shape[-1])),
        )
        start, incidence = self._features(graph), self._incidence(graph)
        both, routes = plan.shared_encoder, self.routes
        reads = ("edges",) if routes is not None else ()
        if both or routes is None or self._further:
            reads += ("graph",)
        pair = near = chosen = None
        if routes is not None:
            pair = marked_pairs(routes, graph.nodes)
            near = nearby(routes) if reads == ("edges",) else None
            if near is not None:
                twice = graph.edges.shape[-2] == 2 * len(routes.km)
                chosen = partial((near.both_ways() if twice else near).of_entities, pair=pair)
        encoder = Messages(plan, reads, name="encoder" if both else "actor")
        critic = actor = encoder(start, incidence, chosen)
        if not both:
            seen = self._shares(start) if plan.link_critic_sees == SHARES else start
            critic = Messages(plan, ("graph",), False, name="critic")(seen, incidence)
        policy = self._logits(actor, pair, near)
        value = Head(1, initialiser(plan, plan.value_gain), name="critic_head")(critic.graph)
        return Outputs(policy.reshape((*lead, self.outputs)), value.reshape(lead))

    @property
    def _further(self) -> int:
        """Actions that belong to no path."""
        routes = self.routes
        return 0 if routes is None else self.outputs - routes.hops.shape[1] * routes.outputs

    def _features(self, graph: Any) -> GraphState:
        plan, nodes = self.plan, graph.nodes
        if not plan.gnn_node_features:
            nodes = jnp.zeros((*nodes.shape[:-1], 1), nodes.dtype)
        elif self.routes is not None:
            coordinates = nodes[..., :-_MARKS][..., : plan.gnn_num_spectral_features]
            nodes = jnp.concatenate([coordinates, nodes[..., -_MARKS:]], axis=-1)
        edges, nodes = (jnp.moveaxis(x, 0, 1) for x in (graph.edges, nodes))
        return GraphState(edges, nodes, graph.globals)

    def _shares(self, start: GraphState) -> GraphState:
        nodes = start.nodes
        if self.plan.gnn_node_features:
            marks_alone = nodes.shape[-1] == _MARKS  # gnn_num_spectral_features is 0
            nodes = jnp.zeros_like(nodes[..., :1]) if marks_alone else nodes[..., :-_MARKS]
        return start.replace(edges=shares(start.edges), nodes=nodes)

    def _incidence(self, graph: Any) -> Incidence:
        count, dtype = graph.nodes.shape[-2], graph.edges.dtype
        if self.routes is None:
            return Incidence.make(graph.senders, graph.receivers, count, dtype)
        senders, receivers = self.routes.senders, self.routes.receivers
        if graph.edges.shape[-2] == 2 * len(senders):  # undirected links, once each way
            senders, receivers = np.append(senders, receivers), np.append(receivers, senders)
        return Incidence.make(jnp.asarray(senders), jnp.asarray(receivers), count, dtype)

    def _logits(
        self, state: GraphState, pair: Array | None, near: Nearby | None
    ) -> Float[Array, "B A"]:
        plan, routes = self.plan, self.routes
        kernel_init = initialiser(plan, plan.policy_gain)
        if routes is None or pair is None:
            return Head(self.outputs, kernel_init, name="actor_head")(state.graph)
        links = None if near is None else jnp.asarray(near.links)[pair]
        weights = self._weights(routes, pair, links).astype(state.edges.dtype)
        edges = state.edges
        if edges.shape[0] == 2 * weights.shape[-1]:  # undirected links, once each way
            half = weights.shape[-1]
            edges = edges[:half] + edges[half:]
        # Summed before the linear layer: K rows to multiply where there would be one per link.
        paths = jnp.einsum("bku,ubd->bkd", weights, edges)
        logits = Head(routes.outputs, kernel_init, name="actor_head")(paths)
        logits = logits.reshape((logits.shape[0], -1))
        if not self._further:
            return logits
        rest = Head(self._further, kernel_init, name="actor_further")(state.graph)
        return jnp.concatenate([logits, rest], axis=-1)

    def _weights(
        self, routes: Routes, pair: Int[Array, " B"], links: Int[Array, "B U"] | None
    ) -> Float[Array, "B K U"]:
        inside = membership(routes, pair, links)
        if not self.plan.gnn_normalise_by_link_length:
            return inside.astype(jnp.float32)
        km = jnp.asarray(routes.km, jnp.float32)
        length = jnp.where(inside, (km[None] if links is None else km[links])[:, None], 0.0)
        return length / jnp.maximum(jnp.sum(length, axis=-1, keepdims=True), 1e-6)
