"""The leaderboard's columns for terminal and report, and sentences about its winner."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..core.policy_document import TRAINING
from ..errors import clause, counted
from ..knobs import KNOBS
from ..store.audits import Audit
from ..store.baselines import BaselineEntry
from ..store.leaderboard import Entry, default_entry, on_fronts
from ..store.study_folder import PROCESS, RESULTS, StudyFolder, look_inside
from ..store.verdict import Conclusion
from ..studies.algorithm import ENV_STEPS
from ..studies.study_environments import WITH_TRAINING
from .formatting import (
    SEED_KINDS,
    Listing,
    between,
    broken_name,
    number,
    param,
    params_text,
    seeds_text,
    steps,
    with_interval,
)
from .time_spent import confirm_command, confirm_cost
from .trial_view import Board, SeedMean, TrialView

_INTERVAL = "95% interval"
_GAP = 1  # spaces between two columns
_NAMED = 3
_ENOUGH = 8  # minimum number of test seeds for a first look
_EXPLAINED = """\
status   winner: ranked first after the confirm stage.
         confirmed: run again on new seeds. default: the default configuration.
         stopped 12k: stopped by the rule at 12k {unit} per seed.
search*N search value, mean of N seeds per trial. For a stopped trial, this is
         the value where it was stopped. With metric.training_weight, training
         returns count in search and select values.
select*N mean over N new selection seeds, the same for all confirmed trials. The
         winner is picked by this value, so it is slightly optimistic.
test*N   mean over N test seeds, not used for selection. Only test values are
         compared with the default.
feasible satisfies the constraints. front: 1 for the Pareto front of each status.
order    confirmed trials by select, then finished ones by search, then stopped
         trials, those stopped latest first."""


class ColumnKind(Enum):
    """A kind of leaderboard column."""

    TRIAL = ""
    SCORE = "-_"
    PARAM = "_"

    @property
    def breaks(self) -> str:
        """The characters after which a long name may be broken."""
        return self.value


@dataclass(frozen=True)
class BoardColumn:
    name: str
    cells: Sequence[str]
    sorts: Sequence[Any] | None = None  # None: by text
    right: bool = True
    kind: ColumnKind = ColumnKind.TRIAL

    @property
    def width(self) -> int:
        return max(len(line) for line in (*self.name.split("\n"), *self.cells))

    def folded(self) -> BoardColumn:
        """Return the column with its name on several lines, no wider than necessary."""
        if self.kind is ColumnKind.TRIAL:
            return self
        name = broken_name(self.name, max(map(len, self.cells)), self.kind.breaks)
        return replace(self, name=name)


def knob_columns(trials: Sequence[TrialView]) -> tuple[list[BoardColumn], str]:
    """Return columns of hyperparameters whose values differ, and a sentence about the others."""
    names = list(dict.fromkeys(name for one in trials for name in one.params))
    equal = [name for name in names if _is_equal(name, trials)]
    apart = [name for name in names if name not in equal]
    apart.sort(key=_is_traced)
    words = params_text({name: trials[0].params[name] for name in equal})
    return [_knob_column(name, trials) for name in apart], clause("Equal in all: {}.", words)


def _is_equal(name: str, trials: Sequence[TrialView]) -> bool:
    if len(trials) < 2 or any(name not in one.params for one in trials):
        return False
    return len({json.dumps(one.params[name]) for one in trials}) == 1


def _is_traced(name: str) -> bool:
    return name not in KNOBS or KNOBS[name].traced


def _knob_column(name: str, trials: Sequence[TrialView]) -> BoardColumn:
    cells = [param(one.params[name]) if name in one.params else "" for one in trials]
    return BoardColumn(
        name, cells, [one.params.get(name) for one in trials], kind=ColumnKind.PARAM
    )


def score_columns(board: Board) -> list[BoardColumn]:
    return [_score_column(at, name, board.trials) for at, name in enumerate(board.environments)]


def _score_column(at: int, name: str, trials: Sequence[TrialView]) -> BoardColumn:
    scores = [one.scores[at] if one.scores else None for one in trials]
    cells = ["" if score is None else number(score) for score in scores]
    return BoardColumn(name, cells, scores, kind=ColumnKind.SCORE)


def explained(unit: str = ENV_STEPS) -> str:
    """Explain the leaderboard columns."""
    return _EXPLAINED.format(unit=unit)


def headline(
    conclusion: Conclusion | None,
    entries: Sequence[Entry],
    metric: str,
    unit: str = ENV_STEPS,
) -> list[str]:
    if conclusion is not None and (conclusion.winner is not None or conclusion.front is not None):
        return [*conclusion.said]
    lines = [winner_line(entries, metric, unit)]
    if conclusion is not None and entries and entries[0].value is not None:
        lines += conclusion.said
    return lines


def deciding_command(
    conclusion: Conclusion, entries: Sequence[Entry], folder: Path
) -> tuple[str, str] | None:
    """Return the command that decides between the first trial and the default, and its cost."""
    default = default_entry(entries)
    if default is None or conclusion.better_rule is not None:
        return None  # a heuristic is better than the first trial, so the other ranks do not matter
    seeds = _deciding_seeds(conclusion, entries)
    if not seeds:
        return None
    trials = (entries[0].trial, default.trial)
    return confirm_command(trials, seeds, target(folder)), confirm_cost(folder, trials, seeds)


def _deciding_seeds(conclusion: Conclusion, entries: Sequence[Entry]) -> int:
    """Return the number of test seeds needed to decide; 0 if unknown or already decided."""
    against, first = conclusion.against, entries[0]
    if against.verdict == "undecided" and against.more_seeds:
        return seeds_to_propose(against.seeds, against.more_seeds)
    if against.verdict == "undecided":
        return 0
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
    elif (kept := StudyFolder(folder).policies / f"trial_{best.trial}").is_dir():
        why = f"save the winner's {kept_words(kept)}"
        commands.append((f"hpo best --export policy/{which}", why))
    if deciding is None:
        commands.append((f"hpo show {best.trial}{which}", f"everything about trial {best.trial}"))
    if not verbose:
        return commands
    knob = next((name for name in best.params if name.replace("_", "").isalnum()), "")
    column = clause(", param.{}", knob)
    values = "search_value, choose_value, report_value"
    sql = f"SELECT trial, {values}{column} FROM trials ORDER BY rank"
    return [*commands, (f'hpo query "{sql}"{which}', "")]


def kept_words(folder: Path) -> str:
    """Return what a folder keeps of a run: its policy, its state or its command."""
    if (folder / PROCESS).is_file():
        return "command"
    if (folder / TRAINING).is_file():
        return "state"
    return "policy"


def seeds_to_propose(tested: int, more: int) -> int:
    """Return the number of test seeds to propose for two trials that have `tested` seeds."""
    if not tested:
        return max(_ENOUGH, more)
    return tested + more


def print_headline(console: Console, lines: Sequence[str]) -> None:
    style = "bold"
    for text in lines:
        console.print(Text(text, style=style))
        style = ""


def print_leaderboard(
    console: Console, board: Board, most: int | None = None, which: str = ""
) -> None:
    shown = board.first(most)
    if not shown.trials:
        console.print("No trial yet.", highlight=False)
        return
    columns, hidden = _fitting_columns(shown, console.width)
    console.print(_board_table(columns, shown.trials))
    for text in _notes_below(board, shown, hidden, which):
        console.print(Text(text, style="dim"))


def _fitting_columns(board: Board, width: int) -> tuple[list[BoardColumn], list[str]]:
    """Return the columns that fit into a width, and the names of the others."""
    columns = board_columns(board)
    left = width - sum(one.width + _GAP for one in columns)
    hidden: list[str] = []
    for column in (*score_columns(board), *knob_columns(board.trials)[0]):
        folded = column.folded()
        if folded.width + _GAP > left:
            hidden.append(column.name)
            continue
        left -= folded.width + _GAP
        columns.append(folded)
    return columns, hidden


def _board_table(columns: Sequence[BoardColumn], trials: Sequence[TrialView]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=0, show_edge=False)
    for column in columns:
        side = "right" if column.right else "left"
        table.add_column(column.name, justify=side, no_wrap=True, vertical="top")
    for row, one in zip(rows_of(columns), trials, strict=True):
        style = None
        if one.place == 1 and one.has_value:
            style = "bold"
        table.add_row(*row, style=style)
    return table


def rows_of(columns: Sequence[BoardColumn]) -> Iterable[tuple[str, ...]]:
    return zip(*(column.cells for column in columns), strict=True)


def _notes_below(board: Board, shown: Board, hidden: Sequence[str], which: str) -> list[str]:
    notes: list[str] = []
    if board.environments:
        notes.append("Environment columns are scores: 0 is random, 1 the reference.")
    if more := len(board.entries) - len(shown.entries):
        notes.append(f"{more:,} more: hpo top -n {len(board.entries)}{which}")
    if hidden:
        named = [*hidden[:_NAMED]]
        if more := len(hidden) - len(named):
            named.append(f"{more} more")
        first = shown.trials[0].trial
        notes.append(f"Not shown: {', '.join(named)}; see hpo show {first}{which}")
    return notes


def board_columns(board: Board) -> list[BoardColumn]:
    """Return the columns of a leaderboard, up to and including its values."""
    trials = board.trials
    columns = [
        _integer_column("#", [one.place for one in trials]),
        _integer_column("trial", [one.trial for one in trials]),
        BoardColumn("status", [one.note for one in trials], right=False),
    ]
    if any(one.feasible is not None for one in trials):
        columns.append(
            BoardColumn("feasible", [_FEASIBLE[one.feasible] for one in trials], right=False)
        )
    if board.objectives:
        return [*columns, *_front_columns(board)]
    return [
        *columns,
        *_search_or_rung_value(trials),
        *_selection_columns(trials),
        *_test_columns(trials),
    ]


_FEASIBLE = {True: "yes", False: "no", None: ""}


def _search_or_rung_value(trials: Sequence[TrialView]) -> list[BoardColumn]:
    return _by_seeds("search", [one.search for one in trials], "seeds")


def _selection_columns(trials: Sequence[TrialView]) -> list[BoardColumn]:
    if all(one.select.value is None for one in trials):
        return []
    most = max(one.select.seeds for one in trials)
    # A value from fewer seeds is not comparable with these; `hpo show` prints it.
    same = [one.select.value if one.select.seeds == most else None for one in trials]
    return [_number_column(f"select*{most}", same)]


def _test_columns(trials: Sequence[TrialView]) -> list[BoardColumn]:
    if all(one.test.value is None for one in trials):
        return []
    return _by_seeds("test", [one.test for one in trials], "test\nseeds")


def _by_seeds(name: str, measured: Sequence[SeedMean], title: str) -> list[BoardColumn]:
    """Return a column of values, and a column of their seed counts if these differ."""
    values = [one.value for one in measured]
    seeds = [None if one.value is None else one.seeds for one in measured]
    counts = {count for count in seeds if count}
    if len(counts) == 1:
        return [_number_column(f"{name}*{max(counts)}", values)]
    columns = [_number_column(name, values)]
    if counts:
        columns.append(_integer_column(title, seeds))
    return columns


def _integer_column(name: str, counts: Sequence[int | None]) -> BoardColumn:
    return BoardColumn(name, ["" if count is None else str(count) for count in counts], counts)


def _number_column(name: str, values: Sequence[float | None]) -> BoardColumn:
    return BoardColumn(name, [number(value) for value in values], [*values])


def _front_columns(board: Board) -> list[BoardColumn]:
    trials = board.trials
    columns = [_integer_column("front", [one.front for one in trials])]
    for index, name in enumerate(board.objectives):
        values = [_objective_value(one, index) for one in trials]
        found = _number_column("", values)
        header = broken_name(name.removeprefix("eval/"), max(map(len, found.cells)))
        columns.append(replace(found, name=header))
    return [*columns, _integer_column("seeds", [one.seeds for one in trials])]


def _objective_value(one: TrialView, index: int) -> float | None:
    """Return one of a trial's objective values; if it has none, the first is its search value."""
    if one.objectives:
        return one.objectives[index]
    if index == 0:
        return one.search.value
    return None


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
        difference, interval = "", ""
        if apart is not None:
            difference = f"{apart:+.4g}"
        if around is not None:
            interval = between(around.low, around.high)
        rows.append([*row, difference, interval])
    used = 4
    if any(entry.difference is not None for entry in baselines):
        used = 6
    header = ("baseline", "value", _INTERVAL, "seeds", "best minus this", _INTERVAL)
    right = (False, True, False, False, True, False)
    return Listing(header[:used], [row[:used] for row in rows], right[:used])


def front_line(entries: Sequence[Entry], volume: float | None) -> str:
    group = on_fronts(entries)
    if not group:
        return _empty_front(entries)
    kind = "confirmed" if group[0].confirmed else "finished"
    if group[0].feasible:
        kind = f"feasible {kind}"
    best = [entry.trial for entry in group if entry.front == 1]
    shown = ", ".join(map(str, best[:12]))
    if len(best) > 12:
        shown += ", ..."
    text = f"Pareto front: {len(best)} of {counted(len(group), f'{kind} trial')} ({shown})"
    if volume is None:
        return f"{text}."
    return f"{text}; hypervolume: {volume:.3f} of the box between the best and worst values."


def _empty_front(entries: Sequence[Entry]) -> str:
    if entries and entries[0].value is not None:
        least = f"trial {entries[0].trial} has the smallest violation"
        return f"Every trial violates a constraint, so the Pareto front is empty; {least}."
    return "No trial has finished its run, so the Pareto front is still empty."


def winner_line(entries: Sequence[Entry], metric: str, unit: str = ENV_STEPS) -> str:
    best = next(iter(entries), None)
    ended = sorted({entry.state for entry in entries})
    if ended in (["diverged"], ["failed"], ["diverged", "failed"]):
        again = "the study with --new"
        if ended == ["failed"]:
            again = "the same command again, with --new if trials failed for different reasons"
        said = f"Every trial {' or '.join(ended)}; `hpo show TRIAL` shows why. Fix the cause and "
        return f"{said}run {again}."
    if best is None or (best.value is None and best.rung_value is None):
        return "No trial has finished its run, so there is no winner yet."
    if best.value is None:
        lead = f"{number(best.rung_value)} on {counted(best.search_seeds, 'search seed')}"
        if best.rung_env_steps is not None:
            lead += f" at {steps(best.rung_env_steps)} {unit}"
        return f"No trial has finished its run. Trial {best.trial} leads: {lead}."
    value = with_interval(best.value, best.ci_low, best.ci_high)
    source = value_source(best.value_from, best.seeds, len(entries))
    what = "is the winner" if best.confirmed else "leads"
    return f"Trial {best.trial} {what}: {named(metric, best.value_from)} {value} on {source}."


def named(value: str, stream: str) -> str:
    """Return the name of a value (see `study_environments.value_words`) on one kind of seeds."""
    if stream != "report":
        return value
    return value.removesuffix(WITH_TRAINING)


def value_source(value_from: str, seeds: int, trials: int) -> str:
    if value_from == "search" and trials == 1:
        return f"{counted(seeds, 'seed')} of the only trial"
    return seeds_text(seeds, value_from) + ", also used to pick it" * (value_from != "report")


def audit_words(audit: Audit, metric: str) -> str:
    whole = audit.whole
    share = ""
    if whole.share is not None:
        share = f" ({whole.share:.0%}, 95% interval {whole.low:.0%} to {whole.high:.0%})"
    level = clause(", {} tied with it", whole.level)
    bar = f"({metric} {number(audit.bar)}){level}"
    ended = (
        f"{whole.wrong} of {counted(whole.audited, 'audited trial')}{share} finished better than"
    )
    others = f"the median of the {audit.survivors} unstopped trials {bar}"
    return f"{ended} {others}; {whole.winners or 'none'} beat all unstopped trials."


def target(folder: Path) -> str:
    """Return the `--study` option for a folder; "" if it is the only study in `results`."""
    usual = folder.absolute().parent == RESULTS.absolute()
    if usual and list(look_inside(RESULTS).changed) == [folder.name]:
        return ""
    return f" --study {study_word(folder)}"


def study_word(folder: Path) -> str:
    """Return a study's name as typed in commands: its name in `results`, or else its folder."""
    if folder.absolute().parent == RESULTS.absolute():
        return shlex.quote(folder.name)
    return shlex.quote(str(folder))
