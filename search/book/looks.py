"""How many seeds a trial has had at each look of racing."""

from __future__ import annotations

__all__ = ["stages"]


def stages(start: int, most: int) -> list[int]:
    """Return how many seeds a trial has had at each look, the last of all it may have.

    >>> stages(3, 20)
    [3, 6, 12, 20]
    """
    sizes = [min(start, most)]
    while sizes[-1] < most:
        sizes.append(min(2 * sizes[-1], most))
    return sizes
