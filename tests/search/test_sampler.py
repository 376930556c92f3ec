import dataclasses
import inspect
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

import pytest
from optuna.trial import TrialState as OptunaState

from hpo.errors import ConfigError, UnknownNameError
from hpo.search import grid_search, random_search, sobol_search, via_optuna
from hpo.search.contracts import SamplerContract, contract_space
from hpo.search.methods import METHODS, make_sampler, register_sampler
from hpo.search.sampler import Past, SamplerSpec
from hpo.spaces import Space
from hpo.store.rows import TrialState
from hpo.studies.fields import METHODS as FIELDS

samples = SimpleNamespace(**run_path(str(Path(__file__).with_name("samples.py"))))


class TestRandom(SamplerContract):
    def make(self, space, seed):
        return random_search.build(SamplerSpec(space, seed, {}))


class TestSobol(SamplerContract):
    def make(self, space, seed):
        return sobol_search.build(SamplerSpec(space, seed, {}))


class TestGrid(SamplerContract):
    def make(self, space, seed):
        return grid_search.build(SamplerSpec(space, seed, {"points": {"gamma": 2, "*": 4}}))


class TestTpe(SamplerContract):
    def make(self, space, seed):
        return via_optuna.build(SamplerSpec(space, seed, {"n_startup_trials": 3}))


def drawn(sampler, batch, count, history=()):
    return TestRandom().propose(sampler, batch, count, list(history))


def test_random_search_does_not_depend_on_batches():
    space = contract_space()
    whole = drawn(random_search.RandomSearch(space, 0), 0, 6)
    halves = drawn(random_search.RandomSearch(space, 0), 0, 3)
    halves += drawn(random_search.RandomSearch(space, 0), 1, 3, halves)
    assert whole == halves


def test_sobol_covers_every_knob_evenly():
    space = contract_space()
    found = drawn(sobol_search.SobolSearch(space, 7), 0, 64)
    # 64 points of a scrambled Sobol sequence: each quarter of each axis holds exactly 16.
    logs = [past.params["learning_rate"] for past in found]
    quarters = [
        sum(10 ** (-5 + 0.75 * k) <= x < 10 ** (-5 + 0.75 * (k + 1)) for x in logs)
        for k in range(4)
    ]
    assert quarters == [16, 16, 16, 16]
    assert sum(past.params["network"] == "mlp" for past in found) == 32


def test_sobol_goes_on_after_skipped_points():
    space = contract_space()
    sampler = sobol_search.SobolSearch(space, 0)
    opened = sampler.begin(0, [])
    points = [opened.draw(0, attempt) for attempt in range(4)]
    past = Past(0, points[2].params, points[2].attributes)
    assert sobol_search.SobolSearch(space, 0).begin(1, [past]).draw(1, 0) == points[3]


def test_grid_gives_every_combination_once_and_ends():
    space = samples.FINITE
    found = drawn(grid_search.GridSearch(space, 9), 0, 100)
    assert [past.params for past in found] == list(space.grid(9))
    assert len(found) == 12
    assert grid_search.GridSearch(space, 9).begin(1, found).draw(12, 0) is None


@pytest.mark.parametrize("options", [{"pionts": 3}, {"points": 0}, {"points": {"gamma": True}}])
def test_grid_refuses_options_that_make_no_sense(options):
    with pytest.raises(ConfigError, match="points"):
        grid_search.build(SamplerSpec(contract_space(), 0, options))


def test_methods_are_made_by_name():
    for method in METHODS:
        assert make_sampler(samples.study(method=method)).adaptive is (method == "tpe")
    with pytest.raises(UnknownNameError, match="did you mean 'tpe'"):
        make_sampler(samples.study(method="tpee"))


@pytest.mark.parametrize("method", ["random", "sobol", "tpe"])
def test_options_are_checked(method):
    study = samples.study(method=method)
    search = dataclasses.replace(study.search, options={"multivariat": True})
    with pytest.raises(ConfigError, match="multivariat"):
        make_sampler(dataclasses.replace(study, search=search))


def test_an_option_must_have_its_type():
    with pytest.raises(ConfigError, match="must be bool"):
        via_optuna.build(SamplerSpec(contract_space(), 0, {"multivariate": "yes"}))


def test_a_method_is_registered_once(monkeypatch):
    monkeypatch.setattr("hpo.search.methods.METHODS", dict(METHODS))
    register_sampler("mine", random_search.build)
    assert not make_sampler(samples.study(method="mine")).adaptive
    with pytest.raises(ConfigError, match="registered already"):
        register_sampler("mine", random_search.build)


# ---------------------------------------------------------------- what Optuna sees


def past(trial, state, loss=None, reports=()):
    params = contract_space().default()
    return Past(trial, params, {}, state, loss, reports)


def test_the_history_a_sampler_sees_is_bounded():
    history = [past(n, TrialState.FINISHED, float(n % 500)) for n in range(2000)]
    history += [past(n, TrialState.RUNNING) for n in range(2000, 2020)]
    seen = via_optuna.bounded(history)
    numbers = [entry.trial for entry in seen]
    assert len(seen) == 1020 and numbers == sorted(numbers)
    assert set(range(1200, 2020)) <= set(numbers)
    older = [entry for entry in seen if entry.trial < 1200]
    # Of the trials 0 .. 1199 the best 200: losses 0 .. 66 three times (0-199 twice and a third).
    best = sorted(history[:1200], key=lambda entry: (entry.loss, entry.trial))[:200]
    assert sorted(older, key=lambda entry: entry.trial) == sorted(best, key=lambda e: e.trial)


def test_a_short_history_is_seen_whole():
    history = [past(n, TrialState.STOPPED, None, (1.0,)) for n in range(1000)]
    assert via_optuna.bounded(history) == history


def test_states_in_optunas_words():
    space = contract_space()

    def told(state, loss=None, reports=()):
        trial = via_optuna.frozen_trial(space, past(3, state, loss, reports))
        return trial.state, trial.value, trial.intermediate_values

    assert told(TrialState.WAITING) == (OptunaState.RUNNING, None, {})
    assert told(TrialState.RUNNING, None, (5.0,)) == (OptunaState.RUNNING, None, {})
    assert told(TrialState.FINISHED, 2.0, (5.0,)) == (OptunaState.COMPLETE, 2.0, {0: 5.0})
    assert told(TrialState.STOPPED, None, (5.0, 4.0)) == (
        OptunaState.PRUNED,
        None,
        {0: 5.0, 1: 4.0},
    )
    assert told(TrialState.UNFINISHED, None, (5.0,)) == (OptunaState.PRUNED, None, {0: 5.0})
    assert told(TrialState.DIVERGED, None, (5.0,)) == (OptunaState.PRUNED, None, {})
    assert told(TrialState.FAILED, None, (5.0,)) == (OptunaState.FAIL, None, {})


def corner(trial, share, state, loss=None):
    """A trial whose learning rate lies at `share` of the axis."""
    space = samples.study().space
    rate = 10 ** (-5 + 5 * share)
    return Past(trial, space.complete({"learning_rate": rate}), {}, state, loss)


def test_tpe_moves_towards_good_trials_and_away_from_diverged_ones():
    space: Space = samples.study().space
    history = [
        corner(n, (n % 10) / 10, TrialState.FINISHED, abs((n % 10) / 10 - 0.3)) for n in range(40)
    ]
    rates = [
        entry.params["learning_rate"]
        for entry in drawn(via_optuna.build(SamplerSpec(space, 0, {})), 1, 20, history)
    ]
    near = sum(10**-4.25 < rate < 10**-2.75 for rate in rates)  # shares 0.15 to 0.45
    assert near >= 10  # random search would put 6 of them there
    wild = [
        corner(
            n,
            n / 40,
            TrialState.DIVERGED if n >= 20 else TrialState.FINISHED,
            1.0 if n < 20 else None,
        )
        for n in range(40)
    ]
    rates = [
        entry.params["learning_rate"]
        for entry in drawn(via_optuna.build(SamplerSpec(space, 0, {})), 1, 20, wild)
    ]
    assert sum(rate > 10**-2.5 for rate in rates) <= 5


def test_tpe_spreads_out_around_running_trials():
    space = samples.study().space
    history = [
        corner(n, (n % 10) / 10, TrialState.FINISHED, abs((n % 10) / 10 - 0.3)) for n in range(40)
    ]

    def spread(options):
        found = drawn(via_optuna.build(SamplerSpec(space, 1, options)), 1, 30, history)
        return len({round(entry.params["gamma"], 3) for entry in found})

    assert spread({}) >= spread({"constant_liar": False})


def test_every_optuna_option_exists_in_optuna():
    known = inspect.signature(via_optuna.TPESampler.__init__).parameters
    assert set(via_optuna._TPE_OPTIONS) <= set(known)


def test_study_files_know_the_same_methods_and_options():
    assert set(FIELDS) <= set(METHODS)
    for method, fields in FIELDS.items():
        options = {field.key: field.default for field in fields}
        METHODS[method](SamplerSpec(contract_space(), 0, options))
    assert {field.key: field.default for field in FIELDS["tpe"]} == via_optuna._TPE_OPTIONS
