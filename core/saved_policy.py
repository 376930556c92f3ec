"""Trained policies outside a study: act with them, or evaluate them in any environment.

from hpo.core import evaluate, load_policy, predict
"""

from __future__ import annotations

import dataclasses
import errno
import functools
import json
import math
import os
import shutil
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Real
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from ..environments.registry import files_of, find
from ..errors import ConfigError, StoreError, UnknownNameError
from ..files.atomic_files import make_folder, new_folder, telling, write_text
from . import evaluation, policy
from .checkpoint import restore_tree, save_tree
from .envs import registry as environments
from .envs.contract import HostedEnvironment, differing
from .evaluation import Episodes, Policies
from .hypers import Hypers, make_hypers
from .lane_state import RewardState, RunningStatistics, lane_key
from .plan import EnvPlan, Plan, as_seen, make_plan
from .policy_document import FORMAT, IMPORTS, NAME, TRAINING, read_document
from .population import lane_shapes

_OF_PROCESS = "process.json"  # at the same place in the folder of a training script's run
HELD_OUT = 3  # seed stream of `SavedPolicy.evaluate`; 0 to 2 are the study's


@dataclasses.dataclass(frozen=True, eq=False)
class SavedPolicy:
    """A trained policy with its plan, configuration, parameters and normaliser statistics."""

    plan: Plan  # the static part of its configuration
    config: Mapping[str, Any]  # every hyperparameter, as `knobs.complete` gives it
    env_params: Mapping[str, float]  # parameters of the training environment, name -> number
    eval_params: Mapping[str, float]  # parameters of the evaluation environment
    params: Any  # parameters of the network
    statistics: RunningStatistics  # frozen observation normaliser
    about: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # its origin, free text
    rewards: RewardState | None = None  # reward memory to train on; None from earlier versions
    imports: tuple[str, ...] = ()  # files of user code that registered its parts

    def __repr__(self) -> str:
        origin = [f"{key} {self.about[key]}" for key in ("study", "trial") if key in self.about]
        name = "SavedPolicy"
        if origin:
            name += f" of {', '.join(origin)}"
        return f"<{name}: {self.plan.network} on {self.plan.env.id}>"

    def hypers(self) -> Hypers:
        pairs = ((self.plan.env, self.env_params), (self.plan.eval_env, self.eval_params))
        numbers = (environments.params_of(environments.make(env), given) for env, given in pairs)
        return make_hypers(self.config, *numbers)

    def predict(
        self,
        observation: Any,
        *,
        mask: Array | None = None,
        carry: Any = None,
        key: PRNGKeyArray | None = None,
        deterministic: bool = True,
    ) -> tuple[Any, Any]:
        """Return an action for one observation (or a batch), and the next carry.

        An action is an array; for Gymnasium environments it is the argument of `env.step`.

        Args:
            observation: as the environment returns it; leading batch axes are allowed. With
                `history: n`, pass the last n observations, oldest first, and zeros before the
                start.
            mask: bool, valid actions, if the environment has a mask.
            carry: the memory of a recurrent network, as returned by the previous call; None at the
                start of an episode. Other networks return it unchanged.
            key: a random key, required unless `deterministic`.
            deterministic: take the mode of the distribution instead of a sample.

        Raises:
            ConfigError: the observation has a different shape from those in training.
        """
        if key is None and not deterministic:
            raise ValueError("predict(deterministic=False) needs a key")
        if deterministic:
            key = None
        env, remembers = environments.make(self.plan.env), policy.is_recurrent(self.plan)
        if isinstance(env, HostedEnvironment):
            observation = env.observed(observation)
        checked = self._checked_observation(observation)
        before = carry if remembers else None
        action, memory = self._compiled_act(
            self.params, self.statistics, checked, mask, before, key
        )
        if isinstance(env, HostedEnvironment):
            action = env.taken(action)
        return action, memory if remembers else carry

    @property
    def history(self) -> int:
        return self.plan.env.history

    def begin(self) -> Any:
        """Return the network's initial carry."""
        return policy.initial_carry(self.plan, ())

    def act(
        self, observation: Any, mask: Any, memory: Any, key: PRNGKeyArray | None
    ) -> tuple[Array, Any]:
        """Return the action for the environment's arrays, and the updated memory.

        This is for callers inside compiled programs; others use `predict`. `mask` may be None;
        `memory` is the result of `begin` or of the previous call. Without a `key` the action is
        the most likely one.
        """
        return self._compiled_act(self.params, self.statistics, observation, mask, memory, key)

    @functools.cached_property
    def _compiled_act(self) -> Callable[..., tuple[Array, Any]]:
        plan, env, hypers = self.plan, environments.make(self.plan.env), self.hypers()

        def act(
            params: Any,
            statistics: RunningStatistics,
            observation: Any,
            mask: Any,
            memory: Any,
            key: Any,
        ) -> tuple[Array, Any]:
            traced = jax.tree.map(jnp.asarray, hypers)
            return policy.act(
                plan,
                env,
                traced,
                params,
                statistics,
                observation=observation,
                mask=mask,
                memory=memory,
                key=key,
            )

        return jax.jit(act)

    def _checked_observation(self, given: Any) -> Any:
        env, history = environments.make(self.plan.env), self.plan.env.history
        stacked = ""
        if history > 1:
            stacked = f" (the last {history}, oldest first)"

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
                    f"the observation has shape {array.shape}, but observations of {env.id} have "
                    f"{struct.shape}{stacked}; leading batch axes are allowed"
                )
            return array

        return jax.tree.map(one, env.observation_struct, given)

    def evaluate(
        self, episodes: int, seed: int = 0, greedy: bool = True, steps: int | None = None
    ) -> Episodes:
        """Return results [1, episodes] on seeds that no study uses.

        `greedy` takes the mode of the distribution instead of a sample. If `steps` is given,
        results cover that many env steps after the warm-up instead of episodes (continuous
        operation).
        """
        if self._is_hosted:
            return _host_evaluation().evaluate_here(
                self.plan, self._as_lane(seed), episodes, greedy, steps
            )
        run = jax.jit(
            lambda lanes: evaluation.evaluate(self.plan, lanes, episodes, greedy, steps=steps)
        )
        return jax.device_get(run(self._as_lane(seed)))

    def trace(
        self, episodes: int, seed: int = 0, greedy: bool = True, steps: int | None = None
    ) -> dict[str, np.ndarray]:
        """Return every env step of the evaluated episodes, as columns."""
        lane = self._as_lane(seed)
        if self._is_hosted:
            return _host_evaluation().trace_here(self.plan, lane, episodes, greedy, steps)
        return evaluation.trace(self._maker_of_players(greedy), lane, episodes, steps)

    def film(
        self, episodes: int, seed: int = 0, greedy: bool = True
    ) -> tuple[float, Iterator[np.ndarray]]:
        """Return the frame rate and the frames of the first evaluated episodes.

        Frames are uint8 [height, width, 3], one at the start of an episode and one after each
        step. They are rendered one at a time.

        Raises:
            ConfigError: the environment cannot be rendered. MissingExtraError: a package needed
            for drawing is not installed.
        """
        lane = self._as_lane(seed)
        if self._is_hosted:
            return _host_evaluation().film_here(self.plan, lane, episodes, greedy)
        return evaluation.film(self._maker_of_players(greedy), lane, episodes)

    def _maker_of_players(self, greedy: bool) -> evaluation.Making:
        return lambda lanes: evaluation.players_of(self.plan, lanes, greedy)

    @property
    def _is_hosted(self) -> bool:
        return isinstance(environments.make(self.plan.eval_env), HostedEnvironment)

    def _as_lane(self, seed: int) -> Policies:
        return self.as_lane(seed, HELD_OUT, 0)

    def as_lane(self, seed: int, stream: int, replicate: int) -> Policies:
        """Return the policy as one lane [1, ...] with the random key of the given replicate."""
        key = lane_key(jnp.int32(seed), jnp.int32(stream), jnp.int32(replicate))
        one = Policies(self.hypers(), self.params, self.statistics, key)
        return jax.tree.map(lambda x: jnp.asarray(x)[None], one)


def _host_evaluation() -> Any:
    from .host import host_evaluation  # imports gymnasium

    return host_evaluation


predict = SavedPolicy.predict


def evaluate(
    policy: SavedPolicy,
    env: str | Mapping[str, Any] | None = None,
    *,
    episodes: int = 20,
    seed: int = 0,
    greedy: bool = True,
    steps: int | None = None,
) -> Episodes:
    """Return episode returns and lengths [1, episodes] on seeds that no study uses.

    Args:
        policy: from `load_policy`.
        env: an environment to evaluate in instead of the policy's: an id, or a mapping of `id` and
            keys as under `env:` of a study; without `id`, the policy's environment with these
            keys.
        episodes: number of episodes.
        seed: seed of the episodes.
        greedy: take the mode of the distribution instead of a sample.
        steps: count this many env steps after the warm-up instead, in continuous operation.

    Raises:
        ConfigError: the environment's observations or actions differ from the policy's.
    """
    if isinstance(env, str):
        env = {"id": env}
    if env is not None:
        policy = _with_eval_env(policy, env)
    return policy.evaluate(episodes, seed, greedy, steps)


def _with_eval_env(policy: SavedPolicy, env: Mapping[str, Any]) -> SavedPolicy:
    before = policy.plan.eval_env
    given = {name: value for name, value in env.items() if name != "id"}
    id_ = env.get("id", before.id)
    _check_keys(id_, given)
    plan, params = environments.plan_of_env(id_, given, "")
    keys = dict(plan.keys)
    params = {name: _checked_number(id_, name, value) for name, value in params.items()}
    if id_ == before.id:
        keys, params = {**dict(before.keys), **keys}, {**policy.eval_params, **params}
    plan = as_seen(EnvPlan(id_, tuple(sorted(keys.items())), before.folder), policy.config)
    training_env, eval_env = environments.make(policy.plan.env), environments.make(plan)
    for what, trained, given in differing(training_env, eval_env):
        raise ConfigError(
            f"the policy was trained on {policy.plan.env.id}, whose {what} ({trained}) differ "
            f"from those of {id_} ({given})"
        )
    moved = dataclasses.replace(policy.plan, eval_env=plan)
    return dataclasses.replace(policy, plan=moved, eval_params=params)


def _check_keys(id_: str, given: Mapping[str, Any]) -> None:
    known = find(id_)
    if known is not None:
        names = [*known.keys, *known.params]
        for name in given:
            if name not in names:
                raise UnknownNameError(f"key of {id_}", name, names)


def _checked_number(id_: str, name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise ConfigError(f"{name} of {id_} is {value!r}; allowed: a number")
    return float(value)


_SHOWN = 5
_FILES = "files"


def save_policy(directory: Path, saved: SavedPolicy, code: Mapping[str, Path] = {}) -> None:
    """Write a policy into a new directory.

    `code` maps paths in the policy's folder to the files of `saved.imports`, which are copied
    there.

    Raises:
        FileExistsError: the directory exists.
    """
    if directory.exists():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(directory))
    new_folder(directory)
    document = {
        "format": FORMAT,
        "env": copy_files(saved.plan.env, "env", directory),
        "eval_env": copy_files(saved.plan.eval_env, "eval_env", directory),
        "features": list(saved.plan.features),
        "config": dict(saved.config),
        "env_params": dict(saved.env_params),
        "eval_params": dict(saved.eval_params),
        "about": dict(saved.about),
    }
    if saved.imports:
        document["imports"] = list(saved.imports)
    for path, file in code.items():
        copied = directory / IMPORTS / path
        make_folder(copied.parent)
        with telling(copied):
            shutil.copyfile(file, copied)
    if saved.rewards is not None:
        document["reward_state"] = saved.rewards.as_data()
    text = json.dumps(document, indent=2, sort_keys=True)
    save_tree(directory / "arrays", {"params": saved.params, "statistics": saved.statistics})
    write_text(directory / NAME, text + "\n")


def _policies_inside(directory: Path) -> list[str]:
    for levels in ("*", "*/*", "*/*/*"):
        if found := sorted(directory.glob(f"{levels}/policy.json")):
            return [str(one.parent) for one in found[:_SHOWN]] + ["..."] * (len(found) > _SHOWN)
    return []


def load_policy(directory: str | Path) -> SavedPolicy:
    """Read a policy written by `save_policy`; code in its folder is not run.

    Raises:
        StoreError: the folder is not a policy folder, or is damaged. ConfigError: a part of the
            policy is unknown; the message names the files that define it.
    """
    directory = Path(directory)
    path = directory / NAME
    if (directory / TRAINING).is_file():
        raise StoreError(
            f"{directory} holds the state of a custom training class, not a policy; read it in "
            "Python with hpo.load_training"
        )
    if (directory / _OF_PROCESS).is_file():
        raise StoreError(
            f"{directory} holds the command of a process, in {_OF_PROCESS}, not a policy; the "
            "script's own files are in the folder named there"
        )
    if not path.is_file():
        why = f"{directory} is not a policy folder: it has no policy.json"
        if inside := _policies_inside(directory):
            why += f"; it contains {', '.join(inside)}"
        raise StoreError(why)
    document, rewards = read_document(path), None
    if document.rewards is not None:
        rewards = RewardState.from_data(**document.rewards)
    with _explain_unknown(document.imports, directory):
        plan = make_plan(document.config, document.env, document.eval_env, document.features)
        empty = SavedPolicy(
            plan,
            document.config,
            document.env_params,
            document.eval_params,
            {},
            RunningStatistics.empty(()),
            document.about,
            rewards,
            document.imports,
        )
        shapes = lane_shapes(plan, empty.hypers())
    like = {"params": shapes.params, "statistics": shapes.observation_statistics}
    arrays = restore_tree(directory / "arrays", like)
    return dataclasses.replace(empty, params=arrays["params"], statistics=arrays["statistics"])


@contextmanager
def _explain_unknown(imports: Sequence[str], directory: Path) -> Generator[None, None, None]:
    """Add the policy's path to errors, or the files that may register unknown names."""
    try:
        yield
    except (ConfigError, KeyError) as error:
        if not imports:
            remedies = getattr(error, "remedies", {})
            raise ConfigError(f"{directory / NAME}: {error}", **remedies) from error
        files = [str(directory / IMPORTS / name) for name in imports]
        raise ConfigError(
            f"{error}; the policy needs {', '.join(imports)} from {directory}; read that code, "
            "then allow it",
            policy_imports=(directory, files),
        ) from error


def copy_files(env: EnvPlan, name: str, directory: Path) -> dict[str, Any]:
    """Return an environment as JSON data, after copying its files into the directory."""
    keys = dict(env.keys)
    for key, file in files_of(env.id, keys).items():
        copied = Path(_FILES) / f"{name}_{key}{Path(file).suffix}"
        make_folder(directory / _FILES)
        with telling(directory / copied):
            shutil.copyfile(Path(env.folder) / file, directory / copied)
        keys[key] = copied.as_posix()
    return {"id": env.id, "keys": keys}
