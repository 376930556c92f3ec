"""How long a study takes here: what a rehearsal counts, times what timed programs take.

Each number has an interval: rehearsals differ, a few chunks are a sample, and how long the
episodes of an evaluation are when policies have learnt is not known before.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from ...environments import find
from ...studies.expected import expected_steps
from ...studies.quanta import quanta_of
from ...studies.spec import Study
from ...studies.time_estimate import Span, TimeEstimate
from ...via_gymnasium import is_gymnasium
from ..book.state import Phase
from ..lanes.contract import Resolved
from ..lanes.versions import versions
from .costs import Costs
from .kept import Kept, key_of
from .rehearsal import Counted, Lanes, Rehearsed, rehearse
from .timed import time_program

__all__ = ["Machine", "forecast"]

_START = Span(3.0, 5.0, 10.0)
"""Seconds of starting Python and jax and of writing the report: seen here, on idle cores."""
_BETWEEN = Span(1.0, 1.05, 1.12)  # commits and books, as shares of what runs between them
_ANY_MINUTE = Span(0.9, 1.0, 1.15)  # what the same chunk takes in another minute
_UNTIMED = Span(0.7, 1.0, 1.5)  # of a program judged by others
_REHEARSALS = 3
_QUICK = 2.0  # seconds of a rehearsal that is worth repeating
_TIMING_SECONDS = 30.0  # after which no further program is timed


@dataclass(frozen=True)
class _Program:
    """A program that the study runs, and what it takes."""

    resolved: Resolved
    lanes: int | None
    about: Lanes
    size: int
    costs: Costs | None = None
    is_new: bool = False


class Machine:
    """The programs of one study on this machine.

    Args:
        factory: a `LocalFactory`.
    """

    def __init__(self, factory: Any):
        self.factory = factory
        self._known: dict[tuple[str, int | None], Lanes] = {}

    def lanes_of(self, resolved: Resolved, lanes: int | None) -> Lanes:
        """Return what a program is like; nothing is compiled."""
        from ..lanes.local_population import warmup_chunks

        key = (resolved.bucket, lanes)
        if key not in self._known:
            program = self.factory.program_of(resolved, lanes)
            block = program.tile * len(program.devices)
            width = program.evaluation_width
            self._known[key] = Lanes(program.lanes, block, warmup_chunks(program), width)
        return self._known[key]

    def size_of(self, resolved: Resolved) -> int:
        """Return the weights of one lane."""
        from ...core.memory import parameter_count
        from ..lanes.configuration import parts_of

        parts = parts_of(resolved)
        return parameter_count(parts.plan, parts.hypers)

    def key_of(self, resolved: Resolved, lanes: int | None) -> str:
        """Return the name of a program's timing: all that its time depends on."""
        study: Study = self.factory.study
        about = self.lanes_of(resolved, lanes)
        knobs = [(p.name, p.distribution.as_mapping()) for p in study.space.parameters]
        return key_of(
            resolved.bucket, resolved.steps_per_chunk, about, self.factory.backend,
            self.factory.device_count, study.env, study.evaluation, sorted(study.fixed.items()),
            knobs, study.baselines, study.confirm, study.population, sorted(versions().items()),
        )  # fmt: skip


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
    study: Study = machine.factory.study
    asked = study
    if study.search.driver == "ray_tune":  # its rules are its own
        asked = _without_rule(study)
    rehearsals = _rehearsals(asked, machine)
    if not rehearsals[-1].whole:
        return "the search is too long to be rehearsed; see the env steps"
    programs = _programs(rehearsals, machine)
    programs = _timed(programs, machine, kept, timing, told)
    if all(program.costs is None for program in programs.values()):
        return "no program of this study was timed here"
    hosted, is_cpu = is_gymnasium(study.env.id), machine.factory.backend == "cpu"
    beside = is_cpu and asked is study and not hosted
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


def _programs(rehearsals: Sequence[Rehearsed], machine: Machine) -> dict[str, _Program]:
    """Return the programs that were asked for, that with the most to do first."""
    firsts = {bucket: first for r in rehearsals for bucket, first in r.firsts.items()}
    blocks = dict.fromkeys(firsts, 0.0)
    for rehearsed in rehearsals:
        for (bucket, _), count in rehearsed.counts.items():
            blocks[bucket] += count.blocks * firsts[bucket][0].steps_per_chunk
    return {
        bucket: _Program(
            *firsts[bucket], machine.lanes_of(*firsts[bucket]), machine.size_of(firsts[bucket][0])
        )
        for bucket in sorted(firsts, key=lambda bucket: -blocks[bucket])
    }


def _timed(
    programs: dict[str, _Program],
    machine: Machine,
    kept: Kept,
    timing: bool,
    told: Callable[[str], None],
) -> dict[str, _Program]:
    """Return the programs with what they take; some are timed now, as long as that is short."""
    study: Study = machine.factory.study
    started, found = time.monotonic(), dict[str, _Program]()
    longest = 0.0
    for bucket, program in programs.items():
        key = machine.key_of(program.resolved, program.lanes)
        costs = kept.costs(key)
        spent = time.monotonic() - started
        first = not any(entry.is_new for entry in found.values())
        is_new = costs is None and timing and (first or spent + longest < _TIMING_SECONDS)
        if is_new:
            if first:
                told("timing this study here (--no-time leaves it out); what is compiled is kept")
            began = time.monotonic()
            baseline = bool(study.baselines) and first
            costs = time_program(machine.factory, program.resolved, program.lanes, baseline)
            longest = max(longest, time.monotonic() - began)
            each = program.about.block * program.resolved.steps_per_chunk
            kept.keep(key, study.env.id, costs.block_seconds / each, costs)
        found[bucket] = replace(program, costs=costs, is_new=is_new)
    return found


# ---------------------------------------------------------------------- seconds


def _estimate(
    asked: Study,
    study: Study,
    rehearsals: Sequence[Rehearsed],
    programs: Mapping[str, _Program],
    cores: int,
) -> TimeEstimate:
    timed = [program for program in programs.values() if program.costs is not None]
    costs = {bucket: _costs(program, timed) for bucket, program in programs.items()}
    longer = _longer_episodes(study, timed[0])
    phases = {"start": _START, "compile": _compiling(rehearsals, programs, costs, cores)}
    for name, phase in (("search", Phase.SEARCH), ("confirm", Phase.CHOOSE)):
        phases[name] = _over(rehearsals, lambda r, at=phase: _chunks(r.of(at), programs, costs))
    hosted = is_gymnasium(study.env.id)
    calls = _over(rehearsals, lambda r: _evaluations([*r.counts.items()], programs, costs, hosted))
    phases["evaluation"] = calls.times(longer.low, longer.expected, longer.high)
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
        tuple(_assumes(study, asked, timed, longer)),
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
    counts: Mapping[str, Counted], programs: Mapping[str, _Program], costs: Mapping[str, Costs]
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
    programs: Mapping[str, _Program],
    costs: Mapping[str, Costs],
    hosted: bool,
) -> Span:
    whole = Span(0.0, 0.0, 0.0)
    for (bucket, _), count in counts:
        calls = count.calls
        if hosted:  # each episode costs; elsewhere a call does, however many lanes it has
            calls = count.evaluations / programs[bucket].about.width
        seconds = calls * costs[bucket].evaluate_seconds
        whole += Span(seconds, seconds, seconds)
    return whole


def _costs(program: _Program, timed: Sequence[_Program]) -> Costs:
    """Return what a program takes; of one that was not timed what others do, by its size.

    Half of an env step's time is taken to be the same for every network, and half to grow with
    the weights.
    """
    if program.costs is not None:
        return program.costs
    near = min(timed, key=lambda other: abs(other.size - program.size))
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
    programs: Mapping[str, _Program],
    costs: Mapping[str, Costs],
    cores: int,
) -> Span:
    """Return what all compiles add to the time: what was timed is in the cache since.

    Programs behind the first are compiled while lanes of another run, as far as these run long
    enough. Such a compile takes a core from them: it adds its share of the cores, nothing where
    they would have left that core idle, and all of it where they need every core for every step.

    Args:
        rehearsals: what there is to do.
        programs: by bucket.
        costs: likewise.
        cores: that compile beside lanes that run; 0 where programs compile when they are needed.
    """
    found: list[Span] = []
    for rehearsed in rehearsals:
        first, *others = (
            costs[bucket].compile_seconds(cached=programs[bucket].costs is not None)
            for bucket in rehearsed.firsts
        )
        running = sum(
            costs[bucket].chunk_seconds(count.chunks, count.blocks)
            for bucket, count in rehearsed.of(Phase.SEARCH).items()
        )
        beside = min(sum(others), running) if cores else 0.0
        alone = first + sum(others) - beside
        found.append(Span(alone, alone + beside / max(1, cores), alone + beside))
    return Span(
        0.7 * min(span.low for span in found),
        statistics.fmean(span.expected for span in found),
        1.3 * max(span.high for span in found),
    )


def _longer_episodes(study: Study, program: _Program) -> Span:
    """Return how many times as long an evaluation takes once policies have learnt.

    Nobody knows whether learning makes episodes longer or shorter. A compiled evaluation runs
    until the longest of many episodes has ended, which is taken to be the environment's limit;
    where the host steps, all episodes count, between what they were now and that limit.
    """
    if study.evaluation.steps is not None or program.costs is None:
        return Span(1.0, 1.0, 1.0)
    limit, steps = _episode_limit(study), program.costs.evaluate_steps
    if limit is None:
        return Span(0.5, 1.0, 4.0)
    if not is_gymnasium(study.env.id):
        most = max(1.0, limit / steps)
        return Span(1.0, most, most)
    whole = limit * study.evaluation.episodes * min(program.about.width, program.about.lanes)
    most = max(1.0, whole / steps)
    return Span(1.0, most**0.5, most)


def _episode_limit(study: Study) -> int | None:
    entry = find(study.env.id)
    keys = {} if entry is None else entry.keys
    given = {**study.env.values, **study.evaluation.env}
    for name in ("max_steps_in_episode", "max_episode_steps"):
        if name in keys:
            found = given.get(name, keys[name].default)
            return int(found) if found else None
    return None


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


def _basis(timed: Sequence[_Program], programs: int) -> str:
    now = [program.costs.chunks for program in timed if program.costs and program.is_new]
    old = [program.costs.at for program in timed if program.costs and not program.is_new]
    parts = [f"timed now, {sum(now)} {'chunk' if sum(now) == 1 else 'chunks'}"] if now else []
    if old:
        parts.append(f"timed on {datetime.fromtimestamp(max(old)):%Y-%m-%d}")
    some = "" if len(timed) == programs else f" ({len(timed)} of {programs} programs)"
    return " and ".join(parts) + some


def _assumes(study: Study, asked: Study, timed: Sequence[_Program], longer: Span) -> list[str]:
    found = ["nothing else runs here"]
    early = study.early_terminate
    if asked is not study:
        found.append("Ray Tune's scheduler stops nobody, which is its own affair")
    elif early is not None and not early.evolves:
        found.append(f"{early.type} stops as many as if trials came in a random order")
    limit = _episode_limit(study)
    if longer.high > 1.2 and limit is not None:
        hosted = is_gymnasium(study.env.id)
        most = f"between now and their limit of {limit:,}" if hosted else f"of {limit:,} env steps"
        found.append(f"evaluation episodes {most}")
    elif longer.high > 1.2:
        found.append("evaluation episodes as long as now")
    return found
