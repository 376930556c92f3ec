"""Names of other systems that hang together: one name's value follows from several."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ..files.plain_data import is_number

OFF: Any = type("Off", (), {"__repr__": lambda self: "off"})()
"""What a formula returns where a name's value does nothing."""
Searched = Literal["refuse", "leave out", "skip", "first"]


@dataclass(frozen=True)
class Derived:
    """A name whose value follows from several names of its system.

    The formula gets one value of each of `from_`, in that order; a name that is not given has
    its default in the table, or None. What it returns:
        a value: the one that `name` gets, in the system's own terms, so that its row applies
        a mapping: values of several names, `name` among them
        None: everything stays as it is
        `OFF`: the name has no effect

    A `ConfigError` that it raises refuses the import, in the formula's words.

    `searched` says what happens if a sweep searches one of the names: "refuse" it, "leave out"
    the derived name, "skip" the formula, or use the "first" value.

    >>> every = Derived("save_every", ("save_every", "num_envs"), lambda a, b: a * b,
    ...                 note="save_every: {save_every} steps of {num_envs} environments there")
    >>> every.said({"save_every": 10, "num_envs": 8}, 80)
    'save_every: 10 steps of 8 environments there'
    """

    name: str
    from_: tuple[str, ...]
    formula: Callable[..., Any]
    # a template of `from_` and `value`, or a function of the values; printed if it applies
    note: str | Callable[..., str] = ""
    drops: tuple[str, ...] = ()  # names that are read together with it
    defaults: Mapping[str, Any] = field(default_factory=dict[str, Any])  # that the table lacks
    searched: Searched = "refuse"
    because: str = ""  # why it is left out, or refused; a template of `others`
    always: bool = False  # also if `name` itself is not given
    in_python: bool = False  # only where a Python file calls the system

    def said(self, values: Mapping[str, Any], value: Any) -> str:
        """Return the note, of the given values and the one that followed from them."""
        if not isinstance(self.note, str):
            return self.note(*values.values())
        plain = {name: _plain_number(one) for name, one in values.items()}
        return self.note.format(**plain, value=value)


def whole(value: Any) -> int | None:
    """Return a whole number as an int, None of anything else."""
    if not is_number(value) or value != int(value):
        return None
    return int(value)


def _plain_number(value: Any) -> Any:
    number = whole(value)
    if number is None:
        return value
    return number
