"""All systems by name, and the questions that others ask of their tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..errors import UnknownNameError
from .arlbench import ARLBENCH
from .cleanrl import CLEANRL
from .common import COMMON
from .jaxdem import JAXDEM
from .lerax import LERAX
from .purejaxrl import PUREJAXRL
from .rejax import REJAX
from .rows import Row, System
from .sb3 import SB3
from .torch_ppo import TORCH_PPO
from .xlron import XLRON

__all__ = ["COMMON", "SYSTEMS", "env_names", "find", "hints", "names_of", "recognise", "system"]

SYSTEMS: Mapping[str, System] = {
    one.name: one
    for one in (XLRON, *CLEANRL, SB3, *PUREJAXRL, REJAX, LERAX, JAXDEM, TORCH_PPO, ARLBENCH)
}
"""Systems with a table of their own; `COMMON` stands behind each."""


def system(name: str) -> System:
    """Return a system by its word; `none` is `COMMON`.

    Raises:
        UnknownNameError: there is no table of it.
    """
    if name == COMMON.name:
        return COMMON
    if name not in SYSTEMS:
        raise UnknownNameError("system", name, (*SYSTEMS, COMMON.name))
    return SYSTEMS[name]


def find(name: str, of: System = COMMON) -> Row | None:
    """Return the row of a name: of the system, else of what all share."""
    return of.find(name) or COMMON.find(name)


def recognise(names: Iterable[str], words: Iterable[str] = ()) -> tuple[System, str]:
    """Return the system that a source is of, and what tells; `COMMON` and "" if nothing does.

    The longest part of the command that is known decides first; then a set of names that only
    one system has.

    Args:
        names: all that it sets.
        words: of its command.
    """
    said = [word.lower() for word in words]
    named = [(part, one) for one in SYSTEMS.values() for part in one.programs
             if any(part in word for word in said)]  # fmt: skip
    if named:
        part, one = max(named, key=lambda pair: len(pair[0]))
        return one, f"its command names {part}"
    given = {part.replace("-", "_") for name in names for part in (name, name.rsplit(".", 1)[-1])}
    lowered = {name.lower() for name in given}
    for one in SYSTEMS.values():
        for mark in one.marks:
            if mark <= (given if one.exact else lowered):
                return one, f"it sets {', '.join(sorted(mark))}"
    return COMMON, ""


def hints(name: str) -> tuple[Row, ...]:
    """Return the rows of a name, wherever it is known, one for each target; shared ones first."""
    whole = name.replace("-", "_").lower()
    if whole not in _KNOWN and whole.rsplit(".", 1)[-1] not in _KNOWN:
        return ()
    found: dict[str, Row] = {}
    for one in (COMMON, *SYSTEMS.values()):
        row = one.guess(name)
        if row is not None:
            found.setdefault(row.target, row)
    return tuple(sorted(found.values(), key=lambda row: row.fate != "taken"))


_KNOWN = {row.name.replace("-", "_").lower() for one in (COMMON, *SYSTEMS.values())
          for row in one.rows}  # fmt: skip


def names_of(target: str) -> tuple[str, ...]:
    """Return what a target is called in other systems, each name once.

    A name that means something else in most systems is not among them (`architecture` of JaxDEM).
    """
    rows = (row for one in (COMMON, *SYSTEMS.values()) for row in one.rows)
    names = dict.fromkeys(row.name for row in rows if row.target == target != row.name)
    return tuple(name for name in names if hints(name)[0].target == target)


def env_names(of: System) -> Mapping[str, str]:
    """Return what a system calls keys of environments -> our keys, where the names differ."""
    found = {row.name: row.target.removeprefix("env.") for row in of.rows
             if row.target.startswith("env.")}  # fmt: skip
    ids = {row.name: "id" for row in of.rows if row.target == "env"}
    return {name: key for name, key in (ids | found).items() if name != key}
