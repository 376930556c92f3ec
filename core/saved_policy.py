"""A trained policy by itself: let it act, evaluate it, here or in another environment.

from hpo.core import evaluate, load_policy, predict
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Mapping
from numbers import Real
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from ..environments import find
from ..errors import ConfigError, UnknownNameError
from . import acting, policy
from .envs import registry as environments
from .envs.contract import HostedEnvironment, same_observations
from .evaluation import Episodes, Policies
from .evaluation import evaluate as evaluate_policies
from .hypers import Hypers, make_hypers
from .lane_state import lane_key
from .normalise import RunningStatistics
from .plan import EnvPlan, Plan, as_seen
from .reward_state import RewardState
from .trace import trace

__all__ = ["SavedPolicy", "evaluate", "predict"]

_HELD_OUT = 3  # seed stream of `SavedPolicy.evaluate`; 0 to 2 are the study's


@dataclasses.dataclass(frozen=True, eq=False)
class SavedPolicy:
    """One policy.

    Attributes:
        plan: the static part of its configuration.
        config: every knob, as `knobs.complete` gives it.
        env_params: parameters of the training environment, name -> number.
        eval_params: parameters of the evaluation environment.
        params: of the network.
        statistics: frozen observation normaliser.
        about: where it came from (study, trial, ...), free text by key.
        rewards: the reward memory that training went on with; None if an earlier version, which
            kept none, wrote the policy.
        imports: files of the user's own that registered what it is made with, as the study named
            them.
    """

    plan: Plan
    config: Mapping[str, Any]
    env_params: Mapping[str, float]
    eval_params: Mapping[str, float]
    params: Any
    statistics: RunningStatistics
    about: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    rewards: RewardState | None = None
    imports: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Return what it is, without its arrays."""
        told = [f"{key} {self.about[key]}" for key in ("study", "trial") if key in self.about]
        where = f" of {', '.join(told)}" if told else ""
        return f"<SavedPolicy{where}: {self.plan.network} on {self.plan.env.id}>"

    def hypers(self) -> Hypers:
        """Return the traced part of its configuration."""
        env, eval_env = (environments.make(p) for p in (self.plan.env, self.plan.eval_env))
        return make_hypers(
            self.config,
            environments.params_of(env, self.env_params),
            environments.params_of(eval_env, self.eval_params),
        )

    def predict(
        self,
        observation: Any,
        *,
        mask: Array | None = None,
        carry: Any = None,
        key: PRNGKeyArray | None = None,
        deterministic: bool = True,
    ) -> tuple[Any, Any]:
        """Return an action for one observation (or a batch), and the carry.

        An action is an array; for Gymnasium's environments it is what `env.step` takes.

        Args:
            observation: as the environment gives it; leading batch axes are allowed. With
                `history: n` its last n ones, oldest first, zeros before the episode's start.
            mask: bool, valid actions, if the environment has them.
            carry: of recurrent networks, as the call before gave it; None where an episode
                begins. Passed through by all others.
            key: a random key, needed unless `deterministic`.
            deterministic: the mode of the distribution instead of a sample.

        Raises:
            ConfigError: the observation has another shape than those it was trained with.
        """
        if key is None and not deterministic:
            raise ValueError("predict(deterministic=False) needs a key")
        key = None if deterministic else key
        env = environments.make(self.plan.env)
        hosted = isinstance(env, HostedEnvironment)
        seen = self._observation(env.observed(observation) if hosted else observation)
        remembers = policy.is_recurrent(self.plan)
        action, memory = self._act(
            self.params, self.statistics, seen, mask, carry if remembers else None, key
        )
        return env.taken(action) if hosted else action, memory if remembers else carry

    @property
    def history(self) -> int:
        """The observations that it sees at once."""
        return self.plan.env.history

    def begin(self) -> Any:
        """Return the memory of its network at the start of an episode."""
        return policy.initial_carry(self.plan, ())

    def act(
        self, observation: Any, mask: Any, memory: Any, key: PRNGKeyArray | None
    ) -> tuple[Array, Any]:
        """Return the action for arrays as the environment shows them, and the memory after it.

        For callers inside of compiled programs; all others have `predict`.

        Args:
            observation: [...], stacked where `history` is above 1.
            mask: valid actions, or None.
            memory: as `begin` or the last call gave it.
            key: draws the action; None takes the likeliest.
        """
        return self._act(self.params, self.statistics, observation, mask, memory, key)

    @functools.cached_property
    def _act(self) -> Callable[..., tuple[Array, Any]]:
        """The compiled half of `predict`: it returns the action and the memory after it.

        Without a key the action is the mode, without a memory an episode begins.
        """
        plan, env, hypers = self.plan, environments.make(self.plan.env), self.hypers()

        def act(
            params: Any, statistics: RunningStatistics, observation: Any, mask: Any, memory: Any,
            key: Any,
        ) -> tuple[Array, Any]:  # fmt: skip
            traced = jax.tree.map(jnp.asarray, hypers)
            return acting.act(
                plan, env, traced, params, statistics, observation, mask, memory, key
            )

        return jax.jit(act)

    def _observation(self, given: Any) -> Any:
        """Return an observation (lists and all) as arrays of the environment's types."""
        env, history = environments.make(self.plan.env), self.plan.env.history
        stacked = f" (the last {history}, oldest first)" if history > 1 else ""

        def one(struct: jax.ShapeDtypeStruct, part: Any) -> Array:
            try:
                array = jnp.asarray(part, struct.dtype)
            except (TypeError, ValueError) as error:
                raise ConfigError(
                    f"the observation is {part!r:.60}; allowed: numbers of shape {struct.shape}"
                ) from error
            lead = array.ndim - len(struct.shape)
            if lead < 0 or array.shape[lead:] != struct.shape:
                raise ConfigError(
                    f"the observation has shape {array.shape}, those of {env.id} have "
                    f"{struct.shape}{stacked}; axes before these are allowed, for a batch"
                )
            return array

        return jax.tree.map(one, env.observation_struct, given)

    def evaluate(
        self, episodes: int, seed: int = 0, greedy: bool = True, steps: int | None = None
    ) -> Episodes:
        """Return [1, episodes] results on seeds that no study uses.

        Args:
            episodes: how many.
            seed: of the episodes.
            greedy: the mode of the distribution instead of a sample.
            steps: for continuous operation, see `evaluation.evaluate`.
        """
        if isinstance(environments.make(self.plan.eval_env), HostedEnvironment):
            from .host.host_evaluation import evaluate_here

            return evaluate_here(self.plan, self._alone(seed), episodes, greedy, steps)
        run = jax.jit(lambda lanes: evaluate_policies(self.plan, lanes, episodes, greedy, steps))
        return jax.device_get(run(self._alone(seed)))

    def trace(
        self, episodes: int, seed: int = 0, greedy: bool = True, steps: int | None = None
    ) -> dict[str, np.ndarray]:
        """Return every env step of the episodes that `evaluate` runs, by columns.

        Args:
            episodes: as of `evaluate`, like all that follow.
            seed: of the episodes.
            greedy: the mode of the distribution instead of a sample.
            steps: for continuous operation.
        """
        if isinstance(environments.make(self.plan.eval_env), HostedEnvironment):
            from .host.watched import trace_here

            return trace_here(self.plan, self._alone(seed), episodes, greedy, steps)
        return trace(self.plan, self._alone(seed), episodes, greedy, steps)

    def film(
        self, episodes: int, seed: int = 0, greedy: bool = True
    ) -> tuple[float, Iterator[np.ndarray]]:
        """Return pictures a second, and the pictures of the first episodes of `evaluate`.

        Pictures are uint8 [height, width, 3], one at the start of an episode and one after each
        of its steps, and made one by one.

        Args:
            episodes: how many, as of `evaluate`, like all that follow.
            seed: of the episodes.
            greedy: the mode of the distribution instead of a sample.

        Raises:
            ConfigError: the environment cannot draw itself.
            MissingExtraError: what it draws with is not installed.
        """
        if isinstance(environments.make(self.plan.eval_env), HostedEnvironment):
            from .host.watched import film_here

            return film_here(self.plan, self._alone(seed), episodes, greedy)
        from .film import film

        return film(self.plan, self._alone(seed), episodes, greedy)

    def _alone(self, seed: int) -> Policies:
        """Return the policy as one lane, on a seed that no study uses."""
        key = lane_key(jnp.int32(seed), jnp.int32(_HELD_OUT), jnp.int32(0))
        one = Policies(self.hypers(), self.params, self.statistics, key)
        return jax.tree.map(lambda x: jnp.asarray(x)[None], one)


def predict(
    policy: SavedPolicy,
    observation: Any,
    *,
    mask: Array | None = None,
    carry: Any = None,
    key: PRNGKeyArray | None = None,
    deterministic: bool = True,
) -> tuple[Array, Any]:
    """Return an action for one observation, or one each for a batch, and the carry.

    Args:
        policy: from `load_policy`.
        observation: as the environment gives it, a list or an array; leading batch axes are
            allowed. With `history: n` its last n ones, oldest first, zeros before the start.
        mask: valid actions, if the environment has them.
        carry: what the last call gave, None at the start of an episode; recurrent networks
            remember by it, others pass it through.
        key: a random key, needed unless `deterministic`.
        deterministic: the mode of the distribution instead of a sample.

    Raises:
        ConfigError: the observation does not have the shape the policy was trained for.
    """
    return policy.predict(
        observation, mask=mask, carry=carry, key=key, deterministic=deterministic
    )


def evaluate(
    policy: SavedPolicy,
    env: str | Mapping[str, Any] | None = None,
    *,
    episodes: int = 20,
    seed: int = 0,
    greedy: bool = True,
    steps: int | None = None,
) -> Episodes:
    """Return returns and lengths [1, episodes] on seeds that no study uses.

    Args:
        policy: from `load_policy`.
        env: another environment than the one it was evaluated in: an id, or a mapping of `id` and
            keys as under `env:` of a study; left out, `id` is the policy's own.
        episodes: how many.
        seed: of the episodes.
        greedy: the mode of the distribution instead of a sample.
        steps: count so many env steps after the warm-up instead, in continuous operation.

    Raises:
        ConfigError: the environment has other observations or actions than the policy.
    """
    if env is not None:
        policy = _moved(policy, {"id": env} if isinstance(env, str) else env)
    return policy.evaluate(episodes, seed, greedy, steps)


def _moved(policy: SavedPolicy, env: Mapping[str, Any]) -> SavedPolicy:
    """Return the policy with another environment to be evaluated in."""
    before = policy.plan.eval_env
    given = {name: value for name, value in env.items() if name != "id"}
    id_ = env.get("id", before.id)
    _check_keys(id_, given)
    floats = environments.float_params(id_)
    keys = {name: _frozen(value) for name, value in given.items() if name not in floats}
    params = {name: _number(id_, name, given[name]) for name in given if name in floats}
    if id_ == before.id:
        keys, params = {**dict(before.keys), **keys}, {**policy.eval_params, **params}
    plan = as_seen(EnvPlan(id_, tuple(sorted(keys.items())), before.folder), policy.config)
    ours, theirs = environments.make(policy.plan.env), environments.make(plan)
    alike = {
        "action_space": ours.action_space == theirs.action_space,
        "observation_struct": same_observations(ours, theirs),
    }
    for name, same in alike.items():
        if not same:
            what = "actions" if name == "action_space" else "observations"
            raise ConfigError(
                f"{id_} has other {what} ({getattr(theirs, name)}) than {policy.plan.env.id}, "
                f"where this policy was trained ({getattr(ours, name)})"
            )
    moved = dataclasses.replace(policy.plan, eval_env=plan)
    return dataclasses.replace(policy, plan=moved, eval_params=params)


def _check_keys(id_: str, given: Mapping[str, Any]) -> None:
    """Refuse keys that an environment of the table does not have."""
    known = find(id_)
    if known is not None:
        names = [*known.keys, *known.params]
        for name in given:
            if name not in names:
                raise UnknownNameError(f"key of {id_}", name, names)


def _number(id_: str, name: str, value: Any) -> float:
    """Return the value of a parameter."""
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise ConfigError(f"{name} of {id_} is {value!r}; allowed: a number")
    return float(value)


def _frozen(value: Any) -> Any:
    return tuple(_frozen(item) for item in value) if isinstance(value, (list, tuple)) else value
