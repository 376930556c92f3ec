"""One key of a study file: its type, default, range and meaning."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ..errors import ConfigError
from ..files.plain_data import Range

FieldType = Literal[
    "word",
    "words",  # a list of distinct `words`
    "text",
    "count",  # an integer, which may be written `200M`
    "number",
    "flag",
    "seconds",  # may be written `2h`
    "map",
    "list",
    "points",  # a count, or a mapping from hyperparameter to count
    "factors",  # a list of numbers
    "counts",  # a list of integers of at least 1
]
REQUIRED: Any = object()  # the default of a required key


@dataclass(frozen=True)
class Field(Range):
    key: str  # as written in the file
    type: FieldType
    default: Any  # the default value, or REQUIRED
    meaning: str  # one line
    # for a `word`, the choices; for a number, words that are also legal
    words: tuple[str, ...] = ()
    off: bool = False  # whether `null` or `off` is legal
    attribute: str = ""  # the dataclass field, if it has a different name
    section: Any = None  # for a `map`, the dataclass that declares its keys
    late: bool = False  # resolved studies omit its default, like studies from before it was added

    @property
    def target(self) -> str:
        return self.attribute or self.key

    @property
    def has_default(self) -> bool:
        return self.default is not REQUIRED

    def allowed(self) -> str:
        listed, several = ", ".join(self.words), "different names"
        if self.type == "words" and listed:
            listed, several = "", f"some of {listed}"
        nouns = {
            "word": "",
            "words": f"a list of {several}",
            "counts": "distinct whole numbers of at least 1, such as [8, 16]",
            "text": "a string",
            "count": "a whole number",
            "number": "a number",
            "flag": "true or false",
            "seconds": "a time such as 90s, 30m or 2h",
            "map": "a mapping",
            "list": "a list",
            "factors": "a list of numbers",
            "points": "a whole number, or a mapping of knob to whole number,",
        }
        parts = [self.in_words(nouns[self.type]), listed]
        if self.off:
            parts.append("null")
        return " or ".join(part for part in parts if part)


def key(value: Any, meaning: str, *, also: tuple[Field, ...] = (), **rest: Any) -> Any:
    """Declare a dataclass field as a file key; type and legal words come from its annotation.

    `value` is the default. `also` contains keys without a dataclass field, which are listed after
    this one. `rest` sets other attributes of the `Field`.
    """
    default: Any = value
    if is_dataclass(value):
        default = {}
    metadata: dict[str, Any] = {
        "key": {"default": default, "meaning": meaning, **rest},
        "also": also,
    }
    if value is REQUIRED:
        return field(metadata=metadata)
    if isinstance(value, dict):
        return field(default_factory=dict[str, Any], metadata=metadata)
    return field(default=value, metadata=metadata)


@cache
def keys_of(section: type) -> tuple[Field, ...]:
    """Return the keys that a dataclass declares, in order."""
    declared = [one for one in fields(section) if "key" in one.metadata]
    found: list[Field] = []
    if not declared:
        return ()
    hints = get_type_hints(section)
    for one in declared:
        made = {"key": one.name, "attribute": one.name, **one.metadata["key"]}
        found += [Field(**_of_hint(hints[one.name], made)), *one.metadata["also"]]
    return tuple(found)


def _of_hint(hint: Any, made: dict[str, Any]) -> dict[str, Any]:
    """Add the type, legal words and `off` from the annotation, and the range for integers."""
    parts = (hint,)
    if get_origin(hint) in (Union, UnionType):
        parts = get_args(hint)
    words = tuple(w for part in parts if get_origin(part) is Literal for w in get_args(part))
    sections = [part for part in parts if is_dataclass(part)]
    found: dict[str, Any] = {"type": _type_of(parts, words), "words": words}
    if sections and keys_of(sections[0]):
        found["section"] = sections[0]
    found["off"] = type(None) in parts and "words" not in made
    found |= made
    if found["type"] == "count":
        return {"low": 0, "high": 1e15, **found}
    return found


_PLAIN: dict[Any, FieldType] = {bool: "flag", int: "count", float: "number", str: "text"}


def _type_of(parts: tuple[Any, ...], words: tuple[str, ...]) -> FieldType:
    for part in parts:
        if part in _PLAIN:
            return _PLAIN[part]
    if words:
        return "word"
    if get_origin(parts[0]) is tuple:
        return "list"
    return "map"


def count(key: str, default: Any, meaning: str, low: float = 0, **rest: Any) -> Field:
    limits: dict[str, Any] = {"low": low, "high": 1e15, **rest}
    return Field(key, "count", default, meaning, **limits)


def flag(key: str, default: bool, meaning: str) -> Field:
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
    """Return an option of a registered sampler or rule; its type is inferred from the default.

    Args:
        name: the key in study files.
        default: the value if omitted; a string must be one of `words`, if there are any.
        meaning: a one-line description.
        low: the smallest legal number; by default 0 for integers.
        high: the largest legal number.
        low_open: whether `low` itself is illegal.
        words: the legal strings.

    Raises:
        ConfigError: the default itself is illegal.

    >>> option("decay", 0.5, "weight of the trial before", low=0, high=1).allowed()
    'a number from 0 to 1'
    """
    given = {"low": low, "high": high, "low_open": low_open}
    limits: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if isinstance(default, bool):
        return flag(name, default, meaning)
    if isinstance(default, str):
        made, legal = Field(name, "text", default, meaning), True
        if words:
            made, legal = Field(name, "word", default, meaning, words=words), default in words
    else:
        made = Field(name, "number", default, meaning, **limits)
        if isinstance(default, int):
            made = count(name, default, meaning, **limits)
        legal = made.contains(default)
    if not legal:
        text = f"the default of option {name} is {default!r}; allowed: "
        raise ConfigError(f"{text}{made.allowed()}")
    return made
