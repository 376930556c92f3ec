"""How often a comparison was looked at, how sure each look must be, and what is kept of it.

Who may look again when a test did not decide errs more often than each test does by itself: at
5 % each, adding the seeds that would tell and testing again is wrong in 8 %. So the 5 % are spent
over all looks: 4 % by the first, a fifth of that by the second, and so on. For means of normal
returns two looks are wrong in at most 4.96 %, even if somebody who knows the first one chooses
the size of the second so as to err (Proschan and Hunsberger 1995).

A look is a trial's values on a new number of test seeds. The journal keeps them in one attribute
of the study; studies without it were looked at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .rows import AttributeRow

_NAME = "looks"
_FIRST, _NEXT = 0.04, 0.2


def level_of(look: int) -> float:
    """Return how often a look may be wrong, on both sides together; the sum of all is 5 %.

    Args:
        look: its number, from 1. After looks at 8 and at 16 seeds the next one is the third.

    >>> [round(level_of(look), 5) for look in (1, 2, 3)]
    [0.04, 0.008, 0.0016]
    """
    return _FIRST * _NEXT ** (look - 1)


def fewest_pairs(level: float) -> int:
    """Return how many pairs a test needs that is wrong in at most `level`, on both sides together.

    So many that all differences having one sign is rare enough: 2 in 2^n.

    >>> fewest_pairs(0.05), fewest_pairs(0.008)
    (6, 8)
    """
    return math.ceil(1 - math.log2(level))


def levels(earlier: Sequence[int]) -> tuple[list[tuple[int, float]], float]:
    """Return the size and level of each earlier look that could decide, and the next look's level.

    A look at too few pairs for its level decides nothing, whatever they are, and spends nothing.

    Args:
        earlier: how many pairs there were at each, in order; 0 for a look at other values.

    >>> levels([5, 8, 0])
    ([(8, 0.04)], 0.0016000000000000003)
    """
    found: list[tuple[int, float]] = []
    look = 1
    for pairs in earlier:
        level = level_of(look)
        if pairs and pairs < fewest_pairs(level):
            continue
        found += [(pairs, level)] if pairs else []
        look += 1
    return found, level_of(look)


def next_level(earlier: Sequence[int]) -> float:
    """Return how often the next look may be wrong, see `levels`.

    >>> next_level([]), next_level([8])
    (0.04, 0.008)
    """
    return levels(earlier)[1]


@dataclass(frozen=True)
class Look:
    """A trial had values on so many test seeds when the study came to an end.

    Attributes:
        trial: its number.
        seeds: how many, those that diverged among them.
        won: the study's conclusion was about it.
    """

    trial: int
    seeds: int
    won: bool = False


def looks_of(attributes: Iterable[AttributeRow]) -> tuple[Look, ...]:
    """Return the looks that a study has had, in order; none of a study from before they count."""
    for row in attributes:
        if row.trial is None and row.name == _NAME:
            return tuple(
                Look(int(trial), int(seeds), bool(won)) for trial, seeds, won in row.value
            )
    return ()


def attribute_of_looks(looks: Iterable[Look]) -> AttributeRow:
    """Return the study attribute that keeps them."""
    return AttributeRow(None, _NAME, [[look.trial, look.seeds, look.won] for look in looks])


def earlier_looks(looks: Sequence[Look], a: int, b: int, seeds: int) -> tuple[int, ...]:
    """Return at how many seeds two trials could be compared before, rising.

    The level at which they are compared now is `next_level` of these.

    Args:
        looks: of the study.
        a: a trial.
        b: another one.
        seeds: that both have now.

    >>> before = [Look(9, 8, True), Look(0, 8), Look(9, 20, True), Look(0, 20)]
    >>> earlier_looks(before, 9, 0, 20), earlier_looks(before, 9, 6, 20)
    ((8,), ())
    """
    sizes, found = {a: 0, b: 0}, set[int]()
    for look in looks:
        if look.trial in sizes:
            sizes[look.trial] = look.seeds
            found.add(min(sizes.values()))
    return tuple(sorted(size for size in found if 0 < size < seeds))


def winners_looks(looks: Sequence[Look], winner: int, default: int, seeds: int) -> tuple[int, ...]:
    """Return the earlier looks of a study's conclusion: at how many seeds of this pair, or 0.

    A study that grew may have had another winner: that was a look, too, though at other values.

    >>> before = [Look(0, 16), Look(5, 16, True), Look(9, 16, True)]
    >>> winners_looks(before, 9, 0, 16), winners_looks(before, 5, 0, 16)
    ((0,), ())
    """
    sizes = earlier_looks(looks, winner, default, seeds)
    found: dict[tuple[int, int], int] = {}
    for look in looks:
        if look.trial == winner and look.won and look.seeds >= seeds:
            break
        if look.trial in (winner, default) and look.seeds in sizes:
            found.setdefault((winner, look.seeds), look.seeds)
        elif look.won and look.trial != winner:
            found.setdefault((look.trial, look.seeds), 0)
    return tuple(found.values())
