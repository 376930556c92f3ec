"""The expected number of trials that pass each rung, simulated with ranks before a study runs.

Trial values are not known in advance, but the rules use only their ranks. Therefore, trials with
random losses are simulated. As in the search, the same number of trials run in parallel, and
trials that reach a rung together are compared jointly. In a real search with a model, later
proposals are better and pass more often.
"""

from __future__ import annotations

import bisect
import heapq
import math
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from statistics import fmean

_MOST_TRIALS = 2_000  # number simulated; for more trials, the shares are the same
_MOST_REPEATS, _TRIALS_IN_ALL = 24, 2_000
_MEDIAN_FROM = 5
# Losses of random draws are uniform in [0, 1); those of better guesses are such numbers raised to
# this power. Fitted to 216 searches on a formula and 11 on CartPole: expected over actual cost is
# 1.04 and 0.96 on average.
_LEARNT, _GUESSED = 2.0, 2.0

Order = tuple[float, int]
"""The loss and the number of a trial, in the form that rules compare."""


@dataclass(frozen=True)
class Race:
    """The inputs to a study's forecast."""

    trials: int
    at_once: int  # number of trials in lanes
    marks: tuple[int, ...]  # chunks until each rung, and until the end
    kind: str  # "halving", "brackets" or "half", see `StoppingRule`
    eta: float
    pause: int = 0  # number of trials kept paused, 0: none
    audit: float = 0.0  # share of trials that run to their end although they should stop
    guesses: int = 1  # first trials that are not random draws: the default, and enqueued ones
    # number of results after which proposals are learnt; None: never
    learns_from: int | None = None
    random_share: float = 0.0  # share of random proposals after that
    keeps_first: bool = False  # whether no rule stops trial 0

    @property
    def rungs(self) -> int:
        return len(self.marks) - 1


@lru_cache(maxsize=256)
def trials_past(race: Race) -> tuple[float, ...]:
    """Return the expected number of trials that train beyond each rung.

    >>> [round(past) for past in trials_past(Race(64, 64, (2, 8, 16), "halving", 4.0))]
    [16, 4]
    """
    if race.trials > _MOST_TRIALS:
        share = race.trials / _MOST_TRIALS
        return tuple(share * past for past in trials_past(_shrink_race(race)))
    repeats = max(1, min(_MOST_REPEATS, _TRIALS_IN_ALL // max(1, race.trials)))
    found = [_Simulation(race, random.Random(seed)).run() for seed in range(repeats)]
    return tuple(fmean(column) for column in zip(*found, strict=True))


def _shrink_race(race: Race) -> Race:
    at_once = max(1, race.at_once * _MOST_TRIALS // race.trials)
    return replace(race, trials=_MOST_TRIALS, at_once=at_once)


@dataclass
class _RungQueue:
    """The trials that are compared at a rung, by bracket, best first."""

    eta: float
    orders: dict[int, list[Order]] = field(default_factory=dict[int, list[Order]])
    paused: list[Order] = field(default_factory=list[Order])  # best first

    def add(self, one: Order, bracket: int) -> None:
        bisect.insort(self.orders.setdefault(bracket, []), one)

    def last(self, bracket: int, kind: str, pauses: bool) -> Order | None:
        """Return the worst trial that passes; None if all pass."""
        order = self.orders[bracket]
        if kind == "half":
            if len(order) < _MEDIAN_FROM:
                return None
            return order[(len(order) - 1) // 2]
        if pauses:
            count = math.floor(len(order) / self.eta)
            if count == 0:
                return (-math.inf, -1)
            return order[count - 1]
        if len(order) < self.eta:
            return None
        return order[math.ceil(len(order) / self.eta) - 1]

    def share(self, one: Order) -> float:
        """Return the fraction of the rung's trials that are better."""
        order = self.orders[0]
        return bisect.bisect_left(order, one) / len(order)


class _Simulation:
    def __init__(self, race: Race, rng: random.Random):
        self._race, self._rng = race, rng
        self._rungs = [_RungQueue(race.eta) for _ in range(race.rungs)]
        self._losses: list[float] = []
        self._brackets: list[int] = []
        self._past = [0] * race.rungs
        self._ahead: deque[tuple[int, int]] = deque()  # trials, with the next mark of each
        self._running: list[tuple[int, int, int]] = []  # chunk of arrival, trial, mark
        self._now = self._results = 0
        self._finished = False

    def run(self) -> Sequence[int]:
        while self._fill_lanes() or self._resume_best():
            if self._running:
                self._now = self._running[0][0]
            arrived = list[tuple[int, int]]()
            while self._running and self._running[0][0] == self._now:
                _, trial, mark = heapq.heappop(self._running)
                arrived.append((mark, trial))
            self._finished |= any(mark == self._race.rungs for mark, _ in arrived)
            for rung in sorted({mark for mark, _ in arrived if mark < self._race.rungs}):
                self._judge_trials(rung, sorted(trial for mark, trial in arrived if mark == rung))
            self._let_go()
        return self._past

    def _fill_lanes(self) -> bool:
        """Put trials into free lanes; return whether any lane is busy."""
        while len(self._running) < self._race.at_once:
            if self._ahead:
                trial, mark = self._ahead.popleft()
            elif len(self._losses) < self._race.trials:
                trial, mark = self._propose_trial(), 0
            else:
                break
            self._start_training(trial, mark)
        return bool(self._running)

    def _start_training(self, trial: int, mark: int) -> None:
        marks = (0, *self._race.marks)
        end = self._now + marks[mark + 1] - marks[mark]
        heapq.heappush(self._running, (end, trial, mark))

    def _has_model(self) -> bool:
        enough = self._race.learns_from
        return enough is not None and self._results >= enough

    def _propose_trial(self) -> int:
        race, trial = self._race, len(self._losses)
        power = 1.0
        if trial < race.guesses:
            power = _GUESSED
        elif self._has_model() and self._rng.random() >= race.random_share:
            power = _LEARNT
        self._losses.append(self._rng.random() ** power)
        self._brackets.append(self._draw_bracket())
        return trial

    def _draw_bracket(self) -> int:
        race = self._race
        if race.kind != "brackets":
            return 0
        weights = [race.eta**s / (s + 1) for s in range(race.rungs, -1, -1)]
        return self._rng.choices(range(race.rungs + 1), weights)[0]

    def _judge_trials(self, rung: int, trials: Sequence[int]) -> None:
        here, race = self._rungs[rung], self._race
        for trial in trials:
            here.add((self._losses[trial], trial), self._brackets[trial])
        if rung == 0:
            self._results += len(trials)
        for trial in trials:
            if self._passes_rung(trial, rung):
                self._go_on(trial, rung, soon=True)
            elif race.pause:
                bisect.insort(here.paused, (self._losses[trial], trial))
            elif race.audit and self._rng.random() < race.audit:
                self._continue_for_audit(trial, rung)
        if race.pause:
            last = here.last(0, race.kind, pauses=True)
            while here.paused and last is not None and here.paused[0] <= last:
                self._go_on(here.paused.pop(0)[1], rung)

    def _passes_rung(self, trial: int, rung: int) -> bool:
        race, bracket = self._race, self._brackets[trial]
        if bracket > rung or (trial == 0 and race.keeps_first):
            return True
        last = self._rungs[rung].last(bracket, race.kind, pauses=race.pause > 0)
        return last is None or (self._losses[trial], trial) <= last

    def _go_on(self, trial: int, rung: int, soon: bool = False) -> None:
        """Let a trial train beyond a rung: at once in its lane, or once a lane is free."""
        self._past[rung] += 1
        if soon:
            self._start_training(trial, rung + 1)
        else:
            self._ahead.append((trial, rung + 1))

    def _continue_for_audit(self, trial: int, rung: int) -> None:
        marks = self._race.marks
        for later in range(rung, self._race.rungs):
            self._past[later] += 1
        arrives = self._now + marks[-1] - marks[rung]
        heapq.heappush(self._running, (arrives, trial, self._race.rungs))

    def _let_go(self) -> None:
        """Stop paused trials in excess of the limit, those furthest from the cutoff first."""
        surplus = sum(len(rung.paused) for rung in self._rungs) - self._race.pause
        for _ in range(surplus):
            worst = [
                (rung.share(rung.paused[-1]), -at)
                for at, rung in enumerate(self._rungs)
                if rung.paused
            ]
            _, at = max(worst)
            self._rungs[-at].paused.pop()

    def _resume_best(self) -> bool:
        """Resume the best paused trial if no trial has finished and nothing else can run."""
        waiting = [at for at, rung in enumerate(self._rungs) if rung.paused]
        if self._finished or not waiting:
            return False
        _, trial = self._rungs[waiting[-1]].paused.pop(0)
        self._go_on(trial, waiting[-1])
        return self._fill_lanes()
