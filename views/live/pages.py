"""The pages around the pieces: the list of studies, one study, two side by side, a message.

A page comes at once and empty; its script asks for the pieces, and again when they have changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib.resources import files
from itertools import accumulate
from urllib.parse import quote

from ...search.state.progress import Progress
from ...studies.several_environments import env_words
from ..charts.model import XY, Key, Picture
from ..charts.model import Line as ChartLine
from ..charts.scales import steps_scale, value_scale
from ..charts.search_charts import improvements
from ..charts.snapshot import Snapshot
from ..formatting import number, steps
from ..report.page import html_page, script_text, style_text
from .library import Line
from .study_status import ASKED, PIECES, progress_bar

_TITLE = "Best so far"


def best_of_both(sides: Sequence[Snapshot]) -> Picture:
    """Draw the best value in the search over the env steps of all trials that had ended."""
    metrics = {(side.meta.metric, side.meta.goal) for side in sides}
    if len(metrics) > 1:
        told = " and ".join(f"{metric} ({goal})" for metric, goal in sorted(metrics))
        return Picture("both", _TITLE, f"They have different objectives: {told}.")
    ways = [_best_over_env_steps(side) for side in sides]
    if not any(ways):
        return Picture("both", _TITLE, "No trial of either has finished its run yet.")
    y = value_scale((value for way in ways for _, value in way), sides[0].meta.metric)
    end = max(at for way in ways for at, _ in way)
    x = steps_scale(end, "training env steps of ended trials")
    lines: list[ChartLine] = []
    for place, (side, way) in enumerate(zip(sides, ways, strict=True)):
        if way:
            at, value = way[-1]
            tip = f"{side.folder.name}: {number(value)} at {steps(round(at))}"
            lines.append(ChartLine(tuple(way), f"c{place}", tip=tip, step=True))
    keys = [Key(side.folder.name, f"c{place}", "line") for place, side in enumerate(sides)]
    caption = (
        "The best value of the search over the env steps of all trials that had ended. The value "
        "of a best trial is a little high; compare winners on test seeds with hpo compare."
    )
    panel = XY(_TITLE, x, y, tuple(lines), tuple(keys), wide=True)
    return Picture("both", _TITLE, caption, (panel,))


def _best_over_env_steps(side: Snapshot) -> list[tuple[float, float]]:
    """Return (env steps, best value) wherever the best value of a finished run improved."""
    ended = [row for row in side.rows.values() if row.ended_at is not None]
    ended.sort(key=lambda row: (row.ended_at, row.trial))
    spent = list(accumulate(float(row.env_steps) for row in ended))
    found = improvements(side.sign, [*zip(spent, (row.value for row in ended), strict=True)])
    return [*found, (spent[-1], found[-1][1])] if found else []


_SIDE = ("head", "now", "history", "curves", "leaderboard")
_NUMBERS = ("trials", "best")
_TITLES = {"history": "History", "curves": "Learning curves", "leaderboard": "Leaderboard"}


def style() -> str:
    return style_text() + _file("live.css")


def script() -> str:
    return f"{script_text()}\n{_file('live.js')}"


def _file(name: str) -> str:
    return files(__name__.rpartition(".")[0]).joinpath(name).read_text(encoding="utf-8")


def _page(title: str, body: str, kind: str = "") -> str:
    whole = f' class="{kind}"' if kind else ""
    return html_page(
        title,
        '<link rel="stylesheet" href="/live.css">',
        f"<body{whole}>\n{body}\n"
        '<p id="lost" role="status" hidden>The server does not answer; what you see may be old.'
        '</p>\n<noscript><p class="nothing">This page needs JavaScript; '
        "<code>hpo report</code> writes one that does not change.</p></noscript>\n"
        '<script src="/live.js"></script>',
    )


def message_page(title: str, text: str) -> str:
    body = (
        f'<header>{_home_link()}<h1>{escape(title)}</h1><p class="sub">{escape(text)}</p></header>'
    )
    return _page(title, body)


def _home_link(*more: str) -> str:
    return f'<div class="home"><a href="/">All studies</a>{"".join(more)}</div>'


def _waiting(study: str, part: str) -> str:
    return (
        f'<div class="piece" data-study="{escape(study)}" data-part="{part}">'
        '<p class="nothing">Reading ...</p></div>'
    )


def list_page(root: str) -> str:
    body = (
        f'<header><h1>Studies</h1><p class="sub">in {escape(root)}</p></header>'
        f'<main><form action="/both">{_waiting("", "list")}</form></main>'
    )
    return _page(f"Studies in {root}", body)


def list_table(lines: Sequence[Line]) -> str:
    """Return the list of studies as a table, with a box at each to choose two."""
    if not lines:
        return '<p class="nothing">No study yet; start one with <code>hpo run</code>.</p>'
    rows = "".join(map(_row, lines))
    button = ""
    if len(lines) > 1:
        button = '<p><button id="both" disabled>Show two side by side</button></p>'
    heads = "".join(
        f'<th scope="col" class="{"num" if name in _NUMBERS else ""}">{name}</th>'
        for name in ("", "study", "state", "done", "trials", "best", "metric", "last commit")
    )
    return (
        '<div class="scroll whole" tabindex="0" role="region" aria-label="Studies">'
        '<table class="studies">'
        f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>{button}"
    )


def _row(line: Line) -> str:
    name = escape(line.name)
    box = f'<input type="checkbox" name="study" value="{name}" aria-label="choose {name}">'
    link = f'<a href="/study/{quote(line.name, safe="")}">{name}</a>'
    if line.standing is None:
        told = escape(line.error) if line.error else "reading ..."
        state = "cannot be read" if line.error else ""
        return (
            f'<tr><td class="box"></td><td class="name">{link}</td><td class="state">{state}</td>'
            f'<td colspan="5" class="told">{told}</td></tr>'
        )
    standing, study = line.standing, line.standing.study
    first, progress = standing.first, standing.progress
    trials = "" if progress is None else _ended_text(progress)
    when = f'<time data-at="{standing.head.at!r}" data-ago></time>' if standing.head.number else ""
    return (
        f'<tr><td class="box">{box}</td><td class="name">{link}<br>'
        f"<small>{escape(env_words(study))}, {escape(study.search.method)}</small></td>"
        f'<td class="state"><span class="standing {standing.word}">{standing.word}</span></td>'
        f'<td class="done">{progress_bar(standing)}</td><td class="num trials">{trials}</td>'
        f'<td class="num best">{"" if first is None else number(first.value)}</td>'
        f'<td class="metric">{escape(standing.meta.metric)}</td><td class="when">{when}</td></tr>'
    )


def _ended_text(progress: Progress) -> str:
    live = ("waiting", "running", "interrupted", "paused")
    ended = sum(count for state, count in progress.states.items() if state not in live)
    total = progress.trials_total
    return f"{ended:,}" if total is None or total == ended else f"{ended:,} of {total:,}"


def study_page(name: str, others: Sequence[str]) -> str:
    shown = [(part, title) for part, title in PIECES if title]
    links = "".join(f'<a href="#{part}">{escape(title)}</a>' for part, title in shown)
    sections = "".join(
        f'<section id="{part}"><h2>{escape(title)}</h2>{_section_body(name, part)}</section>'
        for part, title in shown
    )
    top = "".join(_waiting(name, part) for part, title in PIECES if not title)
    body = (
        f"<header>{_home_link(_other_studies(name, others))}{top}</header>"
        f'<nav aria-label="Sections">{links}</nav><main>{sections}</main>'
        "<footer>A live page of <code>hpo serve</code>: it reads, and changes nothing.</footer>"
    )
    return _page(name, body)


def _section_body(name: str, part: str) -> str:
    if part not in ASKED:
        return _waiting(name, part)
    button = (
        '<p class="nothing">Takes some seconds with hundreds of trials, more with thousands.</p>'
        f'<p><button type="button" class="ask" data-study="{escape(name)}" data-part="{part}">'
        "Compute it now</button></p>"
    )
    return f'<div class="asked" data-study="{escape(name)}" data-part="{part}">{button}</div>'


def _other_studies(name: str, others: Sequence[str]) -> str:
    if not others:
        return ""
    options = "".join(f'<option value="{escape(o)}">{escape(o)}</option>' for o in others)
    return (
        f'<form action="/both" class="beside"><input type="hidden" name="study" '
        f'value="{escape(name)}"><label>next to <select name="study">{options}</select></label> '
        "<button>show</button></form>"
    )


def both_page(names: Sequence[str]) -> str:
    sides = "".join(_pair_of(part, names) for part in _SIDE)
    pair = "/".join(names)
    body = (
        f"<header>{_home_link()}<h1>{escape(names[0])} and {escape(names[1])}</h1></header>"
        f'<main><section class="together">{_waiting(pair, "both")}</section>'
        f'<div class="sides">{sides}</div></main>'
    )
    return _page(" and ".join(names), body, "two")


def _pair_of(part: str, names: Sequence[str]) -> str:
    title = _TITLES.get(part, "")
    heads = [f"<h2>{title} <small>{escape(name)}</small></h2>" * bool(title) for name in names]
    return "".join(f"<section>{head}{_waiting(name, part)}</section>"
                   for name, head in zip(names, heads, strict=True))  # fmt: skip
