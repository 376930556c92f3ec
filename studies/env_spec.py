"""What a study trains on: one environment, or several with scores on one scale."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ..environment_references import Reference
from ..errors import ConfigError

__all__ = ["EnvSpec", "labels_of"]


@dataclass(frozen=True)
class EnvSpec:
    """An environment: a registered id and the fixed values of its keys.

    Attributes:
        id: for example `CartPole-v1`, `rmsa`, `gym:HalfCheetah-v5`.
        values: the keys given under `env:` besides `id`, static ones and float parameters alike.
        scale: of a study over several environments, what scores 0 and 1; else None.
        place: where a file names it, as `study.yaml:3`; "" where none does.
    """

    id: str
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    scale: Reference | None = None
    place: str = field(default="", compare=False)

    @contextmanager
    def named_in_errors(self) -> Generator[None]:
        """Begin the message of a `ConfigError` raised within with the place that names it."""
        try:
            yield
        except ConfigError as error:
            if self.place:
                error.args = (f"{self.place}: {error}",)
            raise


def labels_of(environments: Sequence[EnvSpec]) -> tuple[str, ...]:
    """Return what tables, folders and words call the environments of a study, each once.

    The id; of several with one id the keys in which they differ, too. Only letters, digits, `.`,
    `_`, `-`, `=` are left, so that a label can name a folder.

    >>> labels_of([EnvSpec("CartPole-v1"), EnvSpec("rmsa", {"load": 200}), EnvSpec("rmsa")])
    ('CartPole-v1', 'rmsa_load=200', 'rmsa')
    >>> labels_of([EnvSpec("rmsa", {"k": 5, "load": load}) for load in (150.0, 250.0)])
    ('rmsa_load=150', 'rmsa_load=250')
    """
    found: list[str] = []
    for one in environments:
        same = [other.values for other in environments if other.id == one.id]
        words = [one.id]
        words += [
            f"{key}={_short(value)}"
            for key, value in sorted(one.values.items())
            if not all(key in other and other[key] == value for other in same)
        ]
        label = re.sub(r"[^0-9A-Za-z._=-]+", "_", "_".join(words))
        found.append(label if label not in found else f"{label}_{len(found)}")
    return tuple(found)


def _short(value: Any) -> str:
    """Return a value in words, whole numbers without a point."""
    whole = isinstance(value, float) and value.is_integer() and abs(value) < 1e15
    return str(int(value) if whole else value)
