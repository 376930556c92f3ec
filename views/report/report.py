"""The report of a study: its sections in order, from one snapshot of its journal and tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from pathlib import Path

from ...errors import counted
from ...files.atomic_files import output, write_text
from ...store.statistics import interval
from ...store.study_folder import StudyFolder
from ...store.value_bounds import value_bounds
from ...studies.several_environments import env_words
from ...version import __version__
from ..charts.curves_chart import curves
from ..charts.knob_charts import effects, importance, parallel, slices
from ..charts.model import Picture
from ..charts.search_charts import history, pareto, schedule
from ..charts.snapshot import Snapshot, read_snapshot
from ..formatting import between, duration, moment, number, param, steps
from ..leaderboard_text import audit_words, front_line, headline, value_source
from ..time_spent import time_facts
from .environments_section import environments_section
from .html_tables import (
    audit_table,
    baselines_table,
    leaderboard_table,
    rungs_table,
)
from .page import Section, facts, figure, page


def write_report(folder: StudyFolder, path: Path | None = None) -> Path:
    """Write the report of a study, whole or not at all, and return its path."""
    text = report_html(read_snapshot(folder))
    if path is None:
        write_text(folder.report, text)
        return folder.report
    with output(path) as file:
        file.write(text)
    return path


@dataclass(frozen=True)
class Part:
    """A section of a report; `build` returns its HTML, "" if there is nothing to show."""

    name: str
    title: str
    build: Callable[[Snapshot], str]


PARTS = (
    Part("pareto", "Pareto front", lambda s: figure(pareto(s)) if s.meta.objectives else ""),
    Part("curves", "Learning curves", lambda s: figure(curves(s))),
    Part("leaderboard", "Leaderboard", leaderboard_table),
    Part("environments", "Environments", environments_section),
    Part("history", "History", lambda s: figure(history(s))),
    Part("importance", "Importance of hyperparameters", lambda s: figure(importance(s))),
    Part("effects", "Main effects", lambda s: _if_drawn(effects(s))),
    Part("parallel", "Parallel coordinates", lambda s: figure(parallel(s))),
    Part("slices", "Slices", lambda s: figure(slices(s))),
    Part("schedule", "Schedules", lambda s: _if_drawn(schedule(s))),
    Part("stopping", "Early stopping", lambda s: _stopping(s)),
    Part("baselines", "Baselines", lambda s: baselines_table(s) if s.baselines else ""),
    Part("study", "The study", lambda s: _study(s)),
)
"""The sections of a report, in order; those whose body is empty are left out."""


def _if_drawn(picture: Picture) -> str:
    return figure(picture) if picture.panels else ""


def report_html(snapshot: Snapshot) -> str:
    bodies = [(part, part.build(snapshot)) for part in PARTS]
    sections = [Section(part.name, part.title, body) for part, body in bodies if body]
    title = f"{snapshot.meta.name} - hpo report"
    return page(title, head_html(snapshot), sections, _foot(snapshot))


def head_html(snapshot: Snapshot) -> str:
    """Return the head of the page: the study, its winner, its cost."""
    study = snapshot.study
    rule = "" if study.early_terminate is None else f" + {study.early_terminate.type}"
    sub = f"{env_words(study)}, {study.search.method}{rule}"
    return (
        f"<h1>{escape(snapshot.meta.name)}</h1>"
        f'<p class="sub">{escape(sub)} <span class="standing">{snapshot.standing}</span></p>'
        f"{_conclusion(snapshot)}{facts(_facts(snapshot))}"
    )


def _conclusion(snapshot: Snapshot) -> str:
    best = snapshot.winner
    first, *others = headline(snapshot.conclusion, snapshot.entries, snapshot.meta.metric)
    more = "".join(f"<br>{escape(text)}" for text in others)
    if snapshot.meta.objectives:
        more += f"<br>{escape(front_line(snapshot.entries, snapshot.volume))}"
    shown = f'<p class="winner shown"><strong>{escape(first)}</strong>{more}</p>'
    if best is None or not best.params:
        return shown
    params = ", ".join(f"{name} {param(value)}" for name, value in best.params.items())
    return f'{shown}<p class="note">Trial {best.trial}: {escape(params)}</p>'


def _facts(snapshot: Snapshot) -> list[tuple[str, str, str]]:
    usage, best = snapshot.usage, snapshot.winner
    states = Counter(str(row.state) for row in snapshot.searched.values())
    found: list[tuple[str, str, str]] = []
    if best is not None and not snapshot.meta.objectives:
        around = between(best.ci_low, best.ci_high)
        seeds = value_source(best.value_from, best.seeds, len(snapshot.entries)).split(",")[0]
        name = "winner" if best.confirmed else "first"
        found.append((name, number(best.value), f"trial {best.trial} {around} on {seeds}"))
    against = snapshot.conclusion.against
    if against.means is not None and against.verdict != "default":
        found.append(("default", number(against.means[1]), _default_words(snapshot)))
    ended = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    found.append(("trials", f"{len(snapshot.searched):,}", ended))
    spent = f"{steps(usage.env_steps)} env steps"
    return [*found, ("wall time", duration(usage.run_seconds), spent)]


def _default_words(snapshot: Snapshot) -> str:
    default = next((entry for entry in snapshot.entries if entry.is_default), None)
    values = () if default is None else snapshot.rows[default.trial].report_values
    around = value_bounds(snapshot.meta).around(interval(values))
    seeds = counted(len(values), "test seed")
    return f"{between(around.low, around.high)} on {seeds}".lstrip()


def _costs(snapshot: Snapshot) -> str:
    budget, usage = snapshot.study.budget, snapshot.usage
    allowed = {
        "trials": None if budget.trials is None else f"{budget.trials:,}",
        "env steps": None if budget.env_steps is None else steps(budget.env_steps),
        "time": duration(budget.wall_seconds) if budget.wall_seconds else None,
    }
    limits = ", ".join(f"{what} {most}" for what, most in allowed.items() if most is not None)
    speed = steps(round(usage.env_steps_per_second))
    found = [
        ("training env steps", steps(usage.env_steps), f"budget: {limits or 'none'}"),
        ("evaluation env steps", steps(usage.eval_env_steps), ""),
        ("speed", f"{speed}/s", "training env steps per second"),
        ("lanes busy", f"{usage.occupancy:.0%}", "while there was work"),
        *time_facts(usage.seconds_by_part),
    ]
    if snapshot.audit is not None:
        whole = snapshot.audit.whole
        found.append(("wrong stops", f"{whole.share or 0.0:.0%}", f"of {whole.audited} audited"))
    return facts(found)


def _foot(snapshot: Snapshot) -> str:
    head = snapshot.head
    return (
        f"Written by hpo {escape(__version__)} from commit {head.number} of "
        f"{moment(head.at) if head.at else '-'}. This file needs no network; SQL over the same "
        "tables: <code>hpo query</code>."
    )


def _stopping(snapshot: Snapshot) -> str:
    spec = snapshot.study.early_terminate
    if spec is None:
        return '<p class="nothing">The study has no stopping rule.</p>'
    if not snapshot.decisions:
        return '<p class="nothing">No trial has been compared yet.</p>'
    counts = Counter(decision.action for decision in snapshot.decisions)
    stopped = counts["stop"] + counts["audit"]
    said = f"{counted(stopped, 'trial')} of {len(snapshot.searched):,} stopped"
    if spec.evolves:
        said = f"copies: {counts['copy']:,}"
    body = f"<details><summary>{said}</summary>{rungs_table(snapshot)}</details>"
    if snapshot.audit is not None:
        words = audit_words(snapshot.audit, snapshot.meta.metric)
        return (
            f"<p>{escape(words)}</p>{body}<details><summary>the audit of stops</summary>"
            f"{audit_table(snapshot.audit)}"
            '<p class="note">Audited trials are a random share of the stopped ones that ran to '
            "the end (<code>early_terminate.audit</code>). Tau is Kendall&#39;s rank correlation "
            "between values at a stop and at the end.</p></details>"
        )
    if spec.evolves:
        return body
    if spec.audit:
        why = "No audited trial has finished its run yet."
        if snapshot.meta.objectives or snapshot.meta.constraints:
            why = "With several objectives or constraints no single value can check stops."
        return f'{body}<p class="note">{why}</p>'
    return (
        f'{body}<p class="note">To check the stops, let one stopped trial in ten run on: '
        "<code>early_terminate: {audit: 0.1}</code>.</p>"
    )


def _study(snapshot: Snapshot) -> str:
    meta = snapshot.meta
    versions = ", ".join(f"{name} {version}" for name, version in meta.versions.items())
    where = counted(meta.devices, f"{meta.backend} device")
    bits = f"; resumed {counted(meta.bits, 'time')} on other hardware or versions"
    bits = bits if meta.bits else ""
    given = ""
    if snapshot.folder.study_file.is_file():
        text = snapshot.folder.study_file.read_text(encoding="utf-8", errors="replace")
        given = f"<details><summary>as given</summary>{_code(text)}</details>"
    return (
        f"{given}<details><summary>with every default written out</summary>"
        f"{_code(meta.study_text)}</details>"
        f"<details><summary>time, speed, versions</summary>{_costs(snapshot)}"
        f'<p class="note">{escape(f"{where}{bits}; {versions}")}</p></details>'
    )


def _code(text: str) -> str:
    return f'<pre tabindex="0"><code>{escape(text)}</code></pre>'
