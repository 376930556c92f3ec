"""Reads settings in Python files: the values that a file assigns to names in a table."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import counted
from ..foreign_names.name_mapping import PythonCalls
from ..foreign_names.plain_values import MAPPINGS, NotPlain, Unread, last_name, parsed_source
from .formats import flags_of, read_word
from .python_names import (
    Names,
    Pair,
    called_name,
    is_option,
    is_wrapper,
    length_of,
    loops_in,
    mentioned_in,
    owner_of,
    pairs_of,
    texts_in,
    wrapper_names,
)

_MAKERS = ("make", "make_vec", "make_vec_env", "make_env", "create_env")
_GYMS = ("gym", "gymnasium", "gymnax")  # modules whose `make` accepts environment keys
_FRAMEWORKS = {"gymnax": "", "brax": "brax:", "gymnasium": "", "envpool": "", "xland": ""}
_PARSERS = ("parse_args", "parse_known_args", "cli")  # of argparse and tyro
_SEEDED = "a random key; see seed"
OBJECTS: Mapping[str, str] = {
    "env": "an object that cannot be read",
    "optimizer": "an object that cannot be read",
    "env_params": "an object; give its keys one by one, such as env.max_steps_in_episode",
    "env_factory": "a function that creates the environment; set env to an environment's name",
    "eval_env": "an object; see eval_env and `evaluation`",
    "model": "an object that cannot be read; the default network is used",
    "key": _SEEDED, "rng": _SEEDED, "policy_key": _SEEDED,
    "callback": "callbacks of other programs are not supported",
    "action_space": "an object; see `distribution`",
}  # fmt: skip
"""Argument that is usually an object -> its description in the list of unread names."""
OTHERS = ("a2c", "ars", "crossq", "ddpg", "dqn", "her", "iqn", "pqn", "qrdqn", "sac", "td3", "tqc",
          "trpo")  # fmt: skip
_ENV_NAMES = {"env", "env_id", "env_name", "ENV_NAME"}
_FOR_EVALUATION = re.compile(r"(?:eval|evaluation|test|val)_?\w*envs?")

Fate = Callable[[str], bool | str]
"""Name -> its fate in a table, or whether it is in a table; "" or False if in none."""


@dataclass
class PythonValues:
    """The values that a Python file assigns to names in a table."""

    named: dict[str, Any] = field(default_factory=dict[str, Any])  # `Unread` if not plain
    env: str | None = None  # the string passed to a `make`, or a class
    calls: list[str] = field(default_factory=list[str])  # calls listed in the table
    others: list[str] = field(default_factory=list[str])  # other algorithms that the file creates
    # `learn`, `step` or `train` -> how often a loop calls it on one agent; 0 if unknown
    loops: dict[str, int] = field(default_factory=dict[str, int])
    # argument of the table's calls -> the first object in it that is in `OBJECTS`
    objects: dict[str, Unread] = field(default_factory=dict[str, Unread])
    # calls that wrap an environment and are not listed in the table
    wrappers: list[str] = field(default_factory=list[str])
    seeds: Any = None  # the number of keys with which the training is vmapped, or `Unread`
    # names that occur anywhere, and `TWO_OF_TRAIN`
    mentioned: set[str] = field(default_factory=set[str])


def read_source(
    text: str,
    known: Fate,
    python: PythonCalls | None = None,
    given: Mapping[str, Any] | None = None,
) -> PythonValues:
    r"""Return the values of known names in a Python file, and of names next to them.

    Assignments, dictionaries, call arguments, class fields and argparse defaults are read. If a
    known name has two different values, that is an error, unless it is in `given` or `known`
    classifies it as "left out".

    >>> one = PythonCalls(names=("PPO",))
    >>> read_source("a = 1\nPPO(lr=2 * 4)\n", lambda name: name == "lr", one).named
    {'lr': 8}

    Raises:
        NotPlain: the text is not Python, assigns two values to a name, or creates several
            environments.
    """
    given = given or {}
    python = python or PythonCalls()
    tree = parsed_source(text)
    try:
        reader = _NameVisitor(known, python, Names(tree), wrapper_names(tree))
        reader.visit(tree)
        reader.found.mentioned = mentioned_in(tree)
    except RecursionError:
        raise NotPlain("nested too deeply") from None
    found = reader.found
    found.loops = loops_in(tree, python.names, reader.names.constants)
    found.seeds = reader.names.seeds_of(tree, ("train", "make_train"))
    for name, values in reader.values.items():
        may_differ = name in given or known(name) in (False, "", "left out")
        found.named[name] = _one_of(name, values, may_differ)
        if name in reader.names.changes and name not in OBJECTS and not may_differ:
            found.named[name] = reader.names.changes[name]
    found.env = _one_environment(reader, given)
    return found


def _one_of(name: str, values: list[tuple[Any, int]], may_differ: bool) -> Any:
    """Return the first plain value of a name, or its first value if none is plain."""
    plain = [one for one in values if not isinstance(one[0], Unread)]
    if not plain:
        return values[0][0]
    first, at = plain[0]
    for other, line in plain[1:]:
        if other != first and not may_differ:
            both = f"{first!r} (line {at}) and {other!r} (line {line})"
            raise NotPlain(f"{name} is {both}; give one of them", flags={name: first})
    return first


def _one_environment(reader: _NameVisitor, given: Mapping[str, Any]) -> str | None:
    envs = list(dict.fromkeys(reader.envs))
    if not envs:
        return reader.env_class
    if len(envs) > 1 and not _ENV_NAMES & set(given):
        raise NotPlain(f"it creates {' and '.join(map(repr, envs))}; name one", env=envs[0])
    return envs[0]


@dataclass(frozen=True)
class _NodeKnowledge:
    """How certain it is that the names in a syntax node are settings.

    `firm`: the node is known to assign settings, so non-literal values count, too.
    `others`: it may also set names that the table lacks; `firm_others`: it certainly does.
    """

    firm: bool = False
    others: bool = False
    firm_others: bool = False
    unless: str = ""  # a name that has a different meaning there


class _NameVisitor:
    """Collects the values that a file assigns to the names of an import table."""

    def __init__(self, known: Fate, python: PythonCalls, names: Names, wrappers: set[str]) -> None:
        self.known, self.python, self.names = known, python, names
        self.wrappers = wrappers
        self.found = PythonValues()
        self.values: dict[str, list[tuple[Any, int]]] = {}
        self.envs: list[str] = []
        self.env_class: str | None = None

    def visit(self, node: ast.AST) -> None:
        """Read a node and its children, except those of a value that was read as a whole."""
        match node:
            case ast.Assign():
                whole = self._read_assignment(node)
            case ast.AnnAssign():
                whole = self._keep_names(_underscored_pairs(node), _NodeKnowledge())
            case ast.ClassDef():
                whole = self._read_class(node)
            case ast.Dict():
                whole = self._read_dictionary(node)
            case ast.Call():
                other = _other_algorithm(node)
                if other:
                    self.found.others.append(other)
                    return
                whole = self._read_call(node)
            case _:
                whole = set[int]()
        for child in ast.iter_child_nodes(node):
            inner = child
            if isinstance(child, ast.keyword):
                inner = child.value
            if id(inner) not in whole or not isinstance(inner, ast.Dict | ast.Call):
                self.visit(child)

    # ------------------------------------------------------------- one method per kind of node

    def _read_assignment(self, node: ast.Assign) -> set[int]:
        whole = self._keep_names(_underscored_pairs(node), _NodeKnowledge())
        if self.env_class is None and "env" in map(last_name, node.targets):
            self.env_class = called_name(node.value) or None
        return whole

    def _read_class(self, node: ast.ClassDef) -> set[int]:
        fields = _underscored_pairs(node)
        return self._keep_names(
            fields, _NodeKnowledge(firm=True, others=self._has_several(fields))
        )

    def _read_dictionary(self, node: ast.Dict) -> set[int]:
        items = _underscored_pairs(node)
        others = self._has_several(items) or self._plain_known(items) > 0
        return self._keep_names(items, _NodeKnowledge(firm=True, others=others))

    def _read_call(self, node: ast.Call) -> set[int]:
        name = last_name(node.func)
        pairs = _underscored_pairs(node)
        own = self._is_own_call(node)
        if own:
            self.found.calls.append(name)
        ordered = own or name in self.python.order
        if ordered:
            pairs += self._positional_pairs(node)
        mapping = name in MAPPINGS
        container = own or is_option(node) or (mapping and self._has_several(pairs))
        plain = self._plain_arguments(node, pairs)
        place = _NodeKnowledge(
            firm=container or mapping or ordered,
            others=container or plain > 0,
            firm_others=plain > 1,
            unless={"VecNormalize": "gamma"}.get(name, ""),
        )
        whole = self._keep_names(pairs, place)
        self._keep_typed(node)
        given = dict(pairs)
        if name not in self.python.around and is_wrapper(node, self.wrappers):
            self.found.wrappers.append(name)
        self._keep_wrapper(node, given)
        self._keep_environment(node, given)
        return whole

    def _plain_arguments(self, node: ast.Call, pairs: list[Pair]) -> int:
        """Return how many arguments are plain settings; 0 if a call's other names are not."""
        name = last_name(node.func)
        of_library = name in _MAKERS and owner_of(node) == "envpool"
        if of_library or name in self.python.around:
            return 0
        return self._plain_known(pairs)

    # -------------------------------------------------------------------------------- names

    def _keep_names(self, pairs: list[Pair], place: _NodeKnowledge) -> set[int]:
        """Keep the values of a node's names; return the ids of those that were read as a whole."""
        whole = {id(value) for name, value in pairs if _FOR_EVALUATION.fullmatch(name)}
        for name, value in pairs:
            known = bool(self.known(name))
            if name == place.unless or not (known or place.others):
                continue
            firm = place.firm or (place.firm_others and not known)
            if self._keep_value(name, value, firm) and known:
                whole.add(id(value))
        return whole

    def _keep_value(self, name: str, node: ast.AST, firm: bool) -> bool:
        """Keep a value if it is plain, or if its name certainly belongs to the table."""
        value = self.names.value(node)
        if not isinstance(value, Unread):
            self._add_value(name, value, node)
            return True
        if not firm and isinstance(node, ast.Call):
            return False  # such as vec_env = make_vec_env(...), which is read separately
        listed = self.known(name) == "left out"  # listed in the study's header, whatever its value
        if listed or (firm and name not in OBJECTS):
            self._add_value(name, value, node)
            return True
        if firm:
            self.found.objects.setdefault(name, value)
        return False

    def _add_value(self, name: str, value: Any, node: ast.AST) -> None:
        self.values.setdefault(name, []).append((value, getattr(node, "lineno", 0)))

    def _has_several(self, pairs: list[Pair]) -> bool:
        return sum(bool(self.known(name)) for name, _ in pairs) > 1

    def _plain_known(self, pairs: list[Pair]) -> int:
        """Return how many names with a counterpart have plain values."""
        taken = [value for name, value in pairs if self.known(name) == "taken"]
        return sum(not isinstance(self.names.value(value), Unread) for value in taken)

    # -------------------------------------------------------------------------------- calls

    def _is_own_call(self, node: ast.Call) -> bool:
        name = last_name(node.func)
        if name not in self.python.names:
            return False
        owner = owner_of(node)
        owned = owner.endswith(("Trainer", "PPO")) or owner in self.python.made
        return owned or name.lower() != "create"

    def _positional_pairs(self, node: ast.Call) -> list[Pair]:
        """Return (name, value) per positional argument; the table gives the names in order."""
        called = last_name(node.func)
        names = self.python.order.get(called, "").split()
        pairs = list(zip(names, node.args, strict=False))
        starred = [name for name, one in pairs if isinstance(one, ast.Starred) and name != "*"]
        if len(node.args) > len(names) or starred:
            count = counted(len(node.args), "positional argument")
            text = f"{called} (line {node.lineno}) has {count}, "
            readable = len(names)
            if starred:
                readable = 0
            raise NotPlain(f"{text}of which {readable} can be read; pass all arguments by name")
        return [(name, value) for name, value in pairs if name not in ("_", "*")]

    def _keep_wrapper(self, node: ast.Call, given: Mapping[str, ast.AST]) -> None:
        """Keep a call that accompanies the training, such as a wrapper, under its table name."""
        name, _, keyword = self.python.around.get(last_name(node.func), "").partition("=")
        if keyword and keyword in given:
            self._keep_value(name, length_of(given[keyword]), True)
        elif name and not keyword:
            plain = {key: self.names.value(value) for key, value in given.items()}
            self._add_value(name, plain or True, node)

    def _keep_typed(self, node: ast.Call) -> None:
        """Keep the flags in `parser.parse_args(["--lr", "1e-3"])`, which override defaults."""
        if last_name(node.func) not in _PARSERS:
            return
        given = [*node.args, *(word.value for word in node.keywords if word.arg == "args")]
        for one in given:
            words = self.names.value(one)
            if isinstance(words, list) and words and all(isinstance(w, str) for w in words):
                for name, value in flags_of(words).items():
                    self._add_value(name, read_word(value), node)

    def _keep_environment(self, node: ast.Call, given: Mapping[str, ast.AST]) -> None:
        """Keep the string from which an environment is created, and the environment's keys."""
        called, owner = last_name(node.func), owner_of(node)
        if called == "make" and owner in _GYMS:
            for key in (key for key in given if not self.known(key)):
                self._keep_value(f"env.{key}", given[key], True)
        texts = self._text_arguments(node)
        if not texts:
            return
        creates = called.lower() == "create"
        if creates and owner in self.python.made:
            self._add_value(self.python.made[owner], texts[0], node)
        if called in _MAKERS or (creates and owner == "Environment"):
            env = texts[0]
            if len(texts) > 1 and env in _FRAMEWORKS:
                env = _FRAMEWORKS[env] + texts[1]
            self.envs.append(env)

    def _text_arguments(self, node: ast.Call) -> list[str]:
        """Return positional arguments that are strings, or names to which strings are assigned."""
        given = (one for one in node.args if isinstance(one, ast.Constant | ast.Name))
        values = map(self.names.value, given)
        return [one for one in values if isinstance(one, str) and not isinstance(one, Unread)]


def _underscored_pairs(node: ast.AST) -> list[Pair]:
    return [(name.replace("-", "_"), value) for name, value in pairs_of(node)]


def _other_algorithm(node: ast.Call) -> str:
    """Return the algorithm other than PPO that a call creates, as in `SAC(...)`, or ""."""
    name = last_name(node.func)
    made = {"create": owner_of(node), "get_algo": "".join(texts_in(node))}.get(name, name)
    if made.lower() not in OTHERS:
        return ""
    return made
