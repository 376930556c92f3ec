"""How often does a search method choose better than the usual one, over environments?

Values in different environments have no common unit, but ranks do. A method's *share of pairs* is
the probability that a search with it chooses a better configuration than a search with the usual
method, where ties count half: it is the share of all pairs of repetitions in each environment
(Mann and Whitney's U), averaged over environments with equal weights.

Its interval is for these environments and over repetitions: Student's, from each repetition's
contribution (DeLong et al. 1988, with a covariance within repetitions, which share their random
streams), with degrees of freedom by Welch and Satterthwaite. Shares of ten repetitions are often 0
or 1, where the interval would have no width. So one more repetition is added, in which both tie
with all others, as Agresti and Coull add successes and failures.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student

LEVEL = 0.95
Choices = Mapping[str, Sequence[Sequence[float | None]]]
"""Method -> repetition -> mean of the choice on the judges at each budget; larger is better."""


@dataclass(frozen=True)
class Against:
    """One method compared with the usual one, over environments.

    Attributes:
        method, usual: their names.
        budget: share of the whole budget.
        environments: those in which both have choices.
        share: share of pairs in which the method's choice is better.
        low, high: its interval; all verdicts of a table hold simultaneously.
        each: the share in each environment.
    """

    method: str
    usual: str
    budget: float
    environments: int
    share: float
    low: float
    high: float
    each: tuple[float, ...]

    @property
    def verdict(self) -> str:
        """`better` or `worse` if the interval excludes one half, else ""."""
        return "better" if self.low > 0.5 else "worse" if self.high < 0.5 else ""


def against(
    environments: Sequence[Choices], usual: str, budgets: Sequence[float], shown: Sequence[float]
) -> list[Against]:
    """Compare every other method with the usual one; return [] if the usual one did not run.

    Args:
        environments: the choices in each, by the same methods.
        usual: name of the usual method.
        budgets: shares of the whole budget, in the order of the choices.
        shown: the budgets at which to compare. A method is omitted at a budget if it, or the usual
            one, has fewer than two choices in some environment.
    """
    pairs = dict[tuple[str, float], list[tuple[np.ndarray, np.ndarray]]]()
    for method in environments[0]:
        for budget in shown:
            at = budgets.index(budget)
            both = [_both(one, method, usual, at) for one in environments]
            if method != usual and all(len(mine) > 1 for mine, _ in both):
                pairs[method, budget] = both
    found = list[Against]()
    for (method, budget), both in pairs.items():
        share, low, high = share_of_pairs(both, tests=len(pairs))
        each = tuple(share_of_pairs([one])[0] for one in both)
        found.append(Against(method, usual, budget, len(both), share, low, high, each))
    return found


def _both(one: Choices, method: str, usual: str, at: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the choices of both at a budget, for repetitions in which both have one."""
    rows = zip(one[method], one.get(usual, ()), strict=False)
    chosen = [(mine[at], theirs[at]) for mine, theirs in rows]
    whole = [(a, b) for a, b in chosen if a is not None and b is not None]
    mine, theirs = np.asarray(whole, float).reshape(-1, 2).T
    return mine, theirs


def share_of_pairs(
    environments: Sequence[tuple[np.ndarray, np.ndarray]], tests: int = 1
) -> tuple[float, float, float]:
    """Return the share of pairs in which the first is larger, and its interval.

    Args:
        environments: values of both by repetition, at least 2.
        tests: number of intervals that hold simultaneously (Bonferroni).
    """
    shares, centres, variances, degrees = list[float](), [], [], []
    for mine, theirs in environments:
        larger = mine[:, None] > theirs[None]
        order = larger + 0.5 * (mine[:, None] == theirs[None])  # [mine, theirs]
        shares.append(float(order.mean()))
        count = len(mine) + 1
        order = np.pad(order, (0, 1), constant_values=0.5)
        centre = order.mean()
        adds = order.mean(axis=1) + order.mean(axis=0) - 2 * centre
        centres.append(centre)
        variances.append(float((adds**2).sum()) / (count * (count - 1)))
        degrees.append(count - 2)  # of the repetitions that ran
    count, total = len(environments), math.fsum(variances)
    centre, reach = float(np.mean(centres)), 0.0
    if total > 0:
        parts = (v**2 / d for v, d in zip(variances, degrees, strict=True))
        freedom = total**2 / math.fsum(parts)
        reach = student.ppf(1 - (1 - LEVEL) / 2 / tests, freedom) * math.sqrt(total) / count
    return float(np.mean(shares)), max(0.0, centre - reach), min(1.0, centre + reach)


def table(rows: Sequence[Against]) -> str:
    """Return a Markdown table with a row per method and each environment's share in (...)."""
    shown = sorted({row.budget for row in rows})
    cells = {(row.method, row.budget): row for row in rows}
    head = [
        "method",
        *(f"better than {rows[0].usual}, {share:.0%} of the budget" for share in shown),
    ]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for method in dict.fromkeys(row.method for row in rows):
        said = [_cell(cells.get((method, share))) for share in shown]
        lines.append(f"| {' | '.join([method, *said])} |")
    return "\n".join(lines)


def _cell(row: Against | None) -> str:
    if row is None:
        return ""
    verdict = f", **{row.verdict}**" if row.verdict else ""
    each = ", ".join(f"{share:.0%}" for share in row.each)
    return f"{row.share:.0%} [{row.low:.0%}, {row.high:.0%}]{verdict} ({each})"
