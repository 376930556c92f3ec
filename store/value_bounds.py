"""The range of a study's metrics, if the environment table contains it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

import yaml

from ..environments.registry import find
from .aggregate_environments import together
from .rows import StudyMeta
from .unobserved import UNBOUNDED, Bounds

RETURN = "eval/return_mean"
_RATES = ("eval/service_blocking_probability", "eval/bitrate_blocking_probability")
# Intervals and verdicts use that a rate is at least 0. They do not use that it is at most 1: with
# total blocking as the worst unseen outcome, two rates of a few per cent could never be
# distinguished.
RATE = Bounds(low=0.0)
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def value_bounds(meta: StudyMeta) -> Bounds:
    """Return the bounds of a study's values; infinite if unknown."""
    return metric_bounds(meta, meta.metric)


def metric_bounds(meta: StudyMeta, metric: str) -> Bounds:
    """Return the bounds of the study's metric or another objective; infinite if unknown."""
    study = _load_mapping(meta.study_text)
    if meta.environments and metric != meta.metric:
        return UNBOUNDED
    if meta.environments:
        return range_over(score_bounds(meta), str(study.get("over_environments") or "mean"))
    env = study.get("env")
    if not isinstance(env, dict):
        return UNBOUNDED
    held_out: dict[str, Any] = study.get("eval_env") or {}
    given = {**cast("dict[str, Any]", env), **held_out}
    return metric_range(metric, given, study.get("space") or {})


def score_bounds(meta: StudyMeta) -> tuple[Bounds, ...]:
    """Return the bounds of scores on each of several environments; () if unknown."""
    study = _load_mapping(meta.study_text)
    listed: Any = study.get("env")
    metric: dict[str, Any] = study.get("metric") or {}
    if not isinstance(listed, list):
        return ()
    envs = cast("list[dict[str, Any]]", listed)
    if len(envs) != len(meta.environments):
        return ()
    found = list[Bounds]()
    for env, scale in zip(envs, meta.environments, strict=True):
        own = metric_range(str(metric.get("name", RETURN)), env, study.get("space") or {})
        found.append(score_range(own, float(scale["random"]), float(scale["reference"])))
    return tuple(found)


def metric_range(metric: str, env: Mapping[str, Any], searched: Iterable[str] = ()) -> Bounds:
    """Return a metric's bounds in an environment, given by its id and its settings."""
    if metric in _RATES:
        return RATE
    if metric != RETURN:
        return UNBOUNDED
    return bounds_in(str(env.get("id")), env, searched)


def score_range(own: Bounds, random: float, reference: float) -> Bounds:
    """Return bounds on the scale where 0 is random actions and 1 is the reference.

    >>> score_range(Bounds(0.0, 500.0), 20.0, 500.0).high
    1.0
    """
    ends = sorted((end - random) / (reference - random) for end in (own.low, own.high))
    return Bounds(*ends)


def range_over(scores: Sequence[Bounds], over: str) -> Bounds:
    """Return the bounds of scores that are aggregated over environments.

    >>> range_over([Bounds(0.0, 1.0), Bounds(-1.0, 2.0)], "mean")
    Bounds(low=-0.5, high=1.5)
    """
    if not scores:
        return UNBOUNDED
    low = together([one.low for one in scores], over)
    return Bounds(low, together([one.high for one in scores], over))


def return_bounds(meta: StudyMeta) -> Bounds:
    """Return the bounds of episode returns in training; infinite if unknown."""
    study = _load_mapping(meta.study_text)
    env = study.get("env")
    if not isinstance(env, dict):  # several environments
        return UNBOUNDED
    return metric_range(RETURN, cast("dict[str, Any]", env), study.get("space") or {})


def bounds_in(env: str, given: Mapping[str, Any], searched: Iterable[str]) -> Bounds:
    """Return the bounds of returns in one environment with these settings; infinite if unknown."""
    if (known := find(env)) is None:  # only imported code defines it
        return Bounds()
    unknown = {name[4:]: None for name in searched if name.startswith("env.")}
    return Bounds(*known.return_range({**given, **unknown}))


@lru_cache(maxsize=64)
def _load_mapping(study_text: str) -> dict[str, Any]:
    loaded: Any = yaml.load(study_text, _LOADER)
    if not isinstance(loaded, dict):
        return {}
    return cast("dict[str, Any]", loaded)
