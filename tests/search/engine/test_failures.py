import dataclasses
import re

import numpy as np
import pytest

from helpers import search_samples as samples
from hpo.errors import ConfigError, MissingExtraError, SearchError
from hpo.search.lanes.contract import EvaluationResult
from hpo.search.run import run
from hpo.search.samplers.proposal_queue import Proposer
from hpo.store import TrialState, tables_equal
from hpo.store.journal import Journal
from hpo.studies.execution_spec import Budget

Factory = samples.AnalyticFactory
RAISED = re.compile(r".*test_failures\.py:\d+: MemoryError: out of memory")
"""What a row says of an error in code that is not ours: where it was raised comes first."""


class Breaking(Factory):
    """Raises an error in some calls of one method of its populations.

    `calls` counts over all populations; `when` says which calls break.
    """

    method, error = "advance", MemoryError("out of memory\nand more lines")

    def make(self, resolved, lanes):
        made = super().make(resolved, lanes)
        good = getattr(made, self.method)

        def sometimes(*args):
            Breaking.calls += 1
            if self.when(Breaking.calls):
                raise self.error
            return good(*args)

        setattr(made, self.method, sometimes)
        Breaking.made += 1
        return made


@pytest.fixture(autouse=True)
def _fresh():
    Breaking.calls = Breaking.made = 0


def breaking(when, method="advance", error=None, **fields):
    made = type("Broken", (Breaking,), {"when": staticmethod(when), "method": method})
    if error is not None:
        made.error = error
    return made(**fields)


def go(tmp_path, study, factory):
    return run(study, tmp_path / "study", factory, (), samples.quick())


def test_failing_chunk_fails_its_trials_and_study_continues(tmp_path):
    factory = breaking(lambda call: call == 4, lanes=6)
    results = go(tmp_path, samples.study(), factory)
    assert results.state == "finished" and results.usage.failures == 1
    assert Breaking.made == 2
    with Journal(tmp_path / "study") as journal:
        failed = [row for row in journal.trials() if row.state == "failed"]
    # Six lanes held three trials of two seeds.
    assert len(failed) == 3
    assert all(RAISED.fullmatch(row.error) for row in failed)
    assert all(row.value is None and row.ended_at is not None for row in failed)


def test_too_many_errors_stop_study_until_limit_is_raised(tmp_path):
    study = samples.study(budget=Budget(trials=50, max_failures=3))
    factory = breaking(lambda call: True, lanes=4)
    with pytest.raises(SearchError, match=r"3 errors.*MemoryError: out of memory"):
        go(tmp_path, study, factory)
    assert Breaking.calls == 3
    with pytest.raises(SearchError, match="3 errors"):
        go(tmp_path, study, Factory(lanes=4))
    raised = dataclasses.replace(study, budget=Budget(trials=50, max_failures=9))
    assert go(tmp_path, raised, Factory(lanes=4)).state == "finished"


def test_error_limit_reports_last_failed_not_diverged_trial(tmp_path):
    study = samples.study(budget=Budget(trials=50, max_failures=1))
    factory = breaking(lambda call: call == 1, "evaluate", lanes=20, diverges_above=1e-3)
    with pytest.raises(SearchError, match=r"1 error .*MemoryError: out of memory"):
        go(tmp_path, study, factory)
    with Journal(tmp_path / "study") as journal:
        last = {str(row.state): row.trial for row in journal.trials()}
    assert last["diverged"] > last["failed"]


def test_failing_evaluation_fails_only_evaluated_trials(tmp_path):
    factory = breaking(lambda call: call == 2, method="evaluate", error=RuntimeError("boom"))
    results = go(tmp_path, samples.study(), factory)
    failed = [entry for entry in results.leaderboard if entry.state is TrialState.FAILED]
    assert results.usage.failures == 1 and 1 <= len(failed) <= 8
    assert Breaking.made == 1


def test_program_that_cannot_compile_fails_its_trials(tmp_path):
    class Unmakable(Factory):
        def make(self, resolved, lanes):
            if resolved.config["hidden_sizes"] == (64, 64):
                raise RuntimeError("cannot compile")
            return super().make(resolved, lanes)

    study = samples.study(samples.WITH_BUCKETS, budget=Budget(trials=24, max_failures=100))
    results = go(tmp_path, study, Unmakable(lanes=4))
    states = {
        (tuple(entry.params["hidden_sizes"]) == (64, 64), entry.state is TrialState.FAILED)
        for entry in results.leaderboard
    }
    assert states == {(True, True), (False, False)}


def test_contradictory_hyperparameters_fail_their_trial(tmp_path):
    class Picky(Factory):
        def resolve(self, config):
            if config["hidden_sizes"] == (32,):
                raise ConfigError("32 is no width")
            return super().resolve(config)

    study = samples.study(samples.WITH_BUCKETS, budget=Budget(trials=24, max_failures=100))
    results = go(tmp_path, study, Picky(lanes=4))
    failed = [entry for entry in results.leaderboard if entry.state is TrialState.FAILED]
    assert failed and all(tuple(entry.params["hidden_sizes"]) == (32,) for entry in failed)
    with Journal(tmp_path / "study") as journal:
        failed = [row for row in journal.trials() if row.state is TrialState.FAILED]
        assert {row.error for row in failed} == {"32 is no width"}


def test_missing_package_stops_study_immediately(tmp_path):
    error = MissingExtraError("brax", "brax", "ant")
    with pytest.raises(MissingExtraError):
        go(tmp_path, samples.study(), breaking(lambda call: call == 3, error=error))
    assert Breaking.calls == 3


def test_failing_chunk_during_confirm_fails_the_candidates(tmp_path):
    study = samples.study(
        early_terminate=None, budget=Budget(trials=4), confirm=samples.Confirm(2, 2, 2)
    )
    # Eight replicates of 16 chunks fill 8 lanes once; the confirm stage begins with chunk 17.
    factory = breaking(lambda call: call == 20, lanes=8, diverges_above=2.0)
    results = go(tmp_path, study, factory)
    assert results.state == "finished" and results.usage.failures == 1
    assert not any(entry.confirmed for entry in results.leaderboard)
    assert all(entry.state is TrialState.FINISHED for entry in results.leaderboard)
    with Journal(tmp_path / "study") as journal:
        errors = [row.error for row in journal.trials() if row.error]
        assert len(errors) == 2 and all(map(RAISED.fullmatch, errors))


def test_failing_confirm_chunk_fails_one_candidate_only(tmp_path):
    study = samples.study(
        early_terminate=None, budget=Budget(trials=4), confirm=samples.Confirm(2, 4, 6)
    )
    # Eight replicates of 16 chunks fill 4 lanes twice; then the first candidate fills them.
    results = go(tmp_path, study, breaking(lambda call: call == 36, lanes=4, diverges_above=2.0))
    assert results.state == "finished" and results.usage.failures == 1
    (confirmed,) = [entry for entry in results.leaderboard if entry.confirmed]
    assert confirmed.value_from == "report" and confirmed.seeds == 6
    assert results.conclusion.verdict != "nothing"
    with Journal(tmp_path / "study") as journal:
        (failed,) = [row for row in journal.trials() if row.error]
    assert RAISED.fullmatch(failed.error) and failed.trial != confirmed.trial
    assert failed.state is TrialState.FINISHED and not failed.choose_values


class OneFails(Factory):
    """One lane's environment fails in the call `at` of a method of its populations."""

    at, method = 0, "advance"

    def make(self, resolved, lanes):
        made = super().make(resolved, lanes)
        good, calls = getattr(made, self.method), []

        def sometimes(*args):
            calls.append(1)
            found = good(*args)
            if len(calls) != self.at:
                return found
            if self.method == "evaluate":
                return [EvaluationResult(np.zeros(0), np.zeros(0, np.int64), {}, WHY), *found[1:]]
            diverged = np.array(found.diverged)
            diverged[2] = True
            return dataclasses.replace(found, diverged=diverged, failed={2: WHY})

        setattr(made, self.method, sometimes)
        return made


WHY = "walk.py:3: ValueError: a broken joint"


def one_fails(at, method="advance", **fields):
    return type("Failing", (OneFails,), {"at": at, "method": method})(**fields)


@pytest.mark.parametrize("method", ["advance", "evaluate"])
def test_failing_environment_fails_only_its_trial(tmp_path, method):
    results = go(tmp_path, samples.study(), one_fails(2, method, lanes=6, diverges_above=2.0))
    assert results.state == "finished" and results.usage.failures == 1
    with Journal(tmp_path / "study") as journal:
        rows = [row for row in journal.trials() if row.state == "failed"]
    assert [row.error for row in rows] == [WHY]
    assert not any(entry.state is TrialState.DIVERGED for entry in results.leaderboard)


def test_failing_environment_during_confirm_fails_one_candidate(tmp_path):
    study = samples.study(
        early_terminate=None, budget=Budget(trials=4), confirm=samples.Confirm(2, 2, 2)
    )
    results = go(tmp_path, study, one_fails(20, lanes=8, diverges_above=2.0))
    assert results.state == "finished" and results.usage.failures == 1
    assert sum(entry.confirmed for entry in results.leaderboard) == 1
    with Journal(tmp_path / "study") as journal:
        assert [row.error for row in journal.trials() if row.error] == [WHY]


def test_environment_failures_count_towards_max_failures(tmp_path):
    study = samples.study(budget=Budget(trials=50, max_failures=1))
    with pytest.raises(SearchError, match=r"1 error .*walk.py:3: ValueError: a broken joint"):
        go(tmp_path, study, one_fails(2, lanes=6, diverges_above=2.0))


@pytest.mark.parametrize("method", ["random", "tpe"])
def test_a_batch_whose_sampler_failed_is_drawn_again(tmp_path, monkeypatch, method):
    """No trial number is lost, and the study ends as if nothing had happened."""
    study = samples.study(method=method)
    whole = run(study, tmp_path / "whole", Factory(), (), samples.quick()).folder
    propose = Proposer.propose

    def fails(self, batch, trials, history):
        if batch == 3:
            raise SearchError("the sampler is ill")
        return propose(self, batch, trials, history)

    with monkeypatch.context() as patch:
        patch.setattr(Proposer, "propose", fails)
        with pytest.raises(SearchError, match="ill"):
            go(tmp_path, study, Factory())
    assert go(tmp_path, study, Factory()).state == "finished"
    assert tables_equal(whole, tmp_path / "study") == []
