"""The parts of a run that a checkpoint of `AutoRLEnv` may hold, each alone.

With the policy alone, for example, a fresh optimiser goes on from a trained network.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from ...errors import ConfigError, suggestion

__all__ = ["PARTS", "fields_of"]

PARTS: Mapping[str, tuple[str, ...]] = {
    "policy": ("params",),
    "optimiser": ("moments",),
    "normalisers": ("observation_statistics", "return_statistics", "discounted_return"),
    "environment": ("env_state", "observation", "episode_return", "episode_length"),
    "position": ("key", "updates", "total_updates"),
}
"""Part -> the fields of `core.lane_state.LaneState` that it stands for.

A field in none of these belongs to `environment`.
"""


def fields_of(parts: Iterable[str]) -> tuple[str, ...]:
    """Return the fields of a lane's state that parts stand for.

    Raises:
        ConfigError: a part is not known, or none was named.
    """
    from ...core.lane_state import LaneState

    named = {field for fields in PARTS.values() for field in fields}
    others = [field.name for field in dataclasses.fields(LaneState) if field.name not in named]
    fields: list[str] = []
    for part in parts:
        if part not in PARTS:
            known = ", ".join(PARTS)
            raise ConfigError(f"unknown part {part!r};{suggestion(part, PARTS)} Known: {known}")
        fields += [*PARTS[part], *(others if part == "environment" else ())]
    if not fields:
        raise ConfigError(f"no part was named; known: {', '.join(PARTS)}")
    return tuple(fields)
