"""Tests for any custom training class: subclass the contract.

The training class is a class attribute:

    class TestSAC(TrainingContract):
        training = SAC
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import numpy as np

from ..core.envs.registry import plan_of_env
from ..core.population import Lanes
from ..core.training import Lane, StudyEnvironment, Training
from ..core.training_check import Shapes, shapes_of
from ..core.training_program import TrainingProgram
from ..knobs.knob import Knob

# The name of a test is its docstring.


class TrainingContract:
    """Tests the properties that lanes, resuming, PBT and replay rely on.

    Attributes:
        training: the class to test.
        values: changed hyperparameters; small values make the tests quick.
        length: the length of a run, in the unit of the training class.
        env: the id of an environment that a class with `hpo.environment()` can train in.
        unused: traced hyperparameters that may have no effect in the first updates.
    """

    training: ClassVar[type[Training]]
    values: ClassVar[Mapping[str, Any]] = {}
    length: ClassVar[int] = 100_000
    env: ClassVar[str | None] = None
    unused: ClassVar[tuple[str, ...]] = ()

    _UPDATES = 3

    @classmethod
    def _declared_knobs(cls) -> dict[str, Knob]:
        return cls.training.declared()

    @classmethod
    def _traced_values(cls) -> dict[str, float]:
        given = {name: knob.default for name, knob in cls._declared_knobs().items() if knob.traced}
        return {name: float(cls.values.get(name, value)) for name, value in given.items()}

    @classmethod
    def _make_training(cls) -> Training:
        needed = cls.env is not None or not cls.training.takes_environment()
        assert needed, "set `env` to the id of an environment to train in, such as CartPole-v1"
        given = {
            name: knob.default for name, knob in cls._declared_knobs().items() if not knob.traced
        }
        changed = {name: value for name, value in cls.values.items() if name in given}
        env = None
        if cls.env is not None:
            env = StudyEnvironment(*plan_of_env(cls.env, {}, ""))
        return cls.training.of({**given, **changed}, cls.length, env)

    @classmethod
    def _training_shapes(cls) -> Shapes:
        return shapes_of(cls._make_training(), tuple(cls._traced_values()))

    @classmethod
    def _make_program(cls, lanes: int, tile: int = 1) -> TrainingProgram:
        lane = Lane(cls._make_training(), tuple(cls._traced_values()))
        return TrainingProgram(lane, lanes, cls._UPDATES, tile, 2, tuple(jax.devices()[:1]))

    @classmethod
    def _train_lanes(
        cls, lanes: Mapping[int, Mapping[str, float]], count: int, tile: int = 1, seed: int = 0
    ) -> tuple[TrainingProgram, Lanes, dict[str, np.ndarray]]:
        """Train some lanes for one chunk with the given values, all as replicate 7."""
        program = cls._make_program(count, tile)
        starts = program.starts([*lanes], {at: (0, 7, values) for at, values in lanes.items()})
        return program, *program.advance(seed, program.empty(), starts)

    @classmethod
    def _state_leaves(cls, program: TrainingProgram, lanes: Lanes, at: int) -> dict[str, Any]:
        leaves = program.lane_state(lanes, at).leaves
        return dict(zip(cls._training_shapes().state, leaves, strict=True))

    def test_shapes_and_results_are_sound(self) -> None:
        assert self._training_shapes().values

    def test_metrics_and_values_are_finite_at_the_defaults(self) -> None:
        program, lanes, metrics = self._train_lanes({0: self._traced_values()}, 1)
        for name, value in {**metrics, **program.evaluate(lanes, [0])}.items():
            assert np.all(np.isfinite(value)), f"{name} is not finite"

    def test_two_runs_are_equal(self) -> None:
        one, other = (
            self._state_leaves(*self._train_lanes({0: self._traced_values()}, 1)[:2], 0)
            for _ in "ab"
        )
        assert [name for name in one if not np.array_equal(one[name], other[name])] == []

    def test_seeds_differ(self) -> None:
        found = [
            self._state_leaves(*self._train_lanes({0: self._traced_values()}, 1, seed=seed)[:2], 0)
            for seed in (0, 1)
        ]
        assert any(not np.array_equal(found[0][name], found[1][name]) for name in found[0])

    def test_a_lane_does_not_depend_on_its_neighbours(self) -> None:
        usual = self._traced_values()
        smaller = {name: value * 0.9 for name, value in usual.items()}
        others = {at: smaller for at in (0, 1, 3)}
        alone = self._state_leaves(*self._train_lanes({0: usual}, 1)[:2], 0)
        among = self._state_leaves(*self._train_lanes({**others, 2: usual}, 4)[:2], 2)
        assert [name for name in alone if not np.array_equal(alone[name], among[name])] == []

    def test_a_lane_of_nan_leaves_its_neighbours_alone(self) -> None:
        usual = self._traced_values()
        broken = {name: float("nan") for name in usual}
        alone = self._state_leaves(*self._train_lanes({1: usual}, 2, tile=2)[:2], 1)
        beside = self._state_leaves(*self._train_lanes({0: broken, 1: usual}, 2, tile=2)[:2], 1)
        assert [name for name in alone if not np.array_equal(alone[name], beside[name])] == []

    def test_each_traced_hyperparameter_changes_something(self) -> None:
        usual = self._traced_values()
        program, lanes, _ = self._train_lanes({0: usual}, 1)
        before, evaluation = self._state_leaves(program, lanes, 0), program.evaluate(lanes, [0])
        without: list[str] = []
        for name in set(usual) - set(self.unused):
            other = _different_value(self._declared_knobs()[name], usual[name])
            program, lanes, _ = self._train_lanes({0: {**usual, name: other}}, 1)
            after, then = self._state_leaves(program, lanes, 0), program.evaluate(lanes, [0])
            moved = any(not np.array_equal(before[n], after[n]) for n in before)
            moved |= any(
                not np.array_equal(evaluation[n], then[n], equal_nan=True) for n in evaluation
            )
            if not moved:
                without.append(name)
        assert without == [], f"{without} change neither the state nor the evaluation"


def _different_value(knob: Knob, usual: float) -> float:
    """Return a legal value for a traced hyperparameter that differs from its usual value."""
    if knob.type == "bool":
        return 1.0 - usual
    if knob.type == "int":
        step = 1 if usual < knob.high else -1
        return usual + step
    low, high = max(knob.low, usual / 2), min(knob.high, usual * 1.5 + 0.1)
    if high == usual:
        return low
    return high
