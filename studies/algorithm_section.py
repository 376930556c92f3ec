"""Reads `algorithm` and `command`, and the keys that replace others."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ..errors import ConfigError, suggestion
from ..spaces.make import make_distribution
from .algorithm import COMMAND, PPO, Algorithm, knob_of_data
from .command import command_algorithm
from .sections import ask_for_devices_of
from .spec import Study
from .study_values import number_of
from .user_code import import_user_code, is_inside, user_module
from .yaml_io import Node, Notes, plain

_CLASS = re.compile(r"(?P<file>[^:]+\.py):(?P<name>[A-Za-z_][A-Za-z0-9_]*)")
_LENGTH = re.compile(r"(?P<count>[0-9.]+[kKMGB]?)\s*(?P<unit>[A-Za-z ]*)")


def read_algorithm(
    notes: Notes, root: Node, source: Path | None, before_code: Callable[[], None]
) -> Algorithm:
    """Read `algorithm` and run its file; if `source` is None, read it from the record.

    `before_code` is called before the file runs.
    """
    node = root.value.get("algorithm")
    if "command" in root.value and source is not None:
        return _command(notes, root, source)
    if node is None or node.value == PPO:
        return Algorithm()
    if node.is_map and source is None:
        data = plain(node)
        table = {name: knob_of_data(name, one) for name, one in data["hyperparameters"].items()}
        env = (data.get("environment", False), data.get("acts", False))
        return Algorithm(data["class"], table, data["unit"], *env)
    given = node.value["class"].value if node.is_map and "class" in node.value else node.value
    match = _CLASS.fullmatch(given) if isinstance(given, str) else None
    if match is None or source is None:  # a record never runs a file
        text = f"algorithm is {node.shown()}; allowed: ppo, or FILE.py:CLASS such as my_sac.py:SAC"
        notes.add(text, root, "algorithm")
        return Algorithm()
    before_code()
    ask_for_devices_of(root)
    with notes.at(root, "algorithm", "algorithm: "):
        return _loaded(given, match["file"], match["name"], source)
    return Algorithm()


def _command(notes: Notes, root: Node, source: Path) -> Algorithm:
    node = root.value.get("algorithm")
    name = node.value["class"].value if node and node.is_map and "class" in node.value else ""
    if node is not None and not str(name).startswith(f"{COMMAND}:"):  # else a resolved study
        notes.add("command and algorithm are both given; keep one", root, "algorithm")
        return Algorithm()
    return command_algorithm(notes, root, source)


def _loaded(given: str, file: str, name: str, source: Path) -> Algorithm:
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
        text = f"{file} has no class {name!r} that is an hpo.Training;{suggestion(name, known)}"
        raise ConfigError(f"{text} Known: {', '.join(known) or 'none'}")
    for knob in made.declared().values():
        if knob.search is not None:
            try:
                make_distribution(dict(knob.search))
            except ConfigError as error:
                raise ConfigError(f"{name}.{knob.name}: search: {error}") from error
    env = (made.takes_environment(), made.acts())
    return Algorithm(given, made.declared(), made.unit, *env, made)


def loaded_algorithm(given: str, source: Path = Path(".")) -> Algorithm:
    """Run the file in `FILE.py:CLASS` and return the class's declarations."""
    match = _CLASS.fullmatch(given)
    if match is None:
        raise ConfigError(f"{given!r} is not FILE.py:CLASS, such as my_sac.py:SAC")
    ask_for_devices_of(Node(None, {}))
    return _loaded(given, match["file"], match["name"], source)


def with_code(study: Study) -> Study:
    """Return a study from another process with its custom training's class."""
    if study.algorithm.is_ppo or study.algorithm.is_process:
        return study
    given = study.algorithm.name
    file, _, name = given.partition(":")
    return replace(study, algorithm=_loaded(given, file, name, Path(study.source)))


def set_custom_keys(notes: Notes, root: Node, algorithm: Algorithm) -> None:
    """Put the class in place of `env` and its file among `imports`, and read `length`."""
    if algorithm.is_ppo:
        return
    here = root.value["command" if algorithm.is_process else "algorithm"].line
    if not algorithm.takes_env:
        given = plain(root.value["env"]) if "env" in root.value else algorithm.label
        if given not in (algorithm.label, {"id": algorithm.label}):  # as a record has it
            text = f"{algorithm.label} makes the environment itself; remove env"
            notes.add(text, root, "env")
        root.value["env"] = Node(here, {"id": Node(here, algorithm.label)}, {"id": here})
        root.key_lines.setdefault("env", here)
    if not algorithm.is_process:
        _import(root, algorithm.name.partition(":")[0])
    _set_length(notes, root, algorithm)


def _import(root: Node, file: str) -> None:
    here = root.value["algorithm"].line
    imports = root.value.setdefault("imports", Node(here, []))
    if imports.is_list and file not in [item.value for item in imports.value]:
        imports.value.append(Node(here, file))
        root.key_lines.setdefault("imports", here)


def _set_length(notes: Notes, root: Node, algorithm: Algorithm) -> None:
    if "length" in root.value:
        if "env_steps" in root.value:
            notes.add("length and env_steps are both given; keep one", root, "length")
        steps = _length(notes, root, algorithm)
        root.value["env_steps"] = Node(root.value["length"].line, steps)
        root.key_lines["env_steps"] = root.key_lines["length"]
        del root.value["length"], root.key_lines["length"]


def _length(notes: Notes, root: Node, algorithm: Algorithm) -> int:
    given, epoch = root.value["length"].value, getattr(algorithm.made, "epoch", None)
    match = _LENGTH.fullmatch(str(given).strip())
    amount = "" if match is None else match["count"]
    number = float(amount) if re.fullmatch(r"[0-9]+(\.[0-9]+)?", amount) else number_of(amount)
    unit = "" if match is None else match["unit"].strip()
    units = {"": 1, algorithm.unit: 1}
    if epoch:
        units |= {"epoch": epoch, "epochs": epoch}
    if number is not None and unit in ("epoch", "epochs") and unit not in units:
        notes.add(
            f"length is {given!r}, but {algorithm.label} does not say how long an epoch is; write "
            f"`epoch = ...` in the class, the number of {algorithm.unit} in one, or give length "
            f"in {algorithm.unit}",
            root,
            "length",
        )
        return 1
    if number is None or unit not in units:
        known = ", ".join(f"a number of {one}" for one in units if one not in ("", "epoch"))
        notes.add(f"length is {given!r}; allowed: {known}", root, "length")
        return 1
    return max(1, round(float(number) * units[unit]))
