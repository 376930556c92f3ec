"""The actions of the episodes that run, by which environments are brought back to where they were.

An environment that repeats itself is a function of its episode's seed and the actions since: a
checkpoint keeps these, and going on takes the actions again. Environments themselves are never
written down.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .shared_arrays import SharedArrays

__all__ = ["ActionLog"]

LONGEST = 20_000
"""Steps kept; an episode longer than that begins anew where a study goes on."""


@dataclass(eq=False)
class ActionLog:
    """Of a batch of N slots.

    Attributes:
        actions: [steps, N, ...] the last steps of all slots, as the policy gave them.
        begun: int64 [N], how many of them belong to the episode that runs in each slot; -1 where
            they are more than were kept.
        episodes: int64 [N], number of the episode that runs.
    """

    actions: list[np.ndarray]
    begun: np.ndarray
    episodes: np.ndarray

    @classmethod
    def empty(cls, count: int) -> ActionLog:
        """Return that of a batch in which nothing has been done."""
        return cls([], np.zeros(count, np.int64), np.zeros(count, np.int64))

    def of(self, slots: np.ndarray) -> ActionLog:
        """Return one of its own for these slots, in which nothing has been done in all others."""
        found = ActionLog(list(self.actions), np.zeros_like(self.begun), self.episodes.copy())
        found.begun[slots] = self.begun[slots]
        return found

    def opened(self, slots: np.ndarray, episodes: np.ndarray | int = 0) -> None:
        """Note that episodes begin in some slots."""
        self.begun[slots], self.episodes[slots] = 0, episodes

    def stepped(self, arrays: SharedArrays) -> None:
        """Note what the arrays show after a step with restarts."""
        ended = arrays.active & (arrays.terminated | arrays.truncated)
        self.episodes[ended] += 1
        going = arrays.active & (self.begun >= 0)
        self.begun[going] += 1
        self.begun[ended] = 0
        self.actions.append(arrays.action.copy())
        self.begun[self.begun > LONGEST] = -1
        kept = int(self.begun.max(initial=0))
        if len(self.actions) > 2 * kept + 64:  # seldom, so that it costs nothing
            self.actions = self.actions[len(self.actions) - kept :]

    def rested(self, slots: np.ndarray) -> None:
        """Note that nothing runs in some slots any more."""
        self.begun[slots] = 0

    def kept(self, arrays: SharedArrays) -> np.ndarray:
        """Return the actions [steps, N, ...] of the longest episode that runs."""
        steps = int(self.begun.max(initial=0))
        if not steps:
            return np.zeros((0, *arrays.action.shape), arrays.action.dtype)
        return np.stack(self.actions[-steps:])

    def take_over(self, slots: np.ndarray, sources: np.ndarray) -> None:
        """Copy the log of some slots to others, as it was before any of these copies."""
        self.begun[slots], self.episodes[slots] = self.begun[sources], self.episodes[sources]
        for actions in self.actions:
            actions[slots] = actions[sources]

    def replay(self, arrays: SharedArrays, slots: np.ndarray, step: Callable[[], bool]) -> bool:
        """Take the kept actions again, in slots just opened with the episodes that ran.

        A slot whose episode ends on the way rests from then on: it does not repeat itself.

        Args:
            arrays: of the slots.
            slots: that are brought back.
            step: takes the actions in the arrays in the active slots; False breaks off.

        Returns:
            Whether all actions have been taken.
        """
        steps = len(self.actions)
        first = np.full(len(self.begun), steps)
        first[slots] -= np.maximum(self.begun[slots], 0)
        going = np.ones(len(first), bool)
        for number in range(int(first.min(initial=steps)), steps):
            arrays.action[:] = self.actions[number]
            arrays.active[:] = going & (number >= first)
            if not step():
                return False
            going &= ~(arrays.active & (arrays.terminated | arrays.truncated))
        return True
