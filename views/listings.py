"""Tables of studies, knobs, environments and rows of a query, as text or data."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from ..environments.table import ENVIRONMENTS, EnvEntry
from ..importers.tables import names_of
from ..knobs import KNOBS, Knob, allowed
from ..store.codec import finite_json
from ..store.study_folder import StudySummary
from .formatting import Listing, duration, number, param


def studies_listing(studies: Sequence[StudySummary], now: float | None = None) -> Listing:
    """Return one line per study."""
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
    """Return one line per hyperparameter: name, default, range, meaning."""
    rows = [[knob.name, _default(knob.default), _range(knob), knob.meaning] for knob in knobs]
    header = ("hyperparameter", "default", "range", "meaning")
    return Listing(header, rows, [False] * 4)


def knob_text(knob: Knob) -> str:
    """Return everything about one hyperparameter, in lines of "what  text"."""
    lines = [
        ("meaning", knob.meaning),
        ("default", _default(knob.default)),
        ("allowed", allowed(knob.name)),
        ("search", "not part of a study by default" if knob.search is None else
         ", ".join(f"{key}: {param(value)}" for key, value in knob.search.items())),
        ("varies", "per lane" if knob.traced else "per compiled program: each value compiles one"),
        ("elsewhere", ", ".join(names_of(knob.name))),
    ]  # fmt: skip
    return "\n".join([knob.name, *(f"  {what:<10}{text}" for what, text in lines if text)])


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
    """Return one line per environment: id, source, actions, meaning."""
    rows = [[env.id, env.source, env.actions, env.meaning] for env in envs]
    return Listing(("environment", "source", "actions", "meaning"), rows, [False] * 4)


def env_text(env: EnvEntry) -> str:
    """Return everything about one environment, in lines of "what  text"."""
    lines = [
        ("meaning", env.meaning),
        ("source", env.source),
        ("actions", env.actions),
        *((f"env.{name}", number(value)) for name, value in env.params.items()),
        *((f"env.{name}", key.meaning) for name, key in env.keys.items()),
        *((f"eval/{name}", meaning) for name, meaning in env.metrics.items()),
    ]
    width = max(len(what) for what, _ in lines) + 2
    return "\n".join([env.id, *(f"  {what:<{width}}{text}" for what, text in lines if text)])


def envs_data(envs: Iterable[EnvEntry] = tuple(ENVIRONMENTS.values())) -> list[dict[str, Any]]:
    """Return the table of environments as JSON data."""
    return [finite_json(asdict(env)) for env in envs]


def _ago(now: float, then: float | None) -> str:
    return "" if then is None else f"{duration(max(0.0, now - then))} ago"


def _default(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else param(value)


def _range(knob: Knob) -> str:
    """Return what a hyperparameter's values may be, in a few letters.

    >>> _range(KNOBS["gamma"]), _range(KNOBS["learning_rate"]), _range(KNOBS["num_envs"])
    ('0 to 1', '> 0', '1 to 4096')
    """
    if knob.type == "choice":
        return "a name"
    if knob.type == "bool":
        return "true, false"
    if knob.type == "widths":
        return "a list"
    if knob.low == -math.inf:
        return "any" if knob.high == math.inf else f"<= {knob.high:g}"
    if knob.high == math.inf:
        return f"{'>' if knob.low_open else '>='} {knob.low:g}"
    return f"{knob.low:g} to {knob.high:g}"
