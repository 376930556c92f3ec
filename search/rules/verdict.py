"""What stands at a rung, and what a rule says about it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Standing", "Verdict"]


@dataclass(frozen=True)
class Standing:
    """A trial at a rung.

    Attributes:
        trial: its number.
        loss: there; lower is better. With several objectives or constraints it is the place among
            all that were judged there (0 the best), so only its order means anything.
        curve: the loss of the first objective at every rung up to this one.
    """

    trial: int
    loss: float
    curve: tuple[float, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """One judgement.

    Attributes:
        stop: the trial ends here.
        rule: the words of the rule, for example `asha eta=4`.
        cutoff: the loss that had to be reached, or None when everyone goes on.
        finish: it ends with its value here, as if its run were over; only where `stop`.
        pause: it waits here in place of ending; only where `stop`.
    """

    stop: bool
    rule: str
    cutoff: float | None
    finish: bool = False
    pause: bool = False
