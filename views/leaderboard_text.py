"""The leaderboard as a table that fits the terminal, and sentences about its winner."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..store.audits import Audit
from ..store.baselines import BaselineEntry
from ..store.conclusions import Conclusion
from ..store.leaderboard import Entry
from ..store.rows import TrialState
from .formatting import Listing, between, counted, number, param, steps
from .knob_columns import KnobColumns, knob_columns
from .leaderboard_notes import reading_notes

__all__ = [
    "SCORES_NOTE",
    "audit_words",
    "baselines_listing",
    "board",
    "front_line",
    "print_baselines",
    "print_conclusion",
    "print_leaderboard",
    "score_columns",
    "value_source",
    "winner_line",
]

_INTERVAL = "95% interval"
_GAP = 2  # blanks between two columns: one of padding, one of the box
_Column = tuple[str, list[str]]
SCORES_NOTE = "Under an environment: its mean score; 0 as random actions, 1 as the reference."


def print_leaderboard(
    console: Console,
    entries: Sequence[Entry],
    most: int | None = None,
    objectives: Sequence[str] = (),
    environments: Sequence[str] = (),
) -> None:
    """Print the best entries, the default below them, and what is needed to read them.

    Where the table has no room for every knob, a second one below it has all of them; likewise
    for the scores on several environments.

    Args:
        console: where to; its width decides how many knobs are shown.
        entries: the whole leaderboard, the best first.
        most: print so many at most; None prints all.
        objectives: their names, where there are several.
        environments: likewise.
    """
    shown = list(entries if most is None else entries[:most])
    shown += [entry for entry in entries[len(shown) :] if entry.is_default]
    if not shown:
        console.print("no trials yet", highlight=False)
        return
    knobs = knob_columns(entries, shown)
    scores = score_columns(shown, environments)
    table, hidden = board(shown, knobs, console.width, objectives, scores)
    if hidden:
        table, _ = board(shown, KnobColumns((), {}), console.width, objectives, scores)
    console.print(table)
    notes: list[str] = []
    if scores and not _has_room(shown, objectives, scores, console.width):
        table, left_out = _alone(shown, scores, console.width)
        if len(left_out) < len(scores):
            console.print()
            console.print(table)
        if left_out:
            notes.append(f"No room for the scores on {', '.join(left_out)}; see hpo show TRIAL.")
    if hidden:
        table, hidden = _knobs(shown, knobs, console.width)
        console.print()
        console.print(table)
    notes += [SCORES_NOTE] if scores else []
    notes += [knobs.same_words] if knobs.same else []
    if hidden:
        notes.append(f"No room for: {', '.join(hidden)}; see hpo show TRIAL, or the report.")
    notes += reading_notes(shown)
    if len(shown) < len(entries):
        notes.append(
            f"{counted(len(entries) - len(shown), 'more trial')}; -n {len(entries)} shows all."
        )
    for note in notes:
        console.print(Text(note, style="dim"))


def print_conclusion(console: Console, conclusion: Conclusion) -> None:
    """Print what a study has shown, the verdict in bold."""
    for place, text in enumerate(conclusion.said):
        console.print(Text(text, style="" if place else "bold"))


def print_baselines(console: Console, baselines: Sequence[BaselineEntry]) -> None:
    """Print the table of baselines, without comparison while no trial has a value."""
    if not baselines:
        return
    listing = baselines_listing(baselines)
    compared = any(entry.difference is not None for entry in baselines)
    text = listing.text() if compared else listing.first(4).text()
    console.print(Text(text), soft_wrap=True)


def baselines_listing(baselines: Sequence[BaselineEntry]) -> Listing:
    """Return the values of rules that learn nothing, and how far the best trial is from them."""
    rows: list[list[str]] = []
    for entry in baselines:
        apart, around = entry.difference, entry.difference_around
        rows.append(
            [
                entry.baseline,
                number(entry.value),
                between(entry.around.low, entry.around.high),
                f"{len(entry.values)} ({entry.stream})",
                "" if apart is None else f"{apart:+.4g}",
                "" if around is None else between(around.low, around.high),
            ]
        )
    header = ("baseline", "value", _INTERVAL, "seeds", "best minus this", _INTERVAL)
    return Listing(header, rows, (False, True, False, False, True, False))


def board(
    entries: Sequence[Entry],
    knobs: KnobColumns,
    width: int,
    objectives: Sequence[str] = (),
    scores: Sequence[_Column] = (),
) -> tuple[Table, list[str]]:
    """Return the table, and the knobs that found no room in it.

    Args:
        entries: its rows.
        knobs: their knobs, in order.
        width: in characters.
        objectives: their names, where there are several.
        scores: a column an environment; they are in it if there is room for all.
    """
    columns = _first_columns(entries, objectives)
    if scores and _has_room(entries, objectives, scores, width):
        columns += scores
    return _with_knobs(entries, columns, knobs, width)


def score_columns(entries: Sequence[Entry], environments: Sequence[str]) -> list[_Column]:
    """Return the mean score on each of several environments, from the seeds behind the value."""
    found: list[_Column] = []
    for at, name in enumerate(environments):
        cells = [number(entry.scores[at]) if entry.scores else "" for entry in entries]
        found.append((_folded(name, max(map(len, cells)), "-_"), cells))
    return found


def _has_room(
    entries: Sequence[Entry], objectives: Sequence[str], scores: Sequence[_Column], width: int
) -> bool:
    columns = [*_first_columns(entries, objectives), *scores]
    return sum(_width(name, cells) + _GAP for name, cells in columns) <= width


def _first_columns(entries: Sequence[Entry], objectives: Sequence[str]) -> list[_Column]:
    columns: list[_Column] = [
        ("#", [str(entry.rank) for entry in entries]),
        ("trial", [str(entry.trial) for entry in entries]),
        ("state", [_state(entry) for entry in entries]),
        *(_several(entries, objectives) if objectives else _one(entries)),
        ("seeds", [str(entry.seeds) for entry in entries]),
        ("steps", [steps(entry.env_steps) for entry in entries]),
    ]
    if any(entry.feasible is not None for entry in entries):
        words = {True: "yes", False: "no", None: ""}
        columns.insert(3, ("feasible", [words[entry.feasible] for entry in entries]))
    return columns


def _alone(
    entries: Sequence[Entry], scores: Sequence[_Column], width: int
) -> tuple[Table, list[str]]:
    """Return the table of the scores alone, and the environments that found no room in it."""
    columns: list[_Column] = [
        ("#", [str(entry.rank) for entry in entries]),
        ("trial", [str(entry.trial) for entry in entries]),
    ]
    left = width - sum(_width(name, cells) + _GAP for name, cells in columns)
    hidden: list[str] = []
    for name, cells in scores:
        needs = _width(name, cells) + _GAP
        if needs > left:
            hidden.append(name.replace("\n", ""))
            continue
        left -= needs
        columns.append((name, cells))
    return _with_knobs(entries, columns, KnobColumns((), {}), width)[0], hidden


def _knobs(entries: Sequence[Entry], knobs: KnobColumns, width: int) -> tuple[Table, list[str]]:
    """Return the table of the knobs alone, and those that found no room in it either."""
    columns = [
        ("#", [str(entry.rank) for entry in entries]),
        ("trial", [str(entry.trial) for entry in entries]),
    ]
    return _with_knobs(entries, columns, knobs, width)


def _with_knobs(
    entries: Sequence[Entry],
    columns: list[_Column],
    knobs: KnobColumns,
    width: int,
) -> tuple[Table, list[str]]:
    left = width - sum(_width(name, cells) + _GAP for name, cells in columns)
    hidden: list[str] = []
    for name in knobs.names:
        cells = [param(e.params[name]) if name in e.params else "" for e in entries]
        header = _folded(name, max(map(len, cells)))
        needs = _width(header, cells) + _GAP
        if needs > left:
            hidden.append(name)
            continue
        left -= needs
        columns.append((header, cells))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    for name, _ in columns:
        table.add_column(name, justify="left" if name == "state" else "right", no_wrap=True)
    for row, entry in zip(
        zip(*(cells for _, cells in columns), strict=True), entries, strict=True
    ):
        table.add_row(*row, style="bold" if entry.rank == 1 and entry.value is not None else None)
    return table, hidden


def _one(entries: Sequence[Entry]) -> list[_Column]:
    intervals = [_around(entry) for entry in entries]
    shown = [("value", [_value(entry) for entry in entries])]
    return [*shown, (_INTERVAL, intervals)] if any(intervals) else shown


def _several(entries: Sequence[Entry], objectives: Sequence[str]) -> list[_Column]:
    fronts = ["" if entry.front is None else str(entry.front) for entry in entries]
    columns: list[_Column] = [("front", fronts)]
    for index, name in enumerate(objectives):
        cells = [number(e.objectives[index]) if e.objectives else "" for e in entries]
        if index == 0:  # at least what a trial that was stopped showed
            cells = [cell or _value(e) for cell, e in zip(cells, entries, strict=True)]
        columns.append((_folded(name.removeprefix("eval/"), max(map(len, cells))), cells))
    return columns


def front_line(entries: Sequence[Entry], volume: float | None) -> str:
    """Return how many trials are on the Pareto front, and their hypervolume."""
    placed = [entry for entry in entries if entry.front is not None]
    if not placed and entries and entries[0].value is not None:
        return (
            "No trial keeps the constraints, so there is no Pareto front; trial "
            f"{entries[0].trial} violates them least."
        )
    if not placed:
        return "No trial has finished its run, so there is no Pareto front yet."
    group = [entry for entry in placed if entry.confirmed] or placed
    kind = "confirmed" if group[0].confirmed else "finished"
    best = [entry.trial for entry in group if entry.front == 1]
    shown = ", ".join(map(str, best[:12])) + (", ..." if len(best) > 12 else "")
    text = f"Pareto front: {len(best)} of {len(group)} {kind} trials ({shown})"
    if volume is None:
        return f"{text}."
    return f"{text}; hypervolume {volume:.3f} of the box between best and worst values."


def winner_line(entries: Sequence[Entry], metric: str) -> str:
    """Return the winner's value, with its trial and the kind of its seeds."""
    best = entries[0] if entries else None
    if entries and all(entry.state == "failed" for entry in entries):
        return (
            "Every trial failed; `hpo show TRIAL` shows why. Fix the cause and run the same "
            "command again; where trials failed for different reasons, with --new."
        )
    if best is None or best.value is None:
        return "No trial has finished its run, so there is no winner yet."
    value = f"{metric} {number(best.value)} {between(best.ci_low, best.ci_high)}".rstrip()
    source = value_source(best.value_from, best.seeds, len(entries))
    return f"Winner: trial {best.trial}, {value}, {source}."


def value_source(value_from: str, seeds: int, trials: int) -> str:
    """Return which seeds a value is from, and whether they also selected the trial of so many."""
    many = counted(seeds, "seed")
    if value_from == "search" and trials == 1:
        return f"from {many}; one trial ran, so that they selected nothing"
    fresh = f"the mean of {counted(seeds, 'fresh seed')}"
    return {
        "report": f"{fresh} that did not select it",
        "choose": f"{fresh} that also selected it",
        "search": f"from {many} of the search, which also selected it",
    }[value_from]


def audit_words(audit: Audit, metric: str) -> str:
    """Return a sentence or two on how often stops were wrong."""
    whole = audit.whole
    share = ""
    if whole.share is not None:
        share = f" ({whole.share:.0%}, 95% interval {whole.low:.0%} to {whole.high:.0%})"
    level = f", {whole.level} tied with it" if whole.level else ""
    best = f"{whole.winners or 'none'} better than all of those"
    audited = counted(whole.audited, "audited trial")
    return (
        f"{whole.wrong} of {audited}{share} ended better than the median of "
        f"the {audit.survivors} that were never stopped ({metric} {number(audit.bar)}){level}; "
        f"{best}."
    )


def _state(entry: Entry) -> str:
    if entry.state is TrialState.STOPPED:
        return f"stopped at {entry.rung}"
    if entry.state is TrialState.PAUSED:
        return f"paused at {entry.rung}"
    return str(entry.state)


def _value(entry: Entry) -> str:
    if entry.value is not None:
        return number(entry.value)
    return f"({number(entry.rung_value)})" if entry.rung_value is not None else ""


def _around(entry: Entry) -> str:
    return between(entry.ci_low, entry.ci_high)


def _width(header: str, cells: Sequence[str]) -> int:
    return max(len(line) for line in (*header.split("\n"), *cells))


def _folded(name: str, width: int, after: str = "_") -> str:
    """Return a name on several lines, broken after `_` or others, no wider than it must be."""
    lines: list[str] = []
    for word in re.split(f"(?<=[{re.escape(after)}])", name):
        if lines and len(lines[-1]) + len(word) <= max(width, len(word)):
            lines[-1] += word
        else:
            lines.append(word)
    return "\n".join(lines)
