"""The environments of all lanes of a program: E slots a lane, opened, stepped, brought back.

Slot l E + e is environment e of lane l. Its seeds follow from the lane's key, so that what it does
depends on nothing but (seed, stream, replicate), its parameters and the actions it is given.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import ConfigError, StoreError
from ...files.atomic_files import write_bytes
from .batch import Opening, TimedBatch
from .restartable_batch import ActionLog, Steady


def stream_words(key: np.ndarray, use: str, index: int) -> str:
    """Name the random numbers of one environment by its lane's raw key."""
    return f"{int(key[0]):08x}{int(key[1]):08x}/{use}/{index}"


class Stage:
    """The environments of L lanes with E each.

    Args:
        batch: of L E slots.
        lanes: L.
        envs: E.
        warn: takes a line about what went wrong with some environments.

    Attributes:
        refused: bool [L], lanes without environments: theirs refused its values, or failed.
    """

    def __init__(
        self,
        batch: TimedBatch,
        lanes: int,
        envs: int,
        warn: Callable[[str], None] = lambda text: None,
    ):
        self.batch, self._shape, self._warn = batch, (lanes, envs), warn
        self._steady = Steady(batch, envs, warn)
        self._failed: dict[int, str] = {}
        self._open = np.zeros(lanes, bool)
        self.refused = np.zeros(lanes, bool)
        self._values: dict[int, Mapping[str, Any]] = {}

    def lanes_view(self, rows: np.ndarray) -> np.ndarray:
        """Return rows of slots as [L, E, ...]."""
        return rows.reshape((*self._shape, *rows.shape[1:]))

    @property
    def observation(self) -> np.ndarray:
        """What to act on next, [L, E, ...]; a copy."""
        return self.lanes_view(self.batch.arrays.observation).copy()

    @property
    def final(self) -> np.ndarray:
        """The last observation of each episode that ended in this step, [L, E, ...]; a copy."""
        return self.lanes_view(self.batch.arrays.final).copy()

    def begin(self, values: Mapping[int, Mapping[str, Any]], keys: np.ndarray) -> None:
        """Begin anew in some lanes; a lane whose environment refuses its values is `refused`.

        Args:
            values: lane -> arguments of its environments' constructor.
            keys: raw keys of all lanes, uint32 [L, 2].
        """
        if not values:
            return
        lanes = np.fromiter(values, int)
        self._open[lanes], self.refused[lanes] = True, False
        self._values |= values
        for lane in values:
            self._failed.pop(lane, None)
        openings = {
            lane: [self._opening(lane, env, given, keys[lane], fresh=True) for env in self._envs]
            for lane, given in values.items()
        }
        try:
            self._steady.open([opening for part in openings.values() for opening in part])
        except ConfigError:  # whose it was is seen one by one
            for lane, part in openings.items():
                self._try(lane, part)
        self._note_failures()

    def _try(self, lane: int, openings: Sequence[Opening]) -> None:
        try:
            self._steady.open(openings)
        except ConfigError as error:
            self.refused[lane] = True
            self._warn(f"a trial is given up: {error}")

    def _note_failures(self) -> None:
        """Let lanes rest from now on whose environments failed."""
        reasons = self._steady.take_reasons()
        self._failed |= reasons
        self.refused[list(reasons)] = True

    def take_failures(self) -> dict[int, str]:
        """Return lanes whose environments failed since this was last asked, and why."""
        taken, self._failed = self._failed, {}
        return taken

    @property
    def _envs(self) -> range:
        return range(self._shape[1])

    def _slots(self, lanes: np.ndarray) -> np.ndarray:
        envs = self._shape[1]
        return (lanes[:, None] * envs + np.arange(envs)).reshape(-1)

    def _opening(
        self, lane: int, env: int, values: Mapping[str, Any], key: np.ndarray,
        episode: int = 0, fresh: bool = False,
    ) -> Opening:  # fmt: skip
        slot = lane * self._shape[1] + env
        return Opening(slot, values, stream_words(key, "train", env), episode, fresh)

    def step(self, actions: np.ndarray, busy: np.ndarray) -> None:
        """Take one action [L, E, ...] in every environment of the busy lanes [L]."""
        arrays = self.batch.arrays
        arrays.action[:] = actions.reshape(arrays.action.shape)
        arrays.active[:] = np.repeat(busy & self._open & ~self.refused, self._shape[1])
        self._steady.step(restart=True)
        self._note_failures()

    def rest(self, busy: np.ndarray) -> None:
        """Forget what runs in lanes that are not busy [L]."""
        gone = np.flatnonzero(self._open & ~busy)
        self._open[gone] = False
        self._steady.log.rested(self._slots(gone))

    # ------------------------------------------------------------------ on disk

    def save(self, path: Path) -> None:
        """Write what brings the environments back to where they are."""
        log, whole = self._steady.log, io.BytesIO()
        np.savez_compressed(
            whole,
            actions=log.kept(self.batch.arrays),
            begun=log.begun,
            episodes=log.episodes,
            open=self._open,
            refused=self.refused,
        )
        write_bytes(path, whole.getvalue())

    def restore(
        self,
        path: Path,
        values: Callable[[int], Mapping[str, Any]],
        keys: np.ndarray,
        observation: np.ndarray,
    ) -> np.ndarray:
        """Bring the environments back; where one does not repeat itself an episode begins.

        Args:
            path: written by `save`.
            values: gives the arguments of a lane's environments.
            keys: raw keys of all lanes, uint32 [L, 2].
            observation: [L, E, ...] as it was; what comes back must show the same.

        Returns:
            bool [L, E], environments that began a new episode instead.

        Raises:
            StoreError: the file is missing or damaged.
        """
        self._read(path)
        lanes = np.flatnonzero(self._open & ~self.refused)
        self._values = {lane: values(lane) for lane in lanes.tolist()}
        lost = self._bring_back(lanes, keys, observation)
        self._say_lost(lost, lanes)
        return lost

    def change(
        self,
        source: np.ndarray,
        values: Mapping[int, Mapping[str, Any]],
        keys: np.ndarray,
        observation: np.ndarray,
    ) -> np.ndarray:
        """Let lanes go on with the environments of other lanes, or with other values.

        Environments cannot be copied: they are brought to where those of the source are by its
        actions. Where other values lead elsewhere, a new episode begins.

        Args:
            source: int [L], the lane each lane takes over; its own number where it keeps its own.
            values: lane -> arguments of its environments from here on, where these may differ.
            keys: raw keys of all lanes after the change, uint32 [L, 2].
            observation: [L, E, ...] of all lanes after the change.

        Returns:
            bool [L, E], environments that began a new episode.
        """
        moved = source != np.arange(len(source))
        known = {
            **self._values,
            **{lane: self._values.get(source[lane], {}) for lane in _where(moved)},
        }
        other = [lane for lane, given in values.items() if given != known.get(lane)]
        copied = np.flatnonzero(moved)
        self._steady.log.take_over(self._slots(copied), self._slots(source[copied]))
        self._open, self.refused = self._open[source], self.refused[source]
        self._values = {**known, **values}
        moved[other] = True
        lanes = np.flatnonzero(moved & self._open & ~self.refused)
        lost = self._bring_back(lanes, keys, observation)
        self._say_lost(lost, np.setdiff1d(lanes, other))
        return lost

    def beside(
        self, lane: int, batch: TimedBatch, keys: np.ndarray, observation: np.ndarray
    ) -> tuple[Stage, np.ndarray]:
        """Bring environments of their own to where those of one lane are; these stay as they are.

        Args:
            lane: whose environments are open.
            batch: of as many slots as that of this stage, none of them open.
            keys: raw keys of all lanes, uint32 [L, 2].
            observation: [L, E, ...] of all lanes.

        Returns:
            A stage in which that lane alone is open, and bool [L, E], environments that do not
            repeat themselves and began a new episode.
        """
        other, lanes = Stage(batch, *self._shape, self._warn), np.array([lane])
        other._steady.log = self._steady.log.of(self._slots(lanes))
        other._open[lane], other._values = True, {lane: self._values[lane]}
        return other, other._bring_back(lanes, keys, observation)

    def is_open(self, lane: int) -> bool:
        """Return whether a lane has environments."""
        return bool(self._open[lane] and not self.refused[lane])

    def _say_lost(self, lost: np.ndarray, lanes: np.ndarray) -> None:
        """Warn how many environments of lanes that should have come back did not."""
        count = int(lost[lanes].sum())
        if count:
            self._warn(
                f"{count} of {len(lanes) * self._shape[1]} environments do not repeat themselves "
                "and could not be brought back to where they were; they begin new episodes"
            )

    def _bring_back(
        self, lanes: np.ndarray, keys: np.ndarray, observation: np.ndarray
    ) -> np.ndarray:
        """Open lanes anew and take their actions again; return those that begin anew, [L, E]."""
        pairs = [divmod(slot, self._shape[1]) for slot in self._slots(lanes).tolist()]
        episodes = self._steady.log.episodes
        lost = self._steady.bring_back(
            [
                self._opening(
                    lane, env, self._values[lane], keys[lane],
                    int(episodes[lane * self._shape[1] + env]), fresh=True,
                )
                for lane, env in pairs
            ],
            observation.reshape(self.batch.arrays.observation.shape),
        )  # fmt: skip
        self._note_failures()
        mask = np.zeros(len(episodes), bool)
        mask[lost] = True
        return self.lanes_view(mask)

    def _read(self, path: Path) -> None:
        try:
            whole = io.BytesIO(path.read_bytes())
            with np.load(whole, allow_pickle=False) as found:
                actions = list(found["actions"])
                self._steady.log = ActionLog(actions, found["begun"], found["episodes"])
                self._open, self.refused = found["open"], found["refused"]
        except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
            raise StoreError(f"the environments of {path} cannot be read: {error}") from error
        if self._open.shape != self._shape[:1]:
            raise StoreError(f"the environments of {path} are of another number of lanes")


def _where(mask: np.ndarray) -> list[int]:
    return np.flatnonzero(mask).tolist()
