"""Commits and their reverse: rows, lanes and loop state go to the store together and come back.

When commits fall changes no result: what was not committed is run again, to the same bits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import StoreError, not_as_written
from ...files.atomic_files import link_folder, new_folder
from ...store.interim_analyses import looks_of
from ...store.rows import DecisionRow
from ...store.rows import Phase as StorePhase
from ...store.study_store import StudyStore
from ...studies.spec import Study
from ..lanes.contract import Population, PopulationFactory, Resolver
from ..samplers.registry import Past
from ..state.buckets import Bucket
from ..state.loop_state import BucketState, EndedTrial, LoopState
from ..state.search_state import Ledger
from ..state.trials import LIVE, Run, RunState, Trial

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


_SOONEST, _SHARE = 1.0, 0.05  # seconds to the second commit; of the time, for commits before 10 s


class Committer:
    """Commits when it is time.

    Args:
        store: of the study.
        ledger: what is to be written.
        buckets: whose lanes are to be saved.
        every_seconds: between two commits, at least; 0 commits at every boundary.
        soon: the first boundary is committed at once, and the times between commits grow from
            there, so that a life of seconds is not lost. A commit that takes long waits longer.
        shelf: the states of paused replicates, saved with the lanes.
    """

    def __init__(
        self,
        store: StudyStore,
        ledger: Ledger,
        buckets: dict[str, Bucket],
        every_seconds: float = 10.0,
        soon: bool = False,
        shelf: Shelf | None = None,
    ):
        self._store, self._ledger, self._buckets = store, ledger, buckets
        self._shelf = shelf
        self._every_seconds = every_seconds
        self._wait_seconds = 0.0 if soon else every_seconds
        self._last = time.monotonic()
        known = soon or store.head.number > 0
        self._boundary = ledger.state.boundary if known else -1  # of the last commit

    def commit_if_due(self) -> None:
        """Commit at the first boundary late enough after the last commit."""
        if self._ledger.state.boundary == self._boundary:
            return
        passed = time.monotonic() - self._last
        if not 0.0 <= passed < self._wait_seconds:  # a clock set back must not hold up commits
            self.commit()
            with self._ledger.state.usage.spending("store"):
                self._store.publish()

    def commit(self, phase: StorePhase = "running") -> None:
        """Write everything since the last commit, in one transaction with the lanes' state."""
        with self._ledger.state.usage.spending("store"):
            self._commit(phase)

    def _commit(self, phase: StorePhase) -> None:
        ledger, new = self._ledger, self._ledger.unwritten
        started = time.monotonic()
        ledger.state.note_buckets(
            BucketState(b.key, b.example, b.lanes, b.settled, b.offered)
            for b in self._buckets.values()
        )
        self._store.commit(
            loop_state=ledger.state.to_text(),
            checkpoint=self._save_lanes(),
            trials=[ledger.trials[number].row() for number in sorted(new.trials)],
            evaluations=new.evaluations,
            decisions=new.decisions,
            asks=new.asks,
            attributes=new.attributes,
            phase=phase,
        )
        ledger.written()
        self._boundary, self._last = ledger.state.boundary, time.monotonic()
        longer = max(_SOONEST, 2 * self._wait_seconds, (self._last - started) / _SHARE)
        self._wait_seconds = min(self._every_seconds, longer)

    def _save_lanes(self) -> str | None:
        """Save the lanes of every bucket that holds a replicate begun; give the folder's name.

        What is paused is saved beside them. Those of a run that may grow are kept after its end.
        """
        ended = self._ledger.state.ended
        begun = [
            (bucket, bucket.population)
            for bucket in self._buckets.values()
            if bucket.population is not None
            and (any(run.chunks for run in bucket.busy()) or _ended_in(ended, bucket))
        ]
        paused = self._shelf if self._shelf else None
        if not begun and paused is None:
            return None
        path = new_folder(self._store.new_checkpoint())
        if paused is not None:
            paused.save(path)
        for bucket, population in begun:
            population.save(path / bucket.key)
        return path.name


def restore_ledger(
    study: Study,
    store: StudyStore,
    clock: Callable[[], float],
    resolver: Resolver,
    earlier: Sequence[Past] = (),
) -> Ledger:
    """Rebuild what the loop knew at the last commit; a new study gives an empty ledger."""
    head = store.head
    state = LoopState() if head.number == 0 else LoopState.from_text(head.loop_state)
    decisions: dict[int, list[DecisionRow]] = {}
    for decision in store.journal.decisions():
        decisions.setdefault(decision.trial, []).append(decision)
    attributes: dict[int, dict[str, object]] = {}
    for row in store.journal.attributes():
        if row.trial is not None:
            attributes.setdefault(row.trial, {})[row.name] = row.value
    ended = [
        Trial.from_row(row, decisions.get(row.trial, []), attributes.get(row.trial, {}))
        for row in store.journal.trials()
        if row.state not in LIVE
    ]
    undecided = [
        number
        for number, trial in state.live.items()
        if trial.is_live and len(trial.reports) > len(decisions.get(number, []))
    ]
    return Ledger(
        study, state, ended, clock, resolver=resolver, earlier=earlier, undecided=undecided,
        looks=looks_of(store.journal.attributes()),
    )  # fmt: skip


def restore_buckets(
    ledger: Ledger, factory: PopulationFactory, checkpoint: Path | None
) -> dict[str, Bucket]:
    """Rebuild the buckets and put the lanes back as the last commit saved them.

    Raises:
        StoreError: the configurations fall into other buckets than they did.
    """
    buckets: dict[str, Bucket] = {}
    for entry in ledger.state.buckets:
        resolved = ledger.resolved_of(entry.example)
        if resolved.bucket != entry.key:
            raise StoreError(
                f"trial {entry.example} was compiled as {entry.key} when the study began and "
                f"would be {resolved.bucket} now; resume it with the earlier hpo, "
                "or start the study anew",
                new=True,
            )
        bucket = Bucket.of(ledger.study, resolved, entry.example)
        mine = [trial for trial in ledger.state.live.values() if trial.bucket == entry.key]
        runs = [run for trial in mine for run in trial.runs]
        bucket.lay_out(entry.lanes, entry.settled, runs, entry.offered)
        buckets[entry.key] = bucket
    ended = ledger.state.ended
    for bucket in buckets.values():
        if any(run.chunks for run in bucket.busy()) or _ended_in(ended, bucket):
            population = factory.make(bucket.resolved, bucket.lanes)
            population.restore(_saved(checkpoint, bucket.key))
            bucket.equip(population)
    return buckets


def _ended_in(ended: EndedTrial | None, bucket: Bucket) -> bool:
    return ended is not None and ended.trial.bucket == bucket.key


def _saved(checkpoint: Path | None, key: str) -> Path:
    if checkpoint is None or not (checkpoint / key).exists():
        where = f" in {checkpoint}" if checkpoint else ""
        raise not_as_written(f"the last commit has no lanes{where} of the program {key}")
    return checkpoint / key
