"""SIGKILL at random moments: whatever is continued ends as if it had never been broken."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

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

TOY = Path(__file__).with_name("toy.py")
STEPS, KILLS = 240, 20
LIMIT = 10  # steps that a child takes at the most before it is killed; about 4 of them


def start(directory: Path, pause: float, limit: int = STEPS) -> subprocess.Popen[str]:
    words = [str(TOY), str(directory), str(STEPS), str(pause), str(limit)]
    command = [sys.executable, "-W", "error", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(directory: Path) -> None:
    with start(directory, 0.0) as child:
        _, error = child.communicate(timeout=600)
        assert child.returncode == 0, error


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("unbroken") / "toy"
    finish(directory)
    return directory


def test_two_unbroken_runs_are_equal(unbroken: Path, tmp_path: Path) -> None:
    """Although their commits fall at other steps; the files without times even byte by byte."""
    finish(tmp_path / "toy")
    assert tables_equal(unbroken, tmp_path / "toy") == []
    for name in ("evaluations.parquet", "curves.parquet"):
        assert (unbroken / name).read_bytes() == (tmp_path / "toy" / name).read_bytes()


def test_killed_again_and_again_it_ends_the_same(unbroken: Path, tmp_path: Path) -> None:
    directory = tmp_path / "toy"
    moments = random.Random(20)
    seen, unfinished = [0], 0
    for _ in range(KILLS):
        with start(directory, 0.004, LIMIT) as child:
            assert child.stdout is not None
            child.stdout.readline()  # the first commit of this run
            time.sleep(moments.uniform(0.0, 0.05))
            child.send_signal(signal.SIGKILL)
            child.wait()
        assert lock_holder(directory) is None
        with Journal(directory) as journal:
            seen.append(journal.head().number)
            assert seen[-1] >= seen[-2]
            unfinished += journal.head().phase == "running"
    assert unfinished == KILLS  # they did fall in the middle
    finish(directory)
    assert tables_equal(unbroken, directory) == []
    with Journal(directory) as broken, Journal(unbroken) as whole:
        assert repr(broken.decisions()) == repr(whole.decisions())
        assert broken.asks() == whole.asks()
        assert broken.attributes() == whole.attributes()
    assert len(list((directory / "checkpoints").iterdir())) == 1
    assert not list(directory.glob("*.partial"))


def test_readers_never_see_half_a_table(tmp_path: Path) -> None:
    directory, rows = tmp_path / "toy", [0]
    with start(directory, 0.002) as child:
        while child.poll() is None:
            if (directory / "trials.parquet").is_file():
                rows.append(pq.ParquetFile(directory / "trials.parquet").read().num_rows)
                summary: StudySummary = list_studies(tmp_path)[0]
                assert summary.state in ("running", "interrupted", "finished"), summary.error
        assert child.returncode == 0, child.stderr.read() if child.stderr else ""
    assert rows == sorted(rows) and len(set(rows)) > 2
    assert list_studies(StudyFolder(directory).path.parent)[0].state == "finished"


IN_THE_MIDDLE = """
import sys, time
from pathlib import Path
from hpo.store import Commit, Journal, TrialRow, TrialState
journal = Journal(Path(sys.argv[1]), writable=True)
journal._connection.execute("PRAGMA cache_size = 5")  # so that pages reach the file early
write = journal._write
def stop_there(commit):
    write(commit)
    print("written", flush=True)
    time.sleep(60)
journal._write = stop_there
rows = [TrialRow(n, TrialState.FINISHED, "tpe", 0, "x" * 500, {}) for n in range(2_000)]
journal.commit(Commit(2, "{}", None, 0.0, trials=rows))
"""


def test_a_commit_killed_in_its_middle_never_was(
    tmp_path: Path, meta: StudyMeta, make_trial: Callable[..., TrialRow]
) -> None:
    with Journal.create(tmp_path, meta) as journal:
        journal.commit(Commit(1, "{}", None, 0.0, trials=[make_trial(0)]))
    command = [sys.executable, "-c", IN_THE_MIDDLE, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None and child.stdout.readline() == "written\n"
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert (tmp_path / "journal.sqlite").stat().st_size > 500_000  # half of it is in the file
    assert (tmp_path / "journal.sqlite-journal").is_file()
    with Journal(tmp_path) as reader:  # a reader already rolls it back
        assert reader.head().number == 1
        assert reader.trials() == [make_trial(0)]
    with Journal(tmp_path, writable=True) as writer:
        writer.commit(Commit(2, "{}", None, 0.0, trials=[make_trial(1)]))
        assert len(writer.trials()) == 2
