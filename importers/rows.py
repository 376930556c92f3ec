"""One row a name: what another system calls something, and what becomes of it in a study.

Three fates, by one rule. A name with a target is *taken*. Without one it is *left out* (and
listed) if it decides nothing about what is trained, and *refused* if it does, unless it has a
value at which it does nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Literal

from .transforms import SAME, Values

__all__ = ["UNKNOWN", "Row", "System", "left", "plain_name", "refused", "same", "taken"]

UNKNOWN: Any = type("Unknown", (), {"__repr__": lambda self: "unknown"})()
"""The default of a name whose default does not matter, or follows from other names."""


@dataclass(frozen=True)
class Row:
    """One name of another system.

    Attributes:
        name: as written there; hyphens count as underscores.
        fate: what becomes of it.
        target: a knob's name, `env` (the id), `env.<key>`, `env_steps`, `seed`,
            `loggers.<type>[.<option>]`, or `<section>.<key>`; empty unless it is taken.
        values: how its values become ours.
        default: its value there when nobody names it, in their terms; imports write it down where
            ours differs.
        because: why it is left out or refused.
        harmless: values of a refused name at which it does nothing.
        note: what is not quite the same here; told when the name is taken.
    """

    name: str
    fate: Literal["taken", "left out", "refused"]
    target: str = ""
    values: Values = SAME
    default: Any = UNKNOWN
    because: str = ""
    harmless: tuple[Any, ...] = ()
    note: str = ""


def taken(
    name: str, target: str, default: Any = UNKNOWN, values: Values = SAME, note: str = ""
) -> Row:
    """Return a row of a name with a counterpart."""
    return Row(name, "taken", target, values, default, note=note)


def same(table: str) -> tuple[Row, ...]:
    """Return rows whose values stay as they are, from a text of `name target [default]; ...`."""
    rows = (part.split(maxsplit=2) for part in table.replace("\n", ";").split(";"))
    return tuple(taken(name, target, *map(_literal, default))
                 for name, target, *default in filter(None, rows))  # fmt: skip


def left(because: str, *names: str) -> tuple[Row, ...]:
    """Return rows of names that decide nothing about what is trained."""
    return tuple(Row(name, "left out", because=because) for name in names)


def refused(
    because: str, *names: str, harmless: tuple[Any, ...] = (None, False)
) -> tuple[Row, ...]:
    """Return rows of names that change what is trained and have no counterpart."""
    return tuple(Row(n, "refused", because=because, harmless=harmless) for n in names)


@dataclass(frozen=True)
class System:
    """All names of one system, at one version.

    Attributes:
        name: one word, as `--system` takes it; `family_version` for an older or newer version.
        title: for people.
        version: which version's names, defaults and code these are.
        rows: one for each name.
        programs: what a command names it by: a script (`cleanrl/ppo.py`) or a package (`xlron`).
        marks: sets of names that only it has; all names of one set recognise it.
        calls: functions and classes of Python whose arguments are its names.
        around: other calls that change what is trained -> the name that each amounts to, as
            `name`, or as `name=keyword` where it has one value.
        exact: capitals matter: `GAMMA` and `gamma` are different things there.
        strict: its program refuses a flag that it does not have, so one that is almost a row is
            a slip of the hand.
        source: where the names, defaults and meanings can be read.
        always: what its program does under no name: our target -> our value; imports write it
            down where ours differs.
        differs: what is not the same here whatever is set; told with every import.
    """

    name: str
    title: str
    rows: tuple[Row, ...]
    programs: tuple[str, ...] = ()
    marks: tuple[frozenset[str], ...] = ()
    calls: tuple[str, ...] = ()
    around: Mapping[str, str] = field(default_factory=dict)
    version: str = ""
    exact: bool = False
    strict: bool = False
    source: str = ""
    always: Mapping[str, Any] = field(default_factory=dict)
    differs: tuple[str, ...] = ()
    _index: dict[str, Row] = field(default_factory=dict, repr=False, compare=False)
    _folded: dict[str, Row] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        for row in self.rows:
            if self._index.setdefault(self._key(row.name), row) is not row:
                raise ValueError(f"{self.name}: {row.name!r} stands twice")
            known = self._folded.setdefault(plain_name(row.name, last=False), row)
            if known.fate != "taken":
                self._folded[plain_name(row.name, last=False)] = row

    def find(self, name: str) -> Row | None:
        """Return the row of a name: the whole dotted name first, then its last part."""
        last = name.rsplit(".", 1)[-1]
        return self._index.get(self._key(name)) or self._index.get(self._key(last))

    def guess(self, name: str) -> Row | None:
        """Return the row of a name whatever its capitals, for hints."""
        return self.find(name) or self._folded.get(plain_name(name, last=False))

    def nearest(self, name: str) -> str | None:
        """Return the name of the row that an unknown name is almost; None if none is."""
        near = get_close_matches(name, [row.name for row in self.rows], n=1, cutoff=0.8)
        return near[0] if near else None

    @property
    def family(self) -> str:
        """The system without its version or script."""
        return self.name if self.name == "torch_ppo" else self.name.partition("_")[0]

    @property
    def defaults(self) -> Mapping[str, Any]:
        """Name -> value there when nobody names it."""
        return {row.name: row.default for row in self.rows if row.default is not UNKNOWN}

    def _key(self, name: str) -> str:
        underscored = name.replace("-", "_")
        return underscored if self.exact else underscored.lower()


def plain_name(name: str, last: bool = True) -> str:
    """Return the last part of a name in small letters, with underscores.

    >>> plain_name("TOTAL-Timesteps"), plain_name("config.env_id")
    ('total_timesteps', 'env_id')
    """
    return (name.rsplit(".", 1)[-1] if last else name).replace("-", "_").lower()


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
