"""One perceptron that scores every candidate path, by what it costs and by its rank.

A perceptron over the whole observation learns what each path's features mean once a path; this one
learns it once, and so chooses among fifty paths as easily as among five. Before it has learned
anything its most likely action is that of a heuristic: the one that takes the first path with room
(`ksp_ff`, or `ksp_bf` with `fits: [best, ...]`), or the one that takes the lowest start slot there
is (`ff_ksp`). Learning goes on from there (Silver et al. 2018, "Residual policy learning").
"""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..envs.contract import Routes
from ..plan import Plan
from .dense import Dense
from .mlp import ACTIVATIONS, Head, initialiser
from .outputs import Outputs

__all__ = ["SLOT", "PathMLP", "observed_size"]

SLOT = "slot"
"""`path_mlp_begins` where the untrained network goes by the start slot, not by the path."""

_REQUEST, _LOAD = 3, 1  # numbers about the request and the network; the last is the share in use
_PATH, _START = 8, 1  # numbers about a path, and which of them is its lowest start over S


def observed_size(routes: Routes) -> int:
    """Return the length of `observation: paths`: 2 N + 3 + 8 K + links."""
    return 2 * routes.num_nodes + _REQUEST + _PATH * routes.hops.shape[1] + len(routes.km)


class PathMLP(nn.Module):
    """Observations `paths` of optical environments to logits and values.

    Path i's option o, of O, has the logit f(path, request, links)_o - a i - b o / O, where a and b
    begin at 1 and f, whose head is small, near 0. Where `path_mlp_begins` is `slot` it is
    f(path, request, links)_o - a i / K - b o / O - c s, s the path's lowest start, c too from 1.
    Numbers of a path are squashed by arcsinh, for free blocks are up to S times as long as a
    request needs. The critic sees how full the links are and nothing of the request, so that its
    value does not contain the luck of the next one.

    Attributes:
        plan: sizes.
        outputs: logits, A.
        routes: links and candidate paths.
        slots: S.
    """

    plan: Plan
    outputs: int
    routes: Routes
    slots: int

    @nn.compact
    def __call__(self, observation: Float[Array, "... D"]) -> Outputs:
        """Return policy outputs [..., A] and values [...] of observations, any leading axes."""
        plan, routes = self.plan, self.routes
        lead, paths = observation.shape[:-1], routes.hops.shape[1]
        rows = observation.reshape((-1, observation.shape[-1])).astype(plan.dtype)
        ends = 2 * routes.num_nodes
        request, seen, free = jnp.split(
            rows, [ends + _REQUEST, ends + _REQUEST + _PATH * paths], axis=-1
        )
        seen = seen.reshape((-1, paths, _PATH))
        loads = jnp.concatenate([request[:, -_LOAD:], 2.0 - 4.0 * free], axis=-1)
        hidden = self._of_paths(seen, jnp.append(request, loads, -1))
        initial = initialiser(plan, plan.policy_gain)
        logits = Head(routes.outputs, initial, name="actor_head")(hidden)
        by_slot = plan.path_mlp_begins == SLOT
        slopes = self.param("slopes", nn.initializers.ones, (3 if by_slot else 2,), jnp.float32)
        places = jnp.asarray(np.indices((paths, routes.outputs)), jnp.float32)
        if by_slot:
            logits = logits - slopes[2] * (seen[..., _START, None] * self.slots)
        steps = jnp.array([1.0 / paths if by_slot else 1.0, 1.0 / routes.outputs])
        order = jnp.einsum("s,sko->ko", slopes[:2] * steps, places)
        logits = (logits - order[None]).reshape((rows.shape[0], -1))
        further = self.outputs - logits.shape[-1]
        if further:  # actions of no path, which come last at first
            rest = Head(further, initial, name="actor_further")(jnp.mean(hidden, axis=-2))
            most = jnp.array([1.0, 1.0, self.slots] if by_slot else [paths, 1.0])
            logits = jnp.append(logits, rest - jnp.sum(slopes * most), axis=-1)
        for i, width in enumerate(plan.hidden_sizes):
            loads = self._activated(Dense(width, self._kernel, name=f"critic_{i}")(loads),
                                    f"critic_norm_{i}")  # fmt: skip
        value = Head(1, initialiser(plan, plan.value_gain), name="critic_head")(loads)
        return Outputs(logits.reshape((*lead, -1)), value.reshape(lead))

    @property
    def _kernel(self) -> Any:
        return initialiser(self.plan, self.plan.hidden_gain)

    def _activated(self, x: Array, norm: str) -> Array:
        if self.plan.layer_norm:
            x = nn.LayerNorm(name=norm)(x)
        return ACTIVATIONS[self.plan.activation](x)

    def _of_paths(
        self, seen: Float[Array, "B K 8"], shared: Float[Array, "B C"]
    ) -> Float[Array, "B K H"]:
        """Return the last hidden layer of each path; what all paths share is multiplied once."""
        rank = np.arange(seen.shape[1], dtype=np.float32)
        ranks = jnp.asarray(np.stack([rank / len(rank), 1.0 / (1.0 + rank)], -1), seen.dtype)
        ranks = jnp.broadcast_to(ranks[None], (*seen.shape[:2], 2))
        x = jnp.concatenate([jnp.arcsinh(seen), ranks], axis=-1)
        for i, width in enumerate(self.plan.hidden_sizes):
            x = Dense(width, self._kernel, name=f"path_{i}")(x)
            if i == 0:
                x = x + Dense(width, self._kernel, biased=False, name="shared")(shared)[:, None]
            x = self._activated(x, f"norm_{i}")
        return x
