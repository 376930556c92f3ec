"""Whoever serves requests: a heuristic, or a policy with all that it remembers.

Every compiled evaluation of a network serves by an `Agent`, whose memory begins anew with each
episode; a heuristic is one that remembers nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, UInt32

from .heuristics import Heuristic, make_heuristic
from .network_state import OpticalState
from .optical_environment import OpticalEnvironment
from .resources import Offers
from .rollout_rule import is_rollout, make_rollout
from .traffic import OpticalParams

__all__ = ["Agent", "Rule", "begin_all", "make_agent", "restarted"]

Answer = tuple[Int[Array, ""], Int[Array, ""], Any]
"""(path, start slot, memory after the request)."""


@runtime_checkable
class Agent(Protocol):
    """Serves the requests of one network, one after the other."""

    def begin(self) -> Any:
        """Return the memory before the first request of an episode, a tree of arrays."""
        ...

    def choose(
        self,
        state: OpticalState,
        offers: Offers,
        params: OpticalParams,
        memory: Any,
        words: UInt32[Array, " n"],
    ) -> Answer:
        """Return where the current request goes, and the memory after it.

        Args:
            state: of the network.
            offers: of the candidate paths.
            params: of the environment.
            memory: before the request.
            words: random words of this request, two or more, for what is drawn.
        """
        ...


Rule = str | Heuristic | Agent
"""The name of a heuristic or rollout, a heuristic, or an agent."""


@dataclass(frozen=True)
class _Forgetful:
    """A heuristic as an agent."""

    heuristic: Heuristic

    def begin(self) -> Any:
        """Return nothing."""
        return ()

    def choose(
        self,
        state: OpticalState,
        offers: Offers,
        params: OpticalParams,
        memory: Any,
        words: UInt32[Array, " n"],
    ) -> Answer:
        """Return what the heuristic chooses."""
        return *self.heuristic(state, offers, params), memory


def make_agent(rule: Rule, environment: OpticalEnvironment) -> Agent:
    """Return the agent of a rule.

    Raises:
        UnknownNameError: no such heuristic.
        ConfigError: a rollout that the environment cannot have.
    """
    if isinstance(rule, Agent):
        return rule
    if isinstance(rule, str) and is_rollout(rule):
        return make_rollout(rule, environment)
    return _Forgetful(make_heuristic(rule, environment))


def begin_all(agent: Agent, count: int) -> Any:
    """Return the memories [count, ...] before the first requests of so many networks."""
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (count, *x.shape)), agent.begin())


def restarted(ended: Bool[Array, "*n"], fresh: Any, going: Any) -> Any:
    """Return trees [*n, ...] with those rows taken from `fresh` whose episode has ended."""

    def pick(new: Array, old: Array) -> Array:
        return jnp.where(ended.reshape(ended.shape + (1,) * (new.ndim - ended.ndim)), new, old)

    return jax.tree.map(pick, fresh, going)
