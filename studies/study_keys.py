"""The keys of study files by section, the options of loggers, and the names of metrics."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ..environments.table import EnvEntry
from ..errors import suggestion
from .field import Field, count, flag, keys_of
from .spec import Study
from .stopping_rules import rule_fields

DRIVEN_KEYS = ("scheduler", "searcher", "scheduler_options", "searcher_options")
"""Keys of `search` that only the driver `ray_tune` has."""
SEARCHER_KEYS = ("method", "portfolio", "random_share", "options", "warm_start", "ahead")
"""Keys of `search` that only the driver `lanes` has."""
EXECUTOR_KEYS: Mapping[str, tuple[str, ...]] = {
    "local": ("type", "workers"),
    "ray": ("type", "workers", "address", "cpus"),
    "slurm": ("type", "partition", "time", "options", "setup", "poll"),
}
"""Type of `executor` -> its keys."""

_FOLLOWING = (
    count("top_k", 10, "number of best trials to follow", 0, high=10_000),
    count("every", 1, "number of curve rows averaged into one point", 1, high=1e6),
)
_NAME = Field("name", "text", None, "name of the study's run; null: the study's name", off=True)
_POLICY = flag("policy", True, "log the winner's policy as an artifact")
LOGGERS: Mapping[str, tuple[Field, ...]] = {
    "console": (),
    "csv": (),
    "tensorboard": _FOLLOWING,
    "wandb": (
        *_FOLLOWING,
        Field(
            "mode",
            "word",
            "online",
            "offline needs neither network nor account",
            words=("online", "offline"),
        ),
        Field("project", "text", "hpo", "project of the runs"),
        Field("entity", "text", None, "user or team; null: the account's default", off=True),
        _NAME,
        Field("group", "text", None, "group of all runs; null: same as name", off=True),
        _POLICY,
    ),
    "mlflow": (
        *_FOLLOWING,
        Field("experiment", "text", "hpo", "experiment of the runs"),
        Field(
            "uri",
            "text",
            None,
            "tracking server or database; null: `MLFLOW_TRACKING_URI`, "
            "else `mlflow.db` in the study's folder",
            off=True,
        ),
        _NAME,
        _POLICY,
    ),
}
"""Logger type -> its options."""

SECTIONS: Mapping[str, tuple[Field, ...]] = {
    field.key: rule_fields() if field.key == "early_terminate" else keys_of(field.section)
    for field in keys_of(Study)
    if field.section is not None or field.key == "early_terminate"
}
TOP = keys_of(Study)

_OWN = re.compile(r"eval/[A-Za-z0-9_]{1,100}")
_SHARE = re.compile(r"eval/(path|hops)_[0-9]{1,3}_share")  # with `histograms` on
_STATISTICS = {
    "mean": "mean", "median": "median", "min": "smallest", "max": "largest",
    "std": "standard deviation",
}  # fmt: skip
_QUANTITIES = {
    "return": "episode returns (undiscounted, unscaled)",
    "length": "episode lengths (env steps)",
}

METRICS: Mapping[str, str] = {
    f"eval/{quantity}_{statistic}": f"{word} of an evaluation's {meaning}"
    for quantity, meaning in _QUANTITIES.items()
    for statistic, word in _STATISTICS.items()
}
"""Metrics that every environment has: name -> meaning."""

COSTS: Mapping[str, str] = {
    "env_steps": "training env steps of a trial over all seeds; cannot be the first objective",
    "seconds": (
        "a trial's share of the training time in seconds; not reproducible, and cannot be the "
        "first objective"
    ),
}
"""Costs of a trial, as objectives or constraints: name -> meaning."""


_RETURN = frozenset({
    "reward", "rewards", "return", "returns", "score", "episode_return", "mean_reward",
    "mean_return", "ep_rew_mean", "rollout/ep_rew_mean", "eval/mean_reward", "episode_reward_mean",
    "episodic_return", "charts/episodic_return",
})  # fmt: skip
"""Other systems' names for the mean return of episodes."""


def metric_fault(name: str, env: EnvEntry | None) -> str | None:
    """Return why a metric cannot be optimised, or None.

    Unknown environments may have any `eval/<name>`; known ones list their metrics.

    >>> metric_fault("eval/return_maen", None)
    >>> metric_fault("return_mean", None)
    "unknown metric 'return_mean'; did you mean 'eval/return_mean'? Known: eval/return_mean, ..."
    >>> metric_fault("mse", None)
    "unknown metric 'mse'; did you mean 'eval/mse'? Known: eval/return_mean, ..."
    """
    if name in METRICS or (env is None and _OWN.fullmatch(name)):
        return None
    if env is None:
        meant = _suggest_metric(name, METRICS)
        if not meant and _OWN.fullmatch(f"eval/{name}"):
            meant = f" did you mean 'eval/{name}'?"
        return f"unknown metric {name!r};{meant} Known: eval/return_mean, ..."
    names = [*METRICS, *(f"eval/{own}" for own in env.metrics)]
    if name in names or (env.source == "optical" and _SHARE.fullmatch(name)):
        return None
    return f"unknown metric {name!r};{_suggest_metric(name, names)} Known: {', '.join(names)}"


def _suggest_metric(name: str, known: Iterable[str]) -> str:
    if name.lower() in _RETURN:
        name = "eval/return_mean"
    return suggestion(name, known)
