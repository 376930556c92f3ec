"""A study opened in Python: its tables, leaderboard, verdict, policies and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import ConfigError, MissingExtraError, StoreError, UnknownNameError, clause
from ...search.analysis.verdict import conclusion_of
from ...store.baselines import BASELINES
from ...store.journal import Journal
from ...store.leaderboard import Entry, leaderboard_of
from ...store.query import query, require_tables
from ...store.rows import TrialRow
from ...store.study_folder import RESULTS, StudyFolder, find_study, state_of, trials_seen
from ...store.tables import TABLES, damaged_table
from ...store.verdict import Conclusion
from ..charts.knob_charts import effects, importance, parallel, slices
from ..charts.matplotlib_files import draw_panel, figure_size, fill_figure
from ..charts.model import Picture
from ..charts.search_charts import curves, history, pareto, schedule
from ..charts.snapshot import Snapshot, read_snapshot
from ..formatting import aligned
from ..leaderboard_text import board_columns, knob_columns, rows_of
from ..pictures import require_matplotlib
from ..report.report import write_report
from ..time_spent import usage_at
from ..trial_view import Board
from ..words import speaks_python

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from ...core.saved_policy import SavedPolicy
    from ...search.what_if import WhatIf

_SHOWN = 10


@dataclass(frozen=True)
class Plots:
    """Each method draws one picture and returns its axes, or a list of axes, one per panel.

    A picture with one panel is drawn in `ax` if given; otherwise a new figure is created.
    """

    folder: Path

    def curves(self, ax: Any = None) -> Any:
        """Draw the learning curves of the best trials."""
        return self._draw_picture(curves(self._read_snapshot()), ax)

    def history(self, ax: Any = None) -> Any:
        """Draw every trial's value by trial number, and the best value so far."""
        return self._draw_picture(history(self._read_snapshot()), ax)

    def importance(self, ax: Any = None, *, at: int | None = None) -> Any:
        """Draw the share of rank variance that each hyperparameter explains.

        Args:
            ax: the axes to draw in.
            at: env steps at which trials are compared; None: the latest that most trials reached.
        """
        return self._draw_picture(importance(self._read_snapshot(), at), ax)

    def effects(self, ax: Any = None) -> Any:
        """Draw the mean value against each significant hyperparameter, one panel each."""
        return self._draw_picture(effects(self._read_snapshot()), ax)

    def schedule(self, ax: Any = None) -> Any:
        """Draw the hyperparameters of every population member against env steps."""
        return self._draw_picture(schedule(self._read_snapshot()), ax)

    def parallel(self, ax: Any = None) -> Any:
        """Draw all trials in parallel coordinates."""
        return self._draw_picture(parallel(self._read_snapshot()), ax)

    def slices(self, ax: Any = None) -> Any:
        """Draw values against each hyperparameter, one panel each."""
        return self._draw_picture(slices(self._read_snapshot()), ax)

    def pareto(self, ax: Any = None) -> Any:
        """Draw the Pareto front of a study with several objectives."""
        return self._draw_picture(pareto(self._read_snapshot()), ax)

    def _read_snapshot(self) -> Snapshot:
        require_matplotlib("hpo.open(...).plot")
        return read_snapshot(StudyFolder(self.folder))

    def _draw_picture(self, picture: Picture, ax: Any) -> Any:
        if not picture.panels:
            raise StoreError(f"nothing to draw for {self.folder.name!r}: {picture.caption}")
        if ax is not None:
            if (count := len(picture.panels)) != 1:
                raise ConfigError(f"this plot has {count} panels; remove ax")
            draw_panel(ax, picture.panels[0])
            return ax
        from matplotlib import pyplot

        figure = pyplot.figure(figsize=figure_size(picture), layout="constrained")
        axes = fill_figure(figure, picture, self.folder.name)
        if len(axes) == 1:
            return axes[0]
        return axes


def open_study(study: str | Path | None = None, out: str | Path = RESULTS) -> Opened:
    """Open a study, which may be running, for reading. `hpo.open` is this function.

    Args:
        study: its folder, or its name in `out`; None means the only study there.
        out: the results folder.

    Raises:
        StoreError: there is no such study.
    """
    with speaks_python():
        return Opened(find_study(study, Path(out)).path)


class Leaderboard(tuple[Entry, ...]):
    """All trials, best first; a notebook shows the first ten as a table."""

    objectives: tuple[str, ...] = ()  # names, if there are several

    def __repr__(self) -> str:
        (header, *rows), same = _leaderboard_rows(self)
        return f"{aligned(header, rows, [False] * len(header))}\n{same}".rstrip("\n")

    def _repr_html_(self) -> str:
        rows, same = _leaderboard_rows(self)
        return _html_table(rows) + clause("<p>{}</p>", escape(same))


@dataclass(frozen=True, repr=False)
class Opened:
    """An open study; every access reads the current data."""

    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def state(self) -> str:
        """`running`, `interrupted` or `finished`."""
        with Journal(self.folder) as journal:
            return state_of(self.folder, journal.head())

    @property
    def trials(self) -> pd.DataFrame:
        """One row per trial, best first, as a DataFrame."""
        return self._read_frame("trials")

    @property
    def evaluations(self) -> pd.DataFrame:
        """One row per episode of each evaluation, as a DataFrame."""
        return self._read_frame("evaluations")

    @property
    def curves(self) -> pd.DataFrame:
        """One row per seed and chunk, as a DataFrame."""
        return self._read_frame("curves")

    @property
    def baselines(self) -> pd.DataFrame:
        """One row per baseline and seed, as a DataFrame; raises StoreError without baselines."""
        return self._read_frame(BASELINES)

    def table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Return a table as an Arrow table.

        Args:
            name: `trials`, `evaluations`, `curves` or `baselines`.
            columns: names of columns; None: all.

        Raises:
            StoreError: there is no such table, or none has been published yet.
            UnknownNameError: the table has no such column; the message suggests a similar name.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        if name not in (*TABLES, BASELINES):
            raise StoreError(f"no table {name!r}; known: {', '.join((*TABLES, BASELINES))}")
        require_tables(self.folder)
        path = StudyFolder(self.folder).table(name)
        if not path.is_file():
            raise StoreError(f"{self.name} has no baselines")
        try:
            known = pq.read_schema(path).names
            for column in columns or ():
                if column not in known:
                    raise UnknownNameError(f"column of {name}", column, known)
            if columns is not None:
                columns = list(columns)
            return pq.read_table(path, columns=columns)
        except (pa.ArrowException, OSError) as error:
            raise damaged_table(path) from error

    def query(self, sql: str) -> pd.DataFrame:
        """Run one SELECT on the tables and return the result as a DataFrame; see `hpo query`."""
        pandas = _import_pandas("hpo.open(...).query")
        columns, rows = query(self.folder, sql)
        return pandas.DataFrame(rows, columns=columns)

    def _read_frame(self, name: str) -> pd.DataFrame:
        _import_pandas(f"hpo.open(...).{name}")
        return self.table(name).to_pandas()

    @property
    def rows(self) -> list[TrialRow]:
        """The trials in the journal, by number."""
        with Journal(self.folder) as journal:
            return trials_seen(journal)

    @property
    def leaderboard(self) -> Leaderboard:
        """All trials, best first."""
        with Journal(self.folder) as journal:
            board = Leaderboard(leaderboard_of(journal.meta, trials_seen(journal)))
            board.objectives = tuple(str(one["name"]) for one in journal.meta.objectives)
        return board

    @property
    def best(self) -> Entry | None:
        """The first trial of the leaderboard; None if no trial has a value."""
        board = self.leaderboard
        if not board or board[0].value is None:
            return None
        return board[0]

    @property
    def conclusion(self) -> Conclusion:
        """The verdict, based on test seeds; printing it shows its sentences."""
        with Journal(self.folder) as journal, journal.at_one_commit():
            return conclusion_of(journal)

    @property
    def time(self) -> dict[str, float]:
        """The seconds that the study spent on each part of its work."""
        with Journal(self.folder) as journal:
            return usage_at(journal.head()).seconds_by_part

    def policy(self, trial: int | None = None, *, imports: bool = False) -> SavedPolicy:
        """Return the kept policy of the winner or of a trial.

        Args:
            trial: number of the trial; None: the winner.
            imports: whether to run the saved code that registers the policy's parts.

        Raises:
            StoreError: no policy of that trial was kept.
        """
        from .policies import load_policy

        if trial is None:
            if (best := self.best) is None:
                raise StoreError(f"{self.name} has no winner yet")
            trial = best.trial
        kept = StudyFolder(self.folder).policies / f"trial_{trial}"
        if not kept.is_dir():
            text = f"{self.name} has no saved policy for trial {trial}"
            raise StoreError(f"{text}; to keep more, set checkpoint: {{keep_best: N}}")
        return load_policy(kept, imports=imports)

    def what_if(self, *rules: str, seeds: int | None = None) -> WhatIf:
        """Return the results to be expected with other early stopping rules; see `hpo what-if`.

        Args:
            rules: rules such as `"asha,eta=2"`, `"racing"` or `"none"`; by default, the
                usual ones.
            seeds: use only this many seeds of each trial, the first ones; None: as recorded.

        Raises:
            ConfigError: a rule is unknown, or the study has too few values.
        """
        from ...search.what_if import what_if

        with speaks_python():
            return what_if(self.folder, rules, seeds)

    @cached_property
    def plot(self) -> Plots:
        """Charts of the study, as matplotlib axes: `plot.curves()`, `plot.history()`, ..."""
        return Plots(self.folder)

    def __repr__(self) -> str:
        return f"{self.name}: {self._summary_line()}\n{self.conclusion}\n{self.leaderboard!r}"

    def _repr_html_(self) -> str:
        said = "".join(f"<li>{escape(text)}</li>" for text in self.conclusion.said)
        head = f"<p><strong>{escape(self.name)}</strong> {escape(self._summary_line())}</p>"
        return f"{head}<ul>{said}</ul>{self.leaderboard._repr_html_()}"

    def _summary_line(self) -> str:
        with Journal(self.folder) as journal:
            meta, counts = journal.meta, journal.count_by_state()
        states = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
        return f"{self.state}; {meta.metric}; {states or 'no trial yet'}"


def _import_pandas(purpose: str) -> Any:
    try:
        import pandas
    except ModuleNotFoundError as error:
        raise MissingExtraError("pandas", "notebook", purpose) from error
    return pandas


def _leaderboard_rows(leaderboard: Leaderboard) -> tuple[list[list[str]], str]:
    """Return the table of `hpo top` (header and rows), and the values that all trials share."""
    shown = Board.of(leaderboard[:_SHOWN], leaderboard.objectives)
    apart, same = knob_columns(shown.trials)
    columns = [*board_columns(shown), *apart]
    header = [column.name.replace("\n", " ") for column in columns]
    rows = [header, *(_on_one_line(row) for row in rows_of(columns))]
    if more := len(leaderboard) - len(shown.trials):
        rows.append([f"... {more} more", *[""] * (len(header) - 1)])
    return rows, same


def _on_one_line(row: Sequence[str]) -> list[str]:
    return [cell.replace("\n", " ") for cell in row]


def _html_table(rows: Sequence[Sequence[str]]) -> str:
    head = _html_row(rows[0], "th")
    body = "".join(_html_row(row, "td") for row in rows[1:])
    return f"<table><thead>{head}</thead><tbody>{body}</tbody></table>"


def _html_row(cells: Sequence[str], tag: str) -> str:
    inner = "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells)
    return f"<tr>{inner}</tr>"


def report(
    study: str | Path | None = None, out: str | Path = RESULTS, to: str | Path | None = None
) -> Path:
    """Write a study's report as one HTML file and return its path; `hpo report` in Python.

    Args:
        study: its name, or its folder; None means the only study in `out`.
        out: the results folder.
        to: path of the file; None writes `report.html` to the study's folder.

    Raises:
        StoreError: there is no such study, or its journal is damaged.
    """
    with speaks_python():
        if to is not None:
            to = Path(to)
        return write_report(find_study(study, Path(out)), to)
