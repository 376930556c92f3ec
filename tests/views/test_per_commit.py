"""A study is read once a commit however many ask, and at a bounded rate while it runs."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from hpo.errors import StoreError
from hpo.store import StudyMeta
from hpo.store.journal import JOURNAL_NAME, Journal
from hpo.store.lock import StudyLock
from hpo.views.live.library import SHARE, PerCommit, mark_of


class Maker:
    """Counts what it makes; `seconds` is what each takes of the clock and the processor."""

    def __init__(self):
        self.made, self.now = 0, 100.0

    def __call__(self, folder):
        self.made += 1
        return self.made

    def clock(self):
        return self.now


@pytest.fixture
def folder(tmp_path):
    write(tmp_path, 100)
    return tmp_path


def write(folder, size, seconds_ago=10.0):
    """Put a journal of that size there, as a new file, that last changed so long ago."""
    path = Path(folder) / JOURNAL_NAME
    other = path.with_suffix(".new")
    other.write_bytes(bytes(size))
    changed = time.time_ns() - round(1e9 * seconds_ago)
    os.utime(other, ns=(changed, changed))
    other.replace(path)
    return changed


def change(folder):
    """Do what a commit does to a journal's file."""
    path = Path(folder) / JOURNAL_NAME
    seen = path.stat()
    path.write_bytes(path.read_bytes())
    os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns + 1))


def test_unchanged_study_is_read_once(folder):
    make = Maker()
    kept = PerCommit(folder, make, make.clock)
    assert not kept.is_made
    assert [kept.get().value for _ in range(5)] == [1] * 5
    change(folder)
    assert [kept.get().value for _ in range(5)] == [2] * 5
    kept.forget()
    assert kept.get().value == 3


def test_change_check_does_not_release_file_locks(tmp_path):
    """POSIX frees all locks of a process on a file when it closes any descriptor of it."""
    journal = Journal.create(
        tmp_path, StudyMeta("s", "h", "name: s\n", "m", "maximize", "mean", {})
    )
    code = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], timeout=0); "
        "c.execute('BEGIN IMMEDIATE'); c.execute('PRAGMA user_version = 2'); c.execute('COMMIT')"
    )
    command = [sys.executable, "-c", code, str(tmp_path / JOURNAL_NAME)]
    with journal, journal.at_one_commit():
        journal.head()
        mark_of(tmp_path)
        done = subprocess.run(command, capture_output=True, text=True)
    assert "database is locked" in done.stderr
    assert subprocess.run(command, check=False).returncode == 0


def test_running_study_is_reread_at_a_bounded_rate(folder):
    make = Maker()
    kept = PerCommit(folder, make, make.clock)
    with StudyLock(folder):
        kept.get().spend(1.0)
        change(folder)
        make.now += 0.9 / SHARE
        assert kept.get().value == 1
        make.now += 0.2 / SHARE
        assert kept.get().value == 2
        change(folder)
        assert kept.get().value == 2  # never more than once a second, however cheap
        make.now += 1.1
        assert kept.get().value == 3
        kept.get().spend(1000.0)
        change(folder)
        assert kept.get().value == 3
    assert kept.get().value == 4  # the end is shown at once


def test_requests_during_a_reread_get_the_old_value(folder):
    begun, go_on = threading.Event(), threading.Event()

    def make(folder):
        begun.set()
        assert go_on.wait(60)
        return "new"

    kept = PerCommit(folder, make)
    first = threading.Thread(target=kept.get)
    go_on.set()
    first.start()
    first.join()
    begun.clear()
    go_on.clear()
    change(folder)
    second = threading.Thread(target=kept.get)
    second.start()
    assert begun.wait(60)
    old = kept.get()  # returns although the other has not
    go_on.set()
    second.join()
    assert kept.get() is not old


def test_concurrent_requests_share_one_read(folder):
    make = Maker()
    kept = PerCommit(folder, make)
    found = []
    threads = [threading.Thread(target=lambda: found.append(kept.get().value)) for _ in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [1] * 100 and make.made == 1


def test_reading_a_deleted_study_raises_store_error(folder):
    (folder / JOURNAL_NAME).unlink()
    with pytest.raises(StoreError, match="cannot be read"):
        PerCommit(folder, Maker()).get()


def test_two_changes_within_one_tick_of_the_clock_are_both_seen(folder):
    """The second leaves size, inode and time of change as they were after the first."""
    path, contents = Path(folder) / JOURNAL_NAME, lambda folder: path_of(folder).read_bytes()
    now = write(folder, 100, seconds_ago=0.0)
    kept = PerCommit(folder, contents)
    assert kept.get().value == bytes(100)
    with path.open("r+b") as file:
        file.write(b"second")
    os.utime(path, ns=(now, now))
    assert kept.get().value[:6] == b"second"
    os.utime(path, ns=(now - 10**10, now - 10**10))
    assert kept.get() is kept.get()


def path_of(folder):
    return Path(folder) / JOURNAL_NAME


def test_commit_during_a_read_is_detected(folder):
    found = []

    def make(folder):
        found.append(path_of(folder).stat().st_size)
        if len(found) == 1:
            write(folder, 200)  # behind what was read
        return found[-1]

    kept = PerCommit(folder, make)
    assert [kept.get().value for _ in range(3)] == [100, 200, 200]


def test_restarted_running_study_is_reread_at_once(folder):
    make = Maker()
    kept = PerCommit(folder, make, make.clock)
    with StudyLock(folder):
        kept.get().spend(1000.0)
        write(folder, 100)  # another file of that size
        assert kept.get().value == 2
        change(folder)
        assert kept.get().value == 2


def test_restored_study_is_reread(folder):
    kept = PerCommit(folder, lambda folder: path_of(folder).stat().st_size)
    assert kept.get().value == 100
    path_of(folder).unlink()
    with pytest.raises(StoreError):
        kept.get()
    write(folder, 300)
    assert kept.get().value == 300
