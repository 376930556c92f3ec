"""SQL reads this study's tables, and can do nothing else."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.episodes import evaluation
from hpo.cli import main
from hpo.errors import StoreError
from hpo.store import (
    Stream,
    StudyFolder,
    StudyMeta,
    StudyStore,
    TrialRow,
    TrialState,
    rows_as_json,
)
from hpo.store import query as run_query

queries = sys.modules["hpo.store.query"]  # the package has the function by that name

Make = Callable[..., TrialRow]


def fill(folder: StudyFolder, meta: StudyMeta, rows: list[TrialRow]) -> Path:
    with StudyStore(folder, meta) as store:
        store.curves.add_chunk([0], [Stream.SEARCH], [0], [10], {"loss/policy": [0.5]})
        evaluations = [evaluation(0, 0, 10, [1.5], 9, blocking=0.1)]
        store.commit(loop_state="{}", checkpoint=None, trials=rows, evaluations=evaluations)
        store.publish()
    return folder.path


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory, meta: StudyMeta, make_trial: Make) -> Path:
    folder = StudyFolder(tmp_path_factory.mktemp("query") / "toy")
    rows = [make_trial(n, value=[1.0, float("nan"), 3.0][n], seed_values=(1.0,)) for n in range(3)]
    return fill(folder, meta, rows)


def _killed_after_commit(folder: StudyFolder, meta: StudyMeta, make_trial: Make) -> None:
    """Write a study whose last commit was not published, with one trial still running."""
    fill(folder, meta, [make_trial(0, TrialState.RUNNING)])
    with StudyStore(folder, meta) as store:
        rows = [make_trial(0, value=2.0, seed_values=(2.0,)), make_trial(1, TrialState.RUNNING)]
        store.commit(loop_state="{}", checkpoint=None, trials=rows)


def test_tables_of_a_killed_study_are_renewed(
    folder: StudyFolder, meta: StudyMeta, make_trial: Make
) -> None:
    _killed_after_commit(folder, meta, make_trial)
    sql = "SELECT trial, state, value FROM trials ORDER BY trial"
    assert run_query(folder.path, sql)[1] == [(0, "finished", 2.0), (1, "interrupted", None)]
    before = folder.table("trials").stat().st_mtime_ns
    run_query(folder.path, sql)
    assert folder.table("trials").stat().st_mtime_ns == before  # only once
    folder.table("curves").unlink()
    assert queries.has_column(folder.path, "curves", "loss_policy")


def test_a_running_study_publishes_its_own_tables(
    folder: StudyFolder, meta: StudyMeta, make_trial: Make
) -> None:
    _killed_after_commit(folder, meta, make_trial)
    with StudyStore(folder, meta):
        assert run_query(folder.path, "SELECT state FROM trials")[1] == [("running",)]


def test_old_tables_that_cannot_be_renewed_are_named(
    folder: StudyFolder,
    meta: StudyMeta,
    make_trial: Make,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _killed_after_commit(folder, meta, make_trial)

    def refuse(directory: Path) -> None:
        raise StoreError(f"cannot lock {directory.name}")

    monkeypatch.setattr("hpo.store.tables.StudyLock", refuse)
    with pytest.warns(UserWarning, match="may lack its last commits; run the study file"):
        run_query(folder.path, "SELECT 1")
    assert main(["query", "SELECT state FROM trials", "--study", str(folder.path)]) == 0
    said = capsys.readouterr()
    assert "interrupted" in said.out
    assert said.err.startswith("warning: the tables of ") and said.err.count("\n") == 1


@pytest.mark.parametrize(
    ("sql", "columns", "rows"),
    [
        ("SELECT trial FROM trials ORDER BY rank LIMIT 2", ["trial"], [(2,), (0,)]),
        ("SELECT max(value) AS best FROM trials WHERE isfinite(value);", ["best"], [(3.0,)]),
        ('SELECT trial FROM trials WHERE "param.num_minibatches" = 4', ["trial"], [(2,)]),
        ("SELECT param.num_minibatches AS n FROM trials WHERE trial = 2", ["n"], [(4,)]),
        ("SELECT param.env.load FROM trials WHERE trial = 1", ["load"], [(201.0,)]),
        ("SELECT t.param.activation FROM trials t WHERE trial = 1", ["activation"], [("relu",)]),
        ("WITH c AS (SELECT * FROM curves) SELECT loss_policy FROM c", ["loss_policy"], [(0.5,)]),
        ("FROM evaluations SELECT blocking", ["blocking"], [(0.1,)]),
        ("SHOW TABLES", ["name"], [("curves",), ("evaluations",), ("trials",)]),
        ("SELECT 1 AS a -- a comment; and more", ["a"], [(1,)]),
    ],
)
def test_select_returns_columns_and_rows(
    study: Path, sql: str, columns: list[str], rows: list[tuple]
) -> None:
    assert run_query(study, sql) == (columns, rows)


def test_describe_and_summarize(study: Path) -> None:
    columns, rows = run_query(study, "DESCRIBE trials")
    assert columns[:2] == ["column_name", "column_type"]
    types = {row[0]: row[1] for row in rows}
    assert types["param.learning_rate"] == "DOUBLE" and types["seed_values"] == "DOUBLE[]"
    assert run_query(study, "SUMMARIZE curves")[1]


@pytest.mark.parametrize(
    "sql",
    [
        "COPY trials TO '{study}/stolen.csv'",
        "COPY (SELECT 1) TO '/tmp/stolen.csv'",
        "ATTACH '{study}/x.db'",
        "ATTACH '{study}/journal.sqlite' (TYPE sqlite)",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "RESET lock_configuration",
        "PRAGMA version",
        "CALL pragma_version()",
        "CREATE TABLE x AS SELECT 1",
        "CREATE VIEW trials2 AS SELECT 1",
        "DROP VIEW trials",
        "INSERT INTO trials SELECT * FROM trials",
        "EXPORT DATABASE '{study}'",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO '{study}/x'",
        "USE memory",
        "VACUUM",
        "CHECKPOINT",
        "PREPARE a AS SELECT 1",
        "PIVOT trials ON trial USING sum(value)",
    ],
)
def test_writing_sql_statements_are_refused(study: Path, sql: str) -> None:
    before = sorted(path.name for path in study.iterdir())
    with pytest.raises(StoreError, match=r"a query must be read-only \(here: \w+\)"):
        run_query(study, sql.format(study=study))
    assert sorted(path.name for path in study.iterdir()) == before


@pytest.mark.parametrize(
    "sql", ["", "  ", "-- nothing", "SELECT 1; SELECT 2", "SELECT 1; DROP VIEW x"]
)
def test_multiple_sql_statements_are_refused(study: Path, sql: str) -> None:
    with pytest.raises(StoreError, match="a query must be one statement"):
        run_query(study, sql)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM read_blob('/etc/passwd')",
        "SELECT * FROM '/etc/passwd.csv'",
        "SELECT * FROM read_text('{study}/../other.txt')",
        "SELECT * FROM read_text('{study}2/other.txt')",
        "SELECT * FROM read_text('../other.txt')",
        "SELECT * FROM glob('/*')",
        "SELECT * FROM read_parquet('{study}/../*/trials.parquet')",
        "SELECT * FROM read_text('file:///etc/passwd')",
        "SELECT * FROM read_csv('https://example.org/x.csv')",
        "SELECT * FROM read_csv('/dev/stdin')",
        "SELECT (SELECT content FROM read_text('/etc/passwd'))",
        "SELECT * FROM query('SELECT * FROM read_text(''/etc/passwd'')')",
    ],
)
def test_query_cannot_read_files_outside_the_study(study: Path, sql: str) -> None:
    (study.parent / "other.txt").write_text("secret")
    Path(f"{study}2").mkdir(exist_ok=True)
    (Path(f"{study}2") / "other.txt").write_text("secret")
    with pytest.raises(StoreError, match="only the files of its study"):
        run_query(study, sql.format(study=study))


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELEC 1", "syntax error"),
        ("SELECT * FROM trial", r'(?s)Did you mean "trials".*tables: trials, evaluations, curves'),
        ("SELECT valeu FROM trials", "value"),
        ("SELECT * FROM sqlite_scan('a', 'b')", "the query failed"),
        ("SELECT getenv('HOME')", "the query failed"),
        (
            "WITH a AS (INSERT INTO trials VALUES (1) RETURNING *) SELECT * FROM a",
            "the query failed",
        ),
        ("SELECT * FROM query('COPY trials TO ''x.csv''')", "the query failed"),
        ("SELECT * FROM python_rows", "does not exist"),
    ],
)
def test_sql_mistakes_are_reported(study: Path, sql: str, words: str) -> None:
    import pyarrow as pa

    python_rows = pa.table({"a": [1]})
    with pytest.raises(StoreError, match=words):
        run_query(study, sql)
    assert python_rows.num_rows == 1


def test_query_writes_no_files(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("HOME", str(work))
    before = {path: path.stat().st_mtime_ns for path in study.rglob("*")}
    run_query(study, "SELECT * FROM trials, range(200000) ORDER BY random() LIMIT 1")
    assert os.listdir(work) == []
    assert {path: path.stat().st_mtime_ns for path in study.rglob("*")} == before


@pytest.mark.parametrize("name", ["it's", "a[1]*", "sp ace", 'quo"te'])
def test_query_handles_special_characters_in_paths(
    tmp_path: Path, meta: StudyMeta, make_trial: Make, name: str
) -> None:
    study = fill(StudyFolder(tmp_path / name / "toy"), meta, [make_trial(0)])
    assert run_query(study, "SELECT trial FROM trials")[1] == [(0,)]
    os.symlink(study, tmp_path / "link")
    assert run_query(tmp_path / "link", "SELECT trial FROM trials")[1] == [(0,)]


def test_conflicting_param_names_stay_separate_columns(
    folder: StudyFolder, meta: StudyMeta
) -> None:
    kinds = {"env": "text", "env.load": "float"}
    study = fill(folder, dataclasses.replace(meta, param_kinds=kinds), [])
    columns, _ = run_query(study, "SELECT * FROM trials")
    assert columns[-2:] == ["param.env", "param.env.load"]


def test_query_before_the_first_commit_is_refused(folder: StudyFolder, meta: StudyMeta) -> None:
    with StudyStore(folder, meta):
        words = r"^toy has no trials.parquet yet; host .* is running it: wait a minute"
        with pytest.raises(StoreError, match=words):
            run_query(folder.path, "SELECT 1")
    with pytest.raises(StoreError, match=r"no trials.parquet yet; run the study file"):
        run_query(folder.path, "SELECT 1")


LONG = "SELECT sum(a.range * b.range) FROM range(1000000) a, range(1000000) b"


def test_query_stops_after_its_time_limit(study: Path) -> None:
    with pytest.raises(StoreError, match=r"^the query was stopped after 0.2 s; .* more time$"):
        run_query(study, LONG, 0.2)
    with pytest.raises(StoreError, match="was stopped after"):  # while rows are taken, too
        run_query(study, "SELECT a.range FROM range(100000) a, range(100000) b", 0.05)
    assert run_query(study, "SELECT 1 AS one", None) == (["one"], [(1,)])


def test_query_stops_at_its_memory_and_cell_limits(
    study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "MEMORY", "50MB")
    many = "SELECT list(a.range * b.range) FROM range(10000) a, range(10000) b"
    with pytest.raises(StoreError, match=r"^the query needs more than 50MB of memory; [^\n]*$"):
        run_query(study, many)
    monkeypatch.setattr(queries, "CELLS", 50_000)
    with pytest.raises(StoreError, match=r"more than 50,000 cells; aggregate, or add LIMIT"):
        run_query(study, "SELECT range, range FROM range(1000000)")


def test_streamed_rows_may_exceed_the_cell_limit(
    study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "CELLS", 10)
    with queries.streamed(study, "SELECT range AS a, range + 1 AS b FROM range(50000)") as rows:
        assert rows.columns == ["a", "b"]
        sizes, last = [], (-1, 0)
        for some in rows:
            assert some[0] == (last[0] + 1, last[1] + 1)
            sizes.append(len(some))
            last = some[-1]
    assert last == (49_999, 50_000) and sum(sizes) == 50_000 and max(sizes) <= 10_000


def test_row_processing_does_not_count_towards_query_time(study: Path) -> None:
    with queries.streamed(study, "SELECT range FROM range(200000)", 5.0) as rows:
        turns = iter(rows)
        count = len(next(turns))
        allowed = rows._allowed
        left = allowed._left
        time.sleep(0.3)
        assert allowed._left == left  # nothing is counted between two turns
        assert count + sum(map(len, turns)) == 200_000
        assert allowed._left < left


@pytest.mark.slow
def test_large_sort_spills_to_disk_and_cleans_up(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(queries, "MEMORY_AT_FIRST", "32MB")
    monkeypatch.setattr(queries, "MEMORY", "32MB")
    # Each thread holds blocks of several sorted runs in memory while it merges them: with two,
    # these alone are more than 32 MB now and then.
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    # Twice the memory in numbers that do not shrink: no way of sorting holds all of them.
    sql = "SELECT range * 7919 % 4000037 AS n, hash(range) AS m FROM range(4000000) ORDER BY n"
    with queries.streamed(study, sql) as rows:
        assert [path.name for path in tmp_path.iterdir() if path.name.startswith("hpo-query-")]
        assert sum(len(some) for some in rows) == 4_000_000
    assert list(tmp_path.iterdir()) == []


def test_query_that_cannot_spill_is_retried_with_more_memory(
    study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "MEMORY_AT_FIRST", "10MB")
    asked = []
    begun = queries._open_rows
    monkeypatch.setattr(queries, "_open_rows", lambda *a: (asked.append(a[3]), begun(*a))[1])
    assert run_query(study, "SELECT len(list(range)) AS n FROM range(5000000)")[1] == [
        (5_000_000,)
    ]
    assert asked == ["10MB", "2GB"]


@pytest.mark.parametrize("cores", [1, 4])
def test_ctrl_c_ends_a_query(study: Path, monkeypatch: pytest.MonkeyPatch, cores: int) -> None:
    """Also while the thread that asked waits for DuckDB's others, and then hears no signal."""
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    # Where the tests are a background job of a script it is ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    begun = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            run_query(study, LONG)
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - begun < queries.TIMEOUT_SECONDS / 2  # and not its own end


def test_ctrl_c_while_a_query_opens_its_tables_is_an_interrupt(
    study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise RuntimeError("Query interrupted")  # as DuckDB 2.0 does outside of our thread

    monkeypatch.setattr("duckdb.connect", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_query(study, "SELECT 1")


NOTEBOOK = """
import sys, types
from pathlib import Path
fake = types.ModuleType("IPython")
fake.get_ipython = lambda: types.SimpleNamespace(config={"IPKernelApp": {}})
sys.modules.update({"IPython": fake, "ipywidgets": None})
from hpo.store.query import query
print(query(Path(sys.argv[1]), "SELECT 1 AS one"))
"""


def test_a_notebook_without_widgets_can_query(study: Path) -> None:
    """DuckDB takes an interpreter without a main file for a notebook if IPython says so."""
    done = subprocess.run(
        [sys.executable, "-c", NOTEBOOK, str(study)], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("(['one'], [(1,)])\n", 0), done.stderr


WITHOUT_PYTZ = """
import sys
sys.modules["pytz"] = None
from pathlib import Path
from hpo.store.query import streamed
from hpo.views.commands.read_study import csv_pieces, json_pieces, table_pieces
for pieces in (csv_pieces, json_pieces, table_pieces):
    with streamed(Path(sys.argv[1]), sys.argv[2]) as rows:
        print("".join(pieces(rows)), end="")
"""
TIMES = """SELECT trial, to_timestamp(trial + 0.25) AS at, to_timestamp(0) AS at,
    NULL::TIMESTAMPTZ AS no, [to_timestamp(trial)] AS some, {'begun': to_timestamp(1)} AS more,
    'infinity'::TIMESTAMPTZ AS never FROM trials WHERE trial < 2 ORDER BY trial DESC; -- backwards
"""


@pytest.mark.parametrize(
    ("zone", "minute", "offset", "short"),
    [
        ("UTC", "1970-01-01 00:00:", "+00:00", "+00"),
        ("America/St_Johns", "1969-12-31 20:30:", "-03:30", "-03:30"),
    ],
)
def test_query_timestamps_do_not_require_pytz(
    study: Path, zone: str, minute: str, offset: str, short: str
) -> None:
    """DuckDB makes times with a zone by pytz, which is not installed with us."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_PYTZ, str(study), TIMES],
        env={**os.environ, "TZ": zone},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    csv_text, bracket, rest = done.stdout.partition("[\n")
    json_text, end, table = rest.partition("\n]\n")
    lines = csv_text.splitlines()
    at, begun = f"{minute}01.250000{offset}", f"{minute}00{offset}"
    assert lines[0] == "trial,at,at,no,some,more,never" and len(lines) == 3
    assert lines[1].startswith(f"1,{at},{begun},,") and lines[1].endswith(",infinity")
    assert json.loads(bracket + json_text + end)[0] == {
        **{"trial": 1, "at": at, "at_2": begun, "no": None, "never": "infinity"},
        **{"some": [f"{minute}01{short}"], "more": {"begun": f"{minute}01{short}"}},
    }
    assert at in table and begun in table


def test_query_timestamps_are_exact_instants(study: Path) -> None:
    sql = "SELECT to_timestamp(range / 4) AS at FROM range(40000) ORDER BY range DESC"
    columns, rows = run_query(study, sql)
    assert columns == ["at"] and len(rows) == 40_000  # more than come at once
    assert [row[0].timestamp() for row in rows] == [n / 4 for n in range(39_999, -1, -1)]
    with pytest.raises(StoreError, match=r"the query failed: .*nothing"):
        run_query(study, "SELECT to_timestamp(nothing) FROM trials")


def test_query_rows_convert_to_json(study: Path) -> None:
    sql = """SELECT trial, trial, value, param, seed_values, 1.25::DECIMAL(4, 2) AS d,
        DATE '2024-05-01' AS day, true AS yes FROM trials ORDER BY trial"""
    rows = rows_as_json(*run_query(study, sql))
    assert json.loads(json.dumps(rows, allow_nan=False)) == rows
    assert rows[1]["trial"] == rows[1]["trial_2"] == 1 and rows[1]["value"] is None
    assert rows[1]["param"]["env"] == {"load": 201.0} and rows[1]["seed_values"] == [1.0]
    assert (rows[1]["d"], rows[1]["day"], rows[1]["yes"]) == (1.25, "2024-05-01", True)


@pytest.mark.parametrize("table", ["trials", "curves"])
def test_damaged_table_is_reported_and_can_be_republished(
    tmp_path: Path, meta: StudyMeta, make_trial: Make, table: str
) -> None:
    folder = StudyFolder(tmp_path / "toy")
    fill(folder, meta, [make_trial(0)])
    whole = folder.table(table).read_bytes()
    folder.table(table).write_bytes(whole[:200])
    with pytest.raises(StoreError, match=rf"^\S+/{table}.parquet cannot be read; .* the journal$"):
        run_query(folder.path, "SELECT count(*) FROM curves")
    with StudyStore(folder, meta) as store:
        store.publish(force=True)
    assert folder.table(table).read_bytes() == whole
