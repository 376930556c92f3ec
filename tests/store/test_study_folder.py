"""Names, places, and how a reading verb finds its study."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from hpo.errors import StoreError
from hpo.store import (
    StudyFolder,
    StudyMeta,
    StudyStore,
    TrialRow,
    TrialState,
    checked_name,
    find_study,
    free_name,
    list_studies,
    read_leaderboard,
)
from hpo.store.study_folder import find_tables, look_inside

Make = Callable[..., TrialRow]


@pytest.mark.parametrize("name", ["a", "cartpole-asha", "A.b_c-2", "x" * 100])
def test_valid_study_names_are_accepted(name: str) -> None:
    assert checked_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", "../x", "a/b", "/etc", "-rf", ".hidden", "a b", "a\n", "a..b", "a."),
        *("x" * 101, "a\x00b", "naïve", "a\\b", "$(id)"),
    ],
)
def test_invalid_study_names_are_refused(name: str) -> None:
    with pytest.raises(StoreError, match="is not a valid study name; use 1 to 100 letters"):
        checked_name(name)


def test_free_name_appends_the_next_number(tmp_path: Path) -> None:
    assert free_name(tmp_path, "toy") == "toy"
    for taken in ("toy", "toy-2", "toy-4"):
        (tmp_path / taken).mkdir()
    assert free_name(tmp_path, "toy") == "toy-3"


def fill(root: Path, name: str, meta: StudyMeta, rows: list[TrialRow], **how: str) -> StudyFolder:
    folder = StudyFolder(root / name)
    with StudyStore(folder, meta) as store:
        if rows:
            store.commit(loop_state="{}", checkpoint=None, trials=rows, **how)  # pyright: ignore
    return folder


def test_single_study_is_found_without_a_name(
    tmp_path: Path, meta: StudyMeta, make_trial: Make
) -> None:
    with pytest.raises(StoreError, match=r"there is no study in .*; start one$"):
        find_study(None, tmp_path)
    with pytest.raises(StoreError, match="there is no study in"):
        find_study(None, tmp_path / "nowhere")
    one = fill(tmp_path, "one", meta, [make_trial(0)])
    (tmp_path / "README.md").write_text("no study")
    (tmp_path / "empty").mkdir()
    assert find_study(None, tmp_path) == one
    fill(tmp_path, "two", meta, [])
    with pytest.raises(StoreError, match=r"there are 2 studies in .* name one: one, two"):
        find_study(None, tmp_path)
    assert find_study("two", tmp_path).name == "two"
    assert find_study(tmp_path / "one", tmp_path / "nowhere") == one
    with pytest.raises(StoreError, match="no study 'tow'; did you mean 'two'\\? Known: one, two"):
        find_study("tow", tmp_path)


def test_list_studies_reports_state_and_best_value(
    tmp_path: Path, meta: StudyMeta, make_trial: Make
) -> None:
    rows = [make_trial(0, value=4.0), make_trial(1, value=9.0), make_trial(2, TrialState.RUNNING)]
    fill(tmp_path, "done", meta, rows, phase="finished")
    fill(tmp_path, "broken", meta, rows[:2])
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "journal.sqlite").write_bytes(b"nonsense" * 100)
    with StudyStore(StudyFolder(tmp_path / "busy"), meta):
        found = {summary.name: summary for summary in list_studies(tmp_path)}
    assert {name: summary.state for name, summary in found.items()} == {
        "done": "finished",
        "broken": "interrupted",
        "busy": "running",
        "bad": "damaged",
    }
    done = found["done"]
    assert (done.trials, done.done, done.best, done.metric) == (3, 2, 9.0, "eval/return_mean")
    assert done.as_json()["path"] == str(tmp_path / "done")
    assert "is damaged" in found["bad"].error and found["bad"].updated_at is None
    assert found["busy"].best is None
    assert list_studies(tmp_path / "nowhere") == []


def test_reference_default_is_not_counted_in_listing(
    tmp_path: Path, meta: StudyMeta, make_trial: Make
) -> None:
    rows = [make_trial(0, value=1.0), make_trial(-1, TrialState.REFERENCE, value=None)]
    with StudyStore(StudyFolder(tmp_path / "pbt"), meta) as store:
        store.commit(loop_state="{}", checkpoint=None, trials=rows, phase="finished")
    (found,) = list_studies(tmp_path)
    assert (found.trials, found.done) == (1, 1)


def test_the_leaderboard_is_read_from_the_journal(
    tmp_path: Path, meta: StudyMeta, make_trial: Make
) -> None:
    rows = [make_trial(0, value=4.0), make_trial(1, value=9.0)]
    entries = read_leaderboard(fill(tmp_path, "toy", meta, rows))
    assert [entry.trial for entry in entries] == [1, 0]


def test_study_files_are_replaced_atomically(folder: StudyFolder) -> None:
    folder.path.mkdir()
    folder.write_study("name: töy\n", "name: töy\nseed: 0\n")
    folder.write_study("name: toy\n", "name: toy\nseed: 1\n")
    assert folder.study_file.read_text(encoding="utf-8") == "name: toy\n"
    assert folder.resolved_file.read_text(encoding="utf-8") == "name: toy\nseed: 1\n"
    assert sorted(path.name for path in folder.path.iterdir()) == [
        "study.resolved.yaml",
        "study.yaml",
    ]


def test_study_with_deleted_journal_is_named_in_the_error(tmp_path):
    parts = tmp_path / "lost" / "parts"
    parts.mkdir(parents=True)
    (parts / "000001.parquet").write_text("rows")
    for study in ("lost", tmp_path / "lost"):
        with pytest.raises(
            StoreError, match=r"lost/journal.sqlite is missing, but .* from a copy"
        ):
            find_study(study, tmp_path)


@pytest.fixture
def unreadable(tmp_path: Path, cannot_enter: Callable[[Path], None]) -> Path:
    """A folder of results with what is found beside studies: nothing of it can be entered."""
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "lost+found").mkdir()
    cannot_enter(tmp_path / "lost+found")
    (tmp_path / "a-file").write_text("no study")
    (tmp_path / "gone").symlink_to("nowhere")
    return tmp_path


SKIPPED = (
    "skipped in {}/: loop (Too many levels of symbolic links), lost+found (Permission denied)"
)


def test_unreadable_folder_is_skipped_with_one_warning(
    unreadable: Path, meta: StudyMeta, make_trial: Make
) -> None:
    one = fill(unreadable, "one", meta, [make_trial(0)])
    told: list[str] = []
    assert [found.name for found in list_studies(unreadable, told.append)] == ["one"]
    assert find_study(None, unreadable, told.append) == one
    assert find_tables(None, unreadable, {}, told.append) == one.path
    assert told == [SKIPPED.format(unreadable)] * 3
    assert find_study("one", unreadable, told.append) == one
    assert len(told) == 3  # a name needs no look at the others
    with pytest.raises(StoreError, match="no study 'on'; did you mean 'one'"):
        find_study("on", unreadable)
    for name, why in (("lost+found", "Permission denied"), ("loop", "Too many levels")):
        with pytest.raises(StoreError, match=rf"{re.escape(name)} cannot be read: {why}"):
            find_study(name, unreadable)
        with pytest.raises(StoreError, match=rf"{re.escape(name)} cannot be read: {why}"):
            find_tables(name, unreadable, {})
    assert free_name(unreadable, "loop") == "loop-2" and free_name(unreadable, "gone") == "gone-2"


def test_unreadable_study_does_not_hide_others(
    tmp_path: Path,
    meta: StudyMeta,
    make_trial: Make,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("one", "two"):
        fill(tmp_path, name, meta, [make_trial(0)])
    real = os.lstat

    def fail(path: str | Path, **how: int | None) -> os.stat_result:
        if "two/journal" in str(path):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return real(path, **how)

    monkeypatch.setattr(os, "lstat", fail)
    found = {summary.name: summary for summary in list_studies(tmp_path)}
    assert found["one"].error == "" and "Input/output error" in found["two"].error


def test_unreadable_results_folder_is_an_error(
    tmp_path: Path, cannot_enter: Callable[[Path], None]
) -> None:
    cannot_enter(tmp_path)
    with pytest.raises(StoreError, match="/ cannot be read: Permission denied"):
        list_studies(tmp_path)
    with pytest.raises(StoreError, match="/ cannot be read: Permission denied"):
        find_study(None, tmp_path)


def test_skipped_folder_warning_names_at_most_three(tmp_path: Path) -> None:
    for name in "abcde":
        (tmp_path / name).symlink_to(name)
    assert look_inside(tmp_path).skipped.endswith(
        "c (Too many levels of symbolic links) and 2 more"
    )
