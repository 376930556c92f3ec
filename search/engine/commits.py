"""Commits rows, lanes and loop state together, and restores them.

Commit times do not affect results: uncommitted work is reproduced bit for bit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...errors import StoreError, not_as_written
from ...files.atomic_files import link_folder, new_folder
from ...store.interim_analyses import looks_of
from ...store.rows import LIVE, DecisionRow, Stream, counts_evaluations_alone
from ...store.rows import Phase as StorePhase
from ...store.study_store import StudyStore
from ...studies.spec import Study
from ..lanes.contract import Population, PopulationFactory, RunsAlone
from ..lanes.resolver import Resolver
from ..samplers.registry import PriorTrial
from ..state.buckets import Bucket
from ..state.loop_state import BucketState, LoopState
from ..state.search_state import SearchState
from ..state.trials import Replicate, RunState, Trial, lanes_of

_FOLDER = "paused"
_GOING_ON = (RunState.WAITING, RunState.RUNNING, RunState.PAUSED)


class PausedStates:
    """The lane states of paused replicates, by trial and replicate."""

    def __init__(
        self, search_state: SearchState, buckets: Mapping[str, Bucket], factory: PopulationFactory
    ):
        self._search_state, self._buckets, self._factory = search_state, buckets, factory
        # bucket, and either the state or the folder to which a commit wrote it
        self._kept: dict[tuple[int, int], tuple[str, Any]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def take(self, bucket: Bucket) -> None:
        paused = (run for run in bucket.busy() if run.state is RunState.PAUSED)
        runs = [run for run in paused if _replicate_key(run) not in self._kept]
        if not runs or bucket.population is None:
            return
        states = bucket.population.take(lanes_of(runs))
        for run, state in zip(runs, states, strict=True):
            self._kept[_replicate_key(run)] = bucket.key, state

    def put_back(self, bucket: Bucket, runs: Sequence[Replicate]) -> None:
        population, back = bucket.population, {run.lane: run for run in runs if run.kept}
        if not back or population is None:
            return
        population.put(
            {
                lane: (
                    self._kept_state(population, run),
                    self._search_state.resolved_of(run.trial),
                )
                for lane, run in back.items()
                if lane is not None
            }
        )
        for run in back.values():
            run.come_back()
            del self._kept[_replicate_key(run)]

    def forget(self) -> None:
        if self._kept:
            wanted = _buckets_of_kept(self._search_state)
            self._kept = {key: kept for key, kept in self._kept.items() if key in wanted}
            for bucket in self._buckets.values():
                if isinstance(bucket.population, RunsAlone):
                    bucket.population.keep_only(self._kept)

    def _kept_state(self, population: Population, run: Replicate) -> Any:
        _, kept = self._kept[_replicate_key(run)]
        if isinstance(kept, Path):
            return population.restore_state(kept)
        return kept

    def save(self, checkpoint: Path) -> None:
        """Write all states to a commit's folder; states from an earlier commit are linked."""
        folder = new_folder(checkpoint / _FOLDER)
        for key, (name, kept) in self._kept.items():
            path = folder / _state_name(key)
            if isinstance(kept, Path):
                link_folder(kept, path)
            else:
                bucket = self._buckets[name]  # after an error, a new population has the format
                lanes = bucket.population or self._factory.make(bucket.resolved, bucket.lanes)
                lanes.save_state(kept, path)
            self._kept[key] = name, path

    def restore(self, checkpoint: Path | None) -> None:
        """Find the states written by the last commit; each is read when needed."""
        for key, bucket in _buckets_of_kept(self._search_state).items():
            lacks = f"for trial {key[0]}, which is paused"
            if checkpoint is None:
                raise not_as_written(f"the last commit has no lane {lacks}")
            folder = checkpoint / _FOLDER / _state_name(key)
            if not folder.is_dir():
                raise not_as_written(f"the last commit has no lane in {folder} {lacks}")
            self._kept[key] = bucket, folder


def _buckets_of_kept(search_state: SearchState) -> dict[tuple[int, int], str]:
    """Return the bucket of each (trial, replicate) with a kept state."""
    return {
        _replicate_key(run): trial.bucket
        for trial in search_state.going_on()
        for run in trial.runs
        if run.kept and run.state in _GOING_ON
    }


def _replicate_key(run: Replicate) -> tuple[int, int]:
    return run.trial, run.replicate


def _state_name(key: tuple[int, int]) -> str:
    return f"{key[0]}-{key[1]}"


# seconds before the second commit; share of the time for commits before 10 s
_SOONEST, _SHARE = 1.0, 0.05


class Committer:
    """Decides when to commit, and commits.

    At least `every_seconds` pass between commits; with 0 there is one after every chunk. With
    `soon`, the first chunk is committed at once and the intervals grow to `every_seconds`, so
    that a short-lived process loses little work. A slow commit delays the next one.
    """

    def __init__(
        self,
        store: StudyStore,
        search_state: SearchState,
        buckets: dict[str, Bucket],
        *,
        every_seconds: float = 10.0,
        soon: bool = False,
        paused_states: PausedStates | None = None,
    ):
        self._store, self._search_state, self._buckets = store, search_state, buckets
        self._paused_states = paused_states
        self._every_seconds = every_seconds
        self._wait_seconds = every_seconds
        if soon:
            self._wait_seconds = 0.0
        self._last = time.monotonic()
        self._boundary = -1  # of the last commit
        if soon or store.head.number > 0:
            self._boundary = search_state.state.boundary

    def commit_if_due(self) -> None:
        if self._search_state.state.boundary == self._boundary:
            return
        passed = time.monotonic() - self._last
        # negative if the clock was set back, which must not delay commits
        if not 0.0 <= passed < self._wait_seconds:
            self.commit()
            with self._search_state.state.usage.spending("store"):
                self._store.publish()

    def commit(self, phase: StorePhase = "running") -> None:
        """Write everything since the last commit in one transaction, together with lane states."""
        search_state, new = self._search_state, self._search_state.unwritten
        started = time.monotonic()
        with search_state.state.usage.spending("store"):
            search_state.state.note_buckets(
                BucketState(b.key, b.example, b.lanes, b.lanes_fixed, b.offered)
                for b in self._buckets.values()
            )
            self._store.commit(
                loop_state=search_state.state.to_text(),
                checkpoint=self._save_lanes(),
                trials=[search_state.trials[number] for number in sorted(new.trials)],
                evaluations=new.evaluations,
                decisions=new.decisions,
                asks=new.asks,
                attributes=new.attributes,
                phase=phase,
                restarted=new.restarted,
            )
        search_state.written()
        self._boundary, self._last = search_state.state.boundary, time.monotonic()
        longer = max(_SOONEST, 2 * self._wait_seconds, (self._last - started) / _SHARE)
        self._wait_seconds = min(self._every_seconds, longer)

    def _save_lanes(self) -> str | None:
        """Save the lanes of every bucket with a started replicate; return the folder's name."""
        started = [
            (bucket, bucket.population)
            for bucket in self._buckets.values()
            if bucket.population is not None and _has_state(self._search_state, bucket)
        ]
        if not (started or self._paused_states):
            return None
        path = new_folder(self._store.new_checkpoint())
        if self._paused_states:
            self._paused_states.save(path)
        for bucket, population in started:
            population.save(path / bucket.key)
        return path.name


def restore_search_state(
    study: Study,
    store: StudyStore,
    clock: Callable[[], float],
    resolver: Resolver,
    earlier: Sequence[PriorTrial] = (),
) -> SearchState:
    """Rebuild the search state from the last commit; a new study gets an empty one."""
    head = store.head
    state = LoopState()
    if head.number > 0:
        state = LoopState.from_text(head.loop_state)
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
    alone = counts_evaluations_alone(store.journal.attributes())
    search_state = SearchState(
        study,
        state,
        ended,
        clock,
        resolver=resolver,
        earlier=earlier,
        undecided=undecided,
        looks=looks_of(store.journal.attributes()),
        evaluations_alone=alone,
    )
    if study.metric.training_weight and study.search.driver == "ray_tune" and not head.number:
        search_state.count_evaluations_alone()  # its scheduler keeps the values that it was told
    if study.metric.training_weight:
        _restore_evaluations(search_state, store, ended, alone)
    return search_state


def _restore_evaluations(
    search_state: SearchState, store: StudyStore, ended: Sequence[Trial], alone: bool
) -> None:
    """Read evaluation-only values; earlier decisions keep the values they were based on."""
    objective = search_state.objective.of_test
    for row in store.journal.evaluations(without=Stream.REPORT):
        search_state.alone.see(row, objective.measure(row))
    if not alone:
        return
    for trial in ended:
        trial.take_reports(search_state.reports_alone(trial))


def restore_buckets(
    search_state: SearchState, factory: PopulationFactory, checkpoint: Path | None
) -> dict[str, Bucket]:
    """Rebuild the buckets, and restore their lanes from the last commit."""
    buckets: dict[str, Bucket] = {}
    for entry in search_state.state.buckets:
        resolved = search_state.resolved_of(entry.example)
        if resolved.bucket != entry.key:
            raise StoreError(
                f"trial {entry.example} was compiled as {entry.key} when the study started, but "
                f"would now be compiled as {resolved.bucket}; resume the study with the version "
                "of hpo that compiled it, or start another study",
                new=True,
            )
        bucket = Bucket.of(search_state.study, resolved, entry.example)
        runs = [run for trial in search_state.live_in(entry.key) for run in trial.runs]
        bucket.lay_out(entry.lanes, entry.settled, runs, entry.offered)
        buckets[entry.key] = bucket
    for key, bucket in buckets.items():
        if _has_state(search_state, bucket):
            population = factory.make(bucket.resolved, bucket.lanes)
            if checkpoint is None:
                raise not_as_written(f"the last commit has no lanes for the program {key}")
            if not (checkpoint / key).exists():
                raise not_as_written(
                    f"the last commit has no lanes in {checkpoint} for the program {key}"
                )
            population.restore(checkpoint / key)
            bucket.equip(population)
    return buckets


def _has_state(search_state: SearchState, bucket: Bucket) -> bool:
    """Return whether lanes contain a started replicate, or a run that may be extended."""
    ended = search_state.state.ended
    started = any(run.chunks for run in bucket.busy())
    return started or (ended is not None and ended.trial.bucket == bucket.key)
