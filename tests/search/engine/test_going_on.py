"""`hpo run` again: what is kept of `--set` and `--name`, and how a refusal says the way on."""

import io
import json
import re
import shutil
from dataclasses import dataclass

import pytest
from rich.console import Console

from helpers.analytic_lanes import AnalyticFactory
from hpo import train
from hpo.cli import main
from hpo.search.lanes import local
from hpo.store.journal import Journal
from hpo.store.study_folder import StudyFolder
from hpo.views.terminal.live_view import LiveView

TEXT = """\
env: CartPole-v1
env_steps: 16k
space:
  learning_rate: {min: 1e-5, max: 1e-1, distribution: log_uniform}
search: {method: random}
budget: {trials: 6}
"""


class Factory(AnalyticFactory):
    def check(self, config):
        """Every configuration can run."""


@pytest.fixture
def hpo(tmp_path, monkeypatch, capsys):
    """Run a command in a folder with a study file; give its exit code and stderr."""
    studied(tmp_path, monkeypatch, Factory)

    def call(*words):
        code = main([*words, "--quiet"])
        return code, capsys.readouterr().err

    return call


def studied(tmp_path, monkeypatch, factory):
    """Let commands run lanes of a factory, in a folder with a study file."""
    monkeypatch.setattr(
        local, "LocalFactory", lambda study, compiling, warn, environments: factory()
    )
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(TEXT)


def kept(tmp_path, name="small"):
    return StudyFolder(tmp_path / "results" / name).study_file.read_text()


def test_study_folder_records_the_command_overrides(hpo, tmp_path):
    assert hpo("run", "small.yaml", "--set", "budget.trials=8")[0] == 0
    assert kept(tmp_path).endswith(TEXT)
    assert "#   hpo run small.yaml --set budget.trials=8\n" in kept(tmp_path)
    assert hpo("run", "small.yaml", "--name", "other")[0] == 0
    assert "#   hpo run small.yaml --name other\n" in kept(tmp_path, "other")
    assert hpo("run", "small.yaml", "--name", "other", "--new")[0] == 0
    assert "#   hpo run small.yaml --name other-2\n" in kept(tmp_path, "other-2")
    page = (tmp_path / "results" / "other-2" / "report.html").read_text()
    assert "hpo run small.yaml --name other-2" in page


@dataclass(frozen=True)
class Refusal:
    """A study that is not resumed: two commands, what the second says, and the way on."""

    first: str
    then: str
    says: tuple[str, ...]
    way: str
    file: str = TEXT  # the study file, when the second command is given
    record: str | None = None  # the file in the study's folder, if something else wrote it
    never: str = "Traceback"


REFUSALS = {
    "recorded overrides": Refusal(
        "run small.yaml --set budget.trials=8 --set seed=3",
        "run small.yaml",
        (
            r"budget.trials: 8 -> 6 \(a budget can only be raised\) "
            r"\[last time: budget.trials=8\]",
            r"seed: 3 -> 0 \(.*\) \[last time: seed=3\]",
        ),
        "run small.yaml --set budget.trials=8 --set seed=3",
    ),
    "new override": Refusal(
        "run small.yaml",
        "run small.yaml --set seed=3",
        (r"\[now: seed=3\]",),
        "run small.yaml",
    ),
    "derived from new override": Refusal(
        "run small.yaml",
        "run small.yaml --set search.method=tpe",
        (r"search.options.n_startup_trials: absent -> 10",),
        "run small.yaml",
        never="last time",
    ),
    "derived from recorded override": Refusal(
        "run small.yaml --set search.method=tpe --name other",
        "run small.yaml --name other",
        (r"search.options.n_startup_trials: 10 -> absent",),
        "run small.yaml --set search.method=tpe --name other",
    ),
    "derived from env_steps": Refusal(
        "run small.yaml --set env_steps=32k --set early_terminate.type=asha",
        "run small.yaml --set early_terminate.type=asha",
        (r"early_terminate.min: 9600 -> 4800",),
        "run small.yaml --set env_steps=32k --set early_terminate.type=asha",
        never="grew",
    ),
    "longer runs": Refusal(
        "run small.yaml --set env_steps=32k --set early_terminate.type=asha",
        "run small.yaml --set early_terminate.type=asha --set env_steps=64k",
        (),
        "run small.yaml --set env_steps=32k --set early_terminate.type=asha",
        never="grew from",  # a run that is refused is not extended
    ),
    "change in the file": Refusal(
        "run small.yaml --set budget.trials=8",
        "run small.yaml",
        (
            r"env_steps: 16000 -> 20000",
            r"restore the old env_steps in the file, then resume with: hpo run small.yaml",
        ),
        "run small.yaml --set budget.trials=8",
        file=TEXT.replace("16k", "20k"),
    ),
    "folder without a command": Refusal(
        "run small.yaml --set budget.trials=8",
        "run small.yaml",
        (),
        "run small.yaml --set budget.trials=8",
        record=TEXT,
    ),
    "another verb": Refusal(
        "train small.yaml",  # its lanes follow formulas and have no returns to show
        "run small.yaml",
        (),
        "train small.yaml",
    ),
}


@pytest.mark.parametrize("case", REFUSALS.values(), ids=REFUSALS)
def test_refusal_says_what_changed_and_how_to_resume(hpo, tmp_path, case):
    first_code, _ = hpo(*case.first.split())
    (folder,) = (tmp_path / "results").iterdir()
    if case.record is not None:
        StudyFolder(folder).study_file.write_text(case.record)
    (tmp_path / "small.yaml").write_text(case.file)
    code, told = hpo(*case.then.split())
    assert code == 2 and case.never not in told
    for words in case.says:
        assert re.search(words, told)
    assert told.rstrip().endswith(f"resume with: hpo {case.way}")
    (tmp_path / "small.yaml").write_text(TEXT)
    assert hpo(*case.way.split())[0] == first_code, "the command that is told resumes the study"


def test_told_command_accepts_a_larger_budget(hpo, tmp_path):
    hpo("run", "small.yaml", "--set", "budget.trials=8", "--set", "seed=3")
    more = hpo("run", "small.yaml", "--set", "budget.trials=9", "--set", "seed=3")
    assert more[0] == 0 and "budget.trials=9" in kept(tmp_path)


def test_study_folder_records_the_verb(hpo, tmp_path):
    hpo("train", "small.yaml")
    assert "#   hpo train small.yaml\n" in kept(tmp_path)


def test_train_after_run_suggests_run(hpo):
    hpo("run", "small.yaml")
    code, told = hpo("train", "small.yaml")
    assert code == 2 and "small' is a search, but one configuration was to be trained" in told
    assert "(--set name=NAME or --new):" in told
    assert len(told.rstrip().splitlines()) == 2, "not each key that training leaves out"
    assert told.rstrip().endswith("resume with: hpo run small.yaml")
    assert hpo("run", "small.yaml")[0] == 0


def test_run_after_train_in_python_suggests_no_option_that_removes_a_key(hpo):
    train("small.yaml", callbacks=())
    code, told = hpo("run", "small.yaml")
    assert code == 2 and "=absent" not in told


class Idle(Factory):
    def make(self, resolved, lanes):
        raise AssertionError("nothing is to be compiled")


def test_finished_study_prints_nothing_to_do(tmp_path, monkeypatch, capsys):
    studied(tmp_path, monkeypatch, Factory)
    assert main(["run", "small.yaml"]) == 0
    assert "nothing to do" not in capsys.readouterr().out
    with Journal(tmp_path / "results" / "small") as journal:
        head = journal.head()
    studied(tmp_path, monkeypatch, Idle)
    assert main(["run", "small.yaml"]) == 0
    shown = capsys.readouterr()
    assert re.match(r"small finished \S+ ago; nothing to do\.\n", shown.out)
    assert "starting" not in shown.err and "resuming" not in shown.err
    assert main(["run", "small.yaml", "--json", "--quiet"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["finished_at"] == head.at and told["state"] == "finished"
    with Journal(tmp_path / "results" / "small") as journal:
        assert journal.head() == head, "nothing was committed"


def test_finished_study_keeps_its_report_until_it_differs(tmp_path, monkeypatch, capsys):
    studied(tmp_path, monkeypatch, Factory)
    assert main(["run", "small.yaml"]) == 0
    folder = StudyFolder(tmp_path / "results" / "small")
    whole, written = folder.report.read_text(), folder.report.stat().st_mtime_ns
    assert main(["run", "small.yaml"]) == 0
    assert folder.report.stat().st_mtime_ns == written, "nothing changed since it was written"
    for old in (whole.replace("Written by hpo", "Written by hpo 0.0.1 and"), "", None):
        folder.report.unlink()
        if old is not None:
            folder.report.write_text(old)
        assert main(["run", "small.yaml"]) == 0
        assert folder.report.read_text() == whole
    moved = StudyFolder(tmp_path / "elsewhere" / "small")
    shutil.copytree(folder.path, moved.path)
    assert main(["run", "small.yaml", "--out", "elsewhere"]) == 0
    assert "elsewhere/small" in moved.report.read_text(), "its commands name the folder"


def test_extended_study_does_not_print_nothing_to_do(tmp_path, monkeypatch, capsys):
    studied(tmp_path, monkeypatch, Factory)
    for trials in ("6", "8"):
        assert main(["run", "small.yaml", "--set", f"budget.trials={trials}"]) == 0
        assert "nothing to do" not in capsys.readouterr().out


def test_live_view_draws_nothing_for_finished_study():
    terminal = Console(file=io.StringIO(), force_terminal=True)
    with LiveView(terminal=terminal, at_once=False):
        assert terminal.file.getvalue() == ""
    with LiveView(terminal=terminal):
        assert "starting" in terminal.file.getvalue()
