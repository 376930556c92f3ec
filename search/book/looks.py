"""How many seeds a trial has had at each look of racing, and what ends it before it has all."""

from __future__ import annotations

__all__ = ["BUDGET_ENDED", "CLEARLY_BELOW", "stages"]

CLEARLY_BELOW = "racing: clearly below"
BUDGET_ENDED = "racing: the budget ended before further seeds"
"""How `TrialRow.stop_rule` begins of a finished trial that did not get all seeds."""


def stages(start: int, most: int) -> list[int]:
    """Return how many seeds a trial has had at each look, the last of all it may have.

    >>> stages(3, 20)
    [3, 6, 12, 20]
    """
    sizes = [min(start, most)]
    while sizes[-1] < most:
        sizes.append(min(2 * sizes[-1], most))
    return sizes
