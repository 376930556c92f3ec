"""How long a study takes here: the work ahead of it, times what its programs take.

The work is that of a study that has just drawn its first trials (`state.remaining_work`). A
program is timed by a few chunks of few lanes and one evaluation; it is the one that the study
runs, so that its compile is in the cache afterwards.
"""

from __future__ import annotations

import itertools
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, cast

from ..environments.via_gymnasium import is_gymnasium
from ..errors import ConfigError
from ..machine.software import versions
from ..machine.timings import Costs, Timings, key_of
from ..store.rows import Stream, TrialState
from ..studies.chunk_sizes import quanta_of
from ..studies.evaluation import own_limit
from ..studies.expected_cost import TimeEstimate, expected_steps
from ..studies.spec import SearchSpec, Study
from .engine.engine import Engine, engine_in_memory, lanes_to_keep
from .engine.evaluate import replicates_of
from .engine.refill import Intake
from .lanes.contract import PopulationFactory, Refill, Resolved, refuse_failed
from .lanes.multi_environment import SeveralFactory
from .samplers.proposal_queue import AskAhead, Proposer
from .samplers.registry import make_sampler
from .state.remaining_work import Work, WorkAhead
from .state.schedule import Schedule

_DRAWN = 256  # proposals, by which trials are shared out among programs
_START = 5.0  # seconds of starting Python and jax, and of the report: seen here
_BETWEEN = 1.05  # commits and books, as a share of what runs between them
_TIMING_SECONDS = 30.0  # after which no further program is timed


# ---------------------------------------------------------------------- the work


@dataclass(frozen=True)
class Shape:
    """A program's lanes; as much of a population as an estimate looks at."""

    asked: int | None  # lanes
    lanes: int  # as of `Population`, like the next two
    block: int
    warmup_chunks: int
    width: int  # lanes that one call of the evaluation takes
    parts: tuple[Shape, ...] = ()  # one per environment of several


def shape_of(factory: Any, resolved: Resolved, asked: int | None) -> Shape:
    """Return the lanes of a configuration's program; nothing is compiled."""
    if not isinstance(factory, SeveralFactory):
        from .lanes.local_population import warmup_chunks

        program = factory.program_of(resolved, asked)
        block, width = program.tile * len(program.devices), program.evaluation_width
        return Shape(asked, program.lanes, block, warmup_chunks(program), width)
    pairs = list(zip(factory.factories, resolved.payload, strict=True))
    own = [shape_of(factory, one, asked) for factory, one in pairs]
    for agree in (min, max):  # as `SeveralFactory.make` agrees on lanes
        lanes = agree(part.lanes for part in own)
        own = [part if part.lanes == lanes else shape_of(factory, one, lanes)
               for part, (factory, one) in zip(own, pairs, strict=True)]  # fmt: skip
    return replace(own[0], block=max(part.block for part in own), parts=tuple(own))


@dataclass(frozen=True)
class Program:
    """A program of the study, on one environment, and what it is expected to do."""

    bucket: str
    factory: Any  # of its environment
    drawn: Sequence[Resolved]  # configurations of it
    shape: Shape
    schedule: Schedule
    search: Work
    confirm: Work

    @property
    def resolved(self) -> Resolved:
        return self.drawn[0]

    @property
    def blocks(self) -> float:
        """Chunks of one block with a busy lane."""
        return (self.search.block_steps + self.confirm.block_steps) / self.schedule.quantum

    @property
    def is_hosted(self) -> bool:
        return is_gymnasium(self.factory.study.env.id)

    def calls(self) -> float:
        """Return the expected calls of the evaluation."""
        calls, width = 0.0, self.shape.width
        for work in (self.search, self.confirm):
            if (
                self.is_hosted
            ):  # an episode costs; elsewhere a call does, however many lanes it has
                calls += work.evaluations / width
                continue
            chunks = work.block_steps / self.schedule.quantum * self.shape.block / self.shape.lanes
            boundaries = max(1.0, chunks / math.gcd(*self.schedule.evaluations))
            each = work.evaluations / boundaries
            some = max(each / width, 1.0 - math.exp(-each))
            calls += boundaries * (some if self.schedule.rungs else math.ceil(each / width))
        return calls


def expected_work(
    study: Study,
    factory: PopulationFactory,
    shape: Callable[[Any, Resolved, int | None], Shape] = shape_of,
) -> list[Program]:
    """Return the programs of a study, the default's first; its imports have run."""
    engine = _begun(study, factory)
    ledger, buckets = engine.ledger, list(engine.buckets.values())
    asked, shapes = study.population.lanes, list[Shape]()
    for bucket in buckets:
        own = shape(factory, bucket.resolved, asked)
        bucket.equip(cast(Any, own))
        if asked is None and len(buckets) > 1:
            own = shape(factory, bucket.resolved, lanes_to_keep(ledger, bucket))
        bucket.fix_lanes(cast(Any, own))
        bucket.place(bucket.lanes)
        shapes.append(own)
    programs, ahead = list[Program](), WorkAhead(study)
    several = factory.factories if isinstance(factory, SeveralFactory) else (factory,)
    for at, environment in enumerate(several):
        for bucket, own in zip(buckets, shapes, strict=True):
            bucket.equip(cast(Any, own.parts[at] if own.parts else own))
        for bucket, works in zip(buckets, ahead.parts(ledger, buckets), strict=True):
            drawn = [ledger.resolved_of(number) for number, trial in ledger.trials.items()
                     if trial.bucket == bucket.key]  # fmt: skip
            drawn = [one.payload[at] for one in drawn] if study.more_envs else drawn
            part = cast(Shape, bucket.population)
            programs.append(Program(bucket.key, environment, drawn, part, bucket.schedule, *works))
    return programs


def _begun(study: Study, factory: PopulationFactory) -> Engine:
    """Return the study as it has drawn its first trials, at random; none has a lane yet."""
    drawn = study
    if study.search.method not in ("grid", "sobol"):
        drawn = replace(study, search=SearchSpec("random"))
    engine = engine_in_memory(study, factory)
    with closing(AskAhead(Proposer(drawn, make_sampler(drawn)))) as ahead:
        Intake(engine, ahead).ask(_DRAWN)
    default = engine.ledger.trials[0]
    if default.state is TrialState.FAILED:
        raise ConfigError(default.error)
    return engine


# ---------------------------------------------------------------------- the time


def study_time(
    factory: Any,
    timings: Timings,
    timing: bool = True,
    told: Callable[[str], None] = print,
) -> TimeEstimate | str:
    """Return how long a study takes here, or why that is not known."""
    study = asked = factory.study
    if study.search.driver == "ray_tune":  # its scheduler's rules are not known here
        search = replace(study.search, driver="lanes", method="random", options={})
        asked = replace(study, search=search, early_terminate=None)
    programs = expected_work(asked, factory)
    started = time.time()
    timed = _timed(programs, timings, timing, told)
    if not timed:
        return "no program of this study was timed here"
    phases = phases_of(asked, programs, timed, asked is study)
    wall = study.budget.wall_seconds
    if wall is not None and asked.budget.trials is None and asked.budget.env_steps is None:
        phases["search"] += max(0.0, wall - sum(phases.values()))
    quanta = quanta_of(study, study.steps_per_update(study.default()))
    at_most, expected = None, expected_steps(study, quanta)
    stops = study.early_terminate is not None and not study.early_terminate.evolves
    if stops and asked is study and expected.search and expected.full is not None:
        left = math.inf if expected.budget is None else expected.budget - expected.confirm
        ratio = max(1.0, min(expected.full, max(0, left)) / expected.search)
        at_most = sum(phases.values()) + (ratio - 1.0) * phases["search"]
    last = max(costs.at for costs in timed.values())
    basis = "timed now" if last >= started else f"timed on {datetime.fromtimestamp(last):%Y-%m-%d}"
    some = "" if len(timed) == len(programs) else f" ({len(timed)} of {len(programs)} programs)"
    assumes = ["an idle machine"]
    if any(_longer_episodes(programs[at], costs.evaluation_steps) > 1.0
           for at, costs in timed.items()):  # fmt: skip
        some_of_them = any(program.is_hosted for program in programs)
        much = "longer, up to what" if some_of_them else "as long as"
        assumes.append(f"evaluation episodes {much} the environment allows")
    if asked is not study:
        assumes.append("Ray Tune's scheduler stops no trial")
    elif stops and study.early_terminate is not None:
        rule = study.early_terminate.type
        assumes.append(f"{rule} stops as many as if trials came in random order")
    phases = {name: seconds for name, seconds in phases.items() if seconds > 0.0}
    return TimeEstimate(phases, at_most, wall, basis + some, tuple(assumes))


def phases_of(
    study: Study, programs: Sequence[Program], timed: dict[int, Costs], beside: bool = False
) -> dict[str, float]:
    """Return the seconds of each phase; `timed` are places of programs -> what these take."""
    from ..core.memory import parameter_count
    from .lanes.configuration import parts_of

    sizes = []
    for program in programs if len(timed) < len(programs) else ():
        parts = parts_of(program.resolved)
        sizes.append(parameter_count(parts.plan, parts.hypers))

    found: dict[str, float] = {"start": _START, "compile": 0.0}
    found |= {"search": 0.0, "confirm": 0.0, "evaluation": 0.0}
    first = others = running = 0.0
    for at, program in enumerate(programs):
        costs = timed.get(at)
        if costs is None:
            alike = [one for one in timed if programs[one].factory is program.factory]
            near = min(alike or timed, key=lambda one: abs(sizes[one] - sizes[at]))
            costs = _scaled(timed[near], programs[near], program, sizes[at] / sizes[near])
        quantum = program.schedule.quantum
        for name, work in (("search", program.search), ("confirm", program.confirm)):
            found[name] += _BETWEEN * costs.block * work.block_steps / quantum
        running += costs.block * program.search.block_steps / quantum
        longer = _longer_episodes(program, costs.evaluation_steps)
        found["evaluation"] += _BETWEEN * program.calls() * costs.evaluation * longer
        compiling, is_first = costs.compiling(at in timed), program.bucket == programs[0].bucket
        first, others = first + compiling * is_first, others + compiling * (not is_first)
    # A compile beside running lanes takes a core from them: its share of the cores, on average.
    hosted = any(program.is_hosted for program in programs)
    cpu = programs[0].factory.backend == "cpu"
    saved = min(others, running) * (1.0 - 1.0 / (os.cpu_count() or 1))
    found["compile"] = first + others - (saved if beside and cpu and not hosted else 0.0)
    found["baselines"] = len(study.baselines) * max(costs.baseline for costs in timed.values())
    return found


def _scaled(costs: Costs, timed: Program, program: Program, size: float) -> Costs:
    """Return what a program takes that was not timed, from one with 1/`size` of its weights."""
    steps = program.schedule.quantum * program.shape.block
    ratio = steps / (timed.schedule.quantum * timed.shape.block) * (0.5 + 0.5 * size)
    return replace(costs, block=ratio * costs.block)


def _longer_episodes(program: Program, steps: int) -> float:
    """Return how many times as long evaluations take once policies have learnt.

    Learning may make episodes longer or shorter. A compiled evaluation runs until the longest of
    many episodes has ended, which is taken to be the environment's limit; where the host steps,
    all episodes count, between what they were now and that limit.
    """
    study, shape = program.factory.study, program.shape
    limit = own_limit(study)
    if study.evaluation.steps is not None or limit is None:
        return 1.0
    if not program.is_hosted:
        return max(1.0, limit / steps)
    episodes = study.evaluation.episodes * min(shape.width, shape.lanes)
    return max(1.0, limit * episodes / steps) ** 0.5


# ---------------------------------------------------------------------- timing programs


def _timed(
    programs: Sequence[Program], timings: Timings, timing: bool, told: Callable[[str], None]
) -> dict[int, Costs]:
    """Return places of programs -> what these take; some are timed now, as long as that is short.

    The one with the most to do comes first. One per environment is timed, however long it takes:
    the others say nothing of it.
    """
    started, found, longest, new = time.monotonic(), dict[int, Costs](), 0.0, list[Any]()
    most = sorted(enumerate(programs), key=lambda pair: -pair[1].blocks * pair[1].shape.block)
    for at, program in most:
        key = _key(program)
        costs = timings.known.get(key)
        spent = time.monotonic() - started
        first = program.factory not in new
        if costs is None and timing and (first or spent + longest < _TIMING_SECONDS):
            if not new:
                told("timing this study here; the compiled program is kept for the run")
            costs = time_program(program, bool(program.factory.study.baselines) and first)
            new.append(program.factory)
            longest = max(longest, time.monotonic() - started - spent)
            timings.keep(key, costs)
        if costs is not None:
            found[at] = costs
    return found


def _key(program: Program) -> str:
    """Return the name of a program's timing: all that its time depends on."""
    factory, study, resolved = program.factory, program.factory.study, program.resolved
    knobs = [(p.name, p.distribution.as_mapping()) for p in study.space.parameters]
    return key_of(
        resolved.bucket, resolved.steps_per_chunk, program.shape, factory.backend,
        factory.device_count, study.env, study.evaluation, sorted(study.fixed.items()),
        knobs, study.baselines, study.confirm, study.population,
        sorted(versions([study.env.id]).items()),
    )  # fmt: skip


_SECONDS = 3.0  # of chunks, and of evaluations
_FEWEST, _MOST = 3, 12
_LONG = 6.0  # seconds of a chunk that is timed only once


def time_program(program: Program, baseline: bool = False) -> Costs:
    """Compile a program and time it for a few seconds."""
    factory, resolved = program.factory, program.resolved
    population = factory.make_short(resolved, program.shape.asked)
    with _compiles() as seen:
        started = time.perf_counter()
        population.compile()
        population.compile_evaluation()
        whole = time.perf_counter() - started
    block = _block_seconds(program, population)
    times = factory.program_of(resolved, population.lanes).updates / population.program.updates
    evaluation, steps = _evaluation(population, program.is_hosted)
    return Costs(
        block * times, max(0.0, whole - seen.took), seen.cold, evaluation, steps,
        _baseline(factory) if baseline else 0.0, time.time(),
    )  # fmt: skip


def _block_seconds(program: Program, population: Any) -> float:
    """Return the mean seconds of a chunk of one block, over chunks of as many as are short."""

    def run(lanes: Sequence[int], starts: bool = False) -> float:
        drawn = itertools.cycle(program.drawn)
        refills = [Refill(lane, next(drawn), Stream.SEARCH, 0) for lane in lanes if starts]
        result = population.advance(refills, lanes)
        refuse_failed(result.failed.values())
        return result.seconds

    def begin(blocks: int) -> float:  # the first call of a program takes longer than others
        took = [run(range(blocks * population.block), starts=chunk == 0)
                for chunk in range(population.warmup_chunks + 1)]  # fmt: skip
        return took[-1]

    first, blocks = begin(1), population.lanes // population.block
    if first > _LONG:
        return first
    if not program.is_hosted:  # whose chunk costs something, however few lanes are busy
        blocks = max(1, min(blocks, int(_SECONDS / 4 / max(run(range(population.block)), 1e-6))))
    begin(blocks)
    took = list[float]()
    while len(took) < _FEWEST or (len(took) < _MOST and sum(took) < _SECONDS):
        took.append(run(range(blocks * population.block)))
        if sum(took) > _LONG:
            break
    return statistics.fmean(took) / blocks


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
    lengths = [int(n) for result in found for n in result.lengths]  # the same in every call
    return statistics.median(took), max(1, sum(lengths) if hosted else max(lengths))


def _baseline(factory: Any) -> float:
    study: Study = factory.study
    seeds = [(stream, i) for stream, count in replicates_of(study).items() for i in range(count)]
    started = time.perf_counter()
    factory.baseline(study.baselines[0], factory.resolve(study.default()), seeds)
    return time.perf_counter() - started


@dataclass
class _Seen:
    """What XLA took."""

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
