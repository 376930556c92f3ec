"""`run(study, directory, factory)`: begin a study, go on with it, or find it finished.

The same call does all three; a study continued ends with the same tables as one never interrupted.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from ..errors import StoreError
from ..files.atomic_files import delete_copies, has_refused
from ..store.baselines import BaselineEntry, baseline_entries, baselines_of
from ..store.leaderboard import Entry, Ranking, leaderboard_of, volume_of
from ..store.lock import StopRequest
from ..store.remove_study import begin_anew
from ..store.rows import StudyMeta, as_left
from ..store.sinks import Sinks
from ..store.study_folder import StudyFolder
from ..store.study_store import StudyStore
from ..store.verdict import Conclusion, conclude
from ..studies.overrides import Given, given_in, without_given
from ..studies.programs import programs_note
from ..studies.spec import Study
from .analysis.verdict import conclusion_of
from .checks import (
    check_continues,
    check_runnable,
    gives_new_bits,
    study_meta,
    takes_changed_files,
)
from .engine.callbacks import Callback, Callbacks
from .engine.commits import Committer, Shelf, restore_buckets, restore_ledger
from .engine.confirm import read_fresh
from .engine.engine import CompileBeside, Engine, Outcome
from .engine.evaluate import measure_baselines
from .engine.extend_run import length_of, lengthen
from .engine.finish_trials import Policies
from .engine.interrupts import Interrupts
from .engine.loop import Loop
from .engine.notify import Telling
from .engine.pbt_step import make_evolver
from .engine.refill import Intake
from .lanes.contract import PopulationFactory, Resolver
from .ray_tune.loop import drive
from .rules.registry import make_pruner
from .samplers.proposal_queue import AskAhead, Proposer
from .samplers.registry import make_sampler
from .state.buckets import Bucket
from .state.loop_state import LoopState, Phase, encode
from .state.progress import Observer
from .state.search_state import Ledger
from .state.usage import Usage
from .state.warm_start import WarmStart, warm_start, write_warm_start


@dataclass(frozen=True)
class Results:
    """What a study has found.

    Attributes:
        state: `finished`, or `interrupted` and to be continued by the same call.
        folder: where its tables lie.
        leaderboard: all trials, the best first.
        baselines: rules that learn nothing, on the seeds of the best trial.
        hypervolume: of the front, where there are several objectives, see `volume_of`.
        usage: env steps, occupancy, failures, seconds.
        conclusion: what the study has shown on seeds that chose nothing; print it.
        advice: a sentence where compiling took most of the time, or "".
        finished_at: when the study had finished before this call, which did nothing then; seconds
            since the epoch. None where the call ran anything.
    """

    state: Literal["finished", "interrupted"]
    folder: Path
    leaderboard: list[Entry]
    usage: Usage
    hypervolume: float | None = None
    baselines: list[BaselineEntry] = field(default_factory=list)
    conclusion: Conclusion = field(default_factory=lambda: conclude(None, None))
    advice: str = ""
    finished_at: float | None = None

    @property
    def best(self) -> Entry | None:
        """The top of the leaderboard, None if no trial has a value."""
        first = self.leaderboard[0] if self.leaderboard else None
        return first if first is not None and first.value is not None else None

    @property
    def rejected_share(self) -> float:
        """Of all configurations drawn, the share that a `forbid` rule refused."""
        return self.usage.refused / self.usage.draws if self.usage.draws else 0.0


@dataclass(frozen=True)
class Settings:
    """How a study is run; none of it changes a result.

    Attributes:
        commit_seconds: between two commits, at least. None: as `checkpoint.commit_every` of the
            study says, and the first ones sooner.
        publish_seconds: between two publications of the tables, at least.
        resume: go on with a study that is there; False refuses it.
        anew: delete what is there first: nothing of it is worth going on with.
        accept_new_bits: go on although the machine would give other bits than before.
        accept_changed_files: go on although a file that the study names has changed.
        study_text: the study file as it was given, to be kept beside the tables.
        given: the command that runs it, to be kept with it.
        sinks: copies of the tables for other tools.
        callbacks: code of the user's to call.
    """

    commit_seconds: float | None = None
    publish_seconds: float = 30.0
    resume: bool = True
    anew: bool = False
    accept_new_bits: bool = False
    accept_changed_files: bool = False
    study_text: str = ""
    given: Given | None = None
    sinks: Sinks | None = None
    callbacks: Sequence[Callback] = ()


def run(
    study: Study,
    directory: Path,
    factory: PopulationFactory,
    observers: Sequence[Observer] = (),
    settings: Settings | None = None,
    earlier: WarmStart | None = None,
) -> Results:
    """Run a study to its end, from wherever it stands.

    Args:
        study: what is asked.
        directory: its folder, made if it is not there.
        factory: makes populations of lanes.
        observers: told of everything that happens.
        settings: how to run it.
        earlier: the trials that it starts from, if they were read before.

    Raises:
        ConfigError: the study cannot be run as asked.
        SearchError: it cannot go on; what was done is committed.
        CallbackError: a callback raised; what was done is committed.
        StoreError: its folder is locked, damaged, or of another study.
    """
    settings = settings or Settings()
    check_runnable(study)
    proposer = Proposer(study, make_sampler(study))
    if earlier is None:
        earlier = warm_start(study, None if settings.anew else Path(directory))
    if settings.anew:  # nothing above has refused the study
        begin_anew(Path(directory))
    meta = study_meta(study, factory.backend, factory.device_count)
    store = StudyStore(
        StudyFolder(Path(directory)),
        meta,
        sinks=settings.sinks,
        publish_seconds=settings.publish_seconds,
    )
    with store:
        if not store.created:
            if not settings.resume:
                raise StoreError(f"{directory} has a study already; start another", new=True)
            kept = _kept_text(store.folder)
            same = without_given(kept) == without_given(settings.study_text)
            check_continues(store.meta, study, given_in(kept), settings.given, same)
        ledger = restore_ledger(
            study, store, store.clock, Resolver(study, factory), earlier.history
        )
        if not store.created:
            was = length_of(store.meta)
            lengthen(ledger, was, store.checkpoint())
        goes_on = _goes_on(ledger)
        if not store.created:
            known = max(store.meta.bits, ledger.state.bits)
            changed = goes_on and _is_another(store.meta, meta, study, settings)
            store.journal.replace_meta(_continued(store.meta, meta, goes_on, known + changed))
        ledger.state.take_bits(store.meta.bits)
        store.folder.write_study(_shown_text(settings) or meta.study_text, meta.study_text)
        write_warm_start(earlier, store.folder.path)
        if not goes_on:
            store.publish(force=True)
            return replace(_results("finished", ledger, store), finished_at=store.head.at)
        return _run(ledger, store, factory, proposer, observers, settings)


def _kept_text(folder: StudyFolder) -> str:
    """Return the study file that was kept, "" without one."""
    if not folder.study_file.is_file():
        return ""
    return folder.study_file.read_text(encoding="utf-8", errors="replace")


def _shown_text(settings: Settings) -> str:
    """Return the study file with the command on top, if that changed what it says."""
    text = settings.study_text
    return text if settings.given is None or not text else settings.given.on_top_of(text)


def _is_another(before: StudyMeta, now: StudyMeta, study: Study, settings: Settings) -> bool:
    """Return whether what is trained from here on is not quite what was trained before."""
    files = takes_changed_files(before.name, before.files, study, settings.accept_changed_files)
    return gives_new_bits(before, now, settings.accept_new_bits) or files


def _continued(before: StudyMeta, now: StudyMeta, goes_on: bool, bits: int) -> StudyMeta:
    """Return what the journal says of a study begun before.

    Of one that has nothing left to do it goes on to say where it ran.
    """
    if not goes_on:
        return replace(before, study_hash=now.study_hash, study_text=now.study_text)
    return replace(now, created_at=before.created_at, bits=bits)


def _run(
    ledger: Ledger,
    store: StudyStore,
    factory: PopulationFactory,
    proposer: Proposer,
    observers: Sequence[Observer],
    settings: Settings,
) -> Results:
    study = ledger.study
    buckets = restore_buckets(ledger, factory, store.checkpoint())
    shelf = Shelf(ledger, buckets, factory)
    shelf.restore(store.checkpoint())
    callbacks = Callbacks(settings.callbacks)
    heard = [callbacks] if settings.callbacks else []
    telling = Telling(ledger, buckets, [*observers, *heard], heard)
    telling.start(store.folder.path, resumed=not store.created)
    measure_baselines(ledger, factory, baselines_of(store.journal), telling.baseline)
    asked = StopRequest(store.folder.path, store.holder)
    with (
        closing(asked),
        closing(AskAhead(proposer)) as ahead,
        Interrupts(telling.interrupt, asked) as interrupts,
        CompileBeside() as beside,
    ):
        fresh = read_fresh(ledger, store)
        names = study.confirm is not None and bool(study.confirm.also)
        curves = fresh.only_new(store.curves, cut=names)
        policies = Policies(ledger, buckets, store.folder.policies, study.checkpoint)
        delete_copies(store.folder.policies)
        policies.tidy_snapshots()
        engine = Engine(
            ledger,
            factory,
            buckets,
            curves=callbacks.listening(curves) if settings.callbacks else curves,
            committer=_committer(store, ledger, buckets, shelf, settings),
            policies=policies,
            telling=telling,
            beside=beside,
            shelf=shelf,
        )
        outcome: Outcome = "finished"
        try:
            if study.search.driver == "ray_tune" and ledger.state.phase is Phase.SEARCH:
                outcome = drive(engine, interrupts)
            if outcome == "finished":
                intake = Intake(engine, ahead)
                loop = Loop(engine, intake, make_pruner(study), make_evolver(study), fresh)
                outcome = loop.run(interrupts)
        except BaseException as error:
            if not (isinstance(error, StoreError) or has_refused(error)):
                store.publish(force=True)  # a disk that refused is not asked again
            raise
        with ledger.state.usage.spending("store"):
            store.publish(force=True)
    telling.count_time()
    telling.end(outcome)
    return _results(outcome, ledger, store)


def _committer(
    store: StudyStore,
    ledger: Ledger,
    buckets: dict[str, Bucket],
    shelf: Shelf,
    settings: Settings,
) -> Committer:
    asked = settings.commit_seconds
    every = ledger.study.checkpoint.commit_seconds if asked is None else asked
    return Committer(store, ledger, buckets, every, soon=asked is None, shelf=shelf)


def _goes_on(ledger: Ledger) -> bool:
    """Return whether anything is left to do, also because the bounds of the study grew."""
    study = ledger.study
    return ledger.state.go_on(json.dumps([encode(study.budget), encode(study.confirm)]))


def _results(
    outcome: Literal["finished", "interrupted"], ledger: Ledger, store: StudyStore
) -> Results:
    rows = store.journal.trials()
    entries = leaderboard_of(store.meta, rows if outcome == "finished" else as_left(rows))
    head = store.head  # as `hpo report` and `hpo show` say it: a commit cannot hold its own time
    usage = LoopState.from_text(head.loop_state).usage if head.number else ledger.state.usage
    return Results(
        state=outcome,
        folder=store.folder.path,
        leaderboard=entries,
        baselines=baseline_entries(baselines_of(store.journal), entries, store.meta.goal),
        usage=usage,
        advice=_advice(ledger, usage),
        hypervolume=volume_of(entries, Ranking.of(store.meta)),
        conclusion=conclusion_of(store.journal),
    )


def _advice(ledger: Ledger, usage: Usage) -> str:
    """Return advice where compiling took most of the time."""
    trials = ledger.trials.values()
    programs = len({trial.bucket for trial in trials if trial.env_steps})
    times = (usage.compile_seconds, usage.run_seconds)
    return programs_note(ledger.study, programs, len(trials), *times)
