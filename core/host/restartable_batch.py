"""A batch whose environments are restored if their process ends or hangs.

Lost environments are reopened in another process, which replays the actions of their episodes and
then takes the requested step. A replicate is given up if its environment raises an error, or
crashes its process twice at the same step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ...errors import ConfigError, SearchError, counted
from .batch import Batch, CallOutcome, Opening, SharedArrays, Warn, unheard

LONGEST = 20_000  # number of steps kept; a longer episode restarts when a study is resumed


@dataclass(eq=False)
class ActionLog:
    actions: list[np.ndarray]  # [steps, N, ...] the last steps of all slots
    # int64 [N], steps taken since the last seed; -1: more than are kept
    steps_since_seed: np.ndarray
    episodes: np.ndarray  # int64 [N], number of the episode that the last seed started
    later: np.ndarray  # int64 [N], number of later episodes that started without a seed

    @classmethod
    def empty(cls, count: int) -> ActionLog:
        return cls([], *(np.zeros(count, np.int64) for _ in range(3)))

    @property
    def running(self) -> np.ndarray:
        """The number of each slot's running episode, int64 [N]."""
        return self.episodes + self.later

    def of(self, slots: np.ndarray) -> ActionLog:
        copies = (np.zeros_like(self.steps_since_seed), self.episodes.copy(), self.later.copy())
        found = ActionLog(list(self.actions), *copies)
        found.steps_since_seed[slots] = self.steps_since_seed[slots]
        return found

    def opened(self, slots: np.ndarray, episodes: np.ndarray | int = 0) -> None:
        self.steps_since_seed[slots], self.episodes[slots], self.later[slots] = 0, episodes, 0

    def stepped(self, arrays: SharedArrays) -> None:
        ended = arrays.active & (arrays.terminated | arrays.truncated)
        seeded = ended & ~arrays.continued
        self.later[ended] += 1
        self.episodes[seeded] = self.running[seeded]
        self.later[seeded] = 0
        going = arrays.active & (self.steps_since_seed >= 0)
        self.steps_since_seed[going] += 1
        self.steps_since_seed[seeded] = 0
        self.actions.append(arrays.action.copy())
        self.steps_since_seed[self.steps_since_seed > LONGEST] = -1
        kept = int(self.steps_since_seed.max(initial=0))
        if len(self.actions) > 2 * kept + 64:  # rarely, so the cost is negligible
            self.actions = self.actions[len(self.actions) - kept :]

    def rested(self, slots: np.ndarray) -> None:
        self.steps_since_seed[slots] = 0

    def kept(self, arrays: SharedArrays) -> np.ndarray:
        steps = int(self.steps_since_seed.max(initial=0))
        if not steps:
            return np.zeros((0, *arrays.action.shape), arrays.action.dtype)
        return np.stack(self.actions[-steps:])

    def take_over(self, slots: np.ndarray, sources: np.ndarray) -> None:
        for rows in (self.steps_since_seed, self.episodes, self.later):
            rows[slots] = rows[sources]
        for actions in self.actions:
            actions[slots] = actions[sources]

    def replay(self, batch: Batch, slots: np.ndarray, step: Callable[[], bool]) -> bool:
        arrays, steps = batch.arrays, len(self.actions)
        first = np.full(len(self.steps_since_seed), steps)
        first[slots] -= np.maximum(self.steps_since_seed[slots], 0)
        going = np.ones(len(first), bool)
        for number in range(int(first.min(initial=steps)), steps):
            arrays.action[:] = self.actions[number]
            arrays.active[:] = going & (number >= first)
            if not step():
                return False
            if not batch.continues:
                going &= ~(arrays.active & (arrays.terminated | arrays.truncated))
        return True


_MOST_ENDS = 2
_MOST_BLIND_ENDS = 3


@dataclass
class _Call:
    ends: Counter[int] = field(default_factory=Counter)  # per replicate
    blind: int = 0  # process ends outside any environment


class Steady:
    """A batch that restores lost environments; each replicate has `each` consecutive slots."""

    def __init__(self, batch: Batch, each: int, warn: Warn = unheard, keeps: bool = True):
        count = len(batch.arrays.active)
        self.batch, self._each, self._warn, self._keeps = batch, each, warn, keeps
        self.log = ActionLog.empty(count)
        self.out = np.zeros(count, bool)  # of replicates given up, until reopened
        self._reasons: dict[int, str] = {}
        self._lost = np.zeros(count, bool)
        self._openings: dict[int, Opening] = {}

    def open(self, openings: Sequence[Opening]) -> None:
        slots = self._remember_openings(openings)
        self.log.opened(slots, np.array([opening.episode for opening in openings], np.int64))
        self._lost[slots] = False
        call = _Call()
        self._handle_outcome(self.batch.open(openings), call)
        self._start_slots(slots[self._lost[slots]], call)

    def bring_back(self, openings: Sequence[Opening], observation: np.ndarray) -> np.ndarray:
        """Restore slots from logs; return those that restart because `observation` differs."""
        slots, call = self._remember_openings(openings), _Call()
        self._lost[slots] = True
        gone = np.zeros(len(self.out), bool)
        left = slots
        while len(left):
            restored = self._restore_slots(left, observation, call)
            if restored is not None:
                gone[left[~restored]] = True
            left = slots[self._lost[slots] & ~self.out[slots]]
        restarted = np.flatnonzero(gone & ~self.out)
        self.log.opened(restarted, self.log.running[restarted] + 1)
        self._start_slots(restarted, call)
        return restarted

    def step(self, restart: bool) -> np.ndarray:
        """Apply the actions in the arrays to all active slots, except those given up.

        Returns a mask [N] of the slots that lost an episode because it is not reproducible. With
        `restart`, such an episode counts as truncated: this step has reward 0, its observation is
        also the final one, and the next observation belongs to a new episode. Otherwise the
        episode starts again from its first observation.
        """
        arrays, outcome = self.batch.arrays, None
        before = arrays.observation
        if self.batch.may_lose:
            before = before.copy()
        gone = np.zeros(len(self.out), bool)
        if not (self._lost.any() or self.out.any()):
            outcome = self.batch.step(restart)
        if outcome is None or outcome:
            gone = self._retry_step(outcome, before, restart)
        if self._keeps:
            self.log.stepped(arrays)
        if gone.any() and not restart:
            slots = np.flatnonzero(gone)
            self.log.opened(slots, self.log.running[slots])
        return gone

    def _retry_step(
        self, outcome: CallOutcome | None, before: np.ndarray, restart: bool
    ) -> np.ndarray:
        """Step until every active slot has stepped, restarted or been given up."""
        arrays, call = self.batch.arrays, _Call()
        active, action = arrays.active & ~self.out, arrays.action.copy()
        gone, todo = np.zeros(len(active), bool), active.copy()
        while todo.any():
            lost = np.flatnonzero(todo & self._lost)
            if outcome is None and len(lost):
                restored = self._restore_slots(lost, before, call)
                if restored is not None:
                    gone[lost[~restored]] = True
                todo &= ~gone & ~self.out
                continue
            if outcome is None:
                arrays.action[:], arrays.active[:] = action, todo
                outcome = self.batch.step(restart)
            self._handle_outcome(outcome, call)
            todo &= self._lost & ~self.out
            outcome = None
        if gone.any():
            slots = np.flatnonzero(gone)
            self._start_slots(slots, call, int(restart))
            arrays.reward[slots], arrays.terminated[slots] = 0.0, False
            arrays.truncated[slots] = restart
            arrays.final[slots] = before[slots]
            self._warn(
                f"{counted(len(slots), 'non-reproducible environment')} could not be restored "
                "when a worker process ended; new episodes start instead"
            )
        arrays.action[:], arrays.active[:] = action, active & ~self.out
        arrays.reward[active & self.out] = 0.0
        return gone & ~self.out

    def take_reasons(self) -> dict[int, str]:
        taken, self._reasons = self._reasons, {}
        return taken

    def _remember_openings(self, openings: Sequence[Opening]) -> np.ndarray:
        slots = np.array([opening.slot for opening in openings], np.int64)
        self._openings |= {opening.slot: opening for opening in openings}
        self.out[slots] = False
        for replicate in np.unique(slots // self._each).tolist():
            self._reasons.pop(replicate, None)
        return slots

    def _restore_slots(self, slots: np.ndarray, was: np.ndarray, call: _Call) -> np.ndarray | None:
        """Reopen and replay slots; return which of them reproduce `was`; None if any was lost."""
        if not self._reopen_slots(slots, 0, call):
            self._lost[slots] = True  # some of them are back at the start of their episodes
            return None

        def again() -> bool:
            outcome = self.batch.step(restart=self.batch.continues)
            self._handle_outcome(outcome, call)
            self._lost[slots] |= bool(outcome)  # they are in the middle of the replay
            return not outcome

        if not self.log.replay(self.batch, slots, again):
            return None
        shown, now = was[slots], self.batch.arrays.observation[slots]
        same = (now == shown) | ((now != now) & (shown != shown))
        return same.all(axis=tuple(range(1, same.ndim))) & (self.log.steps_since_seed[slots] >= 0)

    def _start_slots(self, slots: np.ndarray, call: _Call, later: int = 0) -> None:
        left = slots[~self.out[slots]]
        while len(left):
            self._reopen_slots(left, later, call)
            left = slots[self._lost[slots] & ~self.out[slots]]

    def _reopen_slots(self, slots: np.ndarray, later: int, call: _Call) -> bool:
        openings = [
            replace(self._openings[slot], episode=int(self.log.episodes[slot]) + later, fresh=True)
            for slot in slots.tolist()
        ]
        self._lost[slots] = False
        try:
            self._handle_outcome(self.batch.open(openings), call)
        except ConfigError:  # find the slot by opening them one by one
            for opening in openings:
                try:
                    self._handle_outcome(self.batch.open([opening]), call)
                except ConfigError as error:
                    self._give_up(opening.slot // self._each, str(error))
        return not (self._lost[slots] | self.out[slots]).any()

    def _handle_outcome(self, outcome: CallOutcome, call: _Call) -> None:
        """Record lost slots; give up replicates that raised an error or ended a process twice."""
        for slot, why in outcome.failed.items():
            self._give_up(slot // self._each, why)
        self._lost[list(outcome.lost)] = True
        for slot, how in outcome.blamed.items():
            replicate = slot // self._each
            call.ends[replicate] += 1
            if call.ends[replicate] >= _MOST_ENDS:
                reason = f"the worker process that stepped its environment {how}"
                self._give_up(replicate, f"{reason}, twice at the same step")
        for how in outcome.ended:
            self._warn(f"a worker process that steps environments {how}; a new one replaces it")
        call.blind += bool(outcome.ended) and not outcome.blamed
        if call.blind >= _MOST_BLIND_ENDS:
            raise SearchError(
                f"{_MOST_BLIND_ENDS} worker processes in a row ended before they "
                f"stepped an environment; the last {outcome.ended[-1]}. All commits are "
                "safe; run the same command to resume"
            )

    def _give_up(self, replicate: int, why: str) -> None:
        self._reasons.setdefault(replicate, why)
        slots = np.arange(replicate * self._each, (replicate + 1) * self._each)
        self.out[slots], self._lost[slots] = True, False
        self.log.rested(slots)
