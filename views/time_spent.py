"""Where a study's time went, in the words of every view.

Rollouts and updates are one compiled program, whose parts nobody can time; `hpo tune-lanes` times
the rollouts apart, in a program of their own.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..search.state.usage import Usage
from ..store.rows import Head
from .formatting import duration

_WORDS = {
    "compile": ("compiling", "programs, or reading them from the cache"),
    "train": ("training", "rollouts and updates, one program; hpo tune-lanes tells them apart"),
    "evaluate": ("evaluating", "policies and baselines"),
    "search": ("waiting for the sampler", "what it draws beside a chunk is free"),
    "store": ("storing", "commits and tables"),
    "between": ("between steps", "judging, books, views, callbacks; no lane runs"),
}
_LEAST = 0.005


def usage_at(head: Head) -> Usage:
    """Return what a study had used up at its last commit."""
    from ..search.state.loop_state import LoopState  # with numpy, which few commands need

    return LoopState.from_text(head.loop_state).usage if head.number else Usage()


def time_text(parts: Mapping[str, float]) -> str:
    """Return one line of what the time went into, the largest part first.

    Args:
        parts: name -> seconds, as of `Usage.seconds_by_part`.

    >>> time_text({"compile": 3.99, "train": 6.0, "store": 0.01})
    'time: training 6.0s (60%), compiling 4.0s (40%)'
    """
    whole = sum(parts.values())
    told = ", ".join(
        f"{words} {duration(seconds)} ({seconds / whole:.0%})"
        for words, _, seconds in _largest_first(parts)
    )
    return f"time: {told}" if told else "time: none yet"


def time_facts(parts: Mapping[str, float]) -> list[tuple[str, str, str]]:
    """Return the parts as facts of a page: name, value, remark."""
    whole = sum(parts.values())
    return [
        (f"of it {words}", f"{seconds / whole:.0%}", f"{duration(seconds)}: {what}")
        for words, what, seconds in _largest_first(parts)
    ]


def _largest_first(parts: Mapping[str, float]) -> list[tuple[str, str, float]]:
    told = [(*_WORDS[name], seconds) for name, seconds in parts.items()]
    least = _LEAST * sum(parts.values())
    return sorted((part for part in told if part[2] > least), key=lambda part: -part[2])
