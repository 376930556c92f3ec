"""One writer at a time, said in words, free again after death."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hpo.errors import StoreError
from hpo.store.lock import StudyLock, lock_holder

HOLD = """
import sys, time
from pathlib import Path
from hpo.store.lock import StudyLock
lock = StudyLock(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(60)
"""


def test_second_writer_error_names_the_lock_holder(tmp_path: Path) -> None:
    with StudyLock(tmp_path) as lock:
        with pytest.raises(
            StoreError, match=rf"being written by host .*, pid {os.getpid()}, since"
        ):
            StudyLock(tmp_path)
        assert f"pid {os.getpid()}" in (lock_holder(tmp_path) or "")
    assert lock_holder(tmp_path) is None
    lock.release()
    with StudyLock(tmp_path):
        pass


def test_unlocked_folder_has_no_lock_holder(tmp_path: Path) -> None:
    assert lock_holder(tmp_path) is None


def test_unwritable_lock_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"cannot lock .* choose another folder$"):
        StudyLock(tmp_path / "missing")


def test_killed_process_releases_the_lock(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None and child.stdout.readline() == "held\n"
        with pytest.raises(StoreError, match=f"pid {child.pid}"):
            StudyLock(tmp_path)
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert lock_holder(tmp_path) is None  # although the file still says who held it
    with StudyLock(tmp_path):
        assert f"pid {os.getpid()}" in (lock_holder(tmp_path) or "")
