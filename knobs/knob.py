"""A row in the table of hyperparameters, and shorthands for rows and search ranges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..files.plain_data import Range

KnobType = Literal["float", "int", "bool", "choice", "widths"]
SCHEDULES = ("constant", "linear", "cosine", "warmup_cosine")
POSITIVE = {"low": 0.0, "low_open": True}
FRACTION = {"low": 0.0, "high": 1.0}


@dataclass(frozen=True)
class Knob(Range):
    """One hyperparameter."""

    name: str
    type: KnobType  # `widths` is a list of positive integers
    default: Any  # None means off, or a rule given in `meaning`
    traced: bool  # whether it is a leaf of `Hypers` (may vary per lane) or a field of `Plan`
    # legal words: all of a `choice`, or those that a number also accepts
    choices: tuple[str, ...] = ()
    off: bool = False  # whether `null` and `off` are legal
    meaning: str = ""  # one line, with unit if there is one
    search: Mapping[str, Any] | None = None  # a suggested distribution, in study-file form
    networks: tuple[str, ...] = ()  # the built-in networks that use it; () for all


def number(name: str, default: Any, meaning: str, **rest: Any) -> Knob:
    """Return a traced hyperparameter with real values."""
    return Knob(name, "float", default, True, meaning=meaning, **rest)


def switch(name: str, default: bool, meaning: str, **rest: Any) -> Knob:
    """Return a traced hyperparameter that is on or off."""
    return Knob(name, "bool", default, True, meaning=meaning, **rest)


def schedule(name: str, default: str | None, meaning: str, **rest: Any) -> Knob:
    """Return a traced hyperparameter whose values are schedule names."""
    return Knob(name, "choice", default, True, choices=SCHEDULES, meaning=meaning, **rest)


def static(name: str, type_: KnobType, default: Any, meaning: str, **rest: Any) -> Knob:
    """Return a static hyperparameter: changing it needs another compiled program."""
    return Knob(name, type_, default, False, meaning=meaning, **rest)


def log(low: float, high: float, **rest: Any) -> dict[str, Any]:
    """Return a log-uniform distribution, as a suggested search range."""
    return {"min": low, "max": high, "distribution": "log_uniform", **rest}


def uniform(low: float, high: float) -> dict[str, Any]:
    """Return a uniform distribution, as a suggested search range."""
    return {"min": low, "max": high, "distribution": "uniform"}
