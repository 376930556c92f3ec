"""The tables of other systems' names as Markdown, for docs/reference/foreign-names.md."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hpo.foreign_names.name_mapping import COMMON, UNKNOWN, NameRow, System, in_words
from hpo.foreign_names.tables import SYSTEMS


def names_elsewhere() -> str:
    """Return the versions, and the tables of all systems; variants list only differences."""
    sections = (_section(one) for one in (*SYSTEMS.values(), COMMON))
    return "\n\n".join([_versions(), *sections]) + "\n"


def _versions() -> str:
    """Return the versions that can be selected, with the names that select them."""
    lines = [
        "## Versions",
        "",
        "| system | `-- --version` | read for | chosen by |",
        "|---|---|---|---|",
    ]
    for one in SYSTEMS.values():
        if one.tag:
            tags = ", ".join(f"`{tag}`" for tag in one.tag.split())
            told = [f"`{name}`" for name in sorted(one.only)]
            told += [" with ".join(f"`{n}`" for n in sorted(names)) for names in one.together]
            names = ", ".join(told)
            lines.append(f"| {one.title} | {tags} | {one.version} | {names} |")
    return "\n".join(lines)


def _section(one: System) -> str:
    like = SYSTEMS.get(one.family, one)
    known = () if like is one else like.rows
    rows = [row for row in one.rows if row not in known]
    older = f" {one.tag.partition(' ')[0]}" if known and one.title == like.title else ""
    parts = [
        f"## {one.title[0].upper()}{one.title[1:]}{older}",
        f"Source: {one.source}{', ' + one.version if one.version else ''}.",
    ]
    parts += [f"As {like.title}, but (`--system {one.name}`):"] if known else []
    parts.append(_taken([row for row in rows if row.fate == "taken"]))
    for fate, heading in (("refused", "Refused"), ("left out", "Left out")):
        reasons = _by_reason(row for row in rows if row.fate == fate)
        if reasons:
            parts.append("\n".join([f"{heading}:", "", *reasons]))
    named = {row.target for row in one.rows if row.default is not UNKNOWN}
    given = ", ".join(
        f"`{target}: {in_words(value)}`"
        for target, value in one.always.items()
        if target not in named
    )
    parts += [f"Under no name there: {given}."] if given else []
    return "\n\n".join(part for part in parts if part)


def _taken(rows: list[NameRow]) -> str:
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


def _by_reason(rows: Iterable[NameRow]) -> list[str]:
    found: dict[str, list[str]] = {}
    for row in rows:
        plain = [value for value in row.harmless if value is not None and value is not False]
        words = list(dict.fromkeys(map(_word, plain)))
        unless = f" (unless {' or '.join(words)})" if words else ""
        found.setdefault(row.because + unless, []).append(f"`{row.name}`")
    return [f"- {', '.join(names)}: {_cell(reason)}" for reason, names in found.items()]


def _default(row: NameRow) -> str:
    return "" if row.default is UNKNOWN else _cell(_word(row.default))


def _word(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if value in ("", [], {}):
        return "empty"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
