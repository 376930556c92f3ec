"""An environment of a study: its id, the fixed values of its keys, and its label in tables."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ..environments.registry import Reference, find
from ..errors import ConfigError

LONGEST = 100_000  # largest number of env steps in an episode, in any environment
SHORTEST_CUT = 20_000  # no episode is cut earlier than this many env steps


@dataclass(frozen=True)
class EnvSpec:
    """An environment: a registered id and the fixed values of its keys."""

    id: str
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    scale: Reference | None = None  # what scores 0 and 1, for several environments
    place: str = field(default="", compare=False)  # place in a file, such as `study.yaml:3`

    @contextmanager
    def named_in_errors(self) -> Generator[None]:
        """Prefix any `ConfigError` raised in the context with the environment's file and line."""
        try:
            yield
        except ConfigError as error:
            if self.place:
                error.args = (f"{self.place}: {error}",)
            raise


def labels_of(environments: Sequence[EnvSpec]) -> tuple[str, ...]:
    """Return unique names for a study's environments, for use in tables, folders and text.

    The name is the id; if several share an id, the name includes the keys in which they differ.
    Names consist of letters, digits, `.`, `_`, `-`, `=`, so that they are valid folder names.

    >>> labels_of([EnvSpec("CartPole-v1"), EnvSpec("rmsa", {"load": 200}), EnvSpec("rmsa")])
    ('CartPole-v1', 'rmsa_load=200', 'rmsa')
    >>> labels_of([EnvSpec("rmsa", {"k": 5, "load": load}) for load in (150.0, 250.0)])
    ('rmsa_load=150', 'rmsa_load=250')
    """
    found: list[str] = []
    for one in environments:
        words = [one.id]
        for name, value in sorted(one.values.items()):
            same = (_has_value(other, name, value) for other in environments if other.id == one.id)
            if not all(same):
                words.append(f"{name}={_number_text(value)}")
        label = re.sub(r"[^0-9A-Za-z._=-]+", "_", "_".join(words))
        if label in found:
            label = f"{label}_{len(found)}"
        found.append(label)
    return tuple(found)


def _has_value(env: EnvSpec, name: str, value: Any) -> bool:
    return name in env.values and env.values[name] == value


def _number_text(value: Any) -> str:
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)


def own_config(id_: str, config: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if has_key(id_, name)}


def has_key(id_: str, name: str) -> bool:
    """Return whether an environment has a parameter `env.<name>`; True for other names.

    An environment that is defined only by imported code is assumed to have every parameter.

    >>> has_key("CartPole-v1", "env.gravity"), has_key("Acrobot-v1", "env.gravity")
    (True, False)
    """
    if not name.startswith("env."):
        return True
    known, key = find(id_), name.removeprefix("env.")
    return known is None or known.is_open or key in known.params or key in known.keys
