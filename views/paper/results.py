"""Tables of results and leaderboards for a paper, with the numbers of the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from ...errors import clause
from ...store.against import Against
from ...store.leaderboard import Entry
from ...store.rows import StudyMeta
from ...store.statistics import mean
from ...store.unobserved import bounded_interval
from ...store.value_bounds import value_bounds
from ...store.verdict_text import upper_first
from ...studies.study_environments import env_words
from ..charts.environment_names import environment_names
from ..charts.snapshot import Snapshot
from ..formatting import SEED_KINDS, between, number, with_interval
from ..leaderboard_text import BoardColumn, board_columns, knob_columns, rows_of, score_columns
from ..quotes import metric_name, plain_metric, test_words
from ..trial_view import Board
from .markup import MarkupTable, code

BETTER, WORSE, CONDITIONAL = "*", "\u2020", "\u2021"
_ALONE = "trained configuration"
_MARKS = {"better": BETTER, "feasible": BETTER, "worse": WORSE, "infeasible": WORSE}


@dataclass(frozen=True)
class PaperRow:
    """One configuration in one study, with the winner's lead over it."""

    study: str
    environment: str
    configuration: str
    seeds: int
    seeds_from: str  # report, choose or search
    value: float | None
    low: float | None = None
    high: float | None = None
    lead: float | None = None
    lead_low: float | None = None
    lead_high: float | None = None
    verdict: str = ""  # on the winner
    one_in: int | None = None  # significant unless one in so many seeds gives a new result
    probability: float | None = None
    probability_low: float | None = None
    probability_high: float | None = None

    @property
    def mark(self) -> str:
        if self.verdict in _MARKS:
            return _MARKS[self.verdict]
        if self.one_in is not None:
            return CONDITIONAL
        return ""


def result_rows(snapshot: Snapshot) -> list[PaperRow]:
    """Return the winner, the default and the baselines of a study with one objective."""
    first = snapshot.winner
    if first is None or snapshot.meta.objectives:
        return []
    rows = [_of_entry(snapshot, first, _configuration_name(snapshot, first), None)]
    conclusion = snapshot.conclusion
    against = None
    default = snapshot.default_entry
    if conclusion.winner is not None:
        against = conclusion.against
    if default is not None and default is not first:
        rows += _of_default(snapshot, default, first, against)
    rows += [_of_baseline(snapshot, one) for one in conclusion.baselines if one.means is not None]
    return rows


def _configuration_name(snapshot: Snapshot, first: Entry) -> str:
    if not snapshot.study.space.parameters:
        return _ALONE
    if first.is_default and first.confirmed:
        return "default (winner)"
    if first.is_default:
        return "default"
    if first.confirmed:
        return f"winner (trial {first.trial})"
    return f"best in the search (trial {first.trial})"


def _of_default(
    snapshot: Snapshot, default: Entry, first: Entry, against: Against | None
) -> list[PaperRow]:
    """Return the default's row, measured on the winner's seeds; [] if it did not run on them.

    The default can have values on test seeds whatever its state in the search.
    """
    tests = snapshot.rows[default.trial].report_values
    if first.measured_from == "report" and tests:
        around = bounded_interval(tests, value_bounds(snapshot.meta))
        row = _of_entry(snapshot, default, "default", against)
        return [
            replace(
                row,
                seeds=len(tests),
                seeds_from="report",
                value=mean(tests),
                low=around.low,
                high=around.high,
            )
        ]
    if default.measured_value is None or default.measured_from != first.measured_from:
        return []
    return [_of_entry(snapshot, default, "default", against)]


def _of_entry(snapshot: Snapshot, entry: Entry, name: str, against: Against | None) -> PaperRow:
    return PaperRow(
        snapshot.meta.name,
        env_words(snapshot.study),
        name,
        entry.measured_seeds,
        entry.measured_from,
        entry.measured_value,
        entry.ci_low,
        entry.ci_high,
        **_lead_fields(against),
    )


def _of_baseline(snapshot: Snapshot, against: Against) -> PaperRow:
    listed = {one.baseline: one for one in snapshot.baselines}
    own = listed.get(against.rival)
    value, low, high = None, None, None
    if against.means is not None:
        value = against.means[1]
    if own is not None:  # over all seeds, like its interval
        value, low, high = own.value, own.around.low, own.around.high
    return PaperRow(
        snapshot.meta.name,
        env_words(snapshot.study),
        against.rival,
        against.seeds,
        "report",
        value,
        low,
        high,
        **_lead_fields(against),
    )


def _lead_fields(against: Against | None) -> dict[str, Any]:
    if against is None or against.difference is None:
        return {}
    chance, around, one_in = against.probability_interval, against.interval, None
    if against.unless is not None and against.verdict not in _MARKS:  # as in the sentence
        around, one_in = against.unless.interval, against.unless.one_in
    return {
        "lead": against.difference,
        "lead_low": around.low,
        "lead_high": around.high,
        "verdict": against.verdict,
        "one_in": one_in,
        "probability": against.probability,
        "probability_low": chance.low,
        "probability_high": chance.high,
    }


def rows_of_studies(snapshots: Sequence[Snapshot]) -> list[tuple[Snapshot, list[PaperRow]]]:
    """Return the rows of each study that has values; different environments differ in name."""
    found: list[tuple[Snapshot, list[PaperRow]]] = []
    for snapshot, name in zip(snapshots, environment_names(snapshots), strict=True):
        rows = [replace(row, environment=name) for row in result_rows(snapshot)]
        if rows:
            found.append((snapshot, rows))
    return found


def results_table(snapshots: Sequence[Snapshot]) -> MarkupTable | None:
    """Return the table for one or several studies; None if there are no values."""
    each = rows_of_studies(snapshots)
    if not each:
        return None
    form = _Form.of(each)
    lines: list[list[str]] = []
    groups: list[int] = []
    for snapshot, rows in each:
        if lines:
            groups.append(len(lines))
        lines += _study_lines(form, metric_name(snapshot.study), rows)
    caption = _table_caption(each, form.metrics)
    return MarkupTable(form.header(), lines, form.right(), caption, groups=groups)


@dataclass(frozen=True)
class _Form:
    """The columns of a results table."""

    metrics: Sequence[str]  # metrics of the studies
    names_studies: bool
    compares: bool

    @classmethod
    def of(cls, each: Sequence[tuple[Snapshot, list[PaperRow]]]) -> _Form:
        metrics = dict.fromkeys(metric_name(snapshot.study) for snapshot, _ in each)
        names = {snapshot.meta.name for snapshot, _ in each}
        rows = chain.from_iterable(rows for _, rows in each)
        return cls(list(metrics), len(names) > 1, any(row.lead is not None for row in rows))

    @property
    def has_one_metric(self) -> bool:
        return len(self.metrics) == 1

    def header(self) -> list[str]:
        header = ["Environment", "Configuration", "Seeds", _value_name(self.metrics)]
        if self.names_studies:
            header.insert(0, "Study")
        if self.compares:
            header += ["Lead of the winner", "P(improvement)"]
        return header

    def right(self) -> list[bool]:
        return [False] * (2 + self.names_studies) + [True] * (2 + 2 * self.compares)


def _study_lines(form: _Form, metric: str, rows: Sequence[PaperRow]) -> list[list[str]]:
    """Return a study's rows; the first one has the study's name and its environment."""
    lines: list[list[str]] = []
    for row in rows:
        environment = code(row.environment)
        if not form.has_one_metric:
            environment += f" ({metric})"
        owner = [environment]
        if form.names_studies:
            owner = [code(row.study), environment]
        if lines:
            owner = [""] * len(owner)
        lines.append([*owner, *_row_cells(row, form.compares)])
    return lines


def _row_cells(row: PaperRow, compared: bool) -> list[str]:
    seeds = _seeds_cell(row.seeds, row.seeds_from)
    found = [row.configuration, seeds, with_interval(row.value, row.low, row.high)]
    if compared and row.lead is None:
        return [*found, "", ""]
    if compared:
        lead = with_interval(row.lead, row.lead_low, row.lead_high) + row.mark
        found += [lead, _probability_text(row)]
    return found


def _probability_text(row: PaperRow) -> str:
    if row.probability is None:
        return ""
    return with_interval(row.probability, row.probability_low, row.probability_high, ".2f")


def _table_caption(each: Sequence[tuple[Snapshot, list[PaperRow]]], metrics: Sequence[str]) -> str:
    rows = [row for _, found in each for row in found]
    kinds = list(dict.fromkeys(SEED_KINDS[row.seeds_from] for row in rows if row.seeds_from))
    text = f"{_value_name(metrics)} over {' and '.join(kinds)} seeds"
    if any(row.low is not None for row in rows):
        text += ", with 95 % confidence intervals in brackets"
    text += "."
    if any(row.seeds_from != "report" and row.configuration != _ALONE for row in rows):
        text += " Search and selection seeds were also used to pick the configuration, so their "
        text += "values are optimistic."
    if any(row.lead is not None for row in rows):
        text += " Lead of the winner: the mean difference between the winner and this row, seed "
        text += "by seed; a positive lead favours the winner."
        text += f" {_marks_words(rows)}"
        text += " P(improvement): the probability that the winner is better on a new seed; a tie "
        text += "counts half [@agarwal2021precipice]."
    return text


def _value_name(metrics: Sequence[str]) -> str:
    """Return the heading of the value column, which depends on the number of metrics."""
    if len(metrics) != 1:
        return "Value"
    return upper_first(metrics[0])


def _seeds_cell(count: int, stream: str) -> str:
    if not stream:
        return str(count)
    return f"{count} {SEED_KINDS[stream]}"


def _marks_words(rows: Sequence[PaperRow]) -> str:
    tests = dict.fromkeys(test_words(row.seeds) for row in rows if row.lead is not None)
    test = f"{' or '.join(tests)}, error rate at most 5 % including earlier tests"
    meanings = {BETTER: "significantly better", WORSE: "significantly worse"}
    marks = {row.mark for row in rows}
    said = [
        f"{mark} the winner is {meanings[mark]} ({test})." for mark in meanings if mark in marks
    ]
    if given := [row.one_in for row in rows if row.one_in is not None]:
        condition = f"fewer than 1 in {max(given)} seeds give a result not observed here"
        said.append(f"{CONDITIONAL} the difference is significant, provided that {condition}.")
    if any(row.lead is not None and not row.mark for row in rows):
        plain = "No mark: no significant difference."
        if not said:
            plain = f"No significant difference was found ({test})."
        said.append(plain)
    return " ".join(said)


def front_table(snapshot: Snapshot) -> MarkupTable | None:
    """Return the rows of the Pareto front of a study with several objectives, and its default."""
    shown = _front_and_default(snapshot)
    if not shown:
        return None
    names = [plain_metric(name) for name in snapshot.meta.objective_names]
    header = ["Configuration", "On the front", "Seeds", *map(upper_first, names)]
    right = [False, False, *[True] * (len(names) + 1)]
    (environment,) = environment_names([snapshot])
    caption = f"The Pareto front of {code(snapshot.meta.name)} on {code(environment)}"
    rows = [_front_row(one) for one in shown]
    return MarkupTable(header, rows, right, f"{caption}: means over seeds.", "tab:front")


def _front_and_default(snapshot: Snapshot) -> list[Entry]:
    measured = [one for one in snapshot.entries if one.objectives]
    shown = [one for one in measured if one.front or one.is_default]
    confirmed = [one for one in shown if one.confirmed]
    return [one for one in confirmed or shown if one.front == 1 or one.is_default]


def _front_row(one: Entry) -> list[str]:
    name, on_front = f"trial {one.trial}", "no"
    if one.is_default:
        name += " (default)"
    if one.front == 1:
        on_front = "yes"
    seeds = _seeds_cell(one.seeds, one.value_from)
    return [name, on_front, seeds, *map(number, one.objectives)]


def leaderboard_for_paper(
    meta: StudyMeta, entries: Sequence[Entry], most: int, verdict: Sequence[str]
) -> MarkupTable:
    """Return a leaderboard's first trials, and the default, with their hyperparameters."""
    shown = Board.of_study(meta, entries).first(most)
    apart, same = knob_columns(shown.trials)
    columns = [
        *(replace(one, name=one.name.replace("\n", " ")) for one in board_columns(shown)),
        *_interval_columns(shown),
        *(replace(one, name=code(one.name)) for one in (*score_columns(shown), *apart)),
    ]
    said = [f"Leaderboard of {code(meta.name)}.", *verdict, _columns_words(columns), same]
    caption = " ".join(filter(None, said))
    header, right = [one.name for one in columns], [one.right for one in columns]
    return MarkupTable(
        header, [[*row] for row in rows_of(columns)], right, caption, "tab:leaderboard"
    )


def _interval_columns(shown: Board) -> list[BoardColumn]:
    if shown.objectives or all(one.low is None for one in shown.trials):
        return []
    return [BoardColumn("95 % CI", [between(one.low, one.high) for one in shown.trials])]


def _columns_words(columns: Sequence[BoardColumn]) -> str:
    meanings = {
        "search": "search*N: mean over N search seeds",
        "select": "select*N: mean over N selection seeds, used to pick the winner",
        "test": "test*N: mean over N test seeds, not used for selection",
        "95 % CI": "95 % CI: for the rightmost of these values",
    }
    used: list[str] = []
    for begin, text in meanings.items():
        if any(column.name.startswith(begin) for column in columns):
            used.append(text)
    return clause("{}.", "; ".join(used))


def rows_as_json(rows: Sequence[PaperRow]) -> list[dict[str, Any]]:
    return [{**vars(row), "mark": row.mark} for row in rows]
