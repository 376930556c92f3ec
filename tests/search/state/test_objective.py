import math

import numpy as np
import pytest

from hpo.errors import UnknownNameError
from hpo.search.lanes.contract import EvaluationResult
from hpo.search.state.objective import Objective, measure, measures
from hpo.studies.spec import Metric
from hpo.studies.study_keys import METRICS

RESULT = EvaluationResult(
    returns=np.array([1.0, 2.0, 6.0]),
    lengths=np.array([10, 20, 60]),
    metrics={"service_blocking": np.array([0.25, 0.75])},
)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("eval/return_mean", 3.0),
        ("eval/return_median", 2.0),
        ("eval/return_min", 1.0),
        ("eval/return_max", 6.0),
        ("eval/return_std", math.sqrt(14 / 3)),
        ("eval/length_mean", 30.0),
        ("eval/service_blocking", 0.5),
    ],
)
def test_metrics(name, value):
    assert measure(name, RESULT) == pytest.approx(value)


def test_every_metric_a_study_may_name_can_be_measured():
    assert all(math.isfinite(measure(name, RESULT)) for name in METRICS)


def test_an_unknown_metric_is_refused():
    with pytest.raises(UnknownNameError, match="did you mean 'eval/service_blocking'"):
        measure("eval/service_bloking", RESULT)


def test_losses_are_lower_for_better_values_and_worst_for_none():
    up, down = Objective(Metric(goal="maximize")), Objective(Metric(goal="minimize"))
    assert up.loss(2.0) == -2.0 and down.loss(2.0) == 2.0
    assert up.loss(math.nan) == down.loss(math.nan) == up.loss(-math.inf) == math.inf


@pytest.mark.parametrize("episodes", [1, 2, 3, 8, 9, 32, 129, 300])
def test_many_evaluations_at_once_have_the_bits_of_each_alone(episodes):
    rng, count = np.random.default_rng(episodes), 40
    spread = 10.0 ** rng.normal(size=(count, 2, episodes))
    several = rng.normal(size=(count, 2, episodes)) * spread
    lengths = rng.integers(1, 2**40, (count, episodes))
    together = EvaluationResult(several[:, 0], lengths, {"blocking": several[:, 1]})
    for name in (*METRICS, "eval/blocking"):
        each = [
            measure(name, EvaluationResult(rows[0].copy(), own, {"blocking": rows[1].copy()}))
            for rows, own in zip(several, lengths, strict=True)
        ]
        assert measures(name, together).tolist() == each
