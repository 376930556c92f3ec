"""How a study's time was spent, and the cost of `hpo confirm`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ..errors import counted
from ..search.state.usage import Usage
from ..store.journal import Journal
from ..store.rows import CommitHead, Stream
from ..studies.expected_cost import span_of_time
from ..studies.load import recorded
from .formatting import duration, steps

_WORDS = {
    "compile": ("compiling", "waiting for programs to be compiled or loaded"),
    "train": ("training", "rollouts and updates in one program"),
    "evaluate": ("evaluating", "policies and baselines"),
    "search": ("waiting for the sampler", "proposals made during training are not counted"),
    "store": ("storing", "commits and tables"),
    "between": ("between steps", "decisions, records, views and callbacks while no lane runs"),
}
_LEAST = 0.005


def usage_at(head: CommitHead) -> Usage:
    from ..search.state.loop_state import LoopState  # imports numpy, which few commands need

    return LoopState.from_text(head.loop_state).usage if head.number else Usage()


def time_text(parts: Mapping[str, float]) -> str:
    """Return one line on how the time was spent, the largest part first.

    >>> time_text({"compile": 3.99, "train": 6.0, "store": 0.01})
    'time: training 6.0s (60%), compiling 4.0s (40%)'
    """
    whole = sum(parts.values())
    spent = ", ".join(
        f"{words} {duration(seconds)} ({seconds / whole:.0%})"
        for words, _, seconds in _largest_first(parts)
    )
    return f"time: {spent or 'none yet'}"


def time_facts(parts: Mapping[str, float]) -> list[tuple[str, str, str]]:
    whole = sum(parts.values())
    return [
        (f"of which {words}", f"{seconds / whole:.0%}", f"{duration(seconds)}: {what}")
        for words, what, seconds in _largest_first(parts)
    ]


def _largest_first(parts: Mapping[str, float]) -> list[tuple[str, str, float]]:
    least = _LEAST * sum(parts.values())
    known = [(*_WORDS[name], seconds) for name, seconds in parts.items() if seconds > least]
    return sorted(known, key=lambda part: -part[2])


def confirm_cost(folder: Path, trials: Sequence[int], seeds: int) -> str:
    """Describe the runs, env steps and time needed to give trials this many test seeds."""
    from ..search.analysis.checkpoint_values import fresh_seeds  # imports numpy

    with Journal(folder) as journal, journal.at_one_commit():
        study, usage = recorded(journal.meta.study_text), usage_at(journal.head())
        known = fresh_seeds(journal)
        lost = {row.trial: row.report_diverged for row in journal.trials()}
    tested = [{*known.get((n, Stream.REPORT), ()), *lost.get(n, ())} for n in trials]
    runs = sum(replicate not in ran for ran in tested for replicate in range(seeds))
    env_steps = runs * study.env_steps * study.spread
    if not runs:
        return "no more runs needed"
    said = f"{counted(runs, 'run')}, {steps(env_steps)} {study.algorithm.unit}"
    speed = usage.env_steps_per_second
    return f"{said}, about {span_of_time(env_steps / speed)}" if speed else said


def confirm_command(trials: Sequence[int], seeds: int, which: str = "") -> str:
    return f"hpo confirm {' '.join(map(str, trials))} --seeds {seeds}{which}"
