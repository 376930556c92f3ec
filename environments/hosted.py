"""Environments that the host steps: which ids are, and which library has them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import via_gymnasium
from .table import EnvEntry

if TYPE_CHECKING:  # it imports numpy, which studies of compiled environments do without
    from .vectors import Backend

ENVPOOL, VECTOR, ALE = "envpool:", "gym-vec:", f"{via_gymnasium.PREFIX}ALE/"
# How ids begin -> module and class of their backend
_BACKENDS: Mapping[str, tuple[str, str]] = {
    ENVPOOL: ("via_envpool", "EnvPoolBackend"),
    VECTOR: ("via_make_vec", "VectorEntryBackend"),
    ALE: ("via_make_vec", "AtariBackend"),
}
_PREFIXES = (via_gymnasium.PREFIX, *_BACKENDS)


def is_hosted(id_: str) -> bool:
    """Return whether the host steps an environment, Python or C++, not a compiled program.

    >>> is_hosted("envpool:Pong-v5"), is_hosted("gym:CartPole-v1"), is_hosted("CartPole-v1")
    (True, True, False)
    """
    return id_.startswith(_PREFIXES)


def is_simulated(id_: str) -> bool:
    """Return whether one call steps many environments of an id.

    >>> is_simulated("envpool:Pong-v5"), is_simulated("gym:CartPole-v1")
    (True, False)
    """
    return id_.startswith(tuple(_BACKENDS))


def backend_of(id_: str) -> Backend:
    """Return the backend of an id for which `is_simulated`."""
    return _made(next(start for start in _BACKENDS if id_.startswith(start)))


@cache
def _made(start: str) -> Backend:
    module, name = _BACKENDS[start]
    return getattr(import_module(f".{module}", __package__), name)()


def entry_of(id_: str) -> EnvEntry:
    return backend_of(id_).entry(id_) if is_simulated(id_) else via_gymnasium.entry_of(id_)


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
    """Return the module that defines an environment; "" for one of many."""
    return "" if is_simulated(id_) else via_gymnasium.module_of(id_)
