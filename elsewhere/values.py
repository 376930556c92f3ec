"""How a value of another system becomes a value of ours.

A translation is called with one value and returns ours, or `Settings` where one value of theirs
stands for several of ours. `bound` does the same for the ends of a range.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "SAME",
    "NoCounterpart",
    "Off",
    "OneMinus",
    "Parsed",
    "PowerOfTwo",
    "Same",
    "Settings",
    "Times",
    "Values",
    "Words",
]


_JUST_ABOVE = 1e-6


class NoCounterpart(Exception):
    """A value that a study cannot say; the message is the reason."""


class Settings(dict[str, Any]):
    """Several of our settings at once: target -> value, as targets are written in `rows.Row`."""


@dataclass(frozen=True)
class Values:
    """One translation; subclasses say which."""

    def of(self, value: Any) -> Any:
        """Return our value, or `Settings`.

        Raises:
            NoCounterpart: a study cannot say it.
        """
        raise NotImplementedError

    def bound(self, number: float) -> float:
        """Return one end of a range.

        Raises:
            NoCounterpart: ranges cannot be translated.
        """
        raise NoCounterpart("list the values that matter; a range of it has no counterpart")

    def scaled(self, width: float) -> float:
        """Return a width, such as a deviation or a step, in our terms.

        Raises:
            NoCounterpart: likewise.
        """
        raise NoCounterpart("list the values that matter; a range of it has no counterpart")

    def kind(self, distribution: str) -> str:
        """Return what a distribution of theirs is of ours; ends of ranges may change places."""
        return distribution

    @property
    def meaning(self) -> str:
        """One line for the documents; empty where values stay as they are."""
        return ""


@dataclass(frozen=True)
class Same(Values):
    """The value itself."""

    def of(self, value: Any) -> Any:
        """Return the value."""
        return value

    def bound(self, number: float) -> float:
        """Return the number."""
        return number

    def scaled(self, width: float) -> float:
        """Return the width."""
        return width


SAME = Same()


@dataclass(frozen=True)
class Times(Values):
    """A number, scaled.

    >>> Times(2.0).of(0.5), Times(2.0).of(None)
    (1.0, None)
    """

    factor: float

    def of(self, value: Any) -> Any:
        """Return the number times the factor; anything else as it is."""
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return self.bound(value) if number else value

    def bound(self, number: float) -> float:
        """Return the number times the factor, in twelve digits."""
        return float(f"{number * self.factor:.12g}")

    def scaled(self, width: float) -> float:
        """Return the width times the factor."""
        return abs(self.bound(width))

    @property
    def meaning(self) -> str:
        """Name the factor."""
        return f"times {self.factor:g}"


@dataclass(frozen=True)
class OneMinus(Values):
    """One minus a number.

    >>> OneMinus().of(0.01), OneMinus().kind("log_uniform")
    (0.99, 'one_minus_log')
    """

    def of(self, value: Any) -> Any:
        """Return one minus the number."""
        return self.bound(_as_number(value))

    def bound(self, number: float) -> float:
        """Return one minus the number, in twelve digits."""
        return float(f"{1.0 - number:.12g}")

    def kind(self, distribution: str) -> str:
        """Return the distribution of one minus the number."""
        return "one_minus_log" if distribution == "log_uniform" else distribution

    @property
    def meaning(self) -> str:
        """Return the meaning in words."""
        return "one minus it"


@dataclass(frozen=True)
class PowerOfTwo(Values):
    """Two to the power of a whole number.

    >>> PowerOfTwo().of(7), PowerOfTwo().kind("int_uniform")
    (128, 'pow2')
    """

    def of(self, value: Any) -> Any:
        """Return the power."""
        return self.bound(_as_number(value))

    def bound(self, number: float) -> float:
        """Return the power."""
        if not float(number).is_integer() or not 0 <= number < 64:
            raise NoCounterpart(f"{number!r} is no exponent of two")
        return 2 ** int(number)

    def kind(self, distribution: str) -> str:
        """Return the distribution of powers."""
        return "pow2"

    @property
    def meaning(self) -> str:
        """Return the meaning in words."""
        return "two to the power of it"


@dataclass(frozen=True)
class Off(Values):
    """A number up to which the thing is off there.

    >>> Off(0.0).of(-1.0), Off(0.0).of(0.3)
    (None, 0.3)
    """

    up_to: float = 0.0

    def of(self, value: Any) -> Any:
        """Return None where it is off."""
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return None if number and value <= self.up_to else value

    def bound(self, number: float) -> float:
        """Return the number, or one just above the limit."""
        if number < self.up_to:
            raise NoCounterpart(f"it is off at {self.up_to:g} and below; begin the range above")
        return number if number > self.up_to else self.up_to + _JUST_ABOVE

    def scaled(self, width: float) -> float:
        """Return the width."""
        return width

    @property
    def meaning(self) -> str:
        """Name the limit."""
        return f"off at {self.up_to:g} and below"


@dataclass(frozen=True)
class Words(Values):
    """A table of values; keys are words (in any case), true, false, None or numbers.

    Attributes:
        table: theirs -> ours, `Settings`, or `NoCounterpart` with a reason.
        others: what becomes of a value that is not listed; without it, it stays as it is.

    >>> Words({"swish": "silu", True: 1.0}).of("Swish"), Words({True: 1.0}).of(2)
    ('silu', 2)
    """

    table: Mapping[Any, Any] = field(default_factory=dict)
    others: Any = SAME

    def of(self, value: Any) -> Any:
        """Return what the table says."""
        for theirs, ours in self.table.items():
            if _equal(theirs, value):
                if isinstance(ours, NoCounterpart):
                    raise ours
                return ours
        if isinstance(self.others, NoCounterpart):
            raise self.others
        return self.others.of(value) if isinstance(self.others, Values) else self.others

    @property
    def meaning(self) -> str:
        """List the table."""
        return "; ".join(f"{_word(theirs)}: {_word(ours)}" for theirs, ours in self.table.items())


@dataclass(frozen=True)
class Parsed(Values):
    """A value that a function reads.

    Attributes:
        read: value -> ours or `Settings`; raises `NoCounterpart`.
        says: the meaning, for the documents.
    """

    read: Callable[[Any], Any]
    says: str

    def of(self, value: Any) -> Any:
        """Return what the function reads."""
        return self.read(value)

    @property
    def meaning(self) -> str:
        """Return what the author says."""
        return self.says


def _as_number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise NoCounterpart(f"{value!r} is no number")
    return value


def _equal(theirs: Any, value: Any) -> bool:
    if isinstance(theirs, str) and isinstance(value, str):
        return theirs.lower() == value.lower()
    return isinstance(theirs, bool) == isinstance(value, bool) and theirs == value


def _word(value: Any) -> str:
    if isinstance(value, Settings):
        return ", ".join(f"{target} {_word(one)}" for target, one in value.items()) or "nothing"
    if isinstance(value, NoCounterpart):
        return "refused"
    if value is None:
        return "off"
    return str(value).lower() if isinstance(value, bool) else str(value)
