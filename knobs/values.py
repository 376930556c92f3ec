"""Which values a knob may have, and in what form they are kept."""

from __future__ import annotations

import math
from typing import Any

from ..errors import ConfigError, suggestion
from .knob import Knob
from .table import KNOBS, known_choices

__all__ = ["allowed", "check_value"]


def allowed(name: str) -> str:
    """Return in words what a knob's values may be.

    >>> allowed("rho_clip")
    'a number above 0 or off'
    """
    knob, words = KNOBS[name], []
    if knob.type == "bool":
        words.append("true or false")
    elif knob.type == "choice":
        words.append("one of " + ", ".join(known_choices(name)))
    elif knob.type == "widths":
        words.append("a list of integers of at least 1, such as [64, 64]")
    else:
        noun = "an integer" if knob.type == "int" else "a number"
        bounds = []
        if knob.low > -math.inf:
            bounds.append(f"{'above' if knob.low_open else 'at least'} {knob.low:g}")
        if knob.high < math.inf:
            bounds.append(f"at most {knob.high:g}")
        words.append(" ".join([noun, " and ".join(bounds)]).strip())
        words.extend(repr(choice) for choice in knob.choices)
    if knob.off:
        words.append("off")
    return " or ".join(words)


def check_value(name: str, value: Any) -> Any:
    """Make a knob's value canonical: float, int, bool, str, tuple of int, or None for off.

    Raises:
        ConfigError: says what was given and what is allowed.
    """
    knob = KNOBS[name]
    if knob.off and (value is None or value is False or value == "off"):
        return None
    checked = _CHECKS[knob.type](knob, value)
    if checked is _ILLEGAL:
        hint = suggestion(value, known_choices(name)) if isinstance(value, str) else ""
        raise ConfigError(f"{name} is {value!r};{hint} allowed: {allowed(name)}")
    return checked


_ILLEGAL = object()
_LEAST, _MOST = 2.0**-126, (2.0 - 2.0**-23) * 2.0**127  # float32: smaller ones are flushed to 0


def _check_bool(knob: Knob, value: Any) -> Any:
    return value if isinstance(value, bool) else _ILLEGAL


def _check_choice(knob: Knob, value: Any) -> Any:
    return value if isinstance(value, str) and value in known_choices(knob.name) else _ILLEGAL


def _check_widths(knob: Knob, value: Any) -> Any:
    if not isinstance(value, (list, tuple)) or len(value) > 64:
        return _ILLEGAL
    whole = all(isinstance(width, int) and not isinstance(width, bool) for width in value)
    return tuple(value) if whole and all(1 <= width <= 16384 for width in value) else _ILLEGAL


def _check_number(knob: Knob, value: Any) -> Any:
    if isinstance(value, str) and value in knob.choices:
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return _ILLEGAL
    if value < knob.low or value > knob.high or (knob.low_open and value == knob.low):
        return _ILLEGAL
    if knob.type == "float" and value != 0 and not _LEAST <= abs(value) <= _MOST:
        raise ConfigError(
            f"{knob.name} is {value!r}, which is no number in float32; allowed: 0, if that is "
            f"legal, or a magnitude of {_LEAST:.4g} to {_MOST:.4g}"
        )
    if knob.type == "int":
        return int(value) if value == int(value) else _ILLEGAL
    return float(value)


_CHECKS = {
    "bool": _check_bool,
    "choice": _check_choice,
    "widths": _check_widths,
    "int": _check_number,
    "float": _check_number,
}
