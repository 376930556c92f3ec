"""All systems by name, and the questions that others ask of their tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..errors import UnknownNameError
from .jax_tables import ARLBENCH, JAXDEM, LERAX, PUREJAXRL, REJAX
from .name_mapping import COMMON, Row, System
from .torch_tables import CLEANRL, SB3, TORCH_PPO
from .xlron_table import XLRON, XLRON_JULY

SYSTEMS: Mapping[str, System] = {
    one.name: one
    for one in (XLRON, XLRON_JULY, *CLEANRL, SB3, *PUREJAXRL, REJAX, *LERAX, *JAXDEM, TORCH_PPO,
                ARLBENCH)
}  # fmt: skip
"""Systems with a table of their own; `COMMON` stands behind each."""


def system(name: str) -> System:
    """Return a system by its word; `none` is `COMMON`."""
    if name == COMMON.name:
        return COMMON
    if name not in SYSTEMS:
        raise UnknownNameError("system", name, (*SYSTEMS, COMMON.name))
    return SYSTEMS[name]


def find(name: str, of: System = COMMON) -> Row | None:
    """Return the row of a name: of the system, else of what all share."""
    return of.find(name) or COMMON.find(name)


def versions_of(one: System) -> list[System]:
    """Return what else a system can be read as: other versions with the same program."""
    return [other for other in SYSTEMS.values()
            if other.family == one.family and other is not one
            and (other.programs == one.programs)]  # fmt: skip


def recognise(
    names: Iterable[str], words: Iterable[str] = (), family: str = ""
) -> tuple[System, str]:
    """Return the system that a source is of, and what tells; `COMMON` and "" if nothing does.

    A script or package that the command names decides first (the longest that fits), then a set
    of names that only one system has.
    """
    systems = [one for one in SYSTEMS.values() if family in ("", one.family)]
    given = {part.replace("-", "_") for name in names for part in (name, name.rsplit(".", 1)[-1])}
    lowered = {name.lower() for name in given}
    told = [(one, mark) for one in systems for mark in one.marks
            if mark <= (given if one.exact else lowered)]  # fmt: skip
    named = [(len(part), part, one) for one in systems for part in one.programs
             if any(_names(word, part, bool(family)) for word in words)]  # fmt: skip
    if named:
        length, part, first = max(named, key=lambda found: found[0])
        same = [one for size, _, one in named if size == length]
        return next((one for one, _ in told if one in same), first), f"its command names {part}"
    if told:
        one, mark = told[0]
        return one, f"it sets {', '.join(sorted(mark))}"
    return COMMON, ""


def _names(word: str, part: str, bare: bool) -> bool:
    """Return whether a word of a command is a script (`cleanrl/ppo.py`), or in a package.

    >>> _names("train_ppo.py", "cleanrl/ppo.py", False), _names("x/ppo.py", "cleanrl/ppo.py", True)
    (False, True)
    """
    path = word.lower().replace("\\", "/")
    if not part.endswith(".py"):
        return part in path.replace(".", "/").split("/")
    module = part.removesuffix(".py").replace("/", ".")
    script = f"/{part.rsplit('/', 1)[-1] if bare else part}"
    return f"/{path}".endswith(script) or path == module


def hints(name: str) -> tuple[Row, ...]:
    """Return the rows of a name, wherever it is known, one for each target; shared ones first."""
    whole = name.replace("-", "_").lower()
    if whole not in _KNOWN and whole.rsplit(".", 1)[-1] not in _KNOWN:
        return ()
    found: dict[str, Row] = {}
    for one in (COMMON, *SYSTEMS.values()):
        row = one.guess(name)
        if row is not None:
            found.setdefault(row.target, row)
    return tuple(sorted(found.values(), key=lambda row: row.fate != "taken"))


_KNOWN = {row.name.replace("-", "_").lower() for one in (COMMON, *SYSTEMS.values())
          for row in one.rows}  # fmt: skip


def names_of(target: str) -> tuple[str, ...]:
    """Return what a target is called in other systems, each name once.

    A name that means something else in most systems is not among them (`architecture` of JaxDEM).
    """
    rows = (row for one in (COMMON, *SYSTEMS.values()) for row in one.rows)
    names = dict.fromkeys(row.name for row in rows if row.target == target != row.name)
    return tuple(name for name in names if hints(name)[0].target == target)


def env_names(of: System) -> Mapping[str, str]:
    """Return what a system calls keys of environments -> our keys, where the names differ."""
    found = {row.name: row.target.removeprefix("env.") for row in of.rows
             if row.target.startswith("env.")}  # fmt: skip
    ids = {row.name: "id" for row in of.rows if row.target == "env"}
    return {name: key for name, key in (ids | found).items() if name != key}


_OTHER_ALGORITHMS = {
    "ppo_atari_lstm": "an LSTM behind convolutions, which no network here is",
    "ppo_procgen": "residual convolutions (IMPALA), which no network here has",
    "ppo_rnd_envpool": "random network distillation",
    "ppo_trxl": "a Transformer with a memory of past steps",
    "ppo_atari_multigpu": "gradients averaged over several devices",
    "ppo_pettingzoo_ma_atari": "two agents in one game of PettingZoo",
    "ppo_continuous_action_isaacgym": "Isaac Gym",
    "ppg_procgen": "phasic policy gradients",
    "rpo_continuous_action": "noise on the mean of the policy (RPO)",
    "dpo_continuous_action": "the objective of DPO, which replaces the clipped ratio",
    "qdagger": "Q-learning", "dqn": "Q-learning", "c51": "Q-learning", "rainbow": "Q-learning",
    "pqn": "Q-learning", "sac_": "SAC", "td3_": "TD3", "ddpg_": "DDPG",
}  # fmt: skip
"""How scripts of CleanRL and PureJaxRL begin -> what they train with, which a study cannot."""


def another_algorithm(words: Iterable[str]) -> str:
    """Return what the script of a command trains with, if a study cannot; nothing otherwise.

    >>> another_algorithm(["python", "cleanrl/sac_atari.py", "--exp-name", "dqn"])
    'sac_atari.py trains with SAC, which a study cannot'
    """
    for word in words:
        if not word.endswith(".py") and not word.startswith(("cleanrl.", "purejaxrl.")):
            continue
        script = word.rsplit("/", 1)[-1].removeprefix("cleanrl.").removeprefix("purejaxrl.")
        for part, what in _OTHER_ALGORITHMS.items():
            if script.startswith(part):
                return f"{script} trains with {what}, which a study cannot"
    return ""
