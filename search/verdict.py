"""What a rule says about one trial at one rung."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Verdict"]


@dataclass(frozen=True)
class Verdict:
    """One judgement.

    Attributes:
        stop: the trial ends here.
        rule: the words of the rule, for example `asha eta=4`.
        cutoff: the loss that had to be reached, or None when everyone goes on.
    """

    stop: bool
    rule: str
    cutoff: float | None
