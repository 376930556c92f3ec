"""Times a program on this machine: its compile, a few chunks of few lanes, one evaluation.

It is the program that a study would run, so that its compile is in the cache afterwards. A chunk
of one block takes a fraction of one with all lanes busy, and says as much: blocks run one after
the other.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...environments.via_gymnasium import is_gymnasium
from ...errors import ConfigError
from ...machine.software import versions
from ...store.rows import Stream
from ...studies.spec import Study
from ..engine.evaluate import replicates_of
from ..lanes.contract import Refill, Resolved, refuse_failed
from ..lanes.multi_environment import SeveralFactory
from ..seeds import generator
from .expected_work import Lanes, Part, ProgramWork
from .timing_cache import Costs, key_of


class Machine:
    """The programs of one study on this machine."""

    def __init__(self, factory: Any):
        self.factory = factory
        self._known: dict[tuple[str, int | None], Lanes] = {}
        several = factory.factories if isinstance(factory, SeveralFactory) else ()
        # of several environments one machine each, else itself
        self.parts: tuple[Machine, ...] = tuple(map(Machine, several)) or (self,)

    @property
    def study(self) -> Study:
        return self.factory.study

    @property
    def is_hosted(self) -> bool:
        return any(is_gymnasium(part.study.env.id) for part in self.parts)

    def lanes_of(self, resolved: Resolved, lanes: int | None) -> Lanes:
        key = (resolved.bucket, lanes)
        if key not in self._known:
            several = len(self.parts) > 1
            found = self._several(resolved, lanes) if several else self._one(resolved, lanes)
            self._known[key] = found
        return self._known[key]

    def _one(self, resolved: Resolved, lanes: int | None) -> Lanes:
        from ..lanes.local_population import warmup_chunks

        program = self.factory.program_of(resolved, lanes)
        block = program.tile * len(program.devices)
        width = program.evaluation_width
        return Lanes(program.lanes, block, warmup_chunks(program), width)

    def _several(self, resolved: Resolved, lanes: int | None) -> Lanes:
        """Return the programs of all environments, as `SeveralFactory.make` agrees on lanes."""
        pairs = list(zip(self.parts, resolved.payload, strict=True))
        own = [Part(lanes, part.lanes_of(one, lanes)) for part, one in pairs]
        for agree in (min, max):
            asked = agree(part.lanes.lanes for part in own)
            own = [
                part if part.lanes.lanes == asked else Part(asked, machine.lanes_of(one, asked))
                for part, (machine, one) in zip(own, pairs, strict=True)
            ]
        widest = max(part.lanes.block for part in own)
        return replace(own[0].lanes, block=widest, parts=tuple(own))

    def program(self, work: ProgramWork) -> Program:
        from ...core.memory import parameter_count
        from ..lanes.configuration import parts_of

        part = self.parts[work.environment]
        about, parts = part.lanes_of(work.resolved, work.lanes), parts_of(work.resolved)
        return Program(part, work, about, parameter_count(parts.plan, parts.hypers))

    def key_of(self, resolved: Resolved, lanes: int | None) -> str:
        """Return the name of a program's timing: all that its time depends on."""
        study = self.study
        about = self.lanes_of(resolved, lanes)
        knobs = [(p.name, p.distribution.as_mapping()) for p in study.space.parameters]
        return key_of(
            resolved.bucket, resolved.steps_per_chunk, about, self.factory.backend,
            self.factory.device_count, study.env, study.evaluation, sorted(study.fixed.items()),
            knobs, study.baselines, study.confirm, study.population,
            sorted(versions([study.env.id]).items()),
        )  # fmt: skip


_UNKNOWN = Costs(0.0, 0.0, 0.0, 0, 0.0, 0.0, 0.0, 0, 0.0, 0.0)


@dataclass(frozen=True)
class Program:
    """A program that the study runs: what it is to do, and what that takes."""

    machine: Machine  # of its environment
    work: ProgramWork
    about: Lanes
    size: int  # weights of one lane
    costs: Costs = _UNKNOWN
    is_timed: bool = False
    is_new: bool = False  # it was timed just now

    @property
    def study(self) -> Study:
        return self.machine.study

    @property
    def is_hosted(self) -> bool:
        return self.machine.is_hosted

    @property
    def env_steps(self) -> float:
        """Of its blocks, with all lanes busy."""
        blocks = self.work.search.blocks + self.work.confirm.blocks
        return blocks * self.work.resolved.steps_per_chunk


_SECONDS = 3.0  # of chunks, once they are short enough
_FEWEST, _MOST = 3, 12
_LONG = 6.0  # seconds of a chunk that is timed only once


def time_program(
    factory: Any, resolved: Resolved, lanes: int | None, baseline: bool = False
) -> Costs:
    """Compile a program and time it for a few seconds."""
    population = factory.make_short(resolved, lanes)
    with _compiles() as seen:
        started = time.perf_counter()
        population.compile()
        population.compile_evaluation()
        whole = time.perf_counter() - started
    chunks = Chunks(factory, resolved, population)
    fixed, each, error, count = chunks.timed(is_gymnasium(factory.study.env.id))
    times = factory.program_of(resolved, population.lanes).updates / population.program.updates
    evaluate_seconds, steps = _evaluation(population, is_gymnasium(factory.study.env.id))
    return Costs(
        fixed_seconds=fixed * times,
        block_seconds=each * times,
        error=error,
        chunks=count,
        trace_seconds=max(0.0, whole - seen.took),
        xla_seconds=seen.cold,
        evaluate_seconds=evaluate_seconds,
        evaluate_steps=steps,
        baseline_seconds=_baseline(factory) if baseline else 0.0,
        at=time.time(),
    )


class Chunks:
    """Chunks of a program whose lanes train configurations drawn from the space."""

    def __init__(self, factory: Any, resolved: Resolved, population: Any):
        self._population = population
        self._drawn = [_drawn(factory, resolved, lane) for lane in range(population.lanes)]

    def run(self, lanes: Sequence[int], begun: bool = True) -> float:
        """Return the seconds of a chunk; without `begun` lanes start a trial."""
        refills = [] if begun else [
            Refill(lane, self._drawn[lane], Stream.SEARCH, 0) for lane in lanes
        ]  # fmt: skip
        result = self._population.advance(refills, lanes)
        refuse_failed(result.failed.values())
        return result.seconds

    def _begin(self, lanes: Sequence[int]) -> float:
        """Start lanes and run their warm-up; return the seconds of their first chunk of training.

        The first call of a program takes longer than others.
        """
        for chunk in range(self._population.warmup_chunks):
            self.run(lanes, begun=chunk > 0)
        return self.run(lanes, begun=self._population.warmup_chunks > 0)

    def timed(self, hosted: bool) -> tuple[float, float, float, int]:
        """Return seconds of a chunk, of each of its blocks, their error, and the chunks timed."""
        block, lanes = self._population.block, self._population.lanes
        first = self._begin(range(block))
        if first > _LONG:
            return 0.0, first, 0.25, 1
        one = self._several(range(block), _FEWEST if hosted else 1)
        blocks = lanes // block
        wanted = blocks if hosted else max(1, min(blocks, int(_SECONDS / 4 / max(one[0], 1e-6))))
        if wanted == 1:
            more = [*one, *self._several(range(block), _MOST, _SECONDS - sum(one))]
            return 0.0, statistics.fmean(more), _error(more), len(more)
        self._begin(range(wanted * block))
        many = self._several(range(wanted * block), _MOST, _SECONDS)
        usual, single = statistics.fmean(many), statistics.fmean(one)
        fixed = min(single, max(0.0, (wanted * single - usual) / (wanted - 1))) if hosted else 0.0
        return fixed, (usual - fixed) / wanted, _error(many), len(one) + len(many)

    def _several(self, lanes: Sequence[int], most: int, seconds: float = 0.0) -> list[float]:
        found: list[float] = []
        while not found or (len(found) < most and (sum(found) < seconds or len(found) < _FEWEST)):
            found.append(self.run(lanes))
            if sum(found) > _LONG:
                break
        return found


def _error(seconds: Sequence[float]) -> float:
    """Return the standard error of the mean as a share of it; of a single one a quarter."""
    if len(seconds) < _FEWEST:
        return 0.25
    return statistics.stdev(seconds) / len(seconds) ** 0.5 / statistics.fmean(seconds)


def _evaluation(population: Any, hosted: bool) -> tuple[float, int]:
    """Return the seconds of one call of the evaluation, and the steps that they grow with."""
    width = min(population.program.evaluation_width, population.lanes)
    population.evaluate(range(width))  # the first call compiles what gathers the policies
    took, found = list[float](), []
    while len(took) < _FEWEST and sum(took) < _SECONDS:
        started = time.perf_counter()
        found = population.evaluate(range(width))
        took.append(time.perf_counter() - started)
        refuse_failed(result.failed for result in found)
    lengths = np.concatenate([result.lengths for result in found])  # the same in every call
    return statistics.median(took), max(1, int(lengths.sum() if hosted else lengths.max()))


def _baseline(factory: Any) -> float:
    study: Study = factory.study
    if not study.baselines:
        return 0.0
    seeds = [(stream, i) for stream, count in replicates_of(study).items() for i in range(count)]
    started = time.perf_counter()
    factory.baseline(study.baselines[0], factory.resolve(study.default()), seeds)
    return time.perf_counter() - started


def _drawn(factory: Any, default: Resolved, lane: int) -> Resolved:
    """Return a configuration of a program: drawn again until it is one."""
    study = factory.study
    for attempt in range(20):
        rng: np.random.Generator = generator(study.seed, "tune", lane, attempt)
        try:
            params = study.space.draw(rng)
            knobs = study.algorithm.knobs
            static = {name for name in params if name in knobs and not knobs[name].traced}
            params |= {name: default.config[name] for name in static}
            found = factory.resolve(study.complete(params))
        except ConfigError:  # values that contradict each other: drawn again
            continue
        if found.bucket == default.bucket:
            return found
    return default


# ---------------------------------------------------------------------- what XLA took


@dataclass
class _Seen:
    took: float = 0.0  # seconds, of those from the cache what reading them took
    cold: float = 0.0  # seconds that they take without a cache

    def hear(self, event: str, duration_secs: float, **about: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            self.took += duration_secs
            self.cold += duration_secs
        elif event == "/jax/compilation_cache/compile_time_saved_sec":
            self.cold += max(0.0, duration_secs)


@contextmanager
def _compiles() -> Iterator[_Seen]:
    import jax

    seen = _Seen()
    listen: Callable[..., None] = seen.hear
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield seen
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
