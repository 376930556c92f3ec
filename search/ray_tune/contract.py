"""Where a foreign scheduler and our lanes meet: what it asks for, and what it is told.

A scheduler that knows trials as independent processes (Ray Tune) gets one handle a trial; every
handle puts its wishes on the desk, and whoever drives the lanes takes them from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from ..book.schedule import Schedule

__all__ = ["Desk", "Reply", "Report", "Request"]


@dataclass(frozen=True)
class Request:
    """What a handle asks for.

    Attributes:
        key: of the request; the reply goes there.
        kind: `train` to the next evaluation, or `keep` the trial's state as it is.
        trial: number of the trial.
        params: searched knobs it is to be trained with from here on.
        state: the kept state it goes on from; None: its own.
    """

    key: str
    kind: Literal["train", "keep"]
    trial: int
    params: Mapping[str, Any] = field(default_factory=dict)
    state: str | None = None


@dataclass(frozen=True)
class Report:
    """What a trial shows at an evaluation.

    Attributes:
        value: the metric over its replicates; the worst seen so far in place of what is missing.
        env_steps: training env steps of one replicate.
        done: there is no more to train.
    """

    value: float
    env_steps: int
    done: bool = False


Reply = Report | str
"""A report, or the name of a kept state."""


class Desk(Protocol):
    """The scheduler's side, as the driver of the lanes sees it; it runs beside the driver."""

    @property
    def is_over(self) -> bool:
        """Whether the scheduler has ended all its trials."""
        ...

    def begin(self, width: int, schedule: Schedule) -> None:
        """Let the scheduler begin.

        Args:
            width: trials at a time, at most.
            schedule: of the default configuration's runs.
        """
        ...

    def wait(self, seconds: float) -> list[Request]:
        """Return the requests that came since the last call; waits for the first one.

        Raises:
            SearchError: the scheduler failed.
        """
        ...

    def answer(self, replies: Mapping[str, Reply]) -> None:
        """Send replies to requests, by their keys."""
        ...

    def expected(self) -> int:
        """Return how many trials are to ask before lanes step."""
        ...

    def has_more(self) -> bool:
        """Return whether trials are still to begin."""
        ...

    def ended(self) -> list[int]:
        """Return the trials that the scheduler has ended since the last call.

        Called after `wait`, it names all that ended before what was asked there.
        """
        ...

    def paused(self) -> set[int]:
        """Return the trials that the scheduler has put aside, their states kept."""
        ...
