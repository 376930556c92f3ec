"""The leaderboard as columns, for the terminal and the report, and sentences about its winner."""

from __future__ import annotations

import json
import re
import shlex
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..errors import counted
from ..knobs import KNOBS
from ..store.audits import Audit
from ..store.baselines import BaselineEntry
from ..store.leaderboard import Entry
from ..store.rows import TrialState
from ..store.study_folder import RESULTS, look_inside
from ..store.verdict import Conclusion
from .formatting import Listing, between, number, param, steps

_GROUPS = 4
_FEWEST = 10


@dataclass(frozen=True)
class KnobColumns:
    """The knobs of a leaderboard.

    Attributes:
        names: those with a column, the first first.
        same: those that all trials shown share, with their value; None of one that none has.
    """

    names: tuple[str, ...]
    same: Mapping[str, Any]

    @property
    def same_words(self) -> str:
        """What all trials shown share, in words; "" if nothing."""
        if not self.same:
            return ""
        return "Equal in all: " + ", ".join(f"{n} {param(v)}" for n, v in self.same.items()) + "."


def knob_columns(entries: Sequence[Entry], shown: Sequence[Entry]) -> KnobColumns:
    """Choose and order the knobs.

    Args:
        entries: the whole leaderboard, the best first.
        shown: those of them in the table; of one alone every knob has a column.
    """
    names = dict.fromkeys(name for entry in shown for name in entry.params)
    same = {} if len(shown) < 2 else {
        name: shown[0].params[name] for name in names
        if len({_key(entry.params, name) for entry in shown}) == 1
    }  # fmt: skip
    apart = told_apart(entries, [name for name in names if name not in same])
    ordered = sorted(apart, key=lambda name: (not _is_structural(name), -apart[name]))
    return KnobColumns(tuple(ordered), same)


def _is_structural(name: str) -> bool:
    return name in KNOBS and not KNOBS[name].traced


def _key(params: Mapping[str, Any], name: str) -> str | None:
    return json.dumps(params[name]) if name in params else None


def told_apart(entries: Sequence[Entry], names: Sequence[str]) -> dict[str, float]:
    """Return of each knob how much it tells about places on the leaderboard, from 0 to 1.

    The share of the variance of places that lies between groups of trials, less what as many
    groups would have by chance (epsilon squared; Kelley 1935); numbers form four groups of equally
    many, other values a group each. 0 with fewer than 10 trials that have a place. It only orders
    columns: which knobs decided is another question, with an answer of its own.

    Args:
        entries: the best first.
        names: of the knobs.
    """
    placed = [e for e in entries if e.value is not None or e.rung_value is not None]
    if len(placed) < _FEWEST:
        return dict.fromkeys(names, 0.0)
    return {name: _between(_groups([entry.params for entry in placed], name)) for name in names}


def _groups(configs: Sequence[Mapping[str, Any]], name: str) -> list[list[int]]:
    """Return the places of the trials in each group."""
    values = [(config[name], place) for place, config in enumerate(configs) if name in config]
    absent = [place for place, config in enumerate(configs) if name not in config]
    kinds: dict[Any, list[int]] = defaultdict(list)
    for value, place in values:
        kinds[_kind(value)].append(place)
    numeric = all(isinstance(v, int | float) and not isinstance(v, bool) for v, _ in values)
    groups = list(kinds.values())
    if numeric and len(kinds) > _GROUPS:
        values.sort()
        ends = [index * len(values) // _GROUPS for index in range(_GROUPS + 1)]
        groups = [[place for _, place in values[low:high]] for low, high in pairwise(ends)]
    return [group for group in (*groups, absent) if group]


def _kind(value: Any) -> Any:
    """Return what equal values share: 1 and 1.0 are two, as they are in JSON."""
    return (type(value), value) if type(value) in (int, float, str) else json.dumps(value)


def _between(groups: Sequence[Sequence[int]]) -> float:
    """Return the share of the variance of 0, 1, ..., n - 1 between groups, less that of chance."""
    count = sum(map(len, groups))
    free = count - len(groups)
    if free < 1 or len(groups) < 2:
        return 0.0
    middle = (count - 1) / 2
    whole = count * (count * count - 1) / 12
    between = sum(len(group) * (sum(group) / len(group) - middle) ** 2 for group in groups)
    return max(0.0, 1.0 - (1.0 - between / whole) * (count - 1) / free)


_INTERVAL = "95% interval"
_GAP = 1  # blanks between two columns
_NAMED = 3
_AT_A_RUNG = (
    TrialState.STOPPED, TrialState.PAUSED, TrialState.INTERRUPTED, TrialState.UNFINISHED
)  # fmt: skip
EXPLAINED = """\
status   winner: first after confirming. confirmed: run again on new seeds.
         stopped 12k: stopped by the rule at 12k env steps per seed. default: trial
         with the default configuration.
search*N value in the search, mean of N seeds per trial. A stopped trial shows its
         value where it was stopped.
select*N mean of N new seeds, the same for all confirmed trials. They choose the
         winner, so its value here is a little high.
test*N   mean of N other new seeds, which chose nothing. Only these are compared
         with the default.
order    confirmed trials by select, then finished ones by search, then stopped
         ones: those that got further first."""


@dataclass(frozen=True)
class Column:
    """One column of a leaderboard.

    Attributes:
        name: its header.
        cells: a text per entry.
        sorts: what a report sorts each by, None for texts.
        right: it is aligned to the right.
    """

    name: str
    cells: Sequence[str]
    sorts: Sequence[Any]
    right: bool = True


def headline(
    conclusion: Conclusion | None, entries: Sequence[Entry], metric: str, which: str | None = None
) -> list[str]:
    """Return the verdict on one line, then what else there is to know of it.

    Args:
        conclusion: of the study.
        entries: its leaderboard.
        metric: what it optimises, in words.
        which: the `--study` option of a command that would decide; None names no command.
    """
    if conclusion is not None and (conclusion.winner is not None or conclusion.front is not None):
        return [*conclusion.said, *_to_decide(conclusion, entries, which)]
    said = [] if conclusion is None or not entries or entries[0].value is None else conclusion.said
    return [winner_line(entries, metric), *said]


def _to_decide(conclusion: Conclusion, entries: Sequence[Entry], which: str | None) -> list[str]:
    """Return the command that runs the seeds which would decide; none where it is decided."""
    against = conclusion.against
    default = next((entry.trial for entry in entries if entry.is_default), None)
    if which is None or default is None or against.verdict != "undecided":
        return []
    if not against.more_seeds:
        return []
    seeds = against.seeds + against.more_seeds
    return [f"To decide:  hpo confirm {entries[0].trial} {default} --seeds {seeds}{which}"]


def print_headline(console: Console, lines: Sequence[str]) -> None:
    """Print the verdict in bold, and what there is to add to it."""
    for place, text in enumerate(lines):
        console.print(Text(text, style="" if place else "bold"))


def print_leaderboard(
    console: Console,
    entries: Sequence[Entry],
    most: int | None = None,
    objectives: Sequence[str] = (),
    environments: Sequence[str] = (),
    which: str = "",
) -> None:
    """Print the best entries and the default, with as many hyperparameters as fit, and one note.

    Args:
        console: where to.
        entries: the whole leaderboard, the best first.
        most: print so many at most; None prints all.
        objectives: their names, where there are several.
        environments: likewise.
        which: the `--study` option of commands that it names.
    """
    shown = list(entries if most is None else entries[:most])
    shown += [entry for entry in entries[len(shown) :] if entry.is_default]
    if not shown:
        console.print("No trial yet.", highlight=False)
        return
    columns = board_columns(shown, objectives)
    left = console.width - sum(_width(one) + _GAP for one in columns)
    hidden: list[str] = []
    for name, after, cells in [
        *((name, "-_", _scores(shown, at)) for at, name in enumerate(environments)),
        *((name, "_", knob_cells(shown, name)) for name in knob_columns(entries, shown).names),
    ]:
        column = Column(_folded(name, max(map(len, cells)), after), cells, ())
        if _width(column) + _GAP > left:
            hidden.append(name)
            continue
        left -= _width(column) + _GAP
        columns.append(column)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=0, show_edge=False)
    for column in columns:
        table.add_column(
            column.name, justify="right" if column.right else "left", no_wrap=True, vertical="top"
        )
    for row, entry in zip(zip(*(c.cells for c in columns), strict=True), shown, strict=True):
        table.add_row(*row, style="bold" if entry.rank == 1 and entry.value is not None else None)
    console.print(table)
    if environments:
        console.print(Text("Under an environment: score; 0 random, 1 the reference.", style="dim"))
    for line in _note(entries, shown, hidden, which):
        console.print(Text(line, style="dim"))


def _note(
    entries: Sequence[Entry], shown: Sequence[Entry], hidden: Sequence[str], which: str
) -> list[str]:
    """Return what the table left out, and what to type to see it."""
    lines: list[str] = []
    if len(shown) < len(entries):
        left_out = len(entries) - len(shown)
        lines.append(f"{left_out:,} more: hpo top -n {len(entries)}{which}")
    also = list(hidden[:_NAMED]) + [f"{len(hidden) - _NAMED} more"] * (len(hidden) > _NAMED)
    if also:
        lines.append(f"Not shown: {', '.join(also)}; see hpo show {shown[0].trial}{which}")
    return lines


def board_columns(entries: Sequence[Entry], objectives: Sequence[str] = ()) -> list[Column]:
    """Return the columns before the hyperparameters: place, trial, status, values by seeds.

    Args:
        entries: the rows.
        objectives: their names, where there are several.
    """
    columns = [
        Column("#", [str(e.rank) for e in entries], [e.rank for e in entries]),
        Column("trial", [str(e.trial) for e in entries], [e.trial for e in entries]),
        Column("status", [_status(e) for e in entries], [None] * len(entries), right=False),
    ]
    if any(entry.feasible is not None for entry in entries):
        words = {True: "yes", False: "no", None: ""}
        cells = [words[entry.feasible] for entry in entries]
        columns.append(Column("feasible", cells, [None] * len(entries), right=False))
    if objectives:
        return [*columns, *_fronts(entries, objectives)]
    counts = {e.search_seeds for e in entries if _searched(e) is not None and e.search_seeds}
    search = "search" if len(counts) != 1 else f"search*{max(counts)}"
    columns.append(_values(search, [_searched(e) for e in entries]))
    if len(counts) > 1:
        cells = [str(e.search_seeds) if _searched(e) is not None else "" for e in entries]
        columns.append(Column("seeds", cells, [e.search_seeds for e in entries]))
    chosen = [e.choose_value for e in entries]
    most = max((e.choose_seeds for e in entries), default=0)
    if any(value is not None for value in chosen):
        # A value of fewer seeds is not comparable with these: hpo show has it.
        same = [
            v if e.choose_seeds == most else None for v, e in zip(chosen, entries, strict=True)
        ]
        columns.append(_values(f"select*{most}", same))
    tested = [e.report_value for e in entries]
    counts = {e.report_seeds for e in entries if e.report_value is not None}
    if counts:
        columns.append(_values(f"test*{max(counts)}" if len(counts) == 1 else "test", tested))
    if len(counts) > 1:
        cells = [str(e.report_seeds) if e.report_value is not None else "" for e in entries]
        columns.append(Column("test\nseeds", cells, [e.report_seeds for e in entries]))
    return columns


def _searched(entry: Entry) -> float | None:
    """Return the value in the search: at the end of the run, or at the last rung."""
    return entry.search_value if entry.search_value is not None else entry.rung_value


def _values(name: str, values: Sequence[float | None]) -> Column:
    return Column(name, [number(value) for value in values], [*values])


def _fronts(entries: Sequence[Entry], objectives: Sequence[str]) -> list[Column]:
    """Return the front and a column per objective, from the seeds behind the value."""
    fronts = ["" if entry.front is None else str(entry.front) for entry in entries]
    columns = [Column("front", fronts, [entry.front for entry in entries])]
    for index, name in enumerate(objectives):
        values = [e.objectives[index] if e.objectives else None for e in entries]
        if index == 0:  # at least what a trial that was stopped showed
            values = [
                _searched(e) if v is None else v for v, e in zip(values, entries, strict=True)
            ]
        found = _values("", values)
        header = _folded(name.removeprefix("eval/"), max(map(len, found.cells)))
        columns.append(Column(header, found.cells, values))
    seeds = [entry.seeds for entry in entries]
    return [*columns, Column("seeds", list(map(str, seeds)), seeds)]


def _scores(entries: Sequence[Entry], at: int) -> list[str]:
    """Return the mean score on one of several environments, from the seeds behind the value."""
    return [number(entry.scores[at]) if entry.scores else "" for entry in entries]


def knob_cells(entries: Sequence[Entry], name: str) -> list[str]:
    """Return the value of one hyperparameter in every entry, "" where it is not active."""
    return [param(entry.params[name]) if name in entry.params else "" for entry in entries]


def _status(entry: Entry) -> str:
    """Return what became of a trial, a stop with its env steps per seed."""
    where = "" if entry.rung_env_steps is None else f" {steps(entry.rung_env_steps)}"
    state = str(entry.state)
    if entry.state in _AT_A_RUNG:
        state = f"{entry.state}{where}"
    if entry.rank == 1 and entry.value is not None and entry.confirmed:
        state = "winner"
    if not entry.is_default:
        return state
    if entry.state is TrialState.STOPPED:
        return f"default,{where}" if where else "default, stopped"
    known = ("winner", TrialState.FINISHED, TrialState.CONFIRMED, TrialState.REFERENCE)
    return "default" if state in map(str, known[1:]) else f"default, {state}"


def print_baselines(console: Console, baselines: Sequence[BaselineEntry]) -> None:
    """Print the table of baselines, without comparison while no trial has a value."""
    if not baselines:
        return
    listing = baselines_listing(baselines)
    compared = any(entry.difference is not None for entry in baselines)
    text = listing.text() if compared else listing.first(4).text()
    console.print(Text(text), soft_wrap=True)


def baselines_listing(baselines: Sequence[BaselineEntry]) -> Listing:
    """Return the values of heuristics, and how far the best trial is from them."""
    rows: list[list[str]] = []
    for entry in baselines:
        apart, around = entry.difference, entry.difference_around
        rows.append(
            [
                entry.baseline,
                number(entry.value),
                between(entry.around.low, entry.around.high),
                f"{len(entry.values)} {_SEEDS[str(entry.stream)]}",
                "" if apart is None else f"{apart:+.4g}",
                "" if around is None else between(around.low, around.high),
            ]
        )
    header = ("baseline", "value", _INTERVAL, "seeds", "best minus this", _INTERVAL)
    return Listing(header, rows, (False, True, False, False, True, False))


_SEEDS = {"report": "test", "choose": "selection", "search": "search"}


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
    text = f"Pareto front: {len(best)} of {counted(len(group), f'{kind} trial')} ({shown})"
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
    if best is None or (best.value is None and best.rung_value is None):
        return "No trial has finished its run, so there is no winner yet."
    if best.value is None:
        seeds = counted(best.search_seeds, "search seed")
        at = "" if best.rung_env_steps is None else f" at {steps(best.rung_env_steps)} env steps"
        lead = f"Trial {best.trial} leads: {number(best.rung_value)} on {seeds}{at}."
        return f"No trial has finished its run. {lead}"
    value = f"{number(best.value)} {between(best.ci_low, best.ci_high)}".rstrip()
    source = value_source(best.value_from, best.seeds, len(entries))
    return f"Trial {best.trial} is first: {metric} {value} on {source}."


def value_source(value_from: str, seeds: int, trials: int) -> str:
    """Return on which seeds a value was measured, and whether they also selected the trial."""
    many = counted(seeds, "seed")
    if value_from == "search" and trials == 1:
        return f"{many} of its one trial"
    return {
        "report": f"{seeds} test {'seed' if seeds == 1 else 'seeds'}",
        "choose": f"{seeds} selection {'seed' if seeds == 1 else 'seeds'}, which also chose it",
        "search": f"{seeds} search {'seed' if seeds == 1 else 'seeds'}, which also chose it",
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


def target(folder: Path) -> str:
    """Return the `--study` option for a folder; "" if it is the only study in `results`."""
    if folder.absolute().parent == RESULTS.absolute():
        if list(look_inside(RESULTS).changed) == [folder.name]:
            return ""
        return f" --study {shlex.quote(folder.name)}"
    return f" --study {shlex.quote(str(folder))}"


def _width(column: Column) -> int:
    return max(len(line) for line in (*column.name.split("\n"), *column.cells))


def _folded(name: str, width: int, after: str = "_") -> str:
    """Return a name on several lines, broken after `_` or others, no wider than it must be."""
    lines: list[str] = []
    for word in re.split(f"(?<=[{re.escape(after)}])", name):
        if lines and len(lines[-1]) + len(word) <= max(width, len(word)):
            lines[-1] += word
        else:
            lines.append(word)
    return "\n".join(lines)
