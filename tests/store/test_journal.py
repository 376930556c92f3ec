"""The journal gives back what it was given, whole commits only."""

from __future__ import annotations

import dataclasses
import math
import sqlite3
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helpers.episodes import episodes_in, episodes_of, evaluation
from hpo.errors import StoreError
from hpo.store import (
    AskRow,
    AttributeRow,
    Commit,
    CommitHead,
    DecisionRow,
    EvaluationRow,
    Journal,
    StudyMeta,
    TrialRow,
    TrialState,
    param_kind,
)
from hpo.store import journal as journals
from hpo.store.codec import trial_from_text, trial_to_text

Make = Callable[..., TrialRow]


def evaluated(trial: int, env_steps: int, count: int = 3) -> EvaluationRow:
    returns = [math.nan, -math.inf, 0.1][:count]
    lengths = [10**12 + episode for episode in range(count)]
    return evaluation(trial, 0, env_steps, returns, lengths, blocking=1 / 3, load=math.nan)


def decision(trial: int, rung: int = 0) -> DecisionRow:
    return DecisionRow(trial, rung, 50_000, math.nan, "stop", "asha eta=4", 3.5, 2, 9)


def commit(number: int, **changes: Any) -> Commit:
    return Commit(number, loop_state='{"a": 1}', checkpoint=None, at=2.5, **changes)


@pytest.fixture
def journal(tmp_path: Path, meta: StudyMeta) -> Journal:
    return Journal.create(tmp_path, meta)


def test_journal_round_trips_all_rows(journal: Journal, make_trial: Make, meta: StudyMeta) -> None:
    rows = [
        make_trial(0, TrialState.RUNNING),
        make_trial(
            *(1, TrialState.DIVERGED),
            value=math.nan,
            rung_value=-math.inf,
            seed_values=(0.1, math.nan, math.inf),
            choose_values=(1e-300, -0.0),
            started_at=1.7e9 + 0.123456,
            error="überlauf",
        ),
    ]
    asks = [AskRow(0, "default", (0,)), AskRow(1, "tpe", (1, 2), told=(0,))]
    attributes = [
        AttributeRow(None, "sobol:state", {"skip": 3, "nan": None}),
        AttributeRow(1, "tpe:group", [1.5, "x", True]),
    ]
    journal.commit(
        Commit(
            *(1, '{"lanes": []}', "lanes-000001", 12.25),
            trials=rows,
            evaluations=[evaluated(1, 800), evaluated(0, 400, 1)],
            decisions=[decision(1), decision(0)],
            asks=asks,
            attributes=attributes,
        )
    )
    journal.close()
    with Journal(journal.path.parent) as again:
        assert again.meta == meta
        assert again.head() == CommitHead(1, 12.25, "running", '{"lanes": []}', "lanes-000001")
        assert repr(again.trials()) == repr(rows)  # repr: NaN is not equal to itself
        assert repr(again.trial(1)) == repr(rows[1]) and again.trial(7) is None
        of_one = episodes_of(evaluated(1, 800))
        expected = [*episodes_of(evaluated(0, 400, 1)), *of_one]
        assert repr(list(episodes_in(again))) == repr(expected)
        assert repr(list(episodes_in(again, 1))) == repr(of_one)
        assert again.evaluation_metrics() == ["blocking", "load"]
        assert repr(again.decisions()) == repr([decision(1), decision(0)])
        assert repr(again.decisions(0)) == repr([decision(0)])
        assert again.asks() == asks and again.attributes() == attributes
        assert again.count_by_state() == {"running": 1, "diverged": 1}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(number=st.floats(), values=st.lists(st.floats(), max_size=5))
def test_journal_floats_round_trip_bitwise(
    make_trial: Make, number: float, values: list[float]
) -> None:
    row = make_trial(0, value=number, seed_values=tuple(values), params={})
    back = trial_from_text(trial_to_text(row, {}))
    for sent, got in zip((number, *values), (back.value, *back.seed_values), strict=True):
        assert got is not None
        same = struct.pack("<d", sent) == struct.pack("<d", got)
        assert same or (math.isnan(sent) and math.isnan(got))


def test_committed_trial_replaces_its_earlier_state(journal: Journal, make_trial: Make) -> None:
    journal.commit(commit(1, trials=[make_trial(0, TrialState.RUNNING), make_trial(1)]))
    journal.commit(commit(2, trials=[make_trial(0, TrialState.STOPPED)]))
    assert [row.state for row in journal.trials()] == ["stopped", "finished"]


def test_commit_repeating_a_row_is_refused(journal: Journal) -> None:
    first = commit(
        1, evaluations=[evaluated(0, 5)], decisions=[decision(0)], asks=[AskRow(0, "a", ())]
    )
    journal.commit(first)
    for repeated in (
        {"evaluations": [evaluated(0, 5)]},
        {"decisions": [decision(0)]},
        {"asks": [AskRow(0, "b", ())]},
    ):
        with pytest.raises(StoreError, match="commit 2 repeats a row"):
            journal.commit(commit(2, **repeated))
    assert journal.head().number == 1


def test_promotion_replaces_the_pause_decision(journal: Journal, tmp_path: Path) -> None:
    paused = [dataclasses.replace(decision(n), action="pause") for n in (0, 1)]
    later = dataclasses.replace(decision(0), action="promote", rank=3, judged=16)
    fresh = dataclasses.replace(decision(2), action="promote")  # paused since the last commit
    journal.commit(commit(1, decisions=paused))
    journal.commit(commit(2, decisions=[decision(3), later, fresh]))
    assert repr(journal.decisions()) == repr([paused[1], decision(3), later, fresh])
    journal.close()
    with Journal(tmp_path, writable=True) as again:  # which compares rows with their sum
        assert repr(again.decisions(0)) == repr([later])
        again.commit(commit(3, decisions=[decision(4)]))


def test_a_refused_commit_leaves_nothing(journal: Journal, make_trial: Make) -> None:
    bad = make_trial(1, params={"learning_rate": "fast"})
    with pytest.raises(StoreError, match=r"'learning_rate' is declared float.*'fast'"):
        journal.commit(commit(1, trials=[make_trial(0), bad], evaluations=[evaluated(0, 5)]))
    assert journal.trials() == [] and list(journal.evaluations()) == []
    assert journal.head().number == 0
    journal.commit(commit(1, trials=[make_trial(0)]))
    assert len(journal.trials()) == 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"params": {"gamma": 0.9}}, "does not declare: gamma; declared: activation"),
        ({"params": {"num_minibatches": 4.5}}, "declared int"),
        ({"params": {"num_minibatches": True}}, "declared int"),
        ({"params": {"normalise_advantages": 1}}, "declared bool"),
        ({"env_steps": 1.5}, "env_steps of trial 0"),
        ({"value": "high"}, "value of trial 0"),
        ({"seed_values": (1.0, None)}, "seed_values of trial 0"),
        ({"params": {"hidden_sizes": object()}}, "cannot store"),
    ],
)
def test_parameter_type_changes_are_refused(
    journal: Journal, make_trial: Make, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(StoreError, match=words):
        journal.commit(commit(1, trials=[make_trial(0, **changes)]))


def test_journal_accepts_numpy_numbers(journal: Journal, make_trial: Make) -> None:
    row = make_trial(
        *(0, TrialState.FINISHED),
        value=np.float32(0.5),
        env_steps=np.int64(7),
        params={"learning_rate": np.float64(0.1), "num_minibatches": np.int32(4)},
    )
    journal.commit(commit(1, trials=[row]))
    (back,) = journal.trials()
    assert (back.value, back.env_steps, type(back.env_steps)) == (0.5, 7, int)
    assert back.params == {"learning_rate": 0.1, "num_minibatches": 4}


def test_evaluation_rows_require_equal_episode_counts(journal: Journal) -> None:
    row = evaluated(0, 5)
    metrics = {**row.metrics, "load": row.returns[1:]}
    for changes in ({"lengths": row.lengths[1:]}, {"metrics": metrics}, {"returns": np.zeros(())}):
        with pytest.raises(StoreError, match="one length and one value of each metric per ep"):
            journal.commit(commit(1, evaluations=[dataclasses.replace(row, **changes)]))


def test_commits_are_numbered_without_gaps(journal: Journal) -> None:
    for number in (0, 2):
        with pytest.raises(StoreError, match=f"commit {number} does not follow commit 0"):
            journal.commit(commit(number))


def test_readers_work_while_the_journal_is_written(journal: Journal, make_trial: Make) -> None:
    with Journal(journal.path.parent) as reader:
        for number in range(1, 4):
            journal.commit(commit(number, trials=[make_trial(number)]))
            assert len(reader.trials()) == number
        with pytest.raises(StoreError, match="readonly"):
            reader.commit(commit(4))


def test_journal_meta_may_change_but_not_parameter_kinds(
    journal: Journal, meta: StudyMeta
) -> None:
    journal.replace_meta(dataclasses.replace(meta, study_text="new", devices=4))
    with Journal(journal.path.parent) as again:
        assert (again.meta.study_text, again.meta.devices) == ("new", 4)
    with pytest.raises(StoreError, match="cannot change; start another study"):
        journal.replace_meta(dataclasses.replace(meta, param_kinds={}))


def test_missing_or_foreign_journal_is_refused(tmp_path: Path, meta: StudyMeta) -> None:
    with pytest.raises(StoreError, match="there is no study in"):
        Journal(tmp_path)
    path = tmp_path / "journal.sqlite"
    path.write_bytes(b"no database at all, but long enough to be looked at" * 10)
    for use in (Journal, Journal.exists):
        with pytest.raises(StoreError, match="is damaged"):
            use(tmp_path)
    path.unlink()
    sqlite3.connect(path).close()  # what a crash at creation leaves
    assert not Journal.exists(tmp_path)
    with pytest.raises(StoreError, match="not an hpo journal"):
        Journal(tmp_path)
    Journal.create(tmp_path, meta).close()
    with pytest.raises(StoreError, match="already has a study"):
        Journal.create(tmp_path, meta)


def test_full_disk_at_creation_is_reported_and_can_be_retried(
    tmp_path: Path, meta: StudyMeta, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(journals, "TABLES", f"PRAGMA max_page_count = 2; {journals.TABLES}")
        with pytest.raises(StoreError, match=r"No space left on device .*journal.sqlite"):
            Journal.create(tmp_path, meta)
    assert not Journal.exists(tmp_path)
    with Journal.create(tmp_path, meta) as journal:
        assert journal.head() == CommitHead(at=meta.created_at)


def test_damaged_journal_content_is_refused(journal: Journal, make_trial: Make) -> None:
    journal.commit(commit(1, trials=[make_trial(number) for number in range(500)]))
    journal.close()
    content = bytearray(journal.path.read_bytes())
    content[4096:-4096] = b"\xff" * (len(content) - 8192)
    journal.path.write_bytes(content)
    with pytest.raises(StoreError, match="is damaged"), Journal(journal.path.parent) as again:
        again.trials()


def test_a_newer_format_is_refused(journal: Journal) -> None:
    journal.close()
    connection = sqlite3.connect(journal.path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StoreError, match=r"format 99.*upgrade"):
        Journal(journal.path.parent)


def test_meta_with_unknown_parameter_kind_is_refused(tmp_path: Path, meta: StudyMeta) -> None:
    wrong = dataclasses.replace(meta, param_kinds={"gamma": "double"})
    with pytest.raises(StoreError, match="kind 'double'; allowed are float"):
        Journal.create(tmp_path, wrong)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2.5], "float"),
        ([np.int64(1), None], "int"),
        ([True, False], "bool"),
        ([True, 1], "json"),
        (["a", 1], "json"),
        ([(64, 64)], "json"),
        ([None], "json"),
    ],
)
def test_parameter_kind_is_inferred_from_values(values: list[object], kind: str) -> None:
    assert param_kind(values) == kind


def test_at_one_commit_reads_a_consistent_snapshot(journal: Journal, make_trial: Make) -> None:
    journal.commit(commit(1, trials=[make_trial(0)]))
    begun = threading.Event()

    def write() -> None:
        with Journal(journal.path.parent, writable=True) as other:
            begun.set()
            other.commit(commit(2, trials=[make_trial(1)]))

    writer = threading.Thread(target=write)
    with journal.at_one_commit():
        assert journal.head().number == 1
        writer.start()
        assert begun.wait(30)
        time.sleep(0.1)
        assert len(journal.trials()) == 1 and journal.head().number == 1
    writer.join(60)
    assert journal.head().number == 2 and len(journal.trials()) == 2
    with pytest.raises(ValueError, match="halfway"), journal.at_one_commit():
        raise ValueError("halfway")
    with journal.at_one_commit():
        assert journal.head().number == 2
