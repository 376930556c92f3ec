"""A study under different stopping rules: the engine reads recorded values instead of training.

Trials are proposed in the recorded order. For a method that does not learn (random, grid, sobol),
the replay equals a study with that rule. For a learning method, the verdict is about the recorded
trials. At each point a replicate has its last evaluation so far.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ConfigError, StudyError, UnknownNameError
from ..store.codec import plain_json
from ..store.journal import Journal
from ..store.rows import (
    AskRow,
    DecisionRow,
    Stream,
    TrialRow,
    TrialState,
    counts_evaluations_alone,
)
from ..store.study_folder import StudyFolder
from ..studies.chunk_sizes import chunk_sizes_of, rungs
from ..studies.execution_spec import Checkpoint, Executor
from ..studies.load import loads, recorded
from ..studies.overrides import SET
from ..studies.search_methods import METHODS
from ..studies.search_spec import EarlyTerminate, Racing, Seeds
from ..studies.spec import Study
from ..studies.stopping_rules import RULES, rule_row
from ..studies.study_environments import metric_words
from ..studies.user_code import run_own_code
from .checks import check_same_files, kept_text, source_of
from .engine.engine import engine_in_memory
from .engine.interrupts import Interrupts
from .engine.loop import Loop
from .engine.refill import RefillQueue
from .lanes.contract import ChunkResult, EvaluationResult, Refill, Resolved, SimulatedPopulation
from .rules.registry import make_pruner
from .samplers.proposal_queue import AskAhead, Proposal, Proposals, Proposer
from .state.loop_state import LoopState, Phase
from .state.objective import Objective
from .state.schedule import schedule_of
from .state.search_state import SearchState

Quantum = Callable[[Study, Mapping[str, Any]], int]
"""Study and complete configuration -> env steps of one chunk in one lane."""

_LOST = (TrialState.DIVERGED, TrialState.FAILED)
# seeds per trial from which racing is among the usual rules: it starts with three
_RACING_FROM = 4


def quantum_of(study: Study, config: Mapping[str, Any]) -> int:
    return chunk_sizes_of(study, study.steps_per_update(config)).steps_per_chunk


# ---------------------------------------------------------------------- the record


@dataclass(frozen=True)
class RecordedSearch:
    study: Study
    text: str  # text of its file
    trials: tuple[TrialRow, ...]  # search trials, by number
    configs: tuple[Mapping[str, Any], ...]  # complete configuration of each
    # (trial, replicate) -> env steps, ascending -> its evaluation there
    results: Mapping[tuple[int, int], Mapping[int, EvaluationResult]]
    decisions: Sequence[DecisionRow]
    asks: Sequence[AskRow]
    state: LoopState
    devices: int  # number of devices over which its lanes were distributed
    quantum: Quantum
    folder: Path
    source: Path | None = None  # folder of the study's files, if given
    shortened: int | None = None  # requested env steps of a run, if `study` has fewer
    evaluations_alone: bool = False  # whether training returns did not count in the end

    @property
    def seeds(self) -> int:
        return self.study.seeds.first

    @cached_property
    def of_trial(self) -> Mapping[int, Mapping[int, Mapping[int, EvaluationResult]]]:
        """Results by trial and replicate; a loop over all of them per trial would take hours."""
        found: dict[int, dict[int, Mapping[int, EvaluationResult]]] = defaultdict(dict)
        for (trial, replicate), points in self.results.items():
            found[trial][replicate] = points
        return dict(found)

    @cached_property
    def first_point(self) -> int:
        return min(min(points) for points in self.results.values())

    def at(self, trial: int, replicate: int, env_steps: int) -> tuple[EvaluationResult, str]:
        """Return an evaluation, and whether it is `seen`, `between` two others, or `unseen`.

        For a seed without evaluations, use another seed of the same trial, or of any trial.
        """
        results = self.results.get((trial, replicate))
        if results is None:
            known = self.of_trial.get(trial) or self.results
            results = next(iter(known.values()))
            return next(iter(results.values())), "unseen"
        points = [*results]
        known = points[max(0, bisect_right(points, env_steps) - 1)]
        if known == env_steps:
            return results[known], "seen"
        if env_steps > points[-1]:
            return results[known], "unseen"
        return results[known], "between"

    def length(self, trial: int) -> int:
        """Return the env steps of a trial's full run, in whole chunks."""
        return schedule_of(self.study, self.quantum(self.study, self.configs[trial])).env_steps

    def value(self, trial: int, env_steps: int) -> float | None:
        """Return a trial's value over its seeds; None if one of them was not evaluated there."""
        objective = Objective.of(self.study)
        if self.evaluations_alone:
            objective = objective.of_test
        replicates = self.of_trial.get(trial, {})
        shown = [self.at(trial, one, env_steps) for one in replicates if one < self.seeds]
        waits = self.trials[trial].ended_at is None and len(shown) < self.seeds
        if waits or not shown or any(how != "seen" for _, how in shown):
            return None
        return objective.aggregate([objective.measure(result) for result, _ in shown])

    def is_staggered(self, row: TrialRow) -> bool:
        """Return whether the seeds of a diverged trial had trained for different times."""
        last = {max(points) for points in self.of_trial.get(row.trial, {}).values()}
        chunk = self.quantum(self.study, self.configs[row.trial])
        return len(last) > 1 or row.env_steps % (chunk * self.seeds * self.study.spread) > 0


def _checked_source(folder: Path, given: Path | None) -> Path:
    """Return the folder of the study's files, which must be unchanged since it ran."""
    with Journal(folder) as journal:
        source = source_of(journal.meta, kept_text(StudyFolder(folder)), given)
        check_same_files(journal.meta, source)
    return source


def read_record(
    folder: Path, quantum: Quantum = quantum_of, source: Path | None = None
) -> RecordedSearch:
    with Journal(folder) as journal, journal.at_one_commit():
        text = journal.meta.study_text
        study = recorded(text)
        if not study.algorithm.is_ppo:  # the length of an update is in its code
            study = loads(text, "study.resolved.yaml", _checked_source(folder, source))
            run_own_code(study)
        early = study.early_terminate
        if early is not None and early.evolves:
            raise ConfigError(
                f"trials of {study.name} copy each other ({early.type}), so no curve "
                "belongs to one configuration; choose a study without copies"
            )
        results: dict[tuple[int, int], dict[int, EvaluationResult]] = defaultdict(dict)
        for row in sorted(journal.evaluations(), key=lambda row: row.env_steps):
            if row.stream is Stream.SEARCH:
                shown = EvaluationResult(row.returns, row.lengths, row.metrics)
                results[row.trial, row.replicate][row.env_steps] = shown
        rows = tuple(row for row in journal.trials() if row.trial >= 0)
        default = plain_json(study.space.default())
        record = RecordedSearch(
            study,
            text,
            rows,
            tuple(
                study.default() if row.params == default else study.complete(row.params)
                for row in rows
            ),
            dict(results),
            journal.decisions(),
            journal.asks(),
            LoopState.from_text(journal.head().loop_state),
            journal.meta.devices,
            quantum,
            folder,
            source,
            evaluations_alone=counts_evaluations_alone(journal.attributes()),
        )
    if not results:
        raise ConfigError(f"no trial of {study.name} has been evaluated yet; run it first")
    return _up_to_shared_point(record)


def _up_to_shared_point(record: RecordedSearch) -> RecordedSearch:
    """If no trial finished, end all runs at the latest point that two trials reached."""
    reached = Counter[int]()
    for row in record.trials:
        each = [{*record.results.get((row.trial, seed), ())} for seed in range(record.seeds)]
        reached.update(set.intersection(*each))
    shared = max((at for at, count in reached.items() if count > 1), default=0)
    finished = any(row.state is TrialState.FINISHED for row in record.trials)
    if finished or not shared or shared == record.study.env_steps:
        return record
    before = [one for one in record.decisions if one.env_steps < shared]
    study = replace(record.study, env_steps=shared)
    return replace(record, study=study, decisions=before, shortened=record.study.env_steps)


# ---------------------------------------------------------------------- the record as lanes


class RecordedFactory:
    """Creates populations that replay a record; see `PopulationFactory`."""

    backend = "none"

    def __init__(self, record: RecordedSearch, study: Study):
        self.record, self.study, self.device_count = record, study, record.devices
        self.shown, self.trained = Counter[str](), Counter[int]()
        self.first = record.first_point  # used for runs without an evaluation
        each = reversed([*enumerate(record.configs)])
        self._by_config = {_configuration_key(config): trial for trial, config in each}
        buckets = record.state.buckets
        self._lanes = {one.key: one.offered or one.lanes for one in buckets}
        self.warmup = max(
            -(
                -row.warmup_env_steps
                // (record.quantum(study, config) * study.spread * max(1, record.seeds))
            )
            for row, config in zip(record.trials, record.configs, strict=True)
        )

    def resolve(self, config: Mapping[str, Any]) -> Resolved:
        """See `PopulationFactory`; the payload is the number of the trial."""
        trial = self._by_config[_configuration_key(config)]
        row = self.record.trials[trial]
        if not row.bucket and row.state is TrialState.FAILED:
            raise ConfigError(row.error)
        return Resolved(config, row.bucket, self.record.quantum(self.study, config), trial)

    def make(self, resolved: Resolved, lanes: int | None) -> RecordedPopulation:
        known = self._lanes.get(resolved.bucket) or max(self._lanes.values(), default=1)
        return RecordedPopulation(self, resolved.steps_per_chunk, lanes or known)

    def baseline(self, name: str, resolved: Resolved, seeds: Sequence[Any]) -> Any:
        raise NotImplementedError


def _configuration_key(config: Mapping[str, Any]) -> str:
    return json.dumps(plain_json(dict(config)), sort_keys=True)


class RecordedPopulation(SimulatedPopulation):
    """Lanes that replay a record; a diverged trial diverges after the same amount of training."""

    def __init__(self, factory: RecordedFactory, quantum: int, lanes: int):
        super().__init__(lanes, factory.device_count, quantum, factory.warmup)
        self._factory, self._record = factory, factory.record

    def advance(self, refills: Sequence[Refill], busy: Sequence[int]) -> ChunkResult:
        diverged, failed = np.zeros(self.lanes, bool), dict[int, str]()
        lanes = self._count_chunk(refills, busy)
        steps, trained = self.steps_per_chunk, self._factory.trained
        for lane in lanes.values():
            if lane.chunks > self.warmup_chunks:
                trained[lane.payload] += steps * self._factory.study.spread
        share = self._factory.study.seeds.first / self._record.seeds
        for index, lane in lanes.items():
            row = self._record.trials[lane.payload]
            over = row.state in _LOST and trained[row.trial] >= share * row.env_steps
            # otherwise its seeds may wait for their first evaluation
            ended = row.ended_at is not None
            bare = ended and (row.trial, lane.replicate) not in self._record.results
            diverged[index] = over or (bare and self._env_steps(index) >= self._factory.first)
            if diverged[index] and row.state is TrialState.FAILED:
                failed[index] = row.error
        return ChunkResult({}, diverged, 0.0, failed)

    def evaluate(self, lanes: Sequence[int]) -> list[EvaluationResult]:
        found: list[EvaluationResult] = []
        for index in lanes:
            lane = self._lane(index)
            result, how = self._record.at(lane.payload, lane.replicate, self._env_steps(index))
            self._factory.shown[how] += 1
            found.append(result)
        return found

    def _env_steps(self, index: int) -> int:
        return max(0, self._lane(index).chunks - self.warmup_chunks) * self.steps_per_chunk


class _Asks(Proposer):
    """Proposes the recorded trials in order."""

    def __init__(self, rows: Sequence[TrialRow]):
        self._rows = rows

    def propose(self, batch: int, trials: Sequence[int], history: Sequence[object]) -> Proposals:
        known = [self._rows[number] for number in trials if number < len(self._rows)]
        return Proposals([Proposal(row.trial, dict(row.params), row.proposed_by) for row in known])


@dataclass(frozen=True)
class Replayed:
    search_state: SearchState  # its trials have ended, and no row of it was written
    winner: int | None  # None without one, or with several objectives or constraints
    shown: Mapping[str, int]  # source of evaluations -> their number

    @property
    def decisions(self) -> Sequence[DecisionRow]:
        return self.search_state.unwritten.decisions

    @property
    def env_steps(self) -> int:
        return self.search_state.state.usage.env_steps

    def end_of(self, trial: int) -> int | None:
        """Return the env steps at which a rule finished a trial early with its value, or None."""
        ends = (row for row in self.decisions if row.trial == trial and row.action == "finish")
        return next((row.env_steps for row in ends), None)


def replay(record: RecordedSearch, study: Study) -> Replayed:
    """Run a study's search over a record, without expensive steps or time measurements."""
    study = replace(
        study,
        search=replace(study.search, driver="lanes"),
        budget=replace(study.budget, wall_seconds=None),
        checkpoint=Checkpoint(keep_best=0),
        executor=Executor(),
        loggers=(),
        baselines=(),
        log_every=None,
    )
    factory = RecordedFactory(record, study)
    engine = engine_in_memory(study, factory, rows=True)
    search_state = engine.search_state
    with closing(AskAhead(_Asks(record.trials))) as ahead:
        loop = Loop(engine, RefillQueue(engine, ahead), make_pruner(study))
        loop.run(Interrupts(asked=lambda: search_state.state.phase is not Phase.SEARCH))
    finished = [
        trial
        for trial in search_state.trials.values()
        if trial.state is TrialState.FINISHED and trial.value is not None
    ]
    winner = None
    if finished and search_state.objectives.is_plain:
        winner = search_state.best(finished).number
    return Replayed(search_state, winner, factory.shown)


def matches(record: RecordedSearch, found: Replayed) -> tuple[int, int]:
    """Return how many recorded judgements and batches were reproduced, and how many there are."""
    judged = attrgetter("action", "env_steps", "value", "cutoff", "rank", "judged")
    now = {(row.trial, row.rung): judged(row) for row in found.decisions}
    asks = {ask.batch: (ask.trials, ask.told) for ask in found.search_state.unwritten.asks}
    same = sum(now.get((row.trial, row.rung)) == judged(row) for row in record.decisions)
    same += sum(asks.get(ask.batch) == (ask.trials, ask.told) for ask in record.asks)
    return same, len(record.decisions) + len(record.asks)


# ---------------------------------------------------------------------- rules as typed by users


@dataclass(frozen=True)
class ReplayedRule:
    words: str  # as shown in a table
    study: Study  # the recorded study with this rule
    own: bool  # whether it is the rule with which the study ran


def asked_rules(
    record: RecordedSearch, rules: Sequence[str], seeds: int | None = None
) -> list[ReplayedRule]:
    """Return rules such as `asha,eta=2,min=2k` as studies; by default, common rules."""
    study, most = record.study, record.seeds
    if seeds is not None and not 1 <= seeds <= most:
        raise ConfigError(
            f"seeds is {seeds}, but the trials of {study.name} have {most}; allowed: 1 to {most}"
        )
    count = seeds or most
    usual = [
        "none",
        "asha,eta=2",
        "asha,eta=3",
        "asha,eta=4",
        "hyperband,eta=3",
        "median",
        "plateau",
        *["racing"] * (count >= _RACING_FROM),
    ]
    asked = [_parse_rule(record, rule, count) for rule in (rules or usual)]
    if rules or seeds is not None or any(one.own for one in asked):
        return asked
    return [ReplayedRule(_rule_label(study.early_terminate, study.seeds), study, True), *asked]


def _known_rules() -> tuple[str, ...]:
    return ("none", "racing", *RULES)


def _parse_rule(record: RecordedSearch, rule: str, seeds: int) -> ReplayedRule:
    name, *options = [part.strip() for part in rule.split(",")]
    study = record.study
    if study.imports and (study.search.method not in METHODS or name not in _known_rules()):
        source = _checked_source(record.folder, record.source)
        run_own_code(replace(study, source=str(source)))
    _check_name(rule, name)
    for option in options:
        _check_option(rule, name, option)
    given = [option.replace("=", ": ", 1) for option in options]
    early, own = None, Seeds(seeds, tolerate=study.seeds.tolerate)
    if name == "racing":
        own = replace(own, racing=_racing(record, rule, given, seeds))
    elif name != "none":
        early = _early(record, rule, name, given)
    changed = replace(study, early_terminate=early, seeds=own)
    _check_rungs(record, rule, changed)
    same = (early, own) == (study.early_terminate, study.seeds)
    return ReplayedRule(_rule_label(early, own), changed, same)


def _check_name(rule: str, name: str) -> None:
    if name not in _known_rules():
        stopping = [row.name for row in RULES.values() if not row.evolves]
        raise UnknownNameError("rule", name, ["none", "racing", *stopping])
    if name in RULES and rule_row(name).evolves:
        raise ConfigError(
            f"rule {rule!r}: {name} changes configurations during training, which cannot "
            "be replayed; name a rule that stops trials"
        )


def _check_option(rule: str, name: str, option: str) -> None:
    if name == "none":
        raise ConfigError(f"rule {rule!r}: {option!r} is not an option; none has no options")
    if not all(option.partition("=")):
        what = "use key=value, such as eta=2"
        raise ConfigError(f"rule {rule!r}: {option!r} is not an option; {what}")


def _racing(record: RecordedSearch, rule: str, given: Sequence[str], seeds: int) -> Racing:
    inside = f"seeds={{per_config: {seeds}, racing: {{{', '.join(given)}}}}}"
    racing = _override_study(record, rule, inside, "early_terminate=null").seeds.racing
    if racing is None or racing.start >= seeds:
        some = f"trials have {seeds} seeds; allowed: start from 1 to {seeds - 1}"
        raise ConfigError(f"rule {rule!r}: {some}")
    return racing


def _early(
    record: RecordedSearch, rule: str, name: str, given: Sequence[str]
) -> EarlyTerminate | None:
    """Return a rule that stops trials; by default its first rung is that of the study."""
    ran, least = record.study.early_terminate, record.first_point
    if ran is not None:
        least = ran.min  # None: the rule's default is later
    own = [f"type: {name}", *given]
    if least is not None and not any(option.startswith("min: ") for option in given):
        own.append(f"min: {least}")
    return _override_study(record, rule, f"early_terminate={{{', '.join(own)}}}").early_terminate


def _override_study(record: RecordedSearch, rule: str, override: str, *more: str) -> Study:
    try:
        return recorded(record.text, overrides=[*more, override])
    except StudyError as error:
        said = error.mistakes[0].text.replace(f"{SET}{override}: ", "")
        raise ConfigError(f"rule {rule!r}: {said}") from None


def _check_rungs(record: RecordedSearch, rule: str, study: Study) -> None:
    """Reject a rule that judges trials before their first evaluation, or never."""
    if study.early_terminate is None:
        return
    found = [rungs(study, record.quantum(study, config)) for config in record.configs]
    first = min((steps[0] for steps in found if steps), default=None)
    if first is None or first < record.first_point:
        where = f"its first rung is at {first}"
        if first is None:
            where = "no rung is within a run"
        way = f"use min={record.first_point} or more"
        if record.first_point >= study.env_steps:
            way = "run a study with evaluation: {every: ...}"
        raise ConfigError(
            f"rule {rule!r}: {where} of {study.env_steps} {study.algorithm.unit}, but "
            f"{study.name} was first evaluated at {record.first_point}; {way}"
        )


def _rule_label(early: EarlyTerminate | None, seeds: Seeds) -> str:
    """Return a rule in the form used in tables: `asha eta=2 min=1k`."""
    racing = []
    if seeds.racing is not None:
        racing = [f"racing start={seeds.racing.start}"]
    if early is None:
        return ", ".join(racing) or "none"
    shown: dict[str, Any] = {}
    if early.type in ("asha", "hyperband"):
        shown["eta"] = f"{early.eta:g}"
    whole, rest = divmod(early.min or 0, 1000)
    shown["min"] = f"{whole}k"
    if rest or not whole:
        shown["min"] = f"{early.min}"
    for entry in rule_row(early.type).fields:
        value = early.options.get(entry.key, getattr(early, entry.key, entry.default))
        if value != entry.default:
            shown.setdefault(entry.key, f"{value:g}" if isinstance(value, int | float) else value)
    return ", ".join([" ".join([early.type, *(f"{k}={v}" for k, v in shown.items())]), *racing])


# ---------------------------------------------------------------------- comparison of rules


@dataclass(frozen=True)
class WhatIfRow:
    rule: str  # the rule as text
    # whether a study with this rule would give the same; otherwise `why` gives the reason
    exact: bool
    why: str  # "" if exact
    trials: int  # number of trials started
    # number of these that the rule stopped early; None if no recorded value decides about any
    stopped: int | None
    env_steps: int  # of training
    # env steps saved, as a share of those of the same trials on all seeds to their ends; None as
    # above
    saved: float | None
    # the winning trial; None if there is none, or with several objectives or constraints
    winner: int | None
    # whether it is the best finished trial of the record; and that trial's value minus the
    # winner's over all recorded seeds, above 0 if the winner is worse, None if not recorded
    kept: bool | None
    lost: float | None
    own: bool  # whether the study ran with this rule


@dataclass(frozen=True)
class WhatIf:
    study: str  # name of the study
    trials: int  # recorded trials, and how many seeds each rule was given
    seeds: int
    metric: str  # the study's metric
    goal: str
    recorded_rule: str  # type of the rule with which it ran, "" without one
    # whether a study with another rule would propose the same trials, because its method does not
    # learn
    same_asks: bool
    method: str  # method that proposed the trials
    matched: int  # number of judgements reproduced by a replay with the record's own rule
    judgements: int
    best: int | None  # the best finished trial of the record; None without one
    env_steps: int  # per run and seed
    asked_env_steps: int | None  # requested env steps per run, if no trial ran that long
    rows: tuple[WhatIfRow, ...]  # one per rule

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Reference:
    """The baseline of other rules: the record, and a replay of it with its own rule."""

    record: RecordedSearch
    matched: int  # number of judgements reproduced by a replay with the record's own rule
    judgements: int
    in_order: bool  # whether all of them were, and the lengths of all trials
    same_asks: bool  # whether a study with another rule would propose the same trials
    losses: Mapping[int, float]  # of each trial with a value for its full run

    @classmethod
    def of(cls, record: RecordedSearch) -> Reference:
        study, own = record.study, replay(record, record.study)
        matched, judgements = matches(record, own)
        method = METHODS.get(study.search.method)
        knows_nothing = method is not None and not method.learns
        return cls(
            record,
            matched,
            judgements,
            in_order=matched == judgements and _has_same_lengths(record, own),
            same_asks=knows_nothing and study.search.driver == "lanes",
            losses=_losses(record),
        )

    @property
    def best(self) -> int | None:
        """The best finished trial of the record; None if there is none."""
        return min(self.losses, key=self.losses.__getitem__, default=None)

    def row(self, rule: ReplayedRule) -> WhatIfRow:
        """Replay the record with a different rule."""
        record, done = self.record, replay(self.record, rule.study)
        why = _why_inexact(record, done, rule, self.same_asks)
        if not why and not self.in_order:
            why = "order"
        trials, lost = done.search_state.trials.values(), self._lost(done)
        stopped, saved = None, None
        if _decides_on_records(record, done):
            stopped = sum(bool(trial.stop_rule) and not trial.audited for trial in trials)
            saved = 1.0 - done.env_steps / max(1, _unstopped_env_steps(record, done))
        return WhatIfRow(
            rule=rule.words,
            exact=not why,
            why=why,
            trials=sum(bool(trial.env_steps) for trial in trials),
            stopped=stopped,
            env_steps=done.env_steps,
            saved=saved,
            winner=done.winner,
            kept=None if lost is None else done.winner == self.best,
            lost=lost,
            own=rule.own,
        )

    def _lost(self, done: Replayed) -> float | None:
        """Return how much worse the winner is than the best trial; None if unknown."""
        best, winner = self.best, done.winner
        if best is None or winner is None or done.shown["unseen"]:
            return None
        end = done.end_of(winner) or self.record.length(winner)
        value = self.record.value(winner, end)
        if value is None:
            return None
        return Objective.of(self.record.study).loss(value) - self.losses[best]


def _has_same_lengths(record: RecordedSearch, own: Replayed) -> bool:
    """Return whether every ended trial has the same length in a replay with the recorded rule."""
    trials = own.search_state.trials
    ended = [row for row in record.trials if row.ended_at is not None and row.trial in trials]
    return all(trials[row.trial].env_steps == row.env_steps for row in ended)


def _losses(record: RecordedSearch) -> dict[int, float]:
    """Return trial -> the loss of a full run; {} with several objectives or constraints."""
    study = record.study
    if study.objectives[1:] or study.constraints:
        return {}
    objective, found = Objective.of(study), dict[int, float]()
    for row in record.trials:
        if row.state in _LOST:
            continue
        value = row.value
        if value is None:
            value = record.value(row.trial, record.length(row.trial))
        if value is not None:
            found[row.trial] = objective.loss(value)
    return found


def what_if(
    folder: Path,
    rules: Sequence[str] = (),
    seeds: int | None = None,
    *,
    quantum: Quantum = quantum_of,
    source: Path | None = None,
    report: Callable[[int, int, str], None] = lambda at, total, rule: None,
) -> WhatIf:
    """Apply different rules to a study's recorded curves.

    `source` is the folder of the study file and its other files; by default, the last known
    folder. It is needed only for custom trainings and registered rules, and only unchanged files
    run. `report` is called before each replay with its number, the total, and the rule.
    """
    record = read_record(folder, quantum, source)
    study, early = record.study, record.study.early_terminate
    asked = asked_rules(record, rules, seeds)
    total = 1 + len(asked)
    report(1, total, "the rule of the study")
    reference = Reference.of(record)
    rows = list[WhatIfRow]()
    for at, rule in enumerate(asked, start=2):
        report(at, total, rule.words)
        rows.append(reference.row(rule))
    return WhatIf(
        study=study.name,
        trials=len(record.trials),
        seeds=asked[0].study.seeds.per_config,
        metric=metric_words(study),
        goal=study.metric.goal,
        recorded_rule="" if early is None else early.type,
        same_asks=reference.same_asks,
        method=study.search.method,
        matched=reference.matched,
        judgements=reference.judgements,
        best=reference.best,
        env_steps=study.env_steps,
        asked_env_steps=record.shortened,
        rows=tuple(rows),
    )


def _why_inexact(
    record: RecordedSearch, done: Replayed, rule: ReplayedRule, same_asks: bool
) -> str:
    """Return why a study with this rule might have differed; "" if it would be the same."""
    study = rule.study
    lost = any(
        row.state in _LOST and row.env_steps and record.is_staggered(row) for row in record.trials
    )
    more = study.budget.trials is None or len(done.search_state.trials) < study.budget.trials
    reasons: dict[str, object] = {
        "unseen": done.shown["unseen"] > 0,
        "asks": not same_asks and not rule.own,
        "lost": lost and not rule.own,
        "more": done.search_state.state.exhausted and not record.state.exhausted and more,
        "between": done.shown["between"] > 0,
    }
    return next((name for name, holds in reasons.items() if holds), "")


def _decides_on_records(record: RecordedSearch, done: Replayed) -> bool:
    """Return whether a rule decides nothing, or stops some trial based on recorded values.

    Otherwise every possible stop depends on values after the last evaluation.
    """
    recorded = [record.value(row.trial, row.env_steps) is not None for row in done.decisions]
    stops = (row.action in ("stop", "finish") for row in done.decisions)
    return all(recorded) or any(seen and stop for seen, stop in zip(recorded, stops, strict=True))


def _unstopped_env_steps(record: RecordedSearch, done: Replayed) -> int:
    """Return the env steps of the started trials, had all of them finished on all seeds."""
    total = 0
    for number, trial in done.search_state.trials.items():
        row = record.trials[number]
        if trial.env_steps and row.state in _LOST:
            total += row.env_steps
        elif trial.env_steps:
            total += record.length(number) * record.seeds * record.study.spread
    return total
