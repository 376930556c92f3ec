"""Plain values written as Python: `dict(pi=[64], vf=[64])`, `nn.ReLU`, `2**11`; nothing is run.

Configurations of many trainers hold such texts, or are Python files of them.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["NotPlain", "assigned", "called", "fields_of", "value_of"]

_LONGEST = 200_000
_LARGEST = 2.0**80
_CASTS: Mapping[str, Callable[[Any], Any]] = {
    "int": int, "float": float, "str": str, "bool": bool, "list": list, "tuple": tuple,
}  # fmt: skip
_OPERATORS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
}


class NotPlain(ValueError):
    """A text that is no plain value; the message says which part."""


def value_of(text: str) -> Any:
    """Return what a text stands for; a name is a text, `torch.nn.ReLU` its last part.

    Raises:
        NotPlain: it is no Python, or more than a plain value.

    >>> value_of("dict(net_arch=dict(pi=[64, 64], vf=[64, 64]), activation_fn=nn.ReLU)")
    {'net_arch': {'pi': [64, 64], 'vf': [64, 64]}, 'activation_fn': 'ReLU'}
    """
    return _whole(_parsed(" ".join(text.split()), "eval").body)


def assigned(text: str) -> dict[str, Any]:
    r"""Return name -> value of the plain assignments at the top of a Python file.

    Assignments of anything else, and all other statements, are passed over.

    Raises:
        NotPlain: it is no Python.

    >>> assigned("import torch\nhyperparams = {'A-v0': dict(n_envs=1)}")
    {'hyperparams': {'A-v0': {'n_envs': 1}}}
    """
    return _assignments(_parsed(text, "exec").body)


def fields_of(text: str) -> dict[str, Any]:
    r"""Return name -> value of the plain fields of a Python file's classes, first ones first.

    Raises:
        NotPlain: it is no Python.

    >>> fields_of("@dataclass\nclass Args:\n    gamma: float = 0.99\n    n: int = 2**3")
    {'gamma': 0.99, 'n': 8}
    """
    found: dict[str, Any] = {}
    for statement in _parsed(text, "exec").body:
        if isinstance(statement, ast.ClassDef) and statement.decorator_list:
            found = _assignments(statement.body) | found
    return found


def _assignments(body: list[ast.stmt]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for statement in body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            name, right = statement.targets[0].id, statement.value
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            name, right = statement.target.id, statement.value
        else:
            continue
        try:
            found[name] = _whole(right)
        except NotPlain:
            continue
    return found


def called(text: str, names: tuple[str, ...], objects: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the keyword arguments of the first call of one of some names in a Python text.

    The first argument without a name is `0`; those behind it are passed over.

    Args:
        text: of a Python file.
        names: of the function, class or method.
        objects: arguments that are objects of the program; they are passed over unless they are
            texts or numbers.

    Raises:
        NotPlain: it is no Python, or an argument is more than a plain value.

    >>> called("model = PPO('MlpPolicy', make(), n_steps=2**11)", ("PPO",))
    {'0': 'MlpPolicy', 'n_steps': 2048}
    """
    for node in ast.walk(_parsed(text, "exec")):
        if isinstance(node, ast.Call) and _last_name(node.func) in names:
            given = {"0": node.args[0]} if node.args else {}
            given |= {word.arg: word.value for word in node.keywords if word.arg}
            return {
                name: _whole(argument) for name, argument in given.items()
                if name not in objects or isinstance(argument, ast.Constant)
            }  # fmt: skip
    return {}


def _whole(node: ast.AST | None) -> Any:
    try:
        return _plain(node)
    except RecursionError:
        raise NotPlain("nested too deeply") from None


def _parsed(text: str, mode: str) -> Any:
    if len(text) > _LONGEST:
        raise NotPlain(f"{len(text):,} characters; allowed: {_LONGEST:,}")
    try:
        return ast.parse(text.strip(), mode=mode)
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise NotPlain(f"no Python: {error}") from None


def _plain(node: ast.AST | None) -> Any:
    if isinstance(node, ast.Constant) and not isinstance(node.value, bytes | complex):
        return None if node.value is ... else node.value
    if isinstance(node, ast.Name | ast.Attribute):
        return _last_name(node)
    if isinstance(node, ast.List | ast.Tuple):
        return [_plain(item) for item in node.elts]
    if isinstance(node, ast.Dict) and None not in node.keys:
        return {str(_plain(k)): _plain(v) for k, v in zip(node.keys, node.values, strict=True)}
    if isinstance(node, ast.UnaryOp | ast.BinOp):
        return _number(node)
    if isinstance(node, ast.Call):
        return _call(node)
    raise NotPlain(f"{_shown(node)} is no plain value")


def _number(node: ast.UnaryOp | ast.BinOp) -> Any:
    """Return what arithmetic of numbers makes, within sane sizes."""
    if isinstance(node, ast.UnaryOp):
        inner = _plain(node.operand)
        if isinstance(node.op, ast.USub) and isinstance(inner, int | float):
            return -inner
        raise NotPlain(f"{_shown(node)} is no plain value")
    left, right = _plain(node.left), _plain(node.right)
    act = _OPERATORS.get(type(node.op))
    numbers = all(isinstance(x, int | float) and abs(x) < _LARGEST for x in (left, right))
    if act is None or not numbers or (act is operator.pow and abs(right) > 64):
        raise NotPlain(f"{_shown(node)} is no plain value")
    try:
        return act(left, right)
    except (ArithmeticError, ValueError) as error:
        raise NotPlain(f"{_shown(node)}: {error}") from None


def _call(node: ast.Call) -> Any:
    name = _last_name(node.func)
    if name in ("dict", "Namespace", "OrderedDict") and not node.args:
        return {word.arg: _plain(word.value) for word in node.keywords if word.arg}
    if name in _CASTS and len(node.args) == 1 and not node.keywords:
        try:
            return _CASTS[name](_plain(node.args[0]))
        except (TypeError, ValueError, OverflowError) as error:
            raise NotPlain(f"{_shown(node)}: {error}") from None
    raise NotPlain(f"{_shown(node)} is no plain value")


def _last_name(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _shown(node: ast.AST | None) -> str:
    text = ast.unparse(node) if node is not None else "an empty value"
    return text if len(text) <= 60 else f"{text[:57]}..."
