"""The tables of all systems as Markdown, a page each in docs/coming-from/.

`scripts/docs --write` puts them there; a test compares them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .rows import UNKNOWN, Row, System
from .tables import COMMON, SYSTEMS

__all__ = ["documents"]


def documents() -> dict[str, str]:
    """Return the text of each page: a system's name -> its tables and those of its variants."""
    pages: dict[str, list[System]] = {"other": [COMMON]}
    for name, one in SYSTEMS.items():
        first = name.partition("_")[0]
        pages.setdefault(first if first in SYSTEMS else name, []).append(one)
    return {
        name: "\n\n".join(_section(one, len(those) > 1) for one in those) + "\n"
        for name, those in pages.items()
    }


def _section(one: System, headed: bool) -> str:
    like = SYSTEMS.get(one.name.partition("_")[0], one)
    known = () if like is one else like.rows
    rows = [row for row in one.rows if row not in known]
    parts = [f"### {one.title[0].upper()}{one.title[1:]}"] if headed else []
    parts += [f"Source: {one.source}."] if one.source else []
    parts += [f"As {like.title}, but:"] if known else []
    parts.append(_taken([row for row in rows if row.fate == "taken"]))
    for fate, heading in (("refused", "Refused"), ("left out", "Left out")):
        reasons = _by_reason(row for row in rows if row.fate == fate)
        if reasons:
            parts.append("\n".join([f"{heading}:", "", *reasons]))
    parts.append(_always(one))
    return "\n\n".join(part for part in parts if part)


def _always(one: System) -> str:
    if not one.always:
        return ""
    named = {row.target for row in one.rows if row.default is not UNKNOWN}
    given = {target: value for target, value in one.always.items() if target not in named}
    words = ", ".join(f"`{target}: {_ours(value)}`" for target, value in given.items())
    return f"Under no name there: {words}."


def _ours(value: Any) -> str:
    return "off" if value is None else _word(value)


def _taken(rows: list[Row]) -> str:
    if not rows:
        return ""
    names: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        means = "; ".join(part for part in (row.values.meaning, row.note) if part)
        names.setdefault((_default(row), row.target, means), []).append(f"`{row.name}`")
    lines = ["| there | default there | here | values |", "|---|---|---|---|"]
    for (default, target, means), those in names.items():
        lines.append(f"| {', '.join(those)} | {default} | `{target}` | {_cell(means)} |")
    return "\n".join(lines)


def _by_reason(rows: Iterable[Row]) -> list[str]:
    found: dict[str, list[str]] = {}
    for row in rows:
        plain = [value for value in row.harmless if value is not None and value is not False]
        unless = f" (unless {' or '.join(map(_word, plain))})" if plain else ""
        found.setdefault(row.because + unless, []).append(f"`{row.name}`")
    return [f"- {', '.join(names)}: {_cell(reason)}" for reason, names in found.items()]


def _default(row: Row) -> str:
    return "" if row.default is UNKNOWN else _cell(_word(row.default))


def _word(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
