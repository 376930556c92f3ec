"""Lanes whose results come from a formula or a record instead of training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...store.rows import Stream
from .contract import LaneChange, Population, Refill, Resolved


@dataclass
class SimulatedLane:
    """The state of a lane in a `SimulatedPopulation` between chunks."""

    payload: Any  # from its `Resolved`
    stream: Stream
    replicate: int
    chunks: int = 0
    value: float = 0.0


class SimulatedPopulation(Population):
    """Lanes whose results come from a formula or a record instead of training.

    Subclasses define `advance` and `evaluate`.
    """

    def __init__(self, lanes: int, block: int, steps_per_chunk: int, warmup_chunks: int):
        self.lanes, self.block = lanes, block
        self.steps_per_chunk, self.warmup_chunks = steps_per_chunk, warmup_chunks
        self._state: list[SimulatedLane | None] = [None] * lanes

    def lane_at(self, index: int) -> SimulatedLane:
        lane = self._state[index]
        if lane is None:
            raise ValueError(f"lane {index} is empty")
        return lane

    def _count_chunk(
        self, refills: Sequence[Refill], busy: Sequence[int]
    ) -> dict[int, SimulatedLane]:
        """Start replicates and count a chunk; return the busy lanes that are not empty."""
        for one in refills:
            lane = SimulatedLane(one.resolved.payload, one.stream, one.replicate)
            self._state[one.lane] = lane
        found = {at: lane for at in busy if (lane := self._state[at]) is not None}
        for lane in found.values():
            lane.chunks += 1
        return found

    def change(self, changes: Sequence[LaneChange]) -> None:
        before = list(self._state)
        for change in changes:
            lane = before[change.origin]
            if lane is None:
                raise ValueError(f"lane {change.origin} is empty and cannot be copied")
            self._state[change.lane] = replace(lane, payload=change.resolved.payload)

    def take(self, lanes: Sequence[int]) -> list[Any]:
        return [replace(self.lane_at(lane)) for lane in lanes]

    def put(self, states: Mapping[int, tuple[Any, Resolved]]) -> None:
        for lane, (state, resolved) in states.items():
            self._state[lane] = replace(state, payload=resolved.payload)
