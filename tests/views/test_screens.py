"""What screens show first, what they call it, and the next step that they name."""

import os
import subprocess
import sys

import pytest

from helpers import view_samples as samples
from hpo import Callback, StopStudy
from hpo.cli import main
from hpo.errors import StoreError
from hpo.search.checks import check_continues
from hpo.search.run import run
from hpo.search.what_if import what_if
from hpo.store.journal import Journal
from hpo.store.study_folder import StudyFolder
from hpo.studies.execution_spec import Budget
from hpo.studies.load import loads
from hpo.studies.overrides import Given
from hpo.studies.resolved import resolved_yaml
from hpo.studies.search_spec import EarlyTerminate, Evaluation, SearchSpec
from hpo.studies.study_meta import study_meta
from hpo.views.charts.search_charts import curves
from hpo.views.charts.snapshot import read_snapshot
from hpo.views.commands.analyses import what_if_text
from hpo.views.formatting import origin_lines
from hpo.views.leaderboard_text import winner_line
from hpo.views.report.page import TableCell, table
from hpo.views.report.report import write_report
from hpo.views.resuming import resume_command, resuming
from hpo.views.words import in_python, on_command_line


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Confirmed trials, stopped ones, and a default that ranks last of those with a value."""
    rule = EarlyTerminate("asha", 2_000, 2.0)
    return samples.make_results(tmp_path_factory.mktemp("results"), early_terminate=rule)


class _StopAt(Callback):
    def __init__(self, chunks):
        self.left = chunks

    def on_chunk(self, event):
        self.left -= 1
        if self.left == 0:
            raise StopStudy


@pytest.fixture
def interrupted(tmp_path, monkeypatch):
    """`results/cut`, which no process runs any more, with the file that it was started from."""
    monkeypatch.chdir(tmp_path)
    asked = samples.study("cut")
    how = samples.search.quick(callbacks=(_StopAt(9),))
    found = run(asked, tmp_path / "results" / "cut", samples.FACTORY, (), how)
    assert found.state == "interrupted"
    folder = StudyFolder(found.folder)
    folder.study_file.write_text(resolved_yaml(asked))
    return folder


def test_interrupted_study_prints_the_resume_command(capsys, interrupted):
    command = "hpo run results/cut/study.yaml --name cut"
    assert resume_command(interrupted) == command
    assert main(["top"]) == 0
    assert f"Interrupted: resume it with: {command}" in capsys.readouterr().out
    write_report(interrupted)
    assert command in interrupted.report.read_text()


def test_resume_command_uses_the_stored_command_line(interrupted):
    given = Given("run", "my.yaml", ("budget.trials=9",), "cut")
    interrupted.study_file.write_text(given.on_top_of("env: CartPole-v1\n"))
    assert resume_command(interrupted) == "hpo run my.yaml --set budget.trials=9 --name cut"


def test_resume_hint_works_without_a_stored_study_file(interrupted):
    interrupted.study_file.unlink()
    assert resuming(interrupted.path) == "to resume, rerun the command that started the study"


def test_resume_hint_names_no_file_that_the_study_would_refuse(interrupted):
    """The kept file of a study that `hpo.train` ran in Python has the space that it left out."""
    kept = interrupted.study_file.read_text()
    assert "method: random" in kept
    interrupted.study_file.write_text(kept.replace("method: random", "method: tpe"))
    assert resuming(interrupted.path) == "to resume, rerun the command that started the study"


def test_curves_chart_includes_the_default(finished):
    picture = curves(read_snapshot(StudyFolder(finished.folder)))
    default = next(entry.trial for entry in finished.leaderboard if entry.is_default)
    assert picture.panels
    for panel in picture.panels:
        assert any(key.label.startswith(f"trial {default}, default (") for key in panel.keys)


def test_a_legend_names_the_seeds_of_its_curve(finished):
    """A search value is not the mean of selection or test seeds, whatever stands beside it."""
    snapshot = read_snapshot(StudyFolder(finished.folder))
    evaluated = curves(snapshot).panels[-1]
    assert evaluated.title == "In evaluations of the search"
    trials = [key.label for key in evaluated.keys if key.label.startswith("trial ")]
    assert trials and all(label.endswith(" search seeds)") for label in trials)


def test_unconfirmed_first_trial_is_leader_not_winner(finished, tmp_path):
    assert " is the winner: " in winner_line(finished.leaderboard, "return")
    found = samples.make_results(tmp_path, "plain", confirm=None)
    assert " leads: " in winner_line(found.leaderboard, "return")
    snapshots = [read_snapshot(StudyFolder(one.folder)) for one in (finished, found)]
    assert [one.winner_word for one in snapshots] == ["winner", "leader"]


def test_what_if_shows_a_dash_for_unknown_results(tmp_path):
    """Rungs after the last evaluation of stopped trials: the rule's own stops are known."""
    found = samples.make_results(
        tmp_path,
        budget=Budget(24),
        confirm=None,
        early_terminate=EarlyTerminate("asha", 2_000, 4.0),
        evaluation=Evaluation(),
    )
    answer = what_if(
        found.folder,
        ["none", "asha,eta=4,min=2k", "asha,eta=2,min=8k"],
        quantum=lambda study, config: 1_000,
    )
    none, own, late = answer.rows
    assert none.saved == 0.0 and own.saved is not None and own.saved > 0.0 and own.stopped
    assert late.saved is None and late.stopped is None
    line = next(x for x in what_if_text(answer).splitlines() if "eta=2" in x)
    assert line.split()[-5:-1] == ["min=8k", "-", "-", "-"]
    assert "asha eta=2 min=8k: stopped and saved are unknown" in what_if_text(answer)


def test_eval_shows_trial_seed_and_recorded_value_of_the_policy():
    about = {
        "trial": 24, "study": "first", "stream": "report", "replicate": 0,
        "metric": "eval/return_mean", "value": -104.35,
    }  # fmt: skip
    (line,) = origin_lines(about)
    words = "trial 24 of first, test seed 0, with eval/return_mean -104.3"
    assert line == f"from    {words}"
    assert origin_lines({}) == []


@pytest.mark.parametrize(("method", "reuses"), [("tpe", True), ("random", False)])
def test_changed_range_error_suggests_new_with_warm_start(method, reuses):
    text = """
env: CartPole-v1
env_steps: 4096
search: {method: %s}
space: {learning_rate: {min: 1e-4, max: %s, distribution: log_uniform}}
budget: {trials: 4}
"""
    meta = study_meta(loads(text % (method, "1e-2")), {}, "cpu", 1)
    now = Given("run", "my.yaml")
    with pytest.raises(StoreError) as caught:
        check_continues(meta, loads(text % (method, "1e-1")), None, now)
    typed = (
        "start another study (--new or --new --set search.warm_start.study=results/study, which "
    )
    called = "(new=True or new=True and search: {warm_start: {study: results/study}}, which reuses"
    assert (typed in on_command_line(caught.value)) is reuses
    assert (called in in_python(caught.value)) is reuses
    with pytest.raises(StoreError) as caught:  # other env steps: no trial could be reused
        check_continues(meta, loads(text % (method, "1e-1") + "seed: 3\n"), None, now)
    assert "warm_start" not in on_command_line(caught.value)


def test_a_grid_is_walked_in_the_order_of_the_file(tmp_path):
    asked = samples.study(
        space=samples.search.FINITE, search=SearchSpec("grid"), budget=Budget(None), confirm=None
    )
    found = run(asked, tmp_path / "grid", samples.FACTORY, (), samples.search.quick())
    with Journal(found.folder) as journal:
        rows = [row for row in journal.trials() if row.proposed_by == "grid"]
    walked = [asked.space.canonical(params) for params in asked.space.grid(5)]
    given = [asked.space.canonical(row.params) for row in rows]
    assert len(given) == len(walked) - 1  # the default is trial 0
    assert given == [params for params in walked if params in given]


def test_long_column_names_may_wrap():
    html = table(
        "Trials", ["trial", "normalise_observations"], [[TableCell("1"), TableCell("true")]]
    )
    assert "normalise_<wbr>observations" in html and ">trial<" in html


def test_xla_log_messages_are_silenced_by_default():
    script = "import os, hpo.cli; hpo.cli.main(['--version'])\n"
    script += "print(os.environ['TF_CPP_MIN_LOG_LEVEL'])"
    for given, expected in ((None, "3"), ("0", "0")):
        env = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
        env |= {} if given is None else {"TF_CPP_MIN_LOG_LEVEL": given}
        done = subprocess.run(
            [sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True
        )
        assert done.stdout.split()[-1] == expected
