"""The pieces of a study's page: what happens now, its lanes, and the sections of its report."""

from __future__ import annotations

from html import escape

from ..charts.snapshot import Snapshot
from ..formatting import duration, moment, steps
from ..report.report import PARTS, head_html
from ..terminal.progress_text import (
    lanes_text,
    left_text,
    phase_text,
    standing_text,
    trials_text,
)
from .lanes_table import lanes_table
from .standing import Standing

__all__ = ["ASKED", "PIECES", "part_of", "progress_bar"]

ASKED = ("importance",)
"""Pieces that are not made before somebody asks: they take long where there are many trials.

Main effects are of the knobs that importance names, and come with it.
"""


_SECTIONS = tuple((part.name, part.title) for part in PARTS if part.name != "effects")
PIECES = (
    ("head", ""), ("now", ""), *_SECTIONS[:-1], ("lanes", "Lanes"), _SECTIONS[-1],
)  # fmt: skip
"""(name, title) of the pieces that a study's page has, in the report's order; some untitled."""


def part_of(name: str, snapshot: Snapshot, standing: Standing) -> str:
    """Return a piece as HTML.

    Args:
        name: one of `PIECES`.
        snapshot: of the study.
        standing: at the same commit.

    Raises:
        HpoError: the study is gone or damaged.
    """
    if name == "head":
        return head_html(snapshot)
    if name == "now":
        return now_html(standing)
    if name == "lanes":
        return lanes_table(snapshot, standing)
    found = _BUILD[name](snapshot)
    if name == "importance":
        effects = _BUILD["effects"](snapshot)
        found += f"<h3>Main effects</h3>{effects}" if effects else ""
    return found


_BUILD = {part.name: part.build for part in PARTS}


def progress_bar(standing: Standing) -> str:
    """Return how much of a study is done as a bar with its number."""
    share = standing.share
    return (
        f'<span class="share"><progress max="1" value="{share:.4f}"></progress> '
        f"<span>{share:.0%}</span></span>"
    )


def now_html(standing: Standing) -> str:
    """Return what a study does now."""
    head, progress = standing.head, standing.progress
    if progress is None:
        return f'<p class="note">{escape(_WORDS[standing.word])} Nothing is committed yet.</p>'
    told = [
        ("phase", phase_text(progress.phase)),
        ("env steps", f"{steps(progress.env_steps)} of about {steps(progress.env_steps_total)}, "
                      f"{steps(round(progress.env_steps_per_second))} a second"),
        ("lanes", lanes_text(progress)),
        ("trials", trials_text(progress)),
        ("best", standing_text(progress)),
    ]  # fmt: skip
    left = left_text(progress) if standing.word == "running" else ""
    clock = f"{duration(progress.seconds)}{left}"
    rows = "".join(f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in told)
    commit = f'Last commit: <time data-at="{head.at!r}">{escape(moment(head.at))}</time>.'
    shown = f'<dl class="now">{rows}</dl>' if standing.word == "running" else ""
    return (
        f'<div class="standing-line"><p>{progress_bar(standing)} <span>{escape(clock)}</span></p>'
        f'<p class="note">{escape(_WORDS[standing.word])} {commit}</p></div>{shown}'
    )


_WORDS = {
    "running": "Running.",
    "finished": "Finished.",
    "interrupted": "Interrupted; the command that started it resumes it.",
    "died": "Its process died; the command that started it resumes it from the last commit.",
}
