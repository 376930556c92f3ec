"""Command lines, flag files and YAML as other programs write them, as plain data."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from ..environments.table import EnvEntry
from ..errors import ConfigError
from ..files.plain_data import as_lists
from ..knobs import KNOBS
from ..studies.study_values import check_env_value, number_of
from ..studies.yaml_io import MOST_BYTES, MOST_LEVELS, events_of
from .name_mapping import NoCounterpart, Row, Settings, is_number

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


Note = Callable[[str], None]
_MOST_PROGRAMS = 16
_INSIDE = 1e-6  # of a range, where its end is not legal itself


def translated(note: Note, name: str, row: Row, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return target -> distribution, or {"value": ...} for what comes with every value."""
    try:
        if "values" in fields:
            return _values(name, row, fields)
        return {row.target: _bounds(note, name, row, dict(fields))}
    except NoCounterpart as reason:
        raise ConfigError(f"{name} is searched over {_shown(fields)}: {reason}") from None


def _values(name: str, row: Row, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Translate listed values; of the targets that they set one may differ among them."""
    sets = [settings_of(row, theirs) for theirs in fields["values"]]
    found: dict[str, Any] = {}
    for target in dict.fromkeys(target for one in sets for target in one):
        needed = target == row.target or not _idles(target)
        given = [one.get(target, _absent(target)) for one in sets if needed or target in one]
        distinct = _distinct(given)
        found[target] = {"value": given[0]} if len(distinct) == 1 else {"values": distinct}
    moving = [target for target, one in found.items() if "values" in one]
    if len(moving) > 1:
        raise NoCounterpart(f"its values move {' and '.join(moving)} together; list one of them")
    for target in moving:
        found[target] = {**fields, **found[target]}
        if fields.get("default") is not None:
            default = settings_of(row, fields["default"])
            found[target]["default"] = default.get(target, _absent(target))
    return found


def settings_of(row: Row, theirs: Any) -> dict[str, Any]:
    """Return target -> value of one value of theirs."""
    value = row.values.of(read_word(theirs))
    return dict(value) if isinstance(value, Settings) else {row.target: value}


def _idles(target: str) -> bool:
    """Return whether a target does nothing beside values that do not mention it."""
    return target.endswith("_end_fraction") or target.startswith("lr_warmup_") or target in (
        "recurrent_size", "raw_reward_deviation",
    )  # fmt: skip


def _absent(target: str) -> Any:
    """Return what a target is where a value does not mention it."""
    return KNOBS[target].default if target in KNOBS else None


def _distinct(values: list[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if not any(type(value) is type(seen) and value == seen for seen in found):
            found.append(value)
    return found


def _bounds(note: Note, name: str, row: Row, fields: dict[str, Any]) -> dict[str, Any]:
    for key in ("min", "max", "mu"):
        if key in fields:
            given = fields[key]
            fields[key] = row.values.bound(given)
            if fields[key] != given and key != "mu":
                note(f"{name}: its {key} {given!r} is {fields[key]!r} here")
    if "min" in fields and fields["min"] > fields["max"]:
        fields["min"], fields["max"] = fields["max"], fields["min"]
    if "distribution" in fields:
        fields["distribution"] = row.values.kind(fields["distribution"])
    for key in ("sigma", "q"):
        if fields.get(key) is not None:
            fields[key] = row.values.scaled(fields[key])
    if fields.get("default") is not None:
        fields["default"] = row.values.bound(fields["default"])
    return fields


def fitted(
    note: Note, name: str, target: str, fields: dict[str, Any], entry: EnvEntry | None
) -> dict[str, Any]:
    """Return a distribution in the form that its target takes."""
    if "values" in fields:
        return {**fields, "values": [_one(target, value, entry) for value in fields["values"]]}
    if target.startswith("env."):
        return fields
    knob = KNOBS[target]
    if knob.type == "int" and fields.get("distribution") in ("uniform", "log_uniform"):
        bounds = (fields["min"], fields["max"])
        if all(float(bound).is_integer() for bound in bounds):
            fields |= {"min": int(bounds[0]), "max": int(bounds[1])}
            log = fields["distribution"] == "log_uniform"
            fields["distribution"] = "log_int_uniform" if log else "int_uniform"
            note(f"{name}: whole numbers, as {target} takes no others")
    if not knob.traced and "min" in fields:
        fields = _listed(note, name, target, fields)
    elif knob.low_open and fields.get("min") == knob.low and fields.get("q"):
        first = knob.low + fields["q"]
        fields = {**fields, "min": first}
        if fields.get("default") == knob.low:
            fields["default"] = first
        note(f"{name}: begins at its first step, {first!r}, as {target} is above {knob.low:g}")
    elif knob.low_open and fields.get("min") == knob.low:
        fields = {**fields, "min": float(f"{knob.low + _INSIDE * (fields['max'] - knob.low):.6g}")}
        note(f"{name}: begins at {fields['min']!r}, as {target} is above {knob.low:g}")
    return fields


def _one(target: str, value: Any, entry: EnvEntry | None) -> Any:
    if not target.startswith("env."):
        return plain_value(target, value)
    key = target.removeprefix("env.")
    if entry is None or (key not in entry.keys and key not in entry.params):
        return value
    typed = switch(value) if key in entry.keys and entry.keys[key].type == "bool" else value
    return as_lists(check_env_value(entry, key, typed))


def plain_value(target: str, value: Any) -> Any:
    """Return a value as a knob takes it: 0 and 1 for switches, numbers below the range for off."""
    if target.startswith("env."):
        return value
    knob = KNOBS[target]
    if knob.type == "bool":
        return switch(value)
    return None if knob.off and is_number(value) and value < knob.low else value


def switch(value: Any) -> Any:
    """Return true and false for the other ways in which flags write them."""
    words: Mapping[Any, bool] = {0: False, 1: True, "t": True, "f": False, "yes": True,
                                 "no": False, "on": True, "off": False}  # fmt: skip
    known = isinstance(value, int | str) and not isinstance(value, bool)
    return words.get(value.lower() if isinstance(value, str) else value, value) if known else value


def _listed(note: Note, name: str, target: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """List the values of a range of whole numbers; of a long one the powers of two."""
    low, high, step = fields["min"], fields["max"], fields.get("q") or 1
    rest = {key: fields[key] for key in ("default", "when") if fields.get(key) is not None}
    count = (high - low) // step + 1
    short = isinstance(count, int) and count <= _MOST_PROGRAMS
    if short and fields.get("distribution") != "pow2":
        note(f"{name}: a value of {target} makes a program; listed one by one")
        return {"values": [low + step * i for i in range(count)], **rest}
    powers = [2**i for i in range(64) if low <= 2**i <= high]
    if fields.get("distribution") == "pow2":
        note(f"{name}: a value of {target} makes a program; listed one by one")
        return {"values": powers, **rest}
    if KNOBS[target].type != "int" or len(powers) < 2:
        raise ConfigError(
            f"{name} is searched between {low} and {high}, but every value of {target} is a "
            "program to compile; list the values that matter"
        )
    default = rest.get("default")
    if default is not None and default not in powers:
        rest["default"] = min(powers, key=lambda power: abs(power - default))
    note(
        f"{name}: {low} to {high} is thinned to the powers of two, as every value of {target} "
        "is a program to compile"
    )
    return {"values": powers, **rest}


def _shown(fields: Mapping[str, Any]) -> str:
    return str(fields.get("values", [fields.get("min"), fields.get("max")]))
