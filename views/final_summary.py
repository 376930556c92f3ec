"""What `hpo run` prints at the end: the leaderboard, the winner's value, what to type next."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from ..search.run import Results
from ..store.conclusion_words import as_json
from ..store.leaderboard import Entry
from ..store.study_folder import RESULTS, StudyFolder, look_inside, one_policy
from .formatting import counted, duration, steps
from .leaderboard_text import (
    front_line,
    print_baselines,
    print_conclusion,
    print_leaderboard,
    winner_line,
)
from .time_spent import time_text

__all__ = ["command_lines", "next_commands", "print_results", "results_data", "summary", "target"]

_SHOWN = 10


def print_results(
    console: Console,
    results: Results,
    metric: str,
    quiet: bool = False,
    objectives: Sequence[str] = (),
    environments: Sequence[str] = (),
) -> None:
    """Print the leaderboard, what was shown, the winner (or front), and what to type next."""
    if not quiet:
        print_leaderboard(console, results.leaderboard, _SHOWN, objectives, environments)
        if results.baselines:
            console.print()
            print_baselines(console, results.baselines)
        console.print()
        console.print(summary(results))
        console.print(time_text(results.usage.seconds_by_part))
        if results.advice:
            console.print(results.advice)
        console.print()
    elif results.leaderboard:
        print_leaderboard(console, results.leaderboard[:_SHOWN], None, objectives, environments)
    last = winner_line(results.leaderboard, metric)
    if objectives:
        last = front_line(results.leaderboard, results.hypervolume)
    if results.leaderboard:
        print_conclusion(console, results.conclusion)
    console.print(last)
    against = None if results.conclusion is None else results.conclusion.against
    worse = against is not None and against.verdict == "worse"
    commands = [] if quiet else next_commands(results.folder, results.leaderboard, worse)
    if commands:
        console.print("\nNext:")
    for line in command_lines(commands, target(results.folder), console.width):
        console.print(line, soft_wrap=True)


def command_lines(commands: Sequence[tuple[str, str]], which: str, width: int) -> list[str]:
    """Return commands as they are printed, what they are for behind them or in a line above.

    A command that would be wider than the terminal is continued before its `--study`, and where
    that is not enough before a quoted argument, as a shell reads it.

    Args:
        commands: (command, meaning) pairs, of `next_commands`.
        which: their `--study` option, "" without one.
        width: of the terminal.
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


def summary(results: Results) -> str:
    """Return in one line what the study cost and where its results are."""
    usage = results.usage
    report = StudyFolder(results.folder).report
    page = f" (start with {report.name})" if report.is_file() else ""
    speed = usage.env_steps_per_second
    trials = sum(entry.trial >= 0 for entry in results.leaderboard)
    return (
        f"{counted(trials, 'trial')}, {steps(usage.env_steps)} env steps in "
        f"{duration(usage.run_seconds)} ({steps(round(speed))}/s), lanes busy "
        f"{usage.occupancy:.0%}; results in {results.folder}/{page}"
    )


def next_commands(
    folder: Path, entries: Sequence[Entry], worse: bool = False
) -> list[tuple[str, str]]:
    """Return (command, meaning) pairs to type next.

    Args:
        folder: of the study.
        entries: the leaderboard.
        worse: the winner is worse than the default, whose policy no study keeps.
    """
    if not entries:
        return []
    which, best = target(folder), entries[0]
    commands = [
        (f"hpo top{which}", "the leaderboard"),
        (f"hpo show {best.trial}{which}", "everything about one trial"),
    ]
    if worse:
        file = shlex.quote(str(folder / "study.yaml"))
        train = f"hpo train {file} --name {shlex.quote(folder.name)}-default --export policy/"
        commands.append((train, "the default, which was better: train it, keep its policy"))
    elif (kept := StudyFolder(folder).policies / f"trial_{best.trial}").is_dir():
        here = "policy" / one_policy(kept).relative_to(kept)
        commands.append((f"hpo best --export policy/{which}", f"then: hpo eval {here}/"))
    knob = next((name for name in best.params if name.replace("_", "").isalnum()), "")
    column = f", param.{knob}" if knob else ""
    sql = f"SELECT trial, value{column} FROM trials ORDER BY rank"
    return [*commands, (f'hpo query "{sql}"{which}', "")]


def target(folder: Path) -> str:
    """Return the `--study` option for a folder; "" if it is the only study in `results`."""
    if folder.absolute().parent == RESULTS.absolute():
        if list(look_inside(RESULTS).changed) == [folder.name]:
            return ""
        return f" --study {shlex.quote(folder.name)}"
    return f" --study {shlex.quote(str(folder))}"


def results_data(results: Results) -> dict[str, Any]:
    """Return the results of a run as JSON data."""
    best = results.best
    usage, report = asdict(results.usage), StudyFolder(results.folder).report
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
        "usage": {
            **usage,
            "env_steps": results.usage.env_steps,
            "occupancy": results.usage.occupancy,
            "seconds_by_part": results.usage.seconds_by_part,
            "rejected_share": results.rejected_share,
        },
    }
