"""Multi-objective ranking: non-dominated fronts, crowding distance, hypervolume, violations.

Objectives are losses (lower is better); non-finite losses count as infinite.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .libraries import np

Losses = Sequence[float]


@dataclass(frozen=True)
class ParetoRank:
    violation: float  # total; 0 for a feasible point
    front: int  # 1 for non-dominated points
    crowding: float  # distance, infinite at the ends of a front

    @property
    def key(self) -> tuple[float, int, float]:
        return (self.violation, self.front, -self.crowding)


def places(
    losses: Sequence[Losses], violations: Sequence[float] | None = None
) -> list[ParetoRank]:
    """Return each point's rank by constrained domination (Deb et al. 2002, section VI).

    Feasible points rank first, by front and then crowding; the others follow, by total violation
    (0 if feasible).

    >>> [place.front for place in places([(1.0, 4.0), (2.0, 2.0), (3.0, 3.0)])]
    [1, 1, 2]
    """
    excess = [0.0] * len(losses)
    if violations is not None:
        excess = [max(0.0, amount) for amount in violations]
    feasible = [losses[index] for index, amount in enumerate(excess) if amount == 0.0]
    of_front, gaps = fronts(feasible), iter(crowding(feasible))
    deepest, found = max(of_front, default=0), iter(of_front)
    return [
        ParetoRank(amount, deepest + 1, 0.0)
        if amount
        else ParetoRank(0.0, next(found), next(gaps))
        for amount in excess
    ]


def scores(losses: Sequence[Losses], violations: Sequence[float] | None = None) -> list[float]:
    """Return one number per point: lower is better, and points of equal rank get equal numbers.

    >>> scores([(1.0, 4.0), (4.0, 1.0), (5.0, 5.0)])
    [0.0, 0.0, 2.0]
    """
    keys = [place.key for place in places(losses, violations)]
    ordered = sorted(keys)
    return [float(bisect_left(ordered, key)) for key in keys]


def fronts(losses: Sequence[Losses]) -> list[int]:
    if not losses:
        return []
    points = np.array([[*map(_finite_or_inf, row)] for row in losses], dtype=np.float64)
    no_worse = np.ones((len(points), len(points)), dtype=bool)
    better = np.zeros_like(no_worse)
    for column in points.T:
        no_worse &= column[:, None] <= column[None, :]
        better |= column[:, None] < column[None, :]
    dominates = no_worse & better
    left = dominates.sum(axis=0, dtype=np.int64)
    of = np.zeros(len(points), dtype=np.int64)
    front = 0
    while not of.all():
        front += 1
        now = (left == 0) & (of == 0)
        of[now] = front
        left -= dominates[now].sum(axis=0, dtype=np.int64)
    return of.tolist()


def crowding(losses: Sequence[Losses]) -> list[float]:
    """Return each point's crowding distance in its front (Deb et al. 2002, section III B).

    Distances are relative to the front's span, and infinite at its ends. Equal points count once.
    """
    rows = [tuple(map(_finite_or_inf, row)) for row in losses]
    points = sorted(set(rows))
    of = fronts(points)
    found = dict.fromkeys(points, 0.0)
    for front in set(of):
        members = [point for point, own in zip(points, of, strict=True) if own == front]
        for objective in range(len(members[0])):
            ordered = sorted(members, key=lambda point: (point[objective], point))
            span = ordered[-1][objective] - ordered[0][objective]
            found[ordered[0]] = found[ordered[-1]] = math.inf
            for below, point, above in zip(ordered, ordered[1:], ordered[2:], strict=False):
                if 0.0 < span < math.inf:
                    found[point] += (above[objective] - below[objective]) / span
    return [found[row] for row in rows]


def hypervolume(losses: Sequence[Losses], reference: Losses) -> float:
    """Return the volume between the points and the reference, computed exactly by slicing.

    >>> hypervolume([(1.0, 2.0), (2.0, 1.0)], (3.0, 3.0))
    3.0
    """
    inside = [tuple(row) for row in losses if _is_below(row, reference)]
    return _hypervolume(inside, tuple(reference))


def _is_below(row: Losses, reference: Losses) -> bool:
    return all(math.isfinite(x) and x < bound for x, bound in zip(row, reference, strict=True))


def _hypervolume(points: list[tuple[float, ...]], reference: tuple[float, ...]) -> float:
    if not points:
        return 0.0
    if len(reference) == 1:
        return reference[0] - min(point[0] for point in points)
    ordered = sorted(set(points), key=lambda point: point[-1])
    ends = [point[-1] for point in ordered[1:]] + [reference[-1]]
    total = 0.0
    for count, (point, end) in enumerate(zip(ordered, ends, strict=True), start=1):
        if end > point[-1]:
            flat = [other[:-1] for other in ordered[:count]]
            total += (end - point[-1]) * _hypervolume(flat, reference[:-1])
    return total


def _finite_or_inf(value: float) -> float:
    if math.isfinite(value):
        return value
    return math.inf


def violation(value: float, low: float | None, high: float | None) -> float:
    """Return how far a value violates its bounds; negative inside them, infinite if not finite.

    >>> violation(12.0, None, 10.0), violation(9.0, None, 10.0)
    (2.0, -1.0)
    """
    if not math.isfinite(value):
        return math.inf
    above, below = -math.inf, -math.inf
    if high is not None:
        above = value - high
    if low is not None:
        below = low - value
    return max(above, below)


def excess(violations: Iterable[float]) -> float:
    return sum(max(0.0, amount) for amount in violations)
