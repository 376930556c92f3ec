"""Agents serve the requests of a network: heuristics, and policies with their memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, UInt32

from ....errors import ConfigError
from ...pytree import Pytree, pytree
from ..contract import Environment, differing, pushed, unwrapped
from .heuristics import Heuristic, make_heuristic
from .network_state import Offers, OpticalState
from .optical_environment import OpticalEnvironment
from .traffic import OpticalParams

Words = UInt32[Array, " n"]
Answer = tuple[Int[Array, ""], Int[Array, ""], Any]  # path, start slot, memory after the request


@runtime_checkable
class Agent(Protocol):
    def begin(self) -> Any:
        """Return the memory before the first request of an episode, a tree of arrays."""
        ...

    def choose(
        self, state: OpticalState, offers: Offers, params: OpticalParams, memory: Any, words: Words
    ) -> Answer:
        """Return where the current request goes, and the memory after it."""
        ...


Rule = str | Heuristic | Agent  # the name of a heuristic, a heuristic, or an agent


@dataclass(frozen=True)
class _HeuristicAgent:
    heuristic: Heuristic

    def begin(self) -> Any:
        return ()

    def choose(
        self, state: OpticalState, offers: Offers, params: OpticalParams, memory: Any, words: Words
    ) -> Answer:
        return *self.heuristic(state, offers, params), memory


def make_agent(rule: Rule, environment: OpticalEnvironment) -> Agent:
    return rule if isinstance(rule, Agent) else _HeuristicAgent(make_heuristic(rule, environment))


def begin_all(agent: Agent, count: int) -> Any:
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (count, *x.shape)), agent.begin())


_SAMPLING = 0x5A3B1E  # use of a request's random words


@pytree
class _Memory(Pytree):
    seen: Any  # its last observations, oldest first; None where it sees only the newest
    inner: Any  # of its network


@dataclass(frozen=True, eq=False)
class PolicyRule:
    environment: OpticalEnvironment  # `check_fits` says whether the policy can act in it
    policy: Any  # with `history`, `begin` and `act` of `SavedPolicy`
    greedy: bool = True  # the likeliest action instead of a sample

    def begin(self) -> _Memory:
        seen, length = None, self.policy.history
        if length > 1:
            struct = self.environment.observation_struct
            seen = jnp.zeros((length, *struct.shape), struct.dtype)
        return _Memory(seen, self.policy.begin())

    def choose(
        self, state: OpticalState, offers: Offers, params: OpticalParams, memory: Any, words: Words
    ) -> Answer:
        shown = self.environment.observe(state, params)
        seen = None if memory.seen is None else pushed(memory.seen, shown)
        key = None
        if not self.greedy:
            key = jax.random.wrap_key_data(words[:2], impl="threefry2x32")
            key = jax.random.fold_in(key, _SAMPLING)
        mask = self.environment.action_mask(state, params)
        action, inner = self.policy.act(shown if seen is None else seen, mask, memory.inner, key)
        return *self.environment.decode(state, offers, action), _Memory(seen, inner)


def check_fits(learnt_in: Environment, environment: OpticalEnvironment) -> None:
    for what, theirs, ours in differing(unwrapped(learnt_in), environment):
        raise ConfigError(
            f"the policy was trained for other {what} ({theirs}) than this environment has "
            f"({ours}); give slots, k, aggregate_slots, no_op, observation and topology as "
            "in training"
        )
