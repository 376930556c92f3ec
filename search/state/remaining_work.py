"""How much of a study is still to be done, as far as its rules let us expect: no clock, no speed.

What a replicate runs yet follows from its bucket's schedule and the share of trials that pass each
rung: the rule's own expectation first, moving to what the study has seen.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from ...store.rows import Stream, TrialState
from ...studies.chunk_sizes import Quanta, quanta_of
from ...studies.expected_cost import Expected, expected_steps
from ...studies.spec import Study
from .buckets import Bucket
from .budget import reserve
from .loop_state import Phase
from .schedule import Schedule
from .search_state import Ledger
from .trials import Run, Trial
from .usage import Usage

_PRIOR = 12.0  # trials that the rule's expectation counts as, beside those seen
_PRIOR_LOOKS, _PRIOR_CHANCE = 3.0, 1 / 3  # likewise of seeds that race


@dataclass(frozen=True)
class Work:
    """Some expected work.

    Attributes:
        env_steps: training env steps of all replicates.
        block_steps: env steps of blocks, the lanes that the machine computes at a time: one busy
            lane keeps a block at work, and all of its lanes together take as long.
        evaluations: of one replicate each.
    """

    env_steps: float = 0.0
    block_steps: float = 0.0
    evaluations: float = 0.0

    def __add__(self, other: Work) -> Work:
        """Return both together."""
        return Work(
            self.env_steps + other.env_steps,
            self.block_steps + other.block_steps,
            self.evaluations + other.evaluations,
        )

    def times(self, share: float) -> Work:
        """Return so much of it."""
        return Work(share * self.env_steps, share * self.block_steps, share * self.evaluations)


@dataclass(frozen=True)
class Ahead:
    """What is left of a study: work of its phases, and programs still to be compiled, expected.

    It is not `bounded` if only time ends the search, which then is no part of it.
    """

    search: Work
    confirm: Work
    buckets: float
    bounded: bool = True

    @property
    def work(self) -> Work:
        """Both phases."""
        return self.search + self.confirm


class WorkAhead:
    """Says what is left of one study.

    Args:
        study: the study.
    """

    def __init__(self, study: Study):
        self._study = study
        config = study.default()
        quanta = quanta_of(study, config["num_envs"] * config["rollout_length"])
        self._expected = expected_steps(study, quanta)
        self._passing = _prior(self._expected, quanta)

    def of(self, ledger: Ledger, buckets: Sequence[Bucket]) -> Ahead:
        """Return what is left where the ledger stands."""
        phase = ledger.state.phase
        if phase is Phase.DONE:
            return Ahead(Work(), Work(), 0.0)
        bounded = self._expected.trials is not None or self._study.budget.env_steps is not None
        search = Work()
        if phase is Phase.SEARCH and bounded:
            chances = chances_to_pass(ledger.trials.values(), self._passing)
            search = self._search(ledger, buckets, chances)
        confirm = self._confirm(ledger, buckets)
        each = self._study.spread  # both count env steps on one environment
        search, confirm = (replace(w, env_steps=w.env_steps * each) for w in (search, confirm))
        return Ahead(search, confirm, self._uncompiled(ledger, buckets), bounded)

    # ------------------------------------------------------------------ the search

    def _search(
        self, ledger: Ledger, buckets: Sequence[Bucket], chances: tuple[float, ...]
    ) -> Work:
        to_come = 0
        if self._expected.trials is not None and not ledger.state.exhausted:
            to_come = max(0, self._expected.trials - ledger.state.proposed)
        work = Work()
        for bucket in buckets:
            runs = [run for trial in ledger.live() if trial.bucket == bucket.key
                    for run in trial.runs if run.is_live]  # fmt: skip
            work += _of_runs(bucket, runs, chances, to_come > 0, _usual_block(buckets))
        typical = self._typical(buckets, chances)
        work += typical.times(to_come * self._study.seeds.first)
        if self._study.seeds.racing is not None:
            lanes = max((bucket.lanes for bucket in buckets), default=0)
            further = _further_seeds(ledger, chances, to_come, lanes)
            work += self._typical(buckets, ()).times(further)
        bound = self._study.budget.env_steps
        if bound is None:
            return work
        spent = ledger.state.usage.bounded_env_steps + self._reserved(ledger, buckets)
        left = max(0, bound - spent) / self._study.spread
        if self._expected.trials is None and not ledger.state.exhausted:
            more = max(0.0, left - work.env_steps)
            work += typical.times(more / max(1.0, typical.env_steps))
        return work.times(left / work.env_steps) if work.env_steps > left else work

    def _typical(self, buckets: Sequence[Bucket], chances: tuple[float, ...]) -> Work:
        """Return the work of a replicate to come: the mean over the buckets there are."""
        if not buckets:
            return Work(env_steps=float(self._study.env_steps))
        usual = _usual_block(buckets)
        each = [
            _work(bucket, usual, *from_here(bucket.schedule, chances, 0), bucket.warmup)
            for bucket in buckets
        ]
        return _sum(each).times(1.0 / len(buckets))

    # ------------------------------------------------------------------ the confirm stage

    def _confirm(self, ledger: Ledger, buckets: Sequence[Bucket]) -> Work:
        """Return what confirming takes from here: what runs, then what later phases may."""
        phase, work, usual = ledger.state.phase, Work(), _usual_block(buckets)
        longest = max(buckets, key=lambda bucket: bucket.schedule.env_steps, default=None)
        if longest is None:
            return Work(env_steps=self._reserved(ledger, buckets) / self._study.spread)
        for bucket in buckets:
            runs = [
                run
                for trial in ledger.state.live.values()
                if trial.bucket == bucket.key
                for run in trial.runs
                if run.is_live and run.stream is not Stream.SEARCH
            ]
            work += _confirming(bucket, runs, usual)
        whole, stage = longest.warmup + longest.schedule.length, self._study.confirm
        if stage is None or phase is Phase.ALSO:
            return work
        report = 0 if phase is Phase.REPORT else stage.reports(len(self._study.objectives))
        if phase is Phase.SEARCH:
            choose = reserve(self._study, Phase.SEARCH, 1) // self._study.spread - report
            work += _side_by_side(longest, [whole] * choose, usual)
        return work + _side_by_side(longest, [whole] * (report + stage.asked), usual)

    def _reserved(self, ledger: Ledger, buckets: Sequence[Bucket]) -> int:
        steps = max((b.schedule.env_steps for b in buckets), default=self._study.env_steps)
        return reserve(self._study, ledger.state.phase, steps)

    def _uncompiled(self, ledger: Ledger, buckets: Sequence[Bucket]) -> float:
        """Return the programs that are still to be compiled, those to come by how many came.

        The share of trials that stand alone in their bucket is the chance that the next one needs
        a bucket of its own (Good 1953).
        """
        there = sum(
            bool(bucket.work) and (bucket.population is None or not bucket.population.compiles)
            for bucket in buckets
        )
        if ledger.state.phase is not Phase.SEARCH or self._expected.trials is None:
            return float(there)
        counts = Counter(trial.bucket for trial in ledger.trials.values())
        alone = sum(count == 1 for count in counts.values())
        share = alone / len(ledger.trials) if len(counts) > 1 else 0.0
        return there + share * max(0, self._expected.trials - ledger.state.proposed)


# ---------------------------------------------------------------------- trials and rungs


def _prior(expected: Expected, quanta: Quanta) -> tuple[float, ...]:
    """Return the share of trials that the rule is expected to let pass each rung."""
    if expected.trials is None:
        return (1.0,) * len(quanta.rungs)
    counts = [expected.trials, *expected.passing]
    pairs = itertools.pairwise(counts)
    return tuple(after / before if before else 1.0 for before, after in pairs)


def chances_to_pass(trials: Iterable[Trial], prior: Sequence[float]) -> tuple[float, ...]:
    """Return the share of trials that will pass each rung: the prior, and what was seen.

    The prior counts as a dozen trials. A trial that ended with what it showed at a rung did not
    pass it, whether it was stopped there or was through (`plateau`).
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


def _further_seeds(ledger: Ledger, chances: Sequence[float], to_come: int, lanes: int) -> float:
    """Return the seeds that trials will take beside those that they have, where seeds race.

    A trial at its end is looked at, and gets as many seeds again: those that filled the lanes
    first for sure, because there is no best one to lose against; others with a chance that is a
    third first, and moves to what was seen.
    """
    seeds, looks, passed = ledger.study.seeds, 0, 0
    firsts = lanes // seeds.first
    for trial in ledger.trials.values():
        if trial.number < firsts:
            continue
        if trial.state is TrialState.FINISHED and len(trial.seed_values) < seeds.per_config:
            looks += 1
        taken = len(trial.runs) if trial.is_live else len(trial.seed_values)
        size = seeds.first
        while size < taken:
            size, looks, passed = 2 * size, looks + 1, passed + 1
    chance = (_PRIOR_LOOKS * _PRIOR_CHANCE + passed) / (_PRIOR_LOOKS + looks)
    live = sum(
        _further(len(trial.runs), seeds.per_config, 1.0 if trial.number < firsts else chance)
        * math.prod(chances[len(trial.reports) :])
        for trial in ledger.live()
        if trial.runs
    )
    return live + to_come * math.prod(chances) * _further(seeds.first, seeds.per_config, chance)


def _further(taken: int, most: int, chance: float) -> float:
    """Return the seeds that a trial is expected to take beside those it has.

    >>> _further(2, 8, 0.5)
    2.0
    """
    found, there = 0.0, 1.0
    while 0 < taken < most:
        there *= chance
        found += there * (min(2 * taken, most) - taken)
        taken = min(2 * taken, most)
    return found


@lru_cache(maxsize=4096)
def from_here(
    schedule: Schedule, chances: tuple[float, ...], trained: int, trials: int = 1
) -> tuple[float, float]:
    """Return the chunks and the evaluations that a replicate is expected to run yet.

    Args:
        schedule: of its bucket.
        chances: to pass each rung.
        trained: chunks so far.
        trials: that stand there; with several, how long the last of them runs.

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


# ---------------------------------------------------------------------- lanes and blocks


def groups_of(lanes: Iterable[int], block: int) -> int:
    """Return how many blocks have a busy lane.

    >>> groups_of([0, 3, 9], 4)
    2
    """
    return len({lane // max(1, block) for lane in lanes})


def _usual_block(buckets: Sequence[Bucket]) -> int:
    """Return the lanes of a block of the first bucket that has lanes, for those that have none."""
    return next((b.population.block for b in buckets if b.population is not None), 1)


def _block(bucket: Bucket, usual: int) -> int:
    return bucket.population.block if bucket.population is not None else usual


def _work(bucket: Bucket, usual: int, chunks: float, evaluations: float, warmup: int = 0) -> Work:
    """Return the work of one replicate whose block is full."""
    quantum = bucket.schedule.quantum
    steps = (chunks + warmup) * quantum / _block(bucket, usual)
    return Work(chunks * quantum, steps, evaluations)


def _of_runs(
    bucket: Bucket, runs: Sequence[Run], chances: tuple[float, ...], refilled: bool, usual: int
) -> Work:
    """Return the work of the replicates of the search in one bucket.

    A block is at work until the last of its lanes rests. Where lanes are refilled that costs once,
    when there is nothing left to refill them with.
    """
    schedule, block = bucket.schedule, _block(bucket, usual)
    work = _sum(
        _work(
            bucket,
            usual,
            *from_here(schedule, chances, bucket.trained(run)),
            max(0, bucket.warmup - run.chunks),
        )
        for run in runs
    )
    groups: dict[int, list[Run]] = {}
    for run in runs:
        if run.lane is not None:
            groups.setdefault(run.lane // block, []).append(run)
    beyond = 0.0
    for members in groups.values():
        youngest = 0 if refilled else min(bucket.trained(run) for run in members)
        last, _ = from_here(schedule, chances, youngest, len({run.trial for run in members}))
        if refilled:
            beyond += last - from_here(schedule, chances, 0)[0]
        else:
            own = sum(from_here(schedule, chances, bucket.trained(run))[0] for run in members)
            beyond += max(0.0, last - own / block)
    return work + Work(block_steps=beyond * schedule.quantum)


def _confirming(bucket: Bucket, runs: Sequence[Run], usual: int) -> Work:
    """Return the work of replicates that go to their end: those in lanes, behind them the others.

    A block is at work until the last of its lanes rests.
    """
    whole = bucket.warmup + bucket.schedule.length
    groups: dict[int, list[int]] = {}
    for run in runs:
        if run.lane is not None:
            groups.setdefault(run.lane // _block(bucket, usual), []).append(whole - run.chunks)
    quantum = bucket.schedule.quantum
    there = [min(n, bucket.schedule.length) for members in groups.values() for n in members]
    blocks = sum(map(max, groups.values()))
    waiting = [whole - run.chunks for run in runs if run.lane is None]
    running = Work(float(sum(there) * quantum), float(blocks * quantum), float(len(there)))
    return running + _side_by_side(bucket, waiting, usual)


def _side_by_side(bucket: Bucket, left: Sequence[int], usual: int) -> Work:
    """Return the work of replicates that run to their end, each evaluated there.

    Args:
        bucket: whose lanes they fill, as many at a time as there are.
        left: chunks of each.
        usual: lanes of a block where the bucket has none yet.
    """
    if not left:
        return Work()
    lanes, block = bucket.lanes or len(left), _block(bucket, usual)
    ordered = sorted(left, reverse=True)
    waves = [ordered[first : first + lanes] for first in range(0, len(ordered), lanes)]
    blocks = sum(wave[0] * math.ceil(len(wave) / block) for wave in waves)
    quantum = bucket.schedule.quantum
    trained = sum(min(chunks, bucket.schedule.length) for chunks in left)
    return Work(float(trained * quantum), float(blocks * quantum), float(len(left)))


def _sum(works: Iterable[Work]) -> Work:
    return sum(works, Work())


_HALF_LIFE = 60.0  # seconds after which what was seen counts half, at least
_OF_LIFE = 0.25  # likewise, as a share of the seconds seen so far


@dataclass
class Rates:
    """What was seen in this life, older things with less weight.

    Attributes:
        seen: seconds of this life, without compiles.
        train_seconds, block_steps, env_steps: of chunks.
        evaluate_seconds, evaluations: of evaluations, one a replicate.
        other_seconds: between chunks and evaluations, without compiles.
        compile_seconds, compiled: of this life, all with the same weight; buckets.
    """

    seen: float = 0.0
    train_seconds: float = 0.0
    block_steps: float = 0.0
    env_steps: float = 0.0
    evaluate_seconds: float = 0.0
    evaluations: float = 0.0
    other_seconds: float = 0.0
    compile_seconds: float = 0.0
    compiled: int = 0
    _before: Usage | None = None
    _work: Work = field(default_factory=Work)

    def begin(self, usage: Usage) -> None:
        """Count from here; what is counted already belongs to lives before."""
        self._before = replace(usage)

    def did(self, work: Work) -> None:
        """Count work that a step did; its time comes with `pass_boundary`."""
        self._work += work

    def pass_boundary(self, usage: Usage, compiled: int) -> None:
        """Take in what the time since the last boundary went into.

        Args:
            usage: of the study, this boundary's time counted.
            compiled: buckets whose program this life has compiled so far.
        """
        before, self._before = self._before or Usage(), replace(usage)
        trained = usage.env_steps - before.env_steps
        new = {
            part: seconds - before.seconds_by_part[part]
            for part, seconds in usage.seconds_by_part.items()
        }
        self.compile_seconds += new["compile"]
        self.compiled = compiled
        took = sum(new.values()) - new["compile"]
        self.seen += took
        fade = 0.5 ** (took / max(_HALF_LIFE, _OF_LIFE * self.seen))
        self.train_seconds = fade * self.train_seconds + new["train"]
        self.evaluate_seconds = fade * self.evaluate_seconds + new["evaluate"]
        other = took - new["train"] - new["evaluate"]
        self.other_seconds = fade * self.other_seconds + max(0.0, other)
        self.block_steps = fade * self.block_steps + self._work.block_steps
        self.env_steps = fade * self.env_steps + trained
        self.evaluations = fade * self.evaluations + self._work.evaluations
        self._work = Work()

    @property
    def env_steps_per_second(self) -> float:
        """Training env steps a second of work, compiles apart; 0 before the first chunk."""
        seconds = self.train_seconds + self.evaluate_seconds + self.other_seconds
        return self.env_steps / seconds if seconds > 0.0 else 0.0

    def seconds_of(self, ahead: Ahead) -> float | None:
        """Return the seconds that some work takes; None before a chunk was seen."""
        if self.block_steps <= 0.0 or self.train_seconds <= 0.0:
            return None
        work = ahead.work
        chunks = work.block_steps * self.train_seconds / self.block_steps
        if self.evaluations:
            each = self.evaluate_seconds / self.evaluations
            chunks += work.evaluations * each
        working = self.train_seconds + self.evaluate_seconds
        between = 1.0 + self.other_seconds / working
        compiling = ahead.buckets * self.compile_seconds / max(1, self.compiled)
        return chunks * between + compiling
