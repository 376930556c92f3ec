"""Reads `space` and `forbid`: from nodes to a `Space`, every mistake with its line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import ConfigError, StudyError, suggestion
from ..spaces.base import Distribution, same
from ..spaces.distributions import Categorical, Normal, Ordinal
from ..spaces.forbid import Rule, ValueRule, parse_rule
from ..spaces.make import WHOLE_KINDS, Fault, read_distribution
from ..spaces.space import Condition, Parameter, Space, structure_faults
from .study_values import Vocabulary, number_of
from .user_code import is_inside
from .yaml_io import Node, Notes, flow, plain, read_file

_MOST_PARAMETERS = 200
_MOST_RULES = 500
_NUMERIC = ("min", "max", "q", "mu", "sigma", "zero")
_OUTSIDE = ("default", "when")
_NOT_READ = object()
_LONGEST_LIST = 200


@dataclass
class SpaceReader:
    """Reads the search space of one study.

    Attributes:
        notes: where mistakes go.
        vocabulary: the names and values that are legal.
        fixed: knob -> value, already read.
    """

    notes: Notes
    vocabulary: Vocabulary
    fixed: Mapping[str, Any]

    def read(self, space: Node | None, rules: Sequence[Node]) -> Space:
        """Return the space; with mistakes noted, one without what was wrong."""
        entries = self._entries(space)
        if len(entries) > _MOST_PARAMETERS:
            self.notes.add(f"{len(entries)} parameters; allowed: {_MOST_PARAMETERS}", space)
            return Space()
        parameters: list[Parameter] = []
        places: list[Node] = []
        for name, node in entries:
            parameter = self._parameter(name, node)
            if parameter is not None:
                parameters.append(parameter)
                places.append(node)
        constants = self._constants(parameters, places, entries)
        faults = structure_faults(parameters, constants)
        for index, text in faults:
            self.notes.add(text, places[index])
        searched = {name for name, _ in entries}
        forbid, named = self._rules(rules, searched)
        if faults or len(parameters) < len(entries):
            return Space()
        return Space(tuple(parameters), forbid, {**constants, **named})

    def _entries(self, space: Node | None) -> list[tuple[str, Node]]:
        """Return (our name, node of one distribution) in the order of the file."""
        entries: list[tuple[str, Node]] = []
        if space is None:
            return entries
        given_as: dict[str, str] = {}
        for given, child in space.value.items():
            try:
                name = self.vocabulary.name(given)
            except ConfigError as error:
                self.notes.add(str(error), space, given)
                continue
            if name in given_as:
                text = f"{given!r} and {given_as[name]!r} are the same knob; keep one"
                self.notes.add(text, space, given)
            elif name in self.fixed:
                one = flow({"value": self.fixed[name]})
                text = f"{name} is both searched and fixed; remove one, or search {one} alone"
                self.notes.add(text, space, given)
            elif name.startswith("env.") and name[4:] in self.vocabulary.env_values:
                self.notes.add(
                    f"{name} is searched and given under env:; remove one", space, given
                )
            else:
                given_as[name] = given
                branching = child.is_list and any(item.is_map for item in child.value)
                branches = child.value if branching else [child]
                entries.extend((name, branch) for branch in branches)
        return entries

    def _parameter(self, name: str, node: Node) -> Parameter | None:
        if not node.is_map:
            self.notes.add(f"{name} is {node.shown()}; {_how_to_write(node)}", node)
            return None
        fields = {key: plain(child) for key, child in node.value.items() if key not in _OUTSIDE}
        for key in _NUMERIC:
            if isinstance(fields.get(key), str):
                number = number_of(fields[key])
                fields[key] = fields[key] if number is None else number
        distribution, faults = read_distribution(fields, self.vocabulary.is_real(name))
        if distribution is not None:
            distribution, faults = self._fit(name, distribution)
        for fault in faults:
            self.notes.add(f"{name}: {fault.text}", node, fault.key)
        when = self._when(name, node)
        if distribution is None:
            return None
        default = self._default(name, distribution, node)
        if default is _NOT_READ or when is None:
            return None
        return Parameter(name, distribution, default, when)

    def _fit(
        self, name: str, distribution: Distribution
    ) -> tuple[Distribution | None, list[Fault]]:
        """Check a distribution against the knob's type and range; values become canonical."""
        if isinstance(distribution, Categorical | Ordinal):
            return self._fit_values(name, distribution)
        if self.vocabulary.is_fixed_in_a_program(name):
            text = "is fixed in a program; list its `values`, each of which is a bucket"
            return None, [Fault("distribution", text)]
        kind = self.vocabulary.type(name)
        if kind not in ("float", "int"):
            return None, [Fault("distribution", f"{_typed(kind)}; list its `values`")]
        if kind == "int" and distribution.kind not in WHOLE_KINDS:
            kinds = ", ".join(WHOLE_KINDS)
            text = f"takes integers, not {distribution.kind}; type one of {kinds}"
            return None, [Fault("distribution", text)]
        faults: list[Fault] = []
        for key, bound in _bounds(distribution):
            try:
                self.vocabulary.value(name, bound)
            except ConfigError as error:
                faults.append(Fault(key, f"{key} {bound!r} is not legal: {error}"))
        return (None if faults else distribution), faults

    def _fit_values(
        self, name: str, distribution: Categorical | Ordinal
    ) -> tuple[Distribution | None, list[Fault]]:
        values: list[Any] = []
        faults: list[Fault] = []
        for given in distribution.values:
            try:
                value = self.vocabulary.value(name, given)
            except ConfigError as error:
                faults.append(Fault("values", str(error).removeprefix(f"{name} is ")))
                continue
            if any(same(value, earlier) for earlier in values):
                faults.append(Fault("values", f"{given!r} appears twice among the values"))
            values.append(value)
        return (None, faults) if faults else (replace(distribution, values=tuple(values)), [])

    def _default(self, name: str, distribution: Distribution, node: Node) -> Any:
        if "default" not in node.value:
            own = self.vocabulary.default(name)
            fits = distribution.why_not(own) is None
            return distribution.canonical(own) if fits else distribution.middle()
        try:
            value = self.vocabulary.value(name, plain(node.value["default"]))
        except ConfigError as error:
            self.notes.add(f"default: {error}", node, "default")
            return _NOT_READ
        reason = distribution.why_not(value)
        if reason is not None:
            self.notes.add(f"{name}: default {reason}", node, "default")
            return _NOT_READ
        return distribution.canonical(value)

    def _when(self, name: str, node: Node) -> tuple[Condition, ...] | None:
        if "when" not in node.value:
            return ()
        when: Node = node.value["when"]
        if not when.is_map or not when.value:
            text = f"{name}: when is {when.shown()}; allowed: such as {{network: transformer}}"
            self.notes.add(text, node, "when")
            return None
        conditions: list[Condition] = []
        for given in when.value:
            values = self._wanted(when, given)
            if values is not None:
                conditions.append(Condition(*values))
        return tuple(conditions) if len(conditions) == len(when.value) else None

    def _wanted(self, node: Node, given: str) -> tuple[str, tuple[Any, ...]] | None:
        """Read `knob: value` or `knob: [value, ...]` of a condition or a rule."""
        try:
            name = self.vocabulary.name(given)
            raw = plain(node.value[given])
            listed = isinstance(raw, list)
            if self.vocabulary.type(name) == "widths":
                listed = listed and any(isinstance(item, list) for item in raw)
            values = [self.vocabulary.value(name, item) for item in (raw if listed else [raw])]
        except ConfigError as error:
            self.notes.add(str(error), node, given)
            return None
        if not values:
            self.notes.add(f"{name}: an empty list; give at least one value", node, given)
            return None
        return name, tuple(values)

    def _constant(self, name: str) -> Any:
        return self.fixed[name] if name in self.fixed else self.vocabulary.default(name)

    def _constants(
        self,
        parameters: Sequence[Parameter],
        places: Sequence[Node],
        entries: Sequence[tuple[str, Node]],
    ) -> dict[str, Any]:
        """Return the values of what conditions name but nobody searches; note what never holds."""
        searched = {name for name, _ in entries}
        constants: dict[str, Any] = {}
        for parameter, place in zip(parameters, places, strict=True):
            for condition in parameter.when:
                if condition.name in searched:
                    self._check_reachable(parameter, condition, parameters, place)
                    continue
                constants[condition.name] = self._constant(condition.name)
                if not condition.holds(constants):
                    value = constants[condition.name]
                    self.notes.add(
                        f"{parameter.name} is never active: {condition.name} is not searched and "
                        f"is {value!r}",
                        place,
                        "when",
                    )
        return constants

    def _check_reachable(
        self,
        parameter: Parameter,
        condition: Condition,
        parameters: Sequence[Parameter],
        place: Node,
    ) -> None:
        parents = [parent for parent in parameters if parent.name == condition.name]
        for value in condition.values:
            reasons = [parent.distribution.why_not(value) for parent in parents]
            if reasons and None not in reasons:
                text = f"{parameter.name}: when {condition.name}: {reasons[0]}"
                self.notes.add(text, place, "when")

    def _rules(
        self, nodes: Sequence[Node], searched: set[str]
    ) -> tuple[tuple[Rule, ...], dict[str, Any]]:
        rules: list[Rule] = []
        constants: dict[str, Any] = {}
        if len(nodes) > _MOST_RULES:
            self.notes.add(f"forbid has {len(nodes)} rules; allowed: {_MOST_RULES}", nodes[0])
            return (), {}
        for node in nodes:
            rule = self._rule(node)
            if rule is None:
                continue
            rules.append(rule)
            for name in rule.names:
                if name not in searched:
                    constants[name] = self._constant(name)
        return tuple(rules), constants

    def _rule(self, node: Node) -> Rule | None:
        if node.is_map and node.value:
            wanted = [self._wanted(node, given) for given in node.value]
            read = tuple(entry for entry in wanted if entry is not None)
            return ValueRule(read) if len(read) == len(wanted) else None
        if not isinstance(node.value, str):
            text = (
                f"a rule is {node.shown()}; allowed: a mapping such as {{network: mlp}} or a "
                "comparison such as 'gamma < gae_lambda - 0.15'"
            )
            self.notes.add(text, node)
            return None
        try:
            rule = parse_rule(node.value)
            for name in rule.names:
                self._check_rule_name(name)
        except ConfigError as error:
            self.notes.add(str(error), node)
            return None
        return rule

    def _check_rule_name(self, name: str) -> None:
        ours = self.vocabulary.name(name)
        if ours != name:
            raise ConfigError(
                f"unknown hyperparameter {name!r} in a rule; here it is called {ours!r}"
            )


def _how_to_write(node: Node) -> str:
    if node.is_list:
        written = flow({"values": plain(node)})
        short = node.value and len(written) <= _LONGEST_LIST
        return f"type {written if short else '{values: [...]}'}"
    if node.value is None:
        return "give a distribution such as {min: 0.1, max: 1.0}"
    return "give a distribution such as {min: 0.1, max: 1.0}, or write the knob under `fixed`"


def _typed(kind: str) -> str:
    nouns = {"bool": "is true or false", "choice": "is one of a few words"}
    return nouns.get(kind, "is a list of widths")


def _bounds(distribution: Distribution) -> list[tuple[str | None, Any]]:
    """Return (key, value) of the extremes that the knob must allow."""
    low, high = distribution.ends()[-2:]
    keys: tuple[str | None, str | None] = ("min", "max")
    if isinstance(distribution, Normal):
        low, high = distribution.bounds
        keys = (
            None if distribution.min is None else "min",
            None if distribution.max is None else "max",
        )
    bounds: list[tuple[str | None, Any]] = [(keys[0], low), (keys[1], high)]
    if distribution.zero:
        bounds.append(("zero", distribution.nothing))
    return bounds


_MOST = 2000


def read_enqueue(
    notes: Notes, vocabulary: Vocabulary, space: Space, nodes: Sequence[Node]
) -> tuple[dict[str, Any], ...]:
    """Read `enqueue`: partial configurations that the space must be able to complete.

    One that is the default configuration, or another entry once more, is left out: it would repeat
    every bit of that one's runs.
    """
    if len(nodes) > _MOST:
        notes.add(f"enqueue has {len(nodes)} entries; allowed: {_MOST}", nodes[0])
        return ()
    read: list[dict[str, Any]] = []
    known = {space.canonical(space.default())}
    for node in nodes:
        if not node.is_map:
            text = f"an entry of enqueue is {node.shown()}; allowed: {{knob: value, ...}}"
            notes.add(text, node)
            continue
        entry = _read_entry(notes, vocabulary, node)
        if entry is None:
            continue
        try:
            key = space.canonical(space.complete(entry))
        except ConfigError as error:
            notes.add(f"enqueue: {error}", node)
            continue
        if key not in known:
            known.add(key)
            read.append(entry)
    return tuple(read)


def _read_entry(notes: Notes, vocabulary: Vocabulary, node: Node) -> dict[str, Any] | None:
    entry: dict[str, Any] = {}
    for given, child in node.value.items():
        try:
            name = vocabulary.name(given)
            entry[name] = vocabulary.value(name, plain(child))
        except ConfigError as error:
            notes.add(f"enqueue: {error}", node, given)
    return entry if len(entry) == len(node.value) else None


_PACKAGE = Path(__file__).resolve().parent.parent


def ships(name: str) -> bool:
    """Return whether a space of this name comes with the package."""
    return (_PACKAGE / name).is_file()


def space_nodes(notes: Notes, root: Node, source: Path) -> tuple[Node | None, list[Node]]:
    """Return the mapping of parameters (None if there is none) and the rules, files followed."""
    forbid, node = root.value.get("forbid"), root.value.get("space")
    rules: list[Node] = forbid.value if forbid is not None and forbid.is_list else []
    if node is None or not node.is_map:
        return None, rules
    if "file" not in node.value:
        return node, rules
    for key in node.value:
        if key not in ("file", "override"):
            text = f"unknown key {key!r} beside `file`; allowed: override: {{{key}: ...}}"
            notes.add(text, node, key)
    path = _find(notes, node, source)
    read = None if path is None else _read(notes, node, path)
    if read is None:
        return None, rules
    parameters, more_rules = read
    _override(notes, node, parameters)
    return parameters, [*more_rules, *rules]


def _find(notes: Notes, node: Node, source: Path) -> Path | None:
    given = node.value["file"]
    if not isinstance(given.value, str) or not is_inside(given.value):
        text = (
            f"space.file is {given.shown()}; allowed: a path below the study's folder, or one "
            "that ships, such as spaces/ppo.yaml"
        )
        notes.add(text, node, "file")
        return None
    for base in (source, _PACKAGE):
        if (base / given.value).is_file():
            return base / given.value
    shipped = sorted(f"spaces/{path.name}" for path in _PACKAGE.glob("spaces/*.yaml"))
    text = (
        f"space.file {given.value!r}: no such file;{suggestion(given.value, shipped)} "
        f"Those that ship: {', '.join(shipped)}"
    )
    notes.add(text, node, "file")
    return None


def _read(notes: Notes, node: Node, path: Path) -> tuple[Node, list[Node]] | None:
    shown, line = node.value["file"].value, node.key_lines["file"]
    try:
        root = read_file(path, shown)
    except StudyError as error:
        for text in str(error).splitlines():
            notes.add(text, node, "file")
        return None
    _mark(root, shown, line)
    if not root.is_map:
        notes.add(f"{shown} is {root.shown()}; allowed: {{space: {{...}}}}", node, "file")
        return None
    for key in root.value:
        if key not in ("space", "forbid"):
            notes.add(f"unknown key {key!r}; Known: space, forbid", root, key)
    space, rules = root.value.get("space"), root.value.get("forbid")
    if space is None or not space.is_map or "file" in space.value:
        notes.add(f"{shown} needs `space`, a mapping of knobs", node, "file")
        return None
    if rules is not None and not rules.is_list:
        notes.add(f"forbid is {rules.shown()}; allowed: a list", rules)
        rules = None
    return space, [] if rules is None else rules.value


def _override(notes: Notes, node: Node, parameters: Node) -> None:
    """Replace, add or (with null) drop parameters of the file."""
    override = node.value.get("override")
    if override is None:
        return
    if not override.is_map:
        text = f"space.override is {override.shown()}; allowed: a mapping such as space itself"
        notes.add(text, node, "override")
        return
    for key, child in override.value.items():
        if child.value is not None:
            parameters.value[key] = child
            parameters.key_lines[key] = override.key_lines[key]
        elif key in parameters.value:
            del parameters.value[key], parameters.key_lines[key]
        else:
            hint = suggestion(key, parameters.value)
            notes.add(
                f"override drops {key!r}, which the file does not have;{hint}", override, key
            )


def _mark(node: Node, shown: str, line: int | None) -> None:
    node.origin, node.outer = shown, line
    for child in node.value.values() if node.is_map else node.value if node.is_list else ():
        _mark(child, shown, line)
