"""Who proposes: the contract of a sampler, and what it sees of the past.

A sampler is a function of (batch number, history): it keeps nothing between batches that it could
not find in the history again, so a resumed study asks what the unbroken one would have asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ...spaces.space import Space
from ...store.rows import TrialState
from ...studies.search_methods import method_row
from ...studies.sections import checked_options as checked

__all__ = ["Batch", "Draw", "Past", "Sampler", "SamplerSpec", "checked_options"]


@dataclass(frozen=True)
class Past:
    """A trial proposed before, as a sampler sees it.

    Attributes:
        trial: its number.
        params: active searched knobs.
        attributes: what the sampler that drew it attached.
        state: `running` for all that have not ended, which have no loss and no reports yet.
        loss: of a finished trial; lower is better whatever the goal.
        reports: loss at each rung judged, of trials that have ended, or were paused: those are
            `stopped`, and may have more reports, or end otherwise, in a later history.
        proposed_by: the method, `default`, `enqueue`, or `warm_start` for a trial of an earlier
            study, whose number is negative.
        more: losses of further objectives, beside `loss`.
        more_reports: likewise at each rung, beside `reports`.
        violations: one a constraint, above 0 by how much it is violated; of finished trials at
            their end, of stopped ones at their last rung.
    """

    trial: int
    params: Mapping[str, Any]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    state: TrialState = TrialState.RUNNING
    loss: float | None = None
    reports: tuple[float, ...] = ()
    proposed_by: str = ""
    more: tuple[float, ...] = ()
    more_reports: tuple[tuple[float, ...], ...] = ()
    violations: tuple[float, ...] = ()

    @property
    def losses(self) -> tuple[float, ...] | None:
        """One loss an objective, of a finished trial."""
        return None if self.loss is None else (self.loss, *self.more)

    def losses_at(self, rung: int) -> tuple[float, ...]:
        """One loss an objective at a rung that it was judged at."""
        return (self.reports[rung], *(self.more_reports[rung] if self.more_reports else ()))

    @property
    def is_live(self) -> bool:
        """Whether it has not ended."""
        return self.state in (TrialState.WAITING, TrialState.RUNNING)


@dataclass(frozen=True)
class Draw:
    """One configuration drawn: active searched knobs, and what to remember with it (JSON)."""

    params: Mapping[str, Any]
    attributes: Mapping[str, Any] = field(default_factory=dict)


class Batch(Protocol):
    """Draws configurations one after another, knowing those kept before in the same batch."""

    def draw(self, trial: int, attempt: int) -> Draw | None:
        """Propose for one trial; `attempt` counts from 0 and grows when a draw was refused.

        Returns:
            None when there is nothing left to propose, ever.
        """
        ...

    def keep(self, trial: int, params: Mapping[str, Any]) -> None:
        """Take note that this trial will run: the last draw, or one of another source."""
        ...


class Sampler(Protocol):
    """A method of proposing configurations."""

    def begin(self, batch: int, history: Sequence[Past]) -> Batch:
        """Open a batch.

        Args:
            batch: its number; the only source of randomness beside the seed and trial numbers.
            history: every trial proposed so far, by number, running ones included.
        """
        ...


@dataclass(frozen=True)
class SamplerSpec:
    """What a method is built from.

    Attributes:
        space: what may be proposed.
        seed: of the study.
        options: of the method, from `search: {options: ...}`; those left out have their defaults.
        objectives: how many losses a trial has.
        constraints: how many violations.
    """

    space: Space
    seed: int
    options: Mapping[str, Any]
    objectives: int = 1
    constraints: int = 0


def checked_options(method: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Fill in the options of a method, by the table of methods.

    Raises:
        ConfigError: an option that the method does not have, or a value that is not legal.
    """
    return checked(f"search method {method!r}", method_row(method).options, given)
