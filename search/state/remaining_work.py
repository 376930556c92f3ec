"""Estimates a study's remaining work and time, even before it starts.

The work follows from each bucket's schedule and the share of trials that pass each rung. At first
this is the share expected for the rule, then increasingly the observed one.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from ...store.rows import HALTED, Stream, TrialState
from ...studies.chunk_sizes import chunk_sizes_of
from ...studies.expected_cost import expected_steps
from ...studies.spec import Study
from .buckets import Bucket
from .budget import env_steps_left, reserve
from .loop_state import LoopState, Phase
from .schedule import BUDGET_ENDED, CLEARLY_BELOW, EventSchedule
from .search_state import SearchState
from .trials import Replicate, Trial
from .usage import Usage

_PRIOR = 12.0  # weight of the rule's expected shares, in trials
# spreads numbers evenly; maximum number of future trials that are drawn
_GOLDEN, _MOST_DRAWN = 0.6180339887498949, 2_000
# the same for racing: weight in trials, and final over initial seeds
_PRIOR_RACES, _PRIOR_SEEDS = 3, 1.5


@dataclass(frozen=True)
class Work:
    """Expected work."""

    env_steps: float = 0.0  # training of all replicates, on one environment
    block_steps: float = 0.0  # env steps of blocks: a single busy lane keeps its block busy
    evaluations: float = 0.0  # evaluations of one replicate each

    def __add__(self, other: Work) -> Work:
        return Work(
            self.env_steps + other.env_steps,
            self.block_steps + other.block_steps,
            self.evaluations + other.evaluations,
        )

    def times(self, share: float) -> Work:
        return Work(share * self.env_steps, share * self.block_steps, share * self.evaluations)


@dataclass(frozen=True)
class Ahead:
    """The remaining work, and the expected number of programs to compile.

    If only time ends the search, the work is not `bounded`, and the work of the search is omitted.
    """

    work: Work
    buckets: float
    bounded: bool = True


class RemainingWork:
    """Estimates the remaining work of a study that is running or about to start."""

    def __init__(self, study: Study):
        self._study = study
        self._chunk_sizes = chunk_sizes_of(study, study.steps_per_update(study.default()))
        self._trials, self._block = expected_steps(study, self._chunk_sizes).trials, 1
        self._shares = dict[int, tuple[float, ...]]()  # by number of lanes

    def _pass_shares(self, buckets: Sequence[Bucket]) -> tuple[float, ...]:
        """Return the share of trials expected to pass each rung under the rule."""
        lanes = max((bucket.lanes for bucket in buckets), default=0)
        if lanes not in self._shares:
            self._shares[lanes] = self._shares_past(lanes)
        return self._shares[lanes]

    def _shares_past(self, lanes: int) -> tuple[float, ...]:
        expected = expected_steps(self._study, self._chunk_sizes, lanes or None)
        if expected.trials is None:
            return (1.0,) * len(self._chunk_sizes.rungs)
        counts = itertools.pairwise((float(expected.trials), *expected.passing))
        return tuple(after / before if before else 1.0 for before, after in counts)

    def of(self, search_state: SearchState, buckets: Sequence[Bucket]) -> Ahead:
        parts = self.parts(search_state, buckets)
        work = sum((search + confirm for search, confirm in parts), Work())
        work = replace(work, env_steps=work.env_steps * self._study.spread)
        bounded = self._trials is not None or self._study.budget.env_steps is not None
        return Ahead(work, self._programs_to_compile(search_state, buckets), bounded)

    def parts(
        self, search_state: SearchState, buckets: Sequence[Bucket]
    ) -> list[tuple[Work, Work]]:
        """Return the work of the search and of the confirm stage, by bucket."""
        self._block = max(bucket.block for bucket in buckets)  # including buckets without lanes
        counts = search_state.trials_by_bucket()
        total = sum(counts[bucket.key] for bucket in buckets)
        shares = [counts[bucket.key] / max(1, total) for bucket in buckets]
        search, finishes = self._search_work(search_state, buckets, shares)
        confirm = [
            self._confirm_work(search_state, *each) for each in zip(buckets, shares, strict=True)
        ]
        if not finishes:
            confirm = [Work()] * len(buckets)
        return list(zip(search, confirm, strict=True))

    def _search_work(
        self, search_state: SearchState, buckets: Sequence[Bucket], shares: Sequence[float]
    ) -> tuple[list[Work], bool]:
        """Return the search's work within the budget, and whether any trial can finish in it."""
        state = search_state.state
        left = self._budget_left(state, buckets)
        if state.phase is not Phase.SEARCH or (self._is_endless(state) and left == math.inf):
            return [Work() for _ in buckets], True
        chances = chances_to_pass(search_state.trials.values(), self._pass_shares(buckets))
        to_come = self._to_come(state, buckets, chances, left)
        further = self._further_seeds(search_state, buckets, chances, to_come)
        found = [
            self._search_of(search_state, bucket, chances, round(to_come * share), further * share)
            for bucket, share in zip(buckets, shares, strict=True)
        ]
        cut = min(1.0, left / max(1.0, sum(found, Work()).env_steps))
        trials = search_state.trials.values()
        finishes = any(trial.state is TrialState.FINISHED for trial in trials)
        finishes |= any(_can_end(bucket, left) for bucket in buckets)
        return [work.times(cut) for work in found], finishes

    def _is_endless(self, state: LoopState) -> bool:
        """Return whether the number of trials does not limit the search."""
        return self._trials is None and not state.exhausted

    def _budget_left(self, state: LoopState, buckets: Sequence[Bucket]) -> float:
        """Return the env steps that the budget leaves for the search, on one environment."""
        longest = max(bucket.schedule.env_steps for bucket in buckets)
        left = env_steps_left(self._study, state.usage)
        left -= reserve(self._study, state.phase, longest)
        return max(0.0, left) / self._study.spread

    def _to_come(
        self,
        state: LoopState,
        buckets: Sequence[Bucket],
        chances: tuple[float, ...],
        left: float,
    ) -> int:
        """Return the number of trials that will be proposed before the budget is used up."""
        to_come = max(0, (self._trials or 0) - state.proposed)
        if state.exhausted:
            to_come = 0
        if left == math.inf:
            return to_come
        each = min(expected_chunks(b.schedule, chances) * b.schedule.quantum for b in buckets)
        payable = math.ceil(left / (each * self._study.seeds.first))
        if self._is_endless(state):
            return payable
        return min(to_come, payable)

    def _search_of(
        self,
        search_state: SearchState,
        bucket: Bucket,
        chances: tuple[float, ...],
        count: int,
        further: float,
    ) -> Work:
        """Return the work of one bucket: its replicates, `count` new trials, and further seeds.

        If there are many new trials, only a sample of them is drawn, and the work is scaled up.
        """
        first, proposed = self._study.seeds.first, search_state.state.proposed
        runs = [run for trial in search_state.live() for run in _live_runs(trial, bucket)]
        runs.sort(key=lambda run: run.lane is None)
        ends = [self._replicate_end(bucket, chances, run.chunks, run.trial) for run in runs]
        drawn = min(count, _MOST_DRAWN)
        part = drawn / count if count else 1.0
        numbers = range(proposed, proposed + drawn)
        ends += [self._replicate_end(bucket, chances, 0, n) for n in numbers for _ in range(first)]
        ends += [self._replicate_end(bucket, (), 0, 0)] * round(further * part)
        scale = (len(runs) + count * first) / max(1, len(runs) + drawn * first)
        return self._in_lanes(bucket, ends).times(scale)

    def _replicate_end(
        self, bucket: Bucket, chances: tuple[float, ...], chunks: int, trial: int
    ) -> tuple[int, int, int]:
        """Return a replicate's remaining chunks, warm-up and evaluations.

        `trial` determines its last rung.
        """
        mark, warm = (trial + 0.5) * _GOLDEN % 1.0, max(0, bucket.warmup - chunks)
        steps = ladder(bucket.schedule, chances, max(0, chunks - bucket.warmup))
        left, evaluations = next(((n, k) for alive, n, k in steps if mark >= alive), steps[-1][1:])
        return left, warm, evaluations

    def _in_lanes(self, bucket: Bucket, ends: Sequence[tuple[int, int, int]]) -> Work:
        """Return the work of replicates in free lanes; a block runs until its last lane ends."""
        if not ends:
            return Work()
        quantum, block = bucket.schedule.quantum, bucket.block
        if bucket.population is None:
            block = self._block
        free = [(0, lane) for lane in range(bucket.lanes or len(ends))]
        for left, warm, _ in ends:
            heapq.heapreplace(free, (free[0][0] + left + warm, free[0][1]))
        last: dict[int, int] = {}
        for end, lane in free:
            last[lane // block] = max(end, last.get(lane // block, 0))
        trained, _, evaluations = map(sum, zip(*ends, strict=True))
        return Work(
            float(trained * quantum), float(sum(last.values()) * quantum), float(evaluations)
        )

    def _further_seeds(
        self,
        search_state: SearchState,
        buckets: Sequence[Bucket],
        chances: Sequence[float],
        to_come: int,
    ) -> float:
        """Return the number of seeds that racing will add, from the mean over earlier trials."""
        first = self._study.seeds.first
        if self._study.seeds.racing is None:
            return 0.0
        firsts = max(bucket.lanes for bucket in buckets) // first
        done = [
            len(trial.seed_values)
            for trial in search_state.trials.values()
            if trial.state is TrialState.FINISHED and trial.number >= firsts
        ]
        usual = sum(done) + _PRIOR_RACES * _PRIOR_SEEDS * first
        usual /= len(done) + _PRIOR_RACES
        live = 0.0
        for trial in search_state.live():
            most = usual
            if trial.number < firsts:
                most = self._study.seeds.per_config
            if trial.runs:
                more = max(0.0, most - len(trial.runs))
                live += more * math.prod(chances[len(trial.reports) :])
        return live + to_come * math.prod(chances) * max(0.0, usual - first)

    def _confirm_work(self, search_state: SearchState, bucket: Bucket, share: float) -> Work:
        """Return the confirm stage's work in a bucket: running replicates, and later ones."""
        phase, stage = search_state.state.phase, self._study.confirm
        length, warmup = bucket.schedule.length, bucket.warmup
        trials = search_state.live_in(bucket.key)
        runs = [
            run
            for trial in trials
            for run in trial.runs
            if run.is_live and run.stream is not Stream.SEARCH
        ]
        runs.sort(key=lambda run: (run.lane is None, run.chunks))
        left = [(length - bucket.trained(run), max(0, warmup - run.chunks), 1) for run in runs]
        work = self._in_lanes(bucket, left)
        if stage is None or phase in (Phase.ALSO, Phase.DONE):
            return work
        choose, tests = 0, stage.asked
        if phase is Phase.SEARCH:
            choose = self._study.confirming - self._study.tested
        if phase is not Phase.REPORT:
            tests += self._study.tested
        for count in (choose, tests):
            work += self._in_lanes(bucket, [(length, warmup, 1)] * count).times(share)
        return work

    def _programs_to_compile(self, search_state: SearchState, buckets: Sequence[Bucket]) -> float:
        """Return the expected number of programs still to compile.

        The share of trials that are alone in their bucket estimates the probability that the next
        trial needs a new bucket (Good 1953).
        """
        there = sum(
            bool(bucket.work) and (bucket.population is None or not bucket.population.compiles)
            for bucket in buckets
        )
        counts = search_state.trials_by_bucket()
        if search_state.state.phase is not Phase.SEARCH or self._trials is None or len(counts) < 2:
            return float(there)
        alone = sum(count == 1 for count in counts.values()) / len(search_state.trials)
        return there + alone * max(0, self._trials - search_state.state.proposed)


def _live_runs(trial: Trial, bucket: Bucket) -> list[Replicate]:
    """Return a trial's replicates that still train in this bucket."""
    if trial.bucket != bucket.key:
        return []
    return [run for run in trial.runs if run.is_live]


def _can_end(bucket: Bucket, left: float) -> bool:
    """Return whether the most advanced replicate can finish training within the budget."""
    busy = bucket.busy()
    more = bucket.schedule.length - max(map(bucket.trained, busy), default=0)
    return bool(busy) and left > bucket.schedule.quantum * len(busy) * (more - 1)


def chances_to_pass(trials: Iterable[Trial], prior: Sequence[float]) -> tuple[float, ...]:
    """Return the share of trials that will pass each rung, from the prior and the results so far.

    The prior counts as a dozen trials. A trial that ended at a rung did not pass it, whether it
    was stopped there or finished early (`plateau`).
    """
    judged, ended = [0] * len(prior), [0] * len(prior)
    for trial in trials:
        reached = min(len(trial.reports), len(prior))
        for rung in range(reached):
            judged[rung] += 1
        is_through = trial.state is TrialState.FINISHED and _is_ended_at_rung(trial.stop_rule)
        is_out = trial.state in HALTED
        if reached and (is_out or (is_through and not trial.audited)):
            ended[reached - 1] += 1
    return tuple(
        (_PRIOR * share + count - gone) / (_PRIOR + count)
        for share, count, gone in zip(prior, judged, ended, strict=True)
    )


def _is_ended_at_rung(stop_rule: str) -> bool:
    """Return whether a rule finished a trial; racing ends only the addition of seeds."""
    return bool(stop_rule) and not stop_rule.startswith((CLEARLY_BELOW, BUDGET_ENDED))


@lru_cache(maxsize=4096)
def ladder(
    schedule: EventSchedule, chances: tuple[float, ...], trained: int
) -> list[tuple[float, int, int]]:
    """Return the probability of reaching each future evaluation.

    Each tuple also has the number of chunks and the number of evaluations until then.

    >>> ladder(EventSchedule(1000, 8, (2,), frozenset({2, 8})), (0.25,), 0)
    [(0.25, 2, 1), (0.25, 8, 2)]
    """
    found, alive = list[tuple[float, int, int]](), 1.0
    for mark in sorted(mark for mark in schedule.evaluations if mark > trained):
        for rung in schedule.rungs_at(mark):
            if rung < len(chances):
                alive *= chances[rung]
        found.append((alive, mark - trained, len(found) + 1))
    return found or [(1.0, 0, 0)]


def expected_chunks(schedule: EventSchedule, chances: tuple[float, ...]) -> float:
    """Return the expected number of chunks that a new trial trains.

    >>> expected_chunks(EventSchedule(1000, 8, (2,), frozenset({2, 8})), (0.25,))
    3.5
    """
    steps, going, mean = ladder(schedule, chances, 0), 1.0, 0.0
    for alive, chunks, _ in steps[:-1]:
        going, mean = alive, mean + (going - alive) * chunks
    return mean + going * steps[-1][1]


_HALF_LIFE = 60.0  # minimum half-life of past work, in seconds
_OF_LIFE = 0.25  # the same as a share of the seconds so far


class Rates:
    """Speeds measured in this process, weighted towards recent ones."""

    def __init__(self):
        self._measured_seconds = 0.0  # seconds, excluding compiles
        # seconds of training, of evaluation and of the rest; block steps, env steps, evaluations
        self._sums = np.zeros(6)
        self._compile_seconds, self._compiled = 0.0, 0  # not weighted by age
        self._before, self._work = Usage(), Work()

    def begin(self, usage: Usage) -> None:
        self._before = replace(usage)

    def did(self, work: Work) -> None:
        """Count the work of a step; `pass_boundary` adds its time."""
        self._work += work

    def pass_boundary(self, usage: Usage, compiled: int) -> None:
        """Add the time since the last call; `compiled` counts the buckets compiled so far."""
        before, now = self._before.seconds_by_part, usage.seconds_by_part
        new = {name: now[name] - before[name] for name in now}
        self._compile_seconds += new.pop("compile")
        self._compiled = compiled
        took = sum(new.values())
        self._measured_seconds += took
        fade = 0.5 ** (took / max(_HALF_LIFE, _OF_LIFE * self._measured_seconds))
        train, evaluate = new["train"], new["evaluate"]
        steps = usage.env_steps - self._before.env_steps
        self._sums = fade * self._sums + (
            train,
            evaluate,
            max(0.0, took - train - evaluate),
            self._work.block_steps,
            steps,
            self._work.evaluations,
        )
        self._before, self._work = replace(usage), Work()

    @property
    def env_steps_per_second(self) -> float:
        """Training env steps per second, excluding compile time; 0 before the first chunk."""
        seconds = float(self._sums[:3].sum())
        return float(self._sums[4]) / seconds if seconds > 0.0 else 0.0

    def seconds_of(self, ahead: Ahead) -> float | None:
        """Return the seconds that an amount of work will take; None before the first chunk."""
        train, evaluate, other, block_steps, _, evaluations = self._sums.tolist()
        if block_steps <= 0.0 or train <= 0.0:
            return None
        seconds = ahead.work.block_steps * train / block_steps
        if evaluations:
            seconds += ahead.work.evaluations * evaluate / evaluations
        compiling = ahead.buckets * self._compile_seconds / max(1, self._compiled)
        return seconds * (1.0 + other / (train + evaluate)) + compiling
