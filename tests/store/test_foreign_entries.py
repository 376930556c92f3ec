"""What lies in a study's folder and is not the study's: left alone, or refused in a sentence."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hpo.errors import StoreError
from hpo.store import (
    Journal,
    Stream,
    StudyFolder,
    StudyMeta,
    StudyStore,
    TrialRow,
    list_studies,
    lock_holder,
)

Make = Callable[..., TrialRow]


def fill(folder: StudyFolder, meta: StudyMeta, steps: int = 2) -> None:
    """Commit curves and lanes, and publish."""
    with StudyStore(folder, meta) as store:
        for _ in range(steps):
            store.curves.add_chunk([0], [Stream.SEARCH], [0], [5], {"kl": [0.1]})
            path = store.new_checkpoint()
            path.mkdir()
            (path / "lanes.json").write_text("{}")
            store.commit(loop_state="{}", checkpoint=path.name)
        store.publish(force=True)


def state(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder, links not followed."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


PLACES = (
    "lock", "journal.sqlite", "journal.sqlite-journal", "parts", "checkpoints", "policies",
    "sinks", "study.yaml", "trials.parquet", "trials.parquet.partial", "report.html",
    "warm_start.json", "parts/000001.parquet", "checkpoints/lanes-000002",
)  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_symlink_at_a_study_path_is_refused_and_untouched(
    folder: StudyFolder, meta: StudyMeta, tmp_path: Path, place: str
) -> None:
    fill(folder, meta)
    path, theirs = folder.path / place, tmp_path / "theirs"
    if path.exists():
        path.rename(theirs)
    elif place in ("policies", "sinks"):
        theirs.mkdir()
        (theirs / "trial_3").mkdir()
        (theirs / "trial_3" / "policy.json").write_text("theirs")
    else:
        theirs.write_text("theirs")
    path.symlink_to(theirs)
    before = theirs.read_bytes() if theirs.is_file() else state(theirs)
    kept = state(folder.path)
    with pytest.raises(StoreError, match=r"^\S+ is a link; [^\n]*$"):
        fill(folder, meta)
    assert (theirs.read_bytes() if theirs.is_file() else state(theirs)) == before
    kept.pop("lock", None)  # says who holds it and then that nobody does
    assert kept.items() <= state(folder.path).items()
    path.unlink()
    if theirs.is_dir() or place in ("journal.sqlite", "parts/000001.parquet"):
        theirs.rename(path)
    fill(folder, meta)


@pytest.mark.parametrize("place", [p for p in PLACES if p not in ("parts", "checkpoints")])
def test_named_pipe_at_a_study_path_is_refused(
    folder: StudyFolder, meta: StudyMeta, place: str
) -> None:
    fill(folder, meta)
    path = folder.path / place
    if path.is_dir():
        path.rename(folder.path / "moved")
    else:
        path.unlink(missing_ok=True)
    os.mkfifo(path)
    with pytest.raises(StoreError, match=r"^[^\n]*(is not a (file|folder)|is missing)[^\n]*$"):
        fill(folder, meta)
    if place.startswith(("lock", "journal")):
        assert all(study.state == "damaged" for study in list_studies(folder.path.parent))


def test_foreign_lock_file_is_not_overwritten(folder: StudyFolder, meta: StudyMeta) -> None:
    folder.path.mkdir()
    (folder.path / "lock").write_text("my notes")
    with pytest.raises(StoreError, match="was not written by hpo"):
        fill(folder, meta)
    assert (folder.path / "lock").read_text() == "my notes"
    (folder.path / "lock").write_bytes(b"\0" * 60)  # what a loss of power may leave
    fill(folder, meta)
    assert lock_holder(folder.path) is None


def test_foreign_files_in_study_folder_are_kept(folder: StudyFolder, meta: StudyMeta) -> None:
    fill(folder, meta)
    strangers = (
        "notes.txt", "notes.partial", "parts/readme.md", "parts/7.parquet", "parts/old/x.parquet",
        "checkpoints/lanes-best/weights", "checkpoints/mine/weights", "policies/trial_x_seeds/a",
    )  # fmt: skip
    for name in strangers:
        (folder.path / name).parent.mkdir(parents=True, exist_ok=True)
        (folder.path / name).write_text("theirs")
    ours = ("parts/000099.parquet", "curves.csv.partial", "checkpoints/lanes-000077/lanes.json")
    for name in ours:
        (folder.path / name).parent.mkdir(exist_ok=True)
        (folder.path / name).write_text("half")
    fill(folder, meta)
    assert all((folder.path / name).read_text() == "theirs" for name in strangers)
    assert not any((folder.path / name).exists() for name in ours)


@pytest.mark.parametrize("how", ["missing", "empty"])
def test_study_with_missing_journal_is_not_restarted(
    folder: StudyFolder, meta: StudyMeta, how: str
) -> None:
    fill(folder, meta)
    journal = folder.path / "journal.sqlite"
    whole = journal.read_bytes()
    journal.unlink()
    if how == "empty":
        journal.touch()
    before = state(folder.path)
    with pytest.raises(StoreError, match=rf"journal.sqlite is {how}, but \S+ .* another study$"):
        fill(folder, meta)
    after = state(folder.path)
    assert {**before, "lock": b""} == {**after, "lock": b""}
    journal.write_bytes(whole)
    fill(folder, meta)
    with Journal(folder.path) as again:
        assert again.head().number == 4


def test_study_interrupted_at_creation_can_start(folder: StudyFolder, meta: StudyMeta) -> None:
    (folder.path / "parts").mkdir(parents=True)
    (folder.path / "journal.sqlite").touch()
    (folder.path / "notes.txt").write_text("what I wanted to find out")
    fill(folder, meta)


def test_the_folder_of_a_study_may_be_a_link(
    folder: StudyFolder, meta: StudyMeta, tmp_path: Path
) -> None:
    (tmp_path / "large disk").mkdir()
    folder.path.symlink_to(tmp_path / "large disk")
    fill(folder, meta)
    assert (tmp_path / "large disk" / "journal.sqlite").is_file()
