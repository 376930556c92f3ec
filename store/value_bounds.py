"""The range of a study's metric, if the table of environments has it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, cast

import yaml

from ..environments.registry import find
from .comparison import Bounds
from .rows import StudyMeta

RETURN = "eval/return_mean"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def value_bounds(meta: StudyMeta) -> Bounds:
    """Return the bounds of a study's metric; infinite if unknown."""
    return _of_text(meta.study_text, True) if meta.metric == RETURN else Bounds()


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
def _of_text(study_text: str, evaluated: bool) -> Bounds:
    loaded: Any = yaml.load(study_text, _LOADER)
    study = cast("dict[str, Any]", loaded) if isinstance(loaded, dict) else {}
    env: dict[str, Any] | list[Any] | None = study.get("env")
    if not isinstance(env, dict):
        return Bounds()  # several environments
    held_out: dict[str, Any] = (study.get("eval_env") or {}) if evaluated else {}
    return bounds_in(str(env.get("id")), {**env, **held_out}, study.get("space") or {})
