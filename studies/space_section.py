"""Reads `space`, `forbid` and `enqueue` into a `Space`; every mistake has a line number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import ConfigError, StudyError, UnknownNameError, suggestion
from ..files.plain_data import same
from ..spaces.distributions import Categorical, Distribution, Normal, Ordinal
from ..spaces.forbid import Rule, ValueRule, parse_rule
from ..spaces.make import WHOLE_KINDS, KeyFault, read_distribution
from ..spaces.space import Condition, Parameter, Space, structure_faults
from .study_values import Vocabulary, amount_of
from .user_code import is_inside
from .yaml_io import Node, Notes, flow, plain, read_file

_MOST_PARAMETERS = 200
_MOST_RULES = 500
_NUMERIC = ("min", "max", "q", "mu", "sigma", "zero")
_OUTSIDE = ("default", "when")
_NOT_READ = object()
_LONGEST_LIST = 200
_MOST_ENQUEUED = 2000
_PACKAGE = Path(__file__).resolve().parent.parent


@dataclass
class SpaceReader:
    notes: Notes
    vocabulary: Vocabulary
    fixed: Mapping[str, Any]

    def read(self, space: Node | None, rules: Sequence[Node]) -> Space:
        """Return the space, which is incomplete if mistakes were noted."""
        entries = self._read_entries(space)
        if len(entries) > _MOST_PARAMETERS:
            self.notes.add(f"{len(entries)} parameters; allowed: {_MOST_PARAMETERS}", space)
            return Space()
        parameters: list[Parameter] = []
        places: list[Node] = []
        for name, node in entries:
            parameter = self._read_parameter(name, node)
            if parameter is not None:
                parameters.append(parameter)
                places.append(node)
        searched = {name for name, _ in entries}
        constants = self._condition_constants(parameters, places, searched)
        faults = structure_faults(parameters, constants)
        for index, text in faults:
            self.notes.add(text, places[index])
        forbid = self._read_rules(rules)
        if faults or len(parameters) < len(entries):
            return Space()
        named = (name for rule in forbid for name in rule.names if name not in searched)
        return Space(
            tuple(parameters), forbid, constants | {n: self._constant_value(n) for n in named}
        )

    def _read_entries(self, space: Node | None) -> list[tuple[str, Node]]:
        """Return (our name, distribution node) pairs in file order."""
        entries: list[tuple[str, Node]] = []
        if space is None:
            return entries
        given_as: dict[str, str] = {}
        for given, child in space.value.items():
            with self.notes.at(space, given):
                name = self.vocabulary.name(given)
                if name in given_as:
                    others = f"{given!r} and {given_as[name]!r}"
                    raise ConfigError(f"{others} are the same knob; keep one")
                if name in self.fixed:
                    only = f"search only {flow({'value': self.fixed[name]})}"
                    text = f"{name} is both searched and fixed; remove it from `space` or `fixed`"
                    raise ConfigError(f"{text}, or {only}")
                if name.startswith("env.") and name[4:] in self.vocabulary.env_values:
                    raise ConfigError(f"{name} is searched and given under env:; remove one")
                given_as[name] = given
                branches = [child]
                if any(item.is_map for item in child.elements):
                    branches = child.elements
                entries.extend((name, branch) for branch in branches)
        return entries

    def _read_parameter(self, name: str, node: Node) -> Parameter | None:
        if not node.is_map:
            self.notes.add(f"{name} is {node.shown()}; {_how_to_write(node)}", node)
            return None
        fields = {key: plain(child) for key, child in node.value.items() if key not in _OUTSIDE}
        for key in _NUMERIC:
            if key in fields:
                fields[key] = amount_of(fields[key])
        distribution, faults = read_distribution(fields, self.vocabulary.is_real(name))
        if distribution is not None:
            distribution, faults = self._fit_to_knob(name, distribution)
        for fault in faults:
            self.notes.add(f"{name}: {fault.text}", node, fault.key)
        when = self._read_conditions(name, node)
        if distribution is None:
            return None
        default = self._read_default(name, distribution, node)
        if default is _NOT_READ or when is None:
            return None
        return Parameter(name, distribution, default, when)

    def _fit_to_knob(
        self, name: str, distribution: Distribution
    ) -> tuple[Distribution | None, list[KeyFault]]:
        """Check a distribution against the hyperparameter's type and range; normalise values."""
        if isinstance(distribution, Categorical | Ordinal):
            return self._fit_values(name, distribution)
        if self.vocabulary.env_key(name) is not None:
            text = "each value needs a separate program; list the `values`"
            return None, [KeyFault("distribution", text)]
        kind, text = self.vocabulary.type(name), ""
        if kind not in ("float", "int"):
            nouns = {"bool": "true or false", "choice": "one of a few words"}
            text = f"each value is {nouns.get(kind, 'a list of widths')}; list the `values`"
        elif kind == "int" and distribution.kind not in WHOLE_KINDS:
            kinds = ", ".join(WHOLE_KINDS)
            text = f"{distribution.kind} draws real numbers, but the values must be integers; use "
            text += f"one of {kinds}"
        if text:
            return None, [KeyFault("distribution", text)]
        faults: list[KeyFault] = []
        for key, bound in _extreme_values(distribution):
            try:
                self.vocabulary.value(name, bound)
            except ConfigError as error:
                text = f"{key} {bound!r} is not legal: {error}"
                if key == "zero":
                    share = f"{distribution.zero:g} draws 0 in {distribution.zero:.0%} of trials"
                    text = f"zero: {share}, but {name} cannot be 0; remove zero"
                faults.append(KeyFault(key, text))
        if faults:
            return None, faults
        return distribution, []

    def _fit_values(
        self, name: str, distribution: Categorical | Ordinal
    ) -> tuple[Distribution | None, list[KeyFault]]:
        values: list[Any] = []
        faults: list[KeyFault] = []
        for given in distribution.values:
            try:
                value = self.vocabulary.value(name, given)
            except ConfigError as error:
                faults.append(KeyFault("values", str(error).removeprefix(f"{name} is ")))
                continue
            if any(same(value, earlier) for earlier in values):
                faults.append(KeyFault("values", f"{given!r} appears twice among the values"))
            values.append(value)
        if faults:
            return None, faults
        return replace(distribution, values=tuple(values)), []

    def _read_default(self, name: str, distribution: Distribution, node: Node) -> Any:
        if "default" not in node.value:
            own = self.vocabulary.default(name)
            if distribution.why_not(own) is None:
                return distribution.canonical(own)
            return distribution.middle()
        with self.notes.at(node, "default", "default: "):
            value = self.vocabulary.value(name, plain(node.value["default"]))
            reason = distribution.why_not(value)
            if reason is None:
                return distribution.canonical(value)
            self.notes.add(f"{name}: default {reason}", node, "default")
        return _NOT_READ

    def _read_conditions(self, name: str, node: Node) -> tuple[Condition, ...] | None:
        if "when" not in node.value:
            return ()
        when: Node = node.value["when"]
        if not when.is_map or not when.value:
            self.notes.wrong(f"{name}: when", when, "such as {network: transformer}", node, "when")
            return None
        conditions: list[Condition] = []
        for given in when.value:
            values = self._read_knob_values(when, given)
            if values is not None:
                conditions.append(Condition(*values))
        if len(conditions) < len(when.value):
            return None  # noted
        return tuple(conditions)

    def _read_knob_values(self, node: Node, given: str) -> tuple[str, tuple[Any, ...]] | None:
        """Read `knob: value` or `knob: [value, ...]` in a condition or a rule."""
        with self.notes.at(node, given):
            name = self.vocabulary.name(given)
            raw = plain(node.value[given])
            listed = isinstance(raw, list)
            if self.vocabulary.type(name) in ("widths", "any"):
                listed = listed and any(isinstance(item, list) for item in raw)
            if not listed:
                raw = [raw]
            values = [self.vocabulary.value(name, item) for item in raw]
            if values:
                return name, tuple(values)
            self.notes.add(f"{name}: an empty list; give at least one value", node, given)
        return None

    def _constant_value(self, name: str) -> Any:
        if name in self.fixed:
            return self.fixed[name]
        return self.vocabulary.default(name)

    def _condition_constants(
        self, parameters: Sequence[Parameter], places: Sequence[Node], searched: set[str]
    ) -> dict[str, Any]:
        """Return the values of unsearched hyperparameters in conditions; note impossible ones."""
        constants: dict[str, Any] = {}
        for parameter, place in zip(parameters, places, strict=True):
            for condition in parameter.when:
                name, texts = condition.name, list[str]()
                if name not in searched:
                    constants[name] = self._constant_value(name)
                    if not condition.holds(constants):
                        why = f"{name} is not searched and is {constants[name]!r}"
                        texts.append(f"{parameter.name} is never active: {why}")
                parents = [parent.distribution for parent in parameters if parent.name == name]
                for value in condition.values:
                    reasons = [parent.why_not(value) for parent in parents]
                    if reasons and None not in reasons:
                        texts.append(f"{parameter.name}: when {name}: {reasons[0]}")
                for text in texts:
                    self.notes.add(text, place, "when")
        return constants

    def _read_rules(self, nodes: Sequence[Node]) -> tuple[Rule, ...]:
        if len(nodes) > _MOST_RULES:
            self.notes.add(
                f"forbid has {len(nodes)} rules; allowed: at most {_MOST_RULES}", nodes[0]
            )
            return ()
        return tuple(rule for rule in map(self._read_rule, nodes) if rule is not None)

    def _read_rule(self, node: Node) -> Rule | None:
        if node.is_map and node.value:
            wanted = [self._read_knob_values(node, given) for given in node.value]
            read = tuple(entry for entry in wanted if entry is not None)
            if len(read) < len(wanted):
                return None  # noted
            return ValueRule(read)
        if not isinstance(node.value, str):
            allowed = "{network: mlp} or such as 'gamma < gae_lambda - 0.15'"
            self.notes.wrong("a rule", node, allowed)
            return None
        with self.notes.at(node):
            rule = parse_rule(node.value)
            for name in rule.names:
                ours = self.vocabulary.name(name)
                if ours != name:
                    text = f"unknown hyperparameter {name!r} in a rule; here it is called {ours!r}"
                    raise ConfigError(text)
            return rule
        return None


def _how_to_write(node: Node) -> str:
    if node.is_list:
        written = flow({"values": plain(node)})
        if not node.value or len(written) > _LONGEST_LIST:
            written = "{values: [...]}"
        return f"use {written}"
    text = "give a distribution such as {min: 0.1, max: 1.0}"
    if node.value is not None:
        text += ", or write the knob under `fixed`"
    return text


def _extreme_values(distribution: Distribution) -> list[tuple[str | None, Any]]:
    """Return (key, value) for the extremes that the hyperparameter must allow."""
    low, high = distribution.ends()[-2:]
    bounds: list[tuple[str | None, Any]] = [("min", low), ("max", high)]
    if isinstance(distribution, Normal):
        keys = [key if getattr(distribution, key) is not None else None for key in ("min", "max")]
        bounds = list(zip(keys, distribution.bounds, strict=True))
    if distribution.zero:
        bounds.append(("zero", distribution.nothing))
    return bounds


def read_enqueue(
    notes: Notes, vocabulary: Vocabulary, space: Space, nodes: Sequence[Node]
) -> tuple[dict[str, Any], ...]:
    """Read `enqueue`: partial configurations that the space must be able to complete.

    The default configuration and repeated entries are dropped, because their runs would be bitwise
    equal.
    """
    if len(nodes) > _MOST_ENQUEUED:
        notes.add(f"enqueue has {len(nodes)} entries; allowed: at most {_MOST_ENQUEUED}", nodes[0])
        return ()
    read: list[dict[str, Any]] = []
    known = {space.canonical(space.default())}
    for node in nodes:
        if not node.is_map:
            notes.wrong("an entry of enqueue", node, "{knob: value, ...}")
            continue
        entry: dict[str, Any] = {}
        for given, child in node.value.items():
            with notes.at(node, given, "enqueue: "):
                name = vocabulary.name(given)
                entry[name] = vocabulary.value(name, plain(child))
        if len(entry) < len(node.value):
            continue
        with notes.at(node, before="enqueue: "):
            key = space.canonical(space.complete(entry))
            if key not in known:
                known.add(key)
                read.append(entry)
    return tuple(read)


def space_nodes(notes: Notes, root: Node, source: Path | None) -> tuple[Node | None, list[Node]]:
    """Return the mapping of parameters (or None) and the rules, including those in other files.

    Without a `source` (for recorded studies), only shipped files are read.
    """
    rules, node = root.child("forbid").elements, root.child("space")
    if not node.is_map:
        return None, rules
    if "file" not in node.value:
        return node, rules
    for key in node.value:
        if key not in ("file", "override"):
            text = f"unknown key {key!r} next to `file`; allowed: override: {{{key}: ...}}"
            notes.add(text, node, key)
    with notes.at(node, "file"):
        parameters, more_rules = _read_space_file(
            notes, node, _find_space_file(node.value["file"], source)
        )
        _apply_override(notes, node, parameters)
        return parameters, [*more_rules, *rules]
    return None, rules


def _find_space_file(given: Node, source: Path | None) -> Path:
    name = given.value
    shipped = sorted(f"spaces/{path.name}" for path in _PACKAGE.glob("spaces/*.yaml"))
    if not isinstance(name, str) or not is_inside(name):
        text = f"space.file is {given.shown()}; allowed: a path below the study's folder, or a "
        raise ConfigError(f"{text}shipped file, such as {shipped[0]}")
    for base in filter(None, (source, _PACKAGE)):
        if (base / name).is_file():
            return base / name
    raise UnknownNameError("space.file", name, shipped)


def _read_space_file(notes: Notes, node: Node, path: Path) -> tuple[Node, list[Node]]:
    shown, line = node.value["file"].value, node.key_lines["file"]
    try:
        root = read_file(path, shown)
    except StudyError as error:
        *first, last = str(error).splitlines()
        for text in first:
            notes.add(text, node, "file")
        raise ConfigError(last) from None
    _set_origin(root, shown, line)
    if not root.is_map:
        raise ConfigError(f"{shown} is {root.shown()}; allowed: {{space: {{...}}}}")
    for key in root.value:
        if key not in ("space", "forbid"):
            notes.add(f"unknown key {key!r}; known: space, forbid", root, key)
    space, rules = root.child("space"), root.child("forbid")
    if not space.is_map or "file" in space.value:
        raise ConfigError(f"{shown} needs `space`, a mapping of knobs")
    if "forbid" in root.value and not rules.is_list:
        notes.wrong("forbid", rules, "a list")
    return space, rules.elements


def _apply_override(notes: Notes, node: Node, parameters: Node) -> None:
    override = node.value.get("override")
    if override is None:
        return
    if not override.is_map:
        notes.wrong("space.override", override, "a mapping like space itself", node, "override")
        return
    for key, child in override.value.items():
        if child.value is not None:
            parameters.value[key] = child
            parameters.key_lines[key] = override.key_lines[key]
        elif key in parameters.value:
            del parameters.value[key], parameters.key_lines[key]
        else:
            text = f"override drops {key!r}, which the file does not have;"
            notes.add(f"{text}{suggestion(key, parameters.value)}", override, key)


def _set_origin(node: Node, shown: str, line: int | None) -> None:
    node.origin, node.outer = shown, line
    for child in node.children:
        _set_origin(child, shown, line)
