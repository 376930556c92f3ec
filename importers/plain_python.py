"""Plain values in Python sources: `dict(pi=[64])`, `nn.ReLU`, `2**11`; nothing is ever run."""

from __future__ import annotations

import ast
import copy
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ..errors import ConfigError

_LONGEST = 200_000
_MOST_STEPS = 4  # from a name to what it stands for
SCHEDULES = (
    "constant_schedule",
    "linear_schedule",
    "polynomial_schedule",
    "cosine_decay_schedule",
    "warmup_cosine_decay_schedule",
    "warmup_constant_schedule",
)
"""Schedules of optax that have a counterpart."""
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
_RANGES = ("range", "trange")
_GYMS = ("gym", "gymnasium", "gymnax")  # whose `make` takes keys of the environment
_FRAMEWORKS = {"gymnax": "", "brax": "brax:", "gymnasium": "", "envpool": "", "xland": ""}
_SEEDED = "a random key; see seed"
OBJECTS: Mapping[str, str] = {
    "env": "an object that cannot be read",
    "optimizer": "an object that cannot be read",
    "env_params": "an object; give its keys one by one, such as env.max_steps_in_episode",
    "env_factory": "a function that makes the environment; name the environment as env",
    "eval_env": "an object; see eval_env and `evaluation`",
    "model": "an object that cannot be read; its network is the default one",
    "key": _SEEDED, "rng": _SEEDED, "policy_key": _SEEDED,
    "callback": "callbacks of another program do not run here",
    "action_space": "an object; see `distribution`",
}  # fmt: skip
"""Argument that is mostly an object -> how it is listed where it cannot be read."""
TWO_OF_TRAIN = "a train that gives two values"
OTHERS = ("a2c", "ars", "crossq", "ddpg", "dqn", "her", "iqn", "pqn", "qrdqn", "sac", "td3", "tqc",
          "trpo")  # fmt: skip
_TRAINS = ("learn", "step", "train")
_FOR_EVALUATION = re.compile(r"(?:eval|evaluation|test|val)_?\w*envs?")


class NotPlain(ConfigError):
    """A text that is not a plain value; the message names the part."""


@dataclass(frozen=True)
class Called:
    """What an object is made with: `optax.adam(1e-3, b1=0.9)`, or `optax.adam` alone."""

    name: str  # the last part
    args: tuple[Any, ...] | None  # None if nothing is called
    words: Mapping[str, Any] = field(default_factory=dict[str, Any])


class Unread(str):
    """The text of an expression that is not a plain value."""

    line = 0
    call: Called | None = None


def value_of(text: str) -> Any:
    """Return the value of an expression; a name is a text, `torch.nn.ReLU` its last part.

    >>> value_of("dict(net_arch=dict(pi=[64, 64], vf=[64, 64]), activation_fn=nn.ReLU)")
    {'net_arch': {'pi': [64, 64], 'vf': [64, 64]}, 'activation_fn': 'ReLU'}
    """
    try:
        return _plain(_parsed(" ".join(text.split()), "eval").body)
    except RecursionError:
        raise NotPlain("nested too deeply") from None


@dataclass
class Source:
    """The values that a Python file gives to the names of a table."""

    named: dict[str, Any] = field(default_factory=dict[str, Any])  # `Unread` if not plain
    env: str | None = None  # the text given to a `make`, or a class
    calls: list[str] = field(default_factory=list[str])  # the table's own calls
    others: list[str] = field(default_factory=list[str])  # other algorithms that it makes
    # `learn`, `step` or `train` -> how often a loop calls it on one agent; 0 if that is unknown
    loops: dict[str, int] = field(default_factory=dict[str, int])
    # argument of the table's calls -> its first object, of those in `OBJECTS`
    objects: dict[str, Unread] = field(default_factory=dict[str, Unread])
    mentioned: set[str] = field(default_factory=set[str])  # names anywhere, and `TWO_OF_TRAIN`


def read_source(
    text: str,
    known: Callable[[str], bool | str],
    calls: tuple[str, ...] = (),
    given: Mapping[str, Any] | None = None,
    around: Mapping[str, str] | None = None,
    order: Mapping[str, str] | None = None,
    *,
    made: Mapping[str, str] | None = None,
) -> Source:
    r"""Return the values that a Python file gives to known names, and to names next to them.

    It reads assignments, dictionaries, arguments of calls, fields of classes and defaults of
    argparse. Two different values of a known name are refused, unless it is in `given`, or its
    fate (what `known` returns) is "left out". `around`, `order` and `made` are those of `System`.

    >>> read_source("a = 1\nPPO(lr=2 * 4)\n", lambda name: name == "lr", ("PPO",)).named
    {'lr': 8}
    """
    given, reader = given or {}, _Reader(known, calls, around or {}, order or {})
    reader.made = made or {}
    tree = _parsed(text, "exec")
    try:
        reader.constants, reader.definitions = _constants(tree), _definitions(tree)
        reader.visit(tree)
        reader.found.mentioned = _mentioned(tree)
    except RecursionError:
        raise NotPlain("nested too deeply") from None
    found = reader.found
    found.loops = _loops(tree, calls, reader.constants)
    for name, values in reader.values.items():
        plain = [one for one in values if not isinstance(one[0], Unread)]
        (first, at), *others = plain or values
        second = next((one for one in others if one[0] != first), None) if plain else None
        if second and name not in given and known(name) not in (False, "", "left out"):
            both = f"{first!r} (line {at}) and {second[0]!r} (line {second[1]})"
            raise NotPlain(f"{name} is {both}; give one of them", flags={name: first})
        found.named[name] = first
    envs = dict.fromkeys(reader.envs)
    if len(envs) > 1 and not {"env", "env_id", "env_name", "ENV_NAME"} & set(given):
        raise NotPlain(f"it makes {' and '.join(map(repr, envs))}; name one", env=next(iter(envs)))
    found.env = next(iter(envs), reader.env_class)
    return found


class _Reader:
    def __init__(
        self,
        known: Callable[[str], bool | str],
        calls: tuple[str, ...],
        around: Mapping[str, str],
        order: Mapping[str, str],
    ) -> None:
        self.known, self.calls, self.around, self.order = known, calls, around, order
        self.found = Source()
        self.made: Mapping[str, str] = {}
        self.constants: dict[str, list[Any]] = {}
        self.definitions: dict[str, list[ast.AST]] = {}
        self.values: dict[str, list[tuple[Any, int]]] = {}
        self.envs: list[str] = []
        self.env_class: str | None = None

    def visit(self, node: ast.AST) -> None:
        """Read a node and its children, but not the inside of a value that was taken whole."""
        if isinstance(node, ast.Call) and self._makes_another(node):
            return
        pairs = [(name.replace("-", "_"), value) for name, value in _pairs(node)]
        own = isinstance(node, ast.Call) and self._is_own_call(node)
        ordered = isinstance(node, ast.Call) and (own or _last_name(node.func) in self.order)
        if isinstance(node, ast.Call) and ordered:
            pairs += self._positional(node)
        mapping = isinstance(node, ast.Dict | ast.ClassDef) or (
            isinstance(node, ast.Call) and _last_name(node.func) in _MAPPINGS
        )
        wraps = _last_name(getattr(node, "func", node)) == "VecNormalize"  # its gamma is another
        several = sum(bool(self.known(name)) for name, _ in pairs) > 1
        container = own or _is_option(node) or (several and mapping)
        firm = container or mapping or ordered
        beside = self._taken_beside(node, pairs)
        whole = {
            id(value)
            for name, value in pairs
            if (container or beside or self.known(name))
            and not (wraps and name == "gamma")
            and self._keep(name, value, firm or (beside > 1 and not self.known(name)))
            and self.known(name)
        }
        whole |= {id(value) for name, value in pairs if _FOR_EVALUATION.fullmatch(name)}
        if isinstance(node, ast.Call):
            self._read_call(node, dict(pairs))
        elif isinstance(node, ast.Assign) and "env" in map(_last_name, node.targets):
            made = node.value.func if isinstance(node.value, ast.Call) else node.value
            self.env_class = self.env_class or _last_name(made) or None
        for child in ast.iter_child_nodes(node):
            inner = child.value if isinstance(child, ast.keyword) else child
            if id(inner) not in whole or not isinstance(inner, ast.Dict | ast.Call):
                self.visit(child)

    def _taken_beside(self, node: ast.AST, pairs: list[tuple[str, ast.AST]]) -> int:
        """Return how many plain values of a call or dictionary are taken; the rest is listed."""
        if (
            not isinstance(node, ast.Call | ast.Dict)
            or _last_name(getattr(node, "func", node)) in self.around
        ):
            return 0
        taken = [value for name, value in pairs if self.known(name) == "taken"]
        return sum(not isinstance(self._value(value), Unread) for value in taken)

    def _makes_another(self, node: ast.Call) -> bool:
        """Return whether a call makes another algorithm: `SAC(...)`, `get_algo("sac")`."""
        name = _last_name(node.func)
        made = {"create": _owner(node), "get_algo": "".join(_texts(node))}.get(name, name)
        self.found.others += [made] if made.lower() in OTHERS else []
        return made.lower() in OTHERS

    def _is_own_call(self, node: ast.Call) -> bool:
        name, owner = _last_name(node.func), _owner(node)
        owned = owner.endswith(("Trainer", "PPO")) or owner in self.made
        makes_others = name.lower() == "create" and not owned
        if name not in self.calls or makes_others:
            return False
        self.found.calls.append(name)
        return True

    def _positional(self, node: ast.Call) -> list[tuple[str, ast.AST]]:
        """Return (name, value) of the arguments without a name; `System.order` has the names."""
        called = _last_name(node.func)
        names = self.order.get(called, "").split()
        pairs = list(zip(names, node.args, strict=False))
        starred = [name for name, one in pairs if isinstance(one, ast.Starred) and name != "*"]
        if len(node.args) > len(names) or starred:
            text = f"{called} (line {node.lineno}) has {len(node.args)} arguments without a name, "
            raise NotPlain(f"{text}of which {0 if starred else len(names)} can be read; name them")
        return [(name, value) for name, value in pairs if name not in ("_", "*")]

    def _keep(self, name: str, node: ast.AST, firm: bool) -> bool:
        """Keep a value; one that is not plain only where the name is surely the table's."""
        value = self._value(node)
        listed = self.known(name) == "left out"  # in the head of the study, whatever its value
        if isinstance(value, Unread) and isinstance(node, ast.Call) and not firm:
            return False  # such as vec_env = make_vec_env(...), which is read itself
        if isinstance(value, Unread) and not listed and (not firm or name in OBJECTS):
            if firm:
                self.found.objects.setdefault(name, value)
            return False
        self.values.setdefault(name, []).append((value, getattr(node, "lineno", 0)))
        return True

    def _value(self, node: ast.AST, depth: int = 0) -> Any:
        """Return a plain value, also the one that the file gives to a name, or `Unread`."""
        name = _reference(node)
        constants = self.constants.get(name or "", [])
        made = self._definition(node)
        with suppress(NotPlain, RecursionError):
            if name is None:
                return _plain(node)
            if len(constants) == 1 and _last_name(getattr(made, "func", made)) not in SCHEDULES:
                return constants[0]
        named = isinstance(node, ast.Name | ast.Attribute)
        value = Unread(_last_name(node) if named else _shown(node))
        value.line = getattr(node, "lineno", 0)
        value.call = self._called(made, depth + 1) if depth < _MOST_STEPS else None
        return value

    def _definition(self, node: ast.AST) -> ast.AST:
        """Follow a name to the one call or attribute that the file gives it."""
        for _ in range(_MOST_STEPS):
            known = self.definitions.get(node.id, []) if isinstance(node, ast.Name) else []
            if len(known) != 1:
                return node
            node = known[0]
        return node

    def _called(self, node: ast.AST, depth: int) -> Called | None:
        if isinstance(node, ast.Name | ast.Attribute):
            return Called(_last_name(node), None)
        if not isinstance(node, ast.Call) or any(word.arg is None for word in node.keywords):
            return None
        args = tuple(self._value(self._filled(one), depth) for one in node.args)
        words = {
            str(word.arg): self._value(self._filled(word.value), depth) for word in node.keywords
        }
        return Called(_last_name(node.func), args, words)

    def _filled(self, node: ast.AST) -> ast.AST:
        """Return an expression with the numbers that the file gives to its names."""
        if not isinstance(node, ast.BinOp | ast.UnaryOp):
            return node
        return _Filling(self.constants).visit(copy.deepcopy(node))

    def _read_call(self, node: ast.Call, given: Mapping[str, ast.AST]) -> None:
        """Keep a wrapper as the name that it amounts to, and the text that makes an env."""
        called = _last_name(node.func)
        values = [
            self._value(one) for one in node.args if isinstance(one, ast.Constant | ast.Name)
        ]
        texts = [one for one in values if isinstance(one, str) and not isinstance(one, Unread)]
        name, _, keyword = self.around.get(called, "").partition("=")
        if keyword in given:
            self._keep(name, _counted(given[keyword]), True)
        elif name and not keyword:
            plain = {key: self._value(value) for key, value in given.items()}
            self.values.setdefault(name, []).append((plain or True, node.lineno))
        for key, value in given.items() if called == "make" and _owner(node) in _GYMS else ():
            if not self.known(key):
                self._keep(f"env.{key}", value, True)
        setting = self.made.get(_owner(node)) if called.lower() == "create" else None
        if setting and texts:
            self.values.setdefault(setting, []).append((texts[0], node.lineno))
        created = called.lower() == "create" and _owner(node) == "Environment"
        if texts and (called in _MAKERS or created):
            framed = len(texts) > 1 and texts[0] in _FRAMEWORKS
            self.envs.append(_FRAMEWORKS[texts[0]] + texts[1] if framed else texts[0])


def _loops(tree: ast.AST, calls: tuple[str, ...], known: dict[str, list[Any]]) -> dict[str, int]:
    """Return how often loops around a training call run that are not around its agent."""
    trains, makes = dict[str, list[ast.AST]](), set[int]()

    def walk(node: ast.AST, around: list[ast.AST]) -> None:
        if isinstance(node, ast.Call):
            called = _last_name(node.func)
            if called in _TRAINS:
                trains.setdefault(called, around)
            elif called in calls:
                makes.update(map(id, around))
        inside = [*around, node] if isinstance(node, ast.For | ast.While) else around
        for child in ast.iter_child_nodes(node):
            walk(child, inside)

    walk(tree, [])
    return {
        called: math.prod(_times(loop, known) for loop in around if id(loop) not in makes)
        for called, around in trains.items()
    }


def _times(loop: ast.AST, known: dict[str, list[Any]]) -> int:
    """Return how often a loop over `range(...)` or a list runs; 0 if that is unknown."""
    match loop:
        case ast.For(iter=ast.List(elts=items) | ast.Tuple(elts=items)):
            return len(items)
        case ast.For(iter=ast.Call(func=func, args=args)) if _last_name(func) in _RANGES:
            values = [one for one in (_number_in(arg, known) for arg in args) if one is not None]
            known_all = len(values) == len(args) and 1 <= len(args) <= 3
            return len(range(*values)) if known_all and 0 not in values[2:] else 0
        case _:
            return 0


def _number_in(node: ast.AST, known: dict[str, list[Any]]) -> int | None:
    name = _reference(node)
    values = known.get(name, []) if name else []
    with suppress(NotPlain, RecursionError):
        values = values if name else [_plain(node)]
    return values[0] if len(values) == 1 and isinstance(values[0], int) else None


def _counted(node: ast.AST) -> ast.AST:
    """Return the length of a list, also of `[one] * 8` and `[... for i in range(8)]`."""
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


def _owner(node: ast.Call) -> str:
    return _last_name(node.func.value) if isinstance(node.func, ast.Attribute) else ""


def _texts(node: ast.Call) -> list[str]:
    plain = (one.value for one in node.args if isinstance(one, ast.Constant))
    return [text for text in plain if isinstance(text, str)]


def _pairs(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield (name, value) of all names that a node sets."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            name = target.id if isinstance(target, ast.Name) else _reference(target)
            if name is not None:
                yield name, node.value
    elif isinstance(node, ast.AnnAssign) and node.value and isinstance(node.target, ast.Name):
        yield node.target.id, _field_default(node.value)
    elif isinstance(node, ast.ClassDef):
        for one in node.body:
            if isinstance(one, ast.Assign | ast.AnnAssign):
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
        action = str(getattr(keywords.get("action"), "value", ""))
        default = {"store_true": False, "store_false": True}.get(action)
        yield name, keywords.get("default", ast.Constant(default, lineno=node.lineno))


def _is_option(node: ast.AST) -> bool:
    """Return whether a node is `parser.add_argument("--name", ...)`."""
    return (
        isinstance(node, ast.Call)
        and _last_name(node.func) == "add_argument"
        and any(text.startswith("-") for text in _texts(node))
    )


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
            defaults = node.args.defaults
            named = [one.arg for one in node.args.args]
            pairs += zip(named[len(named) - len(defaults) :], defaults, strict=True)
        for name, value in pairs:
            with suppress(NotPlain, RecursionError):
                plain = _plain(value) if _reference(value) is None else None
                known = found.setdefault(name.replace("-", "_"), [])
                if plain is not None and plain not in known:
                    known.append(plain)
    return found


class _Filling(ast.NodeTransformer):
    """Puts a number in the place of each name that a file gives just one."""

    def __init__(self, constants: Mapping[str, list[Any]]) -> None:
        self.constants = constants

    def visit(self, node: ast.AST) -> ast.AST:
        name = _reference(node) if isinstance(node, ast.expr) else None
        found = self.constants.get(name or "", [])
        if len(found) == 1 and isinstance(found[0], int | float):
            return ast.copy_location(ast.Constant(found[0]), node)
        return self.generic_visit(node)


def _definitions(tree: ast.AST) -> dict[str, list[ast.AST]]:
    """Return name -> the calls and attributes that a file assigns to it, each text once."""
    found: dict[str, dict[str, ast.AST]] = {}
    for node in ast.walk(tree):
        for name, value in _pairs(node) if isinstance(node, ast.Assign | ast.AnnAssign) else ():
            if isinstance(value, ast.Call | ast.Attribute | ast.Name):
                found.setdefault(name, {}).setdefault(ast.unparse(value), value)
    return {name: list(values.values()) for name, values in found.items()}


def _mentioned(tree: ast.AST) -> set[str]:
    """Return the names of a file, wherever they are, and `TWO_OF_TRAIN`."""
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name):
                found.add(name)
            case ast.keyword(arg=str(name)):
                found.add(name)
            case ast.Assign(targets=[ast.Tuple(elts=[_, _])], value=ast.Call(func=func)):
                found |= {TWO_OF_TRAIN} if _last_name(func) == "train" else set()
            case _:
                pass
    return found


def _reference(node: ast.AST) -> str | None:
    """Return the name that `name`, `args.name` or `config["name"]` refers to."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return str(node.slice.value)
    return _last_name(node) or None


def _parsed(text: str, mode: str) -> Any:
    if len(text) > _LONGEST:
        raise NotPlain(f"{len(text):,} characters; allowed: {_LONGEST:,}")
    try:
        return ast.parse(text.strip() if mode == "eval" else text, mode=mode)
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise NotPlain(f"not Python: {error}") from None


def _plain(node: ast.AST | None) -> Any:
    match node:
        case ast.Constant(value=value) if not isinstance(value, bytes | complex):
            return None if value is ... else value
        case ast.Name() | ast.Attribute():
            return _last_name(node)
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_plain(item) for item in items]
        case ast.Dict(keys=keys, values=values) if None not in keys:
            return {str(_plain(k)): _plain(v) for k, v in zip(keys, values, strict=True)}
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inner = _plain(operand)
            if isinstance(inner, int | float):
                return -inner
        case ast.BinOp(left=left, op=op, right=right):
            pair, act = (_plain(left), _plain(right)), _OPERATORS.get(type(op))
            numbers = all(isinstance(x, int | float) and abs(x) < _LARGEST for x in pair)
            if act and numbers and (act is not operator.pow or abs(pair[1]) <= 64):
                return _computed(node, act, *pair)
        case ast.Call(func=func, args=[], keywords=words) if _last_name(func) in _MAPPINGS:
            if all(word.arg for word in words):
                return {str(word.arg): _plain(word.value) for word in words}
        case ast.Call(func=func, args=[one], keywords=[]) if _last_name(func) in _CASTS:
            return _computed(node, _CASTS[_last_name(func)], _plain(one))
        case _:
            pass
    raise NotPlain(f"{_shown(node)} is not a plain value")


def _computed(node: ast.AST, act: Callable[..., Any], *given: Any) -> Any:
    try:
        return act(*given)
    except (ArithmeticError, TypeError, ValueError) as error:
        raise NotPlain(f"{_shown(node)}: {error}") from None


def _last_name(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _shown(node: ast.AST | None) -> str:
    text = ast.unparse(node) if node is not None else "an empty value"
    return text if len(text) <= 60 else f"{text[:57]}..."


# ------------------------------------------------------- for readers of particular files


def parsed_source(text: str) -> ast.Module:
    """Return the tree of a Python file.

    Raises:
        NotPlain: it is not Python, or too long.
    """
    return _parsed(text, "exec")


def constants_of(tree: ast.AST) -> dict[str, list[Any]]:
    """Return name -> the distinct plain values that a file gives it anywhere."""
    return _constants(tree)


def plain_node(node: ast.AST) -> Any:
    """Return the plain value of an expression.

    Raises:
        NotPlain: it has none.
    """
    return _plain(node)


def last_name(node: ast.AST) -> str:
    """Return `train` of `ppo.train` and of `train`, "" of other expressions."""
    return _last_name(node)
