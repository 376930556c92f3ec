"""Reads brax and MuJoCo Playground Python files: a call to `train`, or `brax_ppo_config`.

If a file configures many environments, only one configuration is read. Branches on the
environment's name are resolved, and a dictionary keyed by names is replaced by the entry for that
name. No code is run.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ..foreign_names.plain_values import (
    NotPlain,
    Unread,
    last_name,
    nodes_of,
    parsed_source,
    plain_node,
)
from .python_names import Names

_CONFIG = "brax_ppo_config"
_MAKES = ("create", "ConfigDict", "dict")
_LOADS = ("get_environment", "create", "load")
_MAKERS_OF = ("envs", "registry")


@dataclass
class BraxArguments:
    # `Unread` for values that are not plain
    named: dict[str, Any] = field(default_factory=dict[str, Any])
    env: str | None = None


def read_brax(text: str, env: str | None) -> BraxArguments:
    """Return the brax PPO arguments that a file sets for one environment.

    Raises:
        NotPlain: the file has no such arguments, has several sets of them, or branches on an
            unknown value.
    """
    tree = parsed_source(text)
    known = Names(tree).single()
    name = env or _env_in(tree, known)
    if name is not None:
        name = name.rpartition(":")[2]
    function = next(
        (node for node in nodes_of(tree, ast.FunctionDef) if node.name == _CONFIG),
        None,
    )
    if function is not None:
        return BraxArguments(_Config(name, known).of(function), name)
    call = _call_for(tree, name)
    return BraxArguments(_keyword_values(call, known), name)


def _env_in(tree: ast.AST, known: Mapping[str, Any]) -> str | None:
    """Return the name of the environment that a file creates."""
    for node in nodes_of(tree, ast.Call):
        if last_name(node.func) not in _LOADS:
            continue
        given = [*node.args[:1], *(word.value for word in node.keywords if word.arg == "env_name")]
        if _owner_name(node.func) in _MAKERS_OF and given:
            value = _plain_value(given[0], known)
            if isinstance(value, str) and not isinstance(value, Unread):
                return value
    return None


# ------------------------------------------------------------------------------- calls


def _owner_name(called: ast.AST) -> str:
    """Return `ppo` for `ppo.train`, or "" for a bare name."""
    if isinstance(called, ast.Attribute):
        return last_name(called.value)
    return ""


def _call_for(tree: ast.AST, env: str | None) -> ast.Call:
    """Return the call to `train`, or the entry for one environment in a dictionary of calls."""
    of_env = dict[str, ast.Call]()
    for node in nodes_of(tree, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if (
                isinstance(key, ast.Constant)
                and isinstance(value, ast.Call)
                and _is_training_call(value)
            ):
                of_env[str(key.value)] = value
    if env in of_env:
        return of_env[env]
    if of_env:
        text = f"it has settings for {', '.join(of_env)}; name one of them"
        raise NotPlain(text, env=next(iter(of_env)))
    calls = [call for call in nodes_of(tree, ast.Call) if _is_training_call(call)]
    if len(calls) != 1:
        text = "it has no call to train"
        if calls:
            lines = ", ".join(str(call.lineno) for call in calls)
            text = f"it has {len(calls)} calls to train (lines {lines})"
        raise NotPlain(f"{text}; allowed: one call, or a function {_CONFIG}")
    return calls[0]


def _is_training_call(node: ast.Call) -> bool:
    """Return whether a call is `ppo.train(...)` or `partial(ppo.train, ...)`, with settings."""
    called = node.func
    if last_name(called) == "partial" and node.args:
        called = node.args[0]
    settings = {word.arg for word in node.keywords}
    is_train = last_name(called) == "train" and _owner_name(called) in ("ppo", "")
    return is_train and len(settings) > 2


def _keyword_values(call: ast.Call, known: Mapping[str, Any]) -> dict[str, Any]:
    found = dict[str, Any]()
    for word in call.keywords:
        if word.arg is not None:
            found[word.arg] = _plain_value(word.value, known)
        else:
            text = f"line {call.lineno}: the names in {ast.unparse(word.value)} cannot be read"
            raise NotPlain(text)
    return found


def _plain_value(node: ast.AST, known: Mapping[str, Any]) -> Any:
    """Return a plain value; `(128,) * 4` and the arguments of a network factory count as plain."""
    name = last_name(node)
    if isinstance(node, ast.Name) and name in known:
        return known[name]
    match node:
        case ast.BinOp(
            left=ast.Tuple(elts=[one]) | ast.List(elts=[one]),
            op=ast.Mult(),
            right=ast.Constant(value=int(count)),
        ) if count < 100:
            return [_plain_value(one, known)] * count
        case ast.Call(func=func, keywords=words) if last_name(func) in (*_MAKES, "partial"):
            return {word.arg: _plain_value(word.value, known) for word in words if word.arg}
        case _:
            pass
    with suppress(NotPlain, RecursionError):
        if not isinstance(node, ast.Name | ast.Attribute):
            return plain_node(node)
    value = Unread(ast.unparse(node)[:60])
    if isinstance(node, ast.Name):
        value = Unread(node.id)
    value.line = getattr(node, "lineno", 0)
    return value


# ------------------------------------------------------------------------ brax_ppo_config


class _Config:
    """A pass over the statements of `brax_ppo_config` for one environment."""

    def __init__(self, env: str | None, known: Mapping[str, Any]) -> None:
        self.env, self.known = env, known
        self.first = ""  # the argument that is the environment's name
        self.variable = ""  # the variable that contains the configuration
        self.values = dict[str, Any]()
        self.given = dict[str, Any]()  # arguments of the function

    def of(self, function: ast.FunctionDef) -> dict[str, Any]:
        names = [one.arg for one in function.args.args]
        defaults = function.args.defaults
        for name, node in zip(names[len(names) - len(defaults) :], defaults, strict=True):
            self.given[name] = _plain_value(node, {})
        if names:
            self.first, self.given[names[0]] = names[0], self.env
        self._follow_statements(function.body)
        return self.values

    def _follow_statements(self, body: Sequence[ast.stmt]) -> bool:
        """Follow the statements; return whether the function returns in one of them."""
        for node in body:
            if isinstance(node, ast.Return):
                return True
            if isinstance(node, ast.Raise):
                raise NotPlain(f"line {node.lineno}: this function has no settings for {self.env}")
            if isinstance(node, ast.If):
                branch = node.orelse
                if self._is_test_true(node.test):
                    branch = node.body
                if self._follow_statements(branch):
                    return True
            elif isinstance(node, ast.With):
                if self._follow_statements(node.body):
                    return True
            elif isinstance(node, ast.Assign):
                self._follow_assignment(node)
            else:
                self._refuse_change(node)
        return False

    def _refuse_change(self, node: ast.stmt) -> None:
        """Reject a statement of another kind that may change the configuration."""
        if self.variable and self._mentions_variable(node):
            text = ast.unparse(node).partition("\n")[0]
            raise NotPlain(
                f"line {node.lineno}: {text} may change settings and cannot be read; set each to "
                f"its value there, as in {self.variable}.num_envs = 64"
            )

    def _mentions_variable(self, node: ast.AST) -> bool:
        names = (one.id for one in nodes_of(node, ast.Name))
        return self.variable in names

    def _follow_assignment(self, node: ast.Assign) -> None:
        target = node.targets[0]
        makes = isinstance(node.value, ast.Call) and last_name(node.value.func) in _MAKES
        if isinstance(target, ast.Name) and isinstance(node.value, ast.Call) and makes:
            self.variable = target.id
            self.values = _keyword_values(node.value, self.known)
            return
        path = _attribute_path(target)
        if path[:1] != [self.variable]:
            return
        if len(path) < 2:
            self._refuse_change(node)
        inside = self.values
        for name in path[1:-1]:
            inside = inside.setdefault(name, {})
        inside[path[-1]] = _plain_value(node.value, self.known)

    def _is_test_true(self, test: ast.expr) -> bool:
        match test:
            case ast.BoolOp(op=ast.And(), values=parts):
                return all(self._is_test_true(part) for part in parts)
            case ast.BoolOp(op=ast.Or(), values=parts):
                return any(self._is_test_true(part) for part in parts)
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                return not self._is_test_true(inner)
            case ast.Name(id=name) if name in self.given:
                return bool(self._argument_value(test, name))
            case ast.Compare(left=ast.Name(id=name), ops=[op], comparators=[right]):
                if name in self.given:
                    return self._compare_argument(test, name, op, right)
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=how), args=[part]):
                if name in self.given and how in ("startswith", "endswith"):
                    ends = self._plain_part(test, part)
                    if isinstance(ends, list):
                        ends = tuple(ends)
                    return getattr(str(self._argument_value(test, name)), how)(ends)
            case _:
                pass
        raise _unreadable(test)

    def _compare_argument(self, test: ast.expr, name: str, op: ast.cmpop, right: ast.expr) -> bool:
        value, other = self._argument_value(test, name), self._plain_part(test, right)
        match op:
            case ast.Eq() | ast.Is():
                return value == other
            case ast.NotEq() | ast.IsNot():
                return value != other
            case ast.In() if isinstance(other, list | dict | str):
                return value in other
            case ast.NotIn() if isinstance(other, list | dict | str):
                return value not in other
            case _:
                raise _unreadable(test)

    def _plain_part(self, test: ast.expr, node: ast.expr) -> Any:
        """Return the value of a part of a condition; names of the module are known."""
        value = _plain_value(node, self.known)
        if isinstance(value, Unread):
            raise _unreadable(test)
        return value

    def _argument_value(self, test: ast.expr, name: str) -> Any:
        """Return an argument's value, for which the environment's name must be known."""
        if name == self.first and self.given[name] is None:
            raise NotPlain(
                f"line {test.lineno}: its settings depend on the environment; name one", env="ID"
            )
        if isinstance(self.given[name], Unread):
            raise _unreadable(test)
        return self.given[name]


def _unreadable(test: ast.expr) -> NotPlain:
    return NotPlain(f"line {test.lineno}: the condition {ast.unparse(test)} cannot be read")


def _attribute_path(node: ast.AST) -> list[str]:
    """Return the names in `config.network_factory.activation` or `config["activation"]`."""
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute) and (inner := _attribute_path(node.value)):
        return [*inner, node.attr]
    if isinstance(node, ast.Subscript) and (inner := _attribute_path(node.value)):
        return [*inner, str(getattr(node.slice, "value", ast.unparse(node.slice)))]
    return []
