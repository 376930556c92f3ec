"""The store: a study's results, safe against crashes and readable while the study runs.

Writing, only by the search loop:

    with StudyStore(StudyFolder(Path("results/cartpole")), meta) as store:
        store.curves.add_chunk(trials, streams, replicates, env_steps, metrics)
        store.commit(loop_state=state, checkpoint=path.name, trials=..., evaluations=...)
        store.publish()                            # Parquet tables, at most every 30 s

Reading, even while the study is running:

    folder = find_study("cartpole")
    entries = read_leaderboard(folder)             # from the journal, best first
    columns, rows = query(folder.path, "SELECT trial, report_value FROM trials ORDER BY rank")

The Parquet tables are generated from the journal (SQLite). pyarrow, duckdb and numpy are loaded on
first use.
"""

if __name__ == "store":
    raise ImportError("import hpo.store instead, after `pip install -e .`")

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
    CommitHead,
    DecisionRow,
    EpisodeRow,
    EvaluationRow,
    Part,
    Stream,
    StudyMeta,
    TrialRow,
    TrialState,
)
from .sinks import CsvSink, Sink, Sinks
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
    "CommitHead",
    "CsvSink",
    "CurveParts",
    "DecisionRow",
    "Entry",
    "EpisodeRow",
    "EvaluationRow",
    "Journal",
    "Part",
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
    "checked_name",
    "find_study",
    "free_name",
    "leaderboard",
    "list_studies",
    "lock_holder",
    "param_kind",
    "query",
    "read_leaderboard",
    "rows_as_json",
    "tables_equal",
]
