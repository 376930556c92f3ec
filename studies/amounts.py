"""Amounts as people write them: `200M` env steps, `2h30m` of time."""

from __future__ import annotations

import math
import re
from typing import Any

__all__ = ["amount_meant", "count_of", "number_of", "seconds_of"]

_COUNT = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,9}))?(k|K|M|G|B)")
_WRONG_UNIT = re.compile(r"\s*([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([A-Za-z]+)\s*")
_FACTORS = {"k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "B": 10**9}
_TIME = re.compile(r"(?:[0-9]{1,9}(?:\.[0-9]{1,6})?[dhms]\s*)+")
_PIECE = re.compile(r"([0-9]+(?:\.[0-9]+)?)([dhms])")
_SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}


def number_of(value: Any) -> float | int | None:
    """Return a finite number, or None if it is none; `50k` is 50000, whole numbers stay int.

    >>> number_of("1.1k"), number_of(0.5), number_of("x"), number_of(True)
    (1100, 0.5, None, None)
    """
    if isinstance(value, str):
        return _suffixed(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value


def count_of(value: Any) -> int | None:
    """Return a whole number, or None if it is none; `200M` and `1e6` are whole.

    >>> count_of("200M"), count_of(1e6), count_of("1.5"), count_of(1.5)
    (200000000, 1000000, None, None)
    """
    number = number_of(value)
    return int(number) if number is not None and number == int(number) else None


def amount_meant(value: Any) -> str:
    """Return a number with a unit that is none as it was probably meant, or "".

    >>> amount_meant("20q"), amount_meant("1.5 m"), amount_meant("20k"), amount_meant("x20")
    ('20k', '1.5M', '', '')
    """
    match = _WRONG_UNIT.fullmatch(value) if isinstance(value, str) else None
    if match is None or number_of(value) is not None:
        return ""
    unit = match[2][0] if match[2][0] in _FACTORS else match[2][0].upper()
    return f"{match[1]}{unit if unit in _FACTORS else 'k'}"


def seconds_of(value: Any) -> float | None:
    """Return a time in seconds, or None if it is none; a bare number is seconds.

    >>> seconds_of("2h30m"), seconds_of(90), seconds_of("2 hours")
    (9000.0, 90.0, None)
    """
    if isinstance(value, str):
        if not _TIME.fullmatch(value.strip()):
            return None
        return sum(float(amount) * _SECONDS[unit] for amount, unit in _PIECE.findall(value))
    number = number_of(value)
    return None if number is None else float(number)


def _suffixed(text: str) -> float | int | None:
    match = _COUNT.fullmatch(text.strip())
    if match is None:
        return None
    whole, fraction, suffix = match.group(1), match.group(2) or "", match.group(3)
    scaled = int(whole + fraction) * _FACTORS[suffix]
    unit = 10 ** len(fraction)
    return scaled // unit if scaled % unit == 0 else scaled / unit
