"""The published tables: their schemas, their content, when they are written, what is equal."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helpers.episodes import evaluation
from hpo.errors import StoreError
from hpo.store import (
    Commit,
    CurveParts,
    EvaluationRow,
    Journal,
    Publisher,
    Stream,
    StudyMeta,
    TrialRow,
    TrialState,
    tables_equal,
)
from hpo.store import parquet as parquet_module
from hpo.store import tables as tables_module
from hpo.store.tables import sql_names

Make = Callable[..., TrialRow]

TRIALS_SCHEMA = """rank int64, trial int64, state string, value double, ci_low double,
ci_high double, ci_kind string, value_from string, confirmed bool, seeds int64,
search_value double, choose_value double, report_value double, measured_value double,
measured_from string, measured_seeds int64, rung int64, rung_value double, rung_env_steps int64,
stop_rule string, audited bool, env_steps int64, eval_env_steps int64, warmup_env_steps int64,
seed_values list<element: double>, choose_values list<element: double>,
report_values list<element: double>, report_diverged list<element: int64>, proposed_by string,
batch int64, bucket string, bits int64,
error string, started_at double, ended_at double, train_seconds double, params string,
schedule string, param.activation string, param.env.load double, param.hidden_sizes string,
param.learning_rate double, param.normalise_advantages bool, param.num_minibatches int64"""


def episodes(trial: int, **metrics: float) -> list[EvaluationRow]:
    return [evaluation(trial, 0, 100, [0.0, 1 / 3], [7, 8], **metrics)]


def write(
    directory: Path,
    meta: StudyMeta,
    trials: list[TrialRow],
    evaluations: list[EvaluationRow] | None = None,
    curves: Sequence[tuple[Any, ...]] = (),
) -> Path:
    """A study of one commit, published."""
    directory.mkdir()
    with Journal.create(directory, meta) as journal:
        parts = CurveParts(directory, [])
        for row in curves:
            parts.add_chunk(*row)
        listed, _ = parts.flush()
        journal.commit(
            Commit(1, "{}", None, 1.0, trials, evaluations=evaluations or (), parts=listed)
        )
        assert Publisher(directory, journal).publish()
    return directory


def read(directory: Path, name: str) -> pa.Table:
    return pq.ParquetFile(directory / f"{name}.parquet").read()


def text(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def test_table_schemas_match_the_docs(tmp_path: Path, meta: StudyMeta) -> None:
    curves = [([0], [Stream.SEARCH], [0], [8], {"loss/policy": [1.0], "kl": [2.0]})]
    study = write(tmp_path / "a", meta, [], episodes(0, blocking=0.5), curves)
    assert text(read(study, "trials").schema) == " ".join(TRIALS_SCHEMA.split())
    assert text(read(study, "evaluations").schema) == (
        "trial int64, stream string, replicate int64, env_steps int64, episode int64, "
        "episode_return double, episode_length int64, blocking double"
    )
    assert text(read(study, "curves").schema) == (
        "trial int64, stream string, replicate int64, env_steps int64, kl double, "
        "loss_policy double"
    )
    docs = Path(__file__).parents[2] / "docs" / "reference" / "tables.md"
    for column in TRIALS_SCHEMA.replace("\n", " ").split(", "):
        name = column.split()[0]
        assert name.startswith("param.") or f"`{name}`" in docs.read_text(), name


def test_an_empty_study_publishes_empty_tables(tmp_path: Path, meta: StudyMeta) -> None:
    study = write(tmp_path / "a", meta, [])
    assert [read(study, name).num_rows for name in ("trials", "evaluations", "curves")] == [0] * 3


def test_trials_table_matches_the_leaderboard(
    tmp_path: Path, meta: StudyMeta, make_trial: Make
) -> None:
    rows = [
        make_trial(0, TrialState.STOPPED, rung=1, rung_value=3.0, stop_rule="asha eta=4"),
        make_trial(1, value=2.0, seed_values=(1.0, 2.0, 3.0, 1.5, 2.5)),
        make_trial(2, value=math.nan, seed_values=(math.nan,)),
    ]
    table = read(write(tmp_path / "a", meta, rows), "trials")
    assert table["trial"].to_pylist() == [1, 0, 2]
    assert table["rank"].to_pylist() == [1, 2, 3]
    assert table["value"].to_pylist()[:2] == [2.0, None]
    assert math.isnan(table["value"].to_pylist()[2])  # NaN is a value, not a missing one
    assert table["ci_kind"].to_pylist() == ["t", "none", "none"]
    assert table["seed_values"].to_pylist()[0] == [1.0, 2.0, 3.0, 1.5, 2.5]
    assert table["param.num_minibatches"].to_pylist() == [2, 1, 4]
    assert table["param.normalise_advantages"].to_pylist() == [True, None, False]
    assert table["param.hidden_sizes"].to_pylist() == ["[64, 128]", "[64, 64]", "[64, 64]"]
    assert '"activation": "relu"' in table["params"].to_pylist()[0]


def test_evaluations_table_has_episodes_with_metrics(
    tmp_path: Path, meta: StudyMeta, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables_module, "_EVALUATIONS_AT_ONCE", 2)
    rows = [*episodes(2, load=2.0), *episodes(0, load=1.0, blocking=math.nan), *episodes(1)]
    table = read(write(tmp_path / "a", meta, [], rows), "evaluations")
    assert table["trial"].to_pylist() == [0, 0, 1, 1, 2, 2]
    assert table["episode"].to_pylist() == [0, 1] * 3
    assert table["episode_return"].to_pylist() == [0.0, 1 / 3] * 3
    assert table["episode_length"].to_pylist() == [7, 8] * 3
    assert table["load"].to_pylist() == [1.0, 1.0, None, None, 2.0, 2.0]
    assert repr(table["blocking"].to_pylist()) == repr([math.nan] * 2 + [None] * 4)


def test_parquet_row_groups_have_a_fixed_size(
    tmp_path: Path, meta: StudyMeta, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_module, "GROUP_ROWS", 8)
    with Journal.create(tmp_path, meta) as journal:
        parts, step = CurveParts(tmp_path, []), 0
        for number, count in enumerate((3, 1, 20, 7), start=1):
            for _ in range(count):
                parts.add_chunk([0], [Stream.SEARCH], [0], [step], {"kl": [step / 3]})
                step += 1
            listed, merged = parts.flush()
            journal.commit(Commit(number, "{}", None, 0.0, parts=listed, merged=merged))
            parts.committed()
        Publisher(tmp_path, journal).publish()
    file = pq.ParquetFile(tmp_path / "curves.parquet").metadata
    assert [file.row_group(index).num_rows for index in range(file.num_row_groups)] == [8, 8, 8, 7]
    assert read(tmp_path, "curves")["env_steps"].to_pylist() == list(range(31))


def test_metric_names_become_sql_column_names() -> None:
    names = ["eval/return_mean", "a.b-c", "Trial", "95th", "kl"]
    assert sql_names(names, taken=["trial", "kl"]) == {
        "95th": "metric_95th",
        "Trial": "metric_Trial",
        "a.b-c": "a_b_c",
        "eval/return_mean": "eval_return_mean",
        "kl": "metric_kl",
    }
    with pytest.raises(StoreError, match="'a/b' and 'a_B' would share the column"):
        sql_names(["a_B", "a/b"], taken=[])


def test_table_publication_is_rate_limited(tmp_path: Path, meta: StudyMeta) -> None:
    now = [0.0]
    with Journal.create(tmp_path, meta) as journal:
        publisher = Publisher(tmp_path, journal, 30.0, clock=lambda: now[0])
        assert publisher.publish()  # a study that goes on brings its tables up to date at once
        journal.commit(Commit(1, "{}", None, 0.0))
        now[0] = 29.0
        assert not publisher.publish()
        now[0] = 30.0
        assert publisher.publish()
        now[0] = 90.0
        assert not publisher.publish() and not publisher.publish(force=True)  # nothing is new
        journal.commit(Commit(2, "{}", None, 0.0))
        now[0] = 91.0
        assert publisher.publish(force=True)
        publisher.seconds = 4.0  # a large study is published less often: every 80 s
        journal.commit(Commit(3, "{}", None, 0.0))
        now[0] = 91.0 + 79.0
        assert not publisher.publish()
        now[0] += 1.0
        assert publisher.publish()


def test_a_failed_write_leaves_the_old_table(
    tmp_path: Path, meta: StudyMeta, make_trial: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Journal.create(tmp_path, meta) as journal:
        publisher = Publisher(tmp_path, journal)
        publisher.publish()
        journal.commit(Commit(1, "{}", None, 0.0, [make_trial(0)]))
        with monkeypatch.context() as patch:
            patch.setattr(pq.ParquetWriter, "write_table", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                publisher.publish(force=True)
        assert read(tmp_path, "trials").num_rows == 0
        assert publisher.publish(force=True)
        assert read(tmp_path, "trials").num_rows == 1


def test_tables_equal_detects_single_bit_differences(
    tmp_path: Path, meta: StudyMeta, make_trial: Make
) -> None:
    curves = [([0], [Stream.SEARCH], [0], [step], {"kl": [0.1 * step]}) for step in range(5)]
    rows = [make_trial(0, value=math.nan, seed_values=(0.1, math.nan), started_at=1.0)]
    first = write(tmp_path / "a", meta, rows, episodes(0, x=0.0), curves)

    def compared(name: str, *args: list) -> list[str]:
        return tables_equal(first, write(tmp_path / name, meta, *args))

    later = [dataclasses.replace(rows[0], started_at=2.0, ended_at=3.0)]
    assert compared("b", later, episodes(0, x=0.0), curves[::-1]) == []
    minus = compared("c", rows, episodes(0, x=-0.0), curves)
    assert len(minus) == 2 and minus[0].startswith("evaluations: x at trial 0, stream search")
    assert minus[0].endswith("0.0 and -0.0")
    bit = float(np.nextafter(0.1, 1.0))
    nudged = [dataclasses.replace(rows[0], seed_values=(bit, math.nan))]
    assert compared("d", nudged, episodes(0, x=0.0), curves) == [
        f"trials: seed_values at trial 0: [0.1, nan] and [{bit}, nan]"
    ]
    changed = [(*row[:4], {"kl": [9.0]}) for row in curves]
    assert compared("e", rows, episodes(0, x=0.0), changed)[-1] == "curves: kl: 2 more rows differ"
    assert compared("f", rows, episodes(0), curves[1:]) == [
        "evaluations: columns differ: ['x double']",
        "curves: row counts differ: 5 and 4",
    ]
    (tmp_path / "f" / "trials.parquet").unlink()
    assert "missing" in tables_equal(first, tmp_path / "f")[0]


def test_tables_equal_distinguishes_null_and_nan(
    tmp_path: Path, meta: StudyMeta, make_trial: Make
) -> None:
    first = write(tmp_path / "a", meta, [make_trial(0, value=math.nan, seed_values=(1.0,))])
    second = write(tmp_path / "b", meta, [make_trial(0, value=None, seed_values=(1.0,))])
    assert [line.split(" at ")[0] for line in tables_equal(first, second)] == [
        "trials: value",
        "trials: value_from",
        "trials: search_value",
        "trials: measured_value",
        "trials: measured_from",
        "trials: measured_seeds",
    ]
