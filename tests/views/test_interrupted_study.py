"""An interrupted study answers at the latest env steps that trials reached, and says so."""

import json
import math

import pytest

from helpers import view_samples as samples
from hpo import Callback, StopStudy
from hpo.cli import main
from hpo.search.analysis.checkpoint_values import read_points
from hpo.search.engine.engine import Engine
from hpo.search.run import run
from hpo.search.what_if import read_record, what_if
from hpo.store.journal import Journal
from hpo.studies.execution_spec import Budget
from hpo.studies.search_spec import EarlyTerminate, Evaluation
from hpo.views.commands.analyses import what_if_text

EVERY = Evaluation(every=2_000)


def quantum(study, config):
    return 1_000


class _StopAt(Callback):
    def __init__(self, chunks):
        self.left = chunks

    def on_chunk(self, event):
        self.left -= 1
        if self.left == 0:
            raise StopStudy


def ran(folder, *callbacks, **changes):
    """Run a study whose 24 trials on 2 seeds all have a lane of their own."""
    asked = samples.study(**{"evaluation": EVERY, **changes})
    factory = samples.search.AnalyticFactory(lanes=48)
    return run(asked, folder, factory, (), samples.search.quick(callbacks=callbacks))


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    """Stopped after 9 of 16 chunks, where trials were evaluated at 2k, 4k, 6k and 8k."""
    folder = tmp_path_factory.mktemp("cut") / "cut"
    found = ran(folder, _StopAt(9), name="cut", early_terminate=None)
    assert found.state == "interrupted" and all(e.value is None for e in found.leaderboard)
    return folder


@pytest.fixture(scope="module")
def spent(tmp_path_factory):
    """Ended by its budget: some trials are stopped at 2k, those that went on have no value.

    As in studies of before trials had to fit in what is left.
    """
    folder = tmp_path_factory.mktemp("spent") / "spent"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Engine, "trials_to_start", lambda _: math.inf)
        found = ran(
            folder,
            name="spent",
            confirm=None,
            budget=Budget(trials=24, env_steps=200_000),
            early_terminate=EarlyTerminate("asha", 2_000, 2.0),
        )
    assert found.state == "finished" and all(e.value is None for e in found.leaderboard)
    return folder


def say(capsys, folder, *words):
    assert main([*words, "--study", str(folder)]) == 0
    return " ".join(capsys.readouterr().out.split())


def test_best_names_the_leader_at_the_latest_shared_point(capsys, interrupted):
    values = read_points(interrupted).values[8_000]
    values = {trial: value for trial, value in values.items() if math.isfinite(value)}
    leader = max(values, key=lambda trial: values[trial])
    text = say(capsys, interrupted, "best")
    said = f"Trial {leader} leads {len(values)} trials at 8k env steps, the latest point that "
    assert text.startswith(f"No trial has finished its run. {said}at least two reached: ")
    with Journal(interrupted) as journal:
        rate = journal.trial(leader).params["learning_rate"]
    assert f"learning_rate: {rate!r}" in text
    data = json.loads(say(capsys, interrupted, "best", "--json"))
    assert (data["trial"], data["at"], data["trials_at"]) == (leader, 8_000, len(values))
    assert data["value"] is None and data["value_at"] == values[leader]
    assert main(["best", "--export", "x", "--study", str(interrupted)]) == 2
    assert "its run yet; see: hpo top --study " in capsys.readouterr().err


def test_trial_cut_by_the_budget_ranks_above_stopped_trials(capsys, spent):
    """It has the highest value at the latest point, and ranks first."""
    values = read_points(spent).values
    at = max(at for at, found in values.items() if len(found) > 1)
    leader = max(values[at], key=lambda trial: values[at][trial])
    with Journal(spent) as journal:
        assert str(journal.trial(leader).state) == "unfinished"
        furthest = max(row.rung for row in journal.trials())
        assert journal.trial(leader).rung == furthest
    assert f"Trial {leader} leads {len(values[at])} trials" in say(capsys, spent, "best")
    top = say(capsys, spent, "top")
    assert top.startswith("No trial has finished its run. Trial ") and "unfinished" in top


def test_compare_uses_the_last_common_env_step(capsys, interrupted, spent):
    text = say(capsys, interrupted, "compare", "3", "4")
    assert "on 2 shared search seeds at 8k env steps, the last point both reached" in text
    assert text.startswith("No verdict: trial ")
    assert "Once the study has finished, train both on test seeds (16 runs, " in text
    assert "hpo confirm 3 4 --seeds 8" in text
    values = read_points(spent).values
    later = {trial for at, found in values.items() if at > 2_000 for trial in found}
    early = next(trial for trial in values[2_000] if trial not in later)
    late = next(trial for trial in values[2_000] if trial in later)
    text = say(capsys, spent, "compare", str(late), str(early))
    assert "at 2k env steps, the last point both reached" in text
    assert "To decide, train both on test seeds (16 runs, " in text


def test_importance_reports_the_env_step_of_interrupted_studies(capsys, interrupted):
    assert "Trials are compared at 8k env steps." in say(capsys, interrupted, "importance")


def test_what_if_of_interrupted_study_uses_shorter_runs(tmp_path, interrupted):
    """As it judges those of a study that was asked for these and ran to its end."""
    ran(tmp_path / "short", name="cut", early_terminate=None, env_steps=8_000)
    rules = ["none", "asha,eta=2,min=2k", "median,min=2k"]
    cut, short = (
        what_if(folder, rules, quantum=quantum) for folder in (interrupted, tmp_path / "short")
    )
    assert (cut.env_steps, cut.asked_env_steps) == (8_000, 16_000)
    assert short.asked_env_steps is None and cut.rows == short.rows and cut.best == short.best
    first = (
        "No trial has finished its run, so the replay ends runs at 8k of 16k env steps, the "
        "latest point that at least two trials reached."
    )
    assert what_if_text(cut).splitlines()[0] == first
    assert what_if_text(cut).splitlines()[1:] == what_if_text(short).splitlines()
    assert any(row.stopped > 0 for row in cut.rows)


def test_record_with_a_finished_trial_is_not_shortened(tmp_path):
    folder = samples.make_results(tmp_path).folder
    assert read_record(folder, quantum).shortened is None
