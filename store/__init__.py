"""The store: what a study has seen, kept so that a crash costs seconds and anyone can query it.

Writing, by the search loop alone:

    with StudyStore(StudyFolder(Path("results/cartpole")), meta) as store:
        state = store.head.loop_state              # "{}" for a new study
        store.curves.add_chunk(trials, streams, replicates, env_steps, metrics)
        population.save(path := store.new_checkpoint())
        store.commit(loop_state=state, checkpoint=path.name, trials=..., evaluations=...)
        store.publish()                            # Parquet tables, at most every 30 s

Reading, by everybody, while it is written too:

    folder = find_study("cartpole")
    entries = read_leaderboard(folder)             # from the journal, best first
    columns, rows = query(folder.path, "SELECT trial, value FROM trials ORDER BY rank")

The journal (SQLite) is the truth, the Parquet tables are made of it. pyarrow, duckdb and numpy
are loaded on first use.
"""

from .codec import param_kind
from .journal import Journal
from .leaderboard import Entry, leaderboard
from .lock import StudyLock, lock_holder
from .parquet import CurveParts
from .query import query, rows_as_json
from .rows import (
    AskRow,
    AttributeRow,
    Commit,
    CurveRow,
    DecisionRow,
    EvaluationRow,
    Head,
    Part,
    Phase,
    Stream,
    StudyMeta,
    TrialRow,
    TrialState,
)
from .sinks import CsvSink, Sink, Sinks
from .statistics import Interval, aggregate, interval, iqm, mean, median
from .study_folder import (
    StudyFolder,
    StudySummary,
    checked_name,
    find_study,
    free_name,
    list_studies,
    read_leaderboard,
)
from .study_store import StudyStore
from .tables import Publisher, tables_equal

__all__ = [
    "AskRow",
    "AttributeRow",
    "Commit",
    "CsvSink",
    "CurveParts",
    "CurveRow",
    "DecisionRow",
    "Entry",
    "EvaluationRow",
    "Head",
    "Interval",
    "Journal",
    "Part",
    "Phase",
    "Publisher",
    "Sink",
    "Sinks",
    "Stream",
    "StudyFolder",
    "StudyLock",
    "StudyMeta",
    "StudyStore",
    "StudySummary",
    "TrialRow",
    "TrialState",
    "aggregate",
    "checked_name",
    "find_study",
    "free_name",
    "interval",
    "iqm",
    "leaderboard",
    "list_studies",
    "lock_holder",
    "mean",
    "median",
    "param_kind",
    "query",
    "read_leaderboard",
    "rows_as_json",
    "tables_equal",
]
