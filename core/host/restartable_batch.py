"""A batch whose environments come back when the process that holds them ends.

A process that ends, or is ended because it hangs, takes the environments in it along. They are
opened anew elsewhere and brought by the actions of their episodes to where they were, and then the
step that was asked for is taken: whoever asked sees nothing of it. A replicate in whose
environment a process ends twice over the same step is given up, so are those whose environment
raises; all others go on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...errors import ConfigError, SearchError
from .batch import Batch, Opening, Outcome
from .shared_arrays import SharedArrays

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


_MOST_ENDS = 2
_MOST_BLIND_ENDS = 3


class _Call:
    """How often processes ended during one call: by replicate, and in no environment at all."""

    def __init__(self) -> None:
        self.ends: Counter[int] = Counter()
        self.blind = 0


class Steady:
    """The environments of replicates, `each` slots one after the other belonging to one.

    Args:
        batch: holds them.
        each: slots of a replicate.
        warn: takes a line about a process that ended.
        keeps: the log; only a batch that loses nothing does without.

    Attributes:
        log: what brings them back.
        out: bool [N], slots of replicates that were given up, until they are opened again.
    """

    def __init__(
        self,
        batch: Batch,
        each: int,
        warn: Callable[[str], None] = lambda text: None,
        keeps: bool = True,
    ):
        count = len(batch.arrays.active)
        self.batch, self._each, self._warn, self._keeps = batch, each, warn, keeps
        self.log = ActionLog.empty(count)
        self.out = np.zeros(count, bool)
        self._reasons: dict[int, str] = {}
        self._lost = np.zeros(count, bool)
        self._openings: dict[int, Opening] = {}

    # ------------------------------------------------------------------ what is asked for

    def open(self, openings: Sequence[Opening]) -> None:
        """Begin episodes, their first observations are then in the arrays.

        Raises:
            ConfigError: an environment cannot be made as asked.
            SearchError: processes end before they do anything.
        """
        slots = self._remember(openings)
        self.log.opened(slots, np.array([opening.episode for opening in openings], np.int64))
        self._lost[slots] = False
        call = _Call()
        self._heed(self.batch.open(openings), call)
        self._begin(slots[self._lost[slots]], call)

    def bring_back(self, openings: Sequence[Opening], observation: np.ndarray) -> np.ndarray:
        """Open slots anew, in the episodes and at the steps that the log has of them.

        Args:
            openings: of the slots; `episode` is the log's.
            observation: [N, ...] what they must show then.

        Returns:
            Slots that do not; they begin their next episode.
        """
        slots, call = self._remember(openings), _Call()
        self._lost[slots] = True
        gone = np.zeros(len(self.out), bool)
        left = slots
        while len(left):
            came = self._return(left, observation, call)
            if came is not None:
                gone[left[~came]] = True
            left = slots[self._lost[slots] & ~self.out[slots]]
        gone &= ~self.out
        anew = np.flatnonzero(gone)
        self.log.opened(anew, self.log.episodes[anew] + 1)
        self._begin(anew, call)
        return anew

    def step(self, restart: bool) -> np.ndarray:
        """Take the actions in the arrays in all active slots that were not given up.

        Args:
            restart: begin a new episode where one ended.

        Returns:
            bool [N], slots whose episode was lost, because it does not repeat itself. Where
            episodes are begun again it counts as cut: this step has reward 0, its observation is
            also the final one, and the next is that of a new episode. Else it begins from the
            start, at its first observation.
        """
        arrays, outcome = self.batch.arrays, None
        before = arrays.observation.copy() if self.batch.may_lose else arrays.observation
        anew = np.zeros(len(self.out), bool)
        if not (self._lost.any() or self.out.any()):
            outcome = self.batch.step(restart)
        if outcome is None or outcome:
            anew = self._persist(outcome, before, restart)
        if self._keeps:
            self.log.stepped(arrays)
        if anew.any() and not restart:
            slots = np.flatnonzero(anew)
            self.log.opened(slots, self.log.episodes[slots])
        return anew

    def _persist(self, outcome: Outcome | None, before: np.ndarray, restart: bool) -> np.ndarray:
        """Take a step until all active slots have taken it, begun anew or been given up.

        Args:
            outcome: of the step, if it was taken for the first time already.
            before: observations as they were then.
            restart: begin a new episode where one ended.

        Returns:
            bool [N], slots whose episode was lost.
        """
        arrays, call = self.batch.arrays, _Call()
        active, action = arrays.active & ~self.out, arrays.action.copy()
        anew, todo = np.zeros(len(active), bool), active.copy()
        while todo.any():
            lost = np.flatnonzero(todo & self._lost)
            if outcome is None and len(lost):
                came = self._return(lost, before, call)
                if came is not None:
                    anew[lost[~came]] = True
                todo &= ~anew & ~self.out
                continue
            if outcome is None:
                arrays.action[:], arrays.active[:] = action, todo
                outcome = self.batch.step(restart)
            self._heed(outcome, call)
            todo &= self._lost & ~self.out
            outcome = None
        if anew.any():
            self._cut(anew, before, restart, call)
        arrays.action[:], arrays.active[:] = action, active & ~self.out
        arrays.reward[active & self.out] = 0.0
        return anew & ~self.out

    def take_reasons(self) -> dict[int, str]:
        """Return replicates that were given up since this was last asked, and why."""
        if not self._reasons:
            return {}
        taken, self._reasons = self._reasons, {}
        return taken

    # ------------------------------------------------------------------ bringing back

    def _remember(self, openings: Sequence[Opening]) -> np.ndarray:
        slots = np.array([opening.slot for opening in openings], np.int64)
        self._openings |= {opening.slot: opening for opening in openings}
        self.out[slots] = False
        for replicate in np.unique(slots // self._each).tolist():
            self._reasons.pop(replicate, None)
        return slots

    def _return(self, slots: np.ndarray, was: np.ndarray, call: _Call) -> np.ndarray | None:
        """Open slots in their episodes and take their actions again.

        Returns:
            bool, which of them show what they showed; None if any was lost or given up on the way.
        """
        if not self._reopen(slots, 0, call):
            self._lost[slots] = True  # some of them are at the starts of their episodes
            return None

        def again() -> bool:
            outcome = self.batch.step(restart=False)
            self._heed(outcome, call)
            self._lost[slots] |= bool(outcome)  # they stand in the midst of their ways back
            return not outcome

        if not self.log.replay(self.batch.arrays, slots, again):
            return None
        shown, now = was[slots], self.batch.arrays.observation[slots]
        same = (now == shown) | ((now != now) & (shown != shown))
        return same.all(axis=tuple(range(1, same.ndim))) & (self.log.begun[slots] >= 0)

    def _begin(self, slots: np.ndarray, call: _Call) -> None:
        """Begin the episodes that the log names, until all are open or given up."""
        left = slots[~self.out[slots]]
        while len(left):
            self._reopen(left, 0, call)
            left = slots[self._lost[slots] & ~self.out[slots]]

    def _cut(self, anew: np.ndarray, before: np.ndarray, restart: bool, call: _Call) -> None:
        """Begin episodes in place of those that are lost, and say so in the arrays."""
        arrays, slots = self.batch.arrays, np.flatnonzero(anew)
        left = slots[~self.out[slots]]
        while len(left):
            self._reopen(left, int(restart), call)
            left = slots[self._lost[slots] & ~self.out[slots]]
        arrays.reward[slots], arrays.terminated[slots] = 0.0, False
        arrays.truncated[slots] = restart
        arrays.final[slots] = before[slots]
        self._warn(
            f"{len(slots)} environments do not repeat themselves and could not be brought back "
            "to where they were when a worker process ended; they begin new episodes"
        )

    def _reopen(self, slots: np.ndarray, later: int, call: _Call) -> bool:
        """Make environments anew in slots, `later` episodes behind those in the log.

        Returns:
            Whether all of them are open now.
        """
        openings = [
            replace(self._openings[slot], episode=int(self.log.episodes[slot]) + later, fresh=True)
            for slot in slots.tolist()
        ]
        self._lost[slots] = False
        try:
            self._heed(self.batch.open(openings), call)
        except ConfigError:  # it was made before; whose it is is seen one by one
            for opening in openings:
                try:
                    self._heed(self.batch.open([opening]), call)
                except ConfigError as error:
                    self._give_up(opening.slot // self._each, str(error))
        return not (self._lost[slots] | self.out[slots]).any()

    # ------------------------------------------------------------------ what went wrong

    def _heed(self, outcome: Outcome, call: _Call) -> None:
        """Take note of what was lost, and give up who is to blame for it twice.

        Raises:
            SearchError: processes end before they do anything.
        """
        if not outcome:
            return
        for slot, why in outcome.failed.items():
            self._give_up(slot // self._each, why)
        self._lost[list(outcome.lost)] = True
        for slot, how in outcome.blamed.items():
            replicate = slot // self._each
            call.ends[replicate] += 1
            if call.ends[replicate] >= _MOST_ENDS:
                self._give_up(replicate, _blame(how))
        for how in outcome.ended:
            self._warn(
                f"a worker process that steps environments {how}; another one takes its place"
            )
        call.blind += bool(outcome.ended) and not outcome.blamed
        if call.blind >= _MOST_BLIND_ENDS:
            raise SearchError(
                f"{_MOST_BLIND_ENDS} worker processes one after the other ended before they "
                f"stepped an environment; the last {outcome.ended[-1]}. What was committed is "
                "kept, and the same command goes on with it"
            )

    def _give_up(self, replicate: int, why: str) -> None:
        self._reasons.setdefault(replicate, why)
        slots = np.arange(replicate * self._each, (replicate + 1) * self._each)
        self.out[slots], self._lost[slots] = True, False
        self.log.rested(slots)


def _blame(how: str) -> str:
    return f"the worker process that stepped its environment {how}, twice over the same step"
