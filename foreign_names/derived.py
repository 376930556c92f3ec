"""Interdependent names of other systems, where one value is computed from several names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ..files.plain_data import is_number

OFF: Any = type("Off", (), {"__repr__": lambda self: "off"})()
"""The result of a formula for a name whose value has no effect."""
Searched = Literal["refuse", "leave out", "skip", "first"]


@dataclass(frozen=True)
class Derived:
    """A name whose value is computed from several names of its system.

    The formula receives one value for each name in `from_`, in that order. An omitted name has its
    default from the table, or None. The formula returns one of:

        a value: the value of `name` in the system's terms, to which the row of `name` applies
        a mapping: values of several names, including `name`
        None: nothing changes
        `OFF`: the name has no effect

    A `ConfigError` raised by the formula rejects the import, with the error's message.

    `searched` applies if a sweep searches one of the names: "refuse" the sweep, "leave out" the
    derived name, "skip" the formula, or use the "first" value.

    >>> every = Derived("save_every", ("save_every", "num_envs"), lambda a, b: a * b,
    ...                 note="save_every: {save_every} steps of {num_envs} environments there")
    >>> every.said({"save_every": 10, "num_envs": 8}, 80)
    'save_every: 10 steps of 8 environments there'
    """

    name: str
    from_: tuple[str, ...]
    formula: Callable[..., Any]
    # template with `from_` and `value`, or a function of the values; printed if the formula
    # applies
    note: str | Callable[..., str] = ""
    drops: tuple[str, ...] = ()  # names that are read together with it
    # defaults of names that the table lacks
    defaults: Mapping[str, Any] = field(default_factory=dict[str, Any])
    searched: Searched = "refuse"
    because: str = ""  # why it is left out or refused; a template with `others`
    always: bool = False  # whether it applies even if `name` itself is not given
    in_python: bool = False  # whether it applies only to Python files that call the system

    def said(self, values: Mapping[str, Any], value: Any) -> str:
        """Return the note about the given values and the computed one."""
        if not isinstance(self.note, str):
            return self.note(*values.values())
        plain = {name: _plain_number(one) for name, one in values.items()}
        return self.note.format(**plain, value=value)


def whole(value: Any) -> int | None:
    """Return a whole number as an int; None for anything else."""
    if not is_number(value) or value != int(value):
        return None
    return int(value)


def _plain_number(value: Any) -> Any:
    number = whole(value)
    if number is None:
        return value
    return number
