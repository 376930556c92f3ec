"""One hyperparameter, and short words to declare one with."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

__all__ = [
    "FRACTION",
    "POSITIVE",
    "SCHEDULES",
    "Knob",
    "KnobType",
    "log",
    "number",
    "schedule",
    "static",
    "switch",
    "uniform",
]

KnobType = Literal["float", "int", "bool", "choice", "widths"]
SCHEDULES = ("constant", "linear", "cosine", "warmup_cosine")


@dataclass(frozen=True)
class Knob:
    """One hyperparameter.

    Attributes:
        name: ours, used in study files, tables and code.
        type: of its values; `widths` is a list of positive integers.
        default: its value when nobody sets it; None means off, or a rule that `meaning` tells.
        traced: a leaf of `Hypers` (free to vary per lane); else a part of `Plan`.
        low: smallest legal value.
        high: largest legal value.
        low_open: `low` itself is not legal.
        choices: the legal words of a `choice`; for a number, words legal beside it.
        off: whether `null` or `off` is legal.
        meaning: one line, with unit where there is one.
        search: a suggested distribution, as a study file writes it.
        networks: the built-in networks that it matters for; () for all.
    """

    name: str
    type: KnobType
    default: Any
    traced: bool
    low: float = -math.inf
    high: float = math.inf
    low_open: bool = False
    choices: tuple[str, ...] = ()
    off: bool = False
    meaning: str = ""
    search: Mapping[str, Any] | None = None
    networks: tuple[str, ...] = ()


def number(name: str, default: Any, meaning: str, **rest: Any) -> Knob:
    """Return a traced knob that is a float."""
    return Knob(name, "float", default, True, meaning=meaning, **rest)


def switch(name: str, default: bool, meaning: str, **rest: Any) -> Knob:
    """Return a traced knob that is on or off."""
    return Knob(name, "bool", default, True, meaning=meaning, **rest)


def schedule(name: str, default: str | None, meaning: str, **rest: Any) -> Knob:
    """Return a traced knob that says how another one changes over the run."""
    return Knob(name, "choice", default, True, choices=SCHEDULES, meaning=meaning, **rest)


def static(name: str, type_: KnobType, default: Any, meaning: str, **rest: Any) -> Knob:
    """Return a knob that is a part of `Plan`."""
    return Knob(name, type_, default, False, meaning=meaning, **rest)


def log(low: float, high: float, **rest: Any) -> dict[str, Any]:
    """Return a log-uniform distribution, as a study file writes it."""
    return {"min": low, "max": high, "distribution": "log_uniform", **rest}


def uniform(low: float, high: float) -> dict[str, Any]:
    """Return a uniform distribution, as a study file writes it."""
    return {"min": low, "max": high, "distribution": "uniform"}


POSITIVE = {"low": 0.0, "low_open": True}
FRACTION = {"low": 0.0, "high": 1.0}
