"""The unit of a study's training in messages, where those of PPO say env steps."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from ..store.journal import Journal
from ..studies.algorithm import ENV_STEPS
from ..studies.resolved import as_recorded

_T = TypeVar("_T")


def in_unit(given: _T, unit: str) -> _T:
    """Return a text, or a picture with all its texts, with `unit` in the place of env steps.

    >>> in_unit("12k env steps", "examples")
    '12k examples'
    """
    changed: Any = given
    if unit == ENV_STEPS:
        return given
    if isinstance(given, str):
        changed = given.replace(ENV_STEPS, unit)
    elif isinstance(given, tuple):
        changed = tuple(in_unit(each, unit) for each in given)
    elif is_dataclass(given) and not isinstance(given, type):
        values = {one.name: getattr(given, one.name) for one in fields(given)}
        changed = replace(given, **{name: in_unit(one, unit) for name, one in values.items()})
    return changed


def unit_of(study_text: str) -> str:
    """Return the unit of a recorded study."""
    algorithm = as_recorded(study_text).get("algorithm")
    return algorithm["unit"] if algorithm else ENV_STEPS


def unit_in(folder: Path) -> str:
    with Journal(folder) as journal:
        return unit_of(journal.meta.study_text)
