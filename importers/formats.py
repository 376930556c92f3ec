"""Command lines, flag files and YAML as other programs write them, as plain data."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from ..errors import ConfigError
from ..studies.amounts import number_of
from ..studies.reader import MOST_BYTES, MOST_LEVELS, events_of

__all__ = ["file_name", "flags_of", "one_line", "read_data", "read_word", "text_of", "words_of"]

_FLAG = re.compile(r"(?:--?|(?=[a-z][a-z0-9_.]*=))([A-Za-z][A-Za-z0-9_.-]*)(?:=(.*))?", re.DOTALL)
_FILE = "flagfile"
_DEEPEST = 8
_MOST_EVENTS = 40_000
_WORDS = {"true": True, "false": False, "none": None, "null": None}


def read_word(value: Any) -> Any:
    """Return what a word on a command line stands for; other values as they are.

    >>> read_word("True"), read_word("1e6"), read_word("0.5"), read_word("cosine")
    (True, 1000000, 0.5, 'cosine')
    """
    if not isinstance(value, str):
        return value
    if value.strip().lower() in _WORDS:
        return _WORDS[value.strip().lower()]
    number = number_of(value)
    if number is not None:
        return number
    try:
        number = float(value)
    except ValueError:
        return value
    if not math.isfinite(number):
        return value
    return int(number) if number.is_integer() and "." not in value else number


def one_line(text: str) -> str:
    """Return a text on one line, without what steers a terminal."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def file_name(name: str, otherwise: str) -> str:
    """Return a name as a folder of results may be called.

    >>> file_name("my sweep/2", "x"), file_name("???", "sweep")
    ('my-sweep-2', 'sweep')
    """
    kept = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in name)
    return kept.strip("-._")[:100] or otherwise


def text_of(path: Path) -> str:
    """Return the text of a file."""
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise ConfigError(f"{path}: larger than {MOST_BYTES // 1024} KiB")
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: no text in UTF-8") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None


# -------------------------------------------------------------------------- command lines


def words_of(text: str) -> list[str]:
    """Split a flag file or a command line, comments and line continuations taken away."""
    try:
        return shlex.split(text.replace("\\\n", " "), comments=True)
    except ValueError as error:
        raise ConfigError(f"cannot be split into words: {error}") from None


def flags_of(
    words: Sequence[str], folder: Path | None = None, depth: int = 0
) -> dict[str, str | bool]:
    """Return flag -> value; a flag without one is true, `--noflag` is kept as it stands.

    Words before the first flag (a program, its interpreter, `-m` and a module) are passed over.
    Hydra's `name=value` is a flag, too. The flags of a `--flagfile` stand in its place; later
    ones override them.

    >>> flags_of(["python", "-m", "train", "--LR=3e-4", "--k", "5", "--WANDB"])
    {'LR': '3e-4', 'k': '5', 'WANDB': True}
    """
    found: dict[str, str | bool] = {}
    waiting: str | None = None
    for word in _behind_the_program(words):
        match = _FLAG.fullmatch(word)
        if match is None:
            if waiting is not None:
                _put(found, waiting, word, folder, depth)
                waiting = None
            elif found:
                raise ConfigError(f"{word!r} is not a flag; flags look like --name=value")
            continue
        name, value = match[1].replace("-", "_"), match[2]
        if name == _FILE and value is None:
            waiting = name
            continue
        _put(found, name, True if value is None else value, folder, depth)
        waiting = name if value is None else None
    if waiting == _FILE:
        raise ConfigError("--flagfile names no file")
    return found


def _behind_the_program(words: Sequence[str]) -> Sequence[str]:
    """Return what follows the program: `uv run python -m package.module`, or a path."""
    for index, word in enumerate(words):
        if word == "-m" and index + 1 < len(words):
            return words[index + 2 :]
        if word.startswith("--") or word.endswith(".py"):
            return words[index:]
    return words


def _put(
    found: dict[str, str | bool], name: str, value: str | bool, folder: Path | None, depth: int
) -> None:
    flags = {name: value} if name != _FILE else _flags_in(str(value), folder, depth)
    for flag, given in flags.items():
        found.pop(flag, None)  # what is given last stands last
        found[flag] = given


def _flags_in(file: str, folder: Path | None, depth: int) -> dict[str, str | bool]:
    if folder is None:
        raise ConfigError(f"--flagfile names another file, {file!r}; give that one instead")
    if depth >= _DEEPEST:
        raise ConfigError(f"--flagfile={file}: flag files that name flag files without end")
    path = next((place for place in (folder / file, Path(file)) if place.is_file()), None)
    if path is None:
        raise ConfigError(f"--flagfile={file}: no such file beside the command, nor here")
    return flags_of(words_of(text_of(path)), path.parent, depth + 1)


# ---------------------------------------------------------------------------- YAML, JSON


def read_data(path: Path) -> Any:
    """Return the plain data of a YAML or JSON file: merge keys, tags of numbers, tuples."""
    text = text_of(path)
    try:
        if path.suffix == ".json":
            return json.loads(text)
        _check_shape(path, text)
        return yaml.load(text, _Loader)
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        kind = "JSON" if path.suffix == ".json" else "plain YAML"
        raise ConfigError(f"{path}: no {kind}: {' '.join(str(error).split())}") from None


def _check_shape(path: Path, text: str) -> None:
    """Refuse what nests deeply, or what aliases make large."""
    level = aliases = 0
    for count, event in enumerate(events_of(text, yaml.SafeLoader)):
        level += isinstance(event, yaml.CollectionStartEvent)
        level -= isinstance(event, yaml.CollectionEndEvent)
        aliases += isinstance(event, yaml.AliasEvent)
        if level > MOST_LEVELS or count > _MOST_EVENTS or aliases > 200:
            raise ConfigError(f"{path}: nested too deeply, or too large")


class _Loader(yaml.SafeLoader):
    """Plain YAML, `1e-4` as a number, and ordered dictionaries and tuples of Python's dumper."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuse a name that stands twice with two values; names of a merge give way."""
        seen: dict[str, yaml.Node] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag.endswith(":merge"):
                continue
            first = seen.setdefault(key.value, value)
            if first is not value and yaml.serialize(first) != yaml.serialize(value):
                raise ValueError(f"{key.value} has two values (lines {_line(first)} and "
                                 f"{_line(value)})")  # fmt: skip
        return super().construct_mapping(node, deep)


def _line(node: yaml.Node) -> int:
    return node.start_mark.line + 1


def _ordered(loader: _Loader, node: yaml.Node) -> dict[Any, Any]:
    assert isinstance(node, yaml.SequenceNode)
    pairs = loader.construct_sequence(node, deep=True)
    return dict(pairs[0]) if pairs else {}


def _tuple(loader: _Loader, node: yaml.Node) -> list[Any]:
    assert isinstance(node, yaml.SequenceNode)
    return list(loader.construct_sequence(node, deep=True))


def _number(loader: _Loader, node: yaml.Node) -> float:
    assert isinstance(node, yaml.ScalarNode)
    words = {".inf": float("inf"), "-.inf": float("-inf"), "inf": float("inf")}
    text = str(loader.construct_scalar(node)).replace("_", "").lower()
    return words[text] if text in words else float(text)


_Loader.add_constructor("tag:yaml.org,2002:python/object/apply:collections.OrderedDict", _ordered)
_Loader.add_constructor("tag:yaml.org,2002:python/tuple", _tuple)
_Loader.add_constructor("tag:yaml.org,2002:float", _number)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]+(?:\.[0-9]*)?[eE][-+]?[0-9]+"),
    list("-+0123456789"),
)  # fmt: skip
