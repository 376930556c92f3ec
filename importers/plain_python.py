"""Plain values in Python sources: `dict(pi=[64])`, `nn.ReLU`, `2**11`; nothing is ever run.

`value_of` reads one value. `read_source` collects what a file gives to names of a table, wherever
it does: assignments, dictionaries, arguments of calls, fields of classes, defaults of argparse.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import ConfigError

_LONGEST = 200_000
_LARGEST = 2.0**80
_CASTS: Mapping[str, Callable[[Any], Any]] = {
    "int": int, "float": float, "str": str, "bool": bool, "list": list, "tuple": list,
}  # fmt: skip
_OPERATORS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv, ast.Pow: operator.pow,
}  # fmt: skip
_MAPPINGS = ("dict", "Namespace", "OrderedDict", "SimpleNamespace")
_MAKERS = ("make", "make_vec", "make_vec_env", "make_env", "create_env")
_FRAMEWORKS = {"gymnax": "", "brax": "brax:", "gymnasium": "", "envpool": "", "xland": ""}
_IDLE = "left out"
_OBJECTS = ("env", "env_params", "eval_env", "model", "key", "rng", "policy_key", "callback",
            "optimizer", "action_space")  # fmt: skip


class NotPlain(ConfigError):
    """A text that is no plain value; the message says which part."""


class Unread(str):
    """What stands where a plain value should: its text; `line` says where."""

    line = 0


def value_of(text: str) -> Any:
    """Return what a text stands for; a name is a text, `torch.nn.ReLU` its last part.

    >>> value_of("dict(net_arch=dict(pi=[64, 64], vf=[64, 64]), activation_fn=nn.ReLU)")
    {'net_arch': {'pi': [64, 64], 'vf': [64, 64]}, 'activation_fn': 'ReLU'}
    """
    return _whole(_parsed(" ".join(text.split()), "eval").body)


@dataclass
class Source:
    """What a Python file gives to names of a table.

    Attributes:
        named: name -> value; `Unread` where there is no plain one.
        env: what makes its environment: the text given to a `make`, or a class.
        positional: texts that the table's own call has in front.
        calls: the table's own calls.
    """

    named: dict[str, Any] = field(default_factory=dict[str, Any])
    env: str | None = None
    positional: list[str] = field(default_factory=list[str])
    calls: list[str] = field(default_factory=list[str])


def read_source(
    text: str, known: Callable[[str], bool | str], calls: tuple[str, ...] = (),
    given: Mapping[str, Any] | None = None, around: Mapping[str, str] | None = None,
) -> Source:  # fmt: skip
    r"""Return what a Python file gives to known names, and to others beside them.

    `known` says what becomes of a name, or nothing; values of names that are left out may differ.
    `around` maps other calls to the names that they amount to, as `name` or `name=keyword`; names
    in `given` may have several values.

    >>> read_source("a = 1\nPPO(lr=2 * 4)\n", lambda name: name == "lr", ("PPO",)).named
    {'lr': 8}
    """
    tree = _parsed(text, "exec")
    reader = _Reader(known, calls, around or {})
    try:
        reader.constants = _constants(tree)
        reader.visit(tree)
    except RecursionError:
        raise NotPlain("nested too deeply") from None
    found = reader.found
    for name, values in reader.values.items():
        plain = [one for one in values if not isinstance(one[0], Unread)]
        distinct = [one for i, one in enumerate(plain) if one[0] not in [x for x, _ in plain[:i]]]
        if (
            len(distinct) > 1
            and name not in (given or {})
            and (known(name) not in (False, "", _IDLE))
        ):
            (first, at), (second, there) = distinct[:2]
            raise NotPlain(
                f"{name} is {first!r} (line {at}) and {second!r} (line {there}); give one of them",
                flags={name: first},
            )
        found.named[name] = (plain or values)[0][0]
    envs = dict.fromkeys(reader.envs)
    if len(envs) > 1 and not {"env", "env_id", "env_name", "ENV_NAME"} & set(given or {}):
        raise NotPlain(f"it makes {' and '.join(map(repr, envs))}; name one", env=next(iter(envs)))
    found.env = next(iter(envs), reader.env_class)
    return found


class _Reader:
    """Walks a tree and keeps (value, line) of each name."""

    def __init__(
        self, known: Callable[[str], bool | str], calls: tuple[str, ...], around: Mapping[str, str]
    ) -> None:
        self.known, self.calls, self.around, self.found = known, calls, around, Source()
        self.constants: dict[str, list[Any]] = {}
        self.values: dict[str, list[tuple[Any, int]]] = {}
        self.envs: list[str] = []
        self.env_class: str | None = None

    def visit(self, node: ast.AST) -> None:
        """Read a node and what is in it, but not the inside of a value that was taken whole."""
        pairs = [(name.replace("-", "_"), value) for name, value in _pairs(node)]
        own = isinstance(node, ast.Call) and self._own_call(node)
        several = sum(bool(self.known(name)) for name, _ in pairs) > 1
        mapping = isinstance(node, ast.Dict | ast.ClassDef) or (
            isinstance(node, ast.Call) and _last_name(node.func) in _MAPPINGS)  # fmt: skip
        container = own or _is_option(node) or (several and mapping)
        whole = set[int]()
        for name, value in pairs:
            if self.known(name) or container:
                firm = container or mapping
                if self._keep(name, value, firm) and self.known(name):
                    whole.add(id(value))
        if isinstance(node, ast.Call):
            self._call_around(node, dict(pairs))
            self._made_env(node)
        elif isinstance(node, ast.Assign) and "env" in map(_last_name, node.targets):
            made = node.value.func if isinstance(node.value, ast.Call) else node.value
            self.env_class = self.env_class or _last_name(made) or None
        for child in ast.iter_child_nodes(node):
            inner = child.value if isinstance(child, ast.keyword) else child
            if id(inner) not in whole or not isinstance(inner, ast.Dict | ast.Call):
                self.visit(child)

    def _own_call(self, node: ast.Call) -> bool:
        name = _last_name(node.func)
        if name not in self.calls:
            return False
        maker = _last_name(node.func.value) if isinstance(node.func, ast.Attribute) else ""
        if name.lower() == "create" and not maker.endswith(("Trainer", "PPO")):
            return False
        self.found.calls.append(name)
        self.found.positional += _texts(node)
        return True

    def _keep(self, name: str, node: ast.AST, firm: bool) -> bool:
        """Keep a value; one that is not plain only where it is firmly the table's."""
        value = self._value(node)
        if isinstance(value, Unread) and (not firm or name in _OBJECTS):
            return False
        self.values.setdefault(name, []).append((value, getattr(node, "lineno", 0)))
        return True

    def _value(self, node: ast.AST) -> Any:
        """Return a plain value, also what the file gives to a name or attribute, or `Unread`."""
        name = _reference(node)
        distinct = self.constants.get(name or "", [])
        try:
            if name is None:
                return _whole(node)
            if len(distinct) == 1:
                return distinct[0]
        except NotPlain:
            pass
        named = isinstance(node, ast.Name | ast.Attribute)
        value = Unread(_last_name(node) if named else _shown(node))
        value.line = getattr(node, "lineno", 0)
        return value

    def _call_around(self, node: ast.Call, given: Mapping[str, ast.AST]) -> None:
        """Keep a wrapper or the like as the name that it amounts to."""
        name, _, keyword = self.around.get(_last_name(node.func), "").partition("=")
        if not name:
            return
        if keyword:
            self._keep(name, given.get(keyword) or node.args[-1], True)
        else:
            plain = {key: self._value(value) for key, value in given.items()}
            self.values.setdefault(name, []).append((plain or True, node.lineno))

    def _made_env(self, node: ast.Call) -> None:
        """Keep the text that an environment is made of."""
        name, texts = _last_name(node.func), _texts(node)
        owner = _last_name(node.func.value) if isinstance(node.func, ast.Attribute) else ""
        if texts and (name in _MAKERS or (name.lower() == "create" and owner == "Environment")):
            framed = len(texts) > 1 and texts[0] in _FRAMEWORKS
            self.envs.append(_FRAMEWORKS[texts[0]] + texts[1] if framed else texts[0])


def _texts(node: ast.Call) -> list[str]:
    """Return the texts among a call's arguments in their place."""
    plain = (one.value for one in node.args if isinstance(one, ast.Constant))
    return [text for text in plain if isinstance(text, str)]


def _pairs(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield (name, value) of what a node gives to names."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            name = target.id if isinstance(target, ast.Name) else _reference(target)
            if name is not None:
                yield name, node.value
    elif isinstance(node, ast.ClassDef):
        for one in node.body:
            if isinstance(one, ast.AnnAssign) and one.value and isinstance(one.target, ast.Name):
                yield one.target.id, _field_default(one.value)
            elif isinstance(one, ast.Assign):
                yield from _pairs(one)
    elif isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield key.value, value
    elif isinstance(node, ast.Call):
        keywords = {word.arg: word.value for word in node.keywords if word.arg}
        if not _is_option(node):
            yield from keywords.items()
            return
        name = max((one.lstrip("-") for one in _texts(node)), key=len)
        switch = {"store_true": False, "store_false": True}
        action = keywords.get("action")
        default = switch.get(str(getattr(action, "value", "")))
        yield name, keywords.get("default", ast.Constant(default, lineno=node.lineno))


def _is_option(node: ast.AST) -> bool:
    """Return whether a node is `parser.add_argument("--name", ...)`."""
    return (isinstance(node, ast.Call) and _last_name(node.func) == "add_argument"
            and any(text.startswith("-") for text in _texts(node)))  # fmt: skip


def _field_default(node: ast.AST) -> ast.AST:
    """Return the default in `field(default=...)`, `field(default_factory=lambda: ...)`."""
    if isinstance(node, ast.Call) and _last_name(node.func) == "field":
        for word in node.keywords:
            if word.arg == "default":
                return word.value
            if word.arg == "default_factory" and isinstance(word.value, ast.Lambda):
                return word.value.body
    return node


def _constants(tree: ast.AST) -> dict[str, list[Any]]:
    """Return name -> the distinct plain values that a file gives it anywhere."""
    found: dict[str, list[Any]] = {}
    for node in ast.walk(tree):
        pairs = list(_pairs(node))
        if isinstance(node, ast.FunctionDef):
            named = [one.arg for one in node.args.args]
            defaults = node.args.defaults
            pairs += zip(named[len(named) - len(defaults) :], defaults, strict=True)
        for name, value in pairs:
            try:
                plain = _whole(value) if _reference(value) is None else None
            except NotPlain:
                continue
            known = found.setdefault(name.replace("-", "_"), [])
            if plain is not None and plain not in known:
                known.append(plain)
    return found


def _reference(node: ast.AST) -> str | None:
    """Return the name that `name`, `args.name` or `config["name"]` refers to."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return str(node.slice.value)
    return _last_name(node) or None


def _whole(node: ast.AST | None) -> Any:
    try:
        return _plain(node)
    except RecursionError:
        raise NotPlain("nested too deeply") from None


def _parsed(text: str, mode: str) -> Any:
    if len(text) > _LONGEST:
        raise NotPlain(f"{len(text):,} characters; allowed: {_LONGEST:,}")
    try:
        return ast.parse(text.strip() if mode == "eval" else text, mode=mode)
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
    raise NotPlain(f"{_shown(node)} is not a plain value")


def _number(node: ast.UnaryOp | ast.BinOp) -> Any:
    """Return what arithmetic of numbers makes, within sane sizes."""
    if isinstance(node, ast.UnaryOp):
        inner = _plain(node.operand)
        if isinstance(node.op, ast.USub) and isinstance(inner, int | float):
            return -inner
        raise NotPlain(f"{_shown(node)} is not a plain value")
    left, right = _plain(node.left), _plain(node.right)
    act = _OPERATORS.get(type(node.op))
    numbers = all(isinstance(x, int | float) and abs(x) < _LARGEST for x in (left, right))
    if act is None or not numbers or (act is operator.pow and abs(right) > 64):
        raise NotPlain(f"{_shown(node)} is not a plain value")
    try:
        return act(left, right)
    except (ArithmeticError, ValueError) as error:
        raise NotPlain(f"{_shown(node)}: {error}") from None


def _call(node: ast.Call) -> Any:
    name = _last_name(node.func)
    if name in _MAPPINGS and not node.args and all(word.arg for word in node.keywords):
        return {str(word.arg): _plain(word.value) for word in node.keywords}
    if name in _CASTS and len(node.args) == 1 and not node.keywords:
        try:
            return _CASTS[name](_plain(node.args[0]))
        except (TypeError, ValueError, OverflowError) as error:
            raise NotPlain(f"{_shown(node)}: {error}") from None
    raise NotPlain(f"{_shown(node)} is not a plain value")


def _last_name(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _shown(node: ast.AST | None) -> str:
    text = ast.unparse(node) if node is not None else "an empty value"
    return text if len(text) <= 60 else f"{text[:57]}..."
