"""Plain values in Python expressions: `dict(pi=[64])`, `nn.ReLU`, `2**11`; no code is run."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ..errors import ConfigError
from ..files.plain_data import shortened

Node = TypeVar("Node", bound=ast.AST)

_LONGEST = 200_000
_LARGEST = 2.0**80
_CASTS: Mapping[str, Callable[[Any], Any]] = {
    "int": int, "float": float, "str": str, "bool": bool, "list": list, "tuple": list,
}  # fmt: skip
_OPERATORS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv, ast.Pow: operator.pow,
}  # fmt: skip
MAPPINGS = ("dict", "Namespace", "OrderedDict", "SimpleNamespace")
"""Calls whose keyword arguments are the items of a mapping."""
TWO_OF_TRAIN = "a `train` that returns two values"
"""Marks a file that contains `state, metrics = train(...)`; stored among its names."""


class NotPlain(ConfigError):
    """Raised for text that is not a plain value; the message names the part."""


@dataclass(frozen=True)
class Called:
    """A call that creates an object, such as `optax.adam(1e-3, b1=0.9)`, or only its name."""

    name: str  # the last part of the dotted name
    args: tuple[Any, ...] | None  # None if it is not a call
    words: Mapping[str, Any] = field(default_factory=dict[str, Any])


class Unread(str):
    """The text of an expression that is not a plain value."""

    line = 0
    call: Called | None = None


def value_of(text: str) -> Any:
    """Return the value of an expression; a name becomes a string, `torch.nn.ReLU` its last part.

    >>> value_of("dict(net_arch=dict(pi=[64, 64], vf=[64, 64]), activation_fn=nn.ReLU)")
    {'net_arch': {'pi': [64, 64], 'vf': [64, 64]}, 'activation_fn': 'ReLU'}

    Raises:
        NotPlain: a part of the text is not plain, or it is too long or too deeply nested.
    """
    try:
        return plain_node(_parse_text(" ".join(text.split()), "eval").body)
    except RecursionError:
        raise NotPlain("nested too deeply") from None


def parsed_source(text: str) -> ast.Module:
    """Parse a Python file.

    Raises:
        NotPlain: the text is not Python, or is too long.
    """
    return _parse_text(text, "exec")


def _parse_text(text: str, mode: str) -> Any:
    if len(text) > _LONGEST:
        raise NotPlain(f"{len(text):,} characters; allowed: {_LONGEST:,}")
    try:
        return ast.parse(text, mode=mode)
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise NotPlain(f"not Python: {error}") from None


def plain_node(node: ast.AST | None) -> Any:
    """Return the plain value of an expression.

    Raises:
        NotPlain: the expression has no plain value.
    """
    match node:
        case ast.Constant(value=value) if value is ...:
            return None
        case ast.Constant(value=value) if not isinstance(value, bytes | complex):
            return value
        case ast.Name() | ast.Attribute():
            return last_name(node)
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [plain_node(item) for item in items]
        case ast.Dict(keys=keys, values=values) if None not in keys:
            pairs = zip(keys, values, strict=True)
            return {str(plain_node(key)): plain_node(value) for key, value in pairs}
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _negate_number(node, plain_node(operand))
        case ast.BinOp(left=left, op=op, right=right):
            return _arithmetic_result(node, op, plain_node(left), plain_node(right))
        case ast.Call(args=[], keywords=words) if _makes_mapping(node):
            return {str(word.arg): plain_node(word.value) for word in words}
        case ast.Call(func=func, args=[one], keywords=[]) if last_name(func) in _CASTS:
            return _call_safely(node, _CASTS[last_name(func)], plain_node(one))
        case _:
            raise _not_plain_error(node)


def _negate_number(node: ast.AST, inner: Any) -> Any:
    if not isinstance(inner, int | float):
        raise _not_plain_error(node)
    return -inner


def _arithmetic_result(node: ast.AST, op: ast.operator, left: Any, right: Any) -> Any:
    """Return `left op right` for two numbers of moderate size."""
    act = _OPERATORS.get(type(op))
    if act is None or not (_is_moderate(left) and _is_moderate(right)):
        raise _not_plain_error(node)
    if act is operator.pow and abs(right) > 64:
        raise _not_plain_error(node)
    return _call_safely(node, act, left, right)


def _is_moderate(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) < _LARGEST


def _makes_mapping(node: ast.Call) -> bool:
    return last_name(node.func) in MAPPINGS and all(word.arg for word in node.keywords)


def _call_safely(node: ast.AST, act: Callable[..., Any], *given: Any) -> Any:
    try:
        return act(*given)
    except (ArithmeticError, TypeError, ValueError) as error:
        raise NotPlain(f"{shown_node(node)}: {error}") from None


def _not_plain_error(node: ast.AST | None) -> NotPlain:
    return NotPlain(f"{shown_node(node)} is not a plain value")


def nodes_of(tree: ast.AST, kind: type[Node]) -> Iterator[Node]:
    """Yield the nodes of one kind, outer ones first."""
    return (node for node in ast.walk(tree) if isinstance(node, kind))


def last_name(node: ast.AST) -> str:
    """Return `train` for `ppo.train` and for `train`; "" for other expressions."""
    match node:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case _:
            return ""


def shown_node(node: ast.AST | None) -> str:
    """Return the text of an expression, truncated to 60 characters."""
    if node is None:
        return "an empty value"
    return shortened(ast.unparse(node))
