"""Rank an optimiser over all tables: `python -m hpo_tables mine.py:optimise`.

An optimiser is a function `optimise(problem)` that returns a configuration:

    def optimise(problem):
        best, least = problem.default, float("inf")
        while problem.runs_left >= 1:
            configuration = problem.draw()
            loss = problem.evaluate(configuration)
            if loss < least:
                best, least = configuration, loss
        return best

Its choice is judged on seeds that `problem` never uses. The score is 0 for the median recorded
configuration and 1 for the one that is best on all other seeds.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .table import Table, check_seed, load, names

JUDGES = 3
"""The number of seeds that judge the choice of each search."""


class OutOfBudget(Exception):
    """The env steps of the problem are used up."""


@dataclass(eq=False)
class Problem:
    """One search on one table. Its seeds are numbered from 0 and exclude those that judge."""

    table: Table
    order: np.ndarray  # permutation of the table's seeds
    runs: float  # budget, in full runs of one seed
    random: np.random.Generator
    spent: float = 0.0
    _known: dict[tuple[int, int], int] = field(default_factory=dict)

    @property
    def space(self) -> Any:
        return self.table.space

    @property
    def default(self) -> dict[str, Any]:
        return self.table.default

    @property
    def seeds(self) -> int:
        return self.table.seeds - JUDGES

    @property
    def runs_left(self) -> float:
        return self.runs - self.spent

    def draw(self) -> dict[str, Any]:
        """Draw a configuration from the distribution used for the table."""
        shares = self.random.random(len(self.space.hyperparameters))
        pairs = zip(self.space.hyperparameters, shares, strict=True)
        return {one.name: one.at(float(share)) for one, share in pairs}

    def evaluate(
        self, configuration: Mapping[str, Any], seed: int = 0, share: float = 1.0
    ) -> float:
        """Return the loss of a run after a share of its env steps.

        A run that is requested again, or for longer, costs only its new part.

        Raises:
            OutOfBudget: it costs more than the remaining budget; nothing is spent.
        """
        check_seed(seed, self.seeds)
        steps = round(share * self.table.length)
        found = self.table.evaluate(configuration, int(self.order[seed]), steps)
        before = self._known.get((found.row, seed), 0)
        cost = max(0, found.env_steps - before) / self.table.length
        if self.spent + cost > self.runs + 1e-9:
            raise OutOfBudget(f"{self.runs_left:.2f} full runs are left, this costs {cost:.2f}")
        self.spent += cost
        self._known[found.row, seed] = max(before, found.env_steps)
        return found.loss


Optimiser = Callable[[Problem], Mapping[str, Any]]


def random_search(problem: Problem) -> Mapping[str, Any]:
    """Try the default and random configurations on one seed each; return the best one."""
    best, least = problem.default, problem.evaluate(problem.default)
    while problem.runs_left >= 1.0:
        configuration = problem.draw()
        loss = problem.evaluate(configuration)
        if loss < least:
            best, least = configuration, loss
    return best


def random_and_selection(problem: Problem) -> Mapping[str, Any]:
    """Try random configurations, then the best three on two more seeds each; return the best."""
    tried = [problem.default]
    shown = [problem.evaluate(problem.default)]
    while problem.runs_left >= 1.0 + 6.0:
        tried.append(problem.draw())
        shown.append(problem.evaluate(tried[-1]))
    first = np.argsort(shown, kind="stable")[:3]
    if problem.runs_left < 2.0:  # no run on two more seeds
        return tried[first[0]]
    means = [
        np.mean([problem.evaluate(tried[row], seed) for seed in range(3)])
        for row in first[: int(problem.runs_left // 2)]
    ]
    return tried[first[int(np.argmin(means))]]


BASELINES: dict[str, Optimiser] = {
    "random search": random_search,
    "random, selection": random_and_selection,
}


@dataclass(frozen=True)
class Ranked:
    """The results of one optimiser over all tables."""

    name: str
    scores: Mapping[str, float]  # table -> mean score of its searches, without ceilings
    # table -> mean rank among all optimisers; 1 is best, ties share ranks
    ranks: Mapping[str, float]


def rank(
    optimisers: Mapping[str, Optimiser], runs: float = 12, searches: int = 20, seed: int = 0
) -> list[Ranked]:
    """Run every optimiser on every table; a search has the same seeds for all optimisers."""
    scores: dict[str, dict[str, float]] = {name: {} for name in optimisers}
    ranks: dict[str, dict[str, float]] = {name: {} for name in optimisers}
    for name in names():
        table = load(name)
        losses, median, best = _losses(table, optimisers, runs, searches, seed)
        reach = float(np.mean(median - best))
        for at, optimiser in enumerate(optimisers):
            ranks[optimiser][name] = float(np.mean(_ranks(losses)[at]))
            if not table.is_ceiling and reach > 0:
                scores[optimiser][name] = float(np.mean(median - losses[at])) / reach
    return [Ranked(name, scores[name], ranks[name]) for name in optimisers]


def _losses(
    table: Table, optimisers: Mapping[str, Optimiser], runs: float, searches: int, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return judged losses [optimisers, searches], and those of the median and of the best."""
    finals = table.losses[:, :, -1]
    found = np.empty((len(optimisers), searches))
    median = np.empty(searches)
    best = np.empty(searches)
    for search in range(searches):
        order = np.random.default_rng([seed, search]).permutation(table.seeds)
        judges, others = order[-JUDGES:], order[:-JUDGES]
        judged = finals[:, judges].mean(axis=1)
        median[search] = np.median(judged)
        best[search] = judged[finals[:, others].mean(axis=1).argmin()]
        for at, optimise in enumerate(optimisers.values()):
            generator = np.random.default_rng([seed, search, 1])
            chosen = optimise(Problem(table, order, runs, generator))
            row, _ = table.find(chosen)
            found[at, search] = judged[row]
    return found, median, best


def _ranks(losses: np.ndarray) -> np.ndarray:
    """Return each optimiser's rank in every search, with shared ranks [optimisers, searches]."""
    less = (losses[None, :, :] < losses[:, None, :]).sum(axis=1)
    same = (losses[None, :, :] == losses[:, None, :]).sum(axis=1)
    return 1.0 + less + (same - 1) / 2.0


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and the half-width of Student's 95 % interval; NaN for one value."""
    count = len(values)
    if count < 2:
        return float(np.mean(values)), float("nan")
    quantile = STUDENT[min(count - 1, len(STUDENT)) - 1]
    return float(np.mean(values)), quantile * float(np.std(values, ddof=1)) / count**0.5


STUDENT = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""Quantiles at 97.5 % with 1 to 30 degrees of freedom."""


def text_of(found: Sequence[Ranked], runs: float, searches: int) -> str:
    """Return a line per optimiser."""
    tables = len(found[0].ranks)
    scored = len(found[0].scores)
    lines = [f"{'optimiser':28} {'score':>16} {'rank':>16}"]
    for one in found:
        score, score_reach = interval([*one.scores.values()])
        mean_rank, rank_reach = interval([*one.ranks.values()])
        lines.append(
            f"{one.name:28} {score:7.2f} +-{score_reach:6.2f} {mean_rank:7.2f} +-{rank_reach:6.2f}"
        )
    lines += [
        "",
        f"{searches} searches of {runs:g} full runs on each of {tables} tables, +- 95 % over "
        "tables.",
        f"Scores are of the {scored} tables where configurations can be told apart.",
    ]
    return "\n".join(lines)


def optimiser_of(text: str) -> Optimiser:
    """Return the function given as `FILE.py:NAME`.

    Raises:
        ValueError: the file or the function does not exist.
    """
    path, _, name = text.rpartition(":")
    if not path or not Path(path).is_file():
        raise ValueError(f"{text}: type FILE.py:FUNCTION, with a file that exists")
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not callable(getattr(module, name, None)):
        raise ValueError(f"{path} has no function {name}")
    return getattr(module, name)
