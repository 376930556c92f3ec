import numpy as np
import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import strategies
from hpo.errors import ConfigError
from hpo.spaces import Condition, Parameter, Space, make_distribution
from hpo.spaces.via_optuna import from_internal, internal_params, suggest


@pytest.fixture(autouse=True)
def quiet():
    optuna.logging.set_verbosity(optuna.logging.ERROR)


def draw(space, seed):
    try:
        return space.sample(np.random.default_rng(seed))
    except ConfigError:
        return space.draw(np.random.default_rng(seed))


@settings(deadline=None)
@given(strategies.spaces(), st.integers(0, 2**32 - 1))
def test_internal_params_invert_suggest_exactly(space, seed):
    params = draw(space, seed)
    positions, spread = internal_params(space, params)
    trial = optuna.trial.FixedTrial(positions)
    again = suggest(trial, space)
    assert again == params
    assert {name: type(value) for name, value in again.items()} == {
        name: type(value) for name, value in params.items()
    }
    assert from_internal(space, positions) == params
    # Twice there and back moves nothing either, so a rebuilt study is the same to the last bit.
    assert internal_params(space, again)[0] == positions
    assert spread == trial.distributions


@settings(deadline=None)
@given(strategies.spaces(), st.integers(0, 2**32 - 1))
def test_optuna_trial_round_trips_parameters(space, seed):
    params = draw(space, seed)
    positions, spread = internal_params(space, params)
    trial = optuna.trial.create_trial(params=positions, distributions=spread, value=1.0)
    study = optuna.create_study()
    study.add_trial(trial)
    assert from_internal(space, study.trials[0].params) == params


@settings(max_examples=30, deadline=None)
@given(strategies.spaces(), st.integers(0, 1000))
def test_optuna_suggestions_are_contained(space, seed):
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed))
    free = Space(space.parameters)
    for _ in range(5):
        trial = study.ask()
        params = suggest(trial, free)
        assert free.why_not(params) == []
        positions, _ = internal_params(free, params)
        assert from_internal(free, positions) == from_internal(free, trial.params) == params


def kinds():
    fields = {
        "uniform": {"min": 0.0, "max": 1.0},
        "zero": {"min": 1e-4, "max": 0.1, "zero": 0.2, "distribution": "log_uniform"},
        "gamma": {"min": 0.9, "max": 0.9999, "distribution": "one_minus_log"},
        "pow2": {"min": 16, "max": 256, "distribution": "pow2"},
        "step": {"min": 0.0, "max": 1.0, "q": 0.1},
        "epochs": {"min": 1, "max": 20, "distribution": "log_int_uniform"},
        "logit": {"min": 0.01, "max": 0.99, "distribution": "logit"},
        "normal": {"mu": 0.0, "sigma": 1.0},
        "choice": {"values": ["a", "b"]},
        "ordinal": {"values": [1, 3, 9], "distribution": "ordinal"},
        "child": {"values": [[64], [64, 64]]},
    }
    parameters = []
    for name, given_fields in fields.items():
        distribution = make_distribution(given_fields)
        when = (Condition("choice", ("b",)),) if name == "child" else ()
        parameters.append(Parameter(name, distribution, distribution.middle(), when))
    return Space(tuple(parameters))


SAMPLERS = {
    "tpe": lambda: optuna.samplers.TPESampler(seed=0, n_startup_trials=3),
    "random": lambda: optuna.samplers.RandomSampler(seed=0),
    "sobol": lambda: optuna.samplers.QMCSampler(
        seed=0, qmc_type="sobol", warn_independent_sampling=False, warn_asynchronous_seeding=False
    ),
}


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
@pytest.mark.parametrize("name", SAMPLERS)
def test_samplers_propose_legal_configurations_of_every_kind(name):
    space = kinds()
    study = optuna.create_study(sampler=SAMPLERS[name]())
    for number in range(24):
        trial = study.ask()
        params = suggest(trial, space)
        assert space.why_not(params) == []
        assert ("child" in params) == (params["choice"] == "b")
        study.tell(trial, float(number % 5))


def test_optuna_random_sampler_respects_zero_probability():
    space = kinds()
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    zeros = sum(suggest(study.ask(), space)["zero"] == 0 for _ in range(600))
    assert zeros / 600 == pytest.approx(0.2, abs=0.05)
