"""Finds a Python file's loops, and the values and calls assigned to names; runs no code."""

from __future__ import annotations

import ast
import copy
import math
from collections.abc import Collection, Mapping
from contextlib import suppress
from itertools import chain
from typing import Any

from ..foreign_names.plain_values import (
    TWO_OF_TRAIN,
    Called,
    NotPlain,
    Unread,
    last_name,
    nodes_of,
    plain_node,
    shown_node,
)

SCHEDULES = (
    "constant_schedule",
    "linear_schedule",
    "polynomial_schedule",
    "cosine_decay_schedule",
    "warmup_cosine_decay_schedule",
    "warmup_constant_schedule",
)
"""Optax schedules that have a counterpart."""
_MOST_STEPS = 4  # from a name to its value
_RANGES = ("range", "trange")
_TRAINS = ("learn", "step", "train")
_CASTS = ("int", "float", "str", "bool")
_TRANSFORMS = ("jit", "vmap", "pmap")

Pair = tuple[str, ast.AST]


class Names:
    """The values that are assigned to names anywhere in a file."""

    def __init__(self, tree: ast.AST) -> None:
        self.constants = constants_of(tree)
        self.definitions = _definitions_by_name(tree)
        self.changes = changes_in(tree)
        self.passed = _other_variables(tree)

    def value(self, node: ast.AST, depth: int = 0) -> Any:
        """Return the literal value of a node, resolving names that the file assigns once.

        Return `Unread` for other values.
        """
        name = reference(node)
        made = self._follow_name(node)
        if name is None:
            with suppress(NotPlain, RecursionError):
                return plain_node(node)
        elif self._has_one_constant(node, name) and called_name(made) not in SCHEDULES:
            return self.constants[name][0]
        value = Unread(last_name(node) or shown_node(node))
        value.line = getattr(node, "lineno", 0)
        if depth < _MOST_STEPS:
            value.call = self._read_call(made, depth + 1)
        return value

    def single(self) -> dict[str, Any]:
        """Return the names that have one plain value in the whole file."""
        names = (name for name in self.constants if name not in self.passed)
        return {name: self.constants[name][0] for name in names if self._is_single(name)}

    def _has_one_constant(self, node: ast.AST, name: str) -> bool:
        """Return whether a name has one plain value, which nothing in the file changes."""
        passed = isinstance(node, ast.Name) and name in self.passed
        return self._is_single(name) and not passed

    def _is_single(self, name: str) -> bool:
        return len(self.constants.get(name, [])) == 1 and name not in self.changes

    def _follow_name(self, node: ast.AST) -> ast.AST:
        """Resolve a name to the only call or attribute that the file assigns to it."""
        for _ in range(_MOST_STEPS):
            if not isinstance(node, ast.Name) or len(self.definitions.get(node.id, [])) != 1:
                return node
            node = self.definitions[node.id][0]
        return node

    def seeds_of(self, tree: ast.AST, trains: Collection[str]) -> Any:
        """Return the number of keys with which a file vmaps its training; None if it does not."""
        calls = nodes_of(tree, ast.Call)
        vmapped = [call for call in calls if self._is_vmapped(call.func, trains)]
        given = [self._follow_name(one) for call in vmapped for one in call.args]
        counts = [self.value(one) for one in map(_keys_count, given) if one is not None]
        if not vmapped or (counts and all(count == counts[0] for count in counts)):
            return next(iter(counts), None)
        value = Unread(shown_node(vmapped[0]))
        value.line = vmapped[0].lineno
        return value

    def _is_vmapped(self, node: ast.AST, trains: Collection[str]) -> bool:
        """Return whether a function is the training in `vmap`, and perhaps in `jit`."""
        is_mapped = False
        for _ in range(_MOST_STEPS):
            node = self._follow_name(node)
            if not isinstance(node, ast.Call) or last_name(node.func) not in _TRANSFORMS:
                break
            is_mapped |= last_name(node.func) != "jit"
            node = next(iter(node.args), node.func)
        return is_mapped and any(last_name(part) in trains for part in ast.walk(node))

    def _read_call(self, node: ast.AST, depth: int) -> Called | None:
        match node:
            case ast.Name() | ast.Attribute():
                return Called(last_name(node), None)
            case ast.Call(func=func, args=args, keywords=words) if all(one.arg for one in words):
                positions = tuple(self.value(self._fill_constants(one), depth) for one in args)
                named = {
                    str(word.arg): self.value(self._fill_constants(word.value), depth)
                    for word in words
                }
                return Called(last_name(func), positions, named)
            case _:
                return None

    def _fill_constants(self, node: ast.AST) -> ast.AST:
        """Replace the names in an expression with the numbers that the file assigns to them."""
        if not isinstance(node, ast.BinOp | ast.UnaryOp):
            return node
        return _Filling(self.constants).visit(copy.deepcopy(node))


def _keys_count(node: ast.AST) -> ast.AST | None:
    """Return the second argument of `jax.random.split(key, num)`; None for another expression."""
    if not isinstance(node, ast.Call) or last_name(node.func) != "split":
        return None
    named = [word.value for word in node.keywords if word.arg == "num"]
    return next(iter([*node.args[1:2], *named]), ast.Constant(2))


class _Filling(ast.NodeTransformer):
    """Replaces each name to which the file assigns a single number with that number."""

    def __init__(self, constants: Mapping[str, list[Any]]) -> None:
        self.constants = constants

    def visit(self, node: ast.AST) -> ast.AST:
        if not isinstance(node, ast.expr):
            return self.generic_visit(node)
        found = self.constants.get(reference(node) or "", [])
        if len(found) == 1 and isinstance(found[0], int | float):
            return ast.copy_location(ast.Constant(found[0]), node)
        return self.generic_visit(node)


# ---------------------------------------------------------------------- names and values


def pairs_of(node: ast.AST) -> list[Pair]:
    """Return (name, value) for all names that a node sets.

    A class sets its fields, a dictionary sets its string keys, and a call sets its keywords.
    `parser.add_argument("--name", default=...)` sets the name of the option.
    """
    match node:
        case ast.Assign(targets=targets, value=value):
            return [(name, value) for name in map(reference, targets) if name is not None]
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            return [(name, _field_default(value))]
        case ast.ClassDef(body=body):
            return list(chain.from_iterable(map(_field_pairs, body)))
        case ast.Dict(keys=keys, values=values):
            named = zip(map(_text_of, keys), values, strict=True)
            return [(name, value) for name, value in named if name is not None]
        case ast.Call() if is_option(node):
            return [_option_default(node)]
        case ast.Call(func=ast.Name(id="setattr"), args=[_, ast.Constant(value=str(name)), value]):
            return [(name, value)]
        case ast.Call(keywords=words):
            return [(word.arg, word.value) for word in words if word.arg]
    return []


def _text_of(key: ast.AST | None) -> str | None:
    match key:
        case ast.Constant(value=str(text)):
            return text
        case _:
            return None


def is_option(node: ast.AST) -> bool:
    """Return whether a node is `parser.add_argument("--name", ...)`."""
    return (
        isinstance(node, ast.Call)
        and last_name(node.func) == "add_argument"
        and any(text.startswith("-") for text in texts_in(node))
    )


def _option_default(node: ast.Call) -> Pair:
    """Return the name and the default of `parser.add_argument("--name", ...)`."""
    keywords = {word.arg: word.value for word in node.keywords}
    name = max((one.lstrip("-") for one in texts_in(node)), key=len)
    action = str(getattr(keywords.get("action"), "value", ""))
    default = {"store_true": False, "store_false": True}.get(action)
    return name, keywords.get("default", ast.Constant(default, lineno=node.lineno))


def _field_pairs(statement: ast.AST) -> list[Pair]:
    """Return the names set by a statement in a class body."""
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        return pairs_of(statement)
    return []


def _field_default(node: ast.AST) -> ast.AST:
    """Return the default in `field(default=...)` or `field(default_factory=lambda: ...)`."""
    if not isinstance(node, ast.Call) or last_name(node.func) != "field":
        return node
    for word in node.keywords:
        match word:
            case ast.keyword(arg="default", value=value):
                return value
            case ast.keyword(arg="default_factory", value=ast.Lambda(body=body)):
                return body
            case _:
                pass
    return node


def constants_of(tree: ast.AST) -> dict[str, list[Any]]:
    """Return the distinct plain values assigned to each name, anywhere in a file."""
    found: dict[str, list[Any]] = {}
    for node in ast.walk(tree):
        for name, value in (*pairs_of(node), *_argument_defaults(node)):
            known = found.setdefault(name.replace("-", "_"), [])
            plain = None
            if reference(value) is None:
                with suppress(NotPlain, RecursionError):
                    plain = plain_node(value)
            if plain is not None and plain not in known:
                known.append(plain)
    return found


def _argument_defaults(node: ast.AST) -> list[Pair]:
    if not isinstance(node, ast.FunctionDef) or not node.args.defaults:
        return []
    defaults = node.args.defaults
    named = [one.arg for one in (*node.args.posonlyargs, *node.args.args)]
    return list(zip(named[-len(defaults) :], defaults, strict=True))


# ------------------------------------------------------------------- changes of values


def changes_in(tree: ast.AST) -> dict[str, Unread]:
    r"""Return the names whose values a file changes in a way that cannot be read.

    >>> changes_in(ast.parse("lr *= 2\nargs.steps = args.steps // n\nb = int(b)"))
    {'lr': 'lr *= 2', 'steps': 'args.steps // n'}
    """
    found: dict[str, Unread] = {}
    for node in ast.walk(tree):
        for target, value in _changed_targets(node):
            name = (reference(target) or "").replace("-", "_")
            if name and name.lower() != "seed" and not _is_own(target):
                found.setdefault(name, _unread(value))
    return found


def _changed_targets(node: ast.AST) -> list[tuple[ast.AST, ast.AST]]:
    """Return (target, value) for a statement that changes a name's value."""
    match node:
        case ast.AugAssign(target=target):
            return [(target, node)]
        case ast.Assign(targets=targets, value=value):
            return [(target, value) for target in targets if _is_computed(target, value)]
        case _:
            return []


def _is_computed(target: ast.AST, value: ast.AST) -> bool:
    """Return whether a value is computed from the target's old one, or set on an object."""
    name = reference(target)
    if name is None or _is_plain(value) or _copied_name(value) == name:
        return False
    if isinstance(target, ast.Name):
        return any(one.id == name for one in nodes_of(value, ast.Name))
    return _copied_name(value) is None


def _is_plain(node: ast.AST) -> bool:
    with suppress(NotPlain, RecursionError):
        plain_node(node)
        return reference(node) is None
    return False


def _copied_name(node: ast.AST) -> str | None:
    """Return the name that a value copies, as in `args.lr` and `int(args.lr)`."""
    while isinstance(node, ast.Call) and last_name(node.func) in _CASTS and len(node.args) == 1:
        node = node.args[0]
    return reference(node)


def _is_own(target: ast.AST) -> bool:
    """Return whether a target is an attribute of `self`, which is not a setting of the file."""
    return isinstance(target, ast.Attribute) and last_name(target.value) in ("self", "cls")


def _unread(node: ast.AST) -> Unread:
    value = Unread(shown_node(node))
    value.line = getattr(node, "lineno", 0)
    return value


def _other_variables(tree: ast.AST) -> set[str]:
    """Return the variables whose value is not the one that the file assigns to their name.

    They are parameters with a default, for which a call passes another value, and variables that
    are computed from a setting of their name, as in `lr = 2 * args.lr`.
    """
    functions = {node.name: node for node in nodes_of(tree, ast.FunctionDef)}
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            found |= _computed_variables(node)
        if not isinstance(node, ast.Call) or called_name(node) not in functions:
            continue
        function = functions[called_name(node)]
        defaults = dict(_argument_defaults(function))
        for name, value in (*_positional_values(function, node), *pairs_of(node)):
            if name in defaults and not _is_same(name, value, defaults[name]):
                found.add(name)
    return found


def _computed_variables(node: ast.Assign) -> set[str]:
    names = {one.id for one in node.targets if isinstance(one, ast.Name)}
    if _is_plain(node.value) or _copied_name(node.value) in names:
        return set()
    return names & set(filter(None, map(reference, ast.walk(node.value))))


def _positional_values(function: ast.FunctionDef, call: ast.Call) -> list[Pair]:
    names = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    if names[:1] in (["self"], ["cls"]):
        names = names[1:]
    return list(zip(names, call.args, strict=False))


def _is_same(name: str, value: ast.AST, default: ast.AST) -> bool:
    return _copied_name(value) == name or ast.unparse(value) == ast.unparse(default)


def _definitions_by_name(tree: ast.AST) -> dict[str, list[ast.AST]]:
    """Return the calls and attributes assigned to each name in a file, without duplicates."""
    found: dict[str, dict[str, ast.AST]] = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        for name, value in pairs_of(node):
            if isinstance(value, ast.Call | ast.Attribute | ast.Name):
                found.setdefault(name, {}).setdefault(ast.unparse(value), value)
    return {name: list(values.values()) for name, values in found.items()}


def mentioned_in(tree: ast.AST) -> set[str]:
    """Return all names in a file, plus `TWO_OF_TRAIN` if its `train` returns two values."""
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name):
                found.add(name)
            case ast.keyword(arg=str(name)):
                found.add(name)
            case ast.Assign(targets=[ast.Tuple(elts=[_, _])], value=ast.Call(func=func)) if (
                last_name(func) == "train"
            ):
                found.add(TWO_OF_TRAIN)
            case _:
                pass
    return found


_PLAIN_WRAPPERS = ("RecordEpisodeStatistics", "RecordVideo", "HumanRendering", "OrderEnforcing",
                   "PassiveEnvChecker", "RenderCollection", "ClipAction")  # fmt: skip
"""Gymnasium's wrappers that leave training as it is here, where actions are clipped anyway."""


def wrapper_names(tree: ast.AST) -> set[str]:
    r"""Return names of wrappers: imported from a module of wrappers, or subclasses of one.

    >>> sorted(wrapper_names(ast.parse("from gym.wrappers import A\nclass B(gym.Wrapper): ...")))
    ['A', 'B']
    """
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module), names=names) if module.endswith("wrappers"):
                found |= {one.asname or one.name for one in names}
            case ast.ClassDef(name=name, bases=bases):
                if any(last_name(base).endswith("Wrapper") for base in bases):
                    found.add(name)
            case _:
                pass
    return found


def is_wrapper(node: ast.Call, names: Collection[str]) -> bool:
    """Return whether a call wraps an environment so that training changes."""
    name = last_name(node.func)
    if name in _PLAIN_WRAPPERS:
        return False
    return name in names or owner_of(node) == "wrappers"


def reference(node: ast.AST) -> str | None:
    """Return the name that `name`, `args.name` or `config["name"]` refers to."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return str(node.slice.value)
    return last_name(node) or None


def called_name(node: ast.AST) -> str:
    """Return `train` for the call `ppo.train(...)` and for the expression `ppo.train`."""
    if isinstance(node, ast.Call):
        node = node.func
    return last_name(node)


def owner_of(node: ast.Call) -> str:
    """Return `gym` for the call `gym.make(...)`, and "" for `make(...)`."""
    match node.func:
        case ast.Attribute(value=value):
            return last_name(value)
        case _:
            return ""


def texts_in(node: ast.Call) -> list[str]:
    """Return a call's positional arguments that are strings."""
    plain = (one.value for one in node.args if isinstance(one, ast.Constant))
    return [text for text in plain if isinstance(text, str)]


# -------------------------------------------------------------------- lengths and loops


def length_of(node: ast.AST) -> ast.AST:
    """Return the length of a list, including `[one] * 8` and `[... for i in range(8)]`."""
    match node:
        case ast.List(elts=items) if not any(isinstance(item, ast.Starred) for item in items):
            return ast.Constant(len(items), lineno=node.lineno)
        case ast.BinOp(left=ast.List(elts=[_]), op=ast.Mult(), right=count):
            return count
        case ast.ListComp(
            generators=[
                ast.comprehension(iter=ast.Call(func=ast.Name(id="range"), args=[count]), ifs=[])
            ]
        ):
            return count
        case _:
            return node


def loops_in(
    tree: ast.AST, calls: tuple[str, ...], known: Mapping[str, list[Any]]
) -> dict[str, int]:
    """Return how often loops repeat a training call without creating a new agent."""
    trains, makes = dict[str, list[ast.AST]](), set[int]()

    def walk(node: ast.AST, around: list[ast.AST]) -> None:
        if isinstance(node, ast.Call):
            called = last_name(node.func)
            if called in _TRAINS:
                trains.setdefault(called, around)
            elif called in calls:
                makes.update(map(id, around))
        if isinstance(node, ast.For | ast.While):
            around = [*around, node]
        for child in ast.iter_child_nodes(node):
            walk(child, around)

    walk(tree, [])

    def repeats(around: list[ast.AST]) -> int:
        return math.prod(_loop_count(loop, known) for loop in around if id(loop) not in makes)

    found = {called: repeats(around) for called, around in trains.items()}
    if "learn" in found:
        found["learn"] *= max(map(_most_learns, _bodies_of(tree)))
    return found


def _bodies_of(tree: ast.AST) -> list[list[ast.stmt]]:
    """Return the lists of statements in a file."""
    found = list[list[ast.stmt]]()
    for node in ast.walk(tree):
        found += [one for _, one in ast.iter_fields(node) if _is_body(one)]
    return found


def _is_body(field: Any) -> bool:
    return isinstance(field, list) and bool(field) and isinstance(field[0], ast.stmt)


def _most_learns(body: list[ast.stmt]) -> int:
    """Return how often a list of statements trains the same agent with `agent.learn(...)`."""
    counts, most = dict[str, int](), 1
    for node in body:
        match node:
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=agent, attr="learn"))):
                name = ast.unparse(agent)
                counts[name] = counts.get(name, 0) + 1
                most = max(most, counts[name])
            case ast.Assign(targets=targets):
                for target in targets:
                    counts.pop(ast.unparse(target), None)
            case _:
                pass
    return most


def _loop_count(loop: ast.AST, known: Mapping[str, list[Any]]) -> int:
    """Return the number of iterations of a loop over `range(...)` or a list; 0 if unknown."""
    match loop:
        case ast.For(iter=ast.List(elts=items) | ast.Tuple(elts=items)):
            return len(items)
        case ast.For(iter=ast.Call(func=func, args=args)) if last_name(func) in _RANGES:
            numbers = [_number_in(arg, known) for arg in args]
            values = [one for one in numbers if one is not None]
            known_all = len(values) == len(args) and 1 <= len(args) <= 3
            if not known_all or 0 in values[2:]:
                return 0
            return len(range(*values))
        case _:
            return 0


def _number_in(node: ast.AST, known: Mapping[str, list[Any]]) -> int | None:
    name = reference(node)
    values: list[Any] = []
    if name is not None:
        values = known.get(name, [])
    else:
        with suppress(NotPlain, RecursionError):
            values = [plain_node(node)]
    if len(values) != 1 or not isinstance(values[0], int):
        return None
    return values[0]
