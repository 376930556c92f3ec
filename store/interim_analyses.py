"""Interim analyses (looks): the error rate of each look, and the record of looks in the journal.

Two tests at 5 % each, the second with more seeds, give a false verdict in 8 % of cases. The 5 % is
therefore divided among all looks: 4 % for the first, a fifth of that for the second, and so on.
For means of normal returns, two looks give a false verdict in at most 4.96 % of cases, even if the
first one determines the size of the second (Proschan and Hunsberger 1995). A look is a test of a
trial with a new number of test seeds.

A first look at 4 or 5 seeds uses 3 %: a sign test cannot decide there, but a test over all splits
of both sides' values can (2 of 70). The next look uses 1.6 %; together they give a false verdict
in at most 4.7 % of cases.

If a study plans an interim look (`confirm.interim`), the first two looks swap their levels: an
early stop needs strong evidence, and the planned end keeps its power (like O'Brien and Fleming
1979).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .rows import AttributeRow

_NAME = "looks"
_FIRST, _NEXT = 0.04, 0.2
_FEW, _AFTER_FEW = 0.03, 0.016
FEWEST_SEEDS = 4
"""Seeds of each side at which a first look can decide."""


def level_of(look: int, interim: bool = False, few: bool = False) -> float:
    """Return the two-sided error rate of a look, counted from 1; all rates sum to 5 %.

    `few` means that the first look was at 4 or 5 seeds.

    >>> [round(level_of(look), 5) for look in (1, 2, 3)]
    [0.04, 0.008, 0.0016]
    >>> [round(level_of(look, interim=True), 5) for look in (1, 2, 3)]
    [0.008, 0.04, 0.0016]
    >>> [round(level_of(look, few=True), 5) for look in (1, 2, 3)]
    [0.03, 0.016, 0.0032]
    """
    if few and look == 1:
        return _FEW
    if few:
        return _AFTER_FEW * _NEXT ** (look - 2)
    if interim and look < 3:
        look = 3 - look
    return _FIRST * _NEXT ** (look - 1)


def fewest_pairs(level: float) -> int:
    """Return the number n of pairs that a sign test at `level` needs: 2 / 2^n <= `level`.

    >>> fewest_pairs(0.05), fewest_pairs(0.008)
    (6, 8)
    """
    return math.ceil(1 - math.log2(level))


def is_few(pairs: int) -> bool:
    """Return whether a first look at this many seeds compares all splits of both sides."""
    return FEWEST_SEEDS <= pairs < fewest_pairs(_FIRST)


def levels(
    earlier: Sequence[int], interim: bool = False, pairs: int = 0
) -> tuple[list[tuple[int, float]], float]:
    """Return (pairs, level) for each earlier look that could decide, and the next look's level.

    `earlier` has the number of pairs at each look, in order (0 for a look at different values);
    `pairs` is the number at the next look (0 if unknown). A look with too few pairs for its level
    cannot decide, and uses none of the error rate.

    >>> levels([3, 8, 0])
    ([(8, 0.04)], 0.0016000000000000003)
    >>> levels([4]), levels([], pairs=4)[1]
    (([(4, 0.03)], 0.016), 0.03)
    """
    found, look, few = list[tuple[int, float]](), 1, False
    for earlier_pairs in earlier:
        if look == 1 and not interim and is_few(earlier_pairs):
            few = True
        level = level_of(look, interim, few)
        fewest = fewest_pairs(level)
        if few and look == 1:
            fewest = FEWEST_SEEDS
        if earlier_pairs and earlier_pairs < fewest:
            look = max(look, 1 + interim)  # the planned end keeps its level
            continue
        if earlier_pairs:
            found.append((earlier_pairs, level))
        look += 1
    few = few or (look == 1 and not interim and is_few(pairs))
    return found, level_of(look, interim, few)


def next_level(earlier: Sequence[int], interim: bool = False, pairs: int = 0) -> float:
    """Return the error rate of the next look; see `levels`."""
    return levels(earlier, interim, pairs)[1]


def fewest_now(earlier: Sequence[int], interim: bool = False, pairs: int = 0) -> int:
    """Return the number of seeds that the next look needs to be able to decide.

    >>> fewest_now([]), fewest_now([], pairs=4), fewest_now([4])
    (6, 4, 7)
    """
    before, level = levels(earlier, interim, pairs)
    if not before and level == _FEW:
        return FEWEST_SEEDS
    return fewest_pairs(level)


@dataclass(frozen=True)
class Look:
    """A recorded look: the number of a trial's test seeds when the study ended."""

    trial: int
    seeds: int
    won: bool = False  # whether it was the winner
    # whether it was before the planned number of seeds, see `Confirm.interim`
    interim: bool = False


def looks_of(attributes: Iterable[AttributeRow]) -> tuple[Look, ...]:
    for row in attributes:
        if row.trial is None and row.name == _NAME:
            return tuple(
                Look(int(trial), int(seeds), *map(bool, more)) for trial, seeds, *more in row.value
            )
    return ()


def attribute_of_looks(looks: Iterable[Look]) -> AttributeRow:
    return AttributeRow(
        None,
        _NAME,
        [[look.trial, look.seeds, look.won, *([True] if look.interim else [])] for look in looks],
    )


def begins_interim(looks: Sequence[Look]) -> bool:
    return next((look.interim for look in looks if look.won), False)


def pair_begins_interim(looks: Sequence[Look], a: int, b: int) -> bool:
    tested = set[int]()
    for look in looks:
        if look.trial in (a, b):
            tested.add(look.trial)
            if len(tested) == 2:
                return look.interim
    return False


def earlier_looks(looks: Sequence[Look], a: int, b: int, seeds: int) -> tuple[int, ...]:
    """Return the seed counts of earlier comparisons between two trials.

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
    """Return the earlier looks of a study's verdict: this pair's seeds, or 0 for another winner.

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
        elif look.won and look.trial != winner and look.seeds >= FEWEST_SEEDS:
            found.setdefault((look.trial, look.seeds), 0)
    return tuple(found.values())
