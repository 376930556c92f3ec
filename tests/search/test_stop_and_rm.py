"""`hpo stop` ends a study from elsewhere as Ctrl-C would; `hpo rm` removes one as a whole."""

import json
import os
import threading
import time

import pytest

from helpers import search_samples as samples
from hpo.cli import main
from hpo.errors import StoreError
from hpo.search.run import run
from hpo.search.state.progress import Observer
from hpo.store import StudyFolder, StudyLock, lock_holder, tables_equal
from hpo.store.lock import STOP_NAME, StopRequest, ask_to_stop
from hpo.store.remove_study import remove_studies

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


def test_a_study_that_was_stopped_resumes_to_the_tables_of_an_unbroken_one(tmp_path):
    whole = run(STUDY, tmp_path / "whole", FACTORY, (), samples.quick())
    asks = AtChunk(5, ask(tmp_path / "small"))
    first = run(STUDY, tmp_path / "small", FACTORY, [asks], samples.quick())
    assert (whole.state, first.state) == ("finished", "interrupted")
    assert not (tmp_path / "small" / STOP_NAME).exists()
    again = run(STUDY, tmp_path / "small", FACTORY, (), samples.quick())
    assert again.state == "finished"
    assert not tables_equal(tmp_path / "whole", tmp_path / "small")


def test_a_request_ends_no_other_process_and_none_that_comes_later(tmp_path):
    folder = tmp_path / "small"
    folder.mkdir()
    (folder / STOP_NAME).write_text(f"host elsewhere, pid {os.getpid()}, since then")
    asks = AtChunk(5, ask(folder, "host elsewhere, pid 1, since then"))
    assert run(STUDY, folder, FACTORY, [asks], samples.quick()).state == "finished"


@pytest.mark.parametrize("place", ["folder", "link", "pipe", "noise"])
def test_what_is_no_request_harms_nothing(tmp_path, place):
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
    with pytest.raises(StoreError, match=r"small is running \(host .*\); stop it first"):
        remove_studies([StudyFolder(tmp_path / "small")])
    assert main(["stop", "small", "--out", str(tmp_path)]) == 0
    running.thread.join()
    assert running.results.state == "interrupted"
    out, err = capsys.readouterr()
    assert out.startswith("small: interrupted, ") and "`hpo run` command resumes it" in out
    assert f"pid {os.getpid()} to stop small" in err
    assert main(["stop", "small", "--out", str(tmp_path)]) == 2
    assert "small is not running" in capsys.readouterr().err


def test_the_command_need_not_wait(tmp_path, capsys):
    running = Running(tmp_path / "small")
    assert main(["stop", "--study", "small", "--out", str(tmp_path), "--no-wait", "--json"]) == 0
    running.thread.join()
    assert '"state": "running"' in capsys.readouterr().out
    assert running.results.state == "interrupted"


# ---------------------------------------------------------------------- removing


@pytest.fixture
def two(tmp_path):
    for name in ("a", "b"):
        run(STUDY, tmp_path / name, FACTORY, (), samples.quick())
    return tmp_path


def names(root):
    return sorted(path.name for path in root.iterdir())


def test_studies_are_removed_with_all_that_is_in_them(two, capsys):
    (two / "notes.txt").write_text("mine")
    assert main(["rm", "a", str(two / "b"), "a", "--yes", "--out", str(two)]) == 0
    assert capsys.readouterr().err == "removed a, b\n"
    assert names(two) == ["notes.txt"]


def test_what_was_removed_is_named_as_json(two, capsys):
    assert main(["rm", "a", "--yes", "--json", "--out", str(two)]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == {"removed": ["a"]} and err == ""


def test_what_another_user_s_removal_left_stays_theirs(two, capsys, cannot_enter):
    for name in (".x.removed", ".y.removed"):
        (two / name / "parts").mkdir(parents=True)
    cannot_enter(two / ".x.removed")
    assert main(["rm", "a", "--yes", "--out", str(two)]) == 0
    assert capsys.readouterr().err == "removed a\n"
    assert names(two) == [".x.removed", "b"]


def test_nothing_is_removed_if_one_of_them_must_not_be(two, capsys):
    (two / "b" / "notes.txt").write_text("mine")
    assert main(["rm", "a", "b", "--yes", "--out", str(two)]) == 2
    assert "b has files that are not the study's: notes.txt" in capsys.readouterr().err
    (two / "b" / "notes.txt").unlink()
    with StudyLock(two / "b"):
        assert main(["rm", "a", "b", "--yes", "--out", str(two)]) == 2
        assert "stop it first (hpo stop b)" in capsys.readouterr().err
    assert main(["rm", "a", "c", "--yes", "--out", str(two)]) == 2
    assert names(two) == ["a", "b"]


def test_a_folder_that_is_no_study_and_a_link_to_one_are_refused(two, capsys):
    (two / "mine").mkdir()
    assert main(["rm", "mine", "--yes", "--out", str(two)]) == 2
    (two / "link").symlink_to(two / "a")
    assert main(["rm", "link", "--yes", "--out", str(two)]) == 2
    assert f"remove the folder it points to: {two / 'a'}" in capsys.readouterr().err
    assert names(two) == ["a", "b", "link", "mine"] and (two / "a" / "lock").exists()


def test_nobody_to_ask_removes_nothing(two, capsys, monkeypatch):
    assert main(["rm", "a", "--out", str(two)]) == 2
    assert "without a question: --yes" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    for answer, left in (("\n", ["a", "b"]), ("n\n", ["a", "b"]), ("y\n", ["b"])):
        monkeypatch.setattr("sys.stdin.readline", lambda answer=answer: answer, raising=False)
        assert main(["rm", "a", "--out", str(two)]) == int(left != ["b"])
        assert "a: finished, 24 trials" in capsys.readouterr().err
        assert names(two) == left


def test_a_removal_cut_short_leaves_no_study_and_is_finished_by_the_next(two, capsys, monkeypatch):
    def full(path, *rest):
        raise OSError(5, "Input/output error", str(path))

    with monkeypatch.context() as broken:
        broken.setattr("shutil.rmtree", full)
        assert main(["rm", "a", "--yes", "--out", str(two)]) == 2
    assert main(["list", "--json", "--out", str(two)]) == 0
    assert '"name": "a"' not in capsys.readouterr().out
    assert names(two) == [".a.removed", "b"]
    (two / ".c.removed").mkdir()
    (two / ".c.removed" / "notes.txt").write_text("mine")
    assert main(["rm", "b", "--yes", "--out", str(two)]) == 0
    assert names(two) == [".c.removed"]
