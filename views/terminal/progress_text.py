"""Pieces of text about a running study, shared by the live view and the plain lines."""

from __future__ import annotations

from ...search.book.progress import Best, Progress
from ...search.book.state import Phase
from ...store.rows import TrialRow, TrialState
from ..formatting import between, duration, number, steps

__all__ = ["best_text", "ended_text", "lanes_text", "left_text", "phase_text", "standing_text",
           "status_line", "trials_text"]  # fmt: skip

_ALWAYS = (TrialState.RUNNING, TrialState.STOPPED, TrialState.FINISHED)
_ORDER = (
    TrialState.RUNNING,
    TrialState.INTERRUPTED,
    TrialState.WAITING,
    TrialState.PAUSED,
    TrialState.STOPPED,
    TrialState.FINISHED,
    TrialState.DIVERGED,
    TrialState.FAILED,
    TrialState.UNFINISHED,
)
_PHASES = {
    Phase.SEARCH: "search",
    Phase.CHOOSE: "confirm: selecting the winner on new seeds",
    Phase.REPORT: "confirm: measuring on test seeds",
    Phase.ALSO: "confirm: measuring more trials on test seeds",
    Phase.DONE: "done",
}


def phase_text(phase: Phase) -> str:
    """Return the name of a phase."""
    return _PHASES[phase]


def trials_text(progress: Progress) -> str:
    """Return how many trials are in which state."""
    counts = progress.states
    parts = [
        f"{counts.get(state, 0)} {state}"
        for state in _ORDER
        if counts.get(state, 0) or state in _ALWAYS
    ]
    total = f" of {progress.trials_total}" if progress.trials_total is not None else ""
    return f"{progress.proposed}{total} proposed: {', '.join(parts)}"


def standing_text(progress: Progress) -> str:
    """Return the best finished trial and its value; before there is one, the leader at a rung."""
    if progress.best is not None:
        return best_text(progress.best)
    leader = progress.leader
    if leader is None:
        return "none has finished yet"
    at = f"{number(leader.value)} at {steps(leader.env_steps)} env steps"
    return f"{at} in trial {leader.trial}; none has finished yet"


def best_text(best: Best) -> str:
    """Return the value of the best finished trial, with its interval or all its values."""
    around = between(best.low, best.high)
    if not around and len(best.seed_values) > 1:
        around = f"(seeds {', '.join(map(number, best.seed_values))})"
    return f"{number(best.value)} {around}".rstrip() + f" in trial {best.trial}"


def lanes_text(progress: Progress) -> str:
    """Return how many lanes are busy now, and the share that was while there was work."""
    busy = f"{progress.lanes_busy} of {progress.lanes} busy"
    return f"{busy}, {progress.occupancy:.0%} while there was work"


def left_text(progress: Progress) -> str:
    """Return the time left at the last chunk boundary, "" while nothing is known of it.

    It is not counted down between boundaries: at the next one it would have to run backwards.
    """
    if progress.seconds_left is None or progress.phase is Phase.DONE:
        return ""
    left = progress.seconds_left
    return f", {duration(left)} left" if left >= 1.0 else ", nearly done"


def status_line(progress: Progress) -> str:
    """Return everything in one line, for output that is not a terminal."""
    counts = ", ".join(
        f"{count} {state}" for state in _ORDER if (count := progress.states.get(state, 0))
    )
    best = ""
    if progress.best is not None:
        best = f" | best {best_text(progress.best)}"
    elif progress.leader is not None:
        leader = progress.leader
        best = (
            f" | leads {number(leader.value)} at {steps(leader.env_steps)} in trial {leader.trial}"
        )
    return (
        f"{duration(progress.seconds)}{left_text(progress)} | {progress.phase} "
        f"{steps(progress.env_steps)} env steps ({progress.share:.0%}), "
        f"{steps(round(progress.env_steps_per_second))}/s | lanes "
        f"{progress.lanes_busy}/{progress.lanes} | {counts}{best}"
    )


def ended_text(trial: TrialRow) -> str:
    """Describe in one line how a trial ended."""
    text = f"trial {trial.trial} {trial.state} after {steps(trial.env_steps)} env steps"
    if trial.value is not None:
        return f"{text}: {number(trial.value)}"
    if trial.state is TrialState.STOPPED:
        at = "" if trial.rung_env_steps is None else f" at {steps(trial.rung_env_steps)}"
        return f"{text}: {number(trial.rung_value)}{at} ({trial.stop_rule})"
    return f"{text}: {trial.error}" if trial.error else text
