"""An earlier study's trials as history: what is taken, what is refused, what is kept."""

import dataclasses
import json
import shutil

import duckdb
import pytest

from helpers import search_samples as samples
from helpers.loading import run_file
from hpo.errors import ConfigError
from hpo.search.run import run
from hpo.search.state.warm_start import warm_start
from hpo.spaces import Space
from hpo.store import tables_equal
from hpo.store.journal import Journal
from hpo.store.rows import TrialState
from hpo.store.study_folder import WARM_START_NAME
from hpo.studies.execution_spec import Budget
from hpo.studies.search_spec import (
    Constraint,
    EarlyTerminate,
    Metric,
    SearchSpec,
    Seeds,
    WarmStart,
)

FACTORY = samples.AnalyticFactory(lanes=12, block=4, diverges_above=0.3)


@pytest.fixture(scope="module")
def earlier(tmp_path_factory):
    """A finished study of 60 trials, 40 of which ran to their end or diverged, or so."""
    folder = tmp_path_factory.mktemp("earlier") / "s"
    study = samples.study(
        method="random", budget=Budget(trials=60), fixed={"update_epochs": 3}, early_terminate=None
    )
    return folder, run(study, folder, FACTORY, (), samples.quick())


def study(folder, method="tpe", **changes):
    search = SearchSpec(method, random_share=0.0, warm_start=WarmStart(str(folder)))
    given = {"fixed": {"update_epochs": 3}, "search": search, **changes}
    return dataclasses.replace(samples.study(budget=Budget(trials=20)), **given)


def test_warm_start_takes_finished_and_diverged_trials(earlier):
    folder, results = earlier
    found = warm_start(study(folder)).history
    by_state = {
        state: [entry for entry in results.leaderboard if entry.state is state]
        for state in (TrialState.FINISHED, TrialState.DIVERGED)
    }
    assert [past.trial for past in found] == list(range(-len(found), 0))
    finished = [past for past in found if past.state is TrialState.FINISHED]
    assert sorted(-past.loss for past in finished) == sorted(
        entry.value for entry in by_state[TrialState.FINISHED]
    )
    diverged = [past for past in found if past.state is TrialState.DIVERGED]
    assert len(diverged) == len(by_state[TrialState.DIVERGED]) > 0
    assert all(past.proposed_by == "warm_start" for past in found)


@pytest.mark.parametrize("method", ["tpe", "nsga2", "cmaes"])
def test_warm_started_study_beats_cold_start(earlier, tmp_path, method):
    if method == "cmaes":
        pytest.importorskip("cmaes")
    folder, _ = earlier
    cold = samples.study(method=method, fixed={"update_epochs": 3}, budget=Budget(trials=20))
    cold = dataclasses.replace(cold, search=SearchSpec(method, random_share=0.0))
    values = {}
    for name, asked in (("cold", cold), ("warm", study(folder, method))):
        asked = dataclasses.replace(asked, early_terminate=None)
        results = run(asked, tmp_path / name, FACTORY, (), samples.quick())
        assert len(results.leaderboard) == 20  # earlier trials are none of this study
        found = [e.value for e in results.leaderboard if e.trial > 0 and e.value is not None]
        values[name] = sum(found) / 19
    assert values["warm"] > values["cold"] + (0.0 if method == "nsga2" else 5.0)


def test_warm_start_is_stored_for_resume(earlier, tmp_path):
    tests = run_file("tests/search/engine/test_resume.py")
    copy = tmp_path / "earlier"
    shutil.copytree(earlier[0], copy)
    asked = study(copy)
    run(asked, tmp_path / "whole", FACTORY, (), samples.quick())
    run(asked, tmp_path / "cut", FACTORY, [tests.CutAt(6)], samples.quick())
    assert json.loads((tmp_path / "cut" / WARM_START_NAME).read_text())["trials"]
    shutil.rmtree(copy)
    assert run(asked, tmp_path / "cut", FACTORY, (), samples.quick()).state == "finished"
    assert tables_equal(tmp_path / "whole", tmp_path / "cut") == []


def test_warm_start_is_stored_on_resume_after_early_crash(earlier, tmp_path, monkeypatch):
    asked = study(earlier[0])

    def dies(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("hpo.search.run.write_warm_start", dies)
        with pytest.raises(KeyboardInterrupt):
            run(asked, tmp_path / "late", FACTORY, (), samples.quick())
    run(asked, tmp_path / "late", FACTORY, (), samples.quick())
    assert (tmp_path / "late" / WARM_START_NAME).is_file()


def test_warm_start_reads_trials_table(earlier, tmp_path):
    table = tmp_path / "trials.parquet"
    shutil.copy(earlier[0] / "trials.parquet", table)
    plain, whole = warm_start(study(table)), warm_start(study(earlier[0]))
    # The table has them by rank, the journal by number.
    assert sorted(str(past.params) for past in plain.history) == sorted(
        str(past.params) for past in whole.history
    )


def test_warm_start_ignores_confirm_stage(tmp_path):
    asked = samples.study(
        early_terminate=EarlyTerminate("pbt", every=2_000),
        budget=Budget(trials=8),
        seeds=Seeds(1),
        confirm=samples.Confirm(2, 3, 2),
        fixed={"update_epochs": 3},
    )
    run(asked, tmp_path / "s", samples.AnalyticFactory(diverges_above=2.0), (), samples.quick())
    table = tmp_path / "trials.parquet"
    shutil.copy(tmp_path / "s" / "trials.parquet", table)
    states = duckdb.sql(f"SELECT state FROM '{table}'").fetchall()
    assert {("confirmed",), ("reference",)} <= set(states)
    for place in (table, tmp_path / "s"):
        found = warm_start(study(place))
        assert {past.state for past in found.history} == {TrialState.FINISHED}
        assert found.words == f"reusing 8 of 8 trials from {place}"


def test_warm_start_skips_and_counts_trials_outside_space(earlier):
    narrow = samples.parameter(
        "learning_rate", 3e-4, min=1e-4, max=1e-2, distribution="log_uniform"
    )
    asked = study(earlier[0], space=Space((narrow, samples.GAMMA)))
    found = warm_start(asked)
    assert all(1e-4 <= past.params["learning_rate"] <= 1e-2 for past in found.history)
    assert 0 < len(found.history) < 60
    assert f"{60 - len(found.history)} with learning_rate outside its range" in found.words


def test_warm_start_requires_equal_fixed_hyperparameters(earlier):
    asked = study(earlier[0], space=Space((samples.LEARNING_RATE,)))
    found = warm_start(asked)
    assert len(found.history) == 1  # the default configuration has the gamma that is fixed here
    assert "59 with a different gamma" in found.words
    asked = dataclasses.replace(asked, fixed={"gamma": 0.5})
    with pytest.raises(ConfigError, match=r"no trial in .* 60 with a different gamma"):
        warm_start(asked)


def test_warm_start_fills_hyperparameters_that_were_fixed(earlier):
    asked = study(earlier[0], space=Space((*samples.REAL.parameters, samples.EPOCHS)), fixed={})
    assert {past.params["update_epochs"] for past in warm_start(asked).history} == {3}


def test_warm_start_reports_changed_settings(earlier):
    asked = dataclasses.replace(study(earlier[0]), env_steps=32_000, fixed={"update_epochs": 4})
    words = warm_start(asked).words
    assert "env_steps 16000 -> 32000" in words and "update_epochs 3 -> 4" in words


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"metric": Metric(goal="minimize")}, "different objectives: maximize eval/return_mean"),
        ({"metric": Metric("eval/length_mean")}, "here: maximize eval/length_mean"),
    ],
)
def test_warm_start_with_different_objective_is_refused(earlier, change, words):
    with pytest.raises(ConfigError, match=words):
        warm_start(study(earlier[0], **change))


def test_warm_start_with_different_constraints_is_refused(tmp_path):
    """A length of an episode is no number of env steps, though both are one value a trial."""
    long, short = Constraint("eval/return_mean", max=0.5), Constraint("eval/return_min", max=0.5)
    asked = samples.study(constraints=(long, short), early_terminate=None, budget=Budget(trials=9))
    run(asked, tmp_path, FACTORY, (), samples.quick())
    with Journal(tmp_path) as journal:
        rows = [row for row in journal.trials() if row.state is TrialState.FINISHED]
    kept = study(tmp_path, constraints=(dataclasses.replace(long, max=0.4), short), fixed={})
    found = [past for past in warm_start(kept).history if past.state is TrialState.FINISHED]
    assert [past.violations for past in found] == [
        pytest.approx([row.constraints[0] - 0.4, row.constraints[1] - 0.5]) for row in rows
    ]
    for other in ((short, long), (long,), (), (dataclasses.replace(long, aggregate="min"), short)):
        with pytest.raises(
            ConfigError, match="has constraints on different metrics: mean of eval/ret"
        ):
            warm_start(study(tmp_path, constraints=other, fixed={}))


def test_warm_start_from_folder_without_study_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="contains no study"):
        warm_start(study(tmp_path))
    (tmp_path / "trials.parquet").write_text("no table")
    with pytest.raises(ConfigError, match="not a table of trials"):
        warm_start(study(tmp_path / "trials.parquet"))


def test_no_warm_start_by_default():
    assert warm_start(samples.study()).history == ()
