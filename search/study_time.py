"""Estimates a study's time on this machine: remaining work multiplied by measured program times.

The work is counted for a study that has just drawn its first trials (`state.remaining_work`). A
program is timed on a few chunks with few lanes, and on one evaluation. The program is the same as
in the study, so the compilation cache contains it afterwards.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, cast

from ..environments.hosted import is_hosted
from ..errors import ConfigError
from ..machine.software import versions
from ..machine.timings import Costs, Timings, key_of
from ..store.rows import Stream, TrialState
from ..studies.chunk_sizes import chunk_sizes_of
from ..studies.evaluation import own_limit
from ..studies.expected_cost import Expected, TimeEstimate, expected_steps
from ..studies.search_spec import SearchSpec
from ..studies.spec import Study
from .engine.engine import Engine, engine_in_memory, lanes_to_keep
from .engine.evaluate import each_seed, replicates_of
from .engine.refill import RefillQueue
from .lanes.contract import PopulationFactory, Refill, Resolved, refuse_failed
from .lanes.multi_environment import SeveralFactory
from .samplers.proposal_queue import AskAhead, Proposer
from .samplers.registry import make_sampler
from .state.remaining_work import RemainingWork, Work
from .state.schedule import EventSchedule

_DRAWN = 256  # number of proposals used to divide trials among programs
_START = 5.0  # measured seconds to start Python and jax, and for the report
_BETWEEN = 1.05  # overhead of commits and records, as a factor
_TIMING_SECONDS = 30.0  # after which no further program is timed


@dataclass(frozen=True)
class PopulationShape:
    """A program's lanes: the part of a population that an estimate needs."""

    asked: int | None  # requested lanes
    lanes: int  # as in `Population`, like the next two
    block: int
    warmup_chunks: int
    width: int  # lanes per call of the evaluation


def programs_of(factory: Any, resolved: Resolved, lanes: int | None) -> list[Any]:
    """Return a configuration's programs, one per environment; nothing is compiled."""
    if not isinstance(factory, SeveralFactory):
        return [factory.program_of(resolved, lanes)]
    factories: Any = factory.factories
    pairs = list(zip(factories, resolved.payload, strict=True))
    for agree in (min, max):  # chosen in the same way as by `SeveralFactory.make`
        lanes = agree(own.program_of(one, lanes).lanes for own, one in pairs)
    return [own.program_of(one, lanes) for own, one in pairs]


def shapes_of(factory: Any, resolved: Resolved, lanes: int | None) -> list[PopulationShape]:
    from .lanes.local_population import warmup_chunks

    found = list[PopulationShape]()
    for one in programs_of(factory, resolved, lanes):
        asked = lanes
        if isinstance(factory, SeveralFactory):
            asked = one.lanes
        block, width = one.tile * len(one.devices), one.evaluation_width
        found.append(PopulationShape(asked, one.lanes, block, warmup_chunks(one), width))
    return found


@dataclass(frozen=True)
class ExpectedProgram:
    """One of a study's programs on one environment, and its expected work."""

    factory: Any  # for its environment
    drawn: Sequence[Resolved]  # configurations that use it
    shape: PopulationShape
    schedule: EventSchedule
    search: Work
    confirm: Work

    @property
    def resolved(self) -> Resolved:
        return self.drawn[0]

    @property
    def is_hosted(self) -> bool:
        return is_hosted(self.factory.study.env.id)

    @property
    def weights(self) -> int:
        from ..core.memory import parameter_count
        from .lanes.configuration import parts_of

        parts = parts_of(self.resolved)
        return parameter_count(parts.plan, parts.hypers)

    @property
    def blocks(self) -> float:
        """The expected number of (chunk, block) pairs where the block has a busy lane."""
        return (self.search + self.confirm).block_steps / self.schedule.quantum

    @property
    def calls(self) -> float:
        """The expected evaluation calls; with host environments, calls with all lanes busy."""
        work = self.search + self.confirm
        full = work.evaluations / self.shape.width
        # the cost is per episode; for compiled environments it is per call, whatever the lanes
        if self.is_hosted:
            return full
        chunks = self.blocks * self.shape.block / self.shape.lanes
        boundaries = max(1.0, chunks / math.gcd(*self.schedule.evaluations))
        return max(full, boundaries * (1.0 - math.exp(-work.evaluations / boundaries)))


def expected_work(
    study: Study,
    factory: PopulationFactory,
    shapes_of: Callable[[Any, Resolved, int | None], list[PopulationShape]] = shapes_of,
) -> list[ExpectedProgram]:
    """Return a study's programs, the default's first; its imports must have run already."""
    engine, asked = _started_engine(study, factory), study.population.lanes
    search_state, buckets = engine.search_state, list(engine.buckets.values())
    shapes = list[list[PopulationShape]]()
    for bucket in buckets:
        own = shapes_of(factory, bucket.resolved, asked)
        block = max(shape.block for shape in own)  # as in `SeveralPopulation`
        bucket.equip(cast(Any, replace(own[0], block=block)))
        if asked is None and len(buckets) > 1:
            own = shapes_of(factory, bucket.resolved, lanes_to_keep(search_state, bucket))
        bucket.fix_lanes(cast(Any, own[0]))
        bucket.place(bucket.lanes)
        shapes.append(own)
    programs, ahead = list[ExpectedProgram](), RemainingWork(study)
    several: Sequence[Any] = (factory,)
    if isinstance(factory, SeveralFactory):
        several = factory.factories
    for at, environment in enumerate(several):
        for bucket, own in zip(buckets, shapes, strict=True):
            bucket.equip(cast(Any, own[at]))
        for bucket, own, works in zip(
            buckets, shapes, ahead.parts(search_state, buckets), strict=True
        ):
            drawn = [
                search_state.resolved_of(number)
                for number, trial in search_state.trials.items()
                if trial.bucket == bucket.key
            ]
            if study.more_envs:
                drawn = [one.payload[at] for one in drawn]
            programs.append(ExpectedProgram(environment, drawn, own[at], bucket.schedule, *works))
    return programs


def _started_engine(study: Study, factory: PopulationFactory) -> Engine:
    """Return the study's engine after a random draw of its first trials; no lanes are assigned."""
    drawn = study
    if study.search.method not in ("grid", "sobol"):
        drawn = replace(study, search=SearchSpec("random", portfolio=study.search.portfolio))
    engine = engine_in_memory(study, factory)
    with closing(AskAhead(Proposer(drawn, make_sampler(drawn)))) as ahead:
        RefillQueue(engine, ahead).ask(_DRAWN)
    default = engine.search_state.trials[0]
    if default.state is TrialState.FAILED:
        raise ConfigError(default.error)
    return engine


def _without_stops(expected: Expected, phases: Mapping[str, float]) -> float | None:
    """Return the seconds that the study takes if its rule stops no trial; None if unbounded."""
    if not expected.search or expected.full is None:
        return None
    full = expected.full
    if expected.budget is not None:
        full = min(full, expected.budget - expected.confirm)
    more = max(0.0, full / expected.search - 1.0)
    return sum(phases.values()) + more * phases["search"]


def _when_timed(last: float, started: float) -> str:
    """Describe when programs were last timed, given seconds since the epoch."""
    if last >= started:
        return "timed now"
    return f"timed on {datetime.fromtimestamp(last):%Y-%m-%d}"


def study_time(
    factory: Any, timings: Timings, timing: bool = True, notify: Callable[[str], None] = print
) -> TimeEstimate | str:
    """Return how long a study takes here, or the reason why that is unknown."""
    study = asked = factory.study
    if study.search.driver == "ray_tune":  # the rules of its scheduler are unknown
        search = replace(study.search, driver="lanes", method="random", options={})
        asked = replace(study, search=search, early_terminate=None)
    programs = expected_work(asked, factory)
    started = time.time()
    timed = _time_programs(programs, timings, timing, notify)
    if not timed:
        return "no program of this study was timed here"
    phases = phases_of(asked, programs, timed)
    wall, early = study.budget.wall_seconds, asked.early_terminate
    if wall is not None and asked.budget.trials is None and asked.budget.env_steps is None:
        phases["search"] += max(0.0, wall - sum(phases.values()))
    chunk_sizes = chunk_sizes_of(study, study.steps_per_update(study.default()))
    expected = expected_steps(asked, chunk_sizes, programs[0].shape.lanes)
    assumes = ["an idle machine"]
    at_most = None
    if early is not None and not early.evolves:
        at_most = _without_stops(expected, phases)
        assumes.append(f"{early.type} stops as many trials as in a simulation with random results")
    if any(_longer_episodes(programs[at], costs) > 1.0 for at, costs in timed.items()):
        assumes.append("evaluation episodes as long as the environment allows")
    if asked is not study:
        assumes.append("Ray Tune's scheduler stops no trial")
    basis = _when_timed(max(costs.at for costs in timed.values()), started)
    if len(timed) < len(programs):
        basis += f" ({len(timed)} of {len(programs)} programs)"
    phases = {name: seconds for name, seconds in phases.items() if seconds > 0.0}
    return TimeEstimate(phases, at_most, wall, basis, tuple(assumes))


def phases_of(
    study: Study, programs: Sequence[ExpectedProgram], timed: dict[int, Costs]
) -> dict[str, float]:
    """Return the seconds of each phase; `timed` maps a program's index to its times."""
    names = ("start", "compile", "search", "confirm", "evaluation", "baselines")
    found: dict[str, float] = dict.fromkeys(names, 0.0)
    found["start"] = _START
    for at, program in enumerate(programs):
        costs = timed.get(at) or _as_similar(program, programs, timed)
        per_step = _BETWEEN * costs.block / program.schedule.quantum
        found["search"] += per_step * program.search.block_steps
        found["confirm"] += per_step * program.confirm.block_steps
        call = costs.evaluation * _longer_episodes(program, costs)
        found["evaluation"] += _BETWEEN * program.calls * call
        found["compile"] += costs.trace
        if at not in timed:
            found["compile"] += costs.xla
    baseline = max(costs.baseline for costs in timed.values())
    found["baselines"] = len(study.baselines) * baseline
    return found


def _as_similar(
    program: ExpectedProgram, programs: Sequence[ExpectedProgram], timed: dict[int, Costs]
) -> Costs:
    """Estimate an untimed program's times from those of the timed program closest in size."""
    alike = [at for at in timed if programs[at].factory is program.factory]
    near = min(alike or timed, key=lambda at: abs(programs[at].weights - program.weights))
    known = programs[near]
    steps = program.schedule.quantum * program.shape.block
    steps /= known.schedule.quantum * known.shape.block
    ratio = steps * (0.5 + 0.5 * program.weights / known.weights)
    return replace(timed[near], block=ratio * timed[near].block)


def _longer_episodes(program: ExpectedProgram, costs: Costs) -> float:
    """Return how many times slower evaluations become once policies have learnt.

    Learning may make episodes longer or shorter. A compiled evaluation runs until the longest of
    many episodes ends, which is assumed to reach the environment's limit. With host environments
    all episodes count; their length is assumed to lie between the current one and that limit.
    """
    study, shape = program.factory.study, program.shape
    limit = own_limit(study)
    if study.evaluation.steps is not None or limit is None:
        return 1.0
    if not program.is_hosted:
        return max(1.0, limit / costs.evaluation_steps)
    episodes = study.evaluation.episodes * min(shape.width, shape.lanes)
    return max(1.0, limit * episodes / costs.evaluation_steps) ** 0.5


def _time_programs(
    programs: Sequence[ExpectedProgram],
    timings: Timings,
    timing: bool,
    notify: Callable[[str], None],
) -> dict[int, Costs]:
    """Return times by program index; missing ones are measured within a time limit.

    Programs with the most work are timed first. One program per environment is always timed,
    because other programs do not predict its times.
    """
    started, found, new = time.monotonic(), dict[int, Costs](), list[Any]()
    most = sorted(enumerate(programs), key=lambda pair: -pair[1].blocks * pair[1].shape.block)
    for at, program in most:
        key, first = _timing_key(program), program.factory not in new
        costs = timings.known.get(key)
        if costs is None and timing and (first or time.monotonic() - started < _TIMING_SECONDS):
            if not new:
                notify("compiling this study to time it here; the run uses the compiled program")
            new.append(program.factory)
            costs = time_program(program, bool(program.factory.study.baselines) and first)
            timings.keep(key, costs)
        if costs is not None:
            found[at] = costs
    return found


def _timing_key(program: ExpectedProgram) -> str:
    """Return the key of a program's timing, which covers everything that its time depends on."""
    factory, study, resolved = program.factory, program.factory.study, program.resolved
    knobs = [(p.name, p.distribution.as_mapping()) for p in study.space.parameters]
    return key_of(
        resolved.bucket,
        resolved.steps_per_chunk,
        program.shape,
        factory.backend,
        factory.device_count,
        study.env,
        study.evaluation,
        sorted(study.fixed.items()),
        knobs,
        study.baselines,
        study.confirm,
        study.population,
        sorted(versions([study.env.id]).items()),
    )


_SECONDS = 3.0  # for chunks, and for evaluations
_FEWEST, _MOST = 3, 12
_LONG = 6.0  # a chunk that takes longer is timed only once


def time_program(program: ExpectedProgram, baseline: bool = False) -> Costs:
    """Compile a program and time it for a few seconds."""
    factory, resolved = program.factory, program.resolved
    population = factory.make_short(resolved, program.shape.asked)
    started = time.perf_counter()
    if not program.is_hosted:
        population.program.trace()
    traced = time.perf_counter() - started
    population.compile()
    population.compile_evaluation()
    compiled = time.perf_counter() - started
    if program.is_hosted:  # many small programs, traced as they run
        traced = compiled
    block = _block_seconds(program, population)
    times = factory.program_of(resolved, population.lanes).updates / population.program.updates
    evaluation, steps = _time_evaluation(population, program.is_hosted)
    of_baselines = 0.0
    if baseline:
        of_baselines = _time_baseline(factory)
    return Costs(
        block * times,
        traced,
        compiled - traced,
        evaluation,
        steps,
        of_baselines,
        time.time(),
    )


def _block_seconds(program: ExpectedProgram, population: Any) -> float:
    """Return a block's mean seconds per chunk, over as many chunks as a short time allows."""
    drawn = itertools.cycle(program.drawn)

    def run(blocks: int, starts: bool = False) -> float:
        lanes = range(blocks * population.block)
        refills = [Refill(lane, next(drawn), Stream.SEARCH, 0) for lane in lanes if starts]
        result = population.advance(refills, lanes)
        refuse_failed(result.failed.values())
        return result.seconds

    def begin(blocks: int) -> float:  # a program's first call takes longer
        return [run(blocks, chunk == 0) for chunk in range(population.warmup_chunks + 1)][-1]

    first, blocks = begin(1), population.lanes // population.block
    if first > _LONG:
        return first
    if not program.is_hosted:  # a chunk has a cost however few lanes are busy
        blocks = max(1, min(blocks, int(_SECONDS / 4 / max(run(1), 1e-6))))
    begin(blocks)
    took = list[float]()
    while len(took) < _FEWEST or (len(took) < _MOST and sum(took) < _SECONDS):
        took.append(run(blocks))
        if sum(took) > _LONG:
            break
    return statistics.fmean(took) / blocks


def _time_evaluation(population: Any, hosted: bool) -> tuple[float, int]:
    """Time one evaluation; return its seconds, and the env steps that determine them."""
    lanes = range(min(population.program.evaluation_width, population.lanes))
    population.evaluate(lanes)  # the first call compiles the program that gathers policies
    started = time.perf_counter()
    found = population.evaluate(lanes)
    took = time.perf_counter() - started
    refuse_failed(result.failed for result in found)
    lengths = [int(n) for result in found for n in result.lengths]
    if hosted:
        return took, max(1, sum(lengths))
    return took, max(1, *lengths)


def _time_baseline(factory: Any) -> float:
    study: Study = factory.study
    seeds = each_seed(replicates_of(study))
    started = time.perf_counter()
    factory.baseline(study.baselines[0], factory.resolve(study.default()), seeds)
    return time.perf_counter() - started
