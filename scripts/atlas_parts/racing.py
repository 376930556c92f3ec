"""A search with racing over recorded runs: which trial wins when its env steps are used up.

This follows `hpo.search.engine.finish_trials`, lane by lane, without a rule that stops runs: a
trial starts with some seeds, and gets more unless it is clearly worse than the best of those with
all seeds. Its seeds wait for lanes before those of later trials.

It differs from the engine in two points. The engine gives the rest of a budget, which is less than
a chunk of all lanes, to the first lanes, whose runs may finish with it. And it starts only trials
that can finish.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass

import numpy as np

from hpo.search.engine.finish_trials import clearly_worse
from hpo.search.state.schedule import stages
from hpo.studies.search_spec import Seeds

__all__ = ["Runs", "winner_of_race"]


@dataclass(frozen=True)
class Runs:
    """Trials in the order in which they are requested.

    Attributes:
        losses: at the end of each seed's run, [trials, seeds].
        ends: env steps after which a seed leaves its lane, [trials, seeds].
        whole: whether that is the end of its run, rather than divergence, [trials, seeds].
    """

    losses: np.ndarray
    ends: np.ndarray
    whole: np.ndarray


def winner_of_race(runs: Runs, seeds: Seeds, lanes: int, budget: float) -> int | None:
    """Return the trial that wins; None if none finished.

    Args:
        runs: with as many seeds as a trial may have.
        seeds: the seed settings, with racing; no seed may diverge.
        lanes: number that run side by side.
        budget: training env steps; when they are used up, trials have the seeds that ended.
    """
    race = _Race(runs.losses, seeds)
    waiting: list[tuple[int, int]] = []  # trial and seed; both lists are heaps
    running: list[tuple[float, int, int]] = []  # time at which it ends, trial, seed
    begun, ended, lost = dict[int, int](), dict[int, int](), set[int]()
    asked, clock, spent = 0, 0.0, 0.0
    while True:
        while len(running) < lanes:
            if not waiting:
                free = math.ceil((lanes - len(running)) / seeds.first)
                new = range(asked, min(asked + free, len(runs.losses)))
                asked = new.stop
                for trial in new:
                    begun[trial], ended[trial] = seeds.first, 0
                    waiting += [(trial, seed) for seed in range(seeds.first)]
                if not new:
                    break
                heapq.heapify(waiting)
            trial, seed = heapq.heappop(waiting)
            heapq.heappush(running, (clock + runs.ends[trial, seed], trial, seed))
        if not running:
            break
        spent += (running[0][0] - clock) * len(running)
        if spent > budget:
            break
        clock, touched = running[0][0], set[int]()
        while running and running[0][0] == clock:
            _, trial, seed = heapq.heappop(running)
            touched.add(trial)
            ended[trial] += 1
            if not runs.whole[trial, seed]:
                lost.add(trial)
        for trial in sorted(touched):
            if trial in lost:
                waiting = [one for one in waiting if one[0] != trial]
                running = [one for one in running if one[1] != trial]
                del begun[trial]
            elif ended[trial] == begun[trial]:
                wanted = race.wanted(trial, ended[trial])
                waiting += [(trial, seed) for seed in range(ended[trial], wanted)]
                begun[trial] = wanted
                if wanted == ended[trial]:
                    race.settle(trial, ended[trial])
                    del begun[trial]
        heapq.heapify(waiting)
        heapq.heapify(running)
    for trial in sorted(begun):
        if ended[trial] >= seeds.first:
            race.settle(trial, ended[trial])
    return race.winner


class _Race:
    """The values of trials, and whether they get more seeds."""

    def __init__(self, losses: np.ndarray, seeds: Seeds):
        if seeds.racing is None:
            raise ValueError("these seeds do not race")
        self._losses, self._most = losses, seeds.per_config
        self._stages = stages(seeds.first, seeds.per_config)
        self._risk = (1.0 - seeds.racing.confidence) / max(1, len(self._stages) - 1)
        self._best: tuple[float, int] | None = None  # of the trials with all seeds
        self._settled: list[tuple[float, int]] = []

    def wanted(self, trial: int, ended: int) -> int:
        """Return the total number of seeds a trial should have, given those that ended."""
        if ended == self._most:
            return ended
        if self._best is not None:
            best = self._losses[self._best[1], :ended].tolist()
            if clearly_worse(self._losses[trial, :ended].tolist(), best, self._risk):
                return ended
        return next(size for size in self._stages if size > ended)

    def settle(self, trial: int, ended: int) -> None:
        """End a trial with its value: on fewer seeds, the best one's plus their difference."""
        loss = float(self._losses[trial, :ended].mean())
        if ended < self._most and self._best is not None:
            best = self._losses[self._best[1]]
            loss += float(best.mean() - best[:ended].mean())
        elif ended == self._most:
            self._best = min(self._best or (math.inf, trial), (loss, trial))
        self._settled.append((loss, trial))

    @property
    def winner(self) -> int | None:
        """The best of the trials that have ended, the first one among equals."""
        return min(self._settled)[1] if self._settled else None
