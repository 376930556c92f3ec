"""A study's report: its sections in order, from one snapshot of its journal and tables."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

from ...errors import clause, counted
from ...files.atomic_files import output, write_text
from ...store.aggregate_environments import Beside, Estimate, OnEach, beside, on_each, profiles
from ...store.journal import Journal
from ...store.rows import CommitHead, Stream
from ...store.statistics import mean_or_none
from ...store.study_folder import StudyFolder
from ...store.unobserved import bounded_interval
from ...store.value_bounds import value_bounds
from ...studies.study_environments import env_words
from ...version import __version__
from ..charts.knob_charts import effects, importance, parallel, slices
from ..charts.model import (
    SHARES,
    XY,
    Band,
    Key,
    Line,
    Picture,
    Scale,
    bands_first,
    labelled_ticks,
    profile_marks,
    round_ticks,
)
from ..charts.search_charts import curves, history, pareto, schedule
from ..charts.snapshot import Snapshot, read_snapshot
from ..environment_text import AGGREGATES_NOTE, TOGETHER, signed
from ..formatting import (
    around,
    between,
    duration,
    method_words,
    number,
    params_text,
    seeds_text,
    steps,
    versions_text,
)
from ..leaderboard_text import (
    BoardColumn,
    ColumnKind,
    audit_words,
    baselines_listing,
    board_columns,
    explained,
    front_line,
    headline,
    knob_columns,
    next_commands,
    score_columns,
    study_word,
    value_source,
)
from ..resuming import resuming
from ..time_spent import time_facts
from ..trial_view import Board
from .page import TableCell, facts, figure, page, placeholder, small_print, table

_MOST_COMPARED = 4
_TITLE = "Performance profile"
_NEXT = '<h2 class="next">'  # before commands that name the folder
_ROWS, _LONGEST_CELL = 200, 60


def profiled(snapshot: Snapshot) -> tuple[list[int], Stream | None]:
    """Return the trials to compare, and the kind of seeds to compare them on."""
    first = snapshot.winner
    if first is None or not first.value_from or not snapshot.scores.names:
        return [], None
    stream = Stream(first.value_from)
    ordered = [entry.trial for entry in snapshot.entries if entry.value is not None]
    shown = [trial for trial in ordered if snapshot.scores.of(trial, stream)][:_MOST_COMPARED]
    default = snapshot.default
    if default is not None and default not in shown and snapshot.scores.of(default, stream):
        shown.append(default)
    return shown, stream


def profile(snapshot: Snapshot) -> Picture:
    trials, stream = profiled(snapshot)
    if stream is None:
        why = "No trial has a value yet."
        if not snapshot.scores.names:
            why = "A performance profile needs several environments; this study has one."
        return Picture("profile", _TITLE, why)
    sides = [snapshot.scores.of(trial, stream) for trial in trials]
    found = profiles(sides)
    low, high = found[0].thresholds[0], found[0].thresholds[-1]
    ticks = labelled_ticks(round_ticks(low, high), number)
    marks: list[Line | Band] = []
    keys: list[Key] = []
    for place, (trial, side, one) in enumerate(zip(trials, sides, found, strict=True)):
        is_default = trial == snapshot.default
        style, shape = f"c{place}", "line"
        if is_default:
            style, shape = "base", "dashed"
        name = f"trial {trial}{', the default' * is_default}"
        tip = f"{name}, {counted(len(side), 'seed')}"
        marks += profile_marks(one, Line((), style, trial, tip, dashed=is_default))
        keys.append(Key(tip, style, shape))
    scale = Scale(low, high, ticks, "score")
    panel = XY("Runs above a score", scale, SHARES, bands_first(marks), tuple(keys), wide=True)
    caption = (
        "Each line is the share of runs, over all environments and seeds, that score above x. "
    )
    caption += (
        "Higher is better. Bands are pointwise 95% intervals (exact binomial, over all runs)."
    )
    if stream is not Stream.REPORT:
        caption += " These seeds were also used for selection."
    return Picture("profile", _TITLE, caption, (panel,))


def environments_section(snapshot: Snapshot) -> str:
    if not snapshot.scores.names:
        return ""
    trials, stream = profiled(snapshot)
    if stream is None:
        return placeholder("No trial has a value yet.")
    scores, default, against = snapshot.scores, snapshot.default, None
    found = [on_each(scores.of(trial, stream), scores.bounds) for trial in trials]
    names = ["the default" if trial == default else f"trial {trial}" for trial in trials]
    if stream is Stream.REPORT and default in trials[1:]:
        sides = scores.of(trials[0], stream), scores.of(default, stream)
        against = beside(*sides, paired=True, bounds=scores.bounds)
    many = seeds_text(max(one.seeds for one in found), stream)
    lost = sum(one.lost for one in found)
    text = f"Mean scores over {many}, with 95% intervals; 0 is random actions, 1 the reference."
    if lost:
        text += f" Means exclude diverged runs ({lost:,}); the profile ranks them lowest."
    return (
        f"{small_print(escape(text))}{_scores_table(snapshot, found, names, against)}"
        f"{_improvement_html(trials[0], against, stream)}{_overall_scores(found, names, against)}"
        f"{small_print(escape(AGGREGATES_NOTE))}{figure(profile(snapshot))}"
    )


def _estimate_cell(found: Estimate) -> TableCell:
    return TableCell(around(found.value, found.interval), found.value)


def _scores_table(
    snapshot: Snapshot, found: Sequence[OnEach], names: Sequence[str], against: Beside | None
) -> str:
    header = ["environment", *names]
    if against is not None:
        header += ["difference", "probability of improvement"]
    right = [False] * len(header) + [True, True]
    header += ["random", "reference"]
    rows: list[list[TableCell]] = []
    for at, scale in enumerate(snapshot.meta.environments):
        row = [TableCell(str(scale["name"]))]
        row += [_estimate_cell(one.each[at]) for one in found]
        if against is not None:
            here = against.each[at]
            row.append(TableCell(signed(here.difference), here.difference.value))
            row.append(_estimate_cell(here.probability))
        ends = (float(scale["random"]), float(scale["reference"]))
        row += [TableCell(number(end), end) for end in ends]
        rows.append(row)
    return table("Scores on each environment", header, rows, right=right)


def _overall_scores(found: Sequence[OnEach], names: Sequence[str], against: Beside | None) -> str:
    header = ["scores", *names]
    if against is not None:
        header.append("difference")
    rows: list[list[TableCell]] = []
    for over, words in TOGETHER.items():
        row = [TableCell(words), *(_estimate_cell(one.together[over]) for one in found)]
        if against is not None:
            row.append(
                TableCell(signed(against.differences[over]), against.differences[over].value)
            )
        rows.append(row)
    return table("Scores over all environments", header, rows)


def _improvement_html(first: int, against: Beside | None, stream: Stream) -> str:
    if against is None and stream is Stream.REPORT:
        return ""
    if against is None:
        why = "These seeds were also used to pick the first trial, so its scores are slightly "
        why += "optimistic."
        return small_print(why)
    likely = around(against.improvement.value, against.improvement.interval)
    text = f"Averaged over environments, the probability of improvement of trial {first} over "
    text += f"the default is {likely} on {counted(against.seeds - against.lost, 'paired seed')}."
    return f"<p>{escape(text)}</p>"


def write_report(folder: StudyFolder, path: Path | None = None) -> Path:
    text = report_html(read_snapshot(folder))
    if path is None:
        write_text(folder.report, text)
        return folder.report
    with output(path) as file:
        file.write(text)
    return path


def is_current(folder: StudyFolder) -> bool:
    """Return whether the report was written by this version, from this folder's last commit."""
    if not folder.report.is_file():
        return False
    text = folder.report.read_text(encoding="utf-8", errors="replace")
    with Journal(folder.path) as journal:
        foot = _footer_text(journal.head())
    named = escape(study_word(folder.path)) in text or _NEXT not in text
    return f"<footer>{foot}</footer>" in text and named


def leaderboard_table(snapshot: Snapshot) -> str:
    shown = Board.of_study(snapshot.meta, snapshot.entries[:_ROWS])
    if not shown.trials:
        return placeholder("No trial yet.")
    apart, same = knob_columns(shown.trials)
    columns = [*board_columns(shown), *score_columns(shown), *apart]
    cells = [_cells_of_column(column) for column in columns]
    text = table(
        "Leaderboard",
        [column.name.replace("\n", "") for column in columns],
        [list(row) for row in zip(*cells, strict=True)],
        trials=[one.trial for one in shown.trials],
        right=[_is_right(*pair) for pair in zip(columns, cells, strict=True)],
    )
    notes = [small_print(note) for note in _leaderboard_notes(shown, same, len(snapshot.entries))]
    if not shown.objectives:
        meaning = f"<summary>What the columns mean</summary>{_column_meanings(snapshot.unit)}"
        notes.append(f"<details>{meaning}</details>")
    return f"{text}{''.join(notes)}"


def _cells_of_column(column: BoardColumn) -> list[TableCell]:
    sorts = column.sorts or [None] * len(column.cells)
    shown = column.cells
    if column.kind is ColumnKind.PARAM:
        shown = map(_shortened_value, shown)
    return [TableCell(text, _sortable_number(by)) for text, by in zip(shown, sorts, strict=True)]


def _shortened_value(text: str) -> str:
    """Shorten the value of a hyperparameter that would make its column too wide."""
    if len(text) <= _LONGEST_CELL:
        return text
    return json.dumps(text[: _LONGEST_CELL - 3] + "...")


def _is_right(column: BoardColumn, cells: Sequence[TableCell]) -> bool:
    if column.kind is ColumnKind.PARAM:
        return all(cell.sort is not None or not cell.text for cell in cells)
    return column.right


def _leaderboard_notes(shown: Board, same: str, trials: int) -> list[str]:
    notes: list[str] = []
    if shown.environments:
        notes.append("Environment columns are scores: 0 is random actions, 1 the reference.")
    if same:
        notes.append(escape(same))
    if len(shown.trials) < trials:
        text = f"The first {len(shown.trials)} of {trials:,} trials"
        notes.append(f"{text}; for all: <code>trials.parquet</code>.")
    return notes


def _column_meanings(unit: str) -> str:
    """Return the meanings of the columns, as a list that also fits on a phone."""
    found: list[tuple[str, list[str]]] = []
    for line in explained(unit).splitlines():
        if line.startswith(" "):
            found[-1][1].append(line.strip())
        else:
            name, _, text = line.partition(" ")
            found.append((name, [text.strip()]))
    items = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(' '.join(texts))}</dd>" for name, texts in found
    )
    return f'<dl class="meanings">{items}</dl>'


def _sortable_number(value: Any) -> float | None:
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    if plain and abs(value) < float("inf"):
        return value
    return None


def baselines_table(snapshot: Snapshot) -> str:
    listing = baselines_listing(snapshot.baselines)
    sorts = [(None, e.value, None, None, e.difference, None) for e in snapshot.baselines]
    rows = [list(map(TableCell, texts, by)) for texts, by in zip(listing.rows, sorts, strict=True)]
    return table("Baselines", listing.header, rows, right=listing.right)


def rungs_table(snapshot: Snapshot) -> str:
    taken = {row.action for row in snapshot.decisions}
    actions = [action for action in _ACTIONS if action in taken]
    rows: list[list[TableCell]] = []
    for rung in sorted({row.rung for row in snapshot.decisions}):
        here = [row for row in snapshot.decisions if row.rung == rung]
        at, counts = min(row.env_steps for row in here), Counter(row.action for row in here)
        amounts = [len(here), *(counts[action] for action in actions)]
        cells = [TableCell(str(amount), amount) for amount in amounts]
        rows.append([TableCell(steps(at), at), *cells])
    header = (snapshot.unit, "compared", *(_ACTIONS[action] for action in actions))
    return table("Decisions at rungs", header, rows, right=[True] * len(header))


_ACTIONS = {
    "continue": "continued", "stop": "stopped", "audit": "would have stopped (audit)",
    "finish": "finished", "pause": "paused", "promote": "resumed later",
    "copy": "copied another trial",
}  # fmt: skip


PARTS: dict[str, tuple[str, Callable[[Snapshot], str]]] = {
    "pareto": ("Pareto front", lambda s: figure(pareto(s)) if s.meta.objectives else ""),
    "curves": ("Learning curves", lambda s: figure(curves(s))),
    "leaderboard": ("Leaderboard", leaderboard_table),
    "environments": ("Environments", environments_section),
    "history": ("History", lambda s: figure(history(s))),
    "importance": ("Importance of hyperparameters", lambda s: figure(importance(s))),
    "effects": ("Main effects", lambda s: _if_drawn(effects(s))),
    "parallel": ("Parallel coordinates", lambda s: figure(parallel(s))),
    "slices": ("Slices", lambda s: figure(slices(s))),
    "schedule": ("Schedules", lambda s: _if_drawn(schedule(s))),
    "stopping": ("Early stopping", lambda s: _stopping_html(s)),
    "baselines": ("Baselines", lambda s: baselines_table(s) if s.baselines else ""),
    "study": ("The study", lambda s: _study_html(s)),
}
"""Name -> (title, HTML) of the sections of a report, in order; empty ones are omitted."""


def _if_drawn(picture: Picture) -> str:
    if not picture.panels:
        return ""
    return figure(picture)


def report_html(snapshot: Snapshot, portable: bool = False) -> str:
    """Return the whole page; a portable one omits commands, because they contain local folders."""
    parts = {name: build for name, (_, build) in PARTS.items()}
    if portable:
        parts["study"] = lambda snapshot: _study_html(snapshot, portable=True)
    bodies = {name: build(snapshot) for name, build in parts.items()}
    sections = [(name, PARTS[name][0], body) for name, body in bodies.items() if body]
    title = f"{snapshot.meta.name} - hpo report"
    return page(title, head_html(snapshot, portable), sections, _footer_text(snapshot.head))


def head_html(snapshot: Snapshot, portable: bool = False) -> str:
    study = snapshot.study
    sub = f"{env_words(study)}, {method_words(study)}"
    commands = ""
    if not portable:
        commands = _next_commands(snapshot)
    return (
        f"<h1>{escape(snapshot.meta.name)}</h1>"
        f'<p class="sub">{escape(sub)} <span class="standing">{snapshot.standing}</span></p>'
        f"{_conclusion_html(snapshot, portable)}{facts(_key_facts(snapshot))}{commands}"
    )


def _conclusion_html(snapshot: Snapshot, portable: bool) -> str:
    best = snapshot.winner
    first, *others = headline(
        snapshot.conclusion, snapshot.entries, snapshot.metric, snapshot.unit
    )
    more = "".join(f"<br>{escape(text)}" for text in others)
    if snapshot.meta.objectives:
        more += f"<br>{escape(front_line(snapshot.entries, snapshot.volume))}"
    shown = f'<p class="winner shown"><strong>{escape(first)}</strong>{more}</p>'
    left = {"interrupted": "The run was interrupted", "died": "The process died"}
    if snapshot.standing in left and not portable:
        why = f"{left[snapshot.standing]}; {escape(resuming(snapshot.folder.path))}"
        shown += small_print(why)
    if best is not None and best.params:
        params = params_text(best.params)
        shown += small_print(f"Trial {best.trial}: {escape(params)}")
    return shown


def _next_commands(snapshot: Snapshot) -> str:
    """Return the commands to run next, once a study has finished."""
    if snapshot.standing != "finished":
        return ""
    folder, conclusion = snapshot.folder.path, snapshot.conclusion
    commands = next_commands(folder, snapshot.entries, conclusion)
    if commands and conclusion.winner is not None:
        name = study_word(folder)
        commands.append((f"hpo paper {name}", "methods, table and figures for a paper"))
        commands.append((f"hpo bundle {name} -o study.zip", "one file that readers can verify"))
    items = "".join(
        f"<li><code>{escape(command)}</code> {escape(meaning)}</li>"
        for command, meaning in commands
    )
    return clause(f'{_NEXT}Next</h2><ul class="next">{{}}</ul>', items)


def _key_facts(snapshot: Snapshot) -> list[tuple[str, str, str]]:
    usage, best = snapshot.usage, snapshot.winner
    states = Counter(str(row.state) for row in snapshot.searched.values())
    found: list[tuple[str, str, str]] = []
    if best is not None and not snapshot.meta.objectives:
        around = between(best.ci_low, best.ci_high)
        seeds = value_source(best.value_from, best.seeds, len(snapshot.entries)).split(",")[0]
        found.append(
            (snapshot.winner_word, number(best.value), f"trial {best.trial} {around} on {seeds}")
        )
    against = snapshot.conclusion.against
    if against.means is not None and against.verdict != "default":
        found.append(("default", *_default_value(snapshot)))
    ended = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    found.append(("trials", f"{len(snapshot.searched):,}", ended))
    spent = f"{steps(usage.env_steps)} {snapshot.unit}"
    return [*found, ("wall time", duration(usage.run_seconds), spent)]


def _default_value(snapshot: Snapshot) -> tuple[str, str]:
    """Return the default's mean over all its test seeds, and its interval with these seeds."""
    values = ()
    if snapshot.default is not None:
        values = snapshot.rows[snapshot.default].report_values
    around = bounded_interval(values, value_bounds(snapshot.meta))
    seeds = counted(len(values), "test seed")
    return number(mean_or_none(values)), f"{between(around.low, around.high)} on {seeds}".lstrip()


def _costs_html(snapshot: Snapshot) -> str:
    budget, usage, unit = snapshot.study.budget, snapshot.usage, snapshot.unit
    limits: list[str] = []
    if budget.trials is not None:
        limits.append(f"trials {budget.trials:,}")
    if budget.env_steps is not None:
        limits.append(f"{unit} {steps(budget.env_steps)}")
    if budget.wall_seconds:
        limits.append(f"time {duration(budget.wall_seconds)}")
    speed, lanes = steps(round(usage.env_steps_per_second)), snapshot.study.algorithm.lanes
    found = [
        (f"training {unit}", steps(usage.env_steps), f"budget: {', '.join(limits) or 'none'}"),
        (f"evaluation {unit}", steps(usage.eval_env_steps), ""),
        ("speed", f"{speed}/s", f"training {unit} per second"),
        (f"{lanes} busy", f"{usage.occupancy:.0%}", "while there was work"),
        *time_facts(usage.seconds_by_part),
    ]
    if snapshot.audit is not None:
        whole = snapshot.audit.whole
        found.append(("false stops", f"{whole.share or 0.0:.0%}", f"of {whole.audited} audited"))
    return facts(found)


def _footer_text(head: CommitHead) -> str:
    when = "-"
    if head.at:
        when = datetime.fromtimestamp(head.at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    commit = f"commit {head.number}, {when}"
    return f"Written by hpo {escape(__version__)} from {commit}. This file works offline."


def _stopping_html(snapshot: Snapshot) -> str:
    spec = snapshot.study.early_terminate
    if spec is None:
        return placeholder("The study has no stopping rule.")
    if not snapshot.decisions:
        return placeholder("No trial has been compared yet.")
    counts = Counter(decision.action for decision in snapshot.decisions)
    said = f"{len(snapshot.stopped):,} of {counted(len(snapshot.searched), 'trial')} stopped"
    if spec.evolves:
        said = f"copies: {counts['copy']:,}"
    body = f"<details><summary>{said}</summary>{rungs_table(snapshot)}</details>"
    if snapshot.audit is not None:
        words = escape(audit_words(snapshot.audit, snapshot.metric))
        by_rung = small_print("By rung: <code>hpo top --json</code>.")
        return f"<p>{words}</p>{body}{by_rung}"
    if spec.evolves:
        return body
    why = "To measure the rate of false stops, set <code>early_terminate: {audit: 0.1}</code>."
    if spec.audit:
        why = "No audited trial has finished its run yet."
        if snapshot.meta.objectives or snapshot.meta.constraints:
            why = "False stops are not measured with several objectives or constraints."
    return body + small_print(why)


def _study_html(snapshot: Snapshot, portable: bool = False) -> str:
    meta = snapshot.meta
    versions = versions_text(meta.versions)
    where = counted(meta.devices, f"{meta.backend} device")
    if meta.bits:
        where += f"; resumed {counted(meta.bits, 'time')} on different hardware or versions"
    given = ""
    if snapshot.folder.study_file.is_file() and not portable:
        given = _details_html("as given", snapshot.folder.kept_text())
    return (
        f"{given}{_details_html('with every default written out', meta.study_text)}"
        f"<details><summary>time, speed, versions</summary>{_costs_html(snapshot)}"
        f"{small_print(escape(f'{where}; {versions}'))}</details>"
    )


def _details_html(summary: str, text: str) -> str:
    code = f'<pre tabindex="0"><code>{escape(text)}</code></pre>'
    return f"<details><summary>{summary}</summary>{code}</details>"
