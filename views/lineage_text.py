"""The lineage of a trial that copied other trials' states, as lines of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

from .formatting import param, steps

__all__ = ["lineage_text"]

_WIDTH = 80


def lineage_text(schedule: Sequence[Mapping[str, Any]]) -> str:
    """Return one line a segment: its first env step, its trial, and the knobs that changed.

    >>> parts = [{"env_steps": 0, "trial": 3, "params": {"gamma": 0.9, "ent_coef": 0.01}},
    ...          {"env_steps": 8000, "trial": 5, "params": {"gamma": 0.95, "ent_coef": 0.01}}]
    >>> print(lineage_text(parts))
    lineage
      from     0  in trial 3  gamma 0.9, ent_coef 0.01
      from    8k  in trial 5  gamma 0.95
    """
    lines: list[str] = []
    before: Mapping[str, Any] = {}
    for part in schedule:
        words = [
            f"{name} {param(value)}"
            for name, value in part["params"].items()
            if name not in before or before[name] != value
        ]
        gone = [f"without {name}" for name in before if name not in part["params"]]
        changes = ", ".join([*words, *gone])
        start = f"  from {steps(part['env_steps']):>5}  in trial {part['trial']}"
        lines += wrap(f"{start}  {changes}", _WIDTH, subsequent_indent=" " * 14)
        before = part["params"]
    return "\n".join(["lineage", *lines])
