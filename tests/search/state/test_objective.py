import math

import numpy as np
import pytest

from hpo.errors import UnknownNameError
from hpo.search.lanes.contract import EvaluationResult
from hpo.search.state.objective import Objective, measure
from hpo.studies.search_spec import Metric
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


def test_loss_is_lower_for_better_values_and_infinite_for_nan():
    up, down = Objective(Metric(goal="maximize")), Objective(Metric(goal="minimize"))
    assert up.loss(2.0) == -2.0 and down.loss(2.0) == 2.0
    assert up.loss(math.nan) == down.loss(math.nan) == up.loss(-math.inf) == math.inf
