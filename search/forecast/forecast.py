"""How long a study takes here: the work that is expected of it, times what timed programs take.

Each number has an interval: trials may come in a lucky order, a few chunks are a sample, and how
long the episodes of an evaluation are when policies have learnt is not known before.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from ...studies.chunk_sizes import quanta_of
from ...studies.evaluation import own_limit
from ...studies.expected_cost import Span, TimeEstimate, expected_steps
from ...studies.spec import Study
from .expected_work import Count, expected_work
from .program_timing import Machine, Program, time_program
from .timing_cache import Costs, Kept

_NOTABLE = 1.2
_NOTHING, _AS_NOW = Span(0.0, 0.0, 0.0), Span(1.0, 1.0, 1.0)
_START = Span(3.0, 5.0, 10.0)  # seconds of starting Python and jax, and of the report: seen here
_BETWEEN = Span(1.0, 1.05, 1.12)  # commits and books, as shares of what runs between them
_ANY_MINUTE = Span(0.9, 1.0, 1.15)  # what the same chunk takes in another minute
_ANY_ORDER = Span(0.9, 1.0, 1.1)  # what trials take that come in another order
_UNTIMED = Span(0.7, 1.0, 1.5)  # of a program judged by others
_TIMING_SECONDS = 30.0  # after which no further program is timed


def forecast(
    machine: Machine, kept: Kept, timing: bool = True, told: Callable[[str], None] = print
) -> TimeEstimate | str:
    """Return how long a study takes here, or why that is not known.

    New timings are added to `kept`; without `timing` only those there count. `told` is called
    with a line before something takes long.
    """
    study = asked = machine.study
    if study.search.driver == "ray_tune":  # its scheduler's rules are not known here
        search = replace(study.search, driver="lanes", method="random", options={})
        asked = replace(study, search=search, early_terminate=None)
    work = expected_work(asked, machine.factory, machine.lanes_of)
    leading = work[0].bucket
    programs = _timed([machine.program(one) for one in work], kept, timing, told)
    timed = [program for program in programs if program.is_timed]
    if not timed:
        return "no program of this study was timed here"
    programs = [replace(program, costs=_costs(program, timed)) for program in programs]
    beside = machine.factory.backend == "cpu" and asked is study and not machine.is_hosted
    cores = (os.cpu_count() or 1) if beside else 0
    return _estimate(asked, study, programs, leading, cores)


def _timed(
    programs: Sequence[Program], kept: Kept, timing: bool, told: Callable[[str], None]
) -> list[Program]:
    """Return the programs with what they take; some are timed now, as long as that is short.

    The one with the most to do comes first. One per environment is timed, however long it takes:
    the others say nothing of it.
    """
    started, found = time.monotonic(), list[Program]()
    longest = 0.0
    for program in sorted(programs, key=lambda program: -program.env_steps):
        machine, study, work = program.machine, program.study, program.work
        key = machine.key_of(work.resolved, work.lanes)
        costs = kept.costs(key)
        spent = time.monotonic() - started
        new = [entry.machine for entry in found if entry.is_new]
        first = machine not in new
        is_new = costs is None and timing and (first or spent + longest < _TIMING_SECONDS)
        if is_new:
            if not new:
                told("timing this study here; the compiled program is kept for the run")
            began = time.monotonic()
            baseline = bool(study.baselines) and first
            costs = time_program(machine.factory, work.resolved, work.lanes, baseline)
            longest = max(longest, time.monotonic() - began)
            each = program.about.block * work.resolved.steps_per_chunk
            kept.keep(key, study.env.id, costs.block_seconds / each, costs)
        if costs is not None:
            program = replace(program, costs=costs, is_timed=True, is_new=is_new)
        found.append(program)
    return found


def _costs(program: Program, timed: Sequence[Program]) -> Costs:
    """Return what a program takes; of one that was not timed what others do, by its size.

    Half of an env step's time is taken to be the same for every network, and half to grow with
    the weights.
    """
    if program.is_timed:
        return program.costs
    own = [other for other in timed if other.machine is program.machine]
    near = min(own or timed, key=lambda other: abs(other.size - program.size))
    steps = program.work.resolved.steps_per_chunk * program.about.block
    theirs = near.work.resolved.steps_per_chunk * near.about.block
    ratio = steps / theirs * (0.5 + 0.5 * program.size / near.size)
    return replace(
        near.costs,
        fixed_seconds=ratio * near.costs.fixed_seconds,
        block_seconds=ratio * near.costs.block_seconds,
    )


def _estimate(
    asked: Study, study: Study, programs: Sequence[Program], leading: str, cores: int
) -> TimeEstimate:
    timed = [program for program in programs if program.is_timed]
    longer: dict[str, tuple[Span, str]] = {}  # environment -> of its first timed program
    for program in timed:
        longer.setdefault(str(program.study.env), _longer_episodes(program))
    phases = {
        "start": _START,
        "compile": _compiling(programs, leading, cores),
        "search": _sum(_chunks(program, program.work.search) for program in programs),
        "confirm": _sum(_chunks(program, program.work.confirm) for program in programs),
        "evaluation": _sum(
            _evaluations(program, longer.get(str(program.study.env), (_AS_NOW, ""))[0])
            for program in programs
        ),
    }
    baseline = max(program.costs.baseline_seconds for program in timed)
    if study.baselines and baseline:
        each = len(study.baselines) * baseline
        phases["baselines"] = Span(0.7 * each, each, 1.3 * each)
    wall = study.budget.wall_seconds
    if wall is not None and asked.budget.trials is None and asked.budget.env_steps is None:
        rest = max(0.0, wall - sum(phases.values(), _NOTHING).expected)
        phases["search"] += Span(rest, rest, rest)
    at_most, ratio = None, _unstopped(asked)
    if ratio is not None and asked is study:
        total = sum(phases.values(), _NOTHING)
        at_most = total.high + (ratio - 1.0) * phases["search"].expected
    assumes = [*_assumes(study, asked)]
    for name, (span, words) in longer.items():
        if span.high > _NOTABLE:
            env = next(one.study.env.id for one in timed if str(one.study.env) == name)
            on = f" on {env}" if len(longer) > 1 else ""
            assumes.append(f"evaluation episodes{on} {words}")
    return TimeEstimate(
        {name: span for name, span in phases.items() if span.expected > 0.0},
        at_most,
        wall,
        _basis(timed, len(programs)),
        tuple(assumes),
    )


def _longer_episodes(program: Program) -> tuple[Span, str]:
    """Return how many times as long evaluations take once policies have learnt, also in words.

    Learning may make episodes longer or shorter. A compiled evaluation runs until the longest of
    many episodes has ended, which is taken to be the environment's limit; where the host steps,
    all episodes count, between what they were now and that limit.
    """
    study, about, steps = program.study, program.about, program.costs.evaluate_steps
    limit = own_limit(study)
    if study.evaluation.steps is not None:
        return _AS_NOW, ""
    if limit is None:
        return Span(0.5, 1.0, 4.0), "as long as now"
    if not program.is_hosted:
        most = max(1.0, limit / steps)
        return Span(1.0, most, most), f"of {limit:,} env steps"
    most = max(1.0, limit * study.evaluation.episodes * min(about.width, about.lanes) / steps)
    return Span(1.0, most**0.5, most), f"between now and their limit of {limit:,}"


def _sum(seconds: Iterable[Span]) -> Span:
    """Return the sum, with what chunks take in another minute and order, and in between."""
    whole = sum(seconds, _NOTHING)
    for share in (_ANY_MINUTE, _ANY_ORDER, _BETWEEN):
        whole = whole.times(share.low, share.expected, share.high)
    return whole


def _chunks(program: Program, count: Count) -> Span:
    seconds = program.costs.chunk_seconds(count.chunks, count.blocks)
    error = 2.0 * program.costs.error
    span = Span((1.0 - min(0.5, error)) * seconds, seconds, (1.0 + error) * seconds)
    share = _AS_NOW if program.is_timed else _UNTIMED
    return span.times(share.low, share.expected, share.high)


def _evaluations(program: Program, longer: Span) -> Span:
    counts = (program.work.search, program.work.confirm)
    calls = sum(count.calls for count in counts)
    if program.is_hosted:  # an episode costs; elsewhere a call does, however many lanes it has
        calls = sum(count.evaluations for count in counts) / program.about.width
    seconds = calls * program.costs.evaluate_seconds
    return longer.times(seconds, seconds, seconds)


def _compiling(programs: Sequence[Program], leading: str, cores: int) -> Span:
    """Return what all compiles add to the time; timed programs are in the cache.

    Programs after the first bucket's are compiled while lanes of another run, as far as these
    run long enough. Such a compile takes a core from them: it adds its share of the cores, nothing
    where they would have left that core idle, and all of it where they need every core for every
    step. With `cores` 0 programs compile when they are needed.
    """
    first = others = running = 0.0
    for program in programs:
        seconds = program.costs.compile_seconds(cached=program.is_timed)
        is_first = program.work.bucket == leading
        first, others = first + seconds * is_first, others + seconds * (not is_first)
        count = program.work.search
        running += program.costs.chunk_seconds(count.chunks, count.blocks)
    beside = min(others, running) if cores else 0.0
    alone = first + others - beside
    return Span(0.7 * alone, alone + beside / max(1, cores), 1.3 * (alone + beside))


def _unstopped(study: Study) -> float | None:
    """Return how many times as long the search is if no trial is stopped; None: none can be."""
    if study.early_terminate is None or study.early_terminate.evolves:
        return None
    config = study.default()
    expected = expected_steps(study, quanta_of(study, study.steps_per_update(config)))
    if not expected.search or expected.full is None:
        return None
    most = expected.full
    if expected.budget is not None:
        most = min(most, max(0, expected.budget - expected.confirm))
    return max(1.0, most / expected.search)


def _basis(timed: Sequence[Program], programs: int) -> str:
    now = sum(program.costs.chunks for program in timed if program.is_new)
    old = [program.costs.at for program in timed if not program.is_new]
    parts = [f"timed now, {now} {'chunk' if now == 1 else 'chunks'}"] if now else []
    if old:
        parts.append(f"timed on {datetime.fromtimestamp(max(old)):%Y-%m-%d}")
    some = "" if len(timed) == programs else f" ({len(timed)} of {programs} programs)"
    return " and ".join(parts) + some


def _assumes(study: Study, asked: Study) -> list[str]:
    early = study.early_terminate
    if asked is not study:
        return ["an idle machine", "Ray Tune's scheduler stops no trial"]
    if early is not None and not early.evolves:
        return ["an idle machine", f"{early.type} stops as many as if trials came in random order"]
    return ["an idle machine"]
