"""`rollout:HEURISTIC`: a yardstick that looks ahead, what a heuristic costs and how much is left.

For each request every candidate is tried on many random futures that the heuristic serves, the
same ones for all candidates; where one is better by more than chance, it is taken (Bertsekas,
Tsitsiklis and Wu 1997, "Rollout algorithms for combinatorial optimization"). Elsewhere the
heuristic decides: a least mean over noisy ones picks noise. It knows the distribution of requests
and none of those to come.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt32

from ....errors import ConfigError
from .bits import NONE, first_set
from .heuristics import Heuristic, make_heuristic
from .network_state import OpticalState
from .optical_environment import OpticalEnvironment
from .random_words import random_words
from .resources import Offers
from .traffic import WORDS_PER_REQUEST, OpticalParams

__all__ = ["PREFIX", "RolloutRule", "is_rollout", "make_rollout"]

PREFIX = "rollout:"
FUTURES, HORIZON = 64, 250
_ERRORS = 3.0  # standard errors that a candidate must be better by
_LOOKING = 0x10C4A0  # use of a request's random words


@dataclass(frozen=True, eq=False)
class RolloutRule:
    """See `make_rollout`.

    Attributes:
        environment: where it serves.
        heuristic: serves the futures.
        futures: M, of each request.
        horizon: H, requests of each future.
    """

    environment: OpticalEnvironment
    heuristic: Heuristic
    futures: int
    horizon: int

    @property
    def simulated(self) -> int:
        """Requests that are simulated for each one that is served."""
        return (self.environment.num_paths + 2) * self.futures * (self.horizon + 1)

    def begin(self) -> Any:
        """Return nothing: it remembers nothing."""
        return ()

    def choose(
        self,
        state: OpticalState,
        offers: Offers,
        params: OpticalParams,
        memory: Any,
        words: UInt32[Array, " n"],
    ) -> tuple[Int[Array, ""], Int[Array, ""], Any]:
        """Return the best candidate where it is better than the heuristic's beyond chance."""
        key = jax.random.wrap_key_data(words[:2], impl="threefry2x32")
        key = jax.random.fold_in(key, _LOOKING)
        (paths, starts), lost = self.losses(state, offers, params, key)
        apart = lost - lost[:, :1]
        mean = apart.mean(0)
        error = apart.std(0, ddof=1) / jnp.sqrt(jnp.float32(self.futures))
        best = jnp.argmin(jnp.where(mean < -_ERRORS * error, mean, 0.0))
        return paths[best], starts[best], memory

    def losses(
        self, state: OpticalState, offers: Offers, params: OpticalParams, key: PRNGKeyArray
    ) -> tuple[tuple[Int[Array, " C"], Int[Array, " C"]], Float[Array, "M C"]]:
        """Return candidates (paths [C], starts [C]) and what each loses in each future.

        The candidates are the heuristic's choice, each path at its lowest start, and refusing.
        Losses are rewards with the sign changed, of this request and the future's.
        """
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
                begun = (step.state, ~(step.terminated | step.truncated), -step.reward)
                return jax.lax.scan(self._served(params), begun, words[1:])[0][2]

            return jax.vmap(candidate)(paths, starts)

        return (paths, starts), jax.lax.map(future, jax.random.split(key, self.futures))

    def _served(self, params: OpticalParams) -> Any:
        """Return a step of a future: serve a request unless its episode is over."""
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


def is_rollout(name: object) -> bool:
    """Return whether a rule's name asks for a rollout."""
    return isinstance(name, str) and name.startswith(PREFIX)


def make_rollout(name: str, environment: OpticalEnvironment) -> RolloutRule:
    """Return the rule of `rollout:HEURISTIC` or `rollout:HEURISTIC@FUTURESxHORIZON`.

    Raises:
        UnknownNameError: no such heuristic.
        ConfigError: the numbers are none, or requests are given, so that none are drawn.
    """
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
