"""The range of a study's metrics, if the table of environments has it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, cast

import yaml

from ..environments.registry import find
from .aggregate_environments import together
from .comparison import UNBOUNDED, Bounds
from .rows import StudyMeta

RETURN = "eval/return_mean"
_RATES = ("eval/service_blocking_probability", "eval/bitrate_blocking_probability")
# Intervals and verdicts use that a rate is at least 0. At 1 no network would serve anything: with
# that as the worst unseen outcome, no two rates of a few per cent could ever be told apart.
RATE = Bounds(low=0.0)
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def value_bounds(meta: StudyMeta) -> Bounds:
    """Return the bounds of a study's values; infinite if unknown."""
    if not meta.environments:
        return metric_bounds(meta, meta.metric)
    ends = score_bounds(meta)
    if not ends:
        return UNBOUNDED
    over = str(_loaded(meta.study_text).get("over_environments") or "mean")
    return Bounds(*(together(list(of), over) for of in _columns(ends)))


def metric_bounds(meta: StudyMeta, metric: str) -> Bounds:
    """Return the bounds of one metric in the environment of a study; infinite if unknown."""
    if metric in _RATES:
        return RATE
    return _of_text(meta.study_text, True) if metric == RETURN else UNBOUNDED


def bounds_of(metric: str, env: str, given: Mapping[str, Any]) -> Bounds:
    """Return the bounds of one metric in an environment with these settings."""
    if metric in _RATES:
        return RATE
    return bounds_in(env, given, ()) if metric == RETURN else UNBOUNDED


def score_bounds(meta: StudyMeta) -> tuple[Bounds, ...]:
    """Return the bounds of scores on each of several environments; () if it is none of returns."""
    listed = _loaded(meta.study_text).get("env")
    if not isinstance(listed, list) or len(listed) != len(meta.environments):
        return ()
    space = _loaded(meta.study_text).get("space") or {}
    found = list[Bounds]()
    for env, scale in zip(cast("list[Any]", listed), meta.environments, strict=True):
        own = UNBOUNDED
        if meta.metric in _RATES:
            own = RATE
        elif meta.metric == RETURN:
            keys = {"id": env} if isinstance(env, str) else dict(env)
            own = bounds_in(str(keys.get("id")), keys, space)
        found.append(_as_scores(own, float(scale["random"]), float(scale["reference"])))
    return tuple(found)


def _as_scores(own: Bounds, random: float, reference: float) -> Bounds:
    """Return bounds on the scale where random actions have 0 and the reference has 1."""
    ends = sorted((end - random) / (reference - random) for end in (own.low, own.high))
    return Bounds(*ends)


def _columns(bounds: Iterable[Bounds]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    pairs = [(one.low, one.high) for one in bounds]
    lows, highs = zip(*pairs, strict=True)
    return lows, highs


def return_bounds(meta: StudyMeta) -> Bounds:
    """Return the bounds of episode returns in training; infinite if unknown."""
    return _of_text(meta.study_text, False)


def bounds_in(env: str, given: Mapping[str, Any], searched: Iterable[str]) -> Bounds:
    """Return the bounds of returns in one environment with these settings; infinite if unknown."""
    if (known := find(env)) is None:  # only imported code knows it
        return Bounds()
    unknown = {name[4:]: None for name in searched if name.startswith("env.")}
    return Bounds(*known.return_range({**given, **unknown}))


@lru_cache(maxsize=64)
def _loaded(study_text: str) -> dict[str, Any]:
    loaded: Any = yaml.load(study_text, _LOADER)
    return cast("dict[str, Any]", loaded) if isinstance(loaded, dict) else {}


def _of_text(study_text: str, evaluated: bool) -> Bounds:
    study = _loaded(study_text)
    env: dict[str, Any] | list[Any] | None = study.get("env")
    if not isinstance(env, dict):
        return Bounds()  # several environments
    held_out: dict[str, Any] = (study.get("eval_env") or {}) if evaluated else {}
    return bounds_in(str(env.get("id")), {**env, **held_out}, study.get("space") or {})
