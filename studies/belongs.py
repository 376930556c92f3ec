"""Where a key belongs that stands in the wrong place of a study file."""

from __future__ import annotations

from .fields import SECTIONS, TOP
from .overrides import SET
from .reader import Node, plain
from .writer import flow

__all__ = ["belongs"]

_POPULATION = ("population", "population_size", "pop_size", "popsize", "members")
"""What elsewhere says how many run side by side; here that is the number of trials."""
_SETTINGS = {"search", "early_terminate", "population"}


def belongs(where: str, key: str, child: Node) -> str:
    """Return where a key belongs that its section does not know; "" if nowhere, or in several.

    Args:
        where: the section it stands in, such as `search` or `search.options`; "" at the top.
        key: as it was written.
        child: what stands behind it.
    """
    section = where.split(".")[0]
    if where and section not in SECTIONS:
        return ""
    if key in _POPULATION and section in _SETTINGS and not (child.is_map or child.is_list):
        return f" the population of pbt and pb2 is all trials:{_typed('budget', 'trials', child)}"
    homes = [
        name for name, fields in SECTIONS.items()
        if name != where and any(field.key == key for field in fields)
    ]  # fmt: skip
    at_top = bool(where) and any(field.key == key for field in TOP)
    if len(homes) + at_top != 1:
        return ""
    if at_top:
        return f" it belongs at the top of the file, not under `{section}`"
    return f" it belongs under `{homes[0]}`:{_typed(homes[0], key, child)}"


def _typed(section: str, key: str, child: Node) -> str:
    """Return what to type, as an override where it was one."""
    value = flow(plain(child))
    if child.origin.startswith(SET):
        return f" type {section}.{key}={value}"
    return f" type `{section}: {{{key}: {value}}}`"
