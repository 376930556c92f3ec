"""How long a study takes here: what a rehearsal counts, times what timed programs take.

Each number has an interval: rehearsals differ, a few chunks are a sample, and how long the
episodes of an evaluation are when policies have learnt is not known before.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from ...studies.chunk_sizes import quanta_of
from ...studies.evaluation import own_limit
from ...studies.expected_cost import Span, TimeEstimate, expected_steps
from ...studies.spec import Study
from ..state.loop_state import Phase
from .dry_run import Counted, Rehearsed, rehearse
from .program_timing import Machine, Program, time_program
from .timing_cache import Costs, Kept

_NOTABLE = 1.2
_AS_NOW = Span(1.0, 1.0, 1.0)


def longer_episodes(timed: Sequence[Program]) -> dict[str, Span]:
    """Return environment -> how many times as long its evaluation takes, by its first program.

    Nobody knows whether learning makes episodes longer or shorter. A compiled evaluation runs
    until the longest of many episodes has ended, which is taken to be the environment's limit;
    where the host steps, all episodes count, between what they were now and that limit.

    Args:
        timed: programs, the first of each environment first.
    """
    found: dict[str, Span] = {}
    for program in timed:
        found.setdefault(str(program.study.env), _longer(program))
    return found


def _longer(program: Program) -> Span:
    study, about = program.study, program.about
    if study.evaluation.steps is not None or program.costs is None:
        return _AS_NOW
    limit, steps = own_limit(study), program.costs.evaluate_steps
    if limit is None:
        return Span(0.5, 1.0, 4.0)
    if not program.is_hosted:
        most = max(1.0, limit / steps)
        return Span(1.0, most, most)
    whole = limit * study.evaluation.episodes * min(about.width, about.lanes)
    most = max(1.0, whole / steps)
    return Span(1.0, most**0.5, most)


def episodes_words(timed: Sequence[Program], longer: dict[str, Span]) -> list[str]:
    """Return what is taken for granted of evaluation episodes; nothing where it hardly matters."""
    found: list[str] = []
    for name, span in longer.items():
        program = next(one for one in timed if str(one.study.env) == name)
        if span.high <= _NOTABLE:
            continue
        limit, words = own_limit(program.study), "as long as now"
        if limit is not None:
            most = f"between now and their limit of {limit:,}"
            words = most if program.is_hosted else f"of {limit:,} env steps"
        on = f" on {program.study.env.id}" if len(longer) > 1 else ""
        found.append(f"evaluation episodes{on} {words}")
    return found


_START = Span(3.0, 5.0, 10.0)
"""Seconds of starting Python and jax and of writing the report: seen here, on idle cores."""
_BETWEEN = Span(1.0, 1.05, 1.12)  # commits and books, as shares of what runs between them
_ANY_MINUTE = Span(0.9, 1.0, 1.15)  # what the same chunk takes in another minute
_UNTIMED = Span(0.7, 1.0, 1.5)  # of a program judged by others
_REHEARSALS = 3
_QUICK = 2.0  # seconds of a rehearsal that is worth repeating
_TIMING_SECONDS = 30.0  # after which no further program is timed


def forecast(
    machine: Machine, kept: Kept, timing: bool = True, told: Callable[[str], None] = print
) -> TimeEstimate | str:
    """Return how long a study takes here, or why nobody can say.

    Args:
        machine: with the study.
        kept: timings of before; what is timed now is added.
        timing: compile and time what was not timed before; else only earlier timings count.
        told: called with a line before something takes long.

    Raises:
        HpoError: the study cannot run here.
    """
    study = machine.study
    asked = study
    if study.search.driver == "ray_tune":  # its rules are its own
        asked = _without_rule(study)
    rehearsals = _rehearsals(asked, machine)
    if not rehearsals[-1].whole:
        return "the search is too long to be rehearsed; see the env steps"
    programs = _programs(rehearsals, machine)
    programs = _timed(programs, kept, timing, told)
    if all(program.costs is None for program in programs.values()):
        return "no program of this study was timed here"
    is_cpu = machine.factory.backend == "cpu"
    beside = is_cpu and asked is study and not machine.is_hosted
    cores = (os.cpu_count() or 1) if beside else 0
    return _estimate(asked, study, rehearsals, programs, cores)


def _without_rule(study: Study) -> Study:
    search = replace(study.search, driver="lanes", method="random", options={})
    return replace(study, search=search, early_terminate=None)


def _rehearsals(study: Study, machine: Machine) -> list[Rehearsed]:
    found: list[Rehearsed] = []
    resolve = machine.factory.resolve
    for seed in range(_REHEARSALS):
        started = time.monotonic()
        found.append(rehearse(study, resolve, machine.lanes_of, seed))
        if time.monotonic() - started > _QUICK or not found[-1].whole:
            break
    return found


def _programs(rehearsals: Sequence[Rehearsed], machine: Machine) -> dict[str, Program]:
    """Return the programs that were asked for, that with the most to do first."""
    firsts = {name: first for r in rehearsals for name, first in r.firsts.items()}
    blocks = dict.fromkeys(firsts, 0.0)
    for rehearsed in rehearsals:
        for (name, _), count in rehearsed.counts.items():
            blocks[name] += count.blocks * firsts[name].resolved.steps_per_chunk
    return {
        name: machine.program(firsts[name])
        for name in sorted(firsts, key=lambda name: -blocks[name])
    }


def _timed(
    programs: dict[str, Program],
    kept: Kept,
    timing: bool,
    told: Callable[[str], None],
) -> dict[str, Program]:
    """Return the programs with what they take; some are timed now, as long as that is short.

    Of every environment one is, however long: others say nothing of it.
    """
    started, found = time.monotonic(), dict[str, Program]()
    longest = 0.0
    for name, program in programs.items():
        machine, study = program.machine, program.study
        key = machine.key_of(program.resolved, program.lanes)
        costs = kept.costs(key)
        spent = time.monotonic() - started
        new = [entry.machine for entry in found.values() if entry.is_new]
        first = machine not in new
        is_new = costs is None and timing and (first or spent + longest < _TIMING_SECONDS)
        if is_new:
            if not new:
                told("timing this study here; the compiled program is kept for the run")
            began = time.monotonic()
            baseline = bool(study.baselines) and first
            costs = time_program(machine.factory, program.resolved, program.lanes, baseline)
            longest = max(longest, time.monotonic() - began)
            each = program.about.block * program.resolved.steps_per_chunk
            kept.keep(key, study.env.id, costs.block_seconds / each, costs)
        found[name] = replace(program, costs=costs, is_new=is_new)
    return found


# ---------------------------------------------------------------------- seconds


def _estimate(
    asked: Study,
    study: Study,
    rehearsals: Sequence[Rehearsed],
    programs: Mapping[str, Program],
    cores: int,
) -> TimeEstimate:
    timed = [program for program in programs.values() if program.costs is not None]
    costs = {bucket: _costs(program, timed) for bucket, program in programs.items()}
    longer = longer_episodes(timed)
    phases = {"start": _START, "compile": _compiling(rehearsals, programs, costs, cores)}
    for name, phase in (("search", Phase.SEARCH), ("confirm", Phase.CHOOSE)):
        phases[name] = _over(rehearsals, lambda r, at=phase: _chunks(r.of(at), programs, costs))
    phases["evaluation"] = _over(
        rehearsals, lambda r: _evaluations([*r.counts.items()], programs, costs, longer)
    )
    baseline = max(program.costs.baseline_seconds for program in timed if program.costs)
    if study.baselines and baseline:
        each = len(study.baselines) * baseline
        phases["baselines"] = Span(0.7 * each, each, 1.3 * each)
    at_most = None
    ratio = _unstopped(asked)
    if ratio is not None and asked is study:
        total = sum(phases.values(), Span(0.0, 0.0, 0.0))
        at_most = total.high + (ratio - 1.0) * phases["search"].expected
    return TimeEstimate(
        {name: span for name, span in phases.items() if span.expected > 0.0},
        at_most,
        study.budget.wall_seconds,
        _basis(timed, len(programs)),
        tuple([*_assumes(study, asked), *episodes_words(timed, longer)]),
    )


def _over(rehearsals: Sequence[Rehearsed], seconds: Callable[[Rehearsed], Span]) -> Span:
    """Return the span over rehearsals, with what chunks take in another minute and in between."""
    found = [seconds(rehearsed) for rehearsed in rehearsals]
    return Span(
        min(span.low for span in found) * _ANY_MINUTE.low * _BETWEEN.low,
        statistics.fmean(span.expected for span in found) * _BETWEEN.expected,
        max(span.high for span in found) * _ANY_MINUTE.high * _BETWEEN.high,
    )


def _chunks(
    counts: Mapping[str, Counted], programs: Mapping[str, Program], costs: Mapping[str, Costs]
) -> Span:
    whole = Span(0.0, 0.0, 0.0)
    for bucket, count in counts.items():
        seconds = costs[bucket].chunk_seconds(count.chunks, count.blocks)
        error = 2.0 * costs[bucket].error
        span = Span((1.0 - min(0.5, error)) * seconds, seconds, (1.0 + error) * seconds)
        if programs[bucket].costs is None:
            span = span.times(_UNTIMED.low, _UNTIMED.expected, _UNTIMED.high)
        whole += span
    return whole


def _evaluations(
    counts: Sequence[tuple[tuple[str, Phase], Counted]],
    programs: Mapping[str, Program],
    costs: Mapping[str, Costs],
    longer: Mapping[str, Span],
) -> Span:
    whole = Span(0.0, 0.0, 0.0)
    for (name, _), count in counts:
        program, calls = programs[name], count.calls
        if program.is_hosted:  # an episode costs; elsewhere a call does, however many lanes it has
            calls = count.evaluations / program.about.width
        seconds = calls * costs[name].evaluate_seconds
        span = longer.get(str(program.study.env), Span(1.0, 1.0, 1.0))
        whole += span.times(seconds, seconds, seconds)
    return whole


def _costs(program: Program, timed: Sequence[Program]) -> Costs:
    """Return what a program takes; of one that was not timed what others do, by its size.

    Half of an env step's time is taken to be the same for every network, and half to grow with
    the weights.
    """
    if program.costs is not None:
        return program.costs
    own = [other for other in timed if other.machine is program.machine]
    near = min(own or timed, key=lambda other: abs(other.size - program.size))
    if near.costs is None:
        raise RuntimeError("not timed")
    steps = program.resolved.steps_per_chunk * program.about.block
    theirs = near.resolved.steps_per_chunk * near.about.block
    ratio = steps / theirs * (0.5 + 0.5 * program.size / near.size)
    return replace(
        near.costs,
        fixed_seconds=ratio * near.costs.fixed_seconds,
        block_seconds=ratio * near.costs.block_seconds,
    )


def _compiling(
    rehearsals: Sequence[Rehearsed],
    programs: Mapping[str, Program],
    costs: Mapping[str, Costs],
    cores: int,
) -> Span:
    """Return what all compiles add to the time: what was timed is in the cache since.

    Programs behind the first bucket's are compiled while lanes of another run, as far as these
    run long enough. Such a compile takes a core from them: it adds its share of the cores, nothing
    where they would have left that core idle, and all of it where they need every core for every
    step.

    Args:
        rehearsals: what there is to do.
        programs: by name.
        costs: likewise.
        cores: that compile beside lanes that run; 0 where programs compile when they are needed.
    """
    found: list[Span] = []
    for rehearsed in rehearsals:
        leading = next(iter(rehearsed.firsts.values())).bucket
        first = others = 0.0
        for name, of in rehearsed.firsts.items():
            seconds = costs[name].compile_seconds(cached=programs[name].costs is not None)
            first += seconds if of.bucket == leading else 0.0
            others += seconds if of.bucket != leading else 0.0
        running = sum(
            costs[name].chunk_seconds(count.chunks, count.blocks)
            for name, count in rehearsed.of(Phase.SEARCH).items()
        )
        beside = min(others, running) if cores else 0.0
        alone = first + others - beside
        found.append(Span(alone, alone + beside / max(1, cores), alone + beside))
    return Span(
        0.7 * min(span.low for span in found),
        statistics.fmean(span.expected for span in found),
        1.3 * max(span.high for span in found),
    )


def _unstopped(study: Study) -> float | None:
    """Return how many times as long the search is if nobody is stopped; None: nobody could be."""
    if study.early_terminate is None or study.early_terminate.evolves:
        return None
    config = study.default()
    expected = expected_steps(
        study, quanta_of(study, config["num_envs"] * config["rollout_length"])
    )
    if not expected.search or expected.full is None:
        return None
    most = expected.full
    if expected.budget is not None:
        most = min(most, max(0, expected.budget - expected.confirm))
    return max(1.0, most / expected.search)


# ---------------------------------------------------------------------- words


def _basis(timed: Sequence[Program], programs: int) -> str:
    now = [program.costs.chunks for program in timed if program.costs and program.is_new]
    old = [program.costs.at for program in timed if program.costs and not program.is_new]
    parts = [f"timed now, {sum(now)} {'chunk' if sum(now) == 1 else 'chunks'}"] if now else []
    if old:
        parts.append(f"timed on {datetime.fromtimestamp(max(old)):%Y-%m-%d}")
    some = "" if len(timed) == programs else f" ({len(timed)} of {programs} programs)"
    return " and ".join(parts) + some


def _assumes(study: Study, asked: Study) -> list[str]:
    found = ["nothing else runs here"]
    early = study.early_terminate
    if asked is not study:
        found.append("Ray Tune's scheduler stops nobody, which is its own affair")
    elif early is not None and not early.evolves:
        found.append(f"{early.type} stops as many as if trials came in a random order")
    return found
