"""Rules that forbid combinations: mappings from names to values, and text comparisons.

Text is parsed by `ast` and evaluated here, never by Python's `eval`. A rule does not apply if it
names an inactive hyperparameter, uses an order comparison on a value that is off, or divides by
zero.
"""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..errors import ConfigError
from ..files.plain_data import is_among, is_number, same, shortened

_LONGEST = 500
_WORDS: Mapping[str, Any] = {"true": True, "false": False, "null": None, "off": None}
_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: same,
    ast.NotEq: lambda one, other: not same(one, other),
}
_ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: lambda one, other: one / other,
}
_GRAMMAR = (
    "allowed: comparisons (< <= > >= == !=) of hyperparameters and constants, with + - * /, "
    "joined by and, or, not; such as 'gamma < gae_lambda - 0.15'"
)


class Rule(Protocol):
    """A forbidden combination."""

    @property
    def names(self) -> tuple[str, ...]:
        """The hyperparameters that the rule names, in order."""
        ...

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Return whether a configuration is forbidden; `values` are the active hyperparameters."""
        ...

    def as_data(self) -> Any:
        """Return the rule in study-file form."""
        ...


@dataclass(frozen=True)
class ValueRule:
    """Forbids configurations where every named hyperparameter has one of its listed values."""

    wanted: tuple[tuple[str, tuple[Any, ...]], ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.wanted)

    def holds(self, values: Mapping[str, Any]) -> bool:
        return all(
            name in values and is_among(values[name], allowed) for name, allowed in self.wanted
        )

    def as_data(self) -> dict[str, Any]:
        return {name: _one_or_list(values) for name, values in self.wanted}

    def __str__(self) -> str:
        return "{" + ", ".join(f"{name}: {value}" for name, value in self.as_data().items()) + "}"


def _one_or_list(values: tuple[Any, ...]) -> Any:
    """Unwrap a single value, unless it is a list, which would look like several values."""
    if len(values) == 1 and not isinstance(values[0], tuple):
        return values[0]
    return list(values)


@dataclass(frozen=True)
class TextRule:
    """Forbids configurations that make a comparison true; created by `parse_rule`."""

    text: str
    names: tuple[str, ...] = field(compare=False)
    tree: ast.expr = field(compare=False, repr=False)

    def holds(self, values: Mapping[str, Any]) -> bool:
        if any(name not in values for name in self.names):
            return False
        try:
            return _evaluate_rule(self.tree, values)
        except _Undefined:
            return False

    def as_data(self) -> str:
        return self.text

    def __str__(self) -> str:
        return repr(self.text)


class _Undefined(Exception):
    """Raised if values without an order are compared by order, or a number is divided by zero."""


def parse_rule(text: str) -> TextRule:
    """Parse a comparison.

    Raises:
        ConfigError: the text is too long, not an expression, or not made of comparisons.

    >>> parse_rule("gamma < gae_lambda - 0.15").holds({"gamma": 0.7, "gae_lambda": 0.95})
    True
    """
    shown = shortened(text)
    if len(text) > _LONGEST:
        raise ConfigError(
            f"rule {shown!r} has {len(text)} characters; allowed: at most {_LONGEST}"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError, Warning):
        raise ConfigError(f"rule {shown!r} is not a comparison; {_GRAMMAR}") from None
    names = dict.fromkeys(_check_truth(tree, shown))
    if not names:
        raise ConfigError(f"rule {shown!r} names no hyperparameter; {_GRAMMAR}")
    return TextRule(text.strip(), tuple(names), tree)


def _rule_error(node: ast.AST, shown: str) -> ConfigError:
    return ConfigError(f"rule {shown!r}: {ast.unparse(node)!r} is not allowed; {_GRAMMAR}")


def _check_truth(node: ast.expr, shown: str) -> Iterator[str]:
    """Yield the names in a Boolean expression of comparisons; raise for any other operand."""
    if isinstance(node, ast.BoolOp):
        for part in node.values:
            yield from _check_truth(part, shown)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield from _check_truth(node.operand, shown)
    elif isinstance(node, ast.Compare):
        ordered = any(not isinstance(op, ast.Eq | ast.NotEq) for op in node.ops)
        if any(type(op) not in _COMPARISONS for op in node.ops):
            raise _rule_error(node, shown)
        for part in (node.left, *node.comparators):
            yield from _check_term(part, shown, numeric=ordered)
    else:
        raise _rule_error(node, shown)


def _check_term(node: ast.expr, shown: str, numeric: bool) -> Iterator[str]:
    """Yield the names on one side of a comparison."""
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        yield from _check_term(node.left, shown, numeric=True)
        yield from _check_term(node.right, shown, numeric=True)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        yield from _check_term(node.operand, shown, numeric=True)
    elif isinstance(node, ast.Constant):
        value: Any = node.value
        word = not numeric and isinstance(value, str | bool | None)
        if not (word or (is_number(value) and abs(value) < 1e300)):
            raise _rule_error(node, shown)
    elif _name_of(node) is None:
        raise _rule_error(node, shown)
    elif _name_of(node) not in _WORDS:
        yield _name_of(node) or ""
    elif numeric:
        raise _rule_error(node, shown)


def _name_of(node: ast.expr) -> str | None:
    """Return the name of a hyperparameter: a word, or `env.<word>`."""
    if isinstance(node, ast.Name):
        return node.id
    if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
        return None
    if node.value.id != "env":
        return None
    return f"env.{node.attr}"


def _evaluate_rule(node: ast.expr, values: Mapping[str, Any]) -> bool:
    if isinstance(node, ast.BoolOp):
        # A list, not a generator: if any part is undefined, the whole rule does not apply.
        parts = [_evaluate_rule(part, values) for part in node.values]
        if isinstance(node.op, ast.And):
            return all(parts)
        return any(parts)
    if isinstance(node, ast.UnaryOp):
        return not _evaluate_rule(node.operand, values)
    if not isinstance(node, ast.Compare):
        raise _Undefined
    sides = [_term_value(part, values) for part in (node.left, *node.comparators)]
    held = list[bool]()
    for op, one, other in zip(node.ops, sides[:-1], sides[1:], strict=True):  # also stops early
        if not isinstance(op, ast.Eq | ast.NotEq):
            one, other = _checked_number(one), _checked_number(other)
        held.append(_COMPARISONS[type(op)](one, other))
    return all(held)


def _term_value(node: ast.expr, values: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.UnaryOp):
        operand = _checked_number(_term_value(node.operand, values))
        if isinstance(node.op, ast.USub):
            return -operand
        return operand
    if isinstance(node, ast.BinOp):
        one = _checked_number(_term_value(node.left, values))
        other = _checked_number(_term_value(node.right, values))
        try:
            return _ARITHMETIC[type(node.op)](one, other)
        except (ZeroDivisionError, OverflowError):
            raise _Undefined from None
    name = _name_of(node) or ""
    if name in _WORDS:
        return _WORDS[name]
    return values[name]


def _checked_number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _Undefined
    return value
