"""Plain values: type guards, number ranges, and readers that name the file in their errors.

`isinstance(value, dict)` leaves keys and values untyped; these guards type them as `str` and
`Any`.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from ..errors import ConfigError


def is_dict(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def is_mapping(value: object) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, Mapping)


def is_list(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def is_sequence(value: object) -> TypeGuard[list[Any] | tuple[Any, ...]]:
    return isinstance(value, list | tuple)


_NUMERIC = (int, float)  # a tuple, which isinstance reads faster than a union


def is_number(value: Any) -> TypeGuard[int | float]:
    """Return whether a value is a finite number; True and False are not."""
    numeric = isinstance(value, _NUMERIC) and not isinstance(value, bool)
    return numeric and math.isfinite(value)


_TOO_LARGE_TO_SAY = 1e12


@dataclass(frozen=True, kw_only=True)
class Range:
    low: float = -math.inf
    high: float = math.inf
    low_open: bool = False  # `low` itself is not legal

    def contains(self, number: float) -> bool:
        if self.low_open and number == self.low:
            return False
        return self.low <= number <= self.high

    def in_words(self, noun: str) -> str:
        """Describe the allowed numbers in words; integer bounds are written in full.

        >>> Range(low=0.0, high=1.0).in_words("a number")
        'a number from 0 to 1'
        """
        first, last = (f"{x:.0f}" if x % 1 == 0 else f"{x:g}" for x in (self.low, self.high))
        endless = self.high >= _TOO_LARGE_TO_SAY
        if self.low == -math.inf and endless:
            return noun
        if self.low == -math.inf:
            return f"{noun} of at most {last}"
        if not endless and not self.low_open:
            return f"{noun} from {first} to {last}"
        start = f"{noun} of at least {first}"
        if self.low_open:
            start = f"{noun} above {first}"
        if endless:
            return start
        return f"{start} and at most {last}"


def escaped(text: str) -> str:
    """Return text with unprintable characters escaped."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def spaced(text: str) -> str:
    """Return text with spaces in place of unprintable characters."""
    return "".join(c if c.isprintable() else " " for c in text)


def shortened(text: str) -> str:
    """Shorten text to 60 characters, ending in three dots."""
    if len(text) <= 60:
        return text
    return f"{text[:57]}..."


def as_lists(value: Any) -> Any:
    """Convert tuples to lists, at any depth.

    >>> as_lists({"widths": (64, (32, 16))})
    {'widths': [64, [32, 16]]}
    """
    if is_mapping(value):
        return {key: as_lists(item) for key, item in value.items()}
    if is_sequence(value):
        return [as_lists(item) for item in value]
    return value


def freeze(value: Any) -> Any:
    """Convert lists to tuples, at any depth, so that the value is hashable.

    >>> freeze([64, [1, 2]])
    (64, (1, 2))
    """
    if is_sequence(value):
        return tuple(freeze(item) for item in value)
    return value


def same(one: Any, other: Any) -> bool:
    """Return whether two values are equal; True differs from 1.

    >>> same(1, 1.0), same(1, True), same([64], (64,))
    (True, False, True)
    """
    return freeze(one) == freeze(other) and isinstance(one, bool) == isinstance(other, bool)


def is_among(value: Any, options: Iterable[Any]) -> bool:
    """Return whether a value equals one of the options, compared with `same`."""
    return any(same(value, one) for one in options)


_LONGEST = 300  # digits of an integer; float64 ends at 309


@contextmanager
def reading(path: str | Path, what: str) -> Generator[None]:
    """Turn errors from reading a regular file into a `ConfigError` that names it."""
    if not Path(path).is_file():
        problem = "does not exist"
        if Path(path).exists():
            problem = "is not a regular file"
        raise ConfigError(f"{what} {str(path)!r} {problem}")
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or type(error).__name__}") from None
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise ConfigError(f"{path}: byte 0x{byte:02x} is not UTF-8; save it as UTF-8") from None
    except csv.Error as error:
        raise ConfigError(f"{path}: not a CSV table: {error}") from None


def parse_json(text: str) -> Any:
    """Parse JSON; deep nesting and numbers beyond float64 also raise `ValueError`.

    >>> parse_json("[1]")
    [1]
    """
    try:
        return json.loads(text, parse_int=_parse_digits)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _parse_digits(digits: str) -> int:
    if len(digits) > _LONGEST:
        raise ValueError(f"a number with {len(digits)} characters is too long")
    return int(digits)
