"""Our PED-ANOVA beside Optuna's, which is the slow reference."""

import random
import warnings

import optuna
import pytest

from hpo.search.analysis.knob_importance import ped_anova
from hpo.spaces import Condition, Parameter, Space, make_distribution
from hpo.spaces.via_optuna import internal_params

pytestmark = pytest.mark.skipif(
    int(optuna.__version__.split(".")[0]) < 5, reason="its conditional form is of Optuna 5"
)


def parameter(name, when=(), **fields):
    distribution = make_distribution(fields)
    return Parameter(name, distribution, distribution.middle(), when)


SPACE = Space(
    (
        parameter("learning_rate", min=1e-5, max=1e-2, distribution="log_uniform"),
        parameter("gamma", min=0.8, max=0.9999, distribution="one_minus_log"),
        parameter("clip_eps", min=0.1, max=0.4),
        parameter("update_epochs", min=1, max=10, distribution="int_uniform"),
        parameter("num_envs", min=4, max=512, distribution="log_int_uniform"),
        parameter("activation", values=["tanh", "relu", "silu"]),
        parameter("layer_norm", values=[False, True]),
        parameter("ent_coef", (Condition("layer_norm", (True,)),), min=0.0, max=0.1),
        parameter("vf_coef", (Condition("activation", ("silu",)),), min=0.5, max=0.50001),
        parameter("max_grad_norm", (Condition("activation", ("tanh",)),), min=0.2, max=2.0),
        parameter("max_grad_norm", (Condition("activation", ("relu",)),), values=[0.5, None]),
    )
)


def by_optuna(space, params, values, goal):
    study = optuna.create_study(direction=goal)
    for config, value in zip(params, values, strict=True):
        positions, spread = internal_params(space, config)
        study.add_trial(
            optuna.trial.create_trial(params=positions, distributions=spread, value=value)
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return optuna.importance.PedAnovaImportanceEvaluator().evaluate(study)


@pytest.mark.parametrize("goal", ["maximize", "minimize"])
@pytest.mark.parametrize("trials", [2, 3, 10, 37, 300])
@pytest.mark.parametrize("kind", ["decided", "noise", "tied", "gathered"])
def test_the_numbers_are_those_of_optuna(goal, trials, kind):
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    rng = random.Random(f"{goal}{trials}{kind}")
    params = [SPACE.sample(rng) for _ in range(trials)]
    if kind == "gathered":  # as a model's proposals are
        params = [params[min(n, rng.randrange(1 + trials // 8))] for n in range(trials)]
    values = [
        {"decided": config["clip_eps"] + 0.1 * config.get("ent_coef", -0.1),
         "gathered": -abs(config["update_epochs"] - 4.0) + 0.1 * rng.random(),
         "noise": rng.gauss(0.0, 1.0), "tied": float(n % 3 == 0)}[kind]
        for n, config in enumerate(params)
    ]  # fmt: skip
    ours, theirs = (f(SPACE, params, values, goal) for f in (ped_anova, by_optuna))
    assert set(theirs) <= set(ours)
    for key, share in ours.items():
        assert share == pytest.approx(theirs.get(key, 0.0), rel=1e-9, abs=1e-12), key
    assert kind != "decided" or trials < 300 or max(ours, key=ours.get) == "clip_eps"
