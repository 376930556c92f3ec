"""The short run of a command: what it measures, and the time that follows for a study."""

from contextlib import closing

import pytest

from helpers.process_study import study_of, write_script
from hpo.search.lanes.process_factory import ProcessFactory
from hpo.search.lanes.process_speed import Tried, try_out
from hpo.search.study_estimate import process_time
from hpo.studies.expected_cost import expected_steps


@pytest.fixture
def folder(tmp_path, monkeypatch):
    write_script(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_trial_run_reports_metrics_speed_and_failure(folder):
    with closing(ProcessFactory(study_of(folder, "slow"))) as factory:
        tried = try_out(factory.setup, folder / "place", 10.0)
    assert tried.names == ("score", "loss")
    assert tried.steps_per_second > 0
    assert tried.failure == ""
    with closing(ProcessFactory(study_of(folder, "crash"))) as factory:
        failure = try_out(factory.setup, folder / "other", 10.0).failure
    assert failure.startswith("exit code 1: RuntimeError: out of memory")


RUNGS = "early_terminate: {type: asha, min: 100}\n"


def test_trial_run_is_not_held_at_rungs(folder):
    with closing(ProcessFactory(study_of(folder, "slow", more=RUNGS))) as factory:
        tried = try_out(factory.setup, folder / "place", 20.0)
    assert tried.run_seconds is not None  # it came to its end
    assert 0.0 < tried.start_seconds < tried.run_seconds < 20.0
    whole = tried.start_seconds + 800 / tried.steps_per_second
    assert whole == pytest.approx(tried.run_seconds)


@pytest.mark.parametrize("more", ["", RUNGS, RUNGS + "confirm: {default: {rate: 2.0}}\n"])
def test_time_of_a_command_counts_each_start_of_a_process(folder, more):
    study = study_of(folder, trials=32, more=more)
    chunk_sizes = ProcessFactory(study).setup.chunk_sizes
    expected = expected_steps(study, chunk_sizes, 2)
    tried = Tried(400.0, 1.5, 3.5, ("score",), 0)
    seconds = 0.0
    ends = [*chunk_sizes.rungs, chunk_sizes.env_steps]
    past = [32.0, *expected.passing, 0.0]
    for at, end in enumerate(ends):  # the processes that end at each rung
        seconds += (past[at] - past[at + 1]) * (1.5 + end / 400.0)
    seconds += study.confirming * (1.5 + 800 / 400.0)
    found = process_time(study, expected, tried, 2)
    assert found.seconds() == pytest.approx(seconds / 2, rel=1e-3)
