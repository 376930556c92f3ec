"""Batches of simulators that step many environments per call: EnvPool, ALE, `gym-vec:...`.

They behave like `LocalBatch`: the step that ends an episode returns its last observation as
`final`, and the next observation to act on belongs to a new episode. Seeding a simulator is slow
(ALE reloads its game) or possible only once (EnvPool), so new episodes continue the same random
stream; see `SharedArrays.continued`. If a simulator accepts further seeds, it is reseeded at the
first game over after `RESEED_AFTER` steps, so that at most that many steps are replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ...environments.hosted import Answers, Simulator, backend_of, is_simulated
from ...errors import HpoError, format_error, is_interrupt
from .batch import (
    Batch,
    BatchMaker,
    CallOutcome,
    Infos,
    LocalBatch,
    Opening,
    SharedArrays,
    SpaceCode,
    episode_seed,
)

RESEED_AFTER = 5_000  # env steps of a slot


@dataclass(frozen=True, eq=False)
class _Home:
    """The location of a slot's environment."""

    simulator: Simulator
    row: int


@dataclass(frozen=True, eq=False)
class _Part:
    """The active slots of one simulator, in ascending order of rows."""

    simulator: Simulator
    slots: np.ndarray
    rows: np.ndarray


class VectorBatch:
    may_lose = False
    continues = True

    def __init__(self, id_: str, code: SpaceCode, count: int):
        self.arrays = SharedArrays.over(code, count, bytearray(SharedArrays.size_of(code, count)))
        self._id, self._code, self._backend = id_, code, backend_of(id_)
        self._homes: dict[int, _Home] = {}
        self._openings: dict[int, Opening] = {}
        self._episodes = np.zeros(count, np.int64)
        self._since = np.zeros(count, np.int64)  # steps since the last seed
        self._parts: tuple[_Part, ...] = ()
        self._parts_of = np.zeros(0, bool)  # the value of `active` for which `_parts` was computed
        self._answered: list[tuple[np.ndarray, Answers]] = []  # slots and their last answers
        self._calls = 0

    @property
    def said(self) -> Infos:
        said: dict[int, dict[str, float]] = {}
        for slots, answers in self._answered:
            for at, slot in enumerate(slots.tolist()):
                said[slot] = {name: float(row[at]) for name, row in answers.info.items()}
        return said

    def open(self, openings: Sequence[Opening]) -> CallOutcome:
        failed: dict[int, str] = {}
        for group in self._group_openings(openings):
            slots = np.array([opening.slot for opening in group])
            self._call_guarded(
                slots, failed, lambda group=group, slots=slots: self._open_group(group, slots)
            )
        return CallOutcome(failed)

    def _group_openings(self, openings: Sequence[Opening]) -> list[list[Opening]]:
        """Group the openings that share a simulator."""
        found: dict[object, list[Opening]] = {}
        for opening in sorted(openings, key=lambda one: one.slot):
            lane = opening.stream.rpartition("/")[0]
            key = {"call": "", "lane": lane, "slot": opening.slot}[self._backend.together]
            found.setdefault(key, []).append(opening)
        return list(found.values())

    def _open_group(self, group: Sequence[Opening], slots: np.ndarray) -> None:
        seeds = np.array([episode_seed(one.stream, one.episode) for one in group])
        simulator = self._reusable_simulator(group)
        if simulator is None:
            self._release_slots(slots)
            simulator = self._backend.make(self._id, dict(group[0].values), len(group))
            self._homes |= {
                int(slot): _Home(simulator, row) for row, slot in enumerate(slots.tolist())
            }
            self._parts_of = np.zeros(0, bool)
        first = simulator.start(seeds)
        self._openings |= {one.slot: one for one in group}
        self._episodes[slots] = [one.episode for one in group]
        self._since[slots] = 0
        self._write_observations(slots, first, np.ones(len(slots), bool))

    def _reusable_simulator(self, group: Sequence[Opening]) -> Simulator | None:
        """Return the simulator of a single slot if it accepts another seed, else None."""
        before = self._openings.get(group[0].slot)
        home = self._homes.get(group[0].slot)
        if not self._backend.reseeds or before is None or home is None:
            return None
        if dict(before.values) != dict(group[0].values):
            return None
        return home.simulator

    def step(self, restart: bool) -> CallOutcome:
        failed: dict[int, str] = {}
        actions = np.asarray(self._code.actions(self.arrays.action), self._code.action_dtype)
        parts = self._active_parts()
        self._answered = []
        for part in parts:  # all simulators run at the same time
            self._call_guarded(
                part.slots,
                failed,
                lambda part=part: part.simulator.send(part.rows, actions[part.slots]),
            )
        for part in parts:
            if part.slots[0] not in failed:
                self._call_guarded(
                    part.slots, failed, lambda part=part: self._receive_answers(part, restart)
                )
        return CallOutcome(failed)

    def _active_parts(self) -> tuple[_Part, ...]:
        active = self.arrays.active
        if not np.array_equal(active, self._parts_of):
            slots: dict[Simulator, list[int]] = {}
            for slot in np.flatnonzero(active).tolist():
                if slot in self._homes:
                    slots.setdefault(self._homes[slot].simulator, []).append(slot)
            self._parts = tuple(
                self._part_of(one, part_slots) for one, part_slots in slots.items()
            )
            self._parts_of = active.copy()
        return self._parts

    def _part_of(self, simulator: Simulator, slots: list[int]) -> _Part:
        ordered = sorted(slots, key=lambda slot: self._homes[slot].row)
        rows = np.array([self._homes[slot].row for slot in ordered])
        return _Part(simulator, np.array(ordered), rows)

    def _receive_answers(self, part: _Part, restart: bool) -> None:
        arrays, slots = self.arrays, part.slots
        answers = part.simulator.receive()
        ended = answers.terminated | answers.truncated
        arrays.reward[slots] = answers.reward
        arrays.terminated[slots], arrays.truncated[slots] = answers.terminated, answers.truncated
        self._since[slots] += 1
        self._answered.append((slots, answers))
        self._write_observations(slots, answers.observation, np.zeros(len(slots), bool))
        if ended.any():
            arrays.final[slots[ended]] = arrays.observation[slots[ended]]
            if restart:
                self._restart_ended(part, answers, ended)

    def _restart_ended(self, part: _Part, answers: Answers, ended: np.ndarray) -> None:
        """Start new episodes in the ended rows, bool [n]."""
        slots, rows = part.slots[ended], part.rows[ended]
        self._episodes[slots] += 1
        seeded = np.zeros(len(slots), bool)
        if answers.next_observation is not None:
            first = answers.next_observation[ended]
        elif self._takes_seed(slots, answers, ended):
            opening = self._openings[int(slots[0])]
            seed = episode_seed(opening.stream, int(self._episodes[slots[0]]))
            first, seeded[:] = part.simulator.start(np.array([seed])), True
        else:
            first = part.simulator.restart(rows)
        self.arrays.continued[slots] = ~seeded
        self._since[slots[seeded]] = 0
        self._write_observations(slots, first, np.ones(len(slots), bool))

    def _takes_seed(self, slots: np.ndarray, answers: Answers, ended: np.ndarray) -> bool:
        """Return whether a simulator with a single row may be seeded again."""
        if not self._backend.reseeds or self._since[slots[0]] < RESEED_AFTER:
            return False
        return answers.game_continues is None or not bool(answers.game_continues[ended][0])

    def _write_observations(
        self, slots: np.ndarray, raw: np.ndarray, is_first: np.ndarray
    ) -> None:
        """Append observations to their stacks, which are cleared first where `is_first`."""
        rows, encoded = self.arrays.observation, self._code.observed_rows(np.asarray(raw))
        if self._code.history == 1:
            rows[slots] = encoded
            return
        stacks = rows[slots]
        stacks[:, :-1] = stacks[:, 1:]
        stacks[is_first] = 0
        stacks[:, -1] = encoded
        rows[slots] = stacks

    def _call_guarded(
        self, slots: np.ndarray, failed: dict[int, str], call: Callable[[], None]
    ) -> None:
        """Call a simulator; if it raises, mark all its slots as failed."""
        inside = self.arrays.inside
        self._calls = self._calls % (2**31 - 2) + 1
        inside[slots] = self._calls
        try:
            call()
        except HpoError:
            raise
        except BaseException as error:  # the other simulators continue
            if is_interrupt(error):
                raise
            failed |= dict.fromkeys(slots.tolist(), format_error(error))
            self._release_slots(slots)
        finally:
            inside[slots] = 0

    def _release_slots(self, slots: np.ndarray) -> None:
        """Drop the environments of some slots, and close simulators that have no slots left."""
        gone = [self._homes.pop(slot) for slot in slots.tolist() if slot in self._homes]
        self._parts_of = np.zeros(0, bool)
        left = {home.simulator for home in self._homes.values()}
        for simulator in {home.simulator for home in gone} - left:
            simulator.close()

    def close(self) -> None:
        self._release_slots(np.array(sorted(self._homes), np.int64))


def local_batch(id_: str, code: SpaceCode, count: int) -> Batch:
    """Make a batch that is stepped by this process."""
    if is_simulated(id_):
        return VectorBatch(id_, code, count)
    return LocalBatch(id_, code, count)


def make_batch(
    id_: str, code: SpaceCode, count: int, workers: BatchMaker | None, tells: bool = False
) -> Batch:
    if workers is None:
        return local_batch(id_, code, count)
    return workers.batch(id_, code, count, tells)
