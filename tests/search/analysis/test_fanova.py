"""Our fANOVA beside Optuna's, which is the slow reference."""

import random
import warnings

import optuna
import pytest

from helpers.loading import run_file
from hpo.search.analysis.knob_importance import fanova
from hpo.spaces.via_optuna import internal_params

pytest.importorskip("sklearn", reason="the extra fanova")

SPACE = run_file("tests/search/analysis/test_ped_anova.py").SPACE


def by_optuna(space, params, values):
    study = optuna.create_study(direction="maximize")
    for config, value in zip(params, values, strict=True):
        positions, spread = internal_params(space, config)
        study.add_trial(
            optuna.trial.create_trial(params=positions, distributions=spread, value=value)
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return optuna.importance.FanovaImportanceEvaluator(seed=0).evaluate(study)


def sampled(trials, seed=0):
    rng = random.Random(seed)
    return rng, [SPACE.sample(rng) for _ in range(trials)]


@pytest.mark.parametrize("trials", [10, 40])
@pytest.mark.parametrize("kind", ["decided", "noise", "choice", "gathered"])
def test_the_numbers_are_those_of_optuna(trials, kind):
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    rng, params = sampled(trials, f"{trials}{kind}")
    if kind == "gathered":  # as a model's proposals are
        params = [params[min(n, rng.randrange(1 + trials // 4))] for n in range(trials)]
    kinds = {"tanh": 0.0, "relu": 1.0, "silu": 3.0}
    values = [
        {"decided": config["clip_eps"] + 0.1 * config.get("ent_coef", -0.1),
         "gathered": -abs(config["update_epochs"] - 4.0) + 0.1 * rng.random(),
         "noise": rng.gauss(0.0, 1.0), "choice": kinds[config["activation"]]}[kind]
        for config in params
    ]  # fmt: skip
    ours, theirs = (f(SPACE, params, values) for f in (fanova, by_optuna))
    assert set(theirs) <= set(ours)
    for key, share in ours.items():
        assert share == pytest.approx(theirs.get(key, 0.0), rel=1e-9, abs=1e-12), key
    first = {"decided": "clip_eps", "choice": "activation"}.get(kind)
    assert first is None or trials < 40 or max(ours, key=ours.get) == first


def test_a_study_of_equal_values_has_decided_nothing():
    """Optuna raises, or takes what rounding leaves of each tree for its variance."""
    assert set(fanova(SPACE, sampled(12)[1], [500.1] * 12).values()) == {0.0}


def test_what_knobs_explain_alone_is_never_more_than_all():
    """Three trials: some trees see one of them alone, of whose rounding Optuna makes 135 %."""
    rng, params = sampled(3, "3noise")
    shares = fanova(SPACE, params, [rng.gauss(0.0, 1.0) for _ in params]).values()
    assert 0.0 < sum(shares) <= 1.0 + 1e-9


def test_knobs_that_some_trials_lack_get_nothing():
    only = type(SPACE)(SPACE.parameters[5:])
    _, params = sampled(12)
    found = fanova(only, params, [float(n) for n in range(12)])
    assert {key for key, share in found.items() if share} <= {"activation", "layer_norm"}
