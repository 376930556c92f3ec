"""Which knobs a leaderboard shows, and in which order, in terminal, report and Python.

Knobs that shape the program come first, then those along which good and bad trials lie apart the
most. What is equal in every trial shown is said once and has no column.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ..knobs import KNOBS
from ..store.leaderboard import Entry
from .formatting import param

__all__ = ["KnobColumns", "knob_columns", "told_apart"]

_GROUPS = 4
_FEWEST = 10


@dataclass(frozen=True)
class KnobColumns:
    """The knobs of a leaderboard.

    Attributes:
        names: those with a column, the first first.
        same: those that all trials shown share, with their value; None of one that none has.
    """

    names: tuple[str, ...]
    same: Mapping[str, Any]

    @property
    def same_words(self) -> str:
        """What all trials shown share, in words; "" if nothing."""
        if not self.same:
            return ""
        return "Equal in all: " + ", ".join(f"{n} {param(v)}" for n, v in self.same.items()) + "."


def knob_columns(entries: Sequence[Entry], shown: Sequence[Entry]) -> KnobColumns:
    """Choose and order the knobs.

    Args:
        entries: the whole leaderboard, the best first.
        shown: those of them in the table; of one alone every knob has a column.
    """
    names = dict.fromkeys(name for entry in shown for name in entry.params)
    same = {} if len(shown) < 2 else {
        name: shown[0].params[name] for name in names
        if len({_key(entry.params, name) for entry in shown}) == 1
    }  # fmt: skip
    apart = told_apart(entries, [name for name in names if name not in same])
    ordered = sorted(apart, key=lambda name: (not _is_structural(name), -apart[name]))
    return KnobColumns(tuple(ordered), same)


def _is_structural(name: str) -> bool:
    return name in KNOBS and not KNOBS[name].traced


def _key(params: Mapping[str, Any], name: str) -> str | None:
    return json.dumps(params[name]) if name in params else None


def told_apart(entries: Sequence[Entry], names: Sequence[str]) -> dict[str, float]:
    """Return of each knob how much it tells about places on the leaderboard, from 0 to 1.

    The share of the variance of places that lies between groups of trials, less what as many
    groups would have by chance (epsilon squared; Kelley 1935); numbers form four groups of equally
    many, other values a group each. 0 with fewer than 10 trials that have a place. It only orders
    columns: which knobs decided is another question, with an answer of its own.

    Args:
        entries: the best first.
        names: of the knobs.
    """
    placed = [e for e in entries if e.value is not None or e.rung_value is not None]
    if len(placed) < _FEWEST:
        return dict.fromkeys(names, 0.0)
    return {name: _between(_groups([entry.params for entry in placed], name)) for name in names}


def _groups(configs: Sequence[Mapping[str, Any]], name: str) -> list[list[int]]:
    """Return the places of the trials in each group."""
    values = [(config[name], place) for place, config in enumerate(configs) if name in config]
    absent = [place for place, config in enumerate(configs) if name not in config]
    kinds: dict[Any, list[int]] = defaultdict(list)
    for value, place in values:
        kinds[_kind(value)].append(place)
    numeric = all(isinstance(v, int | float) and not isinstance(v, bool) for v, _ in values)
    groups = list(kinds.values())
    if numeric and len(kinds) > _GROUPS:
        values.sort()
        ends = [index * len(values) // _GROUPS for index in range(_GROUPS + 1)]
        groups = [[place for _, place in values[low:high]] for low, high in pairwise(ends)]
    return [group for group in (*groups, absent) if group]


def _kind(value: Any) -> Any:
    """Return what equal values share: 1 and 1.0 are two, as they are in JSON."""
    return (type(value), value) if type(value) in (int, float, str) else json.dumps(value)


def _between(groups: Sequence[Sequence[int]]) -> float:
    """Return the share of the variance of 0, 1, ..., n - 1 between groups, less that of chance."""
    count = sum(map(len, groups))
    free = count - len(groups)
    if free < 1 or len(groups) < 2:
        return 0.0
    middle = (count - 1) / 2
    whole = count * (count * count - 1) / 12
    between = sum(len(group) * (sum(group) / len(group) - middle) ** 2 for group in groups)
    return max(0.0, 1.0 - (1.0 - between / whole) * (count - 1) / free)
