"""How a study's time was spent."""

from __future__ import annotations

from collections.abc import Mapping

from ..search.state.usage import Usage
from ..store.rows import Head
from .formatting import duration

_WORDS = {
    "compile": ("compiling", "programs, or reading them from the cache"),
    "train": ("training", "rollouts and updates, one program"),
    "evaluate": ("evaluating", "policies and baselines"),
    "search": ("waiting for the sampler", "proposals made during training are free"),
    "store": ("storing", "commits and tables"),
    "between": ("between steps", "decisions, records, views, callbacks; no lane runs"),
}
_LEAST = 0.005


def usage_at(head: Head) -> Usage:
    from ..search.state.loop_state import LoopState  # with numpy, which few commands need

    return LoopState.from_text(head.loop_state).usage if head.number else Usage()


def time_text(parts: Mapping[str, float]) -> str:
    """Return one line of what the time went into, the largest part first.

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
    """Return the parts as facts of a page: name, value, remark."""
    whole = sum(parts.values())
    return [
        (f"of it {words}", f"{seconds / whole:.0%}", f"{duration(seconds)}: {what}")
        for words, what, seconds in _largest_first(parts)
    ]


def _largest_first(parts: Mapping[str, float]) -> list[tuple[str, str, float]]:
    least = _LEAST * sum(parts.values())
    known = [(*_WORDS[name], seconds) for name, seconds in parts.items() if seconds > least]
    return sorted(known, key=lambda part: -part[2])
