"""Configurations of other systems' programs as studies of one configuration.

A source is a file of names and values (YAML, JSON), a Python file that holds them (which is read
and not run), or a command, in a file or as it would be typed. What it leaves out has the
program's defaults.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...elsewhere import COMMON, SYSTEMS, System, recognise
from ...elsewhere.python_words import NotPlain, assigned, called, fields_of
from ...errors import ConfigError
from ...plain_data import is_dict
from ...via_gymnasium import PREFIX, registered
from .draft import Draft
from .flags import flags_of, words_of
from .loose_yaml import read_yaml
from .systems import RULES
from .take import Source, take
from .words import file_name

__all__ = ["PROGRAMS", "one_configuration", "read_settings"]

PROGRAMS = ("cleanrl", "sb3", "purejaxrl", "rejax", "lerax", "jaxdem", "arlbench", "torch_ppo")
"""Systems whose configurations can be read, by the word of the command line."""

_CALLS: Mapping[str, tuple[str, ...]] = {
    "sb3": ("PPO", "RecurrentPPO"),
    "lerax": ("PPO",),
    "rejax": ("create", "PPO"),
    "jaxdem": ("create", "Create"),
    "torch_ppo": ("PPOConfig",),
    "purejaxrl": ("make_train",),
    "arlbench": ("AutoRLEnv", "PPO"),
}
_OBJECTS = ("env", "env_params", "eval_env", "model", "key", "rng", "policy_key", "callback")
_CONFIGS = ("config", "args", "hyperparams", "hyperparameters", "params", "cfg", "kwargs",
            "ppo_config", "hp_config", "PPO_CONFIG", "CONFIG")  # fmt: skip
_MOST_BYTES = 256 * 1024


def read_settings(source: str, kind: str, given: Mapping[str, Any]) -> Draft:
    """Read one configuration of a system's program.

    Args:
        source: a path, or a command.
        kind: one of `PROGRAMS`; the script named by a command chooses between several of one.
        given: flags that override it.

    Raises:
        ConfigError: it holds no configuration, or one that a study cannot say.
    """
    named, words = _read(source, kind)
    one = _script(kind, (*words, source), named, given)
    flat = _flat(named, one)
    if not words and not any(one.find(name) or COMMON.find(name) for name in flat):
        raise ConfigError(
            f"{source}: nothing that {one.title} would read; it has names such as "
            f"{', '.join(list(one.defaults)[:4])}"
        )
    draft = Draft(source if len(source) < 200 else f"{source[:197]}...")
    return one_configuration(draft, kind, Source(flat, words=(*words, source)), given, one)


def one_configuration(
    draft: Draft, kind: str, source: Source, given: Mapping[str, Any], one: System
) -> Draft:
    """Fill the draft of a study that trains one configuration.

    Args:
        draft: gets it.
        kind: how the study's name begins.
        source: what is set.
        given: flags that override it.
        one: whose names they are.

    Raises:
        ConfigError: a part of it would change the study and cannot be said.
    """
    draft.section("budget")["trials"] = 1
    draft.rest["metric"] = {"name": "eval/return_mean", "goal": "maximize"}
    take(draft, source, {**given, "system": one.name}, RULES)
    env = str(draft.env.get("id", ""))
    draft.rest.setdefault("name", file_name(f"{kind}-{env.removeprefix('gym:')}", kind))
    entry = draft.entry
    if entry is not None and entry.source == "gymnax" and f"{PREFIX}{env}" in registered():
        draft.note(f"env: {env} is gymnax's, compiled; {PREFIX}{env} is Gymnasium's own")
    return draft


def _script(
    kind: str, words: tuple[str, ...], named: Mapping[str, Any], given: Mapping[str, Any]
) -> System:
    """Return the program that is meant: of one system there may be several."""
    if "system" in given and str(given["system"]) in SYSTEMS:
        return SYSTEMS[str(given["system"])]
    found, _ = recognise(named, words)
    family = [name for name in SYSTEMS if name == kind or name.startswith(f"{kind}_")]
    return found if found.name in family else SYSTEMS[kind]


# ---------------------------------------------------------------------- reading


def _read(source: str, kind: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return name -> value, and the words of a command."""
    path = Path(source)
    if not _is_file(path):
        if " " not in source.strip():
            raise ConfigError(f"{source}: no such file")
        return _command(source)
    if path.suffix in (".yaml", ".yml"):
        return _mapping(source, read_yaml(path), kind), ()
    text = _text(path)
    if path.suffix == ".json":
        try:
            return _mapping(source, json.loads(text), kind), ()
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{source}: no JSON: {error}") from None
    if path.suffix == ".py":
        return _python(source, text, kind), ()
    return _command(text)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a command is too long for a path
        return False


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ConfigError(f"{path}: larger than {_MOST_BYTES // 1024} KiB")
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: no text in UTF-8") from None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None


def _command(text: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    words = words_of(text)
    return dict(flags_of(words)), tuple(words)


def _mapping(source: str, data: Any, kind: str) -> dict[str, Any]:
    if is_dict(data) and kind == "rejax" and is_dict(data.get("ppo")):
        data = data["ppo"]  # the other algorithms stand beside it
    if not is_dict(data):
        raise ConfigError(f"{source}: no mapping of names to values")
    return data


def _python(source: str, text: str, kind: str) -> dict[str, Any]:
    """Return the configuration that a Python file holds: a dictionary, fields, or a call."""
    try:
        plain = assigned(text)
        held = [plain[name] for name in _CONFIGS if isinstance(plain.get(name), dict)]
        found = held[0] if held else fields_of(text)
        found = found or called(text, _CALLS.get(kind, ()), _OBJECTS)
    except NotPlain as error:
        raise ConfigError(f"{source}: {error}") from None
    first = found.pop("0", None)
    if isinstance(first, dict):
        return {**first, **found}
    return found if first is None or kind != "sb3" else {"policy": first, **found}


def _flat(named: Mapping[str, Any], one: System, outer: str = "") -> dict[str, Any]:
    """Return dotted name -> value; what is a mapping by its meaning stays one."""
    found: dict[str, Any] = {}
    for name, value in named.items():
        whole = f"{outer}{name}"
        row = one.find(whole)
        if is_dict(value) and value and (row is None or row.fate != "taken"):
            found |= _flat(value, one, f"{whole}.")
        elif isinstance(value, str) and value.startswith("${"):
            continue  # Hydra: it stands elsewhere
        else:
            found.update(_switched(one, str(whole), value))
    return found


def _switched(one: System, name: str, value: Any) -> dict[str, Any]:
    """Return `--no-anneal-lr` as anneal_lr: false."""
    plain = name.replace("-", "_")
    if value is True and plain.startswith("no_") and one.find(plain) is None:
        inner = one.find(plain.removeprefix("no_"))
        if inner is not None:
            return {inner.name: False}
    return {name: value}
