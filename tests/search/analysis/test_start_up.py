"""Trials that bear a model's name and were drawn at random, checked against the sampler itself."""

from dataclasses import replace

import pytest

from helpers import search_samples as samples
from hpo.search.run import run
from hpo.store.journal import Journal
from hpo.store.rows import AskRow, TrialRow, TrialState
from hpo.store.study_folder import StudyFolder
from hpo.studies.search_spec import SearchSpec
from hpo.views.trial_text import start_up_words, trial_page, trial_text


def told(method, asks, states=(), **options):
    asks = [replace(ask, method=method) for ask in asks]
    search = {"method": method, "options": options, "warm_start": None}
    rows = [
        TrialRow(n, states[n] if n < len(states) else TrialState.FINISHED, by, 0, "b", {})
        for ask in asks
        for n, by in zip(ask.trials, _by(ask), strict=True)
    ]
    return start_up_words(search, asks, rows)


def _by(ask):
    return [ask.method if n else "default" for n in ask.trials]


def test_trials_before_model_startup_are_reported_as_random():
    asks = [
        AskRow(0, "tpe", (0, 1, 2)),
        AskRow(1, "tpe", (3,), (0, 1)),
        AskRow(2, "tpe", (4,), (2,)),
        AskRow(3, "tpe", (5,), (3, 4)),
    ]
    found = told("tpe", asks, n_startup_trials=3)
    words = "random draw: the model needs 3 results and had {}"
    assert found == {1: words.format(0), 2: words.format(0), 3: words.format(2)}
    failed = told("tpe", asks, [TrialState.FAILED] * 3, n_startup_trials=3)
    assert set(failed) == {1, 2, 3, 4, 5}
    assert set(told("cmaes", asks)) == {1, 2}
    assert told("cmaes", asks)[1] == "before any result was known"
    assert told("random", asks) == {}


@pytest.mark.parametrize("fewest", [4, 8])
def test_random_startup_trials_match_optuna_sampler(tmp_path, fewest, monkeypatch):
    """Against Optuna: whether its model was asked for a place in the space."""
    from optuna.samplers import TPESampler

    modelled = []
    sample = TPESampler._sample

    def spied(self, study, trial, space, **more):
        modelled.append(trial.number)
        return sample(self, study, trial, space, **more)

    monkeypatch.setattr(TPESampler, "_sample", spied)
    search = SearchSpec("tpe", random_share=0.0, options={"n_startup_trials": fewest})
    study = samples.study(name="s", search=search, confirm=None)
    run(study, tmp_path / "s", samples.AnalyticFactory(lanes=4, block=4), (), samples.quick())
    with Journal(tmp_path / "s") as journal:
        section = {"options": search.options}
        found = start_up_words(section, journal.asks(), journal.trials())
        by_tpe = {row.trial for row in journal.trials() if row.proposed_by == "tpe"}
    assert found and set(found) < by_tpe
    assert set(found) == by_tpe - set(modelled)
    folder = StudyFolder(tmp_path / "s")
    first = min(found)
    page = trial_page(folder, first)
    assert page.start_up == found[first] and found[first] in trial_text(page, verbose=True)
    assert trial_page(folder, max(by_tpe)).start_up is None
