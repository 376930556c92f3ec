"""How much of a result was luck: the same rule over trials resampled from the record.

A resample draws as many trials as there were, with replacement, in a random order (Efron 1979),
and extrapolates unfinished ones again. Its search is a sketch of the engine's: one program, trials
enter lanes in order, all seeds of a trial side by side. The rule is the real one.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...studies.spec import Study
from ..engine.finish_trials import clearly_worse
from ..rules.registry import Pruner, Standing, is_audited, make_pruner
from ..seeds import generator
from ..state.objective import Objective
from ..state.schedule import stages


@dataclass(frozen=True)
class Curve:
    """One trial as a rule sees it."""

    losses: tuple[float, ...]  # at each rung
    seeds: tuple[float, ...]  # loss of each seed at the end
    compared: float  # their loss together, by which trials are compared
    final: float  # loss at the end over all recorded seeds
    # the same at each rung, for rules that end a trial with its value there
    at: tuple[float, ...] = ()
    # rungs that it passes before it diverges or fails; None: it does not
    lost_at: int | None = None
    # its env steps by then; None: those of the next rung, or of its end
    lost_after: int | None = None

    def passes(self, rung: int) -> bool:
        """Return whether it comes to a rung (after the last: its end) before it is lost."""
        return self.lost_at is None or rung < self.lost_at


@dataclass(frozen=True)
class Luck:
    low: float  # 95 % of the values lost lie between
    high: float
    kept: float  # the share of resamples whose best trial won
    resamples: int  # how many there were


def luck(
    study: Study,
    curves: Callable[[int], Sequence[Curve]],
    rungs: Sequence[int],
    length: int,
    lanes: int,
    resamples: int,
) -> Luck | None:
    """Return what the rule of a study costs over resamples of its trials; None without any."""
    lost, kept = list[float](), 0
    for number in range(resamples):
        trials, rng = curves(number), generator(study.seed, "resample", number)
        drawn = [trials[int(index)] for index in rng.integers(len(trials), size=len(trials))]
        best = min((c.final for c in drawn if c.lost_at is None), default=math.inf)
        (found,) = winners_of(study, drawn, rungs, length, lanes, [math.inf])
        if not math.isfinite(best) or found is None:
            continue
        lost.append(found - best)
        kept += found <= best
    if not lost:
        return None
    low, high = np.quantile(np.asarray(lost), [0.025, 0.975])
    return Luck(float(low), float(high), kept / len(lost), len(lost))


def winners_of(
    study: Study,
    trials: Sequence[Curve],
    rungs: Sequence[int],
    length: int,
    lanes: int,
    budgets: Sequence[float],
) -> list[float | None]:
    """Return the loss over all recorded seeds of a sketched search's winner, for each budget."""
    if study.seeds.racing is not None and min(budgets) < math.inf:
        raise ValueError("what seeds that race have when a budget ends is not sketched")
    slots = max(1, lanes // study.seeds.first)
    finished = _search(study, trials, rungs, length, slots, max(budgets))
    found = list[float | None]()
    for budget in budgets:
        # A search with less to spend does the same until it ends.
        best = min((one for one in finished if one.spent <= budget), default=None)
        found.append(None if best is None else best.final)
    return found


class _Finished(NamedTuple):
    loss: float  # that it is compared by
    trial: int
    final: float  # loss over all recorded seeds
    spent: int  # env steps of the search by then


def _search(
    study: Study,
    trials: Sequence[Curve],
    rungs: Sequence[int],
    length: int,
    slots: int,
    budget: float,
) -> list[_Finished]:
    pruner, early = make_pruner(study), study.early_terminate
    race = _Race(study)
    ahead = iter(range(len(trials)))
    # What happens next: (env steps since the beginning, rung, trial); the end is behind all rungs.
    coming: list[tuple[int, int, int]] = []
    judged: dict[int, list[Standing]] = {}
    audited: set[int] = set()
    finished: list[_Finished] = []
    clock, spent = 0, 0

    def run(now: int, rung: int, number: int) -> None:
        """Let a trial that has passed some rungs run to the next, its end, or where it is lost."""
        since = rungs[rung - 1] if rung else 0
        until = rungs[rung] if rung < len(rungs) else length
        lost = trials[number].lost_after
        until = until if lost is None or trials[number].passes(rung) else max(since, lost)
        heapq.heappush(coming, (now + until - since, rung, number))

    def enter(now: int) -> None:
        number = next(ahead, None)
        if number is not None:
            run(now, 0, number)

    for _ in range(min(slots, len(trials))):
        enter(0)
    while coming:
        spent += (coming[0][0] - clock) * len(coming) * study.seeds.first
        clock = coming[0][0]
        if spent > budget:
            break
        now, rung, first = heapq.heappop(coming)
        arriving = [first]
        while coming and coming[0][:2] == (now, rung):
            arriving.append(heapq.heappop(coming)[2])
        sound = [n for n in arriving if trials[n].passes(rung)]
        ended = set(arriving) - set(sound)
        if rung == len(rungs):
            for number in sound:
                curve = trials[number]
                finished.append(_Finished(race.value(curve), number, curve.final, spent))
                ended.add(number)
        elif pruner is not None:
            due = [number for number in sound if number not in audited]
            for number, how in _judged(pruner, judged, trials, rung, due).items():
                if early is not None and is_audited(study.seed, number, early.audit):
                    audited.add(number)
                    continue
                ended.add(number)
                if how:
                    curve = trials[number]
                    finished.append(_Finished(curve.losses[rung], number, curve.at[rung], spent))
        for number in arriving:
            if number in ended:
                enter(now)
            else:
                run(now, rung + 1, number)
    return finished


def _judged(
    pruner: Pruner,
    judged: dict[int, list[Standing]],
    trials: Sequence[Curve],
    rung: int,
    due: Sequence[int],
) -> Mapping[int, bool]:
    """Return the trials that stop at a rung, each with whether it ends with its value."""
    if not due:
        return {}
    before = judged.setdefault(rung, [])
    arriving = [Standing(n, trials[n].losses[rung], trials[n].losses[: rung + 1]) for n in due]
    verdicts = pruner.judge(rung, tuple(before), arriving)
    before += arriving
    return {n: verdict.finish for n, verdict in zip(due, verdicts, strict=True) if verdict.stop}


class _Race:
    """Seeds that race: what a trial is compared by, as `engine.racing` has it."""

    def __init__(self, study: Study):
        self._objective, self._seeds = Objective.of(study), study.seeds
        self._best: Curve | None = None

    def value(self, trial: Curve) -> float:
        """Return the loss that a trial is compared by, after as many seeds as it gets."""
        if self._seeds.racing is None:
            return trial.compared
        taken = self._taken(trial)
        own = self._loss(trial.seeds[:taken])
        if taken == len(trial.seeds):
            if self._best is None or own < self._loss(self._best.seeds):
                self._best = trial
        elif self._best is not None:
            own += self._loss(self._best.seeds) - self._loss(self._best.seeds[:taken])
        return own

    def _taken(self, trial: Curve) -> int:
        racing, most = self._seeds.racing, len(trial.seeds)
        if racing is None or self._best is None:
            return most
        sizes = stages(racing.start, most)
        for size in sizes[:-1]:
            risk = (1.0 - racing.confidence) / (len(sizes) - 1)
            if clearly_worse(trial.seeds[:size], self._best.seeds[:size], risk):
                return size
        return most

    def _loss(self, losses: Sequence[float]) -> float:
        values = [self._objective.loss(loss) for loss in losses]
        return self._objective.loss(self._objective.aggregate(values))
