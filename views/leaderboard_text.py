"""The leaderboard as columns, for terminal and report, and sentences about its winner."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
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
from ..store.study_folder import RESULTS, StudyFolder, look_inside
from ..store.verdict import Conclusion
from ..studies.algorithm import ENV_STEPS
from ..studies.spec import WITH_TRAINING
from .formatting import (
    SEED_KINDS,
    Listing,
    between,
    broken_name,
    in_unit,
    number,
    param,
    seeds_text,
    steps,
    with_interval,
)
from .time_spent import confirm_command, confirm_cost

_INTERVAL = "95% interval"
_GAP = 1  # blanks between two columns
_NAMED = 3
_ENOUGH = 8  # test seeds of a first look, at least
_SHOWN_WITH_RUNG = (
    TrialState.STOPPED,
    TrialState.PAUSED,
    TrialState.INTERRUPTED,
    TrialState.UNFINISHED,
)
EXPLAINED = """\
status   winner: first after confirming. confirmed: run again on new seeds.
         stopped 12k: stopped by the rule at 12k env steps per seed.
         default: trial with the default configuration.
search*N value in the search, mean of N seeds per trial. A stopped trial shows
         its value where it was stopped. With metric.training_weight, training
         returns count in search and select values.
select*N mean of N new seeds, the same for all confirmed trials. They choose the
         winner, so its value here is a little too good.
test*N   mean of N other new seeds, with no part in any choice. Only these are
         compared with the default.
feasible keeps the constraints. front: 1 for the Pareto front of each status.
order    confirmed trials by select, then finished ones by search, then stopped
         ones: those that got further first."""


def knob_columns(shown: Sequence[Entry]) -> tuple[list[str], str]:
    """Return the differing hyperparameters, and a sentence about the others."""
    names = dict.fromkeys(name for entry in shown for name in entry.params)
    same = (
        {}
        if len(shown) < 2
        else {
            name: shown[0].params[name]
            for name in names
            if len({name in entry.params and json.dumps(entry.params[name]) for entry in shown})
            == 1
        }
    )
    apart = [name for name in names if name not in same]
    apart.sort(key=lambda name: name not in KNOBS or KNOBS[name].traced)
    words = ", ".join(f"{name} {param(value)}" for name, value in same.items())
    return apart, f"Equal in all: {words}." if same else ""


@dataclass(frozen=True)
class Column:
    name: str
    cells: Sequence[str]
    sorts: Sequence[Any] | None = None  # None: in the order of its texts
    right: bool = True


def headline(conclusion: Conclusion | None, entries: Sequence[Entry], metric: str) -> list[str]:
    if conclusion is not None and (conclusion.winner is not None or conclusion.front is not None):
        return [*conclusion.said]
    said = [] if conclusion is None or not entries or entries[0].value is None else conclusion.said
    return [winner_line(entries, metric), *said]


def deciding_command(
    conclusion: Conclusion, entries: Sequence[Entry], folder: Path
) -> tuple[str, str] | None:
    """Return the command that decides between the first trial and the default, and its cost."""
    default = next((entry.trial for entry in entries if entry.is_default), None)
    if default is None or conclusion.better_rule is not None:
        return None  # a heuristic is better than the first trial: who else is does not matter
    seeds = _deciding_seeds(conclusion, entries)
    if not seeds:
        return None
    trials = (entries[0].trial, default)
    return confirm_command(trials, seeds, target(folder)), confirm_cost(folder, trials, seeds)


def _deciding_seeds(conclusion: Conclusion, entries: Sequence[Entry]) -> int:
    """Return how many test seeds would decide; 0 if none would, or if there is a verdict."""
    against, first = conclusion.against, entries[0]
    if against.verdict == "undecided":
        more = against.more_seeds or 0
        return seeds_to_propose(against.seeds, more) if more else 0
    untested = conclusion.winner is None and conclusion.front is None and not first.objectives
    if not untested or first.value is None or first.is_default or first.value_from == "report":
        return 0
    if first.copies:
        return 0
    return seeds_to_propose(0, 0)


def next_commands(
    folder: Path, entries: Sequence[Entry], conclusion: Conclusion, verbose: bool = False
) -> list[tuple[str, str]]:
    if not entries:
        return []
    which, best = target(folder), entries[0]
    commands: list[tuple[str, str]] = []
    if deciding := deciding_command(conclusion, entries, folder):
        commands.append((deciding[0], f"decide: {deciding[1]}"))
    if (rule := conclusion.better_rule) is not None:
        file = shlex.quote(str(folder / "study.yaml"))
        run_rule = f"hpo eval --env {file} --heuristic {shlex.quote(rule.rival)}"
        commands.append((run_rule, f"run {rule.rival}, which was better"))
    elif conclusion.against.verdict == "worse":
        file = shlex.quote(str(folder / "study.yaml"))
        train = f"hpo train {file} --name {shlex.quote(folder.name)}-default --export policy/"
        commands.append((train, "train the default, which was better, and keep its policy"))
    elif (StudyFolder(folder).policies / f"trial_{best.trial}").is_dir():
        commands.append((f"hpo best --export policy/{which}", "save the winner's policy"))
    if deciding is None:
        commands.append((f"hpo show {best.trial}{which}", f"everything about trial {best.trial}"))
    if not verbose:
        return commands
    knob = next((name for name in best.params if name.replace("_", "").isalnum()), "")
    column = f", param.{knob}" if knob else ""
    values = "search_value, choose_value, report_value"
    sql = f"SELECT trial, {values}{column} FROM trials ORDER BY rank"
    return [*commands, (f'hpo query "{sql}"{which}', "")]


def seeds_to_propose(tested: int, more: int) -> int:
    """Return the test seeds to propose for two trials that have run on `tested` of them."""
    return tested + more if tested else max(_ENOUGH, more)


def print_headline(console: Console, lines: Sequence[str], unit: str = ENV_STEPS) -> None:
    for place, text in enumerate(lines):
        console.print(Text(in_unit(text, unit), style="" if place else "bold"))


def print_leaderboard(
    console: Console,
    entries: Sequence[Entry],
    most: int | None = None,
    objectives: Sequence[str] = (),
    environments: Sequence[str] = (),
    which: str = "",
) -> None:
    shown = list(entries if most is None else entries[:most])
    shown += [entry for entry in entries[len(shown) :] if entry.is_default]
    if not shown:
        console.print("No trial yet.", highlight=False)
        return
    columns = board_columns(shown, objectives)
    left = console.width - sum(_width(one) + _GAP for one in columns)
    hidden: list[str] = []
    for name, after, cells in [
        *(
            (name, "-_", [number(e.scores[at]) if e.scores else "" for e in shown])
            for at, name in enumerate(environments)
        ),
        *(
            (name, "_", [param(e.params[name]) if name in e.params else "" for e in shown])
            for name in knob_columns(shown)[0]
        ),
    ]:
        column = Column(broken_name(name, max(map(len, cells)), after), cells)
        if _width(column) + _GAP > left:
            hidden.append(name)
        else:
            left -= _width(column) + _GAP
            columns.append(column)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=0, show_edge=False)
    for column in columns:
        side = "right" if column.right else "left"
        table.add_column(column.name, justify=side, no_wrap=True, vertical="top")
    for row, entry in zip(zip(*(c.cells for c in columns), strict=True), shown, strict=True):
        table.add_row(*row, style="bold" if entry.rank == 1 and entry.value is not None else None)
    console.print(table)
    if environments:
        console.print(
            Text("Environment columns are scores: 0 is random, 1 the reference.", style="dim")
        )
    if more := len(entries) - len(shown):
        console.print(Text(f"{more:,} more: hpo top -n {len(entries)}{which}", style="dim"))
    if hidden:
        named = [*hidden[:_NAMED], *([f"{len(hidden) - _NAMED} more"] if hidden[_NAMED:] else [])]
        text = f"Not shown: {', '.join(named)}; see hpo show {shown[0].trial}{which}"
        console.print(Text(text, style="dim"))


def board_columns(entries: Sequence[Entry], objectives: Sequence[str] = ()) -> list[Column]:
    columns = [
        _integers("#", [e.rank for e in entries]),
        _integers("trial", [e.trial for e in entries]),
        Column("status", [_status(e) for e in entries], right=False),
    ]
    if any(entry.feasible is not None for entry in entries):
        words = {True: "yes", False: "no", None: ""}
        columns.append(Column("feasible", [words[e.feasible] for e in entries], right=False))
    if objectives:
        return [*columns, *_fronts(entries, objectives)]
    searched = [_searched(e) for e in entries]
    seeds = [None if v is None else e.search_seeds for v, e in zip(searched, entries, strict=True)]
    columns += _by_seeds("search", searched, seeds, "seeds")
    most = max((e.choose_seeds for e in entries), default=0)
    if any(e.choose_value is not None for e in entries):
        # A value of fewer seeds is not comparable with these: hpo show has it.
        same = [e.choose_value if e.choose_seeds == most else None for e in entries]
        columns.append(_numbers(f"select*{most}", same))
    tested = [e.report_value for e in entries]
    seeds = [None if e.report_value is None else e.report_seeds for e in entries]
    if any(count is not None for count in seeds):
        columns += _by_seeds("test", tested, seeds, "test\nseeds")
    return columns


def _by_seeds(
    name: str, values: Sequence[float | None], seeds: Sequence[int | None], title: str
) -> list[Column]:
    """Return a column of values, and one of their seeds if these numbers differ."""
    counts = {count for count in seeds if count}
    named = _numbers(f"{name}*{max(counts)}" if len(counts) == 1 else name, values)
    return [named, _integers(title, seeds)] if len(counts) > 1 else [named]


def _integers(name: str, counts: Sequence[int | None]) -> Column:
    return Column(name, ["" if count is None else str(count) for count in counts], counts)


def _searched(entry: Entry) -> float | None:
    return entry.search_value if entry.search_value is not None else entry.rung_value


def _numbers(name: str, values: Sequence[float | None]) -> Column:
    return Column(name, [number(value) for value in values], [*values])


def _fronts(entries: Sequence[Entry], objectives: Sequence[str]) -> list[Column]:
    columns = [_integers("front", [entry.front for entry in entries])]
    for index, name in enumerate(objectives):
        # Of the first at least what a trial that was stopped showed.
        without = [None if index else _searched(entry) for entry in entries]
        values = [
            e.objectives[index] if e.objectives else other
            for e, other in zip(entries, without, strict=True)
        ]
        found = _numbers("", values)
        header = broken_name(name.removeprefix("eval/"), max(map(len, found.cells)))
        columns.append(Column(header, found.cells, values))
    return [*columns, _integers("seeds", [entry.seeds for entry in entries])]


def _status(entry: Entry) -> str:
    where = "" if entry.rung_env_steps is None else f" {steps(entry.rung_env_steps)}"
    state = f"{entry.state}{where}" if entry.state in _SHOWN_WITH_RUNG else str(entry.state)
    if entry.rank == 1 and entry.value is not None and entry.confirmed and not entry.objectives:
        state = "winner"
    if not entry.is_default:
        return state
    if state in (TrialState.FINISHED, TrialState.CONFIRMED, TrialState.REFERENCE):
        return "default"
    return f"default, {state.removeprefix('stopped ')}"


def print_baselines(console: Console, baselines: Sequence[BaselineEntry]) -> None:
    if not baselines:
        return
    console.print(Text(baselines_listing(baselines).text()), soft_wrap=True)


def baselines_listing(baselines: Sequence[BaselineEntry]) -> Listing:
    rows: list[list[str]] = []
    for entry in baselines:
        own, apart, around = entry.around, entry.difference, entry.difference_around
        seeds = f"{len(entry.values)} {SEED_KINDS[entry.stream]}"
        row = [entry.baseline, number(entry.value), between(own.low, own.high), seeds]
        row.append("" if apart is None else f"{apart:+.4g}")
        rows.append([*row, "" if around is None else between(around.low, around.high)])
    used = slice(None if any(entry.difference is not None for entry in baselines) else 4)
    header = ("baseline", "value", _INTERVAL, "seeds", "best minus this", _INTERVAL)
    right = (False, True, False, False, True, False)
    return Listing(header[used], [row[used] for row in rows], right[used])


def front_line(entries: Sequence[Entry], volume: float | None) -> str:
    placed = [entry for entry in entries if entry.front is not None]
    if not placed and entries and entries[0].value is not None:
        least = f"trial {entries[0].trial} violates them least"
        return f"Every trial violates a constraint, so the Pareto front is empty; {least}."
    if not placed:
        return "No trial has finished its run, so the Pareto front is still empty."
    group = [entry for entry in placed if entry.confirmed] or placed
    kind = "feasible " if group[0].feasible else ""
    kind += "confirmed" if group[0].confirmed else "finished"
    best = [entry.trial for entry in group if entry.front == 1]
    shown = ", ".join(map(str, best[:12])) + (", ..." if len(best) > 12 else "")
    text = f"Pareto front: {len(best)} of {counted(len(group), f'{kind} trial')} ({shown})"
    if volume is None:
        return f"{text}."
    return f"{text}; hypervolume {volume:.3f} of the box between best and worst values."


def winner_line(entries: Sequence[Entry], metric: str) -> str:
    best = entries[0] if entries else None
    ended = sorted({entry.state for entry in entries})
    if ended in (["diverged"], ["failed"], ["diverged", "failed"]):
        again = "the same command again; where trials failed for different reasons,"
        said = f"Every trial {' or '.join(ended)}; `hpo show TRIAL` shows why. Fix the cause and "
        return f"{said}run {again if ended == ['failed'] else 'the study'} with --new."
    if best is None or (best.value is None and best.rung_value is None):
        return "No trial has finished its run; no winner yet."
    if best.value is None:
        seeds = counted(best.search_seeds, "search seed")
        at = "" if best.rung_env_steps is None else f" at {steps(best.rung_env_steps)} env steps"
        lead = f"Trial {best.trial} leads: {number(best.rung_value)} on {seeds}{at}."
        return f"No trial has finished its run. {lead}"
    value = with_interval(best.value, best.ci_low, best.ci_high)
    source = value_source(best.value_from, best.seeds, len(entries))
    what = "is the winner" if best.confirmed else "leads"
    return f"Trial {best.trial} {what}: {named(metric, best.value_from)} {value} on {source}."


def named(value: str, stream: str) -> str:
    """Return a value's name, given by `studies.spec.value_words`, on these seeds."""
    return value.removesuffix(WITH_TRAINING) if stream == "report" else value


def value_source(value_from: str, seeds: int, trials: int) -> str:
    if value_from == "search" and trials == 1:
        return f"{counted(seeds, 'seed')} of its one trial"
    return seeds_text(seeds, value_from) + ", which also chose it" * (value_from != "report")


def audit_words(audit: Audit, metric: str) -> str:
    whole = audit.whole
    share = ""
    if whole.share is not None:
        share = f" ({whole.share:.0%}, 95% interval {whole.low:.0%} to {whole.high:.0%})"
    level = f", {whole.level} tied with it" if whole.level else ""
    bar = f"({metric} {number(audit.bar)}){level}"
    ended = f"{whole.wrong} of {counted(whole.audited, 'audited trial')}{share} ended better than"
    others = f"the median of the {audit.survivors} that were never stopped {bar}"
    return f"{ended} {others}; {whole.winners or 'none'} better than all of those."


def target(folder: Path) -> str:
    """Return the `--study` option for a folder; "" if it is the only study in `results`."""
    usual = folder.absolute().parent == RESULTS.absolute()
    if usual and list(look_inside(RESULTS).changed) == [folder.name]:
        return ""
    return f" --study {study_word(folder)}"


def study_word(folder: Path) -> str:
    """Return a study's name for commands: its name in `results`, otherwise its folder."""
    usual = folder.absolute().parent == RESULTS.absolute()
    return shlex.quote(folder.name if usual else str(folder))


def _width(column: Column) -> int:
    return max(len(line) for line in (*column.name.split("\n"), *column.cells))
