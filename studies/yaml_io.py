"""Strict YAML: text to nodes that know their lines, and data to text.

It takes the core schema of YAML 1.2 (so `010` is 10, `off` is a word, `1e-4` a number), one
document, no tags, no duplicate keys. Size and depth are checked on parser events, before any node
is built, and aliases cannot make a small file large.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from ..errors import ConfigError, Mistake, StudyError
from ..files.plain_data import is_mapping, is_sequence

MOST_BYTES = 256 * 1024
MOST_LEVELS = 50
MOST_NODES = 20_000
MOST_MISTAKES = 100
_MOST_DIGITS = 40

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
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass
class Node:
    line: int | None  # from 1; None: from the command line
    value: Any  # scalar, list of nodes, or dict of key -> node
    key_lines: dict[str, int | None] = field(default_factory=dict[str, int | None])
    origin: str = ""  # before messages, such as `override a.b=c: `
    outer: int | None = None  # the study's line that names the file of this node, if another

    @property
    def is_map(self) -> bool:
        return isinstance(self.value, dict)

    @property
    def is_list(self) -> bool:
        return isinstance(self.value, list)

    @property
    def children(self) -> list[Node]:
        if self.is_map:
            return list(self.value.values())
        return self.value if self.is_list else []

    def shown(self) -> str:
        if self.is_map:
            return "a mapping"
        if self.is_list:
            return "a list"
        if self.value is None:
            return "null"
        if isinstance(self.value, bool):
            return "true" if self.value else "false"
        text = repr(self.value)
        return text if len(text) <= 60 else text[:57] + "..."


def plain(node: Node) -> Any:
    """Return the value without nodes.

    >>> plain(read_text("{a: [1, 0x10, 1e-4], b: off}", "x.yaml"))
    {'a': [1, 16, 0.0001], 'b': 'off'}
    """
    if node.is_map:
        return {key: plain(child) for key, child in node.value.items()}
    return [plain(child) for child in node.value] if node.is_list else node.value


def scalar_of(text: str) -> Any:
    """Return the meaning of an unquoted scalar in the core schema of YAML 1.2.

    >>> scalar_of("010"), scalar_of("1e-4"), scalar_of("off"), scalar_of("~"), scalar_of("200M")
    (10, 0.0001, 'off', None, '200M')
    """
    if text in _WORDS:
        return _WORDS[text]
    for pattern, number in _NUMBERS:
        if re.fullmatch(pattern, text):
            if len(text) > _MOST_DIGITS:
                raise ValueError(f"a number of {len(text)} characters")
            return number(text)
    return text


def events_of(text: str, loader: Any = _LOADER) -> Iterator[Any]:
    """Return the parser's events, which the types of `yaml` leave open."""
    return yaml.parse(text, loader)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


def read_file(path: Path, shown: str) -> Node:
    """Read a file; `shown` is its name in messages."""
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            text = "is a pipe or a device; write the study into a file"
            raise StudyError(shown, [Mistake(None, text)])
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise StudyError(shown, [Mistake(None, f"cannot be read: {reason}")]) from None
    except ValueError as error:
        raise StudyError(repr(shown), [Mistake(None, f"not a path: {error}")]) from None
    if len(data) > MOST_BYTES:
        text = f"the file is larger than {MOST_BYTES // 1024} KB, the most a study may have"
        raise StudyError(shown, [Mistake(1, text)])
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        mistake = Mistake(line, f"byte 0x{data[error.start]:02x} is not UTF-8; save it as UTF-8")
        raise StudyError(shown, [mistake]) from None
    return read_text(text, shown)


def read_text(text: str, shown: str) -> Node:
    """Read YAML text; `shown` is its name in messages."""
    return _Composer(shown).compose(text)


def _height(node: Node) -> int:
    return 1 + max(map(_height, node.children), default=0)


class _Composer:
    def __init__(self, shown: str):
        self._notes = Notes(shown)
        self._anchors: dict[str, tuple[Node, int]] = {}
        self._open: set[str] = set()
        self._count = 0
        self._depth = 0

    def compose(self, text: str) -> Node:
        try:
            root = self._document(self._events(text))
        except yaml.MarkedYAMLError as error:
            raise self._syntax(error, text) from None
        except yaml.reader.ReaderError as error:
            line = text[: error.position].count("\n") + 1 if error.position >= 0 else 1
            raise self._stop(line, "a control character is not allowed; remove it") from None
        except yaml.YAMLError as error:
            raise self._stop(1, f"is not valid YAML: {error}") from None
        if self._notes:
            raise self._notes.error()
        return root

    def _events(self, text: str) -> Iterator[Any]:
        depth = 0
        for event in events_of(text):
            line = event.start_mark.line + 1
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
                if depth > MOST_LEVELS:
                    raise self._stop(line, f"nested deeper than {MOST_LEVELS} levels")
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            tag = getattr(event, "tag", None)
            if tag is not None:
                self._refuse(line, f"tag {tag[:80]!r} is not allowed; write the value without it")
            yield event

    def _document(self, events: Iterator[Any]) -> Node:
        root: Node | None = None
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                if root is not None:
                    line = event.start_mark.line + 1
                    raise self._stop(line, "a second document starts here; a file has one")
                root = self._node(next(events), events)
        if root is None:
            raise self._stop(1, "the file is empty", init="ENV")
        return root

    def _node(self, event: Any, events: Iterator[Any]) -> Node:
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event.anchor, line)
        before = self._count
        self._tally(1, line)
        if event.anchor is not None:
            self._open.add(event.anchor)
        self._depth += 1
        if isinstance(event, yaml.ScalarEvent):
            node = Node(line, self._scalar(event, line))
        elif isinstance(event, yaml.SequenceStartEvent):
            node = Node(line, self._items(events))
        else:
            node = Node(line, {})
            self._fill(node, events)
        self._depth -= 1
        if event.anchor is not None:
            self._open.discard(event.anchor)
            self._anchors[event.anchor] = (node, self._count - before)
        return node

    def _alias(self, anchor: str, line: int) -> Node:
        if anchor in self._open:
            raise self._stop(line, f"alias *{anchor[:60]} is inside the value it names")
        if anchor not in self._anchors:
            raise self._stop(line, f"alias *{anchor[:60]} names nothing defined before it")
        node, size = self._anchors[anchor]
        self._tally(size, line)
        if self._depth + _height(node) > MOST_LEVELS:
            raise self._stop(line, f"nested deeper than {MOST_LEVELS} levels, aliases followed")
        # A copy, so that an override of one place does not change the other.
        return copy.deepcopy(node)

    def _tally(self, size: int, line: int) -> None:
        self._count += size
        if self._count > MOST_NODES:
            raise self._stop(line, f"more than {MOST_NODES} values, aliases followed")

    def _items(self, events: Iterator[Any]) -> list[Node]:
        items: list[Node] = []
        while not isinstance(event := next(events), yaml.SequenceEndEvent):
            items.append(self._node(event, events))
        return items

    def _fill(self, node: Node, events: Iterator[Any]) -> None:
        while not isinstance(event := next(events), yaml.MappingEndEvent):
            line = event.start_mark.line + 1
            key = event.value if isinstance(event, yaml.ScalarEvent) else None
            self._node(event, events)
            child = self._node(next(events), events)
            if key is None:
                self._refuse(line, "a key must be a word, not a list, a mapping or an alias")
            elif key == "<<" and event.implicit[0]:  # quoted, it is a word
                self._refuse(line, "merge keys (`<<`) are not allowed; write the keys out")
            elif key in node.value:
                first = node.key_lines[key]
                self._refuse(line, f"key {key[:60]!r} is given twice, first in line {first}")
            else:
                node.value[key] = child
                node.key_lines[key] = line

    def _scalar(self, event: Any, line: int) -> Any:
        if not event.implicit[0]:
            return event.value
        try:
            return scalar_of(event.value)
        except ValueError as error:
            self._refuse(line, f"{error} is not allowed")
            return None

    def _refuse(self, line: int, text: str) -> None:
        self._notes.add(text, Node(line, None))

    def _stop(self, line: int, text: str, **remedies: str) -> StudyError:
        self._refuse(line, text)
        return self._notes.error(**remedies)

    def _syntax(self, error: yaml.MarkedYAMLError, text: str) -> StudyError:
        mark = error.problem_mark or error.context_mark
        words = " ".join(part for part in (error.context, error.problem) if part)
        lines = dict(enumerate(text.split("\n")))
        line = lines.get(mark.line, "") if mark else ""  # it may be after the last one
        if mark and line[mark.column : mark.column + 1] == "\t":
            words = "there is a tab; YAML is indented with blanks"
        return self._stop(mark.line + 1 if mark else 1, f"is not valid YAML: {words}")


_LONGEST = 1200


class Notes:
    def __init__(self, shown: str):
        self.shown = shown
        self._mistakes: dict[Mistake, None] = {}

    def __bool__(self) -> bool:
        return bool(self._mistakes)

    def add(self, text: str, node: Node | None = None, key: str | None = None) -> None:
        """Note a mistake at a node, or at one key of it; without a node it has no line."""
        line = None
        if node is not None:
            line, origin, outer = node.line, node.origin, node.outer
            if key is not None and key in node.key_lines:
                line = node.key_lines[key]
                if node.value[key].origin:
                    origin, outer = node.value[key].origin, node.value[key].outer
            text = f"{origin}{text}" if outer is None else f"{origin}:{line}: {text}"
            line = line if outer is None else outer
        text = text if len(text) <= _LONGEST else f"{text[:800]} ... {text[-300:]}"
        self._mistakes.setdefault(Mistake(line, text))
        if len(self._mistakes) > MOST_MISTAKES:
            raise self.error()

    @contextmanager
    def at(self, node: Node, key: str | None = None, before: str = "") -> Generator[None]:
        """Note a `ConfigError` raised within as a mistake at a node, or at one key of it."""
        try:
            yield
        except ConfigError as error:
            self.add(f"{before}{error}", node, key)

    def error(self, **remedies: str) -> StudyError:
        """Return the error with all mistakes, each once, in the order of the file."""
        ordered = sorted(
            self._mistakes, key=lambda mistake: (mistake.line is None, mistake.line or 0)
        )
        if len(ordered) > MOST_MISTAKES:
            ordered = [*ordered[:MOST_MISTAKES], Mistake(None, "and more mistakes")]
        return StudyError(self.shown, ordered, **remedies)


def place_of(root: Node, path: str) -> tuple[Node, str | None]:
    """Return the node and key that a path `section.key|section.key` blames.

    The first key that is given, else the first section, else the whole file.
    """
    places = [place.partition(".")[::2] for place in path.split("|")]
    for section, key in places:
        node = root.value.get(section)
        if key and node is not None and node.is_map and key in node.value:
            return node, key
    given = (section for section, _ in places if section in root.value)
    return root, next(given, None)


_WIDTH = 99
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./+-]*")


def to_yaml(data: Mapping[str, Any]) -> str:
    r"""Return a mapping as YAML text.

    >>> to_yaml({"env": {"id": "CartPole-v1"}, "note": "off", "rate": 1e-5})
    'env: {id: CartPole-v1}\nnote: off\nrate: 1e-05\n'
    """
    return "".join(_entry(key, value, 0) for key, value in data.items())


def _entry(key: str, value: Any, indent: int) -> str:
    start = f"{' ' * indent}{_text(key)}:"
    line = f"{start} {flow(value)}\n"
    fits = len(line) <= _WIDTH and not (indent == 0 and _is_block(value))
    if fits or not (is_mapping(value) or is_sequence(value)) or not value:
        return line
    if is_mapping(value):
        return f"{start}\n" + "".join(_entry(k, v, indent + 2) for k, v in value.items())
    return f"{start}\n" + "".join(f"{' ' * indent}  - {flow(item)}\n" for item in value)


def _is_block(value: Any) -> bool:
    """Return whether a top-level value holds further structures, better read one per line."""
    items = value.values() if is_mapping(value) else value if is_sequence(value) else ()
    return any(is_mapping(item) and item for item in items)


def flow(value: Any) -> str:
    """Return a value on one line.

    >>> flow({"values": [0.9, None, [64, 64]]})
    '{values: [0.9, null, [64, 64]]}'
    """
    if is_mapping(value):
        return "{" + ", ".join(f"{_text(k)}: {flow(v)}" for k, v in value.items()) + "}"
    if is_sequence(value):
        return "[" + ", ".join(flow(item) for item in value) + "]"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    return _text(str(value))


def _text(text: str) -> str:
    if _PLAIN.fullmatch(text) and len(text) < 40 and isinstance(scalar_of(text), str):
        return text
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(
        character if character.isprintable() else f"\\U{ord(character):08X}"
        for character in quoted
    )
