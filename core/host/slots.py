"""Environments stepped one after the other, each the sole user of its row of the board.

An episode's seed follows from the words that name its slot's stream and from the episode's number,
so that what an environment does depends on nothing but these and the actions it is given.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ...via_gymnasium import drawn_by, make
from .board import Board
from .spaces import SpaceCode

__all__ = ["Opening", "Slots", "episode_seed"]


@dataclass(frozen=True)
class Opening:
    """What to begin in a slot.

    Attributes:
        slot: which.
        values: arguments of the environment's constructor.
        stream: words that name its random numbers.
        episode: number of the episode to begin with.
        fresh: make the environment anew, although one with these values stands there.
    """

    slot: int
    values: Mapping[str, Any]
    stream: str
    episode: int = 0
    fresh: bool = False

    def as_json(self) -> dict[str, Any]:
        """Give it as JSON data; `Opening(**data)` is the way back."""
        return asdict(self)


def episode_seed(stream: str, episode: int) -> int:
    """Give the seed of an episode, a number of 31 bits."""
    words = hashlib.blake2b(f"{stream}/{episode}".encode(), digest_size=4).digest()
    return int.from_bytes(words, "little") & 0x7FFFFFFF


class Slots:
    """The environments of some slots of a board.

    Args:
        id_: of all of them, `gym:...`.
        code: how their observations and actions look.
        board: where they are written.
        more: arguments of every constructor besides those of an opening.

    Attributes:
        info: slot -> what its environment said of its last step.
    """

    def __init__(
        self, id_: str, code: SpaceCode, board: Board, more: Mapping[str, Any] | None = None
    ):
        self._id, self._code, self._board, self._more = id_, code, board, dict(more or {})
        self.info: dict[int, Mapping[str, Any]] = {}
        self._envs: dict[int, Any] = {}
        self._values: dict[int, Mapping[str, Any]] = {}
        self._streams: dict[int, tuple[str, int]] = {}

    def open(self, openings: Sequence[Opening]) -> None:
        """Begin episodes; environments are made where there are none with these values.

        Raises:
            HpoError: an environment cannot be made.
        """
        for opening in openings:
            slot, values = opening.slot, _plain(opening.values)
            if opening.fresh or self._values.get(slot) != values:
                self._close(slot)
                self._envs[slot] = make(self._id, {**values, **self._more})
                self._values[slot] = values
            self._streams[slot] = (opening.stream, opening.episode)
            self._reset(slot)

    def step(self, restart: bool) -> None:
        """Step the active slots of these.

        Args:
            restart: begin a new episode where one ended; its first observation is then the one
                to act on.
        """
        board, code = self._board, self._code
        actions = code.actions(board.action)
        for slot in np.flatnonzero(board.active).tolist():
            env = self._envs.get(slot)
            if env is None:  # another process has it
                continue
            raw, reward, terminated, truncated, info = env.step(actions[slot])
            board.reward[slot] = reward
            board.terminated[slot], board.truncated[slot] = terminated, truncated
            self.info[slot] = info
            self._show(slot, raw)
            if terminated or truncated:
                board.final[slot] = board.observation[slot]
                if restart:
                    stream, episode = self._streams[slot]
                    self._streams[slot] = (stream, episode + 1)
                    self._reset(slot)

    def drawn(self, slot: int) -> Any:
        """Return what the environment of a slot draws of itself now.

        Raises:
            HpoError: see `via_gymnasium.drawn_by`.
        """
        return drawn_by(self._id, self._envs[slot])

    def close(self) -> None:
        """Close all environments."""
        for slot in list(self._envs):
            self._close(slot)

    def _reset(self, slot: int) -> None:
        """Begin the episode that the stream says; nothing of another one is seen in it."""
        raw, _ = self._envs[slot].reset(seed=episode_seed(*self._streams[slot]))
        self._board.observation[slot] = 0
        self._show(slot, raw)

    def _show(self, slot: int, raw: Any) -> None:
        """Write an observation; where they are stacked, the oldest makes room for the newest."""
        rows, seen = self._board.observation, self._code.observed(raw)
        if self._code.history == 1:
            rows[slot] = seen
        else:
            rows[slot, :-1] = rows[slot, 1:]
            rows[slot, -1] = seen

    def _close(self, slot: int) -> None:
        env = self._envs.pop(slot, None)
        self._values.pop(slot, None)
        if env is not None:
            env.close()


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Give the values as constructors take them, whether or not they have been JSON."""
    return {
        name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
    }
