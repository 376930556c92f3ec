"""The store as a whole: checkpoints tied to commits, resume, sinks, one writer."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from hpo.errors import StoreError
from hpo.files import atomic_files
from hpo.store import (
    Stream,
    StudyFolder,
    StudyMeta,
    StudyStore,
    TrialRow,
    tables_equal,
)

Make = Callable[..., TrialRow]


def save_lanes(store: StudyStore) -> str:
    path = store.new_checkpoint()
    path.mkdir()
    (path / "lanes.bin").write_bytes(os.urandom(10))
    return path.name


def test_store_creates_and_resumes_a_study(
    folder: StudyFolder, meta: StudyMeta, make_trial: Make
) -> None:
    with StudyStore(folder, meta) as store:
        assert store.created and store.head.number == 0 and store.checkpoint() is None
        assert json.loads(store.head.loop_state) == {}
        store.curves.add_chunk([0], [Stream.SEARCH], [0], [5], {"kl": [0.1]})
        number = store.commit(loop_state='{"step": 1}', checkpoint=None, trials=[make_trial(0)])
        assert number == 1
        store.curves.add_chunk([0], [Stream.SEARCH], [0], [10], {"kl": [0.2]})  # never committed
    with StudyStore(folder, meta) as store:
        assert not store.created and store.meta == meta
        assert store.head.loop_state == '{"step": 1}'
        assert store.curves.rows == 1
        assert store.publish() and not store.publish()
        assert pq.ParquetFile(folder.table("curves")).read().num_rows == 1
        assert store.commit(loop_state="{}", checkpoint=None) == 2


def test_lane_checkpoints_are_kept_only_for_the_last_commit(
    folder: StudyFolder, meta: StudyMeta
) -> None:
    with StudyStore(folder, meta) as store:
        (folder.checkpoints / "best-3").mkdir(parents=True)
        for number in range(1, 4):
            name = save_lanes(store)
            assert name == f"lanes-00000{number}"
            store.commit(loop_state="{}", checkpoint=name)
            assert {path.name for path in folder.checkpoints.iterdir()} == {name, "best-3"}
        save_lanes(store)  # crash before its commit
    with StudyStore(folder, meta) as store:
        assert {path.name for path in folder.checkpoints.iterdir()} == {"lanes-000003", "best-3"}
        assert store.checkpoint() == folder.checkpoints / "lanes-000003"
        store.commit(loop_state="{}", checkpoint=None, phase="finished")
        assert [path.name for path in folder.checkpoints.iterdir()] == ["best-3"]
        assert store.head.phase == "finished" and store.checkpoint() is None


def test_missing_lane_checkpoint_is_refused(folder: StudyFolder, meta: StudyMeta) -> None:
    with StudyStore(folder, meta) as store:
        with pytest.raises(StoreError, match=r"lane checkpoint .* is missing"):
            store.commit(loop_state="{}", checkpoint="lanes-000001")
        name = save_lanes(store)
        store.commit(loop_state="{}", checkpoint=name)
        (folder.checkpoints / name / "lanes.bin").unlink()
        (folder.checkpoints / name).rmdir()
    with pytest.raises(StoreError, match=r"lanes-000001 of the last commit is missing"):
        StudyStore(folder, meta)
    with pytest.raises(StoreError, match=r"lanes-000001"):  # and the lock was given back
        StudyStore(folder, meta)


def test_a_refused_commit_can_be_tried_again(
    folder: StudyFolder, meta: StudyMeta, make_trial: Make
) -> None:
    with StudyStore(folder, meta) as store:
        store.curves.add_chunk([0], [Stream.SEARCH], [0], [5], {"kl": [0.1]})
        with pytest.raises(StoreError, match="does not declare"):
            bad = make_trial(0, params={"speed": 1})
            store.commit(loop_state="{}", checkpoint=None, trials=[bad])
        assert store.commit(loop_state="{}", checkpoint=None, trials=[make_trial(0)]) == 1
        store.publish()
    assert pq.ParquetFile(folder.table("curves")).read().num_rows == 1


def test_full_disk_is_reported_and_commit_can_be_retried(
    folder: StudyFolder, meta: StudyMeta, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with StudyStore(folder, meta) as store:
        store.curves.add_chunk([0], [Stream.SEARCH], [0], [5], {"kl": [0.1]})
        with monkeypatch.context() as patch:
            patch.setattr(atomic_files, "sync", full)
            with pytest.raises(StoreError, match=r"No space left on device while writing .*parts"):
                store.commit(loop_state="{}", checkpoint=None)
        assert store.commit(loop_state="{}", checkpoint=None) == 1
        with monkeypatch.context() as patch:
            patch.setattr(atomic_files, "sync", full)
            with pytest.raises(StoreError, match=r"No space left .*parquet; all commits are safe"):
                store.publish()
        assert store.publish()
    assert pq.ParquetFile(folder.table("curves")).read()["kl"].to_pylist() == [0.1]


def test_partial_files_are_deleted_on_open(folder: StudyFolder, meta: StudyMeta) -> None:
    StudyStore(folder, meta).close()
    (folder.path / "curves.csv.partial").write_text("half")
    StudyStore(folder, meta).close()
    assert not list(folder.path.glob("*.partial"))


def test_second_store_on_a_study_is_refused(folder: StudyFolder, meta: StudyMeta) -> None:
    store = StudyStore(folder, meta)
    with pytest.raises(StoreError, match="is being written by"):
        StudyStore(folder, meta)
    store.close()
    store.close()
    StudyStore(folder, meta).close()


STAGES = ["flush", "commit", "committed", "_delete_checkpoints", "publish"]


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("when", ["before", "after"])
def test_crash_between_commit_steps_loses_no_data(
    tmp_path: Path, meta: StudyMeta, make_trial: Make, stage: str, when: str
) -> None:
    """Break off at one step of the third commit, go on from the journal, compare."""

    def work(store: StudyStore) -> None:
        for step in range(json.loads(store.head.loop_state).get("step", 0), 6):
            store.curves.add_chunk([step], [Stream.SEARCH], [0], [step], {"kl": [step / 3]})
            name, state = save_lanes(store), json.dumps({"step": step + 1})
            store.commit(loop_state=state, checkpoint=name, trials=[make_trial(step)])
            store.publish(force=True)

    with StudyStore(StudyFolder(tmp_path / "whole"), meta) as store:
        work(store)
    with StudyStore(StudyFolder(tmp_path / "broken"), meta) as store:
        owner = {
            "flush": store.curves,
            "commit": store.journal,
            "committed": store.curves,
            "_delete_checkpoints": store,
            "publish": store._publisher,
        }[stage]
        _break_third(owner, stage, when)
        with pytest.raises(KeyboardInterrupt):
            work(store)
    with StudyStore(StudyFolder(tmp_path / "broken"), meta) as store:
        assert store.head.number in (2, 3)
        work(store)
    assert tables_equal(tmp_path / "whole", tmp_path / "broken") == []
    for name in ("parts", "checkpoints"):
        counts = [len(list((tmp_path / study / name).iterdir())) for study in ("whole", "broken")]
        assert counts[0] == counts[1]


def _break_third(owner: object, name: str, when: str) -> None:
    """Make the third call of a method raise, before or after it has done its work."""
    method, calls = getattr(owner, name), [0]

    def broken(*args: object, **named: object) -> object:
        calls[0] += 1
        if calls[0] == 3 and when == "before":
            raise KeyboardInterrupt
        result = method(*args, **named)
        if calls[0] == 3:
            raise KeyboardInterrupt
        return result

    setattr(owner, name, broken)
