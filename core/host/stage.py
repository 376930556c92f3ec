"""The environments of a program's lanes; slot l * E + e contains environment e of lane l.

An environment's seeds are derived from its lane's key, so the environment depends only on (seed,
stream, replicate), its parameters and its actions.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import ConfigError, StoreError, counted
from ...files.atomic_files import write_bytes
from .batch import Batch, Opening, Warn, unheard
from .restartable_batch import ActionLog, Steady


def stream_words(key: np.ndarray, use: str, index: int) -> str:
    return f"{int(key[0]):08x}{int(key[1]):08x}/{use}/{index}"


class Stage:
    def __init__(self, batch: Batch, lanes: int, envs: int, warn: Warn = unheard):
        self.batch, self._shape, self._warn = batch, (lanes, envs), warn
        self._steady = Steady(batch, envs, warn)
        self._failed: dict[int, str] = {}
        self._open = np.zeros(lanes, bool)
        self.refused = np.zeros(lanes, bool)  # open, but values were refused or it failed
        self._values: dict[int, Mapping[str, Any]] = {}

    def lanes_view(self, rows: np.ndarray) -> np.ndarray:
        return rows.reshape((*self._shape, *rows.shape[1:]))

    @property
    def observation(self) -> np.ndarray:
        return self.lanes_view(self.batch.arrays.observation).copy()

    @property
    def final(self) -> np.ndarray:
        return self.lanes_view(self.batch.arrays.final).copy()

    def begin(self, values: Mapping[int, Mapping[str, Any]], keys: np.ndarray) -> None:
        """Start some lanes; a lane is marked `refused` if its environment rejects its values."""
        if not values:
            return
        lanes = np.fromiter(values, int)
        self._open[lanes], self.refused[lanes] = True, False
        self._values |= values
        for lane in values:
            self._failed.pop(lane, None)
        openings = {lane: self._openings_of_lane(lane, keys[lane]) for lane in values}
        try:
            self._steady.open([opening for part in openings.values() for opening in part])
        except ConfigError:  # find the lane by opening them one by one
            for lane, part in openings.items():
                try:
                    self._steady.open(part)
                except ConfigError as error:
                    self.refused[lane] = True
                    self._warn(f"a trial failed: {error}")
        self._note_failures()

    def _openings_of_lane(self, lane: int, key: np.ndarray) -> list[Opening]:
        return [self._episode_opening(lane, env, key, 0) for env in range(self._shape[1])]

    def _note_failures(self) -> None:
        reasons = self._steady.take_reasons()
        self._failed |= reasons
        self.refused[list(reasons)] = True

    def take_failures(self) -> dict[int, str]:
        taken, self._failed = self._failed, {}
        return taken

    def _slots_of_lanes(self, lanes: np.ndarray) -> np.ndarray:
        envs = self._shape[1]
        return (lanes[:, None] * envs + np.arange(envs)).reshape(-1)

    def _episode_opening(self, lane: int, env: int, key: np.ndarray, episode: int) -> Opening:
        slot, stream = lane * self._shape[1] + env, stream_words(key, "train", env)
        return Opening(slot, self._values[lane], stream, episode, fresh=True)

    def step(self, actions: np.ndarray, busy: np.ndarray) -> None:
        arrays = self.batch.arrays
        arrays.action[:] = actions.reshape(arrays.action.shape)
        arrays.active[:] = np.repeat(busy & self._open & ~self.refused, self._shape[1])
        self._steady.step(restart=True)
        self._note_failures()

    def rest(self, busy: np.ndarray) -> None:
        gone = np.flatnonzero(self._open & ~busy)
        self._open[gone] = False
        self._steady.log.rested(self._slots_of_lanes(gone))

    def save(self, path: Path) -> None:
        log, whole = self._steady.log, io.BytesIO()
        np.savez_compressed(
            whole,
            actions=log.kept(self.batch.arrays),
            begun=log.steps_since_seed,
            episodes=log.episodes,
            later=log.later,
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
        """Restore environments; return those [L, E] that started new episodes instead."""
        self._read_environments(path)
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
        """Continue lanes from the environments of `source` lanes [L], or with changed `values`.

        Environments cannot be copied, so the source's actions are replayed. Where that does not
        reproduce `observation` [L, E, ...], a new episode starts. Returns a mask [L, E] of these
        environments.
        """
        moved = source != np.arange(len(source))
        copied = np.flatnonzero(moved)
        sources = {lane: self._values.get(source[lane], {}) for lane in copied.tolist()}
        known = {**self._values, **sources}
        other = [lane for lane, given in values.items() if given != known.get(lane)]
        self._steady.log.take_over(
            self._slots_of_lanes(copied), self._slots_of_lanes(source[copied])
        )
        self._open, self.refused = self._open[source], self.refused[source]
        self._values = {**known, **values}
        moved[other] = True
        lanes = np.flatnonzero(moved & self._open & ~self.refused)
        lost = self._bring_back(lanes, keys, observation)
        self._say_lost(lost, np.setdiff1d(lanes, other))
        return lost

    def copy_of_lane(
        self, lane: int, batch: Batch, keys: np.ndarray, observation: np.ndarray
    ) -> tuple[Stage, np.ndarray]:
        """Return a stage with one lane copied to another batch, and the lost episodes [L, E]."""
        other, lanes = Stage(batch, *self._shape, self._warn), np.array([lane])
        other._steady.log = self._steady.log.of(self._slots_of_lanes(lanes))
        other._open[lane], other._values = True, {lane: self._values[lane]}
        return other, other._bring_back(lanes, keys, observation)

    def is_open(self, lane: int) -> bool:
        return bool(self._open[lane] and not self.refused[lane])

    def _say_lost(self, lost: np.ndarray, lanes: np.ndarray) -> None:
        count = int(lost[lanes].sum())
        if count:
            self._warn(
                f"{counted(count, 'non-reproducible environment')} of "
                f"{len(lanes) * self._shape[1]} could not be restored; new episodes start instead"
            )

    def _bring_back(
        self, lanes: np.ndarray, keys: np.ndarray, observation: np.ndarray
    ) -> np.ndarray:
        episodes, slots = self._steady.log.episodes, self._slots_of_lanes(lanes).tolist()
        lanes_envs = [divmod(slot, self._shape[1]) for slot in slots]
        lost = self._steady.bring_back(
            [
                self._episode_opening(lane, env, keys[lane], int(episodes[slot]))
                for slot, (lane, env) in zip(slots, lanes_envs, strict=True)
            ],
            observation.reshape(self.batch.arrays.observation.shape),
        )
        self._note_failures()
        mask = np.zeros(len(episodes), bool)
        mask[lost] = True
        return self.lanes_view(mask)

    def _read_environments(self, path: Path) -> None:
        try:
            whole = io.BytesIO(path.read_bytes())
            with np.load(whole, allow_pickle=False) as found:
                actions = list(found["actions"])
                steps_since_seed, episodes = found["begun"], found["episodes"]
                # older checkpoints have no `later`: every episode had a seed
                later = found["later"] if "later" in found else np.zeros_like(steps_since_seed)
                self._steady.log = ActionLog(actions, steps_since_seed, episodes, later)
                self._open, self.refused = found["open"], found["refused"]
        except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
            raise StoreError(f"the environments in {path} cannot be read: {error}") from error
        if self._open.shape != self._shape[:1]:
            raise StoreError(
                f"the environments in {path} were saved for a different number of lanes"
            )
