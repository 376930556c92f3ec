"""A trained policy by itself: act with it, evaluate it, write it down, read it back.

A policy folder holds `policy.json` (environment, every knob) and Orbax arrays (parameters and
normaliser); it needs nothing of the study it came from.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from ..environments import files_of
from ..errors import StoreError
from . import policy
from .checkpoint import restore_tree, save_tree
from .distributions import draw_noise
from .envs import registry as environments
from .envs.contract import HostedEnvironment
from .evaluate import Episodes, Policies, evaluate
from .normalise import RunningStatistics
from .population import lane_shapes
from .state import EnvPlan, Hypers, Plan, lane_key, make_hypers, make_plan

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
    """

    plan: Plan
    config: Mapping[str, Any]
    env_params: Mapping[str, float]
    eval_params: Mapping[str, float]
    params: Any
    statistics: RunningStatistics
    about: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def hypers(self) -> Hypers:
        """Give the traced part of its configuration."""
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
        """Give an action for one observation (or a batch), and the carry.

        An action is an array; for Gymnasium's environments it is what `env.step` takes.

        Args:
            observation: as the environment gives it; leading batch axes are allowed.
            mask: valid actions, if the environment has them.
            carry: of recurrent networks, as the call before gave it; None where an episode
                begins. Passed through by all others.
            key: a random key, needed unless `deterministic`.
            deterministic: the mode of the distribution instead of a sample.
        """
        hypers = jax.tree.map(jnp.asarray, self.hypers())
        env = environments.make(self.plan.env)
        if isinstance(env, HostedEnvironment):
            observation = env.observed(observation)
        observation = jnp.asarray(observation)
        seen = policy.normalised(self.plan, hypers, self.statistics, observation)
        outputs, carry = policy.step(self.plan, self.params, seen, carry)
        distribution = policy.distribution_of(self.plan, hypers, self.params, outputs, mask)
        if deterministic:
            action = distribution.mode()
        elif key is None:
            raise ValueError("predict(deterministic=False) needs a key")
        else:
            kind = policy.distribution_kind(self.plan, env)
            batch = outputs.value.shape
            noise = draw_noise(kind, key, batch, policy.action_shape(env))
            action = distribution.sample(noise)
        action = policy.environment_action(self.plan, env, action)
        return env.taken(action) if isinstance(env, HostedEnvironment) else action, carry

    def evaluate(
        self, episodes: int, seed: int = 0, greedy: bool = True, steps: int | None = None
    ) -> Episodes:
        """Give [1, episodes] results on seeds that no study uses.

        Args:
            episodes: how many.
            seed: of the episodes.
            greedy: the mode of the distribution instead of a sample.
            steps: for continuous operation, see `evaluate.evaluate`.
        """
        key = lane_key(jnp.int32(seed), jnp.int32(_HELD_OUT), jnp.int32(0))
        one = jax.tree.map(
            lambda x: jnp.asarray(x)[None],
            Policies(self.hypers(), self.params, self.statistics, key),
        )
        if isinstance(environments.make(self.plan.eval_env), HostedEnvironment):
            from .host.evaluate import evaluate_here

            return evaluate_here(self.plan, one, episodes, greedy, steps)
        run = jax.jit(lambda lanes: evaluate(self.plan, lanes, episodes, greedy, steps))
        return jax.device_get(run(one))


def save_policy(directory: Path, saved: SavedPolicy) -> None:
    """Write a policy into a new directory."""
    directory.mkdir(parents=True)
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
    text = json.dumps(document, indent=2, sort_keys=True)
    save_tree(directory / "arrays", {"params": saved.params, "statistics": saved.statistics})
    (directory / "policy.json").write_text(text + "\n")


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
        document = json.loads(path.read_text())
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
        RunningStatistics.empty(()), document["about"],
    )  # fmt: skip
    shapes = lane_shapes(plan, empty.hypers())
    like = {"params": shapes.params, "statistics": shapes.observation_statistics}
    arrays = restore_tree(directory / "arrays", like)
    return dataclasses.replace(empty, params=arrays["params"], statistics=arrays["statistics"])


def _take_along(env: EnvPlan, name: str, directory: Path) -> dict[str, Any]:
    """Give an environment as JSON data; the files that it is made of are copied beside it."""
    keys = dict(env.keys)
    for key, file in files_of(env.id, keys).items():
        copied = Path(_FILES) / f"{name}_{key}{Path(file).suffix}"
        (directory / _FILES).mkdir(exist_ok=True)
        shutil.copyfile(Path(env.folder) / file, directory / copied)
        keys[key] = copied.as_posix()
    return {"id": env.id, "keys": keys}


def _env_plan(document: Mapping[str, Any], directory: Path) -> EnvPlan:
    keys = {name: _tuples(value) for name, value in document["keys"].items()}
    folder = str(directory) if files_of(document["id"], keys) else ""
    return EnvPlan(document["id"], tuple(sorted(keys.items())), folder)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value
