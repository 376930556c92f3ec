"""Selects the values to compare: the kind of seeds, and whether they are paired."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...errors import StoreError
from ...store.interim_analyses import (
    begins_interim,
    earlier_looks,
    pair_begins_interim,
    winners_looks,
)
from ...store.mean_difference import FEWEST_PAIRS
from ...store.rows import Stream
from ...store.unobserved import Bounds
from ...studies.algorithm import ENV_STEPS
from ..leaderboard_text import target
from .sides import SeedValues, Side, seed_counts_of_both, winner_first


@dataclass(frozen=True)
class ComparedValues:
    """The values of both sides on the seeds that are compared."""

    values: list[list[float]]
    paired: bool  # whether values with the same index come from the same seed
    streams: tuple[Stream, Stream]
    ranked: bool = False  # whether these values ranked the trials, and so led to this pair
    copied: tuple[str, ...] = ()  # sides with seeds that trained identically
    lost: tuple[int, int] = (0, 0)  # compared test seeds on which each side diverged
    tested: tuple[int, int] = (0, 0)  # compared test seeds of each side, with those
    at: int | None = None  # env steps per seed, if these are not full runs
    goal: str = "maximize"
    unit: str = ENV_STEPS  # unit of a run's length
    earlier: tuple[int, ...] = ()  # number of pairs at each earlier look
    interim: bool = False  # the first look was an interim one
    bounds: Bounds = field(default_factory=Bounds)


def compared_values(a: Side, b: Side) -> ComparedValues:
    """Return values on test seeds if possible, else on selection seeds, else on search seeds."""
    if a.study != b.study:
        return _values_of_studies(a, b)
    for stream in (Stream.REPORT, Stream.CHOOSE, Stream.SEARCH):
        both = a.values.get(stream) and b.values.get(stream)
        if both and not _is_better_elsewhere(a, b, stream):
            return _values_on_stream(a, b, stream)
    counts = seed_counts_of_both(a, b)
    text = f"{a.name} and {b.name} have no seeds in common: {counts}"
    command = f"hpo confirm {a.trial} {b.trial}{target(Path(a.study))}"
    raise StoreError(f"{text}; to train both on test seeds: {command}")


def _values_of_studies(a: Side, b: Side) -> ComparedValues:
    """Return values on test seeds, paired if both studies have the same seed."""
    values_a, values_b = a.values[Stream.REPORT], b.values[Stream.REPORT]
    shared = [seed for seed in values_a if seed in values_b]
    fewest = min(FEWEST_PAIRS, max(len(values_a), len(values_b), 1))
    if a.seed != b.seed or len(shared) < fewest:
        return _unpaired_values(a, b)
    values = [_on_seeds(side, shared) for side in (values_a, values_b)]
    return ComparedValues(values, True, (Stream.REPORT, Stream.REPORT))


def _is_better_elsewhere(a: Side, b: Side, stream: Stream) -> bool:
    """Return whether a stream has too few pairs so far, and a different stream can replace it."""
    partial, values_a, values_b = a.partial | b.partial, a.values[stream], b.values[stream]
    if (
        stream not in partial
        or len([seed for seed in values_a if seed in values_b]) >= FEWEST_PAIRS
    ):
        return False
    others = [other for other in Stream if other is not stream and other not in partial]
    return any(a.values.get(other) and b.values.get(other) for other in others)


def _values_on_stream(a: Side, b: Side, stream: Stream) -> ComparedValues:
    values_a, values_b = a.values[stream], b.values[stream]
    shared = [seed for seed in values_a if seed in values_b]
    paired = values_a.keys() == values_b.keys() or len(shared) >= FEWEST_PAIRS
    values = [list(side.values()) for side in (values_a, values_b)]
    if paired:
        values = [_on_seeds(side, shared) for side in (values_a, values_b)]
    earlier, interim = _looks_at(a, b, [seed for _, seed in shared])
    is_test = stream is Stream.REPORT
    if not is_test:
        earlier = ()
    return ComparedValues(
        values,
        paired,
        (stream, stream),
        ranked=not is_test,
        at=a.at,
        earlier=earlier,
        interim=interim,
    )


def _on_seeds(side: SeedValues, seeds: Sequence[tuple[str, int]]) -> list[float]:
    return [side[seed] for seed in seeds]


def _looks_at(a: Side, b: Side, seeds: Sequence[int]) -> tuple[tuple[int, ...], bool]:
    """Return the number of pairs at each earlier look, and whether the first was an interim look.

    For the winner and the default, these are the looks taken for the study's verdict.
    """
    looks, count = a.looks, max(seeds, default=-1) + 1
    winner, default = winner_first(a, b)
    if winner.wins and default.default:
        sizes = winners_looks(looks, winner.trial, default.trial, count)
        interim = begins_interim(looks)
    else:
        sizes = earlier_looks(looks, a.trial, b.trial, count)
        interim = pair_begins_interim(looks, a.trial, b.trial)
    ordered = sorted(seeds)
    return tuple(bisect_left(ordered, size) for size in sizes), interim


def _unpaired_values(a: Side, b: Side) -> ComparedValues:
    x, y = _last_stream(a), _last_stream(b)
    values = [list(side.values[stream].values()) for side, stream in ((a, x), (b, y))]
    ranked = any(
        stream is not Stream.REPORT and side.ranked.get(stream, 0) > 1
        for side, stream in ((a, x), (b, y))
    )
    return ComparedValues(values, False, (x, y), ranked=ranked)


def _last_stream(side: Side) -> Stream:
    """Return the last kind of seeds that has values."""
    order = (Stream.REPORT, Stream.CHOOSE, Stream.SEARCH)
    return next(stream for stream in order if side.values.get(stream))


def test_seed_counts(
    sides: Sequence[Side], chosen: ComparedValues
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return how many of the compared test seeds each side lost, and how many it ran on.

    Paired sides are compared on the test seeds that both ran on, with a value or without.
    """
    if set(chosen.streams) != {Stream.REPORT}:
        return (0, 0), (0, 0)
    ran = [_tested_seeds(side) for side in sides]
    if chosen.paired:
        ran = [ran[0] & ran[1]] * 2
    lost = [len(side.lost & seeds) for side, seeds in zip(sides, ran, strict=True)]
    return (lost[0], lost[1]), (len(ran[0]), len(ran[1]))


def _tested_seeds(side: Side) -> set[int]:
    """Return the test seeds on which a side ran, including those on which it diverged."""
    return {seed for _, seed in side.values[Stream.REPORT]} | side.lost


def sides_with_copies(sides: Sequence[Side], chosen: ComparedValues) -> tuple[str, ...]:
    """Return the sides that have several seeds with identical training."""
    each = zip(sides, chosen.streams, strict=True)
    return tuple(side.name for side, stream in each if str(stream) in side.copies)
