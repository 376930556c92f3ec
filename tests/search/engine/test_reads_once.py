"""A study's tables are read once for an answer, counted in calls of functions."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from helpers import search_samples as samples
from helpers.counted_calls import calls_of
from hpo.search.analysis.checkpoint_values import read_points
from hpo.search.engine.notify import Notifier
from hpo.search.run import run
from hpo.search.what_if import what_if
from hpo.store.study_folder import StudyFolder, common_failure
from hpo.studies.chunk_sizes import chunk_sizes_of
from hpo.studies.search_spec import EarlyTerminate, Evaluation, Seeds
from hpo.views.trial_text import trial_page

TRIALS = 40
FIRST_TRIAL = "codec.py:trial_from_text"


def of_trials(count: int, **changes):
    return samples.study(
        seeds=Seeds(1),
        env_steps=4_000,
        early_terminate=EarlyTerminate("asha", 1_000, 4.0),
        budget=samples.Budget(trials=count),
        **changes,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("reads") / "s"
    run(of_trials(TRIALS), place, samples.AnalyticFactory(), settings=samples.quick())
    return place


def reads(action, within: str = "store/") -> Counter[str]:
    """Return the calls of functions, by the last part of their file's path and their name."""
    found = Counter[str]()
    for name, count in calls_of(action, within).items():
        found[name.rpartition("/")[2]] += count
    return found


def test_resumed_study_reads_trials_twice(tmp_path):
    place, settings = tmp_path / "s", samples.quick()
    run(of_trials(TRIALS), place, samples.AnalyticFactory(), settings=settings)
    more = of_trials(TRIALS + 1)
    seen = reads(lambda: run(more, place, samples.AnalyticFactory(), settings=settings))
    assert seen["tables.py:write_trials"] == 1
    assert seen[FIRST_TRIAL] == TRIALS + TRIALS + 1
    assert seen["leaderboard.py:leaderboard"] == 1  # of the tables and of the results


def test_finished_study_reads_trials_twice(folder):
    study, settings = of_trials(TRIALS), samples.quick()
    seen = reads(lambda: run(study, folder, samples.AnalyticFactory(), settings=settings))
    assert seen[FIRST_TRIAL] == 2 * TRIALS
    assert seen["leaderboard.py:leaderboard"] == 1


def test_common_failure_reads_no_trials_if_one_finished(folder):
    assert reads(lambda: common_failure(folder))[FIRST_TRIAL] == 0


def test_showing_one_trial_reads_only_its_decisions(folder):
    for trial in range(4):
        seen = reads(lambda trial=trial: trial_page(StudyFolder(folder), trial))
        assert seen[FIRST_TRIAL] == TRIALS
        assert seen["codec.py:decision_from_text"] < 4  # of this trial
        assert seen["leaderboard.py:leaderboard"] == 1


def test_values_at_points_read_each_evaluation_once(folder):
    seen = reads(lambda: read_points(folder))
    assert seen["codec.py:evaluation_of_cells"] == sum(
        map(len, read_points(folder).seeds.values())
    )


def test_chunks_are_worked_out_once_for_equal_runs():
    study = of_trials(TRIALS, seed=5)
    seen = reads(lambda: [chunk_sizes_of(study, 24) for _ in range(9)], "studies/")
    assert seen["chunk_sizes.py:chunk_sizes_of"] == 9
    assert seen["chunk_sizes.py:_updates_per_chunk"] <= 1


def test_a_replay_of_four_times_the_trials_takes_four_times_the_calls(tmp_path, monkeypatch):
    # the estimate of what is left takes a set share of the time, so the clock says how often
    monkeypatch.setattr(Notifier, "_look_ahead", lambda notifier: None)

    def replayed(count: int) -> Counter[str]:
        place, asked = tmp_path / str(count), of_trials(count, evaluation=Evaluation(every=1_000))
        run(asked, place, samples.AnalyticFactory(), settings=samples.quick())
        return reads(lambda: what_if(place, ["none", "asha,eta=2"], quantum=quantum), "search/")

    few, many = replayed(64), replayed(256)
    grown = {name: (few[name], n) for name, n in many.items() if n > 4.5 * few[name] + 256}
    assert not grown
    assert many.total() < 4.3 * few.total()


def quantum(_study, _config) -> int:
    return 1_000
