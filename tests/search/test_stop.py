"""`hpo stop` ends a study from elsewhere as Ctrl-C would."""

import os
import threading
import time

import pytest

from helpers import search_samples as samples
from hpo.cli import main
from hpo.search.run import run
from hpo.search.state.progress import Observer
from hpo.store import lock_holder, tables_equal
from hpo.store.lock import STOP_NAME, StopRequest, ask_to_stop

STUDY, FACTORY = samples.study(), samples.AnalyticFactory()


class AtChunk(Observer):
    """Does something behind one chunk."""

    def __init__(self, chunk, action):
        self.left, self.action = chunk, action

    def on_chunk(self, progress):
        self.left -= 1
        if self.left == 0:
            self.action()


def ask(folder, holder=None):
    def action():
        ask_to_stop(folder, holder or lock_holder(folder))
        time.sleep(0.25)  # it looks five times a second

    return action


def test_stopped_study_resumes_with_equal_tables(tmp_path):
    whole = run(STUDY, tmp_path / "whole", FACTORY, (), samples.quick())
    asks = AtChunk(5, ask(tmp_path / "small"))
    first = run(STUDY, tmp_path / "small", FACTORY, [asks], samples.quick())
    assert (whole.state, first.state) == ("finished", "interrupted")
    assert not (tmp_path / "small" / STOP_NAME).exists()
    again = run(STUDY, tmp_path / "small", FACTORY, (), samples.quick())
    assert again.state == "finished"
    assert not tables_equal(tmp_path / "whole", tmp_path / "small")


def test_stop_request_ends_only_the_named_process(tmp_path):
    folder = tmp_path / "small"
    folder.mkdir()
    (folder / STOP_NAME).write_text(f"host elsewhere, pid {os.getpid()}, since then")
    asks = AtChunk(5, ask(folder, "host elsewhere, pid 1, since then"))
    assert run(STUDY, folder, FACTORY, [asks], samples.quick()).state == "finished"


@pytest.mark.parametrize("place", ["folder", "link", "pipe", "noise"])
def test_invalid_stop_request_is_ignored(tmp_path, place):
    path = tmp_path / STOP_NAME
    if place == "folder":
        path.mkdir()
    elif place == "link":
        path.symlink_to(tmp_path / "target")
        (tmp_path / "target").write_text("me")
    elif place == "pipe":
        os.mkfifo(path)
    else:
        path.write_bytes(b"\xff\xfe\x00")
    request = StopRequest(tmp_path, "me")
    assert not request()
    request.close()


class Running:
    """A study in another thread, which waits behind its third chunk until it is asked to stop."""

    def __init__(self, folder):
        self.folder, self.results = folder, None
        self.reached = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()
        assert self.reached.wait(60)

    def run(self):
        waits = AtChunk(3, self.wait)
        self.results = run(STUDY, self.folder, FACTORY, [waits], samples.quick())

    def wait(self):
        self.reached.set()
        while not (self.folder / STOP_NAME).exists():
            time.sleep(0.01)
        time.sleep(0.25)


def test_the_command_waits_until_the_study_has_ended(tmp_path, capsys):
    running = Running(tmp_path / "small")
    assert main(["stop", "small", "--out", str(tmp_path)]) == 0
    running.thread.join()
    assert running.results.state == "interrupted"
    out, err = capsys.readouterr()
    assert out.startswith("small: interrupted, ") and "resume it with: hpo run " in out
    assert f"pid {os.getpid()} to stop small" in err
    assert main(["stop", "small", "--out", str(tmp_path)]) == 2
    assert "small is not running" in capsys.readouterr().err


def test_stop_command_with_no_wait_returns_immediately(tmp_path, capsys):
    running = Running(tmp_path / "small")
    assert main(["stop", "--study", "small", "--out", str(tmp_path), "--no-wait", "--json"]) == 0
    running.thread.join()
    assert '"state": "running"' in capsys.readouterr().out
    assert running.results.state == "interrupted"
