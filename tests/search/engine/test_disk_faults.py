"""A disk that refuses ends a study in a sentence; the same call goes on with what is committed."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers import analytic_lanes
from helpers import search_samples as samples
from hpo.errors import StoreError
from hpo.search.engine import finish_trials
from hpo.search.run import run
from hpo.store import Journal, tables_equal
from hpo.store.study_store import StudyStore

STUDY = samples.study(samples.WITH_BUCKETS, budget=samples.Budget(trials=12))
FACTORY = samples.AnalyticFactory(lanes=8, block=4, quanta={"16": 500, "32": 1000, "64x64": 2000})


def go_on(folder, every=0.0):
    run(STUDY, folder, FACTORY, (), samples.quick(commit_seconds=every))


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "study"
    go_on(folder, 1e9)
    return folder


def refuse(patch, owner, name, when, number=errno.ENOSPC):
    """Let the `when`-th call fail as a full disk lets it."""
    original, seen = getattr(owner, name), []

    def failing(*args, **options):
        seen.append(args)
        if len(seen) == when:
            raise OSError(number, os.strerror(number))
        return original(*args, **options)

    patch.setattr(owner, name, failing)


@pytest.mark.parametrize(
    ("owner", "name", "when"),
    [
        (os, "fsync", 40),
        (Path, "replace", 9),
        (Path, "mkdir", 1),
        (Path, "mkdir", 7),
        (os, "rmdir", 3),
        (finish_trials, "make_folder", 2),
        (finish_trials, "sync_tree", 1),
        (analytic_lanes, "write_text", 5),
        (FACTORY.__class__, "make", 2),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_disk_error_is_reported_and_study_resumes_unchanged(unbroken, tmp_path, owner, name, when):
    folder = tmp_path / "study"
    with pytest.MonkeyPatch.context() as patch:
        refuse(patch, owner, name, when)
        with pytest.raises(StoreError, match=r"^No space left on device while [^\n]*same command"):
            go_on(folder)
    go_on(folder, 1e9)
    assert tables_equal(unbroken, folder) == []
    with Journal(folder) as ours, Journal(unbroken) as theirs:
        assert repr(ours.decisions()) == repr(theirs.decisions())
        assert {row.state for row in ours.trials()} == {row.state for row in theirs.trials()}


def test_disk_error_commits_no_partial_boundary(unbroken, tmp_path):
    folder = tmp_path / "study"
    with pytest.MonkeyPatch.context() as patch:
        refuse(patch, finish_trials, "make_folder", 2)
        with pytest.raises(StoreError):
            go_on(folder, 1e9)
    with Journal(folder) as journal:
        assert journal.head().number == 0 and journal.trials() == []


def test_nothing_is_published_after_disk_error(tmp_path):
    folder = tmp_path / "study"
    with pytest.MonkeyPatch.context() as patch:
        refuse(patch, finish_trials, "make_folder", 2)
        written = []
        publish = StudyStore.publish
        patch.setattr(StudyStore, "publish", lambda *a, **b: written.append(b) or publish(*a, **b))
        with pytest.raises(StoreError):
            go_on(folder, 1e9)
    assert {"force": True} not in written


def test_partial_policy_copy_is_removed_on_resume(unbroken, tmp_path):
    folder = tmp_path / "study"
    with pytest.MonkeyPatch.context() as patch:
        refuse(patch, finish_trials, "make_folder", 2)
        with pytest.raises(StoreError):
            go_on(folder)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    half = folder / "policies" / f".trial_3.partial-{ended.pid}"
    half.mkdir(parents=True)
    go_on(folder)
    assert not half.exists() and tables_equal(unbroken, folder) == []
