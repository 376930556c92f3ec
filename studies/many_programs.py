"""Advice for a study that has many programs for few trials, with the number that it rests on."""

from __future__ import annotations

from .buckets import static_searched
from .spec import Study

__all__ = ["programs_note"]

_MOST = 0.5  # of the time, that compiling may take without a word
_FEWEST = 6  # trials a program, where no time is known


def programs_note(
    study: Study,
    programs: int,
    trials: int | None,
    compile_seconds: float | None = None,
    seconds: float = 0.0,
) -> str:
    """Return a sentence if compiling takes more than half of the time, or nobody knows and may.

    Args:
        study: says which knobs make programs.
        programs: training programs, of which each is compiled once.
        trials: how many, None if only the budget says.
        compile_seconds: known or expected, None if not.
        seconds: of the whole study, likewise.
    """
    if programs < 2 or trials is None:
        return ""
    if compile_seconds is None:
        if trials >= _FEWEST * programs:
            return ""
        each = f"only {trials / programs:.1f} trials share a compile, which may outlast them"
    elif compile_seconds <= _MOST * seconds:
        return ""
    else:
        each = f"{compile_seconds / seconds:.0%} of the time is compiling"
    names = ", ".join(static_searched(study)) or "enqueue"
    return (
        f"{programs} programs for {trials} trials: {each}; give more trials, or search fewer "
        f"values of {names}"
    )
