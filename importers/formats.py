"""Reads other programs' command lines, flag files and YAML, and converts distributions."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

import yaml

from ..environments.table import EnvEntry
from ..errors import ConfigError
from ..files.plain_data import as_lists, is_number, shortened, spaced
from ..files.plain_yaml import PlainLoader
from ..foreign_names.name_mapping import NameRow, NoCounterpart, rounded
from ..knobs import KNOBS
from ..studies.init_file import CONFIRM
from ..studies.study_values import check_env_value, number_of
from ..studies.yaml_io import events_of, text_of

Note = Callable[[str], None]
_FLAG = re.compile(r"(?:--?|(?=[a-z][a-z0-9_.]*=))([A-Za-z][A-Za-z0-9_.-]*)(?:=(.*))?", re.DOTALL)
_FILE = "flagfile"
_DEEPEST = 8
_MOST_PROGRAMS = 16
_MOST_STEPS = 200
_INSIDE = 1e-6  # share of a range by which an illegal end is moved inside
_MOST_EVENTS = 40_000
_IDLE = ("lr_warmup_", "recurrent_size", "raw_reward_deviation")
_WORDS = {"true": True, "false": False, "none": None, "null": None}


def read_word(value: Any) -> Any:
    """Return the value of a command-line word; other values are returned unchanged."""
    if not isinstance(value, str):
        return value
    if value.strip().lower() in _WORDS:
        return _WORDS[value.strip().lower()]
    if value.startswith("["):
        with suppress(ValueError, RecursionError):  # text that only looks like a list
            return json.loads(value)
    number = number_of(value)
    if number is not None:
        return number
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        return value
    if number.is_integer() and "." not in value:
        return int(number)
    return number


def one_line(text: str) -> str:
    return " ".join(spaced(text).split())


def file_name(name: str, otherwise: str) -> str:
    """Turn a string into a name that is valid for a results folder."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", name).strip("-._")[:100] or otherwise


# -------------------------------------------------------------------------- command lines


def words_of(text: str) -> list[str]:
    try:
        return shlex.split(text.replace("\\\n", " "), comments=True)
    except ValueError as error:
        raise ConfigError(f"cannot be split into words: {error}") from None


def flags_of(
    words: Sequence[str], folder: Path | None = None, depth: int = 0
) -> dict[str, str | bool]:
    """Return values by flag; a flag without a value is true, and `--noflag` keeps its name.

    Hydra's `name=value` also counts as a flag. The flags in a `--flagfile` are inserted at its
    position; later flags override earlier ones.

    >>> flags_of(["python", "-m", "train", "--LR=3e-4", "--k", "5", "--WANDB"])
    {'LR': '3e-4', 'k': '5', 'WANDB': True}
    """
    found: dict[str, str | bool] = {}
    waiting = ""  # a flag whose value may be the next word
    for word in _after_the_program(words):
        match = _FLAG.fullmatch(word)
        if match is None and not waiting:
            if found:
                raise ConfigError(f"{word!r} is not a flag; flags look like --name=value")
            continue
        name, value, waiting = waiting, word, ""
        if match is not None:
            name, value = match[1].replace("-", "_"), match[2]
        flags: Mapping[str, str | bool] = {name: value}
        if value is None:
            waiting, flags = name, {name: True}
        elif name == _FILE:
            flags = _flags_in(value, folder, depth)
        if waiting == _FILE:
            continue
        for flag in flags:
            found.pop(flag, None)  # keep it last in the order as well
        found |= flags
    if waiting == _FILE:
        raise ConfigError("--flagfile names no file")
    return found


def _after_the_program(words: Sequence[str]) -> Sequence[str]:
    """Return the words after the program, such as `uv run python -m package.module` or a path."""
    for index, word in enumerate(words):
        if word == "-m" and index + 1 < len(words):
            return words[index + 2 :]
        if word.startswith("--") or word.endswith(".py"):
            return words[index:]
    return words


def _flags_in(file: str, folder: Path | None, depth: int) -> dict[str, str | bool]:
    if folder is None:
        raise ConfigError(f"--flagfile names another file, {file!r}; import that file instead")
    if depth >= _DEEPEST:
        raise ConfigError(f"--flagfile={file}: flag files include each other in a cycle")
    path = next((place for place in (folder / file, Path(file)) if place.is_file()), None)
    if path is None:
        raise ConfigError(f"--flagfile={file}: no such file next to the command or in this folder")
    return flags_of(words_of(text_of(path)), path.parent, depth + 1)


# ---------------------------------------------------------------------------- YAML, JSON


def read_data(path: Path) -> Any:
    """Read plain data from a YAML or JSON file; merge keys, number tags and tuples are allowed."""
    text = text_of(path)
    try:
        if path.suffix == ".json":
            return json.loads(text)
        events = list(events_of(text, yaml.SafeLoader))
        if len(events) > _MOST_EVENTS or sum(type(e) is yaml.AliasEvent for e in events) > 200:
            raise ValueError("too large")
        return yaml.load(text, _Loader)
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        kind = "plain YAML"
        if path.suffix == ".json":
            kind = "JSON"
        raise ConfigError(f"{path}: not {kind}: {' '.join(str(error).split())}") from None


class _Loader(PlainLoader):
    """Loads plain YAML, and the ordered dictionaries that PyYAML writes."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Raise an error if a name has two values; values from merge keys may be overridden."""
        nodes: dict[str, yaml.Node] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag.endswith(":merge"):
                continue
            first = nodes.setdefault(key.value, value)
            if first is not value and yaml.serialize(first) != yaml.serialize(value):
                lines = f"{first.start_mark.line + 1} and {value.start_mark.line + 1}"
                raise ValueError(f"{key.value} has two values (lines {lines})")
        return super().construct_mapping(node, deep)


def _read_ordered_map(loader: _Loader, node: Any) -> dict[Any, Any]:
    pairs = loader.construct_sequence(node, deep=True)
    if not pairs:
        return {}
    return dict(pairs[0])


_Loader.add_constructor(
    "tag:yaml.org,2002:python/object/apply:collections.OrderedDict", _read_ordered_map
)


# -------------------------------------------------------------------------- distributions


def translated(note: Note, name: str, row: NameRow, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return distributions by target; a target with a single value gets {"value": ...}."""
    fields = _with_listed_steps(note, name, row, fields)
    try:
        if "values" in fields:
            return _translate_values(note, name, row, dict(fields))
        return _translate_bounds(note, name, row, dict(fields))
    except NoCounterpart as reason:
        shown = fields.get("values", [fields.get("min"), fields.get("max")])
        text = f"{name} is searched over {shown}: {reason}; import without it"
        raise ConfigError(text, flags={"without": name}) from None


def _with_listed_steps(
    note: Note, name: str, row: NameRow, fields: Mapping[str, Any]
) -> Mapping[str, Any]:
    """List the values of a stepped range if its steps would be unequal in a study."""
    low, high, step = (fields.get(key) for key in ("min", "max", "q"))
    if not row.values.steps_differ or not step or low is None or high is None:
        return fields
    count = round((high - low) / step) + 1
    if count > _MOST_STEPS:
        text = f"{name} is searched over {count:,} values; list those to try"
        raise ConfigError(text, flags={"without": name})
    note(f"{name}: its range is converted to {count} listed values")
    return {
        **_default_and_when(fields),
        "values": [rounded(low + step * index) for index in range(count)],
    }


def _default_and_when(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that a search keeps when its range becomes a list of values."""
    return {key: fields[key] for key in ("default", "when") if fields.get(key) is not None}


def _translate_values(
    note: Note, name: str, row: NameRow, fields: Mapping[str, Any]
) -> dict[str, Any]:
    """Translate listed values; only one of the targets that they set may vary."""
    words = [read_word(value) for value in fields["values"]]
    sets = [row.settings(word) for word in words]
    for word, one in zip(words, sets, strict=True):
        if one.get(row.target, word) != word:
            note(f"{name}: {word} is {one[row.target]} here")
    targets = dict.fromkeys(chain.from_iterable(sets))
    found = {target: _fields_of(row, target, sets) for target in targets}
    moving = [target for target, one in found.items() if "values" in one]
    if len(moving) > 1:
        raise NoCounterpart(
            f"its values change {' and '.join(moving)} together; search only one of them"
        )
    for target in moving:
        found[target] = {**fields, **found[target]}
        if fields.get("default") is not None:
            default = row.settings(read_word(fields["default"]))
            found[target]["default"] = default.get(target, _unset_value(target))
    return found


def _fields_of(row: NameRow, target: str, sets: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a target's distinct values in `sets`, which may omit the target."""
    idles = target.endswith("_end_fraction") or target.startswith(_IDLE)
    if idles and target != row.target:
        sets = [one for one in sets if target in one]
    several = distinct([one.get(target, _unset_value(target)) for one in sets])
    if len(several) == 1:
        return {"value": several[0]}
    return {"values": several}


def _unset_value(target: str) -> Any:
    """Return the default of a target, or None if it has none."""
    if target not in KNOBS:
        return None
    return KNOBS[target].default


def distinct(values: Sequence[Any]) -> list[Any]:
    """Return values without duplicates; 1, 1.0 and true are different."""
    return list({repr(value): value for value in values}.values())


def _translate_bounds(
    note: Note, name: str, row: NameRow, fields: dict[str, Any]
) -> dict[str, Any]:
    for key in ("min", "max", "mu"):
        if key in fields:
            given = fields[key]
            fields[key] = row.values.bound(given)
            if fields[key] != given and key != "mu":
                note(f"{name}: its {key} {given!r} becomes {fields[key]!r}")
    if "min" in fields and fields["min"] > fields["max"]:
        fields["min"], fields["max"] = fields["max"], fields["min"]
    if "distribution" in fields:
        fields["distribution"] = row.values.kind(fields["distribution"])
    for key, transform in {
        "sigma": row.values.scaled,
        "q": row.values.scaled,
        "default": row.values.bound,
    }.items():
        if fields.get(key) is not None:
            fields[key] = transform(fields[key])
    return {row.target: fields}


def fitted(
    note: Note, name: str, target: str, fields: dict[str, Any], entry: EnvEntry | None
) -> dict[str, Any]:
    """Adapt a distribution to its target: whole numbers, listed values, an excluded bound."""
    if target.startswith("env."):
        return _fitted_key(note, name, target, fields, entry)
    if "values" in fields:
        return {**fields, "values": [plain_value(target, value) for value in fields["values"]]}
    fields = _in_whole_numbers(note, name, target, fields)
    if not KNOBS[target].traced and "min" in fields:
        return _list_values(note, name, target, fields)
    return _above_open_end(note, name, target, fields)


def _fitted_key(
    note: Note, name: str, target: str, fields: dict[str, Any], entry: EnvEntry | None
) -> dict[str, Any]:
    """Adapt a distribution to an environment key; for an unknown key, it is unchanged."""
    key = target.removeprefix("env.")
    if entry is None or not (key in entry.keys or key in entry.params):
        return fields
    if "values" in fields:
        values = [as_lists(env_value(entry, key, value)) for value in fields["values"]]
        return {**fields, "values": values}
    if "min" in fields and key not in entry.params:
        return _listed_key(note, name, target, fields)
    return fields


_OF_WHOLE = {"uniform": "int_uniform", "log_uniform": "log_int_uniform"}


def _in_whole_numbers(
    note: Note, name: str, target: str, fields: dict[str, Any]
) -> dict[str, Any]:
    """Convert a real range to an integer range if the target accepts only integers."""
    if KNOBS[target].type != "int" or fields.get("distribution") not in _OF_WHOLE:
        return fields
    if not (float(fields["min"]).is_integer() and float(fields["max"]).is_integer()):
        return fields
    fields |= {"min": int(fields["min"]), "max": int(fields["max"])}
    if fields.get("q") and float(fields["q"]).is_integer():
        fields["q"] = int(fields["q"])
    fields["distribution"] = _OF_WHOLE[fields["distribution"]]
    note(f"{name}: limited to integers, because {target} must be an integer")
    return fields


def _above_open_end(note: Note, name: str, target: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Raise a lower bound that the target excludes, by one step or to a value just above it."""
    knob, low = KNOBS[target], fields.get("min")
    if not knob.low_open or low is None or low != knob.low:
        return fields
    if fields.get("q"):
        first, which = knob.low + fields["q"], f" (one step above {low:g})"
        if fields.get("default") == low:
            fields = {**fields, "default": first}
    else:
        first, which = float(f"{knob.low + _INSIDE * (fields['max'] - knob.low):.6g}"), ""
    reason = f"{target} must be above {knob.low:g}"
    note(f"{name}: lower bound raised to {first!r}{which}, because {reason}")
    return {**fields, "min": first}


def _note_listed(note: Note, name: str, target: str) -> None:
    note(f"{name}: all values are listed, because each value of {target} needs a separate program")


def _listed_key(note: Note, name: str, target: str, fields: dict[str, Any]) -> dict[str, Any]:
    """List the whole numbers in a shape-changing key's range if there are few."""
    low, high, step = fields["min"], fields["max"], fields.get("q") or 1
    whole = all(isinstance(one, int) for one in (low, high, step))
    if not whole or (high - low) // step >= _MOST_PROGRAMS:
        return fields  # left to the check of the study
    _note_listed(note, name, target)
    return {"values": list(range(low, high + 1, step)), **_default_and_when(fields)}


def env_value(entry: EnvEntry | None, key: str, value: Any) -> Any:
    if entry is None:
        return value
    if key in entry.keys and entry.keys[key].type == "bool":
        value = switch(value)
    return check_env_value(entry, key, value)


def is_in_range(fields: Mapping[str, Any], value: Any) -> bool:
    if "values" in fields:
        return value in fields["values"]
    if "min" not in fields or not is_number(value):
        return "min" not in fields or not isinstance(value, str)
    room = 1e-9 * (fields["max"] - fields["min"])
    return fields["min"] - room <= value <= fields["max"] + room


def plain_value(target: str, value: Any) -> Any:
    """Convert a value to its hyperparameter's form: bools for 0 and 1, None below the range."""
    if target.startswith("env."):
        return value
    knob = KNOBS[target]
    if knob.type == "bool":
        return switch(value)
    if knob.off and is_number(value) and value < knob.low:
        return None
    return value


def switch(value: Any) -> Any:
    words: Mapping[Any, bool] = {0: False, 1: True, "t": True, "f": False, "yes": True,
                                 "no": False, "on": True, "off": False}  # fmt: skip
    if isinstance(value, str):
        return words.get(value.lower(), value)
    if isinstance(value, int) and not isinstance(value, bool):
        return words.get(value, value)
    return value


def _list_values(note: Note, name: str, target: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """List the values in a range of whole numbers, or only powers of two if the range is long."""
    low, high, step = fields["min"], fields["max"], fields.get("q") or 1
    rest = _default_and_when(fields)
    count, exponents = (high - low) // step + 1, fields.get("distribution") == "pow2"
    powers = [2**i for i in range(64) if low <= 2**i <= high]
    if exponents or (isinstance(count, int) and count <= _MOST_PROGRAMS):
        _note_listed(note, name, target)
        values = powers
        if not exponents:
            values = [low + step * i for i in range(count)]
        return {"values": values, **rest}
    if KNOBS[target].type != "int" or len(powers) < 2:
        text = f"{name} is searched between {low} and {high}, but each value of {target} needs a "
        raise ConfigError(f"{text}separate program; list the values to try")
    default = rest.get("default")
    if default is not None and default not in powers:
        rest["default"] = min(powers, key=lambda power: abs(power - default))
    note(
        f"{name}: {low} to {high} is reduced to powers of two, because each value "
        f"of {target} needs a separate program"
    )
    return {"values": powers, **rest}


# arguments of Gymnasium's `make` that do not change the environment's dynamics or rewards
_HARMLESS = {
    "apply_api_compatibility", "autoreset", "camera_id", "camera_name", "disable_env_checker",
    "height", "render_mode", "screen_size", "width",
}  # fmt: skip


def changes_environment(name: str) -> bool:
    """Return whether an environment's key may change its dynamics or rewards.

    >>> changes_environment("env.sutton_barto_reward"), changes_environment("env.render_mode")
    (True, False)
    """
    key = name.removeprefix("env.")
    return key != name and key not in _HARMLESS


_LIMITS = ("max_steps_in_episode", "max_episode_steps")
"""The time limit in gymnax and brax, and in Gymnasium; both have the same meaning."""


def own_limit(key: str, keys: Collection[str]) -> str:
    """Return the environment's own key if this one is another library's time limit.

    >>> own_limit("max_episode_steps", ["max_steps_in_episode"]), own_limit("length", ["k"])
    ('max_steps_in_episode', 'length')
    """
    if key not in _LIMITS or key in keys:
        return key
    return next((name for name in _LIMITS if name in keys), key)


def own_target(target: str, entry: EnvEntry | None) -> str:
    """Return a target; the time limit of an environment gets the environment's own name."""
    section, _, key = target.partition(".")
    if section != "env" or not key or entry is None:
        return target
    return f"env.{own_limit(key, entry.keys)}"


def short_text(value: Any) -> str:
    return shortened(one_line(str(value)))


def confirm_plan(given: Any, trials: Any) -> Any:
    """Return the confirm stage of generated studies, with at most as many trials as the budget.

    >>> confirm_plan({"report": 6}, 2)
    {'top_k': 2, 'choose': 3, 'report': 6}
    """
    if not isinstance(given, dict):
        return given  # it is off
    plan = dict(CONFIRM)
    if isinstance(trials, int):
        plan["top_k"] = min(plan["top_k"], trials)
    if "report" in given:
        del plan["interim"]  # it may not be above `report`
    return {**plan, **given}
