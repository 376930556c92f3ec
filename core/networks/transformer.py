"""Transformers: over the links of an optical network, and over the observations of a history."""

from __future__ import annotations

from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, UInt32

from ..envs.contract import Routes
from ..plan import Plan
from .attention import Blocks, Chosen, HeadLayers, Keyed
from .dense import Dense
from .link_shares import SHARES, shares
from .mlp import Head, initialiser
from .outputs import Outputs
from .path_pooling import Nearby, Pooling, membership, nearby

__all__ = ["LinkTransformer", "SequenceTransformer"]


class LinkEncoder(nn.Module):
    """Links as tokens: embedded by a linear layer, GELU and layer norm, then blocks."""

    plan: Plan

    @nn.compact
    def __call__(
        self,
        columns: tuple[Array, ...],
        position: Float[Array, "links P"],
        words: UInt32[Array, "B 2"] | None,
        chosen: Chosen | None = None,
    ) -> Float[Array, "B m D"]:
        """Return the encoded links.

        Args:
            columns: features of the links, [B, links, ...] each.
            position: coordinates in the line graph, those of all samples.
            words: for dropout.
            chosen: gives, of rows for all links, those of the m links to give; None: all.
        """
        plan = self.plan
        kernel_init = initialiser(plan, plan.hidden_gain)
        embed = Dense(plan.transformer_embedding_size, kernel_init=kernel_init, name="embed")
        tokens = jax.nn.gelu(embed(jnp.concatenate(columns, axis=-1)))
        tokens = nn.LayerNorm(name="embed_norm")(tokens)
        turned_by = position[..., : plan.transformer_wire_features]
        turned = turned_by if turned_by.shape[-1] else None
        return Blocks(plan, name="blocks")(tokens, turned, words, chosen)


class LinkTransformer(nn.Module):
    """`LinkTokens` to policy outputs and a value.

    The logits of a candidate path's options are a linear layer over its pooled links, those of
    actions of no path over all links; the value comes from all links. A separate critic does not
    see the columns of the request (as published); with `link_critic_sees: shares` it sees how full
    each link is instead of its slots.

    Attributes:
        plan: sizes.
        outputs: logits, A.
        routes: links and candidate paths.
    """

    plan: Plan
    outputs: int
    routes: Routes

    @nn.compact
    def __call__(self, observation: Any) -> Outputs:
        """Return policy outputs [..., A] and values [...] of tokens with any leading axes."""
        plan = self.plan
        observation, words = _unkeyed(observation)
        lead = observation.slots.shape[:-2]
        lines = jax.tree.map(lambda x: x.reshape((-1, *x.shape[len(lead) :])), observation)
        words = None if words is None else words.reshape((-1, 2))
        columns = (lines.position, lines.slots, lines.marginals, lines.request)
        both = plan.shared_encoder
        near = None if both or self._further else nearby(self.routes)
        chosen = None if near is None else partial(near.of_tokens, pair=lines.pair)
        position = jnp.asarray(self.routes.coordinates, lines.position.dtype)
        encoder = LinkEncoder(plan, name="encoder" if both else "actor")
        critic = actor = encoder(columns, position, words, chosen)
        if not both:
            few = plan.link_critic_sees == SHARES
            slots = shares(lines.slots) if few else lines.slots
            seen = (lines.position, slots, lines.marginals)
            critic = LinkEncoder(plan, name="critic")(seen, position, words)
        policy = self._logits(actor, lines.pair, near)
        value = _value(plan, critic)
        return Outputs(policy.reshape((*lead, self.outputs)), value.reshape(lead))

    @property
    def _further(self) -> int:
        """Actions that belong to no path."""
        return self.outputs - self.routes.hops.shape[1] * self.routes.outputs

    def _logits(
        self, links: Float[Array, "B m D"], pair: Array, near: Nearby | None
    ) -> Float[Array, "B A"]:
        plan, routes = self.plan, self.routes
        kernel_init = initialiser(plan, plan.policy_gain)
        hidden = HeadLayers(
            plan, plan.transformer_actor_mlp_width, plan.transformer_actor_mlp_depth,
            name="actor_mlp",
        )(links)  # fmt: skip
        inside = membership(routes, pair, None if near is None else jnp.asarray(near.links)[pair])
        paths = Pooling(plan.transformer_actor_pooling, name="actor_pooling")(hidden, inside)
        logits = Head(routes.outputs, kernel_init, name="actor_head")(paths)
        logits = logits.reshape((logits.shape[0], -1))
        if not self._further:
            return logits
        rest = Head(self._further, kernel_init, name="actor_further")(jnp.mean(hidden, axis=1))
        return jnp.concatenate([logits, rest], axis=-1)


class SequenceEncoder(nn.Module):
    """A history as tokens: embedded, a learned position added, then blocks."""

    plan: Plan

    @nn.compact
    def __call__(
        self, tokens: Float[Array, "B n F"], words: UInt32[Array, "B 2"] | None
    ) -> Float[Array, "B n D"]:
        """Return the encoded tokens."""
        plan = self.plan
        width, count = plan.transformer_embedding_size, tokens.shape[1]
        embedded = Dense(width, kernel_init=initialiser(plan, 1.0), name="embed")(tokens)
        near = nn.initializers.normal(0.02)
        positions = self.param("positions", near, (count, width), jnp.float32)
        return Blocks(plan, name="blocks")(embedded + positions[None], None, words)


class SequenceTransformer(nn.Module):
    """Stacked observations [history, ...] to policy outputs and a value.

    Attributes:
        plan: sizes.
        outputs: logits or means, A.
        shape: of one observation; its first axis counts tokens if `history` is above 1.
        tokens: how many.
    """

    plan: Plan
    outputs: int
    shape: tuple[int, ...]
    tokens: int

    @nn.compact
    def __call__(self, observation: Any) -> Outputs:
        """Return policy outputs [..., A] and values [...]."""
        plan = self.plan
        observation, words = _unkeyed(observation)
        lead = observation.shape[: observation.ndim - len(self.shape)]
        rows = observation.reshape((-1, self.tokens, int(np.prod(self.shape)) // self.tokens))
        rows = rows.astype(plan.dtype)
        words = None if words is None else words.reshape((-1, 2))
        if plan.shared_encoder:
            actor = critic = SequenceEncoder(plan, name="encoder")(rows, words)
        else:
            actor = SequenceEncoder(plan, name="actor")(rows, words)
            critic = SequenceEncoder(plan, name="critic")(rows, words)
        pooled = Pooling(plan.transformer_actor_pooling, name="actor_pooling")(
            actor, _everything(actor)
        )[:, 0]
        hidden = HeadLayers(
            plan, plan.transformer_actor_mlp_width, plan.transformer_actor_mlp_depth,
            name="actor_mlp",
        )(pooled)  # fmt: skip
        policy = Head(self.outputs, initialiser(plan, plan.policy_gain), name="actor_head")(hidden)
        value = _value(plan, critic)
        return Outputs(policy.reshape((*lead, self.outputs)), value.reshape(lead))


def _value(plan: Plan, tokens: Float[Array, "B n D"]) -> Float[Array, " B"]:
    """Return the value of pooled tokens; called inside a compact module."""
    pooled = Pooling(plan.transformer_critic_pooling, name="critic_pooling")(
        tokens, _everything(tokens)
    )[:, 0]
    hidden = HeadLayers(
        plan, plan.transformer_critic_mlp_width, plan.transformer_critic_mlp_depth,
        name="critic_mlp",
    )(pooled)  # fmt: skip
    return Head(1, initialiser(plan, plan.value_gain), name="critic_head")(hidden)[..., 0]


def _everything(tokens: Float[Array, "B n D"]) -> Array:
    return jnp.ones((tokens.shape[0], 1, tokens.shape[1]), bool)


def _unkeyed(observation: Any) -> tuple[Any, Array | None]:
    if isinstance(observation, Keyed):
        return observation.observation, observation.words
    return observation, None
