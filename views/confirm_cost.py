"""What `hpo confirm` costs, printed before it is typed and before it starts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..errors import counted
from ..store.journal import Journal
from ..store.rows import Stream
from ..studies.expected_cost import span_of_time
from ..studies.load import recorded
from .formatting import steps
from .time_spent import usage_at


def confirm_cost(folder: Path, trials: Sequence[int], seeds: int) -> str:
    """Return the runs that are missing until trials have so many test seeds, their steps and time.

    The time is that of as many steps of this study so far.
    """
    from ..search.analysis.checkpoint_values import fresh_seeds  # brings numpy

    with Journal(folder) as journal, journal.at_one_commit():
        study, usage = recorded(journal.meta.study_text), usage_at(journal.head())
        known = fresh_seeds(journal)
    tested = [known.get((trial, Stream.REPORT), {}) for trial in trials]
    runs = sum(replicate not in values for values in tested for replicate in range(seeds))
    env_steps = runs * study.env_steps * study.spread
    if not runs:
        return "no run is missing"
    said = f"{counted(runs, 'run')}, {steps(env_steps)} {study.algorithm.unit}"
    speed = usage.env_steps_per_second
    return f"{said}, about {span_of_time(env_steps / speed)}" if speed else said


def confirm_command(trials: Sequence[int], seeds: int, which: str = "") -> str:
    """Return what to type; `which` is the `--study` option."""
    return f"hpo confirm {' '.join(map(str, trials))} --seeds {seeds}{which}"
