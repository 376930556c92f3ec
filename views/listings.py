"""Tables of studies, hyperparameters and environments, as text or data."""

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
    now = time.time() if now is None else now
    rows = [
        [s.name, s.state, f"{s.done} of {s.trials}", number(s.best), s.metric,
         "" if s.updated_at is None else f"{duration(max(0.0, now - s.updated_at))} ago"]
        for s in studies
    ]  # fmt: skip
    header = ("study", "state", "ended", "best", "metric", "changed")
    return Listing(header, rows, (False, False, True, True, False, True))


def knobs_listing(knobs: Iterable[Knob] = tuple(KNOBS.values())) -> Listing:
    rows = [[knob.name, _default(knob.default), _range(knob), knob.meaning] for knob in knobs]
    header = ("hyperparameter", "default", "range", "meaning")
    return Listing(header, rows, [False] * 4)


def knob_text(knob: Knob) -> str:
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
    """Return hyperparameters as JSON data; a missing bound is null, infinity a string."""
    found: list[dict[str, Any]] = []
    for knob in knobs:
        data = asdict(knob)
        low, high = data["low"], data["high"]
        data |= {
            "low": None if low == -math.inf else low,
            "high": None if high == math.inf else high,
        }
        words = {"allowed": allowed(knob.name), "aliases": list(names_of(knob.name))}
        found.append(finite_json({**data, **words}))
    return found


def envs_listing(envs: Iterable[EnvEntry] = tuple(ENVIRONMENTS.values())) -> Listing:
    rows = [[env.id, env.source, env.actions, env.meaning] for env in envs]
    return Listing(("environment", "source", "actions", "meaning"), rows, [False] * 4)


def env_text(env: EnvEntry) -> str:
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
    return [finite_json(asdict(env)) for env in envs]


def _default(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else param(value)


def _range(knob: Knob) -> str:
    """Return the allowed values of a hyperparameter in a few letters.

    >>> _range(KNOBS["gamma"]), _range(KNOBS["learning_rate"]), _range(KNOBS["num_envs"])
    ('0 to 1', '> 0', '1 to 4096')
    """
    words = {"choice": "a name", "bool": "true, false", "widths": "a list"}
    if knob.type in words:
        return words[knob.type]
    if knob.low == -math.inf:
        return "any" if knob.high == math.inf else f"<= {knob.high:g}"
    if knob.high == math.inf:
        return f"{'>' if knob.low_open else '>='} {knob.low:g}"
    return f"{knob.low:g} to {knob.high:g}"
