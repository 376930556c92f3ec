"""A copy of a journal is read without holding up whoever writes it."""

import sqlite3

import pytest

from hpo.errors import StoreError
from hpo.store import Commit, Journal, StudyMeta

META = StudyMeta("s", "hash", "name: s\n", "eval/return_mean", "maximize", "mean", {})


@pytest.fixture
def folder(tmp_path):
    with Journal.create(tmp_path, META) as journal:
        journal.commit(Commit(1, "{}", None, 1.0))
    return tmp_path


def test_journal_copy_does_not_block_the_writer(folder):
    """It is in the midst of reading one commit; the next one is written, and is not seen."""
    with (
        Journal(folder, writable=True) as writer,
        Journal(folder, copied=True) as copy,
        copy.at_one_commit(),
    ):
        assert copy.head().number == 1
        writer.commit(Commit(2, "{}", None, 2.0))
        assert copy.head().number == 1
    with Journal(folder, copied=True) as copy:
        assert copy.head().number == 2


def test_journal_copy_is_read_only_and_leaves_no_files(folder):
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    with Journal(folder, copied=True) as copy:
        assert copy.meta == META
        with pytest.raises(StoreError):
            copy.commit(Commit(2, "{}", None, 2.0))
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before


def test_damaged_journal_copy_is_refused(folder):
    path = folder / "journal.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("UPDATE head SET phase = 'finished'")
    connection.commit()
    connection.close()
    with Journal(folder, copied=True) as copy, pytest.raises(StoreError, match="is damaged"):
        copy.head()
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(StoreError, match="damaged"):
        Journal(folder, copied=True).trials()
