"""Lanes over several environments: lane l trains one configuration and seed on each of them.

Each environment has its own program with as many lanes as the others; a chunk runs one chunk of
each in turn, so they stand at the same env steps at every boundary. Whoever holds a population
sees lanes, rungs and policies as of one environment.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from ...errors import ConfigError
from ...files.atomic_files import new_folder
from ...store.environment_columns import environment_metric
from ...store.rows import Stream
from ...studies.several_environments import each_alone, labels, own_config
from ...studies.spec import Study
from ...studies.study_keys import METRICS
from .contract import (
    Change,
    ChunkResult,
    ChunkRow,
    EvaluationResult,
    Population,
    PopulationFactory,
    Refill,
    Resolved,
)

_Own = TypeVar("_Own", bound=PopulationFactory)


def factories_of(study: Study, make: Callable[[Study, int], _Own]) -> _Own | SeveralFactory:
    """Return the factory of a study's populations.

    Args:
        study: over one environment or several.
        make: gives the factory of a study over one environment, and of how many there are.
    """
    if not study.more_envs:
        return make(study, 1)
    return SeveralFactory(study, [make(one, study.spread) for one in each_alone(study)])


@runtime_checkable
class _Checking(Protocol):
    """A factory that refuses a configuration before anything is on disk."""

    def check(self, resolved: Resolved) -> None:
        """Raise a ConfigError that says why."""
        ...


@dataclass(frozen=True)
class SeveralFactory:
    """Makes populations of lanes that each train on several environments; see the module.

    Attributes:
        study: what is asked.
        factories: one an environment, each of the study over that environment alone.
    """

    study: Study
    factories: Sequence[PopulationFactory]

    @property
    def backend(self) -> str:
        """See `PopulationFactory`."""
        return self.factories[0].backend

    @property
    def device_count(self) -> int:
        """See `PopulationFactory`."""
        return self.factories[0].device_count

    def resolve(self, config: Mapping[str, Any]) -> Resolved:
        """See `PopulationFactory`; the payload is what each environment's factory resolves.

        Raises:
            ConfigError: a program cannot run it, or chunks of one environment have other lengths.
        """
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
            unlike = (
                f"chunks have unlike env steps ({words}), so rungs would not fall together; list "
                "environments whose updates are equally long"
            )
            with self.study.env.named_in_errors():
                raise ConfigError(unlike)
        key = hashlib.sha256("+".join(one.bucket for one in each).encode()).hexdigest()[:8]
        return Resolved(config, key, each[0].steps_per_chunk, tuple(each))

    def make(self, resolved: Resolved, lanes: int | None) -> SeveralPopulation:
        """See `PopulationFactory`; as many lanes as memory holds of every environment.

        Raises:
            ConfigError: environments have unlike warm-ups.
        """
        return self._made(resolved, lanes, lambda factory, one, n: factory.make(one, n))

    def check(self, resolved: Resolved) -> None:
        """Refuse a configuration that cannot run, as the factory of one environment does.

        Raises:
            ConfigError: says why.
        """
        for factory, one in zip(self.factories, resolved.payload, strict=True):
            if isinstance(factory, _Checking):
                factory.check(one)
        self.make(resolved, None)  # compiles nothing

    def _made(
        self,
        resolved: Resolved,
        lanes: int | None,
        make: Callable[[PopulationFactory, Resolved, int | None], Population],
    ) -> SeveralPopulation:
        pairs = list(zip(self.factories, resolved.payload, strict=True))
        made = [make(factory, one, lanes) for factory, one in pairs]
        for agree in (min, max):  # what memory holds of all of them, in whole tiles of each
            asked = agree(population.lanes for population in made)
            made = [
                population if population.lanes == asked else make(factory, one, asked)
                for population, (factory, one) in zip(made, pairs, strict=True)
            ]
        with self.study.env.named_in_errors():
            return SeveralPopulation(labels(self.study), made, self.study.metric.name)

    def baseline(
        self, name: str, resolved: Resolved, seeds: Sequence[tuple[Stream, int]]
    ) -> list[EvaluationResult]:
        """See `PopulationFactory`; such studies have none.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(f"baseline {name!r} is of one environment; leave baselines out")


class SeveralPopulation:
    """The populations of several environments as one; see the module.

    Args:
        names: of the environments, for folders and words.
        populations: one each, with equal lanes.
        metric: of the study, which all of them measure.

    Raises:
        ConfigError: they have unlike warm-ups.
    """

    def __init__(self, names: Sequence[str], populations: Sequence[Population], metric: str):
        first = populations[0]
        self._metric = metric
        self._names, self._populations = tuple(names), tuple(populations)
        self.lanes, self.steps_per_chunk = first.lanes, first.steps_per_chunk
        self.warmup_chunks = first.warmup_chunks
        self.block = max(one.block for one in populations)
        self._check()

    def _check(self) -> None:
        counts = [one.lanes for one in self._populations]
        if len(set(counts)) > 1:
            raise ConfigError(
                f"environments have room for {', '.join(map(str, counts))} lanes; type "
                f"population: {{lanes: {min(counts)}}}"
            )
        warmups = [one.warmup_chunks for one in self._populations]
        if len(set(warmups)) > 1:
            words = ", ".join(f"{n} {w}" for n, w in zip(self._names, warmups, strict=True))
            raise ConfigError(
                f"environments have unlike warm-ups, in chunks: {words}; list environments that "
                "begin to learn together, or set warmup_requests: 0"
            )

    @property
    def populations(self) -> tuple[Population, ...]:
        """One an environment."""
        return self._populations

    @property
    def compiles(self) -> int:
        """See `Population`; programs of all environments."""
        return sum(one.compiles for one in self._populations)

    def advance(self, refills: Sequence[Refill], busy: Sequence[int]) -> ChunkResult:
        """See `Population`; a lane that diverges on one environment has diverged."""
        found = [
            one.advance([_of(refill, at) for refill in refills], busy)
            for at, one in enumerate(self._populations)
        ]
        failed: dict[int, str] = {}
        for name, one in zip(self._names, found, strict=True):
            for lane, why in one.failed.items():
                failed.setdefault(lane, f"{name}: {why}")
        return ChunkResult(
            metrics=_merged([one.metrics for one in found]),
            diverged=np.any([one.diverged for one in found], axis=0),
            seconds=sum(one.seconds for one in found),
            failed=failed,
            rows=_merged_rows([one.rows for one in found]),
        )

    def change(self, changes: Sequence[Change]) -> None:
        """See `Population`."""
        for at, one in enumerate(self._populations):
            one.change([Change(c.lane, c.resolved.payload[at], c.source) for c in changes])

    def take(self, lanes: Sequence[int]) -> list[Any]:
        """See `Population`; the state of a lane is that of each environment's."""
        return list(zip(*(one.take(lanes) for one in self._populations), strict=True))

    def put(self, states: Mapping[int, tuple[Any, Resolved]]) -> None:
        """See `Population`."""
        for at, one in enumerate(self._populations):
            own = {
                lane: (state[at], resolved.payload[at])
                for lane, (state, resolved) in states.items()
            }
            one.put(own)

    def save_state(self, state: Any, directory: Path) -> None:
        """See `Population`; a folder an environment, by its number."""
        new_folder(directory)
        for at, (one, own) in enumerate(zip(self._populations, state, strict=True)):
            one.save_state(own, directory / str(at))

    def restore_state(self, directory: Path) -> Any:
        """See `Population`."""
        found = enumerate(self._populations)
        return tuple(one.restore_state(directory / str(at)) for at, one in found)

    def compile(self) -> None:
        """See `Population`."""
        for one in self._populations:
            one.compile()

    def compile_ahead(self) -> Callable[[], None] | None:
        """See `Population`; None where one environment's cannot be compiled beside lanes."""
        each = [one.compile_ahead() for one in self._populations]
        steps = [step for step in each if step is not None]
        if len(steps) < len(each):
            return None

        def compile_all() -> None:
            for step in steps:
                step()

        return compile_all

    def compile_evaluation(self) -> None:
        """See `Population`."""
        for one in self._populations:
            one.compile_evaluation()

    def evaluate(self, lanes: Sequence[int]) -> list[EvaluationResult]:
        """See `Population`; episodes of all environments, those of the first one first.

        Raises:
            ConfigError: an environment does not measure the study's metric.
        """
        each = zip(*(one.evaluate(lanes) for one in self._populations), strict=True)
        return [self._joined(results) for results in each]

    def _joined(self, results: Sequence[EvaluationResult]) -> EvaluationResult:
        for name, one in zip(self._names, results, strict=True):
            if one.failed:
                return EvaluationResult(
                    np.zeros(0), np.zeros(0, np.int64), {}, f"{name}: {one.failed}"
                )
            if (
                self._metric not in METRICS
                and self._metric.removeprefix("eval/") not in one.metrics
            ):
                own = ", ".join(f"eval/{key}" for key in one.metrics) or "none of its own"
                raise ConfigError(
                    f"{name} does not measure {self._metric}; it measures {own}, and "
                    f"{', '.join(METRICS)}; take a metric that every environment has"
                )
        counts = [len(one.returns) for one in results]
        if len(set(counts)) > 1:
            raise RuntimeError(f"environments were evaluated on {counts} episodes")
        names = dict.fromkeys(name for one in results for name in one.metrics)
        nothing = np.full(counts[0], np.nan)
        return EvaluationResult(
            np.concatenate([one.returns for one in results]),
            np.concatenate([one.lengths for one in results]),
            {n: np.concatenate([one.metrics.get(n, nothing) for one in results]) for n in names},
        )

    def save(self, directory: Path) -> None:
        """See `Population`; a folder an environment, by its number."""
        new_folder(directory)
        for at, one in enumerate(self._populations):
            one.save(directory / str(at))

    def restore(self, directory: Path) -> None:
        """See `Population`."""
        for at, one in enumerate(self._populations):
            one.restore(directory / str(at))

    def export_policy(
        self,
        lane: int,
        resolved: Resolved,
        directory: Path,
        about: Mapping[str, Any] = {},
    ) -> None:
        """See `Population`; a policy an environment, in a folder of its name."""
        new_folder(directory)
        for at, (name, one) in enumerate(zip(self._names, self._populations, strict=True)):
            own = {**about, "environment": name}
            one.export_policy(lane, resolved.payload[at], directory / name, own)


def _of(refill: Refill, at: int) -> Refill:
    return Refill(refill.lane, refill.resolved.payload[at], refill.stream, refill.replicate)


def _merged(each: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Return the metrics of all environments, each under its environment's number."""
    return {
        environment_metric(at, name): values
        for at, metrics in enumerate(each)
        for name, values in metrics.items()
    }


def _merged_rows(each: Sequence[Sequence[ChunkRow]]) -> tuple[ChunkRow, ...]:
    """Return the parts of a chunk, which end at the same env steps in all environments."""
    return tuple(
        ChunkRow(parts[0].env_steps, _merged([part.metrics for part in parts]))
        for parts in zip(*each, strict=True)
    )
