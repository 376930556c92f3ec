"""What is optimised: from one lane's evaluation to a number, from replicates to a trial's value.

Samplers, pruners and rankings inside the loop see losses (lower is better); rows keep values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import UnknownNameError
from ..store.statistics import aggregate
from ..studies.spec import Metric
from .population import EvaluationResult

__all__ = ["Objective", "measure"]

_PREFIX = "eval/"
_STATISTICS: Mapping[str, Callable[[np.ndarray], float]] = {
    "mean": lambda values: float(np.mean(values)),
    "median": lambda values: float(np.median(values)),
    "min": lambda values: float(np.min(values)),
    "max": lambda values: float(np.max(values)),
    "std": lambda values: float(np.std(values)),
}


def measure(name: str, result: EvaluationResult) -> float:
    """Give the metric `name` of one evaluation.

    `eval/return_mean` and its like (`median`, `min`, `max`, `std`; `return` or `length`) are over
    episodes; any other `eval/<name>` is the mean of the environment's own metric of that name.

    Raises:
        UnknownNameError: the evaluation has no such metric.
    """
    key = name.removeprefix(_PREFIX)
    quantity, _, statistic = key.rpartition("_")
    if quantity in ("return", "length") and statistic in _STATISTICS:
        values = result.returns if quantity == "return" else result.lengths
        return _STATISTICS[statistic](np.asarray(values, dtype=np.float64))
    if name.startswith(_PREFIX) and key in result.metrics:
        return float(np.mean(result.metrics[key]))
    known = [
        f"{_PREFIX}{quantity}_{statistic}"
        for quantity in ("return", "length")
        for statistic in _STATISTICS
    ]
    raise UnknownNameError("metric", name, known + [f"{_PREFIX}{key}" for key in result.metrics])


@dataclass(frozen=True)
class Objective:
    """The metric of a study.

    >>> Objective(Metric(goal="maximize", aggregate="min")).aggregate([2.0, 1.0])
    1.0
    """

    metric: Metric

    def measure(self, result: EvaluationResult) -> float:
        """Give the metric of one evaluation."""
        return measure(self.metric.name, result)

    def aggregate(self, values: Sequence[float]) -> float:
        """Give a trial's value from its replicates' values."""
        return aggregate(values, self.metric.aggregate)

    def loss(self, value: float) -> float:
        """Turn a value into a loss, or back: lower is better; what is not finite is worst."""
        if not math.isfinite(value):
            return math.inf
        return -value if self.metric.goal == "maximize" else value
