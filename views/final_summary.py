"""The end of `hpo run`: the verdict, the best trials, the cost, what to type next."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from ..errors import counted
from ..search.run import Results
from ..store.leaderboard import Entry
from ..store.study_folder import StudyFolder
from ..store.verdict import Conclusion
from ..store.verdict_text import as_json
from ..studies.algorithm import ENV_STEPS
from .formatting import duration, steps
from .leaderboard_text import (
    deciding_command,
    front_line,
    headline,
    print_baselines,
    print_headline,
    print_leaderboard,
    target,
)
from .time_spent import time_text

_SHOWN, _BRIEF, _FRONT = 10, 2, 6


def print_results(
    console: Console, results: Results, metric: str, quiet: bool = False,
    objectives: Sequence[str] = (), environments: Sequence[str] = (), verbose: bool = False,
    unit: str = ENV_STEPS,
) -> None:  # fmt: skip
    """Print the verdict, the best trials with the default, the cost, and what to type next."""
    entries, which = results.leaderboard, target(results.folder)
    print_headline(console, headline(results.conclusion, entries, metric), unit)
    if objectives:
        console.print(front_line(entries, results.hypervolume))
    if entries:
        console.print()
        most = _SHOWN if verbose else _FRONT if objectives else _BRIEF
        print_leaderboard(console, entries, most, objectives, environments, which)
    if quiet:
        return
    console.print()
    if verbose and results.baselines:
        print_baselines(console, results.baselines)
        console.print()
    console.print(summary(results, unit))
    if results.advice:
        console.print(results.advice)
    if verbose:
        usage = results.usage
        speed = steps(round(usage.env_steps_per_second))
        console.print(f"{speed} {unit} per second, lanes busy {usage.occupancy:.0%}")
        console.print(time_text(usage.seconds_by_part))
    commands = next_commands(results.folder, entries, results.conclusion, verbose)
    if commands:
        console.print("Next:")
    for line in _command_lines(commands, which, console.width):
        console.print(line, soft_wrap=True)


def _command_lines(commands: Sequence[tuple[str, str]], which: str, width: int) -> list[str]:
    """Return (command, meaning) pairs as lines, the meaning after the command or above it.

    A command wider than the terminal is continued before its `--study` option (`which`), and if
    that is not enough before a quoted argument, as a shell reads it.
    """
    room = max((len(command) for command, meaning in commands if meaning), default=0)
    lines = [
        f"  {command.ljust(room)}  # {meaning}" if meaning else f"  {command}"
        for command, meaning in commands
    ]
    if max(map(len, lines), default=0) <= width:
        return lines
    lines = []
    for command, meaning in commands:
        lines += [f"  # {meaning}"] if meaning else []
        if len(command) + 2 <= width or not which:
            lines.append(f"  {command}")
            continue
        parts = [f"  {command.removesuffix(which)}", f"     {which}"]
        verb, quote, rest = parts[0].partition(' "')
        if len(parts[0]) + 2 > width and quote:
            parts[:1] = [verb, f'      "{rest}']
        lines += [*(f"{part} \\" for part in parts[:-1]), parts[-1]]
    return lines


def summary(results: Results, unit: str = ENV_STEPS) -> str:
    usage = results.usage
    report = StudyFolder(results.folder).report
    where = f"Report: {report}" if report.is_file() else f"Results: {results.folder}/"
    trials = counted(sum(entry.trial >= 0 for entry in results.leaderboard), "trial")
    spent = f"{steps(usage.env_steps)} {unit} in {duration(usage.run_seconds)}"
    return f"{trials}, {spent}. {where}"


def next_commands(
    folder: Path, entries: Sequence[Entry], conclusion: Conclusion, verbose: bool = False
) -> list[tuple[str, str]]:
    """Return (command, meaning) pairs to type next."""
    if not entries:
        return []
    which, best = target(folder), entries[0]
    commands: list[tuple[str, str]] = []
    if deciding := deciding_command(conclusion, entries, folder):
        commands.append((deciding[0], f"decide: {deciding[1]}"))
    if conclusion.against.verdict == "worse":
        file = shlex.quote(str(folder / "study.yaml"))
        train = f"hpo train {file} --name {shlex.quote(folder.name)}-default --export policy/"
        commands.append((train, "train the default, which was better, and keep its policy"))
    elif (StudyFolder(folder).policies / f"trial_{best.trial}").is_dir():
        commands.append((f"hpo best --export policy/{which}", "save the winner's policy"))
    if deciding is None:
        commands.append((f"hpo show {best.trial}{which}", f"everything about trial {best.trial}"))
    if not verbose:
        return commands
    knob = next((name for name in best.params if name.replace("_", "").isalnum()), "")
    column = f", param.{knob}" if knob else ""
    sql = f"SELECT trial, value{column} FROM trials ORDER BY rank"
    return [*commands, (f'hpo query "{sql}"{which}', "")]


def results_data(results: Results) -> dict[str, Any]:
    best = results.best
    usage, report = asdict(results.usage), StudyFolder(results.folder).report
    for name in ("env_steps", "occupancy", "seconds_by_part"):  # properties
        usage[name] = getattr(results.usage, name)
    return {
        "state": results.state,
        "folder": str(results.folder),
        "report": str(report) if report.is_file() else None,
        "best": None if best is None else best.as_json(),
        "conclusion": as_json(results.conclusion),
        "hypervolume": results.hypervolume,
        "leaderboard": [entry.as_json() for entry in results.leaderboard],
        "baselines": [entry.as_json() for entry in results.baselines],
        "advice": results.advice or None,
        "finished_at": results.finished_at,
        "usage": {**usage, "rejected_share": results.rejected_share},
    }
