"""Page frames for the list of studies, for one study, and for a message.

A page is sent immediately, before its content is known. A script in the page requests the parts of
the content, and requests each part again when it changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from urllib.parse import quote

from ...search.state.progress import Progress
from ...studies.study_environments import env_words
from ..formatting import number
from ..report.page import html_page, placeholder, script_text, scrolling, style_text
from .library import StudyLine
from .study_status import ASKED, PIECES, progress_bar

_HOME = '<p class="home"><a href="/">All studies</a></p>'
_NUMBERS = ("trials", "best")


def style() -> str:
    return style_text() + Path(__file__).with_name("live.css").read_text(encoding="utf-8")


def script() -> str:
    own = Path(__file__).with_name("live.js").read_text(encoding="utf-8")
    return f"{script_text()}\n{own}"


def _html_page(title: str, body: str) -> str:
    return html_page(
        title,
        '<link rel="stylesheet" href="/live.css">',
        f"<body>\n{body}\n"
        '<p id="lost" role="status" hidden>The server does not answer; this page may be out of '
        'date.</p>\n<noscript><p class="nothing">This page needs JavaScript; '
        "<code>hpo report</code> writes a static one.</p></noscript>\n"
        '<script src="/live.js"></script>',
    )


def message_page(title: str, text: str) -> str:
    body = f'<header>{_HOME}<h1>{escape(title)}</h1><p class="sub">{escape(text)}</p></header>'
    return _html_page(title, body)


def _loading_piece(study: str, part: str) -> str:
    return (
        f'<div class="piece" data-study="{escape(study)}" data-part="{part}">'
        '<p class="nothing">Reading ...</p></div>'
    )


def list_page(root: str) -> str:
    head = f'<header><h1>Studies</h1><p class="sub">in {escape(root)}</p></header>'
    return _html_page(f"Studies in {root}", f"{head}<main>{_loading_piece('', 'list')}</main>")


def list_table(lines: Sequence[StudyLine]) -> str:
    if not lines:
        return placeholder("No study yet; start one with <code>hpo run</code>.")
    heads = "".join(
        f'<th scope="col" class="{"num" if name in _NUMBERS else ""}">{name}</th>'
        for name in ("study", "state", "done", "trials", "best", "metric", "last commit")
    )
    return scrolling("Studies", heads, "".join(map(_study_row, lines)), whole=True)


def _study_row(line: StudyLine) -> str:
    name = escape(line.name)
    link = f'<a href="/study/{quote(line.name, safe="")}">{name}</a>'
    if line.standing is None:
        text, state = "reading ...", ""
        if line.error:
            text, state = escape(line.error), "cannot be read"
        return (
            f'<tr><td class="name">{link}</td><td class="state">{state}</td>'
            f'<td colspan="5" class="told">{text}</td></tr>'
        )
    standing, study = line.standing, line.standing.study
    first, progress = standing.first, standing.progress
    trials, when, best = "", "", ""
    if progress is not None:
        trials = _ended_text(progress)
    if standing.head.number:
        when = f'<time data-at="{standing.head.at!r}" data-ago></time>'
    if first is not None:
        best = number(first.value)
    return (
        f'<tr><td class="name">{link}<br>'
        f"<small>{escape(env_words(study))}, {escape(study.search.method)}</small></td>"
        f'<td class="state"><span class="standing {standing.word}">{standing.word}</span></td>'
        f'<td class="done">{progress_bar(standing)}</td><td class="num trials">{trials}</td>'
        f'<td class="num best">{best}</td>'
        f'<td class="metric">{escape(standing.meta.metric)}</td><td class="when">{when}</td></tr>'
    )


def _ended_text(progress: Progress) -> str:
    live = ("waiting", "running", "interrupted", "paused")
    ended = sum(count for state, count in progress.states.items() if state not in live)
    total = progress.trials_total
    if total is None or total == ended:
        return f"{ended:,}"
    return f"{ended:,} of {total:,}"


def study_page(name: str) -> str:
    shown = [(part, title) for part, title in PIECES if title]
    links = "".join(f'<a href="#{part}">{escape(title)}</a>' for part, title in shown)
    sections = "".join(
        f'<section id="{part}"><h2>{escape(title)}</h2>{_section_body(name, part)}</section>'
        for part, title in shown
    )
    top = "".join(_loading_piece(name, part) for part, title in PIECES if not title)
    foot = "A read-only live page of <code>hpo serve</code>."
    nav = f'<nav aria-label="Sections">{links}</nav>'
    head = f"<header>{_HOME}{top}</header>{nav}"
    return _html_page(name, f"{head}<main>{sections}</main><footer>{foot}</footer>")


def _section_body(name: str, part: str) -> str:
    if part not in ASKED:
        return _loading_piece(name, part)
    of = f'data-study="{escape(name)}" data-part="{part}"'
    button = f'<button type="button" class="ask" {of}>Compute it now</button>'
    text = "This takes a few seconds with hundreds of trials, longer with thousands."
    return f'<div class="asked" {of}><p class="nothing">{text}</p><p>{button}</p></div>'
