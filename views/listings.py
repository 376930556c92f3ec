"""Tables of studies, knobs, environments and rows of a query, as text or data."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ..elsewhere import names_of
from ..env_entry import EnvEntry
from ..environments import ENVIRONMENTS
from ..knobs import KNOBS, Knob, allowed
from ..store.codec import finite_json
from ..store.study_folder import StudySummary
from .formatting import Listing, duration, number, param

__all__ = [
    "envs_data",
    "envs_listing",
    "knobs_data",
    "knobs_listing",
    "studies_listing",
]


def studies_listing(studies: Sequence[StudySummary], now: float | None = None) -> Listing:
    """Return one line a study."""
    now = time.time() if now is None else now
    rows = [
        [
            study.name,
            study.state,
            f"{study.done} of {study.trials}",
            number(study.best),
            study.metric,
            _ago(now, study.updated_at),
        ]
        for study in studies
    ]
    header = ("study", "state", "ended", "best", "metric", "changed")
    return Listing(header, rows, (False, False, True, True, False, True))


def knobs_listing(knobs: Iterable[Knob] = tuple(KNOBS.values())) -> Listing:
    """Return one line a knob: default, traced or static, meaning, allowed values."""
    rows = [
        [
            knob.name,
            _default(knob.default),
            "traced" if knob.traced else "static",
            knob.meaning,
            allowed(knob.name),
        ]
        for knob in knobs
    ]
    return Listing(("knob", "default", "kind", "meaning", "allowed"), rows, [False] * 5, 3)


def knobs_data(knobs: Iterable[Knob] = tuple(KNOBS.values())) -> list[dict[str, Any]]:
    """Return the table of knobs as JSON data; a missing bound is null, infinity a string."""
    found: list[dict[str, Any]] = []
    for knob in knobs:
        data = asdict(knob)
        low, high = data["low"], data["high"]
        data["low"] = low if low > -float("inf") else None
        data["high"] = high if high < float("inf") else None
        words = {"allowed": allowed(knob.name), "aliases": list(names_of(knob.name))}
        found.append(finite_json({**data, **words}))
    return found


def envs_listing(envs: Iterable[EnvEntry] = tuple(ENVIRONMENTS.values())) -> Listing:
    """Return one line an environment."""
    rows = [[env.id, env.source, env.actions, env.meaning, _listed(env.params)] for env in envs]
    header = ("environment", "source", "actions", "meaning", "parameters (env.<name>)")
    return Listing(header, rows, [False] * 5, 3)


def envs_data(envs: Iterable[EnvEntry] = tuple(ENVIRONMENTS.values())) -> list[dict[str, Any]]:
    """Return the table of environments as JSON data."""
    return [finite_json(asdict(env)) for env in envs]


def _ago(now: float, then: float | None) -> str:
    return "" if then is None else f"{duration(max(0.0, now - then))} ago"


def _default(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else param(value)


def _listed(params: Mapping[str, float]) -> str:
    names = list(params)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
