"""One key of a study file: its type, default, range and meaning."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from ..errors import ConfigError

FieldType = Literal[
    "word",
    "words",
    "text",
    "count",
    "number",
    "flag",
    "seconds",
    "map",
    "list",
    "points",
    "factors",
]
_TOO_LARGE_TO_SAY = 1e12
REQUIRED: Any = object()
"""The default of what has none."""


@dataclass(frozen=True)
class Field:
    """One key of the file.

    Attributes:
        key: as written.
        type: of its values; a `count` is a whole number and may be written `200M`; `seconds` may
            be written `2h`; `words` is a list of different ones of `words`, `factors` a list of
            numbers; `points` is a count or a mapping of knob to count.
        default: its value when left out, or REQUIRED.
        low: smallest legal number.
        high: largest legal number.
        low_open: `low` itself is not legal.
        words: the legal words of a `word`; of a number, words legal beside it.
        off: whether `null` or `off` is legal.
        meaning: one line.
        attribute: the field of the dataclass it fills, if called otherwise.
    """

    key: str
    type: FieldType
    default: Any
    meaning: str
    low: float = -math.inf
    high: float = math.inf
    low_open: bool = False
    words: tuple[str, ...] = ()
    off: bool = False
    attribute: str = ""

    @property
    def target(self) -> str:
        """The field of the dataclass that it fills."""
        return self.attribute or self.key

    @property
    def has_default(self) -> bool:
        """Whether it may be left out."""
        return self.default is not REQUIRED

    def contains(self, number: float) -> bool:
        """Return whether a number lies in the range."""
        above = number > self.low if self.low_open else number >= self.low
        return above and number <= self.high

    def allowed(self) -> str:
        """Return in words what is legal."""
        nouns = {
            "word": "",
            "words": f"a list of some of {', '.join(self.words)}",
            "text": "a text",
            "count": "a whole number",
            "number": "a number",
            "flag": "true or false",
            "seconds": "a time such as 90s, 30m or 2h",
            "map": "a mapping",
            "list": "a list",
            "factors": "a list of numbers",
            "points": "a whole number, or a mapping of knob to whole number,",
        }
        noun = f"{nouns[self.type]} {_range(self.low, self.high, self.low_open)}".strip()
        parts = [noun, "" if self.type == "words" else ", ".join(self.words)]
        parts.append("null" if self.off else "")
        return " or ".join(part for part in parts if part)


def _range(low: float, high: float, low_open: bool) -> str:
    """Format a range in words; whole bounds are written out in full."""
    first, last = (f"{x:.0f}" if x % 1 == 0 else f"{x:g}" for x in (low, high))
    high = math.inf if high >= _TOO_LARGE_TO_SAY else high
    if low == -math.inf and high == math.inf:
        return ""
    if low == -math.inf:
        return f"of at most {last}"
    start = f"above {first}" if low_open else f"of at least {first}"
    if high == math.inf:
        return start
    return f"{start} and at most {last}" if low_open else f"from {first} to {last}"


def count(key: str, default: Any, meaning: str, low: float = 0, **rest: Any) -> Field:
    """Return the field of a whole number."""
    limits: dict[str, Any] = {"low": low, "high": 1e15, **rest}
    return Field(key, "count", default, meaning, **limits)


def word(key: str, default: Any, words: tuple[str, ...], meaning: str, **rest: Any) -> Field:
    """Return the field of one of some words."""
    return Field(key, "word", default, meaning, words=words, **rest)


def flag(key: str, default: bool, meaning: str) -> Field:
    """Return the field of a switch."""
    return Field(key, "flag", default, meaning)


def option(
    name: str,
    default: bool | int | float | str,
    meaning: str,
    *,
    low: float | None = None,
    high: float | None = None,
    low_open: bool = False,
    words: tuple[str, ...] = (),
) -> Field:
    """Return an option of a registered sampler or rule; its type is the default's.

    Args:
        name: as a study file writes it.
        default: its value when left out; a text must be one of `words`, if there are any.
        meaning: one line.
        low: the smallest legal number; left out, 0 for whole numbers.
        high: the largest legal number.
        low_open: `low` itself is not legal.
        words: the legal texts.

    Raises:
        ConfigError: the default is not legal itself.

    >>> option("decay", 0.5, "weight of the trial before", low=0, high=1).allowed()
    'a number from 0 to 1'
    """
    limits: dict[str, Any] = {"low_open": low_open}
    limits |= {} if low is None else {"low": low}
    limits |= {} if high is None else {"high": high}
    if isinstance(default, bool):
        return flag(name, default, meaning)
    if isinstance(default, str):
        made = Field(name, "word" if words else "text", default, meaning, words=words)
        legal = not words or default in words
    else:
        whole = isinstance(default, int)
        made = (
            count(name, default, meaning, **limits)
            if whole
            else Field(name, "number", default, meaning, **limits)
        )
        legal = made.contains(default)
    if not legal:
        raise ConfigError(
            f"the default of option {name} is {default!r}; allowed: {made.allowed()}"
        )
    return made
