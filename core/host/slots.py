"""Environments stepped one after the other, each the sole user of its row of the arrays.

An episode's seed follows from the words that name its slot's stream and from the episode's number,
so that what an environment does depends on nothing but these and the actions it is given.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ...errors import HpoError
from ...faults import is_interrupt, told
from ...via_gymnasium import drawn_by, make
from .shared_arrays import SharedArrays
from .space_code import SpaceCode

__all__ = ["Opening", "Slots", "episode_seed"]

_MOST_CALLS = 2**31 - 2


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
        """Return it as JSON data; `Opening(**data)` is the way back."""
        return asdict(self)


def episode_seed(stream: str, episode: int) -> int:
    """Return the seed of an episode, a number of 31 bits."""
    words = hashlib.blake2b(f"{stream}/{episode}".encode(), digest_size=4).digest()
    return int.from_bytes(words, "little") & 0x7FFFFFFF


class Slots:
    """The environments of some slots of the arrays.

    Args:
        id_: of all of them, `gym:...`.
        code: how their observations and actions look.
        arrays: where they are written.
        more: arguments of every constructor besides those of an opening.

    Attributes:
        info: slot -> what its environment said of its last step.
    """

    def __init__(
        self,
        id_: str,
        code: SpaceCode,
        arrays: SharedArrays,
        more: Mapping[str, Any] | None = None,
    ):
        self._id, self._code, self._arrays, self._more = id_, code, arrays, dict(more or {})
        self.info: dict[int, Mapping[str, Any]] = {}
        self._envs: dict[int, Any] = {}
        self._values: dict[int, Mapping[str, Any]] = {}
        self._streams: dict[int, tuple[str, int]] = {}
        self._calls = 0

    def open(self, openings: Sequence[Opening]) -> dict[int, str]:
        """Begin episodes; environments are made where there are none with these values.

        Returns:
            What environments raised, by slot; there is none in these slots any more.

        Raises:
            HpoError: an environment cannot be made.
        """
        failed: dict[int, str] = {}
        for opening in openings:
            try:
                self._open(opening)
            except HpoError:
                self._arrays.inside[opening.slot] = 0
                raise
            except BaseException as error:
                self._fail(opening.slot, error, failed)
        return failed

    def _open(self, opening: Opening) -> None:
        slot, values = opening.slot, _plain(opening.values)
        if opening.fresh or self._values.get(slot) != values:
            self._close(slot)
            self._enter(slot)
            self._envs[slot] = make(self._id, {**values, **self._more})
            self._values[slot] = values
        self._streams[slot] = (opening.stream, opening.episode)
        self.info.pop(slot, None)
        self._reset(slot)

    def step(self, restart: bool) -> dict[int, str]:
        """Step the active slots of these.

        Args:
            restart: begin a new episode where one ended; its first observation is then the one
                to act on.

        Returns:
            What environments raised, by slot; there is none in these slots any more.
        """
        failed: dict[int, str] = {}
        actions = self._code.actions(self._arrays.action)
        for slot in np.flatnonzero(self._arrays.active).tolist():
            env = self._envs.get(slot)
            if env is None:  # another process has it
                continue
            try:
                self._step(slot, env, actions[slot], restart)
            except BaseException as error:  # one ends with its replicate, the others live on
                self._fail(slot, error, failed)
        return failed

    def _step(self, slot: int, env: Any, action: Any, restart: bool) -> None:
        arrays = self._arrays
        self._enter(slot)
        raw, reward, terminated, truncated, info = env.step(action)
        arrays.reward[slot] = reward
        arrays.terminated[slot], arrays.truncated[slot] = terminated, truncated
        self.info[slot] = info
        self._show(slot, raw)
        if terminated or truncated:
            arrays.final[slot] = arrays.observation[slot]
            if restart:
                stream, episode = self._streams[slot]
                self._streams[slot] = (stream, episode + 1)
                self._reset(slot)
        arrays.inside[slot] = 0

    def _enter(self, slot: int) -> None:
        """Note in the arrays that a call of a slot's environment begins."""
        self._calls = self._calls % _MOST_CALLS + 1
        self._arrays.inside[slot] = self._calls

    def _fail(self, slot: int, error: BaseException, failed: dict[int, str]) -> None:
        """Note what an environment raised, and let go of it; a real interrupt goes on."""
        if is_interrupt(error):
            raise error
        failed[slot] = told(error)
        try:
            self._close(slot)
        except BaseException as another:  # it is broken already: the first error is told
            if is_interrupt(another):
                raise
        self._arrays.inside[slot] = 0

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
        self._enter(slot)
        raw, _ = self._envs[slot].reset(seed=episode_seed(*self._streams[slot]))
        self._arrays.observation[slot] = 0
        self._show(slot, raw)
        self._arrays.inside[slot] = 0

    def _show(self, slot: int, raw: Any) -> None:
        """Write an observation; where they are stacked, the oldest makes room for the newest."""
        rows, seen = self._arrays.observation, self._code.observed(raw)
        if self._code.history == 1:
            rows[slot] = seen
        else:
            rows[slot, :-1] = rows[slot, 1:]
            rows[slot, -1] = seen

    def _close(self, slot: int) -> None:
        env = self._envs.pop(slot, None)
        self._values.pop(slot, None)
        if env is not None:
            self._enter(slot)
            env.close()
            self._arrays.inside[slot] = 0


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values as constructors take them, whether or not they have been JSON."""
    return {
        name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
    }
