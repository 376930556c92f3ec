"""Converts training configurations of other systems to studies with a single configuration.

A source is a Python file (read, never run), a YAML or JSON file, or a command (in a file or
typed). Omitted names get the program's defaults.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..environments.via_gymnasium import PREFIX, registered
from ..errors import ConfigError, UnknownNameError, listed
from ..files.plain_data import is_dict, is_list
from ..foreign_names.brax_table import BRAX
from ..foreign_names.name_mapping import COMMON, UNKNOWN, NameRow, System
from ..foreign_names.plain_values import NotPlain, Unread
from ..foreign_names.tables import SYSTEMS, find, recognise, system, version_named
from ..foreign_names.xlron_table import XLRON
from ..knobs import KNOBS
from ..studies.yaml_io import text_of, to_yaml
from .brax_config import read_brax
from .commands import Command, read_command
from .convert import add_defaults, take
from .converted_study import ConvertedStudy, ImportSource
from .formats import file_name, read_data, read_word
from .hydra_sweeps import Sweep, put_sweep, refuse_tied, sweep_in
from .plain_python import OBJECTS, OTHERS, read_source
from .xlron_rules import on

_ENVS = ("env", "env_factory")
_FALLBACKS = ("default", "atari")
_TYPED = "the command line"
_REFERENCE = re.compile(r"\$\{([\w.]+)\}")
_MOST_REFERENCES = 4  # from a name to its value
_TRAINING = tuple(row.name for row in XLRON.rows if not row.target.startswith("env."))
HEURISTICS = ("ksp_ff", "ksp_lf", "ff_ksp", "ksp_bf", "bf_ksp", "ksp_mu", "mu_ksp", "kca_ff",
              "kmc_ff", "kmf_ff", "kme_ff")  # fmt: skip
"""The heuristics that both systems have; a test compares them with ours."""


def read_settings(source: str, kind: str, given: Mapping[str, Any]) -> ConvertedStudy:
    """Read a configuration: a Python, YAML or JSON file, a script, or a typed command."""
    path, one = Path(source), system(str(given.get("system", kind)))
    found, command, sweep = ImportSource(family=kind), Command(), None
    if not os.path.isfile(path):  # os.path returns False for a command too long for a path
        command = _read_typed(source, given)
    elif path.suffix in (".yaml", ".yml", ".json"):
        sweep = _data_file(path, one, found, given)
    elif path.suffix == ".py" and one is BRAX:
        _read_brax_file(path, found, given)
    elif path.suffix == ".py":
        _read_python_file(path, one, found, given)
    else:
        command = _with_file_name(source, lambda: read_command(text_of(path), path.parent, given))
    found.constants |= _flatten_names(command.flags, one)
    found.searched = dict(command.searched)
    found.words = (*found.words, *command.words, source)
    if not (command.words or found.calls or _sets_something(one, found)):
        some = ", ".join(list(one.defaults)[:4])
        raise ConfigError(f"{source} has no settings for {one.title}, such as {some}")
    if sweep is None and command.searched:
        sweep = Sweep(command.searched, tied=command.tied)
    shown = source
    if len(source) >= 200:
        shown = f"{source[:197]}..."
    return _one_configuration(ConvertedStudy(shown), kind, found, given, sweep)


def _read_typed(source: str, given: Mapping[str, Any]) -> Command:
    if " " not in source.strip():
        raise ConfigError(f"{source}: no such file")
    return read_command(source, None, given)


def _data_file(
    path: Path, one: System, found: ImportSource, given: Mapping[str, Any]
) -> Sweep | None:
    """Read a YAML or JSON file into a source; return the search in its `hydra` section."""
    data = _read_mapping(path, found.family, given)
    hydra = data.pop("hydra", None)
    sweep = None
    if is_dict(hydra) and "search_space" not in str(given.get("without", "")):
        sweep = sweep_in(path, hydra)
    found.constants = _flatten_names(data, one)
    targets = [value for name, value in found.constants.items() if name.endswith("_target_")]
    for target in targets:
        if str(target).rpartition(".")[2].lower() in OTHERS:
            raise ConfigError(f"{path} uses {target}; a study trains only PPO")
    return sweep


def _sets_something(one: System, found: ImportSource) -> bool:
    """Return whether a source sets any of the system's names besides the environment."""
    rows = (find(name, one) for name in found.names())
    return any(row is not None and row.target != "env" and row.fate != "left out" for row in rows)


def _with_file_name(source: str, read: Callable[[], Command]) -> Command:
    """Read a command; error messages start with the name of the file that contains it."""
    try:
        return read()
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}", **error.remedies) from None


def _one_configuration(
    draft: ConvertedStudy,
    kind: str,
    source: ImportSource,
    given: Mapping[str, Any],
    sweep: Sweep | None = None,
) -> ConvertedStudy:
    draft.rest["metric"] = {"name": "eval/return_mean", "goal": "maximize"}
    if sweep is not None:
        put_sweep(draft, source, sweep)
    take(draft, source, given)
    if sweep is not None:
        refuse_tied(draft, sweep)
    if not draft.space:  # nothing is searched, or only the seed
        draft.rest.pop("search", None)
        draft.section("budget")["trials"] = 1
    env = str(draft.env.get("id", ""))
    draft.rest.setdefault("name", file_name(f"{kind}-{env.removeprefix('gym:')}", kind))
    entry = draft.entry
    if entry is not None and entry.source == "gymnax" and f"{PREFIX}{env}" in registered():
        draft.note(f"env: {env} is gymnax's compiled version; {PREFIX}{env} is Gymnasium's")
    return draft


def _read_brax_file(path: Path, found: ImportSource, given: Mapping[str, Any]) -> None:
    """Read a brax or MuJoCo Playground Python file."""
    wanted = next((str(given[name]) for name in ("env", "env_name") if name in given), None)
    try:
        read = read_brax(text_of(path), wanted)
    except NotPlain as error:
        raise ConfigError(f"{path}: {error}", **error.remedies) from None
    found.constants, found.calls = read.named, ("train",)
    if read.env is not None and wanted is None:
        found.constants = {"env_name": read.env, **read.named}


def _read_python_file(
    path: Path, one: System, found: ImportSource, given: Mapping[str, Any]
) -> None:
    """Read a Python file, using the names in all versions of a system."""
    with suppress(NotPlain):
        _refuse_zoo_file(path, _zoo_dictionary(path), given)
    versions = [one, *(other for other in SYSTEMS.values() if other.family == one.family)]

    def known(name: str) -> str:
        rows = (version.find(name) for version in versions)
        return next((row.fate for row in rows if row), "")

    try:
        read = read_source(text_of(path), known, one.python, given)
    except NotPlain as error:
        raise ConfigError(f"{path}: {error}", **error.remedies) from None
    if read.others and not read.calls:
        raise ConfigError(f"{path} uses {read.others[0]}; a study trains only PPO")
    if one.family == "cleanrl" and "NormalizeObservation(" in text_of(path):
        found.words = ("cleanrl/ppo_continuous_action.py",)
    recognised = recognise(read.named, (*found.words, str(path)), one.family)[0]
    if recognised is not COMMON:
        one = recognised
    if "version" in given:
        one = version_named(one, str(given["version"]))
    found.constants, found.calls, found.loops = read.named, read.calls, read.loops
    found.mentioned = frozenset(read.mentioned)
    _keep_wrappers(one, found, read.wrappers)
    _keep_seeds(one, found, read.seeds)
    if read.env and not _names_env(one, found.constants):
        _put_environment(one, found, read.env)
    _keep_objects(path, one, found, read.objects, given)


def _keep_wrappers(one: System, found: ImportSource, names: Iterable[str]) -> None:
    """Keep wrappers under the name that the table rejects; other scripts come with theirs."""
    wrappers = list(dict.fromkeys(names))
    if not wrappers or one.family != "sb3":
        return
    if "env_wrapper" in found.constants:
        wrappers = ["AtariWrapper", *wrappers]
    found.constants["env_wrapper"] = wrappers


def _keep_seeds(one: System, found: ImportSource, count: Any) -> None:
    """Keep the number of seeds for which a file vmaps its training, unless a name gives it."""
    rows = filter(None, (find(name, one) for name in found.constants))
    if count is None or any(row.target == "seeds.per_config" for row in rows):
        return
    if isinstance(count, int) and count > 0:
        found.constants["num_seeds"] = count
    else:
        found.objects["vmap"] = "the number of its keys cannot be read; set seeds.per_config"


def _put_environment(one: System, found: ImportSource, made: str) -> None:
    """Keep an environment that the file creates; a class counts only if it is in the table."""
    row = _env_row(one)
    if row is None:
        return
    of_class = made[:1].isupper() and "-" not in made
    if not of_class or made in (row.values.table or {}):
        found.constants[row.name] = made


def _env_row(one: System) -> NameRow | None:
    return next((row for row in one.rows if row.target == "env"), None)


def _names_env(one: System, names: Iterable[str]) -> bool:
    rows = (find(name, one) for name in names)
    return any(row is not None and row.target == "env" for row in rows)


def _keep_objects(
    path: Path,
    one: System,
    found: ImportSource,
    objects: Mapping[str, Unread],
    given: Mapping[str, Any],
) -> None:
    """Read, list or reject values that are objects; a default never silently replaces one.

    Raises:
        ConfigError: the environment is an unreadable object, and nothing else names it.
    """
    env_named = _names_env(one, (*found.constants, *given))
    for name, value in objects.items():
        if name in found.constants or name in given:
            continue
        row = one.find(name)
        is_env = name in _ENVS or (row is not None and row.target == "env")
        is_factory = name == "env_factory"
        if is_env and env_named and not is_factory:
            continue
        if is_env and not env_named and (is_factory or _has_default_env(one)):
            text = f"{path}:{value.line}: {name} is {value}, which cannot be read without running "
            raise ConfigError(f"{text}it; name the environment", env="ID")
        if name != "env":  # without a default, an error follows if nothing names one
            _keep_object(found, name, row, value)


def _has_default_env(one: System) -> bool:
    return any(row.target == "env" and row.default is not UNKNOWN for row in one.rows)


def _keep_object(found: ImportSource, name: str, row: NameRow | None, value: Unread) -> None:
    """Keep an optimiser object for later; list any other object with the reason to omit it."""
    if row is not None and name == "optimizer":
        found.constants[name] = value
    elif row is not None and row.because:
        found.objects[name] = row.because
    else:
        found.objects[name] = OBJECTS[name]


# --------------------------------------------------------------------------- YAML, JSON


def _read_mapping(path: Path, kind: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the mapping in a file, merged with the files in Hydra's `defaults`."""
    data = read_data(path)
    if is_dict(data) and kind == "rejax" and is_dict(data.get("ppo")):
        data = data["ppo"]  # the file also has other algorithms
    if not is_dict(data):
        raise ConfigError(f"{path}: not a mapping of names to values")
    _refuse_zoo_file(path, data, given)
    defaults = data.pop("defaults", None)
    if defaults is None:
        return data
    if not is_list(defaults):
        return {"defaults": defaults, **data}
    whole: dict[str, Any] = {}
    for entry in defaults:
        if not is_dict(entry):
            entry = {"": entry}
        for group, name in entry.items():
            group = str(group).removeprefix("override ").strip("/ ")
            if group == "search_space":
                whole[group] = name
            elif group.partition("/")[0] != "hydra" and name not in (None, [], "_self_"):
                whole = _merge_mappings(whole, _read_hydra_group(path, group, name, given))
    return _merge_mappings(whole, data)


def _read_hydra_group(
    path: Path, group: str, name: Any, given: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the data that Hydra would read for `group: name`."""
    folders = path.absolute().parents[:4]
    if not group:
        folders = folders[:1]
    for folder in folders:
        file = folder / group / f"{name}.yaml"
        if not file.is_file():
            continue
        data = read_data(file)
        if is_dict(data) and not group:
            return data
        if is_dict(data) and "@package _global_" in text_of(file):
            return _read_mapping(file, "", given)
        return {group: data}
    if group == "environment" and not {"env", "env_name", "env_id"} & set(given):
        text = f"its environment {name!r} is set in the missing file {group}/{name}.yaml"
        raise ConfigError(f"{path}: {text}; name an environment", env="ID")
    if group == "algorithm":
        return {group: name}
    return {f"defaults/{group or name}": name}


def _merge_mappings(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    found = dict(first)
    for name, value in second.items():
        old = found.get(name)
        if is_dict(old) and is_dict(value):
            value = _merge_mappings(old, value)
        found[name] = value
    return found


def _flatten_names(named: Mapping[str, Any], one: System) -> dict[str, Any]:
    """Return values by dotted name; if a known name's value is a mapping, it is kept whole.

    Hydra's interpolations are replaced by their values. One that repeats the setting of another
    name is omitted, as is one that cannot be read and has no counterpart.
    """
    found: dict[str, Any] = {}
    for whole, value in _leaves_of(named, one, ""):
        refers = isinstance(value, str) and value.startswith("${")
        if not refers:
            found[whole] = value
        elif not _repeats_setting(one, whole, value):
            found[whole] = _interpolated(named, value)
    return {name: value for name, value in found.items() if _is_given(one, name, value)}


def _leaves_of(named: Mapping[str, Any], one: System, outer: str) -> Iterator[tuple[str, Any]]:
    for name, value in named.items():
        whole = f"{outer}{name}"
        if is_dict(value) and value and one.find(whole) is None:
            yield from _leaves_of(value, one, f"{whole}.")
        else:
            yield whole, value


def _repeats_setting(one: System, name: str, value: str) -> bool:
    """Return whether a name repeats another one that has the same target."""
    rows = [find(name, one), find(value[2:-1], one)]
    return None not in rows and len({row.target for row in rows if row is not None}) == 1


def _interpolated(named: Mapping[str, Any], text: str) -> Any:
    """Return the value that `${outer.name}` refers to; `Unread` if it cannot be found."""
    value: Any = text
    for _ in range(_MOST_REFERENCES):
        match = _REFERENCE.fullmatch(str(value))
        if match is None:
            break
        value = _value_at(named, match[1])
    if value is None or is_dict(value) or str(value).startswith("${"):
        return Unread(text)
    return value


def _value_at(named: Mapping[str, Any], path: str) -> Any:
    """Return the value at a dotted path; None if there is none."""
    value: Any = named
    for part in path.split("."):
        if not is_dict(value):
            return None
        value = value.get(part)
    return value


def _is_given(one: System, name: str, value: Any) -> bool:
    if not isinstance(value, Unread):
        return True
    row = find(name, one)
    return row is not None and row.fate == "taken" and row.target in KNOBS


# ------------------------------------------------------------------------------- rl-zoo3


def read_hyperparameters(path: Path, given: Mapping[str, Any]) -> ConvertedStudy:
    """Read the rl-zoo3 configuration of one environment: `ppo.yml`, Python, `config.yml`."""
    if path.stem in OTHERS:
        raise ConfigError(f"{path} has hyperparameters for {path.stem}; a study trains only PPO")
    if path.suffix != ".py":
        data, what = read_data(path), "a mapping of environments"
    else:
        try:
            data, what = _zoo_dictionary(path), "a plain dictionary `hyperparams`"
        except NotPlain as error:
            raise ConfigError(f"{path}: {error}") from None
    if not is_dict(data) or not data:
        raise ConfigError(f"{path} has no hyperparameters; expected: {what}")
    named = (str(given[name]) for name in ("env", "env_id") if name in given)
    env = next((name.removeprefix("gym:") for name in named), None)
    draft = ConvertedStudy(str(path))
    constants = _env_configuration(draft, data, env)
    return _one_configuration(draft, "rlzoo", ImportSource(constants, family="sb3"), given)


def _zoo_dictionary(path: Path) -> Any:
    return read_source(text_of(path), lambda name: name == "hyperparams").named.get("hyperparams")


def _refuse_zoo_file(path: Path, data: Any, given: Mapping[str, Any]) -> None:
    """Reject a file with one rl-zoo3 configuration per environment, which another reader reads."""
    if not is_dict(data) or not all(map(is_dict, data.values())):
        return
    zoo = [str(name) for name, one in data.items() if {"policy", "n_timesteps"} <= one.keys()]
    if not zoo:
        return
    env = next((name for name in zoo if name not in _FALLBACKS), "CartPole-v1")
    env = given.get("env", given.get("env_id", env))
    text = f"{path} is an rl-zoo3 hyperparameter file, with one configuration per environment"
    raise ConfigError(text, reader=["rlzoo", path, {"env": env}])


def _env_configuration(
    draft: ConvertedStudy, data: dict[str, Any], env: str | None
) -> dict[str, Any]:
    """Return an environment's configuration; the file of a trained agent contains only one."""
    if not any(isinstance(value, dict) for value in data.values()):
        if env is None:
            raise draft.fault("it has one configuration; name its environment", env="CartPole-v1")
        return data
    envs = [str(name) for name in data if name not in _FALLBACKS]
    if env is None:
        if len(envs) != 1:
            some = (envs or ["CartPole-v1"])[0]
            raise draft.fault(f"it has {len(envs)} environments; name one", env=some)
        return {**_checked_mapping(draft, envs[0], data[envs[0]]), "env": envs[0]}
    draft.part = env
    if env in data:
        return _checked_mapping(draft, env, data[env])
    fallback = "default"
    if "NoFrameskip" in env or env.startswith("ALE/"):
        fallback = "atari"
    if fallback not in data:
        raise draft.fault(f"it has no environment {env!r}. {listed(env, envs)}")
    draft.note(f"{env} is not in the file; the entry {fallback!r} is used, as in rl-zoo3")
    return _checked_mapping(draft, fallback, data[fallback])


def _checked_mapping(draft: ConvertedStudy, name: str, value: Any) -> dict[str, Any]:
    if not is_dict(value):
        raise draft.fault(f"{name} is {value!r}; allowed: a mapping")
    return {str(key): one for key, one in value.items()}


# --------------------------------------------------------------------------------- XLRON


def read_flags(source: str | Path, given: Mapping[str, Any]) -> ConvertedStudy:
    """Read an XLRON flag file, a file with a command line, or a command line."""
    text, path = str(source), Path(source)
    if "--" in text and (text.lstrip().startswith("-") or len(text.split()) > 1):
        shown, folder = _TYPED, Path()
    elif os.path.isfile(path):
        shown, text, folder = str(path), text_of(path), path.parent
    else:
        raise ConfigError(f"{text[:200]}: neither a file nor a command line with flags")
    command = _with_file_name(shown, lambda: read_command(text, folder, given))
    if not command.flags and not command.searched:
        raise ConfigError(
            f"{shown}: no flags; a training command needs flags such as --env_type=rmsa"
        )
    found = ImportSource(
        dict(command.flags), dict(command.searched), command.words, family="xlron"
    )
    if on(given.get("EVAL_HEURISTIC", found.find("EVAL_HEURISTIC"))):
        return _heuristic_file(shown, found, given)
    draft = ConvertedStudy(shown)
    if shown == _TYPED:
        draft.rest["name"] = "xlron"
    sweep = Sweep(command.searched, tied=command.tied)
    if found.searched:
        put_sweep(draft, found, sweep)
    take(draft, found, given)
    refuse_tied(draft, sweep)
    if not draft.space:
        draft.rest.pop("search", None)
        draft.section("budget")["trials"] = 1
    return draft


@dataclass
class NetworkFile(ConvertedStudy):
    """The environment keys converted from an evaluation, which are written instead of a study."""

    # option -> value of the evaluation, in addition to the file
    evaluation: Mapping[str, str] = field(default_factory=dict[str, str])

    def text(self) -> str:
        keys = {"id": self.env["id"], **{k: v for k, v in self.env.items() if k != "id"}}
        how = ", ".join(f"{name} {value}" for name, value in self.evaluation.items())
        return self.head() + f"# Evaluated with {how}\n" + to_yaml(keys)


def _heuristic_file(shown: str, source: ImportSource, given: Mapping[str, Any]) -> NetworkFile:
    source.negate(XLRON)
    flags = {**source.constants, **given}
    draft = NetworkFile(shown, system=XLRON)
    name = str(flags.get("path_heuristic", "ksp_ff"))
    if name not in HEURISTICS:
        raise draft.fault(str(UnknownNameError("path_heuristic", name, HEURISTICS)))
    draft.constant("env_type", flags.get("env_type", "rmsa"))
    for row in XLRON.rows:
        if row.target.startswith("env.") and row.fate == "taken" and row.name in flags:
            draft.constant(row.name, flags[row.name])
    if draft.env.get("continuous"):
        draft.silent.update({"max_requests", "guardband"})
    add_defaults(draft, ImportSource({**flags, **dict.fromkeys(_TRAINING)}))
    if not draft.env.get("continuous"):
        draft.env["warmup_requests"] = 0
    if draft.env["id"] in ("rwa", "rwa_lightpath_reuse"):
        draft.env.pop("guardband", None)
    networks = int(read_word(flags.get("NUM_ENVS", 1)))
    total = int(read_word(flags.get("TOTAL_TIMESTEPS", 1_000_000)))
    loads = [read_word(flags.get(key)) for key in ("min_load", "max_load", "step_load")]
    evaluation = {
        "heuristic": name,
        "seeds": str(networks),
        "steps": str(max(1, total // networks)),
    }
    if None not in loads:
        evaluation["loads"] = ":".join(f"{load:g}" for load in loads)
    draft.evaluation = evaluation
    draft.read = list(flags)
    draft.taken |= {flag: [] for flag in draft.unlisted()}
    return draft
