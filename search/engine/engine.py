"""Steps the lanes of a study and keeps its books, whoever chooses the replicates and judges them.

Our own loop and Ray Tune's drive the same engine: a driver says which replicates run the next
chunk and what becomes of the trials behind it. What a chunk costs, what is written of it, what an
error in it fails, who is told and what may be committed is the same for both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Any, Literal
from weakref import WeakSet

from ...errors import ConfigError, HpoError, Leave, StoreError
from ...store.rows import EvaluationRow, Stream, TrialState
from ...studies.chunk_sizes import rung_steps
from ...studies.spec import Study
from ..lanes.contract import Population, PopulationFactory, Resolved, Resolver
from ..lanes.lane_count import fitting_lanes
from ..state.buckets import Bucket
from ..state.budget import (
    affordable_lanes,
    check_confirm_fits,
    check_health,
    may_propose,
    out_of_time,
    trials_left,
)
from ..state.loop_state import LoopState, Phase
from ..state.search_state import Ledger
from ..state.trials import Run, Trial
from .callbacks import StopStudy
from .commits import Committer, Shelf
from .evaluate import (
    CurveSink,
    changes_of,
    count_chunk,
    due_for_evaluation,
    fail_runs,
    refills_of,
    retire_diverged,
    take_evaluations,
)
from .finish_trials import Policies
from .notify import Telling


def lanes_to_keep(ledger: Ledger, bucket: Bucket) -> int:
    """Return the lanes that a bucket keeps of those that it was given, in whole blocks.

    Args:
        ledger: trials and state.
        bucket: with a population in which nothing has run.
    """
    block = bucket.population.block if bucket.population is not None else 1
    more = replicates_to_come(ledger, bucket.key)
    if more == inf:
        return bucket.lanes
    return fitting_lanes(bucket.lanes, block, bucket.work + int(more))


def replicates_to_come(ledger: Ledger, key: str) -> float:
    """Return the replicates of trials to come that are expected in a bucket; may be infinite."""
    state, study = ledger.state, ledger.study
    trials = trials_left(study, state.proposed) if may_propose(ledger) else 0
    if study.budget.env_steps is not None:
        left = max(0, study.budget.env_steps - state.usage.bounded_env_steps)
        shortest = min([*rung_steps(study), study.env_steps]) * study.seeds.first * study.spread
        trials = min(trials, left // max(1, shortest))
    if state.pending is not None:
        trials += len(state.pending.trials)
    if trials == inf:
        return inf
    own = sum(trial.bucket == key for trial in ledger.trials.values())
    return -(-int(trials) * own // max(1, len(ledger.trials))) * study.seeds.first


class CompileBeside:
    """Compiles one population at a time beside the loop, so that two at most compile at once."""

    def __init__(self):
        self._threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="compile")
        self._begun: WeakSet[Population] = WeakSet()

    def begin(self, population: Population) -> None:
        """Begin to compile a population, once, behind those begun before.

        An error is dropped here: it is that of the bucket, which meets it again in its own turn.
        """
        if population in self._begun or population.compiles:
            return
        self._begun.add(population)
        try:
            ahead = population.compile_ahead()
        except Exception:
            return
        if ahead is not None:
            self._threads.submit(_compile, ahead)

    def __enter__(self) -> CompileBeside:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wait for what is being compiled, unless somebody leaves at once; the rest is left."""
        self._threads.shutdown(wait=not isinstance(error, Leave), cancel_futures=True)


def _compile(ahead: Callable[[], None]) -> None:
    try:
        ahead()
    except Exception:  # comes again where the bucket compiles, with its trials to fail
        return


Outcome = Literal["finished", "interrupted"]
"""How a search was left: nothing is left to do, or the same call goes on with it."""


class Engine:
    """The parts of one study, and what its drivers do with them.

    Args:
        ledger: trials and state, new or restored.
        factory: makes populations.
        buckets: by key, in the order of their first trials.
        curves: takes curve rows.
        committer: makes everything durable.
        policies: keeps the best.
        telling: the observers, told of every boundary.
        beside: compiles while lanes run; None compiles when a program is needed.
        shelf: keeps the states of paused replicates; None makes one.

    Attributes:
        ledger, factory, buckets, committer, policies, telling: these.
    """

    def __init__(
        self,
        ledger: Ledger,
        factory: PopulationFactory,
        buckets: dict[str, Bucket],
        curves: CurveSink,
        committer: Committer,
        policies: Policies,
        telling: Telling,
        beside: CompileBeside | None = None,
        shelf: Shelf | None = None,
    ):
        self.ledger, self.factory, self.buckets = ledger, factory, buckets
        self.committer, self.policies, self.telling = committer, policies, telling
        self._curves, self._beside = curves, beside
        self._shelf = Shelf(ledger, buckets, factory) if shelf is None else shelf
        self._whole = True  # the state is one between two steps, which may be committed

    @property
    def study(self) -> Study:
        """What was asked."""
        return self.ledger.study

    # ------------------------------------------------------------------ a search and its steps

    def run(self, search: Callable[[], Outcome]) -> Outcome:
        """Return how a driver's search was left; what is done then is committed.

        Raises:
            HpoError: the search cannot go on. What was done up to the last step is committed,
                unless the disk refused it: what it refused once is not tried again.
        """
        outcome: Outcome = "interrupted"
        try:
            check_health(self.ledger)
            outcome = search()
        except StopStudy:
            pass
        except StoreError:
            raise
        except HpoError:
            if self._whole:
                self.telling.count_time()
                self.committer.commit("interrupted")
            raise
        if outcome == "interrupted":
            self.telling.count_time()
            self.committer.commit("interrupted")
        self.telling.count_time()
        return outcome

    @contextmanager
    def undivided(self) -> Iterator[None]:
        """Let nothing be committed of a step that an error ends half-way."""
        self._whole = False
        yield
        self._whole = True

    def step(
        self,
        bucket: Bucket,
        runs: Sequence[Run],
        work_remains: bool,
        set_aside: Callable[[Trial], bool],
    ) -> list[EvaluationRow]:
        """Run one chunk of the lanes of some replicates; return what was evaluated behind it.

        Args:
            bucket: whose lanes, with a population.
            runs: replicates in them; the others rest.
            work_remains: a lane that is idle now could have been busy.
            set_aside: says of a trial that diverged whether it may go on from another's state.
        """
        bucket.settle()
        self.ledger.state.run_bucket(bucket.key)
        self.ledger.state.usage.count_lanes(bucket.lanes, len(runs), work_remains)
        self.telling.chunk_starts(bucket, runs)
        evaluations: list[EvaluationRow] = []
        if self._advance(bucket, runs):
            retire_diverged(self.ledger, set_aside)
            evaluations = self._evaluate(bucket, runs)
        retire_diverged(self.ledger, set_aside)
        self.policies.snapshots.take(self.ledger, bucket, runs)
        return evaluations

    def _advance(self, bucket: Bucket, runs: Sequence[Run]) -> bool:
        """Run and count one chunk; return whether it came to its end."""
        population = bucket.population
        if population is None:
            raise RuntimeError(f"bucket {bucket.key} has no population")
        try:
            refills = refills_of(self.ledger, runs)
            self._shelf.put_back(bucket, runs)
            if changes := changes_of(self.ledger, bucket, runs):
                population.change(changes)
            with self.ledger.state.usage.spending("compile"):
                population.compile()
            lanes = [run.lane for run in runs if run.lane is not None]
            result = population.advance(refills, lanes)
        except Exception as error:
            self.fail_lanes(bucket, error)
            return False
        self.telling.worked(bucket, lanes)
        count_chunk(self.ledger, bucket, runs, result, self._curves)
        return True

    def _evaluate(self, bucket: Bucket, runs: Sequence[Run]) -> list[EvaluationRow]:
        due = due_for_evaluation(bucket, runs)
        if not due or bucket.population is None:
            return []
        self.telling.evaluation_starts(bucket, due)
        usage = self.ledger.state.usage
        try:
            with usage.spending("compile"):
                bucket.population.compile_evaluation()
            with usage.spending("evaluate"):
                lanes = [run.lane for run in due if run.lane is not None]
                results = bucket.population.evaluate(lanes)
        except Exception as error:  # lanes are what they were
            self.fail(bucket, due, error)
            return []
        self.telling.evaluated(len(due))
        rows = take_evaluations(self.ledger, bucket, due, results)
        self.policies.consider(self.ledger, bucket, due)
        return rows

    # ------------------------------------------------------------------ trials and their lanes

    def admit(self, trial: Trial, replicates: int) -> Bucket | None:
        """Take in a new trial.

        Args:
            trial: has no replicates yet.
            replicates: that it begins with.

        Returns:
            The bucket where they are to wait; None where no program can run the trial, which has
            failed.
        """
        self.ledger.add(trial)
        try:
            resolved = self.ledger.resolved_of(trial.number)
            trial.join(resolved.bucket)
            bucket = self.bucket_of(resolved, trial.number)
        except ConfigError as error:  # knobs that only contradict each other together
            self.ledger.state.usage.count_failure()
            self.ledger.end(trial, TrialState.FAILED, str(error))
            return None
        trial.add(Run(trial.number, Stream.SEARCH, replicate) for replicate in range(replicates))
        return bucket

    def bucket_of(self, resolved: Resolved, example: int) -> Bucket:
        """Return the bucket of a configuration, made if it is the first one there.

        Args:
            resolved: the configuration.
            example: number of its trial.

        Raises:
            ConfigError: trials copy each other and this one needs a second program.
        """
        key, early = resolved.bucket, self.study.early_terminate
        if key not in self.buckets:
            if self.buckets and early is not None and early.evolves:
                raise ConfigError(
                    f"trial {example} needs a program of its own, but {early.type} copies "
                    "networks between trials of one program; search knobs that are traced only"
                )
            self.buckets[key] = Bucket.of(self.study, resolved, example)
        return self.buckets[key]

    def make(self, bucket: Bucket, lanes: int | None = None) -> Population:
        """Return the population of a bucket, made if it has none.

        Args:
            bucket: keeps it.
            lanes: as many where neither the bucket nor the study say a number.
        """
        population = bucket.population
        if population is None:
            wanted = bucket.lanes or self.study.population.lanes or lanes
            population = self.factory.make(bucket.resolved, wanted)
            bucket.equip(population)
        return population

    def prepare(self, bucket: Bucket) -> bool:
        """Return whether a bucket has a population now; else its trials have failed."""
        try:
            self.make(bucket)
        except Exception as error:
            self.fail(bucket, [*bucket.waiting, *bucket.busy()], error)
            return False
        return True

    def settle_lanes(self, bucket: Bucket) -> bool:
        """Return whether a bucket that runs next has as many lanes as it keeps.

        Lanes that it cannot have replicates for are given up before the first chunk, unless the
        study says how many there are or has one program. Else its trials have failed.
        """
        if bucket.settled:
            return True
        lanes = bucket.lanes
        if self.study.population.lanes is None and len(self.buckets) > 1:
            lanes = lanes_to_keep(self.ledger, bucket)
        try:
            if lanes == bucket.lanes:
                bucket.settle()
            else:
                bucket.drop()  # before the other one is made: both may not find room
                bucket.settle(self.factory.make(bucket.resolved, lanes))
        except Exception as error:
            self.fail(bucket, [*bucket.waiting, *bucket.busy()], error)
            return False
        return True

    def compile_ahead(self, bucket: Bucket) -> None:
        """Begin to compile for a bucket that has its lanes, while another one runs."""
        if self._beside is not None and bucket.population is not None:
            with self.ledger.state.usage.spending("compile"):
                self._beside.begin(bucket.population)

    def fail(self, bucket: Bucket, runs: Sequence[Run], error: Exception) -> None:
        """Fail the trials of some replicates.

        Raises:
            HpoError: one that is no single configuration's fault.
        """
        fail_runs(self.ledger, bucket, runs, error)

    def fail_lanes(self, bucket: Bucket, error: Exception) -> None:
        """Fail the trials of all replicates in lanes, which are made anew: none has its state.

        Raises:
            HpoError: one that is no single configuration's fault.
        """
        self.fail(bucket, bucket.busy(), error)
        bucket.drop()

    def shelve(self) -> None:
        """Keep what the lanes of paused replicates hold; the next `release` frees these lanes."""
        for bucket in self.buckets.values():
            try:
                self._shelf.take(bucket)
            except Exception as error:
                self.fail_lanes(bucket, error)

    def release(self) -> None:
        """Free the lanes of all that has ended, and delete the snapshots that nobody keeps."""
        self.policies.snapshots.forget(self.ledger)
        self._shelf.forget()
        for bucket in self.buckets.values():
            bucket.release()

    # ------------------------------------------------------------------ the budget

    @property
    def _longest(self) -> int:
        """Env steps of the longest run of any bucket known."""
        return max((bucket.schedule.env_steps for bucket in self.buckets.values()), default=0)

    def affordable(self, bucket: Bucket) -> float:
        """Return how many lanes of a bucket the budget still pays a chunk for; may be infinite."""
        state, quantum = self.ledger.state, bucket.schedule.quantum
        return affordable_lanes(self.study, state.usage, state.phase, self._longest, quantum)

    def pays_for_any(self) -> bool:
        """Return whether the budget pays for a chunk of any bucket, or none is known yet."""
        buckets = self.buckets.values()
        return not buckets or any(self.affordable(bucket) >= 1 for bucket in buckets)

    def is_out_of_time(self) -> bool:
        """Return whether the wall time is used up, but for what confirming may take."""
        state = self.ledger.state
        return out_of_time(self.study, state.usage, state.phase, self._longest)

    def check_first_bucket(self) -> None:
        """Refuse a budget that cannot pay for confirming, as soon as a run's length is known.

        Raises:
            ConfigError: says both numbers.
        """
        state = self.ledger.state
        if state.usage.chunks == 0 and state.phase is Phase.SEARCH and self.buckets:
            first = next(iter(self.buckets.values()))
            check_confirm_fits(self.study, first.schedule.env_steps)


def engine_in_memory(study: Study, factory: PopulationFactory, rows: bool = False) -> Engine:
    """Return the engine of a study that begins, without a store behind it.

    Args:
        study: keeps no policies.
        factory: makes its populations.
        rows: leave every row in `ledger.unwritten`; else they are forgotten.
    """
    ledger = Ledger(study, LoopState(), resolver=Resolver(study, factory))
    return Engine(
        ledger,
        factory,
        buckets := {},
        curves=_NoCurves(),
        committer=_NoCommits(ledger, rows),
        policies=Policies(Path("nowhere"), study.checkpoint),
        telling=Telling(ledger, buckets, ()),
    )


class _NoCommits(Committer):
    """Commits nothing."""

    def __init__(self, ledger: Ledger, rows: bool):
        self._ledger, self._rows = ledger, rows

    def commit_if_due(self) -> None:
        """Forget the rows, unless they are wanted."""
        if not self._rows:
            self._ledger.written()

    def commit(self, phase: Any = "running") -> None:
        """Forget the rows, unless they are wanted."""
        self.commit_if_due()


class _NoCurves:
    """Takes rows of curves and keeps none."""

    def add_chunk(self, *args: Any, **kwargs: Any) -> None:
        """See `CurveSink`."""
