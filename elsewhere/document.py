"""The tables of all systems as Markdown.

docs/coming-from.md ends with this text; a test compares them. To bring it up to date, replace what
stands there from the first heading of a system on, under "Names and values", by what
`python -m hpo.elsewhere.document` prints.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .rows import UNKNOWN, Row, System
from .tables import COMMON, SYSTEMS

__all__ = ["document"]


def document() -> str:
    """Return a section for each system, those of all systems last."""
    return "\n\n".join(_section(one) for one in (*SYSTEMS.values(), COMMON)) + "\n"


def _section(one: System) -> str:
    like = SYSTEMS.get(one.name.partition("_")[0], one)
    known = () if like is one else like.rows
    rows = [row for row in one.rows if row not in known]
    parts = [f"### {one.title[0].upper()}{one.title[1:]}"]
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


if __name__ == "__main__":
    print(document(), end="")
