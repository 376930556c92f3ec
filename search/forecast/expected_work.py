"""What each program of a study is expected to do, by formula: chunks, blocks and evaluations.

The share of trials that pass each rung is the rule's own expectation, as for the time left of a
study that runs (`state.remaining_work`). Proposals drawn at random say how many trials each
program gets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ...errors import ConfigError
from ...studies.chunk_sizes import quanta_of
from ...studies.expected_cost import expected_steps
from ...studies.spec import SearchSpec, Study
from ..lanes.contract import Resolved
from ..lanes.lane_count import fitting_lanes
from ..samplers.proposal_queue import Proposer
from ..samplers.registry import make_sampler
from ..state.budget import reserve
from ..state.loop_state import Phase
from ..state.remaining_work import (
    PRIOR_CHANCE,
    expected_chances,
    expected_further_seeds,
    from_here,
)
from ..state.schedule import Schedule, schedule_of

_DRAWN = 256  # proposals, by which trials are shared out among programs


@dataclass(frozen=True)
class Lanes:
    lanes: int  # as of `Population`, like the next two
    block: int
    warmup_chunks: int
    width: int  # lanes that one call of the evaluation takes
    parts: tuple[Part, ...] = field(default=(), repr=False)  # one per environment of several


@dataclass(frozen=True)
class Part:
    """The program of one of several environments."""

    asked: int | None  # lanes that it is asked for
    lanes: Lanes


@dataclass(frozen=True)
class Count:
    chunks: float = 0.0
    blocks: float = 0.0  # with a busy lane, over all chunks
    calls: float = 0.0  # of the evaluation program
    evaluations: float = 0.0  # of one replicate each

    def __add__(self, other: Count) -> Count:
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Count(*(a + b for a, b in pairs))

    def times(self, share: float) -> Count:
        return Count(*(share * value for value in vars(self).values()))


@dataclass(frozen=True)
class ProgramWork:
    bucket: str
    resolved: Resolved  # over several environments that of its environment
    lanes: int | None  # that it is asked for
    environment: int  # its number
    search: Count
    confirm: Count


LanesOf = Callable[[Resolved, int | None], Lanes]
"""Configuration and lanes asked for -> the lanes of its program; nothing is compiled."""


def expected_work(
    study: Study, resolve: Callable[[Mapping[str, Any]], Resolved], lanes_of: LanesOf
) -> list[ProgramWork]:
    """Return the programs of a study, the default's first; its imports have run."""
    config = study.default()
    quanta = quanta_of(study, study.steps_per_update(config))
    expected = expected_steps(study, quanta)
    chances = expected_chances(expected, quanta)
    buckets = _drawn(study, resolve)
    schedules = {key: schedule_of(study, one.steps_per_chunk) for key, (one, _) in buckets.items()}
    drawn = sum(count for _, count in buckets.values())
    trials, left = 0.0 if expected.trials is None else float(expected.trials), math.inf
    if expected.budget is not None:
        longest = max(schedule.env_steps for schedule in schedules.values())
        left = max(0, expected.budget - reserve(study, Phase.SEARCH, longest)) / study.spread
        steps = sum(
            count * _env_steps(study, schedules[key], chances)
            for key, (_, count) in buckets.items()
        )
        trials = min(trials or math.inf, left * drawn / steps)
    found: list[ProgramWork] = []
    for key, (resolved, count) in buckets.items():
        share, schedule, asked = count / drawn, schedules[key], study.population.lanes
        about = lanes_of(resolved, asked)
        if asked is None and len(buckets) > 1:
            replicates = math.ceil(trials * share * study.seeds.first)
            asked = fitting_lanes(about.lanes, about.block, replicates)
            about = lanes_of(resolved, asked)
        for at, part in enumerate(about.parts or (Part(asked, about),)):
            lanes = replace(part.lanes, lanes=about.lanes)
            of_part = resolved.payload[at] if about.parts else resolved
            search = _search(study, schedule, lanes, trials * share, chances)
            confirm = _confirm(study, schedule, lanes).times(share)
            busy = min(lanes.lanes, study.seeds.first * (expected.trials or math.inf))
            if left < schedule.quantum * (busy * (schedule.length - 1) + 1):
                search, confirm = _cut(schedule, lanes, left * share), Count()
            found.append(ProgramWork(key, of_part, part.asked, at, search, confirm))
    return found


def _drawn(
    study: Study, resolve: Callable[[Mapping[str, Any]], Resolved]
) -> dict[str, tuple[Resolved, int]]:
    """Return bucket -> a configuration of it, and how many of some random proposals are in it."""
    plain = study
    if study.search.method not in ("grid", "sobol"):
        plain = replace(study, search=SearchSpec("random"))
    wanted = range(min(study.budget.trials or _DRAWN, _DRAWN))
    found: dict[str, tuple[Resolved, int]] = {}
    for proposal in Proposer(plain, make_sampler(plain)).propose(0, wanted, ()).found:
        is_default = proposal.trial == 0
        config = study.default() if is_default else study.complete(proposal.params)
        try:
            resolved = resolve(config)
        except ConfigError:  # such a trial fails at once
            if is_default:
                raise
            continue
        first, count = found.get(resolved.bucket, (resolved, 0))
        found[resolved.bucket] = first, count + 1
    return found


def _env_steps(study: Study, schedule: Schedule, chances: tuple[float, ...]) -> float:
    """Return the training env steps of one trial, on one environment."""
    chunks = study.seeds.first * from_here(schedule, chances, 0)[0]
    further = _further(study, PRIOR_CHANCE) * math.prod(chances)
    return schedule.quantum * (chunks + further * schedule.length)


def _further(study: Study, chance: float) -> float:
    if study.seeds.racing is None:
        return 0.0
    return expected_further_seeds(study.seeds.first, study.seeds.per_config, chance)


def _cut(schedule: Schedule, about: Lanes, env_steps: float) -> Count:
    """Return what a budget pays for that ends before any trial does: nothing is confirmed."""
    lanes = min(about.lanes, max(1, int(env_steps // schedule.quantum)))
    chunks = env_steps / (lanes * schedule.quantum)
    due = lanes * sum(mark <= chunks for mark in schedule.evaluations)
    blocks = chunks * math.ceil(lanes / about.block)
    return Count(chunks, blocks, math.ceil(due / about.width), due)


def _search(
    study: Study, schedule: Schedule, about: Lanes, trials: float, chances: tuple[float, ...]
) -> Count:
    first = study.seeds.first
    found = _replicates(schedule, about, trials * first, first, chances)
    lucky = min(trials, about.lanes // first)  # nothing to race against: they get all seeds
    further = lucky * _further(study, 1.0) + (trials - lucky) * _further(study, PRIOR_CHANCE)
    further *= math.prod(chances)
    return found + _replicates(schedule, about, further, 1, ())


def _replicates(
    schedule: Schedule, about: Lanes, count: float, first: int, chances: tuple[float, ...]
) -> Count:
    """Return what replicates do whose lanes are filled again as they become free.

    At the end of the search a block is at work until the last of its lanes rests.
    """
    if count <= 0.0:
        return Count()

    def chunks_of(trials: int) -> float:
        return about.warmup_chunks + from_here(schedule, chances, 0, trials)[0]

    evaluations = count * from_here(schedule, chances, 0)[1]
    mean, together = chunks_of(1), min(about.lanes, math.ceil(count))
    chunks = max(count * mean / together, mean)
    chunks += max(0.0, chunks_of(math.ceil(together / first)) - mean)
    groups, members = math.ceil(together / about.block), min(about.block, together)
    last = chunks_of(math.ceil(members / first))
    blocks = count * mean / about.block
    blocks += groups * max(0.0, last - mean * members / about.block)
    # Evaluations fall on few boundaries; without rungs all lanes come to them together.
    boundaries = max(1.0, chunks / math.gcd(*schedule.evaluations))
    due = evaluations / boundaries
    calls = max(due / about.width, 1.0 - math.exp(-due))
    calls = boundaries * (calls if schedule.rungs else math.ceil(due / about.width))
    return Count(chunks, blocks, calls, evaluations)


def _confirm(study: Study, schedule: Schedule, about: Lanes) -> Count:
    """Return what the confirm stage does: runs on selection seeds, then those on test seeds."""
    stage, objectives = study.confirm, len(study.objectives)
    if stage is None:
        return Count()
    report = stage.reports(objectives)
    whole, found = about.warmup_chunks + schedule.length, Count()
    for runs in (stage.runs(objectives) - report, report + stage.asked):
        full, rest = divmod(runs, about.lanes)
        for busy in [about.lanes] * full + [rest] * (rest > 0):
            blocks = whole * math.ceil(busy / about.block)
            found += Count(whole, blocks, math.ceil(busy / about.width), busy)
    return found
