"""Training states of replicates that are paused: taken from their lanes, and put back into lanes.

A state is in memory until the next commit writes it into its folder, from where it is read when
its trial goes on. Later commits link the same file, so that each state is written once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...disk import link_folder, new_folder
from ...errors import not_as_written
from ..book.buckets import Bucket
from ..book.ledger import Ledger
from ..book.runs import Run, RunState
from ..lanes.contract import Population, PopulationFactory

__all__ = ["Shelf"]

_FOLDER = "paused"
_GOING_ON = (RunState.WAITING, RunState.RUNNING, RunState.PAUSED)


@dataclass
class _Kept:
    """A state: as `Population.take` gave it, or where `Population.save_state` wrote it.

    Attributes:
        bucket: its key.
        state: None once it is written.
        folder: None before that.
    """

    bucket: str
    state: Any = None
    folder: Path | None = None

    def written(self, folder: Path) -> None:
        """Be in a folder from here on."""
        self.state, self.folder = None, folder


class Shelf:
    """The states of one study, by trial and replicate.

    Args:
        ledger: says who is paused.
        buckets: whose populations write and read states.
        factory: makes a population that does, where a bucket has none.
    """

    def __init__(self, ledger: Ledger, buckets: Mapping[str, Bucket], factory: PopulationFactory):
        self._ledger, self._buckets, self._factory = ledger, buckets, factory
        self._kept: dict[tuple[int, int], _Kept] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def take(self, bucket: Bucket) -> None:
        """Take what the lanes of a bucket hold of replicates that are paused.

        Raises:
            ConfigError: lanes of this kind cannot be moved.
        """
        runs = [
            run
            for run in bucket.busy()
            if run.state is RunState.PAUSED and _key(run) not in self._kept
        ]
        if not runs or bucket.population is None:
            return
        states = bucket.population.take([run.lane for run in runs if run.lane is not None])
        for run, state in zip(runs, states, strict=True):
            self._kept[_key(run)] = _Kept(bucket.key, state)

    def put_back(self, bucket: Bucket, runs: Sequence[Run]) -> None:
        """Let the replicates of some that were paused go on in their lanes.

        Args:
            bucket: theirs, with a population.
            runs: in lanes.

        Raises:
            StoreError: what a commit wrote cannot be read.
        """
        back = [run for run in runs if run.kept]
        if not back or bucket.population is None:
            return
        bucket.population.put(
            {
                run.lane: (
                    self._state(bucket.population, run),
                    self._ledger.resolved_of(run.trial),
                )
                for run in back
                if run.lane is not None
            }
        )
        for run in back:
            run.come_back()
            del self._kept[_key(run)]

    def forget(self) -> None:
        """Let the states go of replicates that have ended."""
        if not self._kept:
            return
        wanted = _wanted(self._ledger)
        self._kept = {key: kept for key, kept in self._kept.items() if key in wanted}

    def _state(self, population: Population, run: Run) -> Any:
        kept = self._kept[_key(run)]
        return kept.state if kept.folder is None else population.restore_state(kept.folder)

    def _population_of(self, bucket: Bucket) -> Population:
        """Return the population of a bucket; one that an error took is made for its format."""
        return bucket.population or self._factory.make(bucket.resolved, bucket.lanes)

    # ------------------------------------------------------------------ commits

    def save(self, checkpoint: Path) -> None:
        """Write all states into the folder of a commit, those that an earlier one has as links.

        Raises:
            StoreError: the disk refuses.
        """
        folder = new_folder(checkpoint / _FOLDER)
        for key, kept in self._kept.items():
            path = folder / _name(key)
            if kept.folder is not None:
                link_folder(kept.folder, path)
            else:
                self._population_of(self._buckets[kept.bucket]).save_state(kept.state, path)
            kept.written(path)

    def restore(self, checkpoint: Path | None) -> None:
        """Find the states that the last commit wrote; they are read when they are needed.

        Raises:
            StoreError: one is missing.
        """
        for key, bucket in _wanted(self._ledger).items():
            folder = None if checkpoint is None else checkpoint / _FOLDER / _name(key)
            if folder is None or not folder.is_dir():
                where = "" if folder is None else f" in {folder}"
                raise not_as_written(
                    f"the last commit has no lane{where} of trial {key[0]}, which is paused"
                )
            self._kept[key] = _Kept(bucket, folder=folder)


def _wanted(ledger: Ledger) -> dict[tuple[int, int], str]:
    """Return trial and replicate -> bucket of all whose state is kept."""
    return {
        _key(run): trial.bucket
        for trial in ledger.going_on()
        for run in trial.runs
        if run.kept and run.state in _GOING_ON
    }


def _key(run: Run) -> tuple[int, int]:
    return run.trial, run.replicate


def _name(key: tuple[int, int]) -> str:
    return f"{key[0]}-{key[1]}"
