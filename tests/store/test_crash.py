"""SIGKILL at random moments: whatever is continued ends as if it had never been broken."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from helpers import toy_study
from helpers.forking import forks, strictly
from hpo.store import (
    Commit,
    Journal,
    StudyFolder,
    StudyMeta,
    StudySummary,
    TrialRow,
    list_studies,
    lock_holder,
    tables_equal,
)

pytestmark = pytest.mark.slow

STEPS, KILLS = 120, 20
LIMIT = 5  # steps that a child takes at the most before it is killed; about 4 of them


@contextmanager
def started(act: Callable[..., None], *given: Any) -> Iterator[tuple[BaseProcess, Connection]]:
    """Start a child; give it, and what it tells."""
    context = forks()
    told, tells = context.Pipe(duplex=False)
    child = context.Process(target=strictly, args=(act, *given, tells.send))
    child.start()
    tells.close()
    with told:
        yield child, told
        child.join(600)
    assert child.exitcode is not None


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("unbroken") / "toy"
    toy_study.main(directory, STEPS)
    return directory


def test_uninterrupted_runs_are_identical(unbroken: Path, tmp_path: Path) -> None:
    """Although their commits fall at other steps; the files without times even byte by byte.

    One of them in a process with other hashes.
    """
    with started(toy_study.main, tmp_path / "toy", STEPS, 0.0, None) as (child, _):
        pass
    assert child.exitcode == 0
    assert tables_equal(unbroken, tmp_path / "toy") == []
    for name in ("evaluations.parquet", "curves.parquet"):
        assert (unbroken / name).read_bytes() == (tmp_path / "toy" / name).read_bytes()


def test_repeatedly_killed_study_ends_identically(unbroken: Path, tmp_path: Path) -> None:
    directory = tmp_path / "toy"
    moments = random.Random(20)
    seen, unfinished = [0], 0
    for _ in range(KILLS):
        with started(toy_study.main, directory, STEPS, 0.004, LIMIT) as (child, told):
            told.recv()  # the first commit of this run
            time.sleep(moments.uniform(0.0, 0.05))
            child.kill()
        assert child.exitcode == -signal.SIGKILL
        assert lock_holder(directory) is None
        with Journal(directory) as journal:
            seen.append(journal.head().number)
            assert seen[-1] >= seen[-2]
            unfinished += journal.head().phase == "running"
    assert unfinished == KILLS  # they did fall in the middle
    toy_study.main(directory, STEPS)
    assert tables_equal(unbroken, directory) == []
    with Journal(directory) as broken, Journal(unbroken) as whole:
        assert repr(broken.decisions()) == repr(whole.decisions())
        assert broken.asks() == whole.asks()
        assert broken.attributes() == whole.attributes()
    assert len(list((directory / "checkpoints").iterdir())) == 1
    assert not list(directory.glob("*.partial"))


def test_readers_never_see_half_a_table(tmp_path: Path) -> None:
    directory, rows = tmp_path / "toy", [0]
    with started(toy_study.main, directory, STEPS, 0.01, None) as (child, _):
        while child.is_alive():
            if (directory / "trials.parquet").is_file():
                rows.append(pq.ParquetFile(directory / "trials.parquet").read().num_rows)
                summary: StudySummary = list_studies(tmp_path)[0]
                assert summary.state in ("running", "interrupted", "finished"), summary.error
    assert child.exitcode == 0
    assert rows == sorted(rows) and len(set(rows)) > 2
    assert list_studies(StudyFolder(directory).path.parent)[0].state == "finished"


def test_commit_killed_midway_is_rolled_back(
    tmp_path: Path, meta: StudyMeta, make_trial: Callable[..., TrialRow]
) -> None:
    with Journal.create(tmp_path, meta) as journal:
        journal.commit(Commit(1, "{}", None, 0.0, trials=[make_trial(0)]))
    with started(toy_study.stop_in_a_commit, tmp_path) as (child, told):
        assert told.recv() == 2
        child.kill()
    assert child.exitcode == -signal.SIGKILL
    assert (tmp_path / "journal.sqlite").stat().st_size > 500_000  # half of it is in the file
    assert (tmp_path / "journal.sqlite-journal").is_file()
    with Journal(tmp_path) as reader:  # a reader already rolls it back
        assert reader.head().number == 1
        assert reader.trials() == [make_trial(0)]
    with Journal(tmp_path, writable=True) as writer:
        writer.commit(Commit(2, "{}", None, 0.0, trials=[make_trial(1)]))
        assert len(writer.trials()) == 2
