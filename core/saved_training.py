"""The state of a custom training that a study kept: read it, evaluate it, watch it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..errors import ConfigError, StoreError
from ..files.plain_data import freeze
from ..knobs.configuration import canonical_value
from .checkpoint import restore_lane
from .evaluation import film, trace
from .lane_state import lane_key
from .policy_document import TRAINING, read_training, saved_env
from .saved_policy import HELD_OUT
from .training import Lane, StudyEnvironment, Training
from .training_program import shapes_of_lane


@dataclass(frozen=True)
class SavedTraining:
    """One lane by itself; `seed` names episodes that no study uses."""

    lane: Lane
    leaves: list[Array]
    hypers: Mapping[str, np.float32]

    @classmethod
    def read(cls, folder: Path, made: type[Training]) -> SavedTraining:
        """Read it; the errors are those of `hpo.load_training`."""
        record, path = read_training(folder), folder / TRAINING
        knobs = made.declared()
        try:
            values, length = dict(record["config"]), int(record["length"])
            given = None
            if "env" in record:
                keys = {name: freeze(value) for name, value in record["env"]["keys"].items()}
                plan = saved_env(record["env"]["id"], keys, folder)
                given = StudyEnvironment(plan, record["env_params"], record["steps"])
        except (ValueError, KeyError, TypeError) as error:
            raise StoreError(f"{path} is damaged: {error!r}") from error
        if set(values) != set(knobs) or (given is not None) != made.takes_environment():
            raise ConfigError(
                f"{path} has {', '.join(values)}, but {made.__name__} declares "
                f"{', '.join(knobs)}; give the class {record['algorithm']} as it was trained"
            )
        config = {name: canonical_value(knobs[name], value) for name, value in values.items()}
        hypers = {name: np.float32(config[name]) for name, knob in knobs.items() if knob.traced}
        fixed = {name: value for name, value in config.items() if name not in hypers}
        lane = Lane(made.of(fixed, length, given), tuple(hypers))
        like = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes_of_lane(lane))
        return cls(lane, list(map(jnp.asarray, restore_lane(folder, like).leaves)), hypers)

    @property
    def env_id(self) -> str:
        return self._environment.plan.id

    @property
    def _environment(self) -> StudyEnvironment:
        training = self.lane.training
        if training.given is None or not training.acts():
            name = type(training).__name__
            raise ConfigError(
                f"only a class with hpo.environment() and act can be watched; {name} has its "
                "own evaluate"
            )
        return training.given

    def evaluate(self, episodes: int, seed: int) -> dict[str, np.ndarray]:
        """Return values by name, float32 [episodes]."""
        run = jax.jit(partial(self.lane.episodes, count=episodes))
        return dict(jax.device_get(run(self.leaves, self.hypers, _key(seed))))

    def trace(self, episodes: int, seed: int) -> dict[str, np.ndarray]:
        """Return every env step of the episodes that `evaluate` runs, by columns."""
        steps = self._environment.steps
        return trace(self._player(seed), self.leaves, episodes, steps)

    def film(self, episodes: int, seed: int) -> tuple[float, Iterator[np.ndarray]]:
        """Return pictures per second, and the pictures of the episodes of `evaluate`.

        Raises:
            ConfigError: the environment cannot draw itself.
        """
        self._environment  # noqa: B018  # refuses a class that does not act
        return film(self._player(seed), self.leaves, episodes)

    def _player(self, seed: int) -> Any:
        lane, hypers = self.lane, self.lane.hypers(self.hypers)
        return lambda leaves: lane.training.player(
            lane.state(leaves, self.hypers), hypers, _key(seed)
        )


def _key(seed: int) -> Any:
    return lane_key(jnp.int32(seed), jnp.int32(HELD_OUT), jnp.int32(0))
