"""Configurations of other systems' programs as studies of one configuration.

A source is a Python file (read, never run), a YAML or JSON file, or a command, in a file or as it
would be typed. What it leaves out has the program's defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..environments.via_gymnasium import PREFIX, registered
from ..errors import ConfigError, listed, suggestion
from ..files.plain_data import is_dict
from ..studies.yaml_io import to_yaml
from .convert import settle, take
from .converted_study import Draft, Source
from .formats import file_name, flags_of, read_data, read_word, text_of, words_of
from .name_mapping import COMMON, System
from .plain_python import NotPlain, read_source
from .tables import SYSTEMS, recognise, system
from .xlron_rules import negations, on
from .xlron_table import XLRON

_FALLBACKS = ("default", "atari")
_OTHERS = ("a2c", "ars", "crossq", "ddpg", "dqn", "her", "qrdqn", "sac", "td3", "tqc", "trpo")


def read_settings(source: str, kind: str, given: Mapping[str, Any]) -> Draft:
    """Read one configuration of a system's program."""
    path, words = Path(source), list[str]()
    found = Source(family=kind)
    one = system(str(given.get("system", kind)))
    if not _is_file(path):
        if " " not in source.strip():
            raise ConfigError(f"{source}: no such file")
        words = words_of(source)
    elif path.suffix in (".yaml", ".yml", ".json"):
        found.constants = _flat(_data(path, kind, given), one)
    elif path.suffix == ".py":
        _python(path, one, found, given)
    else:
        words = words_of(text_of(path))
    found.constants |= _flat(flags_of(words), one)
    found.words = (*words, source)
    rows = [one.find(name) or COMMON.find(name) for name in found.constants]
    if not (words or found.calls or any(row and row.target != "env" for row in rows)):
        raise ConfigError(
            f"{source}: nothing that {one.title} would read; it has names such as "
            f"{', '.join(list(one.defaults)[:4])}"
        )
    return one_configuration(
        Draft(source if len(source) < 200 else f"{source[:197]}..."), kind, found, given
    )


def one_configuration(draft: Draft, kind: str, source: Source, given: Mapping[str, Any]) -> Draft:
    """Fill the draft of a study that trains one configuration."""
    draft.section("budget")["trials"] = 1
    draft.rest["metric"] = {"name": "eval/return_mean", "goal": "maximize"}
    take(draft, source, given)
    env = str(draft.env.get("id", ""))
    draft.rest.setdefault("name", file_name(f"{kind}-{env.removeprefix('gym:')}", kind))
    entry = draft.entry
    if entry is not None and entry.source == "gymnax" and f"{PREFIX}{env}" in registered():
        draft.note(f"env: {env} is gymnax's, compiled; {PREFIX}{env} is Gymnasium's own")
    return draft


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a command is too long for a path
        return False


# -------------------------------------------------------------------------------- Python


def _python(path: Path, one: System, found: Source, given: Mapping[str, Any]) -> None:
    """Put what a Python file gives to a system's names into a source."""
    versions = [one, *(other for other in SYSTEMS.values() if other.family == one.family)]

    def known(name: str) -> str:
        return next((row.fate for row in (its.find(name) for its in versions) if row), "")

    try:
        read = read_source(text_of(path), known, one.calls, given, one.around)
        recognised = recognise(read.named, (str(path),), one.family)[0]
        one = one if recognised is COMMON else recognised
    except NotPlain as error:
        raise ConfigError(f"{path}: {error}", **error.remedies) from None
    found.constants, found.calls = read.named, read.calls
    texts = read.positional
    if one.name == "sb3" and texts:
        found.constants.setdefault("policy", texts[0])
    env = texts[1] if one.name == "sb3" and len(texts) > 1 else read.env
    row = next((row for row in one.rows if row.target == "env"), None)
    if env is None or row is None or any(_is_env(one, name) for name in found.constants):
        return
    listed = env in (row.values.table or {})
    if listed or not env[:1].isupper() or "-" in env:
        found.constants[row.name] = env


def _is_env(one: System, name: str) -> bool:
    row = one.find(name)
    return row is not None and row.target == "env"


# --------------------------------------------------------------------------- YAML, JSON


def _data(path: Path, kind: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the mapping that a file holds, with the files that Hydra's `defaults` names."""
    data = read_data(path)
    if is_dict(data) and kind == "rejax" and is_dict(data.get("ppo")):
        data = data["ppo"]  # the other algorithms stand beside it
    if not is_dict(data):
        raise ConfigError(f"{path}: not a mapping of names to values")
    defaults = data.pop("defaults", None)
    if not isinstance(defaults, list):
        return {} | ({"defaults": defaults} if defaults is not None else {}) | data
    whole: dict[str, Any] = {}
    for entry in defaults:
        for group, name in entry.items() if is_dict(entry) else ():
            group = str(group).removeprefix("override ").strip("/ ")
            if group == "search_space":
                whole[group] = name
            elif group.partition("/")[0] != "hydra" and isinstance(name, str):
                whole = _merged(whole, _group(path, group, name, given))
    return _merged(whole, data)


def _group(path: Path, group: str, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what Hydra would read for `group: name`."""
    for folder in path.absolute().parents[:4]:
        file = folder / group / f"{name}.yaml"
        if file.is_file():
            data = read_data(file)
            flat = "@package _global_" in text_of(file)
            data = _data(file, "", given) if flat and is_dict(data) else data
            return data if flat else {group: data}
    named = {"env", "env_name", "env_id"} & set(given)
    if group == "environment" and not named:
        raise ConfigError(
            f"{path}: its environment is {name!r}, of {group}/{name}.yaml, which is not beside "
            "it; name the environment",
            env="ID",
        )
    return {group: name} if group == "algorithm" else {}


def _merged(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Return both, the second over the first, mappings merged."""
    found = dict(first)
    for name, value in second.items():
        old = found.get(name)
        found[name] = _merged(old, value) if is_dict(old) and is_dict(value) else value
    return found


def _flat(named: Mapping[str, Any], one: System, outer: str = "") -> dict[str, Any]:
    """Return dotted name -> value; what is a mapping by its meaning stays one."""
    found: dict[str, Any] = {}
    for name, value in named.items():
        whole = f"{outer}{name}"
        row = one.find(whole)
        if is_dict(value) and value and row is None:
            found |= _flat(value, one, f"{whole}.")
        elif not (isinstance(value, str) and value.startswith("${")):  # Hydra: it is elsewhere
            found.update(_switched(one, whole, value))
    return found


def _switched(one: System, name: str, value: Any) -> dict[str, Any]:
    """Return `--no-anneal-lr` as anneal_lr: false."""
    plain = name.replace("-", "_")
    if value is True and plain.startswith("no_") and one.find(plain) is None:
        inner = one.find(plain.removeprefix("no_"))
        if inner is not None:
            return {inner.name: False}
    return {name: value}


# ------------------------------------------------------------------------------- rl-zoo3


def read_hyperparameters(path: Path, given: Mapping[str, Any]) -> Draft:
    """Read one environment's configuration in rl-zoo3: `ppo.yml`, Python, `config.yml`."""
    if path.stem in _OTHERS:
        raise ConfigError(f"{path}: hyperparameters of {path.stem}; a study trains with PPO alone")
    if path.suffix == ".py":
        try:
            read = read_source(text_of(path), lambda name: name == "hyperparams")
        except NotPlain as error:
            raise ConfigError(f"{path}: {error}") from None
        data = read.named.get("hyperparams")
        if not is_dict(data):
            raise ConfigError(f"{path}: no plain dictionary `hyperparams`")
    else:
        data = read_data(path)
    if not is_dict(data) or not data:
        raise ConfigError(f"{path}: no hyperparameters; they are a mapping for each environment")
    env = next((str(given[name]) for name in ("env", "env_id") if name in given), None)
    draft = Draft(str(path))
    constants = _chosen(draft, data, None if env is None else env.removeprefix("gym:"))
    return one_configuration(draft, "rlzoo", Source(constants, family="sb3"), given)


def _chosen(draft: Draft, data: dict[str, Any], env: str | None) -> dict[str, Any]:
    """Return the configuration of an environment; a trained agent's file is one by itself."""
    if not any(isinstance(value, dict) for value in data.values()):
        if env is None:
            raise ConfigError(
                f"{draft.source}: one configuration; name its environment", env="CartPole-v1"
            )
        return data
    envs = [str(name) for name in data if name not in _FALLBACKS]
    if env is None:
        if len(envs) != 1:
            raise ConfigError(
                f"{draft.source}: {len(envs)} environments; name one",
                env=(envs or ["CartPole-v1"])[0],
            )
        env = envs[0]
        data = {**data, env: {**_mapping(draft, env, data[env]), "env": env}}
    if env in data:
        return _mapping(draft, env, data[env])
    fallback = "atari" if "NoFrameskip" in env or env.startswith("ALE/") else "default"
    if fallback not in data:
        raise ConfigError(f"{draft.source}: no environment {env!r}. {listed(env, envs)}")
    draft.note(f"{env} is not in the file; its {fallback!r} is taken, as rl-zoo3 does")
    return _mapping(draft, fallback, data[fallback])


def _mapping(draft: Draft, name: str, value: Any) -> dict[str, Any]:
    if not is_dict(value):
        raise ConfigError(f"{draft.source}: {name} is {value!r}; allowed: a mapping")
    return {str(key): one for key, one in value.items()}


# --------------------------------------------------------------------------------- XLRON

_TYPED = "the command line"
_TRAINING = tuple(row.name for row in XLRON.rows if not row.target.startswith("env."))
HEURISTICS = ("ksp_ff", "ksp_lf", "ff_ksp", "ksp_bf", "bf_ksp", "ksp_mu", "mu_ksp", "kca_ff",
              "kmc_ff", "kmf_ff", "kme_ff")  # fmt: skip
"""Those that both systems have; a test compares them with ours."""


def read_flags(source: str | Path, given: Mapping[str, Any]) -> Draft:
    """Read an XLRON flag file, a file that holds a command line, or a command line itself."""
    shown, text, folder = _text_of(str(source))
    try:
        words = words_of(text)
        flags = flags_of(words, folder)
    except ConfigError as error:
        raise ConfigError(f"{shown}: {error}", **error.remedies) from None
    if not flags:
        raise ConfigError(
            f"{shown}: no flags; a training command has some, such as --env_type=rmsa"
        )
    found = Source(dict(flags), words=words, family="xlron")
    negations(found)
    if on(given.get("EVAL_HEURISTIC", found.find("EVAL_HEURISTIC"))):
        return _heuristic_file(shown, found, given)
    draft = Draft(shown)
    if shown == _TYPED:
        draft.rest["name"] = "xlron"
    draft.section("budget")["trials"] = 1
    take(draft, found, given)
    return draft


def _text_of(source: str) -> tuple[str, str, Path]:
    """Return how a source is named in messages, its text, and the folder that its files are in."""
    path = Path(source)
    if "--" in source and (source.lstrip().startswith("-") or len(source.split()) > 1):
        return _TYPED, source, Path()
    if not _is_file(path):
        raise ConfigError(f"{source[:200]}: no such file, and no command line with flags")
    return str(path), text_of(path), path.parent


@dataclass
class NetworkFile(Draft):
    """The environment of an evaluation; its file is not a study.

    Attributes:
        evaluation: option -> value of the evaluation, next to the file.
    """

    evaluation: Mapping[str, str] = field(default_factory=dict[str, str])

    def text(self) -> str:
        """Return the file of the environment's keys."""
        keys = {"id": self.env["id"], **{k: v for k, v in self.env.items() if k != "id"}}
        how = ", ".join(f"{name} {value}" for name, value in self.evaluation.items())
        return self.head() + f"# Evaluated with {how}\n" + to_yaml(keys)


def _heuristic_file(shown: str, source: Source, given: Mapping[str, Any]) -> NetworkFile:
    """Read a command that evaluates a heuristic."""
    flags = {**source.constants, **given}
    draft = NetworkFile(shown, system=XLRON)
    name = str(flags.get("path_heuristic", "ksp_ff"))
    if name not in HEURISTICS:
        raise ConfigError(
            f"{shown}: path_heuristic is {name!r};{suggestion(name, HEURISTICS)} "
            f"Known: {', '.join(HEURISTICS)}"
        )
    draft.constant("env_type", flags.get("env_type", "rmsa"))
    for row in XLRON.rows:
        if row.target.startswith("env.") and row.fate == "taken" and row.name in flags:
            draft.constant(row.name, flags[row.name])
    draft.silent.update({"max_requests", "guardband"} if draft.env.get("continuous") else ())
    settle(draft, Source({**flags, **dict.fromkeys(_TRAINING)}))
    if not draft.env.get("continuous"):
        draft.env["warmup_requests"] = 0
    if draft.env["id"] in ("rwa", "rwa_lightpath_reuse"):
        draft.env.pop("guardband", None)
    networks = int(read_word(flags.get("NUM_ENVS", 1)))
    total = int(read_word(flags.get("TOTAL_TIMESTEPS", 1_000_000)))
    loads = [read_word(flags.get(key)) for key in ("min_load", "max_load", "step_load")]
    draft.evaluation = {
        "heuristic": name, "seeds": str(networks), "steps": str(max(1, total // networks)),
        **({"loads": ":".join(f"{load:g}" for load in loads)} if None not in loads else {}),
    }  # fmt: skip
    draft.read = list(flags)
    draft.taken |= {flag: [] for flag in draft.unlisted()}
    return draft
