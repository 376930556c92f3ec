"""The names a study may optimise, in one table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ..env_entry import EnvEntry
from ..errors import suggestion

__all__ = ["COSTS", "METRICS", "metric_fault"]

_OWN = re.compile(r"eval/[A-Za-z0-9_]{1,100}")
_SHARE = re.compile(r"eval/(path|hops)_[0-9]{1,3}_share")  # where `histograms` is on
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

COSTS: Mapping[str, str] = {
    "env_steps": "training env steps of a trial, all replicates; an objective after the first",
    "seconds": "its share of the running time of chunks; not reproducible; likewise",
}
"""What a trial cost, as objectives or constraints: name -> meaning."""


_RETURN = frozenset({
    "reward", "rewards", "return", "returns", "score", "episode_return", "mean_reward",
    "mean_return", "ep_rew_mean", "rollout/ep_rew_mean", "eval/mean_reward", "episode_reward_mean",
    "episodic_return", "charts/episodic_return",
})  # fmt: skip
"""What other systems call the mean of episodes' sums of rewards."""


def metric_fault(name: str, env: EnvEntry | None) -> str | None:
    """Return why a metric cannot be optimised, or None.

    Environments of other libraries and of user code bring metrics of their own, as `eval/<name>`;
    those of the table say which.

    >>> metric_fault("eval/return_maen", None)
    >>> metric_fault("return_mean", None)
    "unknown metric 'return_mean'; did you mean 'eval/return_mean'? Known: eval/return_mean, ..."
    >>> metric_fault("reward", None)
    "unknown metric 'reward'; did you mean 'eval/return_mean'? Known: eval/return_mean, ..."
    """
    if name in METRICS:
        return None
    if env is None:
        if _OWN.fullmatch(name):
            return None
        known = "eval/return_mean, ..."
        return f"unknown metric {name!r};{_meant(name, METRICS)} Known: {known}"
    names = [*METRICS, *(f"eval/{own}" for own in env.metrics)]
    if name in names or (env.source == "optical" and _SHARE.fullmatch(name)):
        return None
    return f"unknown metric {name!r};{_meant(name, names)} Known: {', '.join(names)}"


def _meant(name: str, known: Iterable[str]) -> str:
    return suggestion("eval/return_mean" if name.lower() in _RETURN else name, known)
