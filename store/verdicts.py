"""What a comparison can come to, the words for it, and how it is decided: one place for all.

- *better*, *worse*: the interval of the difference leaves 0 out. An exact test does so as well,
  at the level of this look (`looks.py`); where nothing differs this is said in at most 5 %.
- *undecided*: the interval holds 0, and so few seeds ran that nothing could be said at this
  level, or at most four times as many would tell a difference as large as the one seen; the
  number of further seeds is given.
- *no significant difference*: the interval holds 0, and four times as many seeds would hardly
  tell (in less than 8 of 10 studies), or both sides have the same value on every seed.

Two constants decide only where seeds that nobody saw could not turn their difference: 8 x 500 is
better than 8 x 10, but beside 8 x 472 it may be chance that no seed failed (`paired.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from .looks import fewest_pairs, next_level
from .paired import (
    Bounds,
    deviation,
    is_rounding,
    paired_over_looks,
    seeds_to_tell,
    seeds_to_trust,
    unseen_between,
)
from .statistics import Interval, mean

__all__ = ["AFFORDED", "WORDS", "Decision", "Verdict", "decided", "decided_pairs"]

Verdict = Literal["better", "worse", "no_difference", "undecided"]
WORDS: Mapping[str, str] = {
    "better": "better",
    "worse": "worse",
    "no_difference": "no significant difference",
    "undecided": "undecided",
}
"""What is printed."""
AFFORDED = 4
"""Up to so many times the seeds that ran are worth asking for."""


@dataclass(frozen=True)
class Decision:
    """What a comparison came to.

    Attributes:
        verdict: about the first side.
        interval: of the difference, first side less second, which decided.
        more_seeds: where undecided, how many further seeds would decide.
    """

    verdict: Verdict
    interval: Interval
    more_seeds: int | None = None


def decided_pairs(
    ours: Sequence[float],
    theirs: Sequence[float],
    earlier: Sequence[int] = (),
    bounds: Bounds | None = None,
) -> Decision:
    """Decide between two sides that ran on the same seeds; greater is better.

    Args:
        ours: one finite value a seed, seeds in the order in which they were run.
        theirs: on the same seeds.
        earlier: of how many of these pairs earlier looks were, see `paired_over_looks`.
        bounds: of both means.

    >>> decided_pairs([2.0] * 8, [1.0] * 8).verdict, decided_pairs([2.0] * 4, [1.0] * 4).more_seeds
    ('better', 2)
    """
    differences = [one - other for one, other in zip(ours, theirs, strict=True)]
    gap, count = mean(differences), len(differences)
    found = paired_over_looks(ours, theirs, earlier, bounds)
    fewest = fewest_pairs(next_level(earlier))
    if count < fewest:
        return Decision("undecided", found, fewest - count)
    if found.low is None:  # both vary, by the same on every seed: the exact test alone decides
        if is_rounding(gap, ours, theirs):
            return Decision("no_difference", found)
        return Decision("better" if gap > 0 else "worse", found)
    level = next_level([*earlier, count])
    needed = seeds_to_tell(gap, deviation(differences), level)
    if needed is not None:  # as many have to differ as the exact test needs
        apart = sum(value != 0.0 for value in differences) / count
        needed = max(needed, math.ceil(fewest_pairs(level) / apart))
    unseen = unseen_between(ours, theirs, bounds)
    if needed is not None and unseen is not None:
        needed = max(needed, seeds_to_trust(gap, unseen, level))
    return decided(found, count, needed)


def decided(interval: Interval, count: int, needed: int | None) -> Decision:
    """Decide by an interval; where it holds 0, by how many seeds in all would tell.

    Args:
        interval: with ends.
        count: seeds that ran.
        needed: seeds that would tell a difference as large as the one seen; None if none would.
    """
    low, high = interval.low, interval.high
    if low is not None and low > 0.0:
        return Decision("better", interval)
    if high is not None and high < 0.0:
        return Decision("worse", interval)
    if needed is None or needed > AFFORDED * count:
        return Decision("no_difference", interval)
    return Decision("undecided", interval, max(1, needed - count))
