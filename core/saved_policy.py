"""A trained policy by itself: let it act, evaluate it, here or in another environment.

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
from . import acting, policy
from .checkpoint import restore_tree, save_tree
from .envs import registry as environments
from .envs.contract import HostedEnvironment, same_observations
from .evaluation import Episodes, Policies, trace
from .evaluation import evaluate as evaluate_policies
from .hypers import Hypers, make_hypers
from .lane_state import RewardState, RunningStatistics, lane_key
from .plan import EnvPlan, Plan, as_seen, make_plan
from .policy_document import FORMAT, NAME, EnvDocument, PolicyDocument, read_document
from .population import lane_shapes

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
            from .host.host_evaluation import trace_here

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
            from .host.host_evaluation import film_here

            return film_here(self.plan, self._alone(seed), episodes, greedy)
        from .evaluation import film

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


_SHOWN = 5
_FILES = "files"
IMPORTS = "imports"
"""Folder within a policy's: the code that registers what it is made with."""


def save_policy(directory: Path, saved: SavedPolicy, code: Mapping[str, Path] = {}) -> None:
    """Write a policy into a new directory.

    Args:
        directory: where.
        saved: the policy.
        code: the files that `saved.imports` are made of, copied beside it: path within the
            folder that they lie in -> where they are now.

    Raises:
        FileExistsError: it is there already.
    """
    if directory.exists():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(directory))
    new_folder(directory)
    document = {
        "format": FORMAT,
        "env": _take_along(saved.plan.env, "env", directory),
        "eval_env": _take_along(saved.plan.eval_env, "eval_env", directory),
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
    """Return up to five policy folders below one of a trial, of all trials, or of a study."""
    for levels in ("*", "*/*", "*/*/*"):
        if found := sorted(directory.glob(f"{levels}/policy.json")):
            return [str(one.parent) for one in found[:_SHOWN]] + ["..."] * (len(found) > _SHOWN)
    return []


def load_policy(directory: str | Path) -> SavedPolicy:
    """Read a policy that `save_policy` wrote; the code beside it is not run.

    Raises:
        StoreError: it is not a policy folder, or damaged.
        ConfigError: what it was made with is not known here; names the files that bring it.
    """
    directory = Path(directory)
    path = directory / NAME
    if not path.is_file():
        inside = _policies_inside(directory)
        each = f"; inside it are {', '.join(inside)}" if inside else ""
        raise StoreError(f"{directory} is not a policy folder: it has no policy.json{each}")
    document = read_document(path)
    env, eval_env = (_env_plan(one, directory) for one in (document.env, document.eval_env))
    with _naming(document.imports, directory):
        plan = make_plan(document.config, env, eval_env, document.features)
        empty = SavedPolicy(
            plan, document.config, document.env_params, document.eval_params, {},
            RunningStatistics.empty(()), document.about, _rewards(document), document.imports,
        )  # fmt: skip
        shapes = lane_shapes(plan, empty.hypers())
    like = {"params": shapes.params, "statistics": shapes.observation_statistics}
    arrays = restore_tree(directory / "arrays", like)
    return dataclasses.replace(empty, params=arrays["params"], statistics=arrays["statistics"])


@contextmanager
def _naming(imports: Sequence[str], directory: Path) -> Generator[None, None, None]:
    """Say of what does not fit which file it stands in, and of an unknown name who brings it."""
    try:
        yield
    except (ConfigError, KeyError) as error:
        if not imports:
            remedies = error.remedies if isinstance(error, ConfigError) else {}
            raise ConfigError(f"{directory / NAME}: {error}", **remedies) from error
        files = [str(directory / IMPORTS / name) for name in imports]
        raise ConfigError(
            f"{error}; this policy needs the code of {', '.join(imports)} in {directory}, which "
            "runs only if asked for; read it, then allow it",
            policy_imports=(directory, files),
        ) from error


def _rewards(document: PolicyDocument) -> RewardState | None:
    if not document.has_rewards:
        return None
    return RewardState.from_data(document.returns, document.centring)


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


def _env_plan(document: EnvDocument, directory: Path) -> EnvPlan:
    folder = str(directory) if files_of(document.id, document.keys) else ""
    return EnvPlan(document.id, tuple(sorted(document.keys.items())), folder)
