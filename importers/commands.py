"""Reads training commands in shell scripts: loops, job arrays, and CleanRL's benchmark command."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from .formats import flags_of
from .hydra_sweeps import check_config_name, is_multirun, searched_words, without_multirun

_ENDS = (";", "&", "&&", "|", "||")
_ARRAY = re.compile(r"^#SBATCH\s+(?:--array[= ]|-a\s*)(\S+)", re.MULTILINE)
_COUNT = re.compile(r"\$\(seq (-?\d+)(?: (-?\d+))?\)|\{(-?\d+)\.\.(-?\d+)\}")
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_MOST = 1000  # values per loop
_ENVS = ("env", "env_id")
_REDIRECTED = re.compile(r"(?<!\S)\d?&?>{1,2}\s*(?:&\d|\S+)")
_BENCHMARK = "cleanrl_utils.benchmark"


@dataclass
class Command:
    """One training command, or several that differ in one flag."""

    words: Sequence[str] = ()
    flags: dict[str, Any] = field(default_factory=dict[str, Any])
    searched: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    tied: Sequence[Sequence[str]] = ()  # flags with the same loop variable


def read_command(text: str, folder: Path | None, given: Mapping[str, Any]) -> Command:
    """Return the training command in a string: a typed line or a shell script.

    A flag that varies in a loop is searched over the loop's values. Commands that differ in a
    single flag are merged. Otherwise `env` selects one command; without `env`, all are rejected.

    Raises:
        ConfigError: the commands train different things, or contain words that are not flags.
    """
    lines = _script_lines(text)
    trains = [line for line in lines if _runs_training(line.words)] or lines[:1]
    if not trains:
        return Command()
    found, faults = list[Command](), list[ConfigError]()
    for line in trains:
        try:
            found.append(_read_line(line, folder, given))
        except ConfigError as error:  # the intended command may come later
            faults.append(error)
    if not found or (faults and not any(name in given for name in _ENVS)):
        raise faults[0]
    if len(found) > 1:
        found = _of_environment(found, given)
    first = found[0]
    for other in found[1:]:
        _merge_command(first, other)
    return first


def _runs_training(words: Sequence[str]) -> bool:
    """Return whether the words run a program with settings."""
    flags = any(word.startswith("--") or re.match(r"[a-z][\w.]*=", word) for word in words)
    program = any(word.endswith(".py") or word == "-m" for word in words)
    return flags and (program or words[0].startswith("-"))


def _of_environment(found: list[Command], given: Mapping[str, Any]) -> list[Command]:
    """Return the commands for the given environment, or all if none is given or none matches."""
    wanted = {str(given[name]).removeprefix("gym:") for name in _ENVS if name in given}
    return [one for one in found if wanted & _envs_of(one)] or found


def _envs_of(command: Command) -> set[str]:
    return {str(command.flags.get(name)) for name in _ENVS}


def _merge_command(first: Command, other: Command) -> None:
    """Merge a command into the first one, from which it may differ in one flag only."""
    names = list(dict.fromkeys([*first.flags, *first.searched, *other.flags, *other.searched]))
    differ = [
        name
        for name in names
        if first.flags.get(name, first.searched.get(name))
        != other.flags.get(name, other.searched.get(name))
    ]
    values = [
        first.searched.get(name, {"values": [first.flags.get(name)]}).get("values", [])
        for name in differ
    ]
    if len(differ) != 1 or differ[0] not in other.flags or None in values[0]:
        text = "it has several training commands, which differ in their program"
        if differ:
            text = f"it has several training commands, which differ in {', '.join(differ[:4])}"
        raise ConfigError(f"{text}; import one of them, in quotes")
    name = differ[0]
    first.flags.pop(name, None)
    first.searched[name] = {"values": list(dict.fromkeys([*values[0], other.flags[name]]))}


# --------------------------------------------------------------------------- one command


def _read_line(line: _Line, folder: Path | None, given: Mapping[str, Any]) -> Command:
    words = _expand_variables(line)
    if any(_BENCHMARK in word.replace("/", ".") for word in words):
        return _read_benchmark(words, given)
    check_config_name(words)
    flags: dict[str, Any] = dict(flags_of(without_multirun(words), folder))
    searched = dict[str, dict[str, Any]]()
    if is_multirun(words):
        searched = searched_words(flags)
    for name, value in flags.items():
        values = _values_of(value, line.variables)
        if len(values) > 1:
            searched[name] = {"values": values}
    fixed = {name: value for name, value in flags.items() if name not in searched}
    return Command(words, fixed, searched, _tied_flags(flags, line.variables))


def _tied_flags(
    flags: Mapping[str, Any], variables: Mapping[str, Sequence[str]]
) -> list[list[str]]:
    """Return the names of flags that contain the same loop variable."""
    found: dict[str, list[str]] = {}
    for name, value in flags.items():
        match = _VARIABLE.search(str(value))
        if match is not None and len(variables.get(match[1] or match[2], ())) > 1:
            found.setdefault(match[1] or match[2], []).append(name)
    return [names for names in found.values() if len(names) > 1]


def _expand_variables(line: _Line) -> list[str]:
    """Replace variables in words by their values, where known."""

    def value(match: re.Match[str]) -> str:
        values = line.variables.get(match[1] or match[2], [])
        if len(values) != 1:
            return match[0]
        return values[0]

    return [_VARIABLE.sub(value, word) for word in line.words]


def _values_of(value: Any, variables: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the string once for each value of the loop variable in it; [] if it contains none."""
    if not isinstance(value, str):
        return []
    match = _VARIABLE.search(value)
    if match is None:
        return []
    return [value.replace(match[0], one) for one in variables.get(match[1] or match[2], [])]


def _read_benchmark(words: Sequence[str], given: Mapping[str, Any]) -> Command:
    """Read a CleanRL benchmark line, which runs a script once per environment and seed."""
    values, name = dict[str, list[str]](), ""
    for word in words:
        if word.startswith("--"):
            name, _, value = word.removeprefix("--").replace("-", "_").partition("=")
            values[name] = []
            if value:
                values[name].append(value)
        elif name:
            values[name].append(word)
    envs, command = values.get("env_ids", []), " ".join(values.get("command", []))
    if not envs or not command:
        raise ConfigError("a CleanRL benchmark needs --env-ids and --command")
    wanted = str(given.get("env", given.get("env_id", ""))).removeprefix("gym:")
    if not wanted and len(envs) > 1:
        text = (
            f"it trains on {len(envs)} environments, and each needs a separate study; name one: "
        )
        raise ConfigError(text + ", ".join(envs[:8]), env=envs[0])
    inner = shlex.split(command)
    flags: dict[str, Any] = dict(flags_of(inner))
    flags["env_id"] = envs[0]
    if wanted in envs:
        flags["env_id"] = wanted
    flags["num_seeds"] = "".join(values.get("num_seeds", ["3"]))
    flags["seed"] = "".join(values.get("start_seed", ["1"]))
    machine = {
        name: " ".join(one) or True
        for name, one in values.items()
        if name == "workers" or name.startswith("slurm_")
    }
    return Command(inner, {**flags, **machine})


# ----------------------------------------------------------------------------- the shell


@dataclass(frozen=True)
class _Line:
    words: Sequence[str]
    variables: Mapping[str, Sequence[str]]  # name -> values; several for a loop variable


_BEFORE_A_COMMAND = ("do", "then", "else", "nohup", "srun", "time")


def _script_lines(text: str) -> list[_Line]:
    """Return a script's commands in order, with the variables that apply to each."""
    array = _ARRAY.search(text)
    known: dict[str, list[str]] = {}
    if array is not None:
        known["SLURM_ARRAY_TASK_ID"] = _array_numbers(array[1])
    found, loops = list[_Line](), list[str]()
    for words in _split_commands(text):
        kind, rest = words[0], words
        if kind in _BEFORE_A_COMMAND:
            rest = words[1:]
        if kind == "for" and len(words) > 2 and words[2] == "in":
            known[words[1]] = _loop_values(words[3:])
            loops.append(words[1])
        elif kind == "done" and loops:
            known.pop(loops.pop(), None)
        elif _assigned_variables(rest):
            known |= _assigned_variables(rest)
        elif rest:
            found.append(_Line(tuple(rest), dict(known)))
    return found


def _assigned_variables(words: Sequence[str]) -> dict[str, list[str]]:
    """Return the variables in `NAME=value`; none if a command follows on the line."""
    matches = [re.fullmatch(r"([A-Za-z_]\w*)=(.*)", word) for word in words]
    if not words or not all(matches) or not words[0][:1].isupper():
        return {}
    return {match[1]: [match[2]] for match in matches if match}


def _array_numbers(text: str) -> list[str]:
    """Return the numbers of a job array, such as `0-4` or `1,3,5`."""
    found = list[str]()
    for part in text.partition("%")[0].split(","):
        low, _, high = part.partition("-")
        last = high.partition(":")[0] or low
        if not (low.isdigit() and last.isdigit()):
            return []
        found += [str(one) for one in range(int(low), min(int(last), int(low) + _MOST) + 1)]
    return found


def _loop_values(words: Sequence[str]) -> list[str]:
    """Return the values that a loop iterates over."""
    match = _COUNT.fullmatch(" ".join(words))
    if match is None:
        return " ".join(words).split()
    low, high = match[1], match[2]
    if match[3]:
        low, high = match[3], match[4]
    first, last = 1, int(low)
    if high is not None:
        first, last = int(low), int(high)
    return [str(one) for one in range(first, min(last, first + _MOST) + 1)]


def _split_commands(text: str) -> list[list[str]]:
    """Split lines into commands, each a list of words.

    A line that begins with a flag continues the previous command, even after a comment.
    """
    found, open_ = list[list[str]](), False
    for line in _whole_lines(text.replace("\\\n", " ")):
        words = _split_words(line)
        flag = bool(words) and (words[0].startswith("-") or re.match(r"[a-z][\w.]*=", words[0]))
        if not (open_ and flag):
            found.append([])
        for word in words:
            if word in _ENDS or word in ("do", "then", "else"):
                found.append([])
            else:
                found[-1].append(word)
        open_ = bool(found[-1])
    return [words for words in found if words]


def _whole_lines(text: str) -> list[str]:
    """Return lines, joining those inside an open quote."""
    found, waiting = list[str](), ""
    for line in text.splitlines():
        if waiting:
            line = f"{waiting}\n{line}"
        waiting = line
        try:
            _split_words(waiting)
        except ValueError:
            continue
        found.append(waiting)
        waiting = ""
    if waiting:
        raise ConfigError("cannot be split into words: No closing quotation")
    return found


def _split_words(line: str) -> list[str]:
    lexer = shlex.shlex(_REDIRECTED.sub(" ", line), posix=True, punctuation_chars=";&|")
    lexer.whitespace_split, lexer.commenters = True, "#"
    return list(lexer)
