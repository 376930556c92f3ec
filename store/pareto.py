"""Several losses at once: fronts of trials that nothing dominates, how crowded they are, volume.

Everything is in losses (lower is better); what is not finite dominates nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

Losses = Sequence[float]


@dataclass(frozen=True)
class Place:
    """Where a trial stands among others; sorts the best first.

    Attributes:
        violation: 0 for a feasible one; of two that violate constraints the lesser is better.
        front: 1 for those that none of its kind dominates, 2 for those that only these dominate.
        crowding: half-perimeter of the box around it that no other trial of its front is in;
            infinite at the ends of a front.
    """

    violation: float
    front: int
    crowding: float

    @property
    def key(self) -> tuple[float, int, float]:
        """What to sort by."""
        return (self.violation, self.front, -self.crowding)


def places(losses: Sequence[Losses], violations: Sequence[float] | None = None) -> list[Place]:
    """Return the place of each point: feasible ones by front and crowding, then the others.

    Constrained domination (Deb et al. 2002, section VI): feasible beats infeasible, and of two
    infeasible ones the lesser total violation wins.

    Args:
        losses: of each point, one an objective.
        violations: total violation of each, 0 for feasible ones; None when nothing is constrained.

    >>> [place.front for place in places([(1.0, 4.0), (2.0, 2.0), (3.0, 3.0)])]
    [1, 1, 2]
    """
    excess = [0.0] * len(losses) if violations is None else [max(0.0, v) for v in violations]
    found: list[Place | None] = [None] * len(losses)
    feasible = [index for index, amount in enumerate(excess) if amount == 0.0]
    own = [losses[index] for index in feasible]
    of_front, gaps = fronts(own), crowding(own)
    for index, front, gap in zip(feasible, of_front, gaps, strict=True):
        found[index] = Place(0.0, front, gap)
    deepest = max(of_front, default=0)
    return [
        place if place is not None else Place(amount, deepest + 1, 0.0)
        for place, amount in zip(found, excess, strict=True)
    ]


def scores(losses: Sequence[Losses], violations: Sequence[float] | None = None) -> list[float]:
    """Return one number a point, lower is better, equal where the places are equal.

    >>> scores([(1.0, 4.0), (4.0, 1.0), (5.0, 5.0)])
    [0.0, 0.0, 2.0]
    """
    keys = [place.key for place in places(losses, violations)]
    first: dict[tuple[float, int, float], int] = {}
    for index, key in enumerate(sorted(keys)):
        first.setdefault(key, index)
    return [float(first[key]) for key in keys]


def fronts(losses: Sequence[Losses]) -> list[int]:
    """Return the front of each point, 1 for those that nothing dominates.

    A point dominates another if it is nowhere worse and somewhere better.
    """
    import numpy as np

    if not losses:
        return []
    points = np.array([[_finite(x) for x in row] for row in losses], dtype=np.float64)
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
    """Return each point's crowding distance within its front (Deb et al. 2002, section III B).

    The sides of a box are measured in spans of its front; points at the ends have infinity.
    Equal points count as one.
    """
    rows = [tuple(_finite(value) for value in row) for row in losses]
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
    """Return the volume that some point dominates and that itself dominates the reference.

    Exact, by slicing along the last objective; meant for a front, not for thousands of points.

    >>> hypervolume([(1.0, 2.0), (2.0, 1.0)], (3.0, 3.0))
    3.0
    """
    inside = [
        tuple(row)
        for row in losses
        if all(math.isfinite(x) and x < bound for x, bound in zip(row, reference, strict=True))
    ]
    return _volume(inside, tuple(reference))


def _volume(points: list[tuple[float, ...]], reference: tuple[float, ...]) -> float:
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
            total += (end - point[-1]) * _volume(flat, reference[:-1])
    return total


def _finite(value: float) -> float:
    return value if math.isfinite(value) else math.inf
