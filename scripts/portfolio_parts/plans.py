"""Plans of a search replayed over tables: the configuration that each chooses, and its cost.

A plan receives the order of its proposals and a permutation of the recorded seeds: the first seed
is for the search, and the next ones select. The last JUDGES seeds only judge.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from .learn import DEFAULT, shares_beaten
from .sources import Source

JUDGES = 3
SELECTION = 3
AHEAD = 1.0
"""Standard errors by which a winner must lead on the selection seeds to replace the default."""


@dataclass(frozen=True, eq=False)
class Replay:
    """One search on one table."""

    source: Source
    order: np.ndarray  # permutation of the seeds
    random: np.ndarray  # rows in random order, the default first
    learnt: Sequence[int]  # rows of the portfolio, the default first

    @property
    def judges(self) -> np.ndarray:
        return self.order[-JUDGES:]

    @property
    def selection(self) -> np.ndarray:
        return self.order[1 : 1 + SELECTION]

    def best_of(self, rows: np.ndarray) -> int:
        """Return the best row on the search seed."""
        return int(rows[self.source.chooses[rows, self.order[0]].argmax()])

    def selected_of(self, rows: np.ndarray, most: int) -> int:
        """Return the best row on the selection seeds, among the `most` best rows of the search."""
        shown = self.source.chooses[rows, self.order[0]]
        first = rows[np.argsort(-shown, kind="stable")[:most]]
        means = self.source.chooses[np.ix_(first, self.selection)].mean(axis=1)
        return int(first[means.argmax()])

    def protected(self, row: int) -> int:
        """Return the row if it leads the default by AHEAD standard errors, else the default."""
        return self._ahead(row, self.source.chooses, self.selection)

    def tested(self, row: int, seeds: int) -> int:
        """Return the row if it leads the default by AHEAD standard errors on test seeds."""
        return self._ahead(row, self.source.values, self.order[1 : 1 + seeds])

    def _ahead(self, row: int, values: np.ndarray, seeds: np.ndarray) -> int:
        if row == DEFAULT:
            return DEFAULT
        lead = values[row, seeds] - values[DEFAULT, seeds]
        error = lead.std(ddof=1) / np.sqrt(len(lead))
        return row if lead.mean() > AHEAD * error else DEFAULT


Plan = Callable[[Replay], tuple[int, int]]
"""Returns the chosen row and its cost in full runs of one seed."""


def default_alone(replay: Replay) -> tuple[int, int]:
    return DEFAULT, 0


def learnt(count: int) -> Plan:
    def plan(replay: Replay) -> tuple[int, int]:
        return replay.best_of(np.array(replay.learnt[:count])), count

    return plan


def learnt_and_protected(count: int) -> Plan:
    def plan(replay: Replay) -> tuple[int, int]:
        row = replay.best_of(np.array(replay.learnt[:count]))
        return replay.protected(row), count + 2 * SELECTION

    return plan


def short_study(places: int, seeds: int) -> Plan:
    """Try the default and `places` learnt ones, then test the best against the default."""

    def plan(replay: Replay) -> tuple[int, int]:
        row = replay.best_of(np.array(replay.learnt[: 1 + places]))
        return replay.tested(row, seeds), 1 + places + 2 * seeds

    return plan


def grown_study(trials: int, seeds: int) -> Plan:
    """A short study with more trials: the default, three learnt ones, then random ones."""

    def plan(replay: Replay) -> tuple[int, int]:
        row = replay.best_of(grown_rows(replay, trials))
        return replay.tested(row, seeds), trials + 2 * seeds

    return plan


def grown_and_selected(trials: int, most: int = 3) -> Plan:
    """The same with selection; the selected one must lead the default on the selection seeds."""

    def plan(replay: Replay) -> tuple[int, int]:
        row = replay.selected_of(grown_rows(replay, trials), most)
        return replay.protected(row), trials + (most + 1) * SELECTION

    return plan


def grown_rows(replay: Replay, trials: int) -> np.ndarray:
    """Return the default, three learnt configurations, and random ones up to `trials`."""
    begun = list(replay.learnt[:4])
    later = [int(row) for row in replay.random if row not in begun]
    return np.array([*begun, *later[: trials - len(begun)]])


def random_and_selected(count: int, most: int = 3) -> Plan:
    """Random search without early stopping; the best 3 run on 3 selection seeds each."""

    def plan(replay: Replay) -> tuple[int, int]:
        row = replay.selected_of(replay.random[:count], most)
        return row, count + most * SELECTION

    return plan


def random_and_protected(count: int) -> Plan:
    def plan(replay: Replay) -> tuple[int, int]:
        row = replay.best_of(replay.random[:count])
        return replay.protected(row), count + 2 * SELECTION

    return plan


PLANS: dict[str, Plan] = {
    "default": default_alone,
    "random 12, best": lambda replay: (replay.best_of(replay.random[:12]), 12),
    "random 3, selection": random_and_selected(3),
    "random 6, protected": random_and_protected(6),
    "random 11, selection": random_and_selected(11),
    "random 24, selection": random_and_selected(24),
    "random 24, protected": random_and_protected(24),
    "random 48, selection": random_and_selected(48),
    "portfolio 2": learnt(2),
    "portfolio 4": learnt(4),
    "portfolio 6": learnt(6),
    "portfolio 8": learnt(8),
    "portfolio 6, protected": learnt_and_protected(6),
    "portfolio 8, protected": learnt_and_protected(8),
    "short study of 12": short_study(3, 4),
    "short study of 14": short_study(5, 4),
    "12 trials, one seed": grown_study(12, 4),
    "24 trials, one seed": grown_study(24, 4),
    "48 trials, one seed": grown_study(48, 4),
    "12 trials, selection": grown_and_selected(12),
    "24 trials, selection": grown_and_selected(24),
    "48 trials, selection": grown_and_selected(48),
}


@dataclass(frozen=True)
class Judged:
    """The results of one plan on one table, as means over replays."""

    runs: float
    share: float  # share of configurations beaten on the judging seeds
    score: float  # 0 for the median configuration, 1 for the best one; NaN at a ceiling
    over_default: float  # mean value minus that of the default, as a share of best minus median


def judge(
    source: Source, rows: Sequence[int], plans: dict[str, Plan], replays: int, seed: int
) -> dict[str, Judged]:
    """Replay every plan on one table.

    The best configuration of a replay is chosen by all seeds except those that judge.
    """
    draw = np.random.Generator(np.random.PCG64(seed))
    configurations, seeds = source.values.shape
    shares: dict[str, list[float]] = {name: [] for name in plans}
    values: dict[str, list[float]] = {name: [] for name in plans}
    runs: dict[str, list[int]] = {name: [] for name in plans}
    medians = list[float]()
    bests = list[float]()
    defaults = list[float]()
    for _ in range(replays):
        order = draw.permutation(seeds)
        drawn = 1 + draw.permutation(configurations - 1)
        replay = Replay(source, order, np.concatenate([[DEFAULT], drawn]), rows)
        means = source.values[:, replay.judges].mean(axis=1)
        beaten = shares_beaten(means)
        others = source.values[:, order[:-JUDGES]].mean(axis=1)
        medians.append(float(np.median(means)))
        bests.append(float(means[others.argmax()]))
        defaults.append(float(means[DEFAULT]))
        for name, plan in plans.items():
            row, cost = plan(replay)
            shares[name].append(float(beaten[row]))
            values[name].append(float(means[row]))
            runs[name].append(cost)
    median = float(np.mean(medians))
    reach = float(np.mean(bests)) - median
    scale = reach if reach > 0.0 else float("nan")
    return {
        name: Judged(
            runs=float(np.mean(runs[name])),
            share=float(np.mean(shares[name])),
            score=(float(np.mean(values[name])) - median) / scale,
            over_default=(float(np.mean(values[name])) - float(np.mean(defaults))) / scale,
        )
        for name in plans
    }


def is_ceiling(source: Source) -> bool:
    """Return whether at least a fifth of the configurations have the best mean over all seeds."""
    means = source.values.mean(axis=1)
    return float(np.mean(means == means.max())) >= 0.2
