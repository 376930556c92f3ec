"""Host-stepped environments: their ids, and the libraries that step many of them per call.

Episodes end as in `gymnasium.Env`. The last step returns the final observation, and the first
observation of the next episode is available before the next action.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, Protocol

from . import via_gymnasium
from .table import EnvEntry

if TYPE_CHECKING:  # studies of compiled environments are checked without numpy
    import numpy as np


@dataclass(frozen=True, eq=False)
class Answers:
    """The results of stepping n rows, in the order in which the rows were sent."""

    observation: np.ndarray  # [n, ...] after the step; the last one of an episode that ended
    reward: np.ndarray  # [n]
    terminated: np.ndarray  # bool [n], ended by the environment's rules
    truncated: np.ndarray  # bool [n], cut by a limit
    # [n, ...] to act on next, if the simulator has already started the next episode
    next_observation: np.ndarray | None = None
    # bool [n], episodes that ended although their game continues, as after a lost life
    game_continues: np.ndarray | None = None
    info: Mapping[str, np.ndarray] = field(default_factory=dict)  # [n] each


class Simulator(Protocol):
    """Environments of one kind that are stepped together; each of them is called a row."""

    def start(self, seeds: np.ndarray) -> np.ndarray:
        """Seed all rows and reset them; return first observations [rows, ...]."""
        ...

    def send(self, rows: np.ndarray, actions: np.ndarray) -> None:
        """Start a step of the given rows, which are in ascending order; other rows do not step."""
        ...

    def receive(self) -> Answers:
        """Wait for the results of the step that was sent."""
        ...

    def restart(self, rows: np.ndarray) -> np.ndarray:
        """Start new episodes without new seeds; return their first observations."""
        ...

    def close(self) -> None: ...


class SimulatorLibrary(Protocol):
    """A library that provides simulators."""

    # Slots that share a simulator: those opened by one call, those of one lane, or none
    together: Literal["call", "lane", "slot"]
    reseeds: bool  # whether `start` may be called again, at the end of a game

    def entry(self, id_: str) -> EnvEntry: ...

    def spaces(self, id_: str, values: Mapping[str, Any]) -> Any:
        """Return an object with the `observation_space` and `action_space` of one row."""
        ...

    def make(self, id_: str, values: Mapping[str, Any], rows: int) -> Simulator: ...


ENVPOOL, VECTOR, ALE = "envpool:", "gym-vec:", f"{via_gymnasium.PREFIX}ALE/"
# Prefix of ids -> module and class of their backend
_BACKENDS: Mapping[str, tuple[str, str]] = {
    ENVPOOL: ("via_envpool", "EnvPoolBackend"),
    VECTOR: ("via_make_vec", "VectorEntryBackend"),
    ALE: ("via_make_vec", "AtariBackend"),
}
_PREFIXES = (via_gymnasium.PREFIX, *_BACKENDS)


def is_hosted(id_: str) -> bool:
    """Return whether the host steps an environment (Python or C++), instead of a compiled program.

    >>> is_hosted("envpool:Pong-v5"), is_hosted("gym:CartPole-v1"), is_hosted("CartPole-v1")
    (True, True, False)
    """
    return id_.startswith(_PREFIXES)


def is_simulated(id_: str) -> bool:
    """Return whether a library steps many of this id's environments per call.

    >>> is_simulated("envpool:Pong-v5"), is_simulated("gym:CartPole-v1")
    (True, False)
    """
    return id_.startswith(tuple(_BACKENDS))


def backend_of(id_: str) -> SimulatorLibrary:
    """Return the backend for an id that satisfies `is_simulated`."""
    return _make_backend(next(start for start in _BACKENDS if id_.startswith(start)))


@cache
def _make_backend(start: str) -> SimulatorLibrary:
    module, name = _BACKENDS[start]
    return getattr(import_module(f".{module}", __package__), name)()


def entry_of(id_: str) -> EnvEntry:
    if is_simulated(id_):
        return backend_of(id_).entry(id_)
    return via_gymnasium.entry_of(id_)


def probe(id_: str, values: Mapping[str, Any]) -> Any:
    """Return an object with the `observation_space` and `action_space` of an environment.

    Raises:
        ConfigError: no environment can be made with these values.
        MissingExtraError: its library is not installed.
    """
    if is_simulated(id_):
        return backend_of(id_).spaces(id_, values)
    env = via_gymnasium.make(id_, values)
    env.close()
    return env


def module_of(id_: str) -> str:
    """Return the module that defines an environment; "" if a simulator steps it."""
    if is_simulated(id_):
        return ""
    return via_gymnasium.module_of(id_)
