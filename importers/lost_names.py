"""Rejects imports that would lose a searched name, or most of a source's names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import enumerated
from ..foreign_names.name_mapping import COMMON
from ..foreign_names.tables import recognise
from .converted_study import NOWHERE, ConvertedStudy, ImportSource
from .formats import read_word

_SHOWN = 4  # names in a sentence


def refuse_lost(draft: ConvertedStudy, source: ImportSource) -> None:
    """Reject searched names that have no counterpart, in one error that lists all of them.

    Raises:
        ConfigError: names that the user did not exclude would be lost.
    """
    reasons = dict[str, str]()
    for name in source.searched:
        row = draft.row(name)
        if draft.unwanted(name) or (row is not None and row.fate != "left out"):
            continue
        if row is None:
            draft.refuse_odd(name, "searched", source.searched[name])
            reasons[name] = NOWHERE
        else:
            reasons[name] = row.because
    if len(reasons) > 1 and len(reasons) < len(source.searched):
        raise draft.lost_fault(reasons)
    if reasons and len(reasons) == len(source.searched):
        raise draft.nothing_searched(list(reasons))


def ask_about_the_system(
    draft: ConvertedStudy, source: ImportSource, given: Mapping[str, Any]
) -> None:
    """Reject a detected system whose table has fewer than half of a source's names.

    Raises:
        ConfigError: the table has fewer than half, and the user did not name the system.
    """
    if "system" in given:
        return
    names = [
        name for name in draft.read if not draft.unwanted(name) and _has_meaning(source, name)
    ]
    known = [name for name in names if name in source.used or _is_known(draft, source, name)]
    if 2 * len(known) >= len(names):
        return
    others = [name for name in names if name not in known]
    if len(names) <= _SHOWN and any(map(draft.system.nearest, others)):
        return  # a typo: the error suggests the intended name
    raise _unknown_names(draft, names, known, others)


def _unknown_names(
    draft: ConvertedStudy, names: Sequence[str], known: Sequence[str], others: Sequence[str]
) -> Exception:
    """Return an error that asks for the right system, and names the likely one if recognised."""
    few = f"has only {len(known)} of the {len(names)} names"
    who = draft.system.title
    if draft.system is COMMON:
        who = "hpo"
    other, why = recognise(draft.read)
    text = f"{who} {few}; unknown: {_first_names(others)}. "
    leaves = "name the system to import it anyway, without the unknown names"
    if other is COMMON or other.family == draft.system.family:
        return draft.fault(
            f"{text}Is this a file from another system? Otherwise {leaves}",
            flags={"system": draft.system.name},
        )
    text += (
        f"It looks like a file from {other.title}, because {why}; import it as such, or {leaves}"
    )
    return draft.fault(text, reader=other.family, flags={"system": draft.system.name})


def _is_known(draft: ConvertedStudy, source: ImportSource, name: str) -> bool:
    """Return whether the system has a name; if the user named it, only its table counts."""
    if source.family and draft.system is not COMMON and not draft.system.exact:
        return draft.system.find(name) is not None or draft.is_of_env(name)
    return draft.row(name) is not None


def _has_meaning(source: ImportSource, name: str) -> bool:
    """Return whether a name matters: it is searched, or it has a value other than off."""
    if name not in source.constants:
        return True
    return read_word(source.constants[name]) not in (None, False)


def _first_names(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    if more <= 1:
        return enumerated(names)
    return f"{', '.join(names[:_SHOWN])} and {more} others"
