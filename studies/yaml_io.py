"""Strict YAML: converts text to nodes with line numbers, and data to text.

It reads the core schema of YAML 1.2: `010` is 10, `off` is a string, and `1e-4` is a number. A
file must be a single document without tags or duplicate keys. Size and depth are checked on
parser events, before any node is built, and aliases cannot make a small file large.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from ..errors import ConfigError, Mistake, StudyError, suggestion
from ..files.plain_data import is_mapping, is_sequence, shortened

MOST_BYTES = 256 * 1024
MOST_LEVELS = 50
MOST_NODES = 20_000
MOST_MISTAKES = 100
_MOST_DIGITS = 40
_MOST_FILES = 8  # that a message names

_WORDS = {
    **dict.fromkeys(("~", "null", "Null", "NULL", ""), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_NUMBERS: tuple[tuple[str, Callable[[str], float]], ...] = (
    (r"[-+]?[0-9]+", int),
    (r"0o[0-7]+|0x[0-9a-fA-F]+", lambda text: int(text, 0)),
    (r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", float),
    (r"[-+]?\.(inf|Inf|INF)", lambda text: float(text.replace(".", "", 1))),
    (r"\.(nan|NaN|NAN)", lambda text: float("nan")),
)
_yaml: Any = yaml  # its type stubs leave events untyped
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_LONGEST = 1200  # largest number of characters in a mistake
_WIDTH = 99
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./+-]*")


@dataclass
class Node:
    line: int | None  # from 1; None: on the command line
    value: Any  # a scalar, a list of nodes, or a dict of key -> node
    key_lines: dict[str, int | None] = field(default_factory=dict[str, int | None])
    origin: str = ""  # prefix of messages, such as `override a.b=c: `
    # the study's line that names this node's file, if it is a different one
    outer: int | None = None

    @property
    def is_map(self) -> bool:
        return isinstance(self.value, dict)

    @property
    def is_list(self) -> bool:
        return isinstance(self.value, list)

    @property
    def elements(self) -> list[Node]:
        """The nodes of a list; empty for other values."""
        if self.is_list:
            return self.value
        return []

    @property
    def mapping(self) -> dict[str, Node]:
        """The nodes of a mapping by key; empty for other values."""
        if self.is_map:
            return self.value
        return {}

    @property
    def children(self) -> list[Node]:
        return [*self.mapping.values(), *self.elements]

    def child(self, key: str) -> Node:
        """Return the node at a mapping's key; a null node without a line if the key is absent."""
        return self.mapping.get(key, Node(None, None))

    def shown(self) -> str:
        if self.is_map:
            return "a mapping"
        if self.is_list:
            return "a list"
        if self.value is None or isinstance(self.value, bool):
            return flow(self.value)
        return shortened(repr(self.value))


def recorded_data(study_text: str, shown: str = "study.resolved.yaml") -> dict[str, Any]:
    """Return the data of a recorded study, as written; `resolved.as_recorded` adds defaults."""
    return plain(read_text(study_text, shown))


def plain(node: Node) -> Any:
    """Return a node's plain value.

    >>> plain(read_text("{a: [1, 0x10, 1e-4], b: off}", "x.yaml"))
    {'a': [1, 16, 0.0001], 'b': 'off'}
    """
    if node.is_map:
        return {key: plain(child) for key, child in node.value.items()}
    if node.is_list:
        return [plain(child) for child in node.value]
    return node.value


def node_of(value: Any) -> Node:
    """Convert a value to a node; the inverse of `plain`."""
    if is_mapping(value):
        return Node(None, {key: node_of(item) for key, item in value.items()})
    if is_sequence(value):
        return Node(None, [node_of(item) for item in value])
    return Node(None, value)


def scalar_of(text: str) -> Any:
    """Return the value of an unquoted scalar in the core schema of YAML 1.2.

    >>> scalar_of("010"), scalar_of("1e-4"), scalar_of("off"), scalar_of("~"), scalar_of("200M")
    (10, 0.0001, 'off', None, '200M')
    """
    if text in _WORDS:
        return _WORDS[text]
    for pattern, number in _NUMBERS:
        if re.fullmatch(pattern, text):
            if len(text) > _MOST_DIGITS:
                raise ValueError(f"a number with {len(text)} characters")
            return number(text)
    return text


def events_of(text: str, loader: Any = _LOADER) -> Iterator[Any]:
    """Return the parser's events; raises `MarkedYAMLError` if they nest too deeply."""
    depth = 0
    for event in _yaml.parse(text, loader):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > MOST_LEVELS:
            words = f"nested deeper than {MOST_LEVELS} levels"
            raise yaml.MarkedYAMLError(problem=words, problem_mark=event.start_mark)
        yield event


def read_file(path: Path, shown: str) -> Node:
    """Read a file; `shown` is its name in messages."""
    return read_text(text_of(path, shown), shown)


def text_of(path: Path, shown: str = "") -> str:
    """Return a file's text; raise `StudyError` if it is missing or larger than `MOST_BYTES`."""
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            fault = Mistake(None, "is a pipe or a device; save its content as a file")
        else:
            with path.open("rb") as file:
                data = file.read(MOST_BYTES + 1)
            if len(data) <= MOST_BYTES:
                return data.decode("utf-8-sig")
            most = f"{MOST_BYTES // 1024} KB"
            fault = Mistake(1, f"the file is larger than {most}, the limit for a study")
    except OSError as error:
        text = f"cannot be read: {error.strerror or type(error).__name__}{_files_there(path)}"
        fault = Mistake(None, text)
    except UnicodeDecodeError as error:
        byte, line = error.object[error.start], error.object[: error.start].count(b"\n") + 1
        fault = Mistake(line, f"byte 0x{byte:02x} is not UTF-8; save the file as UTF-8")
    except ValueError as error:
        fault = Mistake(None, f"not a path: {error}")
    raise StudyError(repr(shown or str(path)).strip("'"), [fault])


def _files_there(path: Path) -> str:
    """Return a phrase that lists the YAML files in a folder, or next to a missing path."""
    folder = path
    if not path.is_dir():
        folder = path.parent
    if path.is_file() or not os.access(folder, os.R_OK | os.X_OK):
        return ""
    names = sorted(str(one) for one in folder.iterdir() if one.suffix in (".yaml", ".yml"))
    if not names:
        return f"; {folder}/ has no study file (.yaml)"
    shown = names[:_MOST_FILES]
    if len(names) > len(shown):
        shown.append(f"{len(names) - len(shown)} more")
    return f";{suggestion(str(path), names)} {folder}/ has {', '.join(shown)}"


def read_text(text: str, shown: str) -> Node:
    """Read YAML text; `shown` is its name in messages."""
    notes = Notes(shown)
    try:
        for event in events_of(text):  # before any node is built
            if (tag := getattr(event, "tag", None)) is not None:
                words = f"tag {tag[:80]!r} is not allowed; write the value without it"
                notes.add(words, Node(event.start_mark.line + 1, None))
        root = _yaml.compose(text, _LOADER)
    except yaml.YAMLError as error:
        line, words = _error_line_and_text(error, text)
        notes.add(words, Node(line, None))
        raise notes.error() from None
    if root is None:
        notes.add("the file is empty", Node(1, None))
        raise notes.error(init="ENV")
    found = _Builder(notes).node(root, 1)
    if notes:
        raise notes.error()
    return found


def _error_line_and_text(error: Any, text: str) -> tuple[int, str]:
    """Return the line and the text of a parser error."""
    if isinstance(error, yaml.reader.ReaderError):
        line = text[: max(0, error.position)].count("\n") + 1
        return line, "a control character is not allowed; remove it"
    mark = error.problem_mark or error.context_mark
    words = " ".join(part for part in (error.context, error.problem) if part)
    lines = dict(enumerate(text.split("\n")))
    if mark and lines.get(mark.line, "")[mark.column : mark.column + 1] == "\t":
        words = "there is a tab; indent YAML with spaces"
    if mark and error.problem == "found undefined alias":
        alias = lines.get(mark.line, "")[mark.column :].split()[0].strip(",]}")
        return mark.line + 1, f"alias {alias[:60]} is used before it is defined"
    line, last = 1, max(1, len(text.splitlines()))
    if mark:
        line = min(mark.line + 1, last)
    return line, f"is not valid YAML: {words}"


class _Builder:
    """Converts `yaml` nodes to ours; aliases become copies, so an override changes only one."""

    def __init__(self, notes: Notes):
        self._notes, self._left = notes, MOST_NODES

    def node(self, given: Any, level: int) -> Node:
        line, found = given.start_mark.line + 1, Node(given.start_mark.line + 1, given.value)
        is_scalar = isinstance(given, yaml.ScalarNode)
        self._left -= 1
        if self._left < 0 or (level > MOST_LEVELS and not is_scalar):
            most = f"{MOST_NODES} values or {MOST_LEVELS} levels"
            self._notes.add(f"the file has more than {most}, including aliases", found)
            raise self._notes.error()
        if is_scalar and not given.style:
            try:
                found.value = scalar_of(given.value)
            except ValueError as error:
                self._notes.add(f"{error} is not allowed", found)
        elif isinstance(given, yaml.SequenceNode):
            found.value = [self.node(item, level + 1) for item in given.value]
        elif isinstance(given, yaml.MappingNode):
            found.value = {}
            for key, value in given.value:
                line = key.start_mark.line + 1
                child = self.node(value, level + 1)
                if not isinstance(key, yaml.ScalarNode):
                    words = "a key must be a word, not a list or a mapping"
                elif key.value == "<<" and not key.style:  # quoted, it is a string
                    words = "merge keys (`<<`) are not allowed; write the keys out"
                elif key.value in found.value:
                    first = found.key_lines[key.value]
                    words = f"key {key.value[:60]!r} is given twice, first on line {first}"
                else:
                    found.value[key.value], found.key_lines[key.value] = child, line
                    continue
                self._notes.add(words, Node(line, None))
        return found


class Notes:
    def __init__(self, shown: str):
        self.shown = shown
        self._mistakes: dict[Mistake, None] = {}

    def __bool__(self) -> bool:
        return bool(self._mistakes)

    def add(self, text: str, node: Node | None = None, key: str | None = None) -> None:
        """Note a mistake at a node, or at one of its keys; without a node, it has no line."""
        line = None
        if node is not None:
            line, origin, outer = node.line, node.origin, node.outer
            if key is not None and key in node.key_lines:
                line = node.key_lines[key]
                if node.value[key].origin:
                    origin, outer = node.value[key].origin, node.value[key].outer
            if outer is None:
                text = f"{origin}{text}"
            else:
                line, text = outer, f"{origin}:{line}: {text}"
        if len(text) > _LONGEST:
            text = f"{text[:800]} ... {text[-300:]}"
        self._mistakes.setdefault(Mistake(line, text))
        if len(self._mistakes) > MOST_MISTAKES:
            raise self.error()

    def wrong(
        self, what: str, node: Node, allowed: str, at: Node | None = None, key: str | None = None
    ) -> None:
        """Note an illegal value at its node, or at the node `at`."""
        self.add(f"{what} is {node.shown()}; allowed: {allowed}", at or node, key)

    @contextmanager
    def at(self, node: Node, key: str | None = None, before: str = "") -> Generator[None]:
        """Note any `ConfigError` raised in the context, at a node or at one of its keys."""
        try:
            yield
        except ConfigError as error:
            self.add(f"{before}{error}", node, key)

    def error(self, **remedies: str) -> StudyError:
        """Return an error with all mistakes, each once, in file order."""
        ordered = sorted(self._mistakes, key=lambda one: (one.line is None, one.line or 0))
        if len(ordered) > MOST_MISTAKES:
            ordered = [*ordered[:MOST_MISTAKES], Mistake(None, "and more mistakes")]
        return StudyError(self.shown, ordered, **remedies)


def place_of(root: Node, path: str) -> tuple[Node, str | None]:
    """Return the node and key to blame for a path `section.key|section.key`.

    Blame the first of these keys that is given, otherwise the first section, otherwise the file.
    """
    places = [place.partition(".")[::2] for place in path.split("|")]
    for section, key in places:
        node = root.child(section)
        if key and key in node.mapping:
            return node, key
    given = (section for section, _ in places if section in root.value)
    return root, next(given, None)


def to_yaml(data: Mapping[str, Any]) -> str:
    r"""Return a mapping as YAML text.

    >>> to_yaml({"env": {"id": "CartPole-v1"}, "note": "off", "rate": 1e-5})
    'env: {id: CartPole-v1}\nnote: off\nrate: 1e-05\n'
    """
    return "".join(_entry_text(key, value, 0) for key, value in data.items())


def _entry_text(key: str, value: Any, indent: int) -> str:
    start = f"{' ' * indent}{_quote_text(key)}:"
    line = f"{start} {flow(value)}\n"
    fits = len(line) <= _WIDTH and not (indent == 0 and _is_block(value))
    if fits or not (is_mapping(value) or is_sequence(value)) or not value:
        return line
    if is_mapping(value):
        return f"{start}\n" + "".join(_entry_text(k, v, indent + 2) for k, v in value.items())
    return f"{start}\n" + "".join(f"{' ' * indent}  - {flow(item)}\n" for item in value)


def _is_block(value: Any) -> bool:
    """Return whether a top-level value is nested, and thus more readable with a line per entry."""
    if is_mapping(value):
        return any(is_mapping(item) and item for item in value.values())
    return is_sequence(value) and any(is_mapping(item) and item for item in value)


def flow(value: Any) -> str:
    """Return a value on one line.

    >>> flow({"values": [0.9, None, [64, 64]]})
    '{values: [0.9, null, [64, 64]]}'
    """
    if is_mapping(value):
        return "{" + ", ".join(f"{_quote_text(k)}: {flow(v)}" for k, v in value.items()) + "}"
    if is_sequence(value):
        return "[" + ", ".join(flow(item) for item in value) + "]"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    return _quote_text(str(value))


def _quote_text(text: str) -> str:
    if _PLAIN.fullmatch(text) and len(text) < 40 and isinstance(scalar_of(text), str):
        return text
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\U{ord(c):08X}" for c in quoted)
