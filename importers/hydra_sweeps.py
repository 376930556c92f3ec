"""Reads searches in Hydra's notation: `lr=0.001,0.003`, `choice()`, `tag(log, interval())`.

Hydra itself tries every combination (`--multirun`). Ranges of its Optuna sweeper include both
ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from ..files.plain_data import is_dict, is_list, is_number
from ..spaces.make import range_kind
from .converted_study import ConvertedStudy, ImportSource
from .formats import distinct, is_in_range, read_data, read_word

MULTIRUN = ("-m", "--multirun")
_CONFIG = ("--config-name", "-cn", "--config_name")
_SAMPLERS = {"tpe": "tpe", "random": "random", "grid": "grid", "cmaes": "cmaes", "gp": "gp",
             "nsgaii": "nsga2", "motpe": "tpe"}  # fmt: skip
_SWEEPER = ("params", "search_space", "n_trials", "sampler", "direction")
_MOST = 200  # values of a range in a grid


@dataclass(frozen=True)
class Sweep:
    """A search defined for Hydra."""

    searched: Mapping[str, dict[str, Any]]  # name -> distribution, in study-file form
    grid: bool = True  # try every combination; otherwise a sampler proposes configurations
    trials: int | None = None
    sampler: str = "tpe"
    rest: Mapping[str, Any] = field(default_factory=dict[str, Any])  # other Hydra settings
    tied: Sequence[Sequence[str]] = ()  # names that take their values from one loop variable


# ------------------------------------------------------------------------------- words


def is_multirun(words: Sequence[str]) -> bool:
    """Return whether a Hydra command runs once per combination of its listed values.

    >>> is_multirun(["python", "-m", "x.y", "a=1,2"]), is_multirun(["python", "x.py", "-m"])
    (False, True)
    """
    return len(without_multirun(words)) < len(words)


def without_multirun(words: Sequence[str]) -> list[str]:
    """Remove `--multirun`, and every `-m` that does not belong to Python."""
    started, kept = False, list[str]()
    for index, word in enumerate(words):
        of_python = word == "-m" and not started and index > 0 and "python" in words[index - 1]
        started = started or of_python or word.endswith(".py")
        if word not in MULTIRUN or of_python or not started:
            kept.append(word)
    return kept


def check_config_name(words: Sequence[str]) -> None:
    """Reject a command whose settings are in another file."""
    for index, word in enumerate(words):
        name, _, value = word.partition("=")
        if name in _CONFIG:
            value = value or "".join(words[index + 1 : index + 2])
            text = (
                f"its settings are in the file {value}.yaml, which Hydra reads; import that file, "
            )
            raise ConfigError(f"{text}and pass the remaining arguments after --")


def searched_words(found: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the names in a command whose values are Hydra lists, with their distributions."""
    each = {name: sweep_of(value) for name, value in found.items() if isinstance(value, str)}
    return {name: fields for name, fields in each.items() if fields is not None}


# ------------------------------------------------------------------------------ values


def sweep_of(text: str, inclusive: bool = False) -> dict[str, Any] | None:
    """Return the distribution for a string in Hydra's notation; None for a single value.

    Args:
        text: the part after `name=`.
        inclusive: whether the end of a `range` is included, as in Optuna's sweeper.

    >>> sweep_of("0.1,0.2"), sweep_of("tag(log, interval(1e-5, 1e-2))"), sweep_of("[1, 2]")
    ({'values': [0.1, 0.2]}, {'min': 1e-05, 'max': 0.01, 'distribution': 'log_uniform'}, None)
    """
    parts = _split_at_commas(text)
    if len(parts) > 1:
        return {"values": distinct([read_word(part) for part in parts])}
    if not parts:
        return None
    name, inner = _name_and_arguments(parts[0])
    if name in ("choice", "shuffle", "sort"):
        values = [part for part in _split_at_commas(inner) if not part.startswith("reverse=")]
        if len(values) == 1 and _name_and_arguments(values[0])[0]:
            return sweep_of(values[0], inclusive)
        return {"values": distinct([read_word(value) for value in values])}
    if name == "range":
        return _range_distribution(
            text, [read_word(part) for part in _split_at_commas(inner)], inclusive
        )
    if name == "interval":
        return _interval_distribution(text, inner)
    if name == "tag" or name in _CASTS:
        return _of_kind(name, inner, inclusive)
    return None


def _split_at_commas(text: str) -> list[str]:
    """Split a string at commas outside brackets and quotes."""
    parts, depth, quote, start = list[str](), 0, "", 0
    for index, letter in enumerate(text):
        if letter == quote:
            quote = ""
        elif quote:
            continue
        elif letter in "'\"":
            quote = letter
        elif letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
        elif letter == "," and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    parts.append(text[start:])
    return [part.strip().strip("'\"") for part in parts if part.strip()]


def _name_and_arguments(text: str) -> tuple[str, str]:
    """Return the name and the arguments in `name(arguments)`, or two empty strings."""
    name, opened, rest = text.strip().partition("(")
    if not (opened and rest.endswith(")") and name.isidentifier()):
        return "", ""
    return name, rest[:-1]


def _range_distribution(text: str, given: list[Any], inclusive: bool) -> dict[str, Any]:
    bounds = given
    if len(given) == 1:
        bounds = [0, *given]
    if not 2 <= len(bounds) <= 3 or not all(map(is_number, bounds)):
        raise ConfigError(f"{text!r} is not a Hydra range, such as range(1, 10, 2)")
    low, high, step = (*bounds, 1)[:3]
    if step <= 0 or low > high:
        raise ConfigError(f"{text!r} is not increasing; give its values as a list")
    if inclusive:
        whole = all(isinstance(one, int) for one in (low, high, step))
        found = {"min": low, "max": high, "distribution": range_kind(whole, log=False)}
        if not (whole and step == 1):
            found["q"] = step
        return found
    count = math.ceil((high - low) / step - 1e-9)
    if count > _MOST:
        raise ConfigError(f"{text!r} has {count:,} values; allowed: at most {_MOST}")
    return {"values": [low + step * index for index in range(count)]}


def _interval_distribution(text: str, inner: str) -> dict[str, Any]:
    """Read `interval(low, high)`."""
    bounds = [read_word(part) for part in _split_at_commas(inner)]
    if len(bounds) != 2 or not all(map(is_number, bounds)):
        raise ConfigError(f"{text!r} is not a Hydra interval, such as interval(0, 1)")
    whole = all(isinstance(one, int) for one in bounds)
    return {"min": bounds[0], "max": bounds[1], "distribution": range_kind(whole, log=False)}


_CASTS: Mapping[str, Callable[[Any], Any]] = {"int": int, "float": float}


def _of_kind(name: str, inner: str, inclusive: bool) -> dict[str, Any] | None:
    """Read `tag(log, ...)`, `int(...)` and `float(...)` around another search."""
    *tags, last = _split_at_commas(inner) or [""]
    fields = sweep_of(last, inclusive)
    if fields is None:
        return None
    if "values" in fields and name == "tag":
        return fields
    if "values" in fields:
        return {"values": [_CASTS[name](one) for one in fields["values"]]}
    log = "log" in tags or fields["distribution"].startswith("log_")
    whole = fields["distribution"].endswith("int_uniform")
    if name != "tag":
        whole = name == "int"
    if name == "int":
        fields |= {"min": int(fields["min"]), "max": int(fields["max"])}
    return {**fields, "distribution": range_kind(whole, log)}


# ------------------------------------------------------------------------------- files


def sweep_in(path: Path, hydra: Mapping[str, Any]) -> Sweep | None:
    """Return the search in a configuration file's `hydra` section; None if it has none.

    Raises:
        ConfigError: the search is in another file, or defined by user code.
    """
    sweeper = hydra.get("sweeper")
    if not is_dict(sweeper):
        return None
    space = sweeper.get("search_space")
    if isinstance(space, str):
        raise ConfigError(
            (
                f"{path}: its search space is a separate ConfigSpace file; import that file as "
                "configspace, or only this file's configuration"
            ),
            flags={"without": "search_space"},
        )
    if sweeper.get("custom_search_space"):
        raise ConfigError(f"{path}: its custom_search_space is a program, which hpo does not run")
    samplers = _samplers_of(path, sweeper)
    searched = {name: _old_fields(name, fields) for name, fields in (space or {}).items()}
    searched |= _searched_params(sweeper.get("params"), inclusive=bool(samplers))
    if not searched:
        return None
    rest = {f"hydra.{name}": one for name, one in hydra.items() if name != "sweeper"}
    rest |= {f"hydra.sweeper.{name}": one for name, one in sweeper.items() if name not in _SWEEPER}
    if not samplers:
        return Sweep(searched, trials=sweeper.get("n_trials"), sampler="grid", rest=rest)
    return Sweep(searched, False, sweeper.get("n_trials", 20), samplers, rest)


def _searched_params(params: Any, inclusive: bool) -> dict[str, dict[str, Any]]:
    if not is_dict(params):
        return {}
    found = {str(name): sweep_of(str(one), inclusive) for name, one in params.items()}
    return {name: fields for name, fields in found.items() if fields is not None}


def _samplers_of(path: Path, sweeper: Mapping[str, Any]) -> str:
    """Return our search method for an Optuna sweeper; "" for Hydra's basic sweeper, a grid."""
    sampler, named = sweeper.get("sampler"), dict[str, str]()
    defaults = read_data(path).get("defaults") or []
    if not is_list(defaults):
        defaults = []
    for entry in filter(is_dict, defaults):
        for group, name in entry.items():
            named[str(group).removeprefix("override ").strip("/ ")] = str(name)
    target = str(sampler or "")
    if is_dict(sampler):
        target = str(sampler.get("_target_", ""))
    word = target.rpartition(".")[2].removesuffix("Sampler").lower().replace("-", "")
    word = word or named.get("hydra/sweeper/sampler", "")
    optuna = "optuna" in (named.get("hydra/sweeper", ""), *str(sweeper.get("_target_")).split("."))
    if not (optuna or word or "n_trials" in sweeper):
        return ""
    if word and word not in _SAMPLERS:
        known = ", ".join(_SAMPLERS)
        raise ConfigError(f"{path}: the sampler {word!r} has no counterpart; known: {known}")
    return _SAMPLERS[word or "tpe"]


def _old_fields(name: str, fields: Any) -> dict[str, Any]:
    """Return a distribution from `search_space`, the older notation of the Optuna sweeper."""
    if not is_dict(fields) or fields.get("type") not in ("categorical", "int", "float"):
        raise ConfigError(
            f"hydra.sweeper.search_space.{name} is {fields!r}; allowed: a mapping with "
            "type int, float or categorical"
        )
    if fields["type"] == "categorical":
        return {"values": list(fields["choices"])}
    kind = range_kind(fields["type"] == "int", bool(fields.get("log")))
    found = {"min": fields["low"], "max": fields["high"], "distribution": kind}
    if fields.get("step") not in (None, 1):
        found["q"] = fields["step"]
    return found


def put_sweep(draft: ConvertedStudy, source: ImportSource, sweep: Sweep) -> None:
    """Add the searched names to a source, and the search method to a study."""
    for name, fields in sweep.searched.items():
        fields = _start_at(fields, read_word(source.constants.pop(name, None)))
        values = fields.get("values", ())
        if len(values) == 1:
            source.constants[name] = values[0]
        else:
            source.searched[name] = dict(fields)
    budget, search = draft.section("budget"), draft.section("search")
    if sweep.grid:
        budget["trials"], search["method"] = None, "grid"
    else:
        budget["trials"], search["method"] = sweep.trials, sweep.sampler
        draft.note(
            "hydra: the sweeper optimises the program's return value; here eval/return_mean "
            "is maximised"
        )
    for name, value in sweep.rest.items():
        draft.leave_out(name, f"a Hydra setting; its value is {value!r}")


def _start_at(fields: Mapping[str, Any], value: Any) -> Mapping[str, Any]:
    """Make the file's own value of a searched name its default, if the search contains it."""
    searched = "values" in fields or (is_number(value) and not fields.get("q"))
    if value is None or not searched or not is_in_range(fields, value):
        return fields
    return {"default": value, **fields}


def refuse_tied(draft: ConvertedStudy, sweep: Sweep) -> None:
    """Reject names that change together in a loop, because a grid would combine their values."""
    for names in sweep.tied:
        targets = {name: draft.target(name) for name in names}
        searched = [name for name, target in targets.items() if target in draft.space]
        if len(searched) > 1:
            text = f"{' and '.join(searched)} change together in a loop, but a study would try "
            remedy = {"without": ",".join(searched[1:])}
            raise draft.fault(f"{text}every combination of their values", flags=remedy)
