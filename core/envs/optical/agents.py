"""Agents serve the requests of a network: heuristics, rollouts, and policies with their memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt32

from ....errors import ConfigError
from ...pytree import Pytree, pytree
from ..contract import Environment, differing, pushed, unwrapped
from .heuristics import Heuristic, make_heuristic
from .network_state import Offers, OpticalState
from .optical_environment import OpticalEnvironment
from .spectrum import NONE, first_set
from .traffic import WORDS_PER_REQUEST, OpticalParams, random_words

PREFIX = "rollout:"
FUTURES, HORIZON = 64, 250
_ERRORS = 3.0  # standard errors that a candidate must be better by
_LOOKING = 0x10C4A0  # use of a request's random words


Words = UInt32[Array, " n"]
Answer = tuple[Int[Array, ""], Int[Array, ""], Any]  # path, start slot, memory after the request


@runtime_checkable
class Agent(Protocol):
    """Serves the requests of one network; its memory restarts with each episode."""

    def begin(self) -> Any:
        """Return the memory before the first request of an episode, a tree of arrays."""
        ...

    def choose(
        self, state: OpticalState, offers: Offers, params: OpticalParams, memory: Any, words: Words
    ) -> Answer:
        """Return where the current request goes, and the memory after it."""
        ...


Rule = str | Heuristic | Agent  # the name of a heuristic or rollout, a heuristic, or an agent


@dataclass(frozen=True, eq=False)
class RolloutRule:
    """Tries candidates in futures that a heuristic serves: `rollout:HEURISTIC[@MxH]`."""

    environment: OpticalEnvironment
    heuristic: Heuristic
    futures: int  # M, of each request
    horizon: int  # H, requests of each future

    @property
    def simulated(self) -> int:
        return (self.environment.num_paths + 2) * self.futures * (self.horizon + 1)

    def begin(self) -> Any:
        return ()

    def choose(
        self, state: OpticalState, offers: Offers, params: OpticalParams, memory: Any, words: Words
    ) -> Answer:
        """Return the best candidate if it beats the heuristic's by 3 standard errors."""
        key = jax.random.wrap_key_data(words[:2], impl="threefry2x32")
        key = jax.random.fold_in(key, _LOOKING)
        (paths, starts), lost = self.losses(state, offers, params, key)
        more = lost - lost[:, :1]  # than the heuristic's choice
        mean = more.mean(0)
        error = more.std(0, ddof=1) / jnp.sqrt(jnp.float32(self.futures))
        best = jnp.argmin(jnp.where(mean < -_ERRORS * error, mean, 0.0))
        return paths[best], starts[best], memory

    def losses(
        self, state: OpticalState, offers: Offers, params: OpticalParams, key: PRNGKeyArray
    ) -> tuple[tuple[Int[Array, " C"], Int[Array, " C"]], Float[Array, "M C"]]:
        """Return the heuristic's choice, each path, and refusing; and their lost returns."""
        env, count = self.environment, self.environment.num_paths
        path, start = self.heuristic(state, offers, params)
        first = first_set(offers.starts)
        paths = jnp.concatenate([path[None], jnp.arange(count + 1, dtype=jnp.int32)])
        lowest = jnp.where(first == NONE, 0, first)
        starts = jnp.concatenate([start[None], lowest, jnp.zeros(1, jnp.int32)])

        def future(key: PRNGKeyArray) -> Float[Array, " C"]:
            words = random_words(key, (self.horizon + 1) * WORDS_PER_REQUEST)
            words = words.reshape(-1, WORDS_PER_REQUEST)

            def candidate(path: Int[Array, ""], start: Int[Array, ""]) -> Float[Array, ""]:
                step = env.serve(words[0], state, offers, path, start, params)
                first = (step.state, ~(step.terminated | step.truncated), -step.reward)
                return jax.lax.scan(self._future_step(params), first, words[1:])[0][2]

            return jax.vmap(candidate)(paths, starts)

        return (paths, starts), jax.lax.map(future, jax.random.split(key, self.futures))

    def _future_step(self, params: OpticalParams) -> Any:
        env = self.environment

        def step(
            carry: tuple[OpticalState, Bool[Array, ""], Float[Array, ""]], words: Array
        ) -> tuple[Any, None]:
            state, going, lost = carry
            offers = env.offers(state, params)
            path, start = self.heuristic(state, offers, params)
            after = env.serve(words, state, offers, path, start, params)
            lost = lost - jnp.where(going, after.reward, 0.0)
            return (after.state, going & ~(after.terminated | after.truncated), lost), None

        return step


def _make_rollout(name: str, environment: OpticalEnvironment) -> RolloutRule:
    if environment.traffic.requests is not None:
        raise ConfigError(
            f"{name} draws futures of requests, and this environment has a list of them: leave "
            "requests out"
        )
    rule, at, size = name.removeprefix(PREFIX).partition("@")
    futures, horizon = FUTURES, HORIZON
    if at:
        numbers = size.split("x")
        type_ = f"type {PREFIX}{rule}@{FUTURES}x{HORIZON}"
        if len(numbers) != 2 or not all(n.isascii() and n.isdigit() for n in numbers):
            raise ConfigError(f"{name}: what follows @ is FUTURESxHORIZON; {type_}")
        futures, horizon = map(int, numbers)
        if futures < 2:
            raise ConfigError(f"{name}: an error takes 2 futures or more; {type_}")
    return RolloutRule(environment, make_heuristic(rule, environment), futures, horizon)


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
    if isinstance(rule, Agent):
        return rule
    if isinstance(rule, str) and rule.startswith(PREFIX):
        return _make_rollout(rule, environment)
    return _HeuristicAgent(make_heuristic(rule, environment))


def begin_all(agent: Agent, count: int) -> Any:
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (count, *x.shape)), agent.begin())


_SAMPLING = 0x5A3B1E  # use of a request's random words


@pytree
class _Memory(Pytree):
    seen: Any  # its last observations, oldest first; None where it sees only the newest
    inner: Any  # of its network


@dataclass(frozen=True, eq=False)
class PolicyRule:
    """The agent that observes and remembers as a policy does and serves its choices."""

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
    """Refuse an environment whose actions or observations a policy was not trained for."""
    for what, theirs, ours in differing(unwrapped(learnt_in), environment):
        raise ConfigError(
            f"the policy was trained for other {what} ({theirs}) than this environment has "
            f"({ours}); give slots, k, aggregate_slots, no_op, observation and topology as "
            "in training"
        )
