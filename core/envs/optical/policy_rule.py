"""A trained policy in the place of a heuristic, so that both serve the same request streams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PRNGKeyArray, UInt32

from ....errors import ConfigError
from ...pytree import Pytree, pytree
from ..contract import Environment, same_observations
from ..stacked_observations import pushed, unwrapped
from .agents import Agent, Answer
from .network_state import OpticalState
from .optical_environment import OpticalEnvironment
from .resources import Offers
from .traffic import OpticalParams

__all__ = ["ActingPolicy", "check_fits", "make_policy_rule"]

_SAMPLING = 0x5A3B1E  # use of a request's random words


@runtime_checkable
class ActingPolicy(Protocol):
    """What is asked of a policy.

    Attributes:
        history: observations that it sees at once; 1: only the newest, without an axis for them.
    """

    @property
    def history(self) -> int: ...  # noqa: D102

    def begin(self) -> Any:
        """Return its memory at the start of an episode."""
        ...

    def act(
        self,
        observation: Any,
        mask: Bool[Array, " A"],
        memory: Any,
        key: PRNGKeyArray | None,
    ) -> tuple[Int[Array, ""], Any]:
        """Return the action for one observation, its mode without a key, and the memory."""
        ...


@pytree
class _Memory(Pytree):
    """What a policy keeps between two requests.

    Attributes:
        seen: its last observations, oldest first; None where it sees only the newest.
        inner: of its network.
    """

    seen: Any
    inner: Any


@dataclass(frozen=True, eq=False)
class _PolicyRule:
    """See `make_policy_rule`."""

    environment: OpticalEnvironment
    policy: ActingPolicy
    greedy: bool

    def begin(self) -> _Memory:
        """Return no observations (zeros), and the network's memory at the start of an episode."""
        seen, length = None, self.policy.history
        if length > 1:
            struct = self.environment.observation_struct
            seen = jnp.zeros((length, *struct.shape), struct.dtype)
        return _Memory(seen, self.policy.begin())

    def choose(
        self,
        state: OpticalState,
        offers: Offers,
        params: OpticalParams,
        memory: _Memory,
        words: UInt32[Array, " n"],
    ) -> Answer:
        """Observe as the policy does, and serve what it chooses."""
        shown = self.environment.observe(state, params)
        seen = None if memory.seen is None else pushed(memory.seen, shown)
        key = None
        if not self.greedy:
            key = jax.random.wrap_key_data(words[:2], impl="threefry2x32")
            key = jax.random.fold_in(key, _SAMPLING)
        mask = self.environment.action_mask(state, params)
        action, inner = self.policy.act(shown if seen is None else seen, mask, memory.inner, key)
        return *self.environment.decode(state, offers, action), _Memory(seen, inner)


def make_policy_rule(
    environment: OpticalEnvironment, policy: ActingPolicy, greedy: bool = True
) -> Agent:
    """Return the agent that observes and remembers as a policy does and serves what it chooses.

    Args:
        environment: where it acts; `check_fits` says whether the policy can.
        policy: such as a `SavedPolicy`.
        greedy: the likeliest action instead of a sample.
    """
    return _PolicyRule(environment, policy, greedy)


def check_fits(learnt_in: Environment, environment: OpticalEnvironment) -> None:
    """Refuse an environment whose actions or observations a policy was not trained for.

    Args:
        learnt_in: the policy's; how it stacks observations is the policy's own affair.
        environment: where it is to act.

    Raises:
        ConfigError: says which.
    """
    learnt_in = unwrapped(learnt_in)
    alike = {
        "action_space": learnt_in.action_space == environment.action_space,
        "observation_struct": same_observations(learnt_in, environment),
    }
    for name, same in alike.items():
        if not same:
            theirs, ours = getattr(learnt_in, name), getattr(environment, name)
            what = "actions" if name == "action_space" else "observations"
            raise ConfigError(
                f"the policy was trained for other {what} ({theirs}) than this environment has "
                f"({ours}); give slots, k, aggregate_slots, no_op, observation and topology as "
                "in training"
            )
