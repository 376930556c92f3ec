"""A training run as a command line: its placeholders and hyperparameters.

In `command: python train.py --lr {learning_rate} --seed {seed}` each name in braces is replaced by
the value of that hyperparameter. Types and defaults are derived from the distributions in the
space.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ..errors import ConfigError, listed, suggestion
from ..files.plain_data import freeze, is_sequence
from ..knobs import Knob
from ..knobs.knob import KnobType
from ..spaces.distributions import Categorical, Distribution, Ordinal
from ..spaces.make import WHOLE_KINDS, read_distribution
from .algorithm import COMMAND, ENV_STEPS, Algorithm
from .space_section import space_nodes
from .study_values import amount_of
from .yaml_io import Node, Notes, plain

_PLACEHOLDER = re.compile(r"\{([A-Za-z_][\w.\-/]*)\}")
_SHELL = re.compile(r"[|&;<>`$]|\\\n")
_SETTING = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
GIVEN = ("seed", "folder", "env_steps", "length", "trial")
"""Placeholders that are filled in for every run."""
_UNNAMED = "command"


@dataclass(frozen=True)
class Template:
    """A command line with placeholders.

    >>> line = Template("LEVEL=2 python train.py --lr {lr} --hidden {widths} --out '{folder}/a b'")
    >>> line.argv({"lr": 0.0003, "widths": (64, 32), "folder": "r"})
    ['python', 'train.py', '--lr', '0.0003', '--hidden', '64', '32', '--out', 'r/a b']
    >>> line.settings({})
    {'LEVEL': '2'}
    >>> Template("cd {folder} && train --lr {lr}").argv({"folder": "a b", "lr": 1})
    ['/bin/sh', '-c', "cd 'a b' && train --lr 1"]
    """

    text: str

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The placeholders, each once."""
        return tuple(dict.fromkeys(_PLACEHOLDER.findall(self.text)))

    @property
    def needs_shell(self) -> bool:
        return _SHELL.search(self.text) is not None

    @cached_property
    def _split_words(self) -> tuple[list[str], list[str]]:
        """Return the variables set before the command, and the words of the command."""
        try:
            words = shlex.split(self.text)
        except ValueError as error:
            raise ConfigError(f"command: {error}; close the quote") from None
        start = 0
        while start < len(words) and _SETTING.fullmatch(words[start]):
            start += 1
        return words[:start], words[start:]

    def argv(self, values: Mapping[str, Any]) -> list[str]:
        """Return the process's arguments, one per item for a list that fills a whole word."""
        if self.needs_shell:
            line = _PLACEHOLDER.sub(
                lambda found: shlex.quote(_argument_text(values[found[1]])), self.text
            )
            return ["/bin/sh", "-c", line]
        argv: list[str] = []
        for word in self._split_words[1]:
            alone = _PLACEHOLDER.fullmatch(word)
            if alone is not None and is_sequence(values[alone[1]]):
                argv += [_argument_text(item) for item in values[alone[1]]]
            else:
                argv.append(_fill_placeholders(word, values))
        return argv

    def settings(self, values: Mapping[str, Any]) -> dict[str, str]:
        """Return the environment variables set at the start of the line."""
        if self.needs_shell:
            return {}
        pairs = (_fill_placeholders(word, values).partition("=") for word in self._split_words[0])
        return {name: value for name, _, value in pairs}

    def check(self) -> None:
        """Raise ConfigError if the line does not start a program."""
        if not self.needs_shell and not self._split_words[1]:
            raise ConfigError("command is empty; give one such as python train.py --seed {seed}")

    @property
    def label(self) -> str:
        """The name of the script or the program, for tables.

        >>> Template("python -u src/train.py --seed {seed}").label
        'train.py'
        """
        words = [word for word in re.split(r"[\s'\"]+", self.text) if word]
        scripts = [word for word in words if word.endswith((".py", ".sh", ".jl", ".R"))]
        words = [word for word in words if not _SETTING.fullmatch(word)]
        named = Path((scripts or words or [_UNNAMED])[0]).name
        return re.sub(r"[^A-Za-z0-9._-]+", "_", named) or _UNNAMED


def _fill_placeholders(word: str, values: Mapping[str, Any]) -> str:
    return _PLACEHOLDER.sub(lambda found: _argument_text(values[found[1]]), word)


def _argument_text(value: Any) -> str:
    """Return a value in command-line form.

    >>> _argument_text(True), _argument_text(1e-05), _argument_text((64, 32)), _argument_text(None)
    ('True', '1e-05', '64,32', 'None')
    """
    if is_sequence(value):
        return ",".join(_argument_text(item) for item in value)
    return str(value)


def resumed(command: str, resume: str) -> Template:
    """Return the command line that resumes a run; `...` in `resume` is replaced by the command.

    >>> resumed("python a.py", "... --load {folder}").text
    'python a.py --load {folder}'
    """
    return Template(resume.replace("...", command, 1))


@dataclass(frozen=True)
class _Given:
    """The distributions and values given for one hyperparameter in a study file."""

    name: str
    place: str  # the section that contains its name
    distributions: tuple[Distribution, ...] = ()
    values: tuple[Any, ...] = field(default=())  # under `fixed`
    default: Any = None

    def knob(self) -> Knob:
        values, default = [*self.values], self.default
        for one in self.distributions:
            values += one.ends()
        if default is not None:
            values.append(default)
        elif self.distributions:
            default = self.distributions[0].middle()
        else:
            default = values[0]
        whole = all(
            one.kind in WHOLE_KINDS for one in self.distributions if not _has_listed_values(one)
        )
        kind, choices = _knob_type(values, whole)
        traced = kind in ("float", "int", "bool", "choice")
        return Knob(self.name, kind, freeze(default), traced, choices=choices)


def _has_listed_values(distribution: Distribution) -> bool:
    return isinstance(distribution, Categorical | Ordinal)


def _knob_type(values: list[Any], whole: bool) -> tuple[KnobType, tuple[str, ...]]:
    """Infer a hyperparameter's type and its allowed words from these values."""
    words = tuple(dict.fromkeys(value for value in values if isinstance(value, str)))
    others = [value for value in values if not isinstance(value, str)]
    if others and all(isinstance(value, bool) for value in others):
        return "bool", words
    if others and all(is_sequence(value) for value in others):
        return "widths", words
    if not others:
        return "choice", words
    if whole and all(type(value) is int for value in others):
        return "int", words
    return "float", words


def command_algorithm(notes: Notes, root: Node, source: Path | None) -> Algorithm:
    """Return the algorithm of a study with `command`, and note its mistakes."""
    node = root.value["command"]
    if not isinstance(node.value, str) or not node.value.strip():
        notes.wrong("command", node, "a command line such as python train.py --seed {seed}")
        return Algorithm()
    line = Template(node.value)
    with notes.at(root, "command"):
        line.check()
    given = _read_hyperparameters(notes, root, source, _take_default(notes, root))
    _check_names(notes, root, line, given)
    unit = _length_unit(root)
    table = {one.name: one.knob() for one in given.values()}
    root.value.pop("algorithm", None)  # in a resolved study
    return Algorithm(f"{COMMAND}:{line.label}", table, unit, takes_env=False, acts=False)


def _take_default(notes: Notes, root: Node) -> dict[str, Any]:
    """Remove and return the default configuration given as a mapping under `confirm.default`.

    The key then becomes true or false. Without a mapping, the default is the middle of the ranges,
    and takes part in the comparison only on request.
    """
    confirm = root.value.get("confirm")
    if confirm is None or not confirm.is_map:
        return {}
    node = confirm.value.get("default")
    if node is None:
        here = root.key_lines.get("confirm")
        confirm.value["default"] = Node(here, _has_defaults(root))
        confirm.key_lines["default"] = here
        return {}
    if not node.is_map:
        return {}
    confirm.value["default"] = Node(node.line, True)
    return {name: plain(child) for name, child in node.value.items()}


def _has_defaults(root: Node) -> bool:
    entries = root.child("space").mapping.values()
    return bool(entries) and all("default" in one.mapping for one in entries)


def _read_hyperparameters(
    notes: Notes, root: Node, source: Path | None, defaults: Mapping[str, Any]
) -> dict[str, _Given]:
    found: dict[str, _Given] = {}
    space, _ = space_nodes(notes, root, source)
    searched = dict[str, Node]()
    if space is not None:
        searched = space.mapping
    for name, child in searched.items():
        distributions = tuple(_read_distributions(child))
        own = _own_default(child)
        default = _parse_value(defaults.get(name, own))
        found[name] = _Given(name, "space", distributions, default=default)
        if not distributions:  # its mistakes are noted when the space is read
            found[name] = _Given(name, "space", values=(0.0,), default=default)
    for name, child in root.child("fixed").mapping.items():
        found.setdefault(name, _Given(name, "fixed", values=(_parse_value(plain(child)),)))
    for name in defaults:
        if name not in found or found[name].place == "fixed":
            where = root.value["confirm"]
            hint = f"{suggestion(name, found)} {listed(name, [*found])}"
            notes.add(f"confirm.default has {name!r}, which is not searched;{hint}", where)
    return found


def _read_distributions(child: Node) -> Iterator[Distribution]:
    for node in (child, *child.elements):
        if not node.is_map:
            continue
        fields = {key: _parse_field(key, one) for key, one in node.value.items()}
        for key in ("default", "when"):
            fields.pop(key, None)
        distribution, _ = read_distribution(fields)
        if distribution is not None:
            yield distribution


def _parse_field(key: str, child: Node) -> Any:
    if key in ("values", "distribution"):
        return freeze(plain(child))
    return _parse_value(plain(child))


def _own_default(child: Node) -> Any:
    if child.is_map and "default" in child.value:
        return plain(child.value["default"])
    return None


def _parse_value(value: Any) -> Any:
    return freeze(amount_of(value))


def _check_names(notes: Notes, root: Node, line: Template, given: Mapping[str, _Given]) -> None:
    known = [*given, *GIVEN]
    for name in line.names:
        if name not in known:
            hint = f"{suggestion(name, known)} {listed(name, known)}"
            text = f"command has {{{name}}}, which is neither searched nor fixed;{hint}"
            notes.add(text, root, "command")
    for name, one in given.items():
        section = root.value[one.place]
        if name in GIVEN:
            notes.add(
                f"{one.place} has {name!r}, which hpo sets in every run; rename it", section, name
            )
        elif name not in line.names:
            notes.add(_unused_text(name, one.place), section, name)
    if "resume" in root.value and isinstance(root.value["resume"].value, str):
        more = resumed(line.text, root.value["resume"].value)
        for name in more.names:
            if name not in known:
                text = f"resume has {{{name}}}; {listed(name, known)}"
                notes.add(text, root, "resume")


def _unused_text(name: str, place: str) -> str:
    """Return the mistake of a hyperparameter that the command does not contain."""
    if not _PLACEHOLDER.fullmatch(f"{{{name}}}"):
        text = f"{place} has {name!r}, which cannot be a placeholder in command; rename it: "
        return f"{text}names have letters, digits, '_', '.', '-' and '/', and begin with a letter"
    text = f"{place} has {name!r}, but command does not use {{{name}}}; add it there, "
    return f"{text}such as --{name} {{{name}}}, or remove it"


def _length_unit(root: Node) -> str:
    """Return the unit of run length: the words that follow the number."""
    recorded = root.child("algorithm")
    if "unit" in recorded.mapping:
        return str(recorded.value["unit"].value)
    length = root.child("length").value
    if not isinstance(length, str):
        return ENV_STEPS
    words = re.sub(r"^\s*[0-9.eE+]+[kKMGB]?", "", length).strip()
    return words or ENV_STEPS
