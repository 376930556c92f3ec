"""Lanes over several environments: lane l trains the same configuration and seed in each.

Each environment has a program with the same number of lanes; a chunk runs one chunk of each
program in turn. All other code handles lanes, rungs and policies as for a single environment.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ...errors import ConfigError
from ...files.atomic_files import new_folder
from ...store.environment_columns import environment_metric
from ...store.rows import Stream
from ...studies.env_spec import own_config
from ...studies.spec import Study
from ...studies.study_environments import each_alone, labels
from ...studies.study_keys import METRICS
from .contract import (
    ChunkResult,
    ChunkRow,
    EvaluationResult,
    LaneChange,
    Population,
    PopulationFactory,
    Refill,
    Resolved,
)

_Own = TypeVar("_Own", bound=PopulationFactory)


def factories_of(study: Study, make: Callable[[Study, int], _Own]) -> _Own | SeveralFactory:
    """Return a study's factory; `make(study, environments)` creates one environment's factory."""
    if not study.more_envs:
        return make(study, 1)
    return SeveralFactory(study, [make(one, study.spread) for one in each_alone(study)])


@dataclass(frozen=True)
class SeveralFactory:
    """Creates populations over several environments, with one factory per environment."""

    study: Study
    factories: Sequence[PopulationFactory]

    @property
    def backend(self) -> str:
        return self.factories[0].backend

    @property
    def device_count(self) -> int:
        return self.factories[0].device_count

    def resolve(self, config: Mapping[str, Any]) -> Resolved:
        """See `PopulationFactory`; the payload is a tuple with one entry per environment."""
        ids = [one.env.id for one in each_alone(self.study)]
        each = [
            factory.resolve(own_config(id_, config))
            for id_, factory in zip(ids, self.factories, strict=True)
        ]
        steps = {one.steps_per_chunk for one in each}
        if len(steps) > 1:
            words = ", ".join(
                f"{label} {one.steps_per_chunk}"
                for label, one in zip(labels(self.study), each, strict=True)
            )
            with self.study.env.named_in_errors():
                raise ConfigError(
                    f"env steps per chunk differ ({words}), so rungs would differ, too; list "
                    "environments with equal env steps per update"
                )
        key = hashlib.sha256("+".join(one.bucket for one in each).encode()).hexdigest()[:8]
        return Resolved(config, key, each[0].steps_per_chunk, tuple(each))

    def make(self, resolved: Resolved, lanes: int | None) -> SeveralPopulation:
        """See `PopulationFactory`; uses as many lanes as fit into memory in every environment."""
        pairs = list(zip(self.factories, resolved.payload, strict=True))
        made = [factory.make(one, lanes) for factory, one in pairs]
        # as many as fit into memory for all of them, in whole tiles of each
        for agree in (min, max):
            asked = agree(population.lanes for population in made)
            made = [
                population if population.lanes == asked else factory.make(one, asked)
                for population, (factory, one) in zip(made, pairs, strict=True)
            ]
        with self.study.env.named_in_errors():
            return SeveralPopulation(labels(self.study), made, self.study.metric.name)

    def check(self, resolved: Resolved) -> None:
        for factory, one in zip(self.factories, resolved.payload, strict=True):
            if check := getattr(factory, "check", None):
                check(one)
        self.make(resolved, None)  # does not compile

    def check_environments(self, resolved: Resolved) -> None:
        factories: Sequence[Any] = self.factories
        for factory, one in zip(factories, resolved.payload, strict=True):
            factory.check_environments(one)

    def baseline(
        self, name: str, resolved: Resolved, seeds: Sequence[tuple[Stream, int]]
    ) -> list[EvaluationResult]:
        raise ConfigError(
            f"baseline {name!r} supports only a single environment; remove baselines"
        )


class SeveralPopulation:
    """The populations of several environments as one; ConfigError if they do not match."""

    def __init__(self, names: Sequence[str], populations: Sequence[Population], metric: str):
        first = populations[0]
        self._metric = metric
        self._names, self.populations = tuple(names), tuple(populations)
        self.lanes, self.steps_per_chunk = first.lanes, first.steps_per_chunk
        self.warmup_chunks = first.warmup_chunks
        self.block = max(one.block for one in populations)
        counts = [one.lanes for one in populations]
        if len(set(counts)) > 1:
            raise ConfigError(
                "the numbers of lanes that fit into memory differ between these environments "
                f"({', '.join(map(str, counts))}); set population: {{lanes: {min(counts)}}}"
            )
        warmups = [one.warmup_chunks for one in populations]
        if len(set(warmups)) > 1:
            words = ", ".join(f"{n} {w}" for n, w in zip(self._names, warmups, strict=True))
            raise ConfigError(
                f"the environments have different warm-ups (in chunks: {words}); list only "
                "environments with equal warm-ups, or set warmup_requests: 0"
            )

    @property
    def compiles(self) -> int:
        return sum(one.compiles for one in self.populations)

    def advance(self, refills: Sequence[Refill], busy: Sequence[int]) -> ChunkResult:
        """See `Population`; a lane that diverges in one environment counts as diverged."""
        found = [
            one.advance(_in_environment(refills, at), busy)
            for at, one in enumerate(self.populations)
        ]
        failed: dict[int, str] = {}
        for name, one in zip(self._names, found, strict=True):
            for lane, why in one.failed.items():
                failed.setdefault(lane, f"{name}: {why}")
        rows = zip(*[one.rows for one in found], strict=True)
        return ChunkResult(
            metrics=_merge_metrics([one.metrics for one in found]),
            diverged=np.any([one.diverged for one in found], axis=0),
            seconds=sum(one.seconds for one in found),
            failed=failed,
            rows=tuple(map(_merge_rows, rows)),
        )

    def change(self, changes: Sequence[LaneChange]) -> None:
        for at, one in enumerate(self.populations):
            one.change(_in_environment(changes, at))

    def take(self, lanes: Sequence[int]) -> list[Any]:
        """See `Population`; a state is a tuple with one entry per environment."""
        return list(zip(*(one.take(lanes) for one in self.populations), strict=True))

    def put(self, states: Mapping[int, tuple[Any, Resolved]]) -> None:
        for at, one in enumerate(self.populations):
            own = states.items()
            one.put({lane: (state[at], new.payload[at]) for lane, (state, new) in own})

    def save_state(self, state: Any, directory: Path) -> None:
        """See `Population`; there is one folder per environment, named by its number."""
        new_folder(directory)
        for at, (one, own) in enumerate(zip(self.populations, state, strict=True)):
            one.save_state(own, directory / str(at))

    def restore_state(self, directory: Path) -> Any:
        found = enumerate(self.populations)
        return tuple(one.restore_state(directory / str(at)) for at, one in found)

    def compile(self) -> None:
        for one in self.populations:
            one.compile()

    def compile_ahead(self) -> Callable[[], None] | None:
        each = [one.compile_ahead() for one in self.populations]
        steps = [step for step in each if step is not None]
        if len(steps) < len(each):
            return None

        def compile_all() -> None:
            for step in steps:
                step()

        return compile_all

    def compile_evaluation(self) -> None:
        for one in self.populations:
            one.compile_evaluation()

    def evaluate(self, lanes: Sequence[int]) -> list[EvaluationResult]:
        """See `Population`; returns the episodes of all environments, in order."""
        each = zip(*(one.evaluate(lanes) for one in self.populations), strict=True)
        return [self._join_results(results) for results in each]

    def _join_results(self, results: Sequence[EvaluationResult]) -> EvaluationResult:
        for name, one in zip(self._names, results, strict=True):
            if one.failed:
                return EvaluationResult.failure(f"{name}: {one.failed}")
            if (
                self._metric not in METRICS
                and self._metric.removeprefix("eval/") not in one.metrics
            ):
                own = ", ".join(f"eval/{key}" for key in one.metrics) or "no others"
                raise ConfigError(
                    f"{name} does not measure {self._metric}; it measures "
                    f"{', '.join(METRICS)}, and {own}; use a metric that every environment has"
                )
        counts = [len(one.returns) for one in results]
        if len(set(counts)) > 1:
            raise RuntimeError(
                f"environments were evaluated on different numbers of episodes: {counts}"
            )
        names = dict.fromkeys(name for one in results for name in one.metrics)
        nothing, metrics = np.full(counts[0], np.nan), dict[str, np.ndarray]()
        for name in names:
            metrics[name] = np.concatenate([one.metrics.get(name, nothing) for one in results])
        return EvaluationResult(
            np.concatenate([one.returns for one in results]),
            np.concatenate([one.lengths for one in results]),
            metrics,
        )

    def save(self, directory: Path) -> None:
        new_folder(directory)
        for at, one in enumerate(self.populations):
            one.save(directory / str(at))

    def restore(self, directory: Path) -> None:
        for at, one in enumerate(self.populations):
            one.restore(directory / str(at))

    def export_policy(
        self, lane: int, resolved: Resolved, directory: Path, about: Mapping[str, Any] = {}
    ) -> None:
        """See `Population`; there is one folder per environment, with its name."""
        new_folder(directory)
        for at, (name, one) in enumerate(zip(self._names, self.populations, strict=True)):
            own = {**about, "environment": name}
            one.export_policy(lane, resolved.payload[at], directory / name, own)


_Step = TypeVar("_Step", Refill, LaneChange)


def _in_environment(steps: Sequence[_Step], at: int) -> list[_Step]:
    """Return refills or changes with the configuration of one environment."""
    return [replace(one, resolved=one.resolved.payload[at]) for one in steps]


def _merge_rows(parts: Sequence[ChunkRow]) -> ChunkRow:
    return ChunkRow(parts[0].env_steps, _merge_metrics([part.metrics for part in parts]))


def _merge_metrics(each: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {
        environment_metric(at, name): values
        for at, metrics in enumerate(each)
        for name, values in metrics.items()
    }


def notes_of(factory: Any, resolved: Resolved) -> Iterable[str]:
    """Return notes about a run's lanes; none if it has programs for several environments."""
    if isinstance(factory, SeveralFactory):
        return ()
    return factory.notes(resolved)
