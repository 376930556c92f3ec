"""Runs, counts, writes and commits a study's chunks, for hpo's loop and for Ray Tune's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, Literal
from weakref import WeakSet

from ...errors import (
    ConfigError,
    HpoError,
    Leave,
    StoreError,
    counted,
    format_error_if_own,
    ignore,
)
from ...files.atomic_files import has_refused, telling
from ...store.rows import EvaluationRow, Stream, TrialState
from ...studies.chunk_sizes import chunk_sizes_of, rung_steps
from ...studies.spec import Study
from ..lanes.contract import Population, PopulationFactory, Resolved, RunsAlone
from ..lanes.lane_count import fitting_lanes
from ..lanes.resolver import Resolver
from ..state.buckets import Bucket
from ..state.budget import (
    affordable_lanes,
    check_budget_covers_a_trial,
    check_health,
    env_steps_left,
    may_propose,
    reserve,
    seconds_left,
    trials_left,
)
from ..state.loop_state import LoopState, Phase
from ..state.search_state import SearchState
from ..state.trials import Replicate, Trial, cut, lanes_of
from .callbacks import StopStudy
from .commits import Committer, PausedStates
from .evaluate import (
    LONGEST,
    AddRows,
    changes_of,
    count_chunk,
    due_for_evaluation,
    refills_of,
    retire_diverged,
    take_evaluations,
)
from .finish_trials import KeptPolicies
from .notify import Notifier


def lanes_to_keep(search_state: SearchState, bucket: Bucket) -> int:
    """Return how many lanes a bucket needs, in whole blocks; called before its first chunk."""
    more = replicates_to_come(search_state, bucket.key)
    if more == inf:
        return bucket.lanes
    return fitting_lanes(bucket.lanes, bucket.block, bucket.work + int(more))


def replicates_to_come(search_state: SearchState, key: str) -> float:
    """Return the expected number of future replicates in a bucket; may be infinite."""
    state, study = search_state.state, search_state.study
    trials = 0
    if may_propose(search_state):
        trials = trials_left(study, state.proposed)
    if study.budget.env_steps is not None:
        left = max(0, study.budget.env_steps - state.usage.bounded_env_steps)
        shortest = min([*rung_steps(study), study.env_steps]) * study.seeds.first * study.spread
        trials = min(trials, left // max(1, shortest))
    if state.pending is not None:
        trials += len(state.pending.trials)
    if trials == inf:
        return inf
    own = sum(trial.bucket == key for trial in search_state.trials.values())
    return -(-int(trials) * own // max(1, len(search_state.trials))) * study.seeds.first


_AT_ONCE = 2  # concurrent compiles; each has phases that use one core
_NOT_NEEDED = "a program that is no longer needed"


class CompileBeside:
    """Compiles populations in threads, two at a time.

    A study that ends waits in the context `compiling` until running compilations have finished.
    """

    def __init__(self, compiling: Callable[[str], AbstractContextManager[object]] = nullcontext):
        self._compiling = compiling
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="compile")
        self._traced_populations: WeakSet[Population] = WeakSet()
        self._traced: list[Callable[[], None]] = []
        self._queue: list[Future[None]] = []

    def begin(self, population: Population) -> bool:
        """Queue a population for compilation, once; return whether it is compiled in a thread."""
        in_thread = self.trace(population)
        self.compile_traced()
        return in_thread

    def trace(self, population: Population) -> bool:
        """Trace a population, once; return whether `compile_traced` will compile it in a thread.

        Errors are dropped here: they recur when the bucket is compiled, and then fail its trials.
        """
        if population in self._traced_populations or population.compiles:
            return False
        self._traced_populations.add(population)
        with suppress(Exception):
            ahead = population.compile_ahead()
            if ahead is not None:
                self._traced.append(ahead)
                return True
        return False

    def compile_traced(self) -> None:
        """Compile the traced populations in threads."""
        self._queue.extend(map(self._threads.submit, self._traced))
        self._traced.clear()

    def __enter__(self) -> CompileBeside:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Wait for running compilations, unless quitting at once; drop the queue."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        running = [one for one in self._queue if not one.done()]
        if not running or isinstance(error, Leave):
            return
        with self._compiling(_NOT_NEEDED):  # like any compile, it delays a requested stop
            self._threads.shutdown(wait=True)


@dataclass(frozen=True)
class _Ahead:
    """A population that is compiled before its bucket's lane count is final."""

    asked: int | None  # number of lanes; None for the rule's
    population: Population


Outcome = Literal["finished", "interrupted"]


class Engine:
    """The parts of a running study, and the operations that its driver uses."""

    def __init__(
        self,
        search_state: SearchState,
        factory: PopulationFactory,
        buckets: dict[str, Bucket],
        *,
        add_rows: AddRows,
        committer: Committer,
        policies: KeptPolicies,
        notifier: Notifier,
        beside: CompileBeside | None = None,
        paused_states: PausedStates | None = None,
    ):
        self.search_state, self.factory, self.buckets = search_state, factory, buckets
        self.committer, self.policies, self.notifier = committer, policies, notifier
        self._add_rows, self._beside = add_rows, beside
        if paused_states is None:
            paused_states = PausedStates(search_state, buckets, factory)
        self._paused_states = paused_states
        self._ahead: dict[str, _Ahead] = {}  # by bucket
        self._part = 0.0  # part of a chunk for all busy lanes, if lanes advance one by one
        self._whole = True  # whether the state is between two steps, so that it may be committed

    @property
    def study(self) -> Study:
        return self.search_state.study

    def run(self, search: Callable[[], Outcome]) -> Outcome:
        """Run a driver's search; if a stop request or an error interrupts it, commit."""
        outcome: Outcome = "interrupted"
        try:
            check_health(self.search_state)
            outcome = search()
        except StopStudy:
            pass
        except StoreError:
            raise
        except HpoError:
            if self._whole:
                self.notifier.count_time()
                self.committer.commit("interrupted")
            raise
        if outcome == "interrupted":
            self.notifier.count_time()
            self.committer.commit("interrupted")
        self.notifier.count_time()
        return outcome

    @contextmanager
    def undivided(self) -> Iterator[None]:
        """Mark a step that must not be committed if an error interrupts it."""
        self._whole = False
        yield
        self._whole = True

    def ready(self, bucket: Bucket) -> list[Replicate]:
        """Return the replicates whose next chunk can run; processes become ready one at a time."""
        runs, population = bucket.busy(), bucket.population
        if not isinstance(population, RunsAlone):
            return runs
        try:
            self._paused_states.put_back(bucket, runs)
            lanes = lanes_of(runs)
            found = population.ready(refills_of(self.search_state, runs), lanes)
        except Exception as error:
            self.fail_lanes(bucket, error)
            return []
        return [run for run in runs if run.lane in found]

    def step(
        self,
        bucket: Bucket,
        runs: Sequence[Replicate],
        work_remains: bool,
        set_aside: Callable[[Trial], bool],
    ) -> list[EvaluationRow]:
        """Run one chunk in the replicates' lanes; return the evaluations that follow it.

        `work_remains` says whether idle lanes could have been used. `set_aside(trial)` returns
        whether a diverged trial may resume from another trial's state.
        """
        bucket.fix_lanes()
        self.search_state.state.run_bucket(bucket.key)
        chunks, busy = 1, len(runs)
        if isinstance(bucket.population, RunsAlone):  # so that a chunk takes as long as in lanes
            busy = len(bucket.busy())
            self._part += len(runs) / busy
            chunks, self._part = divmod(self._part, 1.0)
        self.search_state.state.usage.count_lanes(bucket.lanes, busy, work_remains, int(chunks))
        self.notifier.chunk_starts(bucket, runs)
        evaluations: list[EvaluationRow] = []
        if self._run_chunk(bucket, runs):
            retire_diverged(self.search_state, set_aside)
            evaluations = self._evaluate_due(bucket, runs)
        retire_diverged(self.search_state, set_aside)
        self.policies.snapshot(runs)
        return evaluations

    def _run_chunk(self, bucket: Bucket, runs: Sequence[Replicate]) -> bool:
        """Run and count one chunk; return whether it succeeded."""
        population = bucket.population
        if population is None:
            raise RuntimeError(f"bucket {bucket.key} has no population")
        try:
            refills = refills_of(self.search_state, runs)
            self._paused_states.put_back(bucket, runs)
            if changes := changes_of(self.search_state, bucket, runs):
                population.change(changes)
            with self.search_state.state.usage.spending("compile"):
                self._compile_bucket(bucket, population)
            lanes = lanes_of(runs)
            result = population.advance(refills, lanes)
        except Exception as error:
            self.fail_lanes(bucket, error)
            return False
        self.notifier.worked(bucket, lanes)
        count_chunk(self.search_state, bucket, runs, result, self._add_rows)
        return True

    def _compile_bucket(self, bucket: Bucket, population: Population) -> None:
        """Compile a bucket's training program, and meanwhile trace the programs of other buckets.

        Only then are the other programs compiled, so that this one, for which training waits, has
        a core of its own.
        """
        if self._beside is None or not self._beside.begin(population):
            population.compile()
            return
        others = [one for one in self.buckets.values() if one is not bucket and one.work]
        for other in sorted(others, key=lambda one: -one.work):
            if not population.compiles:
                self._compile_ahead(other, self._beside)
        try:
            population.compile()
        finally:
            self._beside.compile_traced()

    def _compile_ahead(self, bucket: Bucket, beside: CompileBeside) -> None:
        """Compile a bucket before its lane count is final, if the likely count is known.

        The final count may differ. Errors are dropped, because they recur later.
        """
        wanted = self.study.population.lanes
        if bucket.lanes_fixed or bucket.key in self._ahead:
            return
        if wanted is None and replicates_to_come(self.search_state, bucket.key):
            return
        with suppress(Exception):
            asked = bucket.lanes or wanted
            made = self.factory.make(bucket.resolved, asked)
            lanes = made.lanes
            if wanted is None:
                lanes = fitting_lanes(made.lanes, made.block, bucket.work)
            if lanes != made.lanes:
                asked, made = lanes, self.factory.make(bucket.resolved, lanes)
            self._ahead[bucket.key] = _Ahead(asked, made)
            beside.trace(made)

    def _with_lanes(self, bucket: Bucket, lanes: int | None) -> Population:
        ahead = self._ahead.get(bucket.key)
        if ahead is None or lanes not in (ahead.asked, ahead.population.lanes):
            return self.factory.make(bucket.resolved, lanes)
        del self._ahead[bucket.key]
        return ahead.population

    def _evaluate_due(self, bucket: Bucket, runs: Sequence[Replicate]) -> list[EvaluationRow]:
        due = due_for_evaluation(bucket, runs)
        if not due or bucket.population is None:
            return []
        self.notifier.evaluation_starts(bucket, due)
        usage = self.search_state.state.usage
        try:
            with usage.spending("compile"):
                bucket.population.compile_evaluation()
            with usage.spending("evaluate"):
                lanes = [run.lane for run in due if run.lane is not None]
                results = bucket.population.evaluate(lanes)
        except Exception as error:  # the lanes are unchanged
            self.fail(bucket, due, error)
            return []
        self.notifier.evaluated(len(due))
        rows = take_evaluations(self.search_state, bucket, due, results)
        self.policies.consider(due)
        return rows

    def admit(self, trial: Trial, replicates: int) -> Bucket | None:
        """Add a new trial; return its bucket, or None if no program can run the trial."""
        self.search_state.add(trial)
        try:
            resolved = self.search_state.resolved_of(trial.number)
            trial.join(resolved.bucket)
            bucket = self.bucket_of(resolved, trial.number)
        except ConfigError as error:  # contradictions seen only in combination
            self.search_state.state.usage.count_failure()
            self.search_state.end(trial, TrialState.FAILED, str(error))
            return None
        trial.add(
            Replicate(trial.number, Stream.SEARCH, replicate) for replicate in range(replicates)
        )
        return bucket

    def bucket_of(self, resolved: Resolved, example: int) -> Bucket:
        """Return a configuration's bucket; if it is new, trial `example` is its first trial."""
        key, early = resolved.bucket, self.study.early_terminate
        if key not in self.buckets:
            if self.buckets and early is not None and early.evolves:
                raise ConfigError(
                    f"trial {example} needs a separate program, but {early.type} copies networks "
                    "between trials of one program; search only traced hyperparameters"
                )
            self.buckets[key] = Bucket.of(self.study, resolved, example)
        return self.buckets[key]

    def make(self, bucket: Bucket, lanes: int | None = None) -> Population:
        """Return a bucket's population; `lanes` is the default lane count of a new one."""
        population = bucket.population
        if population is None:
            wanted = bucket.lanes or self.study.population.lanes or lanes
            population = self._with_lanes(bucket, wanted)
            bucket.equip(population)
        return population

    def prepare(self, bucket: Bucket) -> bool:
        """Create a bucket's population if needed; on error, fail its trials and return False."""
        return self._try_step(bucket, lambda: self.make(bucket))

    def _try_step(self, bucket: Bucket, step: Callable[[], object]) -> bool:
        try:
            step()
        except Exception as error:
            self.fail(bucket, [*bucket.waiting, *bucket.busy()], error)
            return False
        return True

    def fix_lanes(self, bucket: Bucket) -> bool:
        """Make a bucket's lane count final; on error, fail its trials and return False."""
        if bucket.lanes_fixed:
            return True
        lanes = bucket.lanes
        if self.study.population.lanes is None and len(self.buckets) > 1:
            lanes = lanes_to_keep(self.search_state, bucket)
        if lanes == bucket.lanes:
            self._ahead.pop(bucket.key, None)
            bucket.fix_lanes()
            return True
        bucket.drop()  # before creating the new one: both may not fit
        return self._try_step(bucket, lambda: bucket.fix_lanes(self._with_lanes(bucket, lanes)))

    def compile_ahead(self, bucket: Bucket) -> None:
        """While another bucket runs, start compiling a bucket whose lane count is final."""
        if self._beside is not None and bucket.population is not None:
            with self.search_state.state.usage.spending("compile"):
                self._beside.begin(bucket.population)

    def fail(self, bucket: Bucket, runs: Sequence[Replicate], error: Exception) -> None:
        """Count an error and fail the affected trials; raise it if it affects the whole study."""
        if isinstance(error, HpoError) and not isinstance(error, ConfigError):
            raise error
        if has_refused(error):
            with telling(Path("the lane files")):
                raise error
        self.search_state.state.usage.count_failure()
        for run in runs:
            self.search_state.state.lose(run, failed=True)
        cut(runs)
        for number in dict.fromkeys(run.trial for run in runs):
            self.search_state.fail(number, format_error_if_own(error)[:LONGEST])
        bucket.release()

    def fail_lanes(self, bucket: Bucket, error: Exception) -> None:
        """Fail the trials of all replicates in the bucket's lanes, and drop the population."""
        self.fail(bucket, bucket.busy(), error)
        bucket.drop()

    def shelve(self) -> None:
        """Save the states of paused replicates; the next `release` frees their lanes."""
        for bucket in self.buckets.values():
            try:
                self._paused_states.take(bucket)
            except Exception as error:
                self.fail_lanes(bucket, error)

    def release(self) -> None:
        """Free the lanes of ended replicates, and delete the snapshots of discarded trials."""
        self.policies.forget_snapshots()
        self._paused_states.forget()
        for bucket in self.buckets.values():
            bucket.release()

    @property
    def _longest_run(self) -> int:
        return max((bucket.schedule.env_steps for bucket in self.buckets.values()), default=0)

    def affordable(self, bucket: Bucket) -> float:
        """Return the number of lanes whose next chunk the budget covers; may be infinite."""
        return affordable_lanes(self.search_state, self._longest_run, bucket.schedule.quantum)

    def pays_for_any(self) -> bool:
        """Return whether the budget covers a chunk of any bucket, or there is no bucket yet."""
        buckets = self.buckets.values()
        return not buckets or any(self.affordable(bucket) >= 1 for bucket in buckets)

    def trials_to_start(self) -> float:
        """Return how many new trials can finish within the budget; may be infinite.

        Live trials are assumed to use all their remaining env steps, because it is unknown whether
        a rung stops them. The first trial may always start. An evolving population may start as a
        whole if the budget covers a chunk.
        """
        search_state, study, early = self.search_state, self.study, self.study.early_terminate
        usage, buckets = search_state.state.usage, self.buckets.values()
        left = env_steps_left(study, usage)
        if early is not None and early.evolves:
            return inf if self.pays_for_any() else 0
        if usage.chunks and buckets:  # the least that a run takes: evaluations are not counted
            run = min(bucket.schedule.length for bucket in buckets)
            if self._seconds_left() < run * usage.chunk_seconds / usage.chunks:
                return 0
        if left == inf:
            return inf
        longest = self._longest_run
        if not longest:
            longest = chunk_sizes_of(study, study.steps_per_update(study.default())).env_steps
        left -= reserve(study, search_state.state.phase, longest)
        for trial in search_state.live():
            bucket = self.buckets[trial.bucket]
            left -= study.spread * sum(
                bucket.schedule.env_steps - bucket.env_steps_of(run)
                for run in trial.runs
                if run.is_live
            )
        more = max(0, left // (longest * study.seeds.first * study.spread))
        if not search_state.trials:
            return max(1, more)
        return more

    def unused_budget(self) -> str:
        """Return why the rest of the budget starts no trial, or ""."""
        study, state = self.study, self.search_state.state
        usage, total = state.usage, study.budget.env_steps
        if not trials_left(study, state.proposed):
            return ""
        if state.exhausted:
            tried = counted(state.proposed, "trial")
            return f"no further trial started: after {tried}, no untried configuration is left"
        if total is None:
            return ""
        kept = reserve(study, Phase.SEARCH, self._longest_run)
        trial = self._longest_run * study.seeds.first * study.spread
        needed = usage.bounded_env_steps + kept + trial
        if needed <= total:
            return ""
        used = f"{usage.bounded_env_steps:,} of {total:,} {study.algorithm.unit} are used"
        return (
            f"no further trial started: {used} and {kept:,} are reserved for confirm; raise "
            f"budget.env_steps to at least {needed:,}"
        )

    def is_out_of_time(self) -> bool:
        """Return whether the wall time is used up, except for the part reserved for confirm."""
        return self._seconds_left() <= 0

    def _seconds_left(self) -> float:
        chunks = max((bucket.schedule.length for bucket in self.buckets.values()), default=0)
        return seconds_left(self.search_state, self._longest_run, chunks)

    def check_first_bucket(self) -> None:
        """Raise if the budget is too small for confirm, once the run length is known."""
        state = self.search_state.state
        if state.usage.chunks == 0 and state.phase is Phase.SEARCH and self.buckets:
            first = next(iter(self.buckets.values()))
            check_budget_covers_a_trial(self.study, first.schedule.env_steps)


def engine_in_memory(study: Study, factory: PopulationFactory, rows: bool = False) -> Engine:
    """Return the engine of a new study without a store; it saves no policies."""
    search_state = SearchState(study, LoopState(), resolver=Resolver(study, factory))
    return Engine(
        search_state,
        factory,
        buckets := {},
        add_rows=ignore,
        committer=_NoCommits(search_state, rows),
        policies=KeptPolicies(search_state, buckets, Path("nowhere"), study.checkpoint),
        notifier=Notifier(search_state, buckets, ()),
    )


class _NoCommits(Committer):
    def __init__(self, search_state: SearchState, rows: bool):
        self._search_state, self._rows = search_state, rows

    def commit_if_due(self) -> None:
        if not self._rows:
            self._search_state.written()

    def commit(self, phase: Any = "running") -> None:
        self.commit_if_due()
