"""The page around a report's sections: one HTML file without network access or third-party code.

Its content security policy allows only this package's style and script, identified by hash, so
that names in a study cannot inject code.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from ...errors import clause
from ..charts.model import (
    BAND,
    DASH,
    GROUNDS,
    LETTERS,
    LINE,
    STRAND,
    STYLES,
    THIN,
    Key,
    Panel,
    Picture,
)
from ..charts.svg import panel_svg

_LONG_NAME = 12
_WIDE, _HALF, _THIRD, _NARROW = 920, 448, 296, 358


def page(title: str, head: str, sections: Sequence[tuple[str, str, str]], foot: str) -> str:
    """Return the whole page; each section is (name, title, body)."""
    style, script = style_text(), script_text()
    links = "".join(f'<a href="#{name}">{escape(words)}</a>' for name, words, _ in sections)
    body = "".join(
        f'<section id="{name}"><h2>{escape(words)}</h2>{body}</section>'
        for name, words, body in sections
    )
    return html_page(
        title,
        f"{policy_tag([style], [script])}\n<style>{style}</style>",
        f'<body>\n<header>{head}</header>\n<nav aria-label="Sections">{links}</nav>\n'
        f"<main>{body}</main>\n<footer>{foot}</footer>\n<script>{script}</script>",
    )


def policy_tag(styles: Sequence[str], scripts: Sequence[str]) -> str:
    """Return the tag that allows a page only these styles and scripts, and no other sources."""
    policy = (
        f"default-src 'none'; img-src data:; style-src {' '.join(map(allowed, styles))}; "
        f"script-src {' '.join(map(allowed, scripts))}; base-uri 'none'; form-action 'none'"
    )
    return f'<meta http-equiv="Content-Security-Policy" content="{policy}">'


def small_print(html: str) -> str:
    return f'<p class="note">{html}</p>'


def placeholder(html: str) -> str:
    """Return a paragraph in place of a part that has no content."""
    return f'<p class="nothing">{html}</p>'


def html_page(title: str, more: str, body: str) -> str:
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f'<link rel="icon" href="data:,">\n{more}\n<title>{escape(title)}</title>\n</head>\n'
        f"{body}\n</body>\n</html>\n"
    )


def style_text() -> str:
    return _colours_css() + Path(__file__).with_name("report.css").read_text(encoding="utf-8")


def script_text() -> str:
    return Path(__file__).with_name("report.js").read_text(encoding="utf-8")


def allowed(text: str) -> str:
    """Return the content security policy's source expression for a script or style."""
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _colours_css() -> str:
    both = {**GROUNDS, **STYLES}
    light = "".join(f"--{name}:{colour};" for name, (colour, _) in both.items())
    dark = "".join(f"--{name}:{colour};" for name, (_, colour) in both.items())
    light += f"--letters:{LETTERS}px;--line:{LINE};--thin:{THIN};--strand:{STRAND};--veil:{BAND};"
    light += f"--dash:{DASH[0]:g} {DASH[1]:g};color-scheme:light dark;"
    used = "".join(f".{name}{{--own:var(--{name})}}" for name in STYLES)
    return f":root{{{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}{used}"


def facts(pairs: Sequence[tuple[str, str, str]]) -> str:
    items = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}"
        f"{clause('<small>{}</small>', escape(remark))}</dd></div>"
        for name, value, remark in pairs
    )
    return f'<dl class="facts">{items}</dl>'


@dataclass(frozen=True)
class TableCell:
    text: str
    sort: float | None = None


def table(
    caption: str,
    header: Sequence[str],
    rows: Sequence[Sequence[TableCell]],
    trials: Sequence[int] = (),
    right: Sequence[bool] = (),
) -> str:
    sides = [' class="num"' if is_right else "" for is_right in right] or [""] * len(header)
    before, after = "", ""
    if len(rows) > 1:
        before, after = '<button type="button">', "</button>"
    heads = "".join(
        f'<th scope="col"{side}>{before}{_break_long_name(word)}{after}</th>'
        for word, side in zip(header, sides, strict=True)
    )
    lines: list[str] = []
    for index, row in enumerate(rows):
        whose = ""
        if trials:
            whose = f' data-t="{trials[index]}"'
        if trials and index == 0:
            whose += ' class="first"'
        sorts = ["" if cell.sort is None else f' data-s="{cell.sort!r}"' for cell in row]
        cells = "".join(
            f"<td{side}{sort}>{escape(cell.text)}</td>"
            for cell, side, sort in zip(row, sides, sorts, strict=True)
        )
        lines.append(f"<tr{whose}>{cells}</tr>")
    return scrolling(caption, heads, "".join(lines))


def _break_long_name(word: str) -> str:
    """Allow a long column name to break after `_`, so that its table is not too wide."""
    shown = escape(word)
    if len(word) <= _LONG_NAME:
        return shown
    return shown.replace("_", "_<wbr>")


def scrolling(caption: str, heads: str, rows: str, whole: bool = False) -> str:
    """Return a table in a scrolling box; `whole` selects the style for the list of studies."""
    box, kind = "scroll", ""
    if whole:
        box, kind = "scroll whole", ' class="studies"'
    return (
        f'<div class="{box}" tabindex="0" role="region" aria-label="{escape(caption)}">'
        f"<table{kind}><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def figure(picture: Picture) -> str:
    if not picture.panels:
        return placeholder(escape(picture.caption))
    parts = [_panel_html(picture, panel, _WIDE) for panel in picture.panels if panel.wide]
    small = [panel for panel in picture.panels if not panel.wide]
    if small:
        width, kind = _THIRD, "panels"
        if len(small) <= 2:
            width, kind = _HALF, "panels pair"
        drawn = "".join(_panel_html(picture, panel, width) for panel in small)
        parts.append(f'{legend(picture.keys)}<div class="{kind}">{drawn}</div>')
    caption = f"<figcaption>{escape(picture.caption)}</figcaption>"
    return f'<figure class="{picture.name}">{"".join(parts)}{caption}</figure>'


def _panel_html(picture: Picture, panel: Panel, width: int) -> str:
    alt = f"{picture.title}: {panel.title}. {picture.caption}"
    drawn = panel_svg(panel, width, alt)
    if width > _NARROW:  # in two widths: a phone shows the other one
        narrow = panel_svg(panel, _NARROW, alt)
        drawn = f'<div class="wide">{drawn}</div><div class="narrow">{narrow}</div>'
    title = f"<h3>{escape(panel.title)}</h3>"
    return f'<div class="panel">{title}{legend(panel.keys)}{drawn}</div>'


def legend(keys: Sequence[Key]) -> str:
    if not keys:
        return ""
    items = "".join(
        f'<li class="{key.style}"><i class="{key.shape}"></i>{escape(key.label)}</li>'
        for key in keys
    )
    return f'<ul class="legend">{items}</ul>'
