"""Simulators that step several environments by one call: their contract, and whose ids have one.

No library is imported here. `hosted` finds the backend of an id, `core.host.vector_batch` drives
it. In all of them an episode ends as in `gymnasium.Env`: the step that ends it shows its last
observation, and the first one of the next episode is there before the next action.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np

from .table import EnvEntry


@dataclass(frozen=True, eq=False)
class Answers:
    """What a step of n rows gave, in the order of the rows that were sent."""

    observation: np.ndarray  # [n, ...] after the step; the last one of an episode that ended
    reward: np.ndarray  # [n]
    terminated: np.ndarray  # bool [n], ended by the environment's rules
    truncated: np.ndarray  # bool [n], cut by a limit
    # [n, ...] to act on next, where the simulator has begun the next episode by itself
    following: np.ndarray | None = None
    # bool [n], episodes that ended while their game goes on, as by the loss of a life
    goes_on: np.ndarray | None = None
    info: Mapping[str, np.ndarray] = field(default_factory=dict)  # [n] each


@runtime_checkable
class Simulator(Protocol):
    """Several environments of one kind, called rows."""

    def start(self, seeds: np.ndarray) -> np.ndarray:
        """Seed all rows and reset them; return first observations [rows, ...]."""
        ...

    def send(self, rows: np.ndarray, actions: np.ndarray) -> None:
        """Begin a step of some rows, ascending; the others rest or are forgotten."""
        ...

    def receive(self) -> Answers:
        """Wait for the step that was sent."""
        ...

    def restart(self, rows: np.ndarray) -> np.ndarray:
        """Begin the next episodes by the running random numbers; return first observations."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class Backend(Protocol):
    """A library of simulators."""

    # Slots that share a simulator: those opened by one call, those of one lane, or none
    together: Literal["call", "lane", "slot"]
    reseeds: bool  # `start` may be called again, at the end of a game

    def entry(self, id_: str) -> EnvEntry: ...

    def spaces(self, id_: str, values: Mapping[str, Any]) -> Any:
        """Return an object with the `observation_space` and `action_space` of one row."""
        ...

    def make(self, id_: str, values: Mapping[str, Any], rows: int) -> Simulator: ...
