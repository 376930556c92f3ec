"""A trained policy by itself: act with it, evaluate it, write it down, read it back.

A policy folder holds `policy.json` (environment, every knob) and Orbax arrays (parameters and
normaliser); it needs nothing of the study it came from.
"""

from __future__ import annotations

import dataclasses
import errno
import functools
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from ..disk import make_folder, new_folder, read_text, telling, write_text
from ..environments import files_of
from ..errors import ConfigError, StoreError
from ..user_files import parse_json
from . import acting, policy
from .checkpoint import restore_tree, save_tree
from .envs import registry as environments
from .envs.contract import HostedEnvironment
from .evaluation import Episodes, Policies, evaluate
from .hypers import Hypers, make_hypers
from .normalise import RunningStatistics
from .plan import EnvPlan, Plan, make_plan
from .population import lane_shapes
from .reward_state import RewardState
from .state import lane_key
from .trace import trace

__all__ = ["SavedPolicy", "load_policy", "save_policy"]

_FORMAT = 1
_FILES = "files"
_FIELDS = ("env", "eval_env", "features", "config", "env_params", "eval_params", "about")
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
    """

    plan: Plan
    config: Mapping[str, Any]
    env_params: Mapping[str, float]
    eval_params: Mapping[str, float]
    params: Any
    statistics: RunningStatistics
    about: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    rewards: RewardState | None = None

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
        """The compiled half of `predict`; gives the action and the memory after it.

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
            array = jnp.asarray(part, struct.dtype)
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
            from .host.evaluate import evaluate_here

            return evaluate_here(self.plan, self._alone(seed), episodes, greedy, steps)
        run = jax.jit(lambda lanes: evaluate(self.plan, lanes, episodes, greedy, steps))
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


def save_policy(directory: Path, saved: SavedPolicy) -> None:
    """Write a policy into a new directory.

    Raises:
        FileExistsError: it is there already.
    """
    if directory.exists():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(directory))
    new_folder(directory)
    document = {
        "format": _FORMAT,
        "env": _take_along(saved.plan.env, "env", directory),
        "eval_env": _take_along(saved.plan.eval_env, "eval_env", directory),
        "features": list(saved.plan.features),
        "config": dict(saved.config),
        "env_params": dict(saved.env_params),
        "eval_params": dict(saved.eval_params),
        "about": dict(saved.about),
    }
    if saved.rewards is not None:
        document["reward_state"] = saved.rewards.as_data()
    text = json.dumps(document, indent=2, sort_keys=True)
    save_tree(directory / "arrays", {"params": saved.params, "statistics": saved.statistics})
    write_text(directory / "policy.json", text + "\n")


def load_policy(directory: str | Path) -> SavedPolicy:
    """Read a policy that `save_policy` wrote.

    Raises:
        StoreError: it is not a policy folder, or damaged.
    """
    directory = Path(directory)
    path = directory / "policy.json"
    if not path.is_file():
        raise StoreError(f"{directory} is not a policy folder: it has no policy.json")
    try:
        document = parse_json(read_text(path))
    except ValueError as error:
        raise StoreError(f"{path} is damaged: {error}") from error
    found = document.get("format") if isinstance(document, dict) else None
    if found != _FORMAT:
        raise StoreError(f"{path} has format {found!r}; this hpo reads {_FORMAT}")
    missing = [name for name in _FIELDS if name not in document]
    if missing:
        raise StoreError(f"{path} is damaged: it has no {', '.join(missing)}")
    config = {name: _tuples(value) for name, value in document["config"].items()}
    env, eval_env = (_env_plan(document[name], directory) for name in ("env", "eval_env"))
    plan = make_plan(config, env, eval_env, tuple(document["features"]))
    empty = SavedPolicy(
        plan, config, document["env_params"], document["eval_params"], {},
        RunningStatistics.empty(()), document["about"], _rewards(document, path),
    )  # fmt: skip
    shapes = lane_shapes(plan, empty.hypers())
    like = {"params": shapes.params, "statistics": shapes.observation_statistics}
    arrays = restore_tree(directory / "arrays", like)
    return dataclasses.replace(empty, params=arrays["params"], statistics=arrays["statistics"])


def _rewards(document: Mapping[str, Any], path: Path) -> RewardState | None:
    if "reward_state" not in document:
        return None
    try:
        return RewardState.from_data(document["reward_state"])
    except StoreError as error:
        raise StoreError(f"{path} is damaged: {error}") from error


def _take_along(env: EnvPlan, name: str, directory: Path) -> dict[str, Any]:
    """Return an environment as JSON data; the files that it is made of are copied beside it."""
    keys = dict(env.keys)
    for key, file in files_of(env.id, keys).items():
        copied = Path(_FILES) / f"{name}_{key}{Path(file).suffix}"
        make_folder(directory / _FILES)
        with telling(directory / copied):
            shutil.copyfile(Path(env.folder) / file, directory / copied)
        keys[key] = copied.as_posix()
    return {"id": env.id, "keys": keys}


def _env_plan(document: Mapping[str, Any], directory: Path) -> EnvPlan:
    keys = {name: _tuples(value) for name, value in document["keys"].items()}
    folder = str(directory) if files_of(document["id"], keys) else ""
    return EnvPlan(document["id"], tuple(sorted(keys.items())), folder)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value
