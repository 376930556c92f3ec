"""Lanes driven by an external scheduler: trials step together, and end when it decides.

Each chunk waits until all its trials have requested it, so that they can run as lanes of one
program. Rows, budget, divergence and policies work as in every study. The scheduler's decisions
are recorded as rungs, one per evaluation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import starmap
from typing import Any

from ...errors import ConfigError, HpoError, SearchError, counted, format_error_if_own
from ...files.atomic_files import has_refused
from ...store.rows import AskRow, AttributeRow, EvaluationRow, Stream, TrialState
from ..engine.engine import Engine, Outcome
from ..engine.finish_trials import close_search, finish_trials
from ..engine.interrupts import Interrupts
from ..lanes.contract import Population
from ..state.buckets import Bucket
from ..state.search_state import SearchState
from ..state.trials import Replicate, RunState, Segment, Trial, cut, in_state, lineage_of
from .desk import Desk, DeskRequest, Reports, Waiting

_KEPT = 4  # number kept: another trial may request a state after its trial has continued or ended


@dataclass(frozen=True)
class _Kept:
    trial: int
    params: Mapping[str, Any]  # with which it was trained
    way: tuple[Segment, ...]  # its lineage
    runs: tuple[Replicate, ...]  # copies of its replicates
    states: Mapping[int, Any]  # replicate -> state of its lane, except diverged replicates


class KeptStates:
    """A study's kept states, by name."""

    def __init__(self, search_state: SearchState):
        self._search_state = search_state
        self._kept: dict[str, _Kept] = {}
        self._count = 0

    def keep(self, number: int, bucket: Bucket) -> str:
        trial = self._search_state.trials[number]
        runs = trial.runs_of(Stream.SEARCH)
        lanes = {
            run.replicate: run.lane
            for run in runs
            if run.lane is not None and run.state is RunState.RUNNING
        }
        states: Mapping[int, Any] = {}
        if lanes and bucket.population is not None:
            found = bucket.population.take(list(lanes.values()))
            states = dict(zip(lanes, found, strict=True))
        self._count += 1
        name = f"{number}-{self._count}"
        copies = tuple(Replicate(run.trial, run.stream, run.replicate) for run in runs)
        for copy, run in zip(copies, runs, strict=True):
            copy.adopt(run)
        self._kept[name] = _Kept(number, dict(trial.params), lineage_of(trial), copies, states)
        own = [key for key, kept in self._kept.items() if kept.trial == number]
        for key in own[:-_KEPT]:
            del self._kept[key]
        return name

    def has(self, number: int, chunks: int) -> bool:
        own = [kept.runs for kept in self._kept.values() if kept.trial == number]
        return any(run.chunks == chunks for runs in own for run in runs)

    def adopt(
        self,
        trial: Trial,
        bucket: Bucket,
        request: DeskRequest,
        room: Callable[[Bucket, int], None],
    ) -> int | None:
        """Make a trial resume from a kept state; if it copies another trial, return that trial."""
        kept = self._kept.get(request.state or "")
        if kept is None or bucket.population is None:
            raise SearchError(
                f"Ray Tune requests a state of trial {trial.number} that no longer exists "
                f"({request.state})"
            )
        own = kept.trial == trial.number and dict(kept.params) == dict(request.params)
        runs = trial.runs_of(Stream.SEARCH)
        if own and all(starmap(_is_intact, zip(runs, kept.runs, strict=True))):
            return None
        if not kept.states:
            return None  # it had itself diverged
        if _most_chunks(kept.runs) < _most_chunks(runs):
            raise SearchError(
                f"Ray Tune would reset trial {trial.number} to a state with fewer env steps; use "
                "a scheduler that copies trials only at equal env steps"
            )
        self._take_over(trial, bucket, kept, request.params)
        going = [run for run in runs if run.replicate in kept.states]
        room(bucket, sum(run.lane is None for run in going))
        resolved = self._search_state.resolved_of(trial.number)
        bucket.population.put(
            {bucket.claim(run): (kept.states[run.replicate], resolved) for run in going}
        )
        if own:
            return None
        return kept.trial

    def _take_over(
        self, trial: Trial, bucket: Bucket, kept: _Kept, params: Mapping[str, Any]
    ) -> None:
        here = max(bucket.trained(run) for run in kept.runs) * bucket.schedule.quantum
        way = list(kept.way)
        if kept.trial != trial.number or dict(kept.params) != dict(params):
            way.append(Segment(here, trial.number, dict(params)))
        schedule: list[dict[str, Any]] = []
        if [part.trial for part in way] != [trial.number]:
            schedule = [part.as_json() for part in way]
        trial.adopt(params, schedule, kept.runs)
        self._search_state.touch(trial)


def _most_chunks(runs: Sequence[Replicate]) -> int:
    """Return the number of chunks of the replicate that trained longest."""
    return max(run.chunks for run in runs)


def _is_intact(run: Replicate, was: Replicate) -> bool:
    if was.state is not RunState.RUNNING:
        return run.state is was.state
    return run.state is was.state and run.chunks == was.chunks and run.lane is not None


_LISTEN_SECONDS = 0.05


class Driven:
    """The search of a study whose trials are run by an external scheduler."""

    def __init__(self, engine: Engine, desk: Desk, rule: str, copies: bool = False):
        self._engine, self._search_state = engine, engine.search_state
        self._desk, self._rule, self._copies = desk, rule, copies
        self._reports = Reports(engine.search_state, engine.buckets, rule)
        self._waiting = Waiting(engine.search_state, desk, self._reports)
        self._states = KeptStates(engine.search_state)  # that the scheduler has put aside
        self._replicates = engine.study.seeds.per_config
        # number of chunks, and sums over them of stepping lanes and of live lanes
        self._together = Counter[str]()

    def run(self, interrupts: Interrupts) -> Outcome:
        """Run until the scheduler has ended all its trials, or an interrupt requests the end."""
        return self._engine.run(lambda: self._run_to_end(interrupts))

    def _run_to_end(self, interrupts: Interrupts) -> Outcome:
        engine, search_state = self._engine, self._search_state
        search_state.state.proposes(True)
        self._give_up_without_lanes()
        bucket, width = self._first_lanes()
        self._desk.begin(width, bucket.schedule)
        while not self._desk.is_over:
            if interrupts.requested:
                return "interrupted"
            self._take_requests()
            if self._waiting.is_complete():
                engine.committer.commit_if_due()
                self._pass_boundary()
        search_state.state.proposes(False)
        count = self._together
        means = {f"mean_{key}": count[key] / max(1, count["chunks"]) for key in ("width", "live")}
        about = {"chunks": count["chunks"], **means}
        search_state.unwritten.add(AttributeRow(None, "ray_tune", about))
        close_search(search_state, engine.policies)
        engine.release()
        return "finished"

    def _first_lanes(self) -> tuple[Bucket, int]:
        """Return the default configuration's bucket, and how many trials fit into its lanes."""
        try:
            resolved = self._search_state.resolved(self._search_state.study.space.default())
            bucket = self._engine.bucket_of(resolved, 0)
            self._engine.check_first_bucket()
            return bucket, self._trials_per_chunk(bucket)
        except Exception as error:
            if isinstance(error, HpoError) or has_refused(error):
                raise
            raise SearchError(
                "the default configuration does not run, so Ray Tune has no lanes: "
                f"{format_error_if_own(error)}"
            ) from error

    def _trials_per_chunk(self, bucket: Bucket) -> int:
        """Create a bucket's lanes, and report how many trials fit into them."""
        study = self._search_state.study
        population = self._population_of(bucket)
        width = population.lanes // self._replicates
        if not width:
            raise ConfigError(
                f"a trial has {self._replicates} seeds, but the population has only "
                f"{counted(population.lanes, 'lane')}; raise population.lanes, or lower "
                "seeds.per_config"
            )
        if self._copies and width < (study.budget.trials or 0):
            raise ConfigError(
                f"trials that copy each other must run together: {study.budget.trials} x "
                f"{counted(self._replicates, 'seed')}, but the population has only "
                f"{counted(population.lanes, 'lane')}; raise population.lanes, or lower "
                "budget.trials"
            )
        return width

    def _population_of(self, bucket: Bucket) -> Population:
        """Return a bucket's population, created if needed; all fit the same number of trials."""
        others = [other.lanes for other in self._engine.buckets.values() if other.lanes]
        return self._engine.make(bucket, min(others, default=None))

    def _give_up_without_lanes(self) -> None:
        """End trials that were suspended before an interruption: their states are lost."""
        for trial in self._search_state.live():
            runs = in_state(trial.runs, RunState.RUNNING)
            if trial.lost or any(run.lane is None for run in runs):
                text = "it was paused when the study was interrupted, and its state is lost"
                self._search_state.end(trial, TrialState.UNFINISHED, text)
        self._engine.release()

    # ------------------------------------------------------------------ requests of the scheduler

    def _take_requests(self) -> None:
        """Take requests from the desk; ended trials free their lanes before others enter."""
        requests = self._desk.wait(_LISTEN_SECONDS)
        gone = self._desk.ended()
        if requests:
            self._waiting.note_activity()
        for request in requests:
            if request.kind == "keep":
                bucket = self._engine.buckets[self._search_state.trials[request.trial].bucket]
                self._waiting.reply({request.key: self._states.keep(request.trial, bucket)})
        for number in gone:
            self._end_trial(number)
        for request in requests:
            if request.kind == "train" and request.trial in gone:
                self._waiting.turn_away(request)
            elif request.kind == "train":
                with self._engine.undivided():
                    self._admit_request(request)
        self._engine.notifier.changes()

    def _admit_request(self, request: DeskRequest) -> None:
        """Put a trial in its lanes to wait for the next chunk, unless it has ended."""
        engine, trial = self._engine, self._search_state.trials.get(request.trial)
        if trial is None and (engine.is_out_of_time() or not engine.pays_for_any()):
            self._waiting.turn_away(request)
            return
        self._waiting.add(request)
        try:
            trial = trial or self._begin_trial(request)
            if trial.is_live:
                self._assign_lanes(trial, request)
                self._reports.judge(trial, "continue", None)
        except Exception as error:
            if trial is None or not trial.is_live:
                raise
            engine.fail(engine.buckets[trial.bucket], trial.runs, error)
        if not trial.is_live:
            self._waiting.dismiss(trial.number)

    def _begin_trial(self, request: DeskRequest) -> Trial:
        search_state, state = self._search_state, self._search_state.state
        batch = state.take_foreign(request.trial)
        by, params = self._proposed_by(request), dict(request.params)
        trial = Trial(request.trial, TrialState.WAITING, by, batch, "", params)
        method = f"ray_tune {search_state.study.search.searcher}"
        search_state.unwritten.add(AskRow(batch, method, (trial.number,), ()))
        self._engine.admit(trial, self._replicates)
        return trial

    def _proposed_by(self, request: DeskRequest) -> str:
        study = self._search_state.study
        if request.trial == 0:
            return "default"
        if request.trial <= len(study.enqueue):
            return "enqueue"
        return study.search.searcher.rpartition(".")[2]

    def _assign_lanes(self, trial: Trial, request: DeskRequest) -> None:
        """Assign a lane to each of a trial's replicates, with the state that it resumes from."""
        bucket = self._engine.buckets[trial.bucket]
        self._population_of(bucket)
        if request.state is not None:
            old = dict(trial.params)
            source = self._states.adopt(trial, bucket, request, self._make_room)
            if source is not None:
                self._reports.judge(trial, "copy", source, old)
        waiting = in_state(trial.runs, RunState.WAITING)
        if waiting:
            self._make_room(bucket, len(waiting))
            bucket.enqueue(waiting)
            for run in bucket.place(len(waiting)):
                self._search_state.started(run)

    def _make_room(self, bucket: Bucket, wanted: int) -> None:
        """Free lanes of paused trials until `wanted` lanes are free, or raise SearchError."""
        for number in sorted(self._desk.paused()):
            if bucket.slots.count(None) >= wanted:
                return
            runs = [run for run in bucket.busy() if run.trial == number]
            if runs and self._states.has(number, runs[0].chunks):
                bucket.evict(number)
        if bucket.slots.count(None) < wanted:
            raise SearchError(
                f"Ray Tune runs more trials than fit into {counted(bucket.lanes, 'lane')}; raise "
                "population.lanes"
            )

    def _end_trial(self, number: int) -> None:
        """Record that the scheduler ended a trial, as a stop if it could have continued."""
        trial = self._search_state.trials.get(number)
        if trial is not None and trial.is_live:
            shown = self._reports.has_shown(number)
            self._reports.judge(trial, "stop", None)
            trial.stop_by(self._rule)
            state = TrialState.UNFINISHED
            if trial.lost:
                state = TrialState.DIVERGED
            elif shown:
                state = TrialState.STOPPED
            self._search_state.end(trial, state)
            self._engine.release()
        self._waiting.dismiss(number)

    # ------------------------------------------------------------------ the boundary

    def _pass_boundary(self) -> None:
        engine, asked = self._engine, self._waiting.numbers
        with engine.undivided():
            evaluations = self._run_chunk(asked)
            self._reports.note(asked)
            finish_trials(self._search_state, engine.buckets, engine.policies)
            engine.release()
        engine.notifier.boundary(evaluations)
        self._waiting.reply_to_all()

    def _run_chunk(self, asked: Container[int]) -> list[EvaluationRow]:
        """Run one chunk for some trials' lanes together; return their evaluations."""
        engine, has_more = self._engine, self._desk.has_more()
        out_of_time = engine.is_out_of_time()
        evaluations: list[EvaluationRow] = []
        for bucket in list(engine.buckets.values()):
            affordable = 0 if out_of_time else engine.affordable(bucket)
            runs = self._payable_runs(bucket, asked, affordable)
            if runs:
                live = sum(run.is_live for run in bucket.busy())
                self._together.update(chunks=1, width=len(runs), live=live)
                evaluations += engine.step(bucket, runs, has_more, lambda trial: self._copies)
        return evaluations

    def _payable_runs(
        self, bucket: Bucket, asked: Container[int], affordable: float
    ) -> list[Replicate]:
        """Return the live replicates of `asked` trials that the budget covers; cut the others."""
        runs = [run for run in bucket.busy() if run.trial in asked and run.is_live]
        if affordable < len(runs):
            cut(runs[int(affordable) :])
        return [run for run in runs if run.is_live]


def drive(engine: Engine, interrupts: Interrupts) -> Outcome:
    """Let Ray Tune run a study's trials in its lanes; requires a cluster."""
    from ..cluster.via_ray import import_ray
    from .tune import TuneDesk

    study = engine.study
    ray = import_ray("search: {driver: ray_tune}")
    with closing(TuneDesk(ray, study, engine.search_state)) as desk:
        rule = f"ray_tune {study.search.scheduler.rpartition('.')[2]}"
        return Driven(engine, desk, rule, desk.copies).run(interrupts)
