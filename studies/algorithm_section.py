"""Reads `algorithm`, `command`, and `length` (used instead of `env_steps`)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..errors import ConfigError, MissingExtraError, suggestion
from ..spaces.make import make_distribution
from .algorithm import COMMAND, PPO, Algorithm, knob_of_data
from .command import command_algorithm
from .sections import ask_for_devices_of
from .spec import Study
from .study_values import number_of
from .user_code import import_user_code, is_inside, user_module
from .yaml_io import Node, Notes, plain

_CLASS = re.compile(r"(?P<file>[^:]+\.py):(?P<name>[A-Za-z_][A-Za-z0-9_]*)")
_REJAX = "rejax:"
_KINDS = "FILE.py:CLASS such as my_sac.py:SAC, or rejax:SAC"
_LENGTH = re.compile(r"(?P<count>[0-9.]+[kKMGB]?)\s*(?P<unit>[A-Za-z ]*)")


def read_algorithm(
    notes: Notes, root: Node, source: Path | None, before_code: Callable[[], None]
) -> Algorithm:
    """Read `algorithm` and run its file; with `source` None, use the recorded data instead.

    `before_code` is called before the file runs.
    """
    node = root.value.get("algorithm")
    if "command" in root.value and source is not None:
        return _read_command(notes, root, source)
    if node is None or node.value == PPO:
        return Algorithm()
    if node.is_map and source is None:
        data = plain(node)
        table = {name: knob_of_data(name, one) for name, one in data["hyperparameters"].items()}
        env = (data.get("environment", False), data.get("acts", False))
        return Algorithm(data["class"], table, data["unit"], *env)
    given = node.mapping.get("class", node).value
    if source is None or not _is_named(given):  # a recorded study never runs a file
        text = f"algorithm is {node.shown()}; allowed: ppo, {_KINDS}"
        notes.add(text, root, "algorithm")
        return Algorithm()
    if not is_library(given):
        before_code()
    ask_for_devices_of(root)
    with notes.at(root, "algorithm", "algorithm: "):
        if is_library(given):
            _check_installed(given)
        return _load_training(given, source)
    return Algorithm()


def is_library(name: str) -> bool:
    """Return whether an algorithm comes from an installed package instead of a file."""
    return name.startswith(_REJAX)


def _check_installed(given: str) -> None:
    package = _REJAX.removesuffix(":")
    if find_spec(package) is None:
        raise ConfigError(str(MissingExtraError(package, package, given)))


def _is_named(given: object) -> bool:
    return isinstance(given, str) and (is_library(given) or _CLASS.fullmatch(given) is not None)


def _read_command(notes: Notes, root: Node, source: Path) -> Algorithm:
    recorded = str(root.child("algorithm").child("class").value).startswith(f"{COMMAND}:")
    if "algorithm" in root.value and not recorded:
        notes.add("command and algorithm are both given; keep one", root, "algorithm")
        return Algorithm()
    return command_algorithm(notes, root, source)


def _load_training(given: str, source: Path) -> Algorithm:
    made = _of_rejax(given) if is_library(given) else _of_file(given, source)
    env = (made.takes_environment(), made.acts())
    return Algorithm(given, made.declared(), made.unit, *env, made)


def _of_rejax(given: str) -> Any:
    from ..core.from_rejax import algorithm

    return algorithm(given.removeprefix(_REJAX))


def _of_file(given: str, source: Path) -> Any:
    file, _, name = given.partition(":")
    if not is_inside(file) or not (source / file).is_file():
        raise ConfigError(f"{file}: no such file in the study's folder")
    import_user_code([file], source)
    module = user_module(Path(file).stem)
    made = getattr(module, name, None)
    if made is None or not callable(getattr(made, "declared", None)):
        known = [
            key
            for key, value in vars(module).items()
            if callable(getattr(value, "declared", None)) and key != "Training"
        ]
        text = f"{file} has no hpo.Training class {name!r};{suggestion(name, known)}"
        raise ConfigError(f"{text} Known: {', '.join(known) or 'none'}")
    for knob in made.declared().values():
        if knob.search is not None:
            try:
                make_distribution(dict(knob.search))
            except ConfigError as error:
                raise ConfigError(f"{name}.{knob.name}: search: {error}") from error
    return made


def loaded_algorithm(given: str, source: Path = Path(".")) -> Algorithm:
    """Return the algorithm named by `FILE.py:CLASS` (this runs the file) or by `rejax:SAC`."""
    if not _is_named(given):
        raise ConfigError(f"{given!r} is not {_KINDS}")
    ask_for_devices_of(Node(None, {}))
    return _load_training(given, source)


def with_code(study: Study) -> Study:
    """Load the custom training class of a study that was received from another process."""
    if study.algorithm.is_ppo or study.algorithm.is_process:
        return study
    return replace(study, algorithm=_load_training(study.algorithm.name, Path(study.source)))


def set_custom_keys(notes: Notes, root: Node, algorithm: Algorithm) -> None:
    """Fill in `env`, `imports` and `env_steps` (from `length`) for a custom class or a command."""
    if algorithm.is_ppo:
        return
    section = "algorithm"
    if algorithm.is_process:
        section = "command"
    here = root.value[section].line
    if not algorithm.takes_env:
        given = plain(root.value.get("env", Node(here, algorithm.label)))
        if given not in (algorithm.label, {"id": algorithm.label}):  # as in a record
            text = f"{algorithm.label} creates the environment itself; remove env"
            notes.add(text, root, "env")
        root.value["env"] = Node(here, {"id": Node(here, algorithm.label)}, {"id": here})
        root.key_lines.setdefault("env", here)
    if not algorithm.is_process and not is_library(algorithm.name):
        _add_import(root, algorithm.name.partition(":")[0])
    _set_length(notes, root, algorithm)


def _add_import(root: Node, file: str) -> None:
    here = root.value["algorithm"].line
    imports = root.value.setdefault("imports", Node(here, []))
    if imports.is_list and file not in [item.value for item in imports.value]:
        imports.value.append(Node(here, file))
        root.key_lines.setdefault("imports", here)


def _set_length(notes: Notes, root: Node, algorithm: Algorithm) -> None:
    if "length" in root.value:
        if "env_steps" in root.value:
            notes.add("length and env_steps are both given; keep one", root, "length")
        steps = _read_length(notes, root, algorithm)
        root.value["env_steps"] = Node(root.value["length"].line, steps)
        root.key_lines["env_steps"] = root.key_lines["length"]
        del root.value["length"], root.key_lines["length"]


def _parse_count(text: str) -> float | None:
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", text):
        return float(text)
    return number_of(text)


def _read_length(notes: Notes, root: Node, algorithm: Algorithm) -> int:
    given, epoch = root.value["length"].value, getattr(algorithm.made, "epoch", None)
    match = _LENGTH.fullmatch(str(given).strip())
    number, unit = None, ""
    if match is not None:
        number, unit = _parse_count(match["count"]), match["unit"].strip()
    units = {"": 1, algorithm.unit: 1}
    if epoch:
        units |= {"epoch": epoch, "epochs": epoch}
    if number is not None and unit in ("epoch", "epochs") and unit not in units:
        notes.add(
            f"length is {given!r}, but {algorithm.label} defines no epoch length; give length in "
            f"{algorithm.unit}, or set `epoch` in the class to the {algorithm.unit} per epoch",
            root,
            "length",
        )
        return 1
    if number is None or unit not in units:
        known = ", ".join(f"a number of {one}" for one in units if one not in ("", "epoch"))
        notes.add(f"length is {given!r}; allowed: {known}", root, "length")
        return 1
    return max(1, round(float(number) * units[unit]))
