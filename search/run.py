"""`run(study, directory, factory)`: start a study, resume it, or return a finished one.

The same call does all three; a resumed study ends with the same tables as an uninterrupted one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal

from ..errors import StoreError
from ..files.atomic_files import delete_copies, has_refused
from ..files.working_folder import as_given
from ..machine.software import versions_of_study
from ..store.baselines import BaselineEntry, baseline_entries, baselines_of
from ..store.leaderboard import Entry, Ranking, leaderboard_of, volume_of
from ..store.lock import StopRequest
from ..store.rows import StudyMeta, as_left
from ..store.sinks import Sinks
from ..store.study_folder import StudyFolder, delete_results
from ..store.study_store import StudyStore
from ..store.tables import RankedTrials
from ..store.value_bounds import value_bounds
from ..store.verdict import Conclusion, Evidence, conclude
from ..studies.overrides import Given, given_in, without_given
from ..studies.programs import programs_note
from ..studies.resolved import as_recorded
from ..studies.spec import Study
from ..studies.study_meta import study_meta
from .analysis.verdict import conclusion_of
from .checks import check_continues, check_runnable, gives_new_bits, takes_changed_files
from .engine.callbacks import Callback, Callbacks
from .engine.commits import Committer, PausedStates, restore_buckets, restore_search_state
from .engine.confirm import Fresh, read_fresh
from .engine.engine import CompileBeside, Engine, Outcome
from .engine.evaluate import measure_baselines
from .engine.extend_run import lengthen
from .engine.finish_trials import KeptPolicies
from .engine.interrupts import Interrupts
from .engine.loop import Loop
from .engine.notify import Notifier
from .engine.pbt_step import make_evolver
from .engine.refill import RefillQueue
from .engine.retry_failed import lacks_test_seeds, retry, retry_note, to_retry
from .lanes.contract import PopulationFactory
from .lanes.resolver import Resolver
from .ray_tune.loop import drive
from .rules.registry import make_pruner
from .samplers.proposal_queue import AskAhead, Proposer
from .samplers.registry import make_sampler
from .state.loop_state import LoopState, Phase, bounds_of
from .state.progress import Observer
from .state.search_state import SearchState
from .state.usage import Usage
from .state.warm_start import WarmStartTrials, warm_start, write_warm_start


@dataclass(frozen=True)
class RunResults:
    # the same call resumes an interrupted one
    state: Literal["finished", "interrupted"]
    folder: Path  # contains the tables
    leaderboard: list[Entry]  # all trials, best first
    usage: Usage  # env steps, occupancy, failures, seconds
    hypervolume: float | None = None  # for a front of several objectives, see `volume_of`
    # heuristics, on the seeds of the best trial
    baselines: list[BaselineEntry] = field(default_factory=list)
    conclusion: Conclusion = field(default_factory=lambda: conclude(Evidence(None)))
    advice: str = ""  # a sentence if compiling took most of the time, otherwise ""
    # seconds since the epoch, if the study had finished before this call; else None
    finished_at: float | None = None

    @property
    def best(self) -> Entry | None:
        """The top of the leaderboard; None if no trial has a value."""
        if not self.leaderboard or self.leaderboard[0].value is None:
            return None
        return self.leaderboard[0]

    @property
    def rejected_share(self) -> float:
        """The share of all drawn configurations that a `forbid` rule rejected."""
        return self.usage.refused / max(1, self.usage.draws)


def _say_nothing(text: str) -> None:
    """Accept a line and ignore it; a named function, because settings are pickled."""


@dataclass(frozen=True)
class RunOptions:
    """Options for running a study; they do not affect results."""

    # minimum time between two commits; None: `checkpoint.commit_every`, and sooner at first
    commit_seconds: float | None = None
    publish_seconds: float = 30.0  # minimum time between two publications of the tables
    resume: bool = True  # if False, an existing study is an error
    delete_existing: bool = False  # delete an existing study first
    accept_new_bits: bool = False  # resume even if results here differ in the last digits
    accept_changed_files: bool = False  # resume even if a file named by the study has changed
    study_text: str = ""  # original text of the study file, stored with the tables
    given: Given | None = None  # the command that runs the study, stored with the file
    sinks: Sinks | None = None  # copies of the tables for other tools
    callbacks: Sequence[Callback] = ()
    retry_failed: bool = False  # run failed trials again
    warn: Callable[[str], None] = _say_nothing  # receives lines about such events
    # entered while the end of a study waits for a compile that is not needed
    compiling: Callable[[str], AbstractContextManager[object]] = nullcontext
    shown: Path | None = None  # the folder as the user gave it, before any of the study's code ran


@dataclass(frozen=True)
class Asked:
    """The inputs of one call of `run`."""

    study: Study
    meta: StudyMeta  # metadata of the study on this machine
    factory: PopulationFactory
    earlier: WarmStartTrials
    settings: RunOptions
    shown: Path  # its folder as the user gave it


@dataclass(frozen=True)
class New:
    """A study that starts in an empty folder."""

    search_state: SearchState


@dataclass(frozen=True)
class Resumed:
    """A study to be continued after an interruption or with higher limits."""

    search_state: SearchState
    again: Sequence[int] = ()  # failed trials to run again


@dataclass(frozen=True)
class Finished:
    """A finished study that is not continued."""

    search_state: SearchState
    finished_at: float  # seconds since the epoch
    ranked: RankedTrials  # as its tables show them


def open_study(asked: Asked, store: StudyStore) -> New | Resumed | Finished:
    """Open a study's folder; return a new study, one to resume, or a finished one.

    Raises:
        StoreError: the folder has a different study, or one that cannot be resumed as requested.
    """
    if store.created:
        return _begin_study(asked, store)
    _check_resumes(asked, store)
    search_state = _restored_state(asked, store)
    lengthen(search_state, as_recorded(store.meta.study_text)["env_steps"], store.checkpoint())
    again = _trials_to_retry(asked, search_state)
    if not _reopen_study(asked, search_state, again):
        return _find_finished(asked, store, search_state)
    return _resume_study(asked, store, search_state, again)


def _begin_study(asked: Asked, store: StudyStore) -> New:
    search_state = _restored_state(asked, store)
    _reopen_study(asked, search_state, _trials_to_retry(asked, search_state))
    _write_study(asked, store, search_state)
    return New(search_state)


def _resume_study(
    asked: Asked, store: StudyStore, search_state: SearchState, again: Sequence[int]
) -> Resumed:
    before, settings = store.meta, asked.settings
    files = takes_changed_files(
        before.name, before.files, asked.study.source, settings.accept_changed_files
    )
    differs = gives_new_bits(before, asked.meta, settings.accept_new_bits) or files
    bits = max(before.bits, search_state.state.bits) + differs
    store.journal.replace_meta(replace(asked.meta, created_at=before.created_at, bits=bits))
    _write_study(asked, store, search_state)
    return Resumed(search_state, again)


def _find_finished(asked: Asked, store: StudyStore, search_state: SearchState) -> Finished:
    """Return a finished study; update keys such as `loggers`, and keep its recorded machine."""
    now = asked.meta
    given = {"name": now.name, "study_hash": now.study_hash, "study_text": now.study_text}
    store.journal.replace_meta(replace(store.meta, **given))
    _write_study(asked, store, search_state)
    ranked = RankedTrials.of(store.journal)
    store.publish(force=True, ranked=ranked)
    return Finished(search_state, store.head.at, ranked)


def _check_resumes(asked: Asked, store: StudyStore) -> None:
    settings = asked.settings
    if not settings.resume:
        place = as_given(asked.shown, store.folder.path)
        raise StoreError(f"{place} already has a study; start a new one", new=True)
    kept = store.folder.kept_text()
    same = without_given(kept) == without_given(settings.study_text)
    check_continues(store.meta, asked.study, given_in(kept), settings.given, same)


def _restored_state(asked: Asked, store: StudyStore) -> SearchState:
    resolver = Resolver(asked.study, asked.factory)
    return restore_search_state(asked.study, store, store.clock, resolver, asked.earlier.history)


def _trials_to_retry(asked: Asked, search_state: SearchState) -> list[int]:
    """Return the failed trials to run again, if that is requested."""
    if not asked.settings.retry_failed:
        return []
    again = to_retry(search_state)
    asked.settings.warn(retry_note(search_state, again, lacks_test_seeds(search_state)))
    return again


def _reopen_study(asked: Asked, search_state: SearchState, again: Sequence[int]) -> bool:
    """Reopen a finished study with higher limits; return whether work is left."""
    lacks = asked.settings.retry_failed and lacks_test_seeds(search_state)
    bounds = bounds_of(asked.study.budget, asked.study.confirm)
    return search_state.state.go_on(bounds, again=bool(again) or lacks)


def _write_study(asked: Asked, store: StudyStore, search_state: SearchState) -> None:
    """Write the study file, the command that runs it, and the trials of the warm start."""
    search_state.state.take_bits(store.meta.bits)
    text, given = asked.settings.study_text, asked.settings.given
    if text and given is not None:
        text = given.on_top_of(text)
    store.folder.write_study(text or asked.meta.study_text, asked.meta.study_text)
    write_warm_start(asked.earlier, store.folder.path)


def run(
    study: Study,
    directory: Path,
    factory: PopulationFactory,
    observers: Sequence[Observer] = (),
    settings: RunOptions | None = None,
    *,
    earlier: WarmStartTrials | None = None,
) -> RunResults:
    """Run a study to its end, or resume it.

    Raises:
        ConfigError: the study cannot run as requested. SearchError: the study cannot continue;
            everything so far is committed. CallbackError: a callback raised; everything so far is
            committed. StoreError: its folder is locked, damaged, or belongs to another study.
    """
    settings = settings or RunOptions()
    shown = settings.shown or Path(directory)
    place = Path(directory).absolute()  # the study's code may change the working folder
    check_runnable(study)
    sampler = make_sampler(study)
    proposer = Proposer(study, sampler)
    if earlier is None and settings.delete_existing:
        earlier = warm_start(study)
    if earlier is None:
        earlier = warm_start(study, place)
    if settings.delete_existing:  # only now, when nothing can reject the study
        delete_results(place)
    versions = versions_of_study(study)
    meta = study_meta(study, versions, factory.backend, factory.device_count)
    asked = Asked(study, meta, factory, earlier, settings, shown)
    seconds = settings.publish_seconds
    with StudyStore(
        StudyFolder(place), meta, sinks=settings.sinks, publish_seconds=seconds
    ) as store:
        opened = open_study(asked, store)
        if isinstance(opened, Finished):
            results = _run_results("finished", opened.search_state, store, opened.ranked)
            results = replace(results, finished_at=opened.finished_at)
        else:
            results = _run_study(asked, opened, store, proposer, observers)
    return replace(results, folder=as_given(shown, place))


def _run_study(
    asked: Asked,
    opened: New | Resumed,
    store: StudyStore,
    proposer: Proposer,
    observers: Sequence[Observer],
) -> RunResults:
    search_state, factory, settings = opened.search_state, asked.factory, asked.settings
    study = search_state.study
    if begin := getattr(factory, "begin", None):  # of processes, which write to the folder
        begin(store.folder.path)
    buckets = restore_buckets(search_state, factory, store.checkpoint())
    paused_states = PausedStates(search_state, buckets, factory)
    paused_states.restore(store.checkpoint())
    callbacks, start_observers = Callbacks(settings.callbacks), list[Observer]()
    if settings.callbacks:
        start_observers.append(callbacks)
    notifier = Notifier(search_state, buckets, [*observers, *start_observers], start_observers)
    folder = as_given(asked.shown, store.folder.path)
    notifier.tell("on_start", study, folder, isinstance(opened, Resumed))
    measure_baselines(
        search_state, factory, baselines_of(store.journal), partial(notifier.tell, "on_baseline")
    )
    stop = StopRequest(store.folder.path, store.holder)
    with (
        closing(stop),
        closing(AskAhead(proposer)) as ahead,
        Interrupts(partial(notifier.tell, "on_interrupt"), stop) as interrupts,
        CompileBeside(settings.compiling) as beside,
    ):
        fresh = read_fresh(search_state, store)
        names = study.confirm is not None and bool(study.confirm.also)
        add_rows = fresh.only_new(store.curves.add_chunk, cut=names)
        if settings.callbacks:
            add_rows = callbacks.listening(add_rows)
        policies = KeptPolicies(search_state, buckets, store.folder.policies, study.checkpoint)
        delete_copies(store.folder.policies)
        policies.tidy_snapshots()
        every = settings.commit_seconds
        if every is None:
            every = study.checkpoint.commit_seconds
        engine = Engine(
            search_state,
            factory,
            buckets,
            add_rows=add_rows,
            committer=Committer(
                store,
                search_state,
                buckets,
                every_seconds=every,
                soon=settings.commit_seconds is None,
                paused_states=paused_states,
            ),
            policies=policies,
            notifier=notifier,
            beside=beside,
            paused_states=paused_states,
        )
        trained = search_state.state.usage.env_steps
        outcome = _drive_engine(
            engine, opened, store, ahead=ahead, interrupts=interrupts, fresh=fresh
        )
        _warn_if_unused(opened, engine, settings, trained)
        with search_state.state.usage.spending("store"):
            ranked = RankedTrials.of(store.journal) if outcome == "finished" else None
            store.publish(force=True, ranked=ranked)
    notifier.count_time()
    notifier.tell("on_end", notifier.progress(), outcome)
    return _run_results(outcome, search_state, store, ranked)


def _drive_engine(
    engine: Engine,
    opened: New | Resumed,
    store: StudyStore,
    *,
    ahead: AskAhead,
    interrupts: Interrupts,
    fresh: Fresh,
) -> Outcome:
    """Run the search and the confirm stage; after an error, publish what is committed."""
    study = engine.study
    outcome: Outcome = "finished"
    if isinstance(opened, Resumed):
        retry(engine, store, opened.again)
    try:
        if study.search.driver == "ray_tune" and engine.search_state.state.phase is Phase.SEARCH:
            outcome = drive(engine, interrupts)
        if outcome == "finished":
            refill_queue = RefillQueue(engine, ahead)
            loop = Loop(engine, refill_queue, make_pruner(study), make_evolver(study), fresh)
            outcome = loop.run(interrupts)
    except BaseException as error:
        if not (isinstance(error, StoreError) or has_refused(error)):
            store.publish(force=True)  # a failing disk is not tried again
        raise
    return outcome


def _warn_if_unused(
    opened: New | Resumed, engine: Engine, settings: RunOptions, trained: int
) -> None:
    """Warn that an extended study trained nothing, because confirm needs the additional budget."""
    state = opened.search_state.state
    is_extended = isinstance(opened, Resumed) and not opened.again
    if not is_extended or state.phase is not Phase.DONE or state.usage.env_steps > trained:
        return
    if unused := engine.unused_budget():
        settings.warn(unused)


def _run_results(
    outcome: Outcome, search_state: SearchState, store: StudyStore, ranked: RankedTrials | None
) -> RunResults:
    """Return the results; `ranked` contains the trials of a finished study."""
    if ranked is None:
        rows = store.journal.trials()
        entries = leaderboard_of(store.meta, as_left(rows))
        conclusion = conclusion_of(store.journal, rows)
    else:
        entries = list(ranked.entries)
        conclusion = conclusion_of(store.journal, ranked.rows, entries)
    # the same time as in `hpo report` and `hpo show`: a commit cannot contain its own time
    head = store.head
    usage = LoopState.from_text(head.loop_state).usage if head.number else search_state.state.usage
    study, trials = search_state.study, search_state.trials.values()
    programs = len({trial.bucket for trial in trials if trial.env_steps})
    times = (usage.compile_seconds, usage.run_seconds)
    return RunResults(
        state=outcome,
        folder=store.folder.path,
        leaderboard=entries,
        baselines=baseline_entries(
            baselines_of(store.journal), entries, store.meta.goal, value_bounds(store.meta)
        ),
        usage=usage,
        advice=programs_note(study, programs, len(trials), *times),
        hypervolume=volume_of(entries, Ranking.of(store.meta)),
        conclusion=conclusion,
    )
