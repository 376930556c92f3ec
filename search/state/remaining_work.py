"""Estimate the remaining work and time of a study; before it begins, that is all of it.

The work follows from each bucket's schedule and the share of trials that pass each rung: first
the rule's expectation, then increasingly the observed one.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, replace
from functools import lru_cache

import numpy as np

from ...store.rows import Stream, TrialState
from ...studies.chunk_sizes import quanta_of
from ...studies.expected_cost import expected_steps
from ...studies.spec import Study
from .buckets import Bucket
from .budget import env_steps_left, reserve
from .loop_state import Phase
from .schedule import Schedule
from .search_state import Ledger
from .trials import Run, Trial
from .usage import Usage

_PRIOR = 12.0  # trials that the rule's expectation counts as, besides the observed ones
_PRIOR_RACES, _PRIOR_SEEDS = 3.0, 1.5  # the same for racing: trials, and seeds over first seeds


@dataclass(frozen=True)
class Work:
    """Expected work."""

    env_steps: float = 0.0  # training, all replicates, on one environment
    block_steps: float = 0.0  # env steps of blocks: one busy lane keeps a block of lanes busy
    evaluations: float = 0.0  # of one replicate each

    def __add__(self, other: Work) -> Work:
        return Work(*map(sum, zip(astuple(self), astuple(other), strict=True)))

    def times(self, share: float) -> Work:
        return Work(*(share * value for value in astuple(self)))


@dataclass(frozen=True)
class Ahead:
    """Remaining work, and the expected number of programs to compile.

    Not `bounded` if only time ends the search, whose work is then omitted.
    """

    work: Work
    buckets: float
    bounded: bool = True


class WorkAhead:
    """Estimates the remaining work of one study: of one that runs, or that is about to begin."""

    def __init__(self, study: Study):
        self._study = study
        config = study.default()
        quanta = quanta_of(study, study.steps_per_update(config))
        expected = expected_steps(study, quanta)
        self._trials = expected.trials
        self._passing = (1.0,) * len(quanta.rungs)
        if expected.trials is not None:  # the share that the rule is expected to let pass
            counts = itertools.pairwise((expected.trials, *expected.passing))
            self._passing = tuple(after / before if before else 1.0 for before, after in counts)
        self._block = 1

    def of(self, ledger: Ledger, buckets: Sequence[Bucket]) -> Ahead:
        parts = self.parts(ledger, buckets)
        work = sum((search + confirm for search, confirm in parts), Work())
        work = replace(work, env_steps=work.env_steps * self._study.spread)
        bounded = self._trials is not None or self._study.budget.env_steps is not None
        return Ahead(work, self._uncompiled(ledger, buckets), bounded)

    def parts(self, ledger: Ledger, buckets: Sequence[Bucket]) -> list[tuple[Work, Work]]:
        """Return the work of the search and of the confirm stage, per bucket.

        Later trials are shared out among buckets as the trials so far.
        """
        known = (bucket.population.block for bucket in buckets if bucket.population is not None)
        self._block = next(known, 1)  # also of those without lanes
        counts = Counter(trial.bucket for trial in ledger.trials.values())
        total = sum(counts[bucket.key] for bucket in buckets)
        shares = [counts[b.key] / total if total else 1.0 / len(buckets) for b in buckets]
        left = self._left(ledger, buckets)
        search = self._search(ledger, buckets, shares, left)
        confirm = [self._confirm(ledger, *each) for each in zip(buckets, shares, strict=True)]
        if ledger.state.phase is Phase.SEARCH and self._ends_none(ledger, buckets, left):
            confirm = [Work() for _ in buckets]
        return list(zip(search, confirm, strict=True))

    def _left(self, ledger: Ledger, buckets: Sequence[Bucket]) -> float:
        """Return the env steps that the search has left on each environment; may be infinite."""
        state = ledger.state
        longest = max(bucket.schedule.env_steps for bucket in buckets)
        left = env_steps_left(self._study, state.usage) - reserve(
            self._study, state.phase, longest
        )
        return max(0.0, left) / self._study.spread

    def _ends_none(self, ledger: Ledger, buckets: Sequence[Bucket], left: float) -> bool:
        """Return whether the budget ends before any trial does, so that none is confirmed."""
        if any(trial.state is TrialState.FINISHED for trial in ledger.trials.values()):
            return False
        return all(
            left < bucket.schedule.quantum * (len(busy) * (ahead - 1) + 1)
            for bucket in buckets
            if (busy := bucket.busy())
            and (ahead := bucket.schedule.length - max(map(bucket.trained, busy)))
        )

    def _block_of(self, bucket: Bucket) -> int:
        return bucket.population.block if bucket.population is not None else self._block

    def _search(
        self, ledger: Ledger, buckets: Sequence[Bucket], shares: Sequence[float], left: float
    ) -> list[Work]:
        state, seeds = ledger.state, self._study.seeds
        endless = self._trials is None and not state.exhausted
        if state.phase is not Phase.SEARCH or (endless and left == math.inf):
            return [Work() for _ in buckets]
        chances = chances_to_pass(ledger.trials.values(), self._passing)
        to_come = 0
        if self._trials is not None and not state.exhausted:
            to_come = max(0, self._trials - state.proposed)
        further = self._further_seeds(ledger, buckets, chances, to_come)
        each = [
            self._of_one(bucket, chances).times(s)
            for bucket, s in zip(buckets, shares, strict=True)
        ]
        found = [
            self._running(ledger, bucket, chances, to_come > 0)
            + one.times(to_come * seeds.first)
            + self._of_one(bucket, ()).times(further * share)
            for bucket, one, share in zip(buckets, each, shares, strict=True)
        ]
        total = sum(found, Work()).env_steps
        if endless:
            more = max(0.0, left - total) / max(1.0, sum(each, Work()).env_steps)
            found = [known + one.times(more) for known, one in zip(found, each, strict=True)]
        return [work.times(left / total) for work in found] if total > left else found

    def _of_one(self, bucket: Bucket, chances: tuple[float, ...], chunks: int = 0) -> Work:
        """Return the work of a replicate after so many chunks, in a full block."""
        quantum, warmup = bucket.schedule.quantum, bucket.warmup
        left, evaluations = from_here(bucket.schedule, chances, max(0, chunks - warmup))
        steps = (left + max(0, warmup - chunks)) * quantum / self._block_of(bucket)
        return Work(left * quantum, steps, evaluations)

    def _running(
        self, ledger: Ledger, bucket: Bucket, chances: tuple[float, ...], refilled: bool
    ) -> Work:
        """Return the work of the search's replicates in one bucket.

        A block works until the last of its lanes ends. If lanes are refilled, that costs only
        once, at the end.
        """
        schedule, block = bucket.schedule, self._block_of(bucket)
        live = [trial for trial in ledger.live() if trial.bucket == bucket.key]
        runs = [run for trial in live for run in trial.runs if run.is_live]
        work = sum((self._of_one(bucket, chances, run.chunks) for run in runs), Work())
        refilled = refilled or any(run.lane is None for run in runs)
        groups: dict[int, list[Run]] = {}
        for run in runs:
            if run.lane is not None:
                groups.setdefault(run.lane // block, []).append(run)
        beyond = 0.0
        for members in groups.values():
            trained = [0] if refilled else [bucket.trained(run) for run in members]
            trials = len({run.trial for run in members})
            last = from_here(schedule, chances, min(trained), trials)[0]
            alone = sum(from_here(schedule, chances, chunks)[0] for chunks in trained)
            beyond += last - alone if refilled else max(0.0, last - alone / block)
        return work + Work(block_steps=beyond * schedule.quantum)

    def _further_seeds(
        self, ledger: Ledger, buckets: Sequence[Bucket], chances: Sequence[float], to_come: int
    ) -> float:
        """Return the further seeds that racing is expected to add, by the mean of past trials.

        The first trials in the lanes take all seeds: nothing is best yet.
        """
        seeds = self._study.seeds
        if seeds.racing is None:
            return 0.0
        firsts = max(bucket.lanes for bucket in buckets) // seeds.first
        done = [
            len(trial.seed_values)
            for trial in ledger.trials.values()
            if trial.number >= firsts and trial.state is TrialState.FINISHED
        ]
        known = _PRIOR_RACES * min(_PRIOR_SEEDS * seeds.first, seeds.per_config) + sum(done)
        usual = known / (_PRIOR_RACES + len(done))
        live = sum(
            max(0.0, (seeds.per_config if trial.number < firsts else usual) - len(trial.runs))
            * math.prod(chances[len(trial.reports) :])
            for trial in ledger.live()
            if trial.runs
        )
        return live + to_come * math.prod(chances) * max(0.0, usual - seeds.first)

    def _confirm(self, ledger: Ledger, bucket: Bucket, share: float) -> Work:
        """Return the work of confirming: running replicates, then this bucket's later ones."""
        phase, stage, work = ledger.state.phase, self._study.confirm, Work()
        whole = bucket.warmup + bucket.schedule.length
        left = [
            (run.lane is None, whole - run.chunks)
            for trial in ledger.state.live.values()
            if trial.bucket == bucket.key
            for run in trial.runs
            if run.is_live and run.stream is not Stream.SEARCH
        ]
        for waits in (False, True):
            work += self._side_by_side(bucket, [n for which, n in left if which is waits])
        if stage is None or phase in (Phase.ALSO, Phase.DONE):
            return work
        objectives = len(self._study.objectives)
        report = stage.reports(objectives)
        choose = stage.runs(objectives) - report if phase is Phase.SEARCH else 0
        later = (choose, stage.asked + (0 if phase is Phase.REPORT else report))
        return work + sum(
            (self._side_by_side(bucket, [whole] * count).times(share) for count in later), Work()
        )

    def _side_by_side(self, bucket: Bucket, left: Sequence[int]) -> Work:
        """Return the work of replicates with so many chunks left, in waves over the lanes."""
        if not left:
            return Work()
        lanes, block = bucket.lanes or len(left), self._block_of(bucket)
        ordered = sorted(left, reverse=True)
        waves = (ordered[first : first + lanes] for first in range(0, len(left), lanes))
        blocks = sum(wave[0] * math.ceil(len(wave) / block) for wave in waves)
        quantum = bucket.schedule.quantum
        trained = sum(min(chunks, bucket.schedule.length) for chunks in left)
        return Work(float(trained * quantum), float(blocks * quantum), float(len(left)))

    def _uncompiled(self, ledger: Ledger, buckets: Sequence[Bucket]) -> float:
        """Return the expected number of programs still to compile.

        The share of trials that are alone in their bucket is the chance that the next one needs a
        new bucket (Good 1953).
        """
        there = sum(
            bool(bucket.work) and (bucket.population is None or not bucket.population.compiles)
            for bucket in buckets
        )
        if ledger.state.phase is not Phase.SEARCH or self._trials is None:
            return float(there)
        counts = Counter(trial.bucket for trial in ledger.trials.values())
        alone = sum(count == 1 for count in counts.values())
        share = alone / len(ledger.trials) if len(counts) > 1 else 0.0
        return there + share * max(0, self._trials - ledger.state.proposed)


# ---------------------------------------------------------------------- trials and rungs


def chances_to_pass(trials: Iterable[Trial], prior: Sequence[float]) -> tuple[float, ...]:
    """Return the share of trials that will pass each rung, from the prior and from results.

    The prior counts as a dozen trials. A trial that ended at a rung did not pass it, whether it
    was stopped there or finished early (`plateau`).
    """
    judged, ended = [0] * len(prior), [0] * len(prior)
    for trial in trials:
        seen = min(len(trial.reports), len(prior))
        for rung in range(seen):
            judged[rung] += 1
        is_through = trial.state is TrialState.FINISHED and bool(trial.stop_rule)
        is_out = trial.state in (TrialState.STOPPED, TrialState.PAUSED)
        if seen and (is_out or (is_through and not trial.audited)):
            ended[seen - 1] += 1
    return tuple(
        (_PRIOR * share + seen - gone) / (_PRIOR + seen)
        for share, seen, gone in zip(prior, judged, ended, strict=True)
    )


@lru_cache(maxsize=4096)
def from_here(
    schedule: Schedule, chances: tuple[float, ...], trained: int, trials: int = 1
) -> tuple[float, float]:
    """Return the expected remaining chunks and evaluations of a replicate.

    `trained` are its chunks so far. With several `trials`, of the last of them.

    >>> from_here(Schedule(1000, 8, (2,), frozenset({2, 8})), (0.25,), 0)
    (3.5, 1.25)
    >>> from_here(Schedule(1000, 8, (2,), frozenset({2, 8})), (0.25,), 0, trials=2)
    (4.625, 1.4375)
    """
    chunks, evaluations, alive, at = 0.0, 0.0, 1.0, trained
    for mark in sorted(mark for mark in schedule.evaluations if mark > trained):
        there = 1.0 - (1.0 - alive) ** trials
        chunks += there * (mark - at)
        evaluations += there
        at = mark
        for rung in schedule.rungs_at(mark):
            alive *= chances[rung] if rung < len(chances) else 1.0
    return chunks, evaluations


def groups_of(lanes: Iterable[int], block: int) -> int:
    """Return how many blocks have a busy lane.

    >>> groups_of([0, 3, 9], 4)
    2
    """
    return len({lane // max(1, block) for lane in lanes})


_HALF_LIFE = 60.0  # seconds after which past work counts half, at least
_OF_LIFE = 0.25  # the same, as a share of the seconds so far


class Rates:
    """Observed speeds of this process, older ones with less weight."""

    def __init__(self):
        self._seen = 0.0  # seconds without compiles
        # seconds of training, evaluating and the rest; block steps, env steps, evaluations
        self._sums = np.zeros(6)
        self._compile_seconds, self._compiled = 0.0, 0  # all with the same weight
        self._before, self._work = Usage(), Work()

    def begin(self, usage: Usage) -> None:
        self._before = replace(usage)

    def did(self, work: Work) -> None:
        """Count the work of a step; its time comes with `pass_boundary`."""
        self._work += work

    def pass_boundary(self, usage: Usage, compiled: int) -> None:
        """Add the time since the last boundary; `compiled` buckets so far."""
        before, self._before = self._before, replace(usage)
        known = before.seconds_by_part
        new = {name: now - known[name] for name, now in usage.seconds_by_part.items()}
        self._compile_seconds += new.pop("compile")
        self._compiled = compiled
        took = sum(new.values())
        self._seen += took
        fade = 0.5 ** (took / max(_HALF_LIFE, _OF_LIFE * self._seen))
        train, evaluate = new["train"], new["evaluate"]
        steps = usage.env_steps - before.env_steps
        work, self._work = self._work, Work()
        self._sums = fade * self._sums + (
            train, evaluate, max(0.0, took - train - evaluate),
            work.block_steps, steps, work.evaluations,
        )  # fmt: skip

    @property
    def env_steps_per_second(self) -> float:
        """Training env steps per second without compiles; 0 before the first chunk."""
        seconds = float(self._sums[:3].sum())
        return float(self._sums[4]) / seconds if seconds > 0.0 else 0.0

    def seconds_of(self, ahead: Ahead) -> float | None:
        """Return the seconds for some work; None before the first chunk."""
        train, evaluate, other, block_steps, _, evaluations = self._sums.tolist()
        if block_steps <= 0.0 or train <= 0.0:
            return None
        seconds = ahead.work.block_steps * train / block_steps
        if evaluations:
            seconds += ahead.work.evaluations * evaluate / evaluations
        compiling = ahead.buckets * self._compile_seconds / max(1, self._compiled)
        return seconds * (1.0 + other / (train + evaluate)) + compiling
