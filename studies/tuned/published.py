"""Configurations that other projects publish, in our knobs, with where each was read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..reader import plain, read_file

__all__ = ["Published", "published"]

_FILE = Path(__file__).with_name("published.yaml")


@dataclass(frozen=True)
class Published:
    """One configuration of one environment.

    Attributes:
        by: the project, the name of a row in tables.
        source: `repository`, `commit`, `file`, and `env_steps`, the length it was published for;
            `without`, what it names and we do not have; `written_for`, if another environment.
        knobs: knob -> value.
    """

    by: str
    source: Mapping[str, Any]
    knobs: Mapping[str, Any]


def published(env: str) -> tuple[Published, ...]:
    """Return what is published for an environment."""
    return _all().get(env, ())


@lru_cache(maxsize=1)
def _all() -> Mapping[str, tuple[Published, ...]]:
    data = plain(read_file(_FILE, str(_FILE)))
    return {env: tuple(map(_one, items)) for env, items in data.items()}


def _one(item: Mapping[str, Any]) -> Published:
    source = {key: value for key, value in item.items() if key not in ("knobs", "by")}
    return Published(item["by"], source, item["knobs"])
