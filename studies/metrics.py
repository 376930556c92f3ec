"""The names a study may optimise, in one table."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..environments import EnvEntry
from ..errors import suggestion

__all__ = ["METRICS", "metric_fault"]

_OWN = re.compile(r"eval/[A-Za-z0-9_]{1,100}")
_STATISTICS = {
    "mean": "mean",
    "median": "median",
    "min": "smallest",
    "max": "largest",
    "std": "standard deviation",
}
_QUANTITIES = {
    "return": "undiscounted, unscaled returns",
    "length": "lengths in env steps",
}

METRICS: Mapping[str, str] = {
    f"eval/{quantity}_{statistic}": f"{word} of the {meaning} of an evaluation's episodes"
    for quantity, meaning in _QUANTITIES.items()
    for statistic, word in _STATISTICS.items()
}
"""Metrics that every environment has: name -> meaning."""


def metric_fault(name: str, env: EnvEntry | None) -> str | None:
    """Say why a metric cannot be optimised, or None.

    Environments of other libraries and of user code bring metrics of their own, as `eval/<name>`;
    what gymnax has brings none.

    >>> metric_fault("eval/return_maen", None)
    >>> metric_fault("return_mean", None)
    "unknown metric 'return_mean'; did you mean 'eval/return_mean'? Known: eval/return_mean, ..."
    """
    if name in METRICS:
        return None
    if (env is None or env.source != "gymnax") and _OWN.fullmatch(name):
        return None
    known = ", ".join(METRICS) if env is not None else "eval/return_mean, ..."
    return f"unknown metric {name!r};{suggestion(name, METRICS)} Known: {known}"
