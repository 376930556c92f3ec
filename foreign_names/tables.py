"""All systems by name, and lookups in their tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ..errors import ConfigError, UnknownNameError
from .brax_table import BRAX
from .lerax_jaxdem import JAXDEM, LERAX
from .name_mapping import COMMON, NameRow, System, plain_name
from .trainer_tables import ARLBENCH, CLEANRL, PUREJAXRL, REJAX, SB3, TORCH_PPO
from .xlron_table import XLRON, XLRON_JULY

SYSTEMS: Mapping[str, System] = {
    one.name: one
    for one in (
        XLRON,
        XLRON_JULY,
        *CLEANRL,
        SB3,
        *PUREJAXRL,
        REJAX,
        *LERAX,
        *JAXDEM,
        TORCH_PPO,
        ARLBENCH,
        BRAX,
    )
}
"""Systems with a table; names missing from it are looked up in `COMMON`."""
_ROWS = [row for one in (COMMON, *SYSTEMS.values()) for row in one.rows]
_KNOWN = {plain_name(row.name, last=False) for row in _ROWS}
_OTHER_ALGORITHMS = {
    "ppo_atari_lstm": "an LSTM after convolutions",
    "ppo_procgen": "residual convolutions (IMPALA)",
    "ppo_rnd_envpool": "random network distillation",
    "ppo_s5": "S5 layers",
    "ppo_trxl": "a Transformer with a memory of past steps",
    "ppo_atari_multigpu": "gradients averaged over several devices",
    "ppo_pettingzoo_ma_atari": "two agents in one PettingZoo game",
    "ppo_continuous_action_isaacgym": "Isaac Gym",
    "ppg_procgen": "phasic policy gradient (PPG)",
    "rpo_continuous_action": "noise on the mean of the policy (RPO)",
    "dpo_continuous_action": "the objective of DPO, which replaces the clipped ratio",
    "qdagger": "Q-learning", "dqn": "Q-learning", "c51": "Q-learning", "rainbow": "Q-learning",
    "pqn": "Q-learning", "sac_": "SAC", "td3_": "TD3", "ddpg_": "DDPG",
}  # fmt: skip
"""Prefix of a CleanRL or PureJaxRL script -> its algorithm, which studies do not have."""
FORMATS = ("wandb", "configspace", "optuna", "rlzoo")
"""Kinds of files that may use the names of any system."""
KINDS = (*FORMATS, *dict.fromkeys(one.family for one in SYSTEMS.values()))
"""The kinds of sources that `hpo import` reads."""


def system(name: str) -> System:
    known = {**SYSTEMS, COMMON.name: COMMON}
    if name not in known:
        raise UnknownNameError("system", name, tuple(known))
    return known[name]


def find(name: str, of: System = COMMON) -> NameRow | None:
    return of.find(name) or COMMON.find(name)


def versions_of(one: System) -> list[System]:
    """Return the other versions of a system. CleanRL's scripts do not count as versions."""
    return [
        other
        for other in SYSTEMS.values()
        if other is not one
        and other.tag
        and (other.family, other.programs) == (one.family, one.programs)
    ]


def _all_versions(one: System) -> list[System]:
    """Return all versions of a system, itself included, oldest first."""
    others = versions_of(one)
    return [version for version in SYSTEMS.values() if version is one or version in others]


def version_named(one: System, tag: str) -> System:
    """Return the version of a system that a user names, such as `2025.09` or `v0.0.5`.

    Raises:
        ConfigError: the system has no such version.
    """
    known = [version for version in _all_versions(one) if version.tag]
    if not known:
        raise ConfigError(f"version is {tag}, but {one.title} has no versions; remove it")
    for version in known:
        if _plain_tag(tag) in map(_plain_tag, version.tag.split()):
            return version
    tags = ", ".join(f"{version.tag.partition(' ')[0]} ({version.version})" for version in known)
    raise ConfigError(f"version is {tag}; allowed for {one.title}: {tags}")


def _plain_tag(tag: str) -> list[str]:
    """Return the parts of a version; `v2025-9` equals `2025.09`."""
    parts = re.split(r"[._-]", tag.strip().lower().removeprefix("v"))
    return [part.lstrip("0") or "0" for part in parts]


def version_told(one: System, names: Iterable[str]) -> tuple[System, tuple[str, ...]]:
    """Return the version that some of the names identify, and those names; else the system itself.

    Sets of names that occur together in only one version take precedence over single names.
    """
    given = set(names)
    for version in _all_versions(one):
        for names_together in version.together:
            if names_together <= given:
                return version, tuple(sorted(names_together))
    for version in _all_versions(one):
        identifying = tuple(sorted(version.only & given))
        if identifying:
            return version, identifying
    return one, ()


def recognise(
    names: Iterable[str], words: Iterable[str] = (), family: str = ""
) -> tuple[System, str]:
    """Return the system of a source, and the evidence; `COMMON` and "" if unknown.

    The script or package in the command decides first (the longest match), then a set of names
    that only one system has. Names that only one version has select the version.
    """
    systems = [one for one in SYSTEMS.values() if family in ("", one.family)]
    given = _underscored_names(names)
    marked = _marked_systems(systems, given)
    named = _named_programs(systems, tuple(words), bool(family))
    if named:
        part = max((part for part, _ in named), key=len)
        same = [one for other, one in named if len(other) == len(part)]
        newest = [one for one in same if one.name == one.family]
        one = next((one for one, _ in marked if one in same), (newest or same)[0])
        return version_told(one, given)[0], f"its command names {part}"
    if marked:
        one, mark = marked[0]
        return version_told(one, given)[0], f"it sets {', '.join(sorted(mark))}"
    return COMMON, ""


def _underscored_names(names: Iterable[str]) -> set[str]:
    """Return names and their last parts, with underscores."""
    given = [name.replace("-", "_") for name in names]
    return {*given, *(name.rsplit(".", 1)[-1] for name in given)}


def _marked_systems(
    systems: Iterable[System], given: set[str]
) -> list[tuple[System, frozenset[str]]]:
    """Return the systems of which `given` contains an identifying set of names, and the set."""
    lowered = {name.lower() for name in given}
    return [
        (one, mark)
        for one in systems
        for mark in one.marks
        if mark <= (given if one.exact else lowered)
    ]


def _named_programs(
    systems: Iterable[System], words: tuple[str, ...], bare: bool
) -> list[tuple[str, System]]:
    """Return the scripts and packages in a command, with their systems."""
    return [
        (part, one) for one in systems for part in one.programs if _is_named(words, part, bare)
    ]


def _is_named(words: tuple[str, ...], part: str, bare: bool) -> bool:
    return any(_is_program(word, part, bare) for word in words)


def _is_program(word: str, part: str, bare: bool) -> bool:
    """Return whether a word of a command is the script (`cleanrl/ppo.py`) or is in the package."""
    path = word.lower().replace("\\", "/")
    if not part.endswith(".py"):
        return part in path.replace(".", "/").split("/")
    if path == part.removesuffix(".py").replace("/", "."):
        return True
    if bare:
        part = part.rsplit("/", 1)[-1]
    return f"/{path}".endswith(f"/{part}")


def hints(name: str) -> tuple[NameRow, ...]:
    """Return the rows of a name in all systems, one per target, common ones first."""
    if not {plain_name(name, last=False), plain_name(name)} & _KNOWN:
        return ()
    found: dict[str, NameRow] = {}
    for one in (COMMON, *SYSTEMS.values()):
        row = one.guess(name)
        if row is not None:
            found.setdefault(row.target, row)
    return tuple(sorted(found.values(), key=lambda row: row.fate != "taken"))


def names_of(target: str) -> tuple[str, ...]:
    """Return a target's names in other systems, each once.

    Names that mean something else in most systems are omitted (JaxDEM's `architecture`).
    """
    names = dict.fromkeys(row.name for row in _ROWS if row.target == target != row.name)
    return tuple(name for name in names if hints(name)[0].target == target)


def env_names(of: System) -> Mapping[str, str]:
    """Return a system's names of environment keys -> our names, where they differ."""
    ids = {row.name: "id" for row in of.rows if row.target == "env"}
    keys = {
        row.name: row.target.removeprefix("env.")
        for row in of.rows
        if row.target.startswith("env.")
    }
    return {name: key for name, key in (ids | keys).items() if name != key}


def another_algorithm(words: Iterable[str]) -> str:
    """Explain that a study cannot use the algorithm of a command's script, or return ""."""
    for word in words:
        if word.endswith(".py") or word.startswith(("cleanrl.", "purejaxrl.")):
            script = word.rsplit("/", 1)[-1].removeprefix("cleanrl.").removeprefix("purejaxrl.")
            for part, what in _OTHER_ALGORITHMS.items():
                if script.startswith(part):
                    return f"{script} uses {what}, which is not available in a study"
    return ""
