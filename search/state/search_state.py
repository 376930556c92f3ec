"""The complete state of the loop, and the rows that are not committed yet.

All parts of the loop read trials and state here and write rows here; they share nothing else.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...store.interim_analyses import Look, attribute_of_looks
from ...store.rows import (
    EVALUATIONS_ALONE,
    AskRow,
    AttributeRow,
    DecisionRow,
    EvaluationRow,
    Stream,
    TrialRow,
    TrialState,
)
from ...store.statistics import mean
from ...studies.spec import Study
from ...studies.stopping_rules import rule_row
from ..lanes.contract import Resolved
from ..lanes.resolver import Resolver
from ..rules.registry import Rung, TrialAtRung
from ..samplers.registry import PriorTrial
from .evaluations_alone import EvaluationsAlone
from .loop_state import KeptPolicy, LoopState, Phase
from .objective import Objective, Objectives
from .tally import Tally
from .trials import Replicate, Trial, lineage_of, params_at


@dataclass
class Unwritten:
    """Rows since the last commit."""

    trials: set[int] = field(default_factory=set)
    restarted: list[int] = field(default_factory=list)  # trials whose earlier rows are deleted
    evaluations: list[EvaluationRow] = field(default_factory=list)
    decisions: list[DecisionRow] = field(default_factory=list)
    asks: list[AskRow] = field(default_factory=list)
    attributes: list[AttributeRow] = field(default_factory=list)

    def add(self, *rows: EvaluationRow | DecisionRow | AskRow | AttributeRow) -> None:
        """Add rows; a promotion replaces the pause at the same rung, see `Commit.decisions`."""
        for row in rows:
            match row:
                case EvaluationRow():
                    self.evaluations.append(row)
                case DecisionRow(action="promote", trial=trial, rung=rung):
                    others = (o for o in self.decisions if (o.trial, o.rung) != (trial, rung))
                    self.decisions = [*others, row]
                case DecisionRow():
                    self.decisions.append(row)
                case AskRow():
                    self.asks.append(row)
                case AttributeRow():
                    self.attributes.append(row)


class SearchState:
    """The state of a study in memory.

    `undecided` contains live trials with a report at a rung but no decision, because an external
    scheduler had not replied before the last commit. Samplers also receive `earlier` trials.
    """

    def __init__(
        self,
        study: Study,
        state: LoopState,
        ended: Iterable[Trial] = (),
        clock: Callable[[], float] | None = None,
        *,
        resolver: Resolver,
        earlier: Iterable[PriorTrial] = (),
        undecided: Iterable[int] = (),
        looks: Sequence[Look] = (),
        evaluations_alone: bool = False,
    ):
        self.study = study
        self.objective = Objective.of(study)
        self.objectives = Objectives.of(study)
        self.alone = EvaluationsAlone()
        self._redraws = False  # whether values have changed since the pending batch was started
        if evaluations_alone:
            self.objective = self.objective.of_test
        self.state = state
        self.trials: dict[int, Trial] = {trial.number: trial for trial in ended}
        self.trials.update(state.live)
        self.tally = Tally(self.trials, self.objective, self.objectives)
        # trials that racing compares with: finished and feasible, with a value on every seed
        self.whole = Tally(self.trials, self.objective, self.objectives, self._is_whole)
        self.unwritten = Unwritten()
        self.ended: list[Trial] = []
        self.earlier, self.undecided = tuple(earlier), frozenset(undecided)
        self.looks = tuple(looks)
        self._clock = clock
        self._resolver = resolver
        self._resolved: dict[int, Resolved] = {}  # kept for live trials
        # trials in the samplers' form, by number; those of `_unseen` are rebuilt on demand
        self._pasts: dict[int, PriorTrial] = {}
        self._unseen: set[int] = set(self.trials)
        self._judged: list[list[int]] = []
        self._rungs: list[Rung] = []  # trials at each rung, read on demand
        for number, trial in self.trials.items():
            for rung in range(len(trial.reports)):
                self.judge(rung, [number])

    def add(self, trial: Trial) -> None:
        self.trials[trial.number] = trial
        self._unseen.add(trial.number)
        self.state.admit(trial)
        self.touch(trial)
        for name, value in trial.attributes.items():
            self.unwritten.add(AttributeRow(trial.number, name, value))

    def note_looks(self, winner: int | None, interim: bool = False) -> None:
        """Record each trial's number of test seeds with values, if new (`store.interim_analyses`).

        Called before a stage that adds test seeds or winners, and at its end. `winner` is the
        concluded winner, or None if that is the default. `interim` is True before the planned
        number of seeds is reached.
        """
        sizes = {one: len(trial.by_report_seed) for one, trial in sorted(self.trials.items())}
        known = {(look.trial, look.seeds, look.won) for look in self.looks}
        current = [Look(one, size, one == winner, interim) for one, size in sizes.items() if size]
        new = [look for look in current if (look.trial, look.seeds, look.won) not in known]
        if new:  # most seeds first, otherwise an incomplete pair would be recorded
            before = {look.trial: look.seeds for look in self.looks}
            new.sort(key=lambda look: -before.get(look.trial, 0))
            self.looks = (*self.looks, *new)
            self.unwritten.add(attribute_of_looks(self.looks))

    def touch(self, trial: Trial) -> None:
        """Mark a trial's row as changed."""
        self.unwritten.trials.add(trial.number)
        self.tally.note(trial.number)
        self.whole.note(trial.number)

    def _is_whole(self, trial: TrialRow) -> bool:
        seeds = self.study.seeds.per_config
        return (
            trial.state is TrialState.FINISHED
            and len(trial.seed_values) == seeds
            and self.objectives.violation(trial.constraints) == 0.0
        )

    def restart(self, number: int) -> Trial:
        """Reset a failed trial to its proposal; the rows of its first attempt will be deleted."""
        old = self.trials[number]
        new = Trial(
            number,
            TrialState.WAITING,
            old.proposed_by,
            old.batch,
            "",
            old.params,
            attributes=old.attributes,
        )
        self._resolved.pop(number, None)
        for rung, judged in enumerate(self._judged):
            self._judged[rung] = [one for one in judged if one != number]
        self._rungs = []
        self.state.restart(number)
        self.unwritten.restarted.append(number)
        return new

    def live(self) -> list[Trial]:
        return [trial for trial in self.state.live.values() if trial.is_live]

    def paused(self) -> list[Trial]:
        return [trial for trial in self.state.live.values() if trial.is_paused]

    def trials_by_bucket(self) -> Counter[str]:
        """Return the number of trials in each bucket."""
        return Counter(trial.bucket for trial in self.trials.values())

    def live_in(self, bucket: str) -> list[Trial]:
        return [trial for trial in self.state.live.values() if trial.bucket == bucket]

    def going_on(self) -> list[Trial]:
        return [t for t in self.state.live.values() if t.is_live or t.is_paused]

    def numbers_going_on(self) -> set[int]:
        return {trial.number for trial in self.going_on()}

    def pause(self, trial: Trial, rule: str) -> None:
        """Pause a trial at its rung; samplers receive it as stopped there."""
        trial.pause(rule)
        self.state.tell(trial)
        self._unseen.add(trial.number)
        self.touch(trial)

    def promote(self, trial: Trial) -> None:
        """Resume a paused trial; samplers see no change until it ends or pauses again."""
        trial.promote()
        self.touch(trial)

    def started(self, run: Replicate) -> None:
        run.start()
        trial = self.trials[run.trial]
        if trial.state is TrialState.WAITING:
            trial.start(self.now())
            self.touch(trial)

    def end(self, trial: Trial, state: TrialState, error: str = "") -> None:
        trial.end(state, error, self.now(), self.state.bits)
        self.state.dismiss(trial)
        self._unseen.add(trial.number)
        if held := self._resolved.pop(trial.number, None):
            self._resolver.touch(held)  # its policy or its confirmation may need it
        self.ended.append(trial)
        self.touch(trial)

    def set_value(self, trial: Trial, value: float) -> None:
        objectives, constraints = self.aggregated(trial, Stream.SEARCH, value)
        trial.set_value(value, objectives, constraints)
        self.end(trial, TrialState.FINISHED)

    def aggregated(
        self, trial: Trial, stream: Stream, value: float
    ) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return objectives (`value` first) and constrained values, over a stream's seeds."""
        if self.objectives.is_plain:
            return (), ()
        extras = self.objectives.aggregate(trial.extras_of(stream), trial.costs())
        objectives = ()
        if self.objectives.others:
            objectives = (value, *self.objectives.values(extras))
        return objectives, self.objectives.limited(extras)

    def count_evaluations_alone(self) -> None:
        """Use only evaluations from now on, and replace all earlier values.

        This happens if a trial lacks training returns that others have; see `evaluations_alone`.
        """
        self.objective = self.objective.of_test
        self.unwritten.add(EVALUATIONS_ALONE)
        for trial in self.trials.values():
            self._update_by_environment(trial)
            self.touch(trial)
        if self.study.seeds.racing is not None:
            self._remeasure_racing()
        self._unseen.update(self.trials)
        self._rungs = []
        kept = self.state.kept_trials
        self.keep_policies(self.order(self.trials[number] for number in kept))
        self.state.forget_gains()
        self._redraws = True

    def keep_policies(self, trials: Iterable[Trial]) -> None:
        """Record whose policies are kept, best first."""
        self.state.keep([KeptPolicy(one.number, self.losses(one)[0]) for one in trials])

    def take_redraw(self) -> bool:
        """Return whether a pending batch must be drawn again; true once after values change."""
        redraws, self._redraws = self._redraws, False
        return redraws

    def reports_alone(self, trial: Trial) -> list[float]:
        """Return a trial's values at its judged rungs, from evaluations only."""
        found = list(trial.reports)
        for rung, env_steps in enumerate(trial.report_steps):
            values = self.alone.at(trial.number, env_steps, range(self.study.seeds.first))
            if values:
                found[rung] = self.objective.aggregate(values)
        return found

    def _update_by_environment(self, trial: Trial) -> None:
        seeds, chosen = trial.seed_values, trial.choose_values
        end = None
        if self._is_finished_by_rule(trial):
            end = trial.report_steps[-1]
        search = [*self.alone.last(trial.number, Stream.SEARCH, end).values()]
        if self.alone.matches(search, seeds):
            seeds = tuple(search)
        choose = [*self.alone.last(trial.number, Stream.CHOOSE).values()]
        if self.alone.matches(choose, chosen):
            chosen = tuple(choose)
        value = trial.value
        if value is not None and seeds != trial.seed_values:
            value = self.objective.aggregate(seeds)
        trial.remeasure(self.reports_alone(trial), seeds, chosen, value)

    def _is_finished_by_rule(self, trial: Trial) -> bool:
        """Return whether a rule finished the trial with the value at its last rung."""
        early = self.study.early_terminate
        if early is None or not rule_row(early.type).finishes or not trial.report_steps:
            return False
        return trial.state is TrialState.FINISHED and bool(trial.stop_rule) and not trial.audited

    def _remeasure_racing(self) -> None:
        """Correct the values of trials with fewer seeds than the best one, as `value_of` does."""
        whole = [
            trial
            for trial in self.trials.values()
            if trial.state is TrialState.FINISHED
            and len(trial.seed_values) == self.study.seeds.per_config
        ]
        if not whole:
            return
        best = self.best(whole)
        for trial in self.trials.values():
            own = self.alone.last(trial.number, Stream.SEARCH)
            if trial.value is None or trial in whole or len(own) != len(trial.seed_values):
                continue
            shared = [best.seed_values[seed] for seed in own]
            plain = self.objective.aggregate(trial.seed_values)
            trial.correct_value(mean(best.seed_values) + plain - mean(shared))

    def decide(
        self,
        trial: Trial,
        *,
        action: str,
        rule: str,
        cutoff: float | None,
        rank: int,
        judged: int,
        **copied: Any,
    ) -> None:
        """Record the decision about a trial at its rung.

        `rank` is the trial's rank among the `judged` trials there (1 is the best), and `cutoff` is
        a metric value, not a loss. `copied` contains the copied trial, and the hyperparameters
        before and after.
        """
        extras = ()
        if trial.extra_reports:
            extras = tuple(trial.extra_reports[-1])
        row = DecisionRow(
            trial.number,
            trial.rung,
            trial.rung_env_steps or 0,
            trial.reports[trial.rung],
            action,
            rule,
            cutoff,
            rank,
            judged,
            **copied,
            extras=extras,
        )
        self.unwritten.add(row)

    def fail(self, number: int, why: str) -> None:
        """Mark a search trial as failed; for a confirmed trial, only record the error."""
        trial = self.trials[number]
        if trial.is_live or trial.is_paused:
            self.end(trial, TrialState.FAILED, why)
        elif trial.state is not TrialState.FAILED:
            trial.fail_confirming(why)
            self.touch(trial)

    def count(self, run: Replicate, env_steps: int, trains: bool, seconds: float) -> None:
        trial, env_steps = self.trials[run.trial], env_steps * self.study.spread
        self.state.usage.count(env_steps, run.stream, trains, self.state.phase is Phase.ALSO)
        if run.stream is Stream.SEARCH:
            trial.count(env_steps, trains, seconds)
        self.touch(trial)

    def count_evaluation(self, run: Replicate, env_steps: int) -> None:
        trial = self.trials[run.trial]
        self.state.usage.count_evaluation(env_steps)
        if run.stream is Stream.SEARCH:
            trial.count_evaluation(env_steps)
        self.touch(trial)

    def reopen(self, trial: Trial) -> None:
        trial.reopen()
        self.trials[trial.number] = trial
        self.state.reopen(trial)
        self.touch(trial)

    def written(self) -> None:
        self.unwritten = Unwritten()

    def take_ended(self) -> list[Trial]:
        """Return the trials that ended since the last call, and drop their replicates.

        A resumed study has no replicates of ended trials either. With Ray Tune they are kept,
        because Tune may still request the state of an ended trial.
        """
        ended, self.ended = self.ended, []
        if self.study.search.driver != "ray_tune":
            for trial in ended:
                if trial.number not in self.state.live:
                    trial.leave()
        return ended

    def judged(self, rung: int) -> Sequence[int]:
        if rung >= len(self._judged):
            return ()
        return self._judged[rung]

    def judge(self, rung: int, trials: Iterable[int]) -> None:
        while len(self._judged) <= rung:
            self._judged.append([])
        self._judged[rung] += trials

    def rung(self, rung: int) -> Rung:
        """Return the trials judged at a rung, with losses of the first objective only."""
        while len(self._rungs) <= rung:
            self._rungs.append(Rung())
        found = self._rungs[rung]
        for number in self.judged(rung)[len(found) :]:
            found.add(self.standing(self.trials[number], rung))
        return found

    def standing(self, trial: Trial, rung: int) -> TrialAtRung:
        """Return a trial's result at a rung that it has passed, for the first objective only."""
        curve = tuple(map(self.objective.loss, trial.reports[: rung + 1]))
        return TrialAtRung(trial.number, curve[rung], curve)

    def order(self, trials: Iterable[Trial]) -> list[Trial]:
        """Return the trials that have values, best first (`Objectives.keys`)."""
        listed = sorted(trials, key=lambda trial: trial.number)
        keys = self.objectives.keys(
            [self.losses(trial) for trial in listed],
            [self.objectives.violation(trial.constraints) for trial in listed],
        )
        return [trial for _, trial in sorted(zip(keys, listed, strict=True), key=lambda e: e[0])]

    def best(self, trials: Iterable[Trial]) -> Trial:
        if self.objectives.is_plain:
            return min(trials, key=lambda trial: (*self.losses(trial), trial.number))
        return self.order(trials)[0]

    def losses(self, trial: Trial) -> tuple[float, ...]:
        first = math.inf
        if trial.value is not None:
            first = self.objective.loss(trial.value)
        return (first, *self.objectives.losses(trial.objectives[1:]))

    def resolved(self, params: Mapping[str, Any]) -> Resolved:
        """Return a configuration ready for lanes; ConfigError if no program can run it."""
        return self._resolver.of(params)

    def resolved_of(self, number: int) -> Resolved:
        """Return a trial's configuration, cached while the trial is live."""
        found = self.resolved(self.trials[number].params)
        if number in self.state.live:
            self._resolved[number] = found
        return found

    def resolved_at(self, number: int, env_steps: int) -> Resolved:
        """Return the configuration of a trial's lineage at this number of env steps."""
        return self.resolved(params_at(lineage_of(self.trials[number]), env_steps))

    def now(self) -> float | None:
        if self._clock is None:
            return None
        return self._clock()

    def history(self, unseen: Sequence[int] = ()) -> tuple[PriorTrial, ...]:
        """Return every trial in the samplers' form, by number, warm-start trials first.

        The result changes only when a trial is added, ends or pauses, so a batch that is repeated
        after a crash receives the same history. A paused trial counts as stopped, even after its
        promotion, until it ends or pauses again. `unseen` lists trials whose latest events are
        hidden, one entry per event.
        """
        self._update_history()
        if not unseen:
            return (*self.earlier, *self._pasts.values())
        news = Counter(unseen)
        shown = dict(self._pasts)
        for number, count in news.items():
            if number in shown:
                shown[number] = self._past_before(number, count)
        return (*self.earlier, *shown.values())

    def _update_history(self) -> None:
        """Update the samplers' form of trials that were added, ended or paused."""
        last = next(reversed(self._pasts), -1)
        ordered = True
        for number in sorted(self._unseen):
            trial = self.trials[number]
            if trial.state is TrialState.REFERENCE:
                continue
            ordered = ordered and (number > last or number in self._pasts)
            has_ended = not (trial.is_live or trial.is_paused)
            self._pasts[number] = self._prior_trial(trial, trial.paused_at, has_ended)
        if not ordered:
            self._pasts = dict(sorted(self._pasts.items()))
        self._unseen = set()

    def _past_before(self, number: int, news: int) -> PriorTrial:
        """Return a trial as it was before its last `news` events (pauses, the end)."""
        trial = self.trials[number]
        has_ended = not (trial.is_live or trial.is_paused)
        known = len(trial.paused_at) - (news - has_ended)
        return self._prior_trial(trial, trial.paused_at[:known], has_ended=False)

    def _prior_trial(self, trial: Trial, paused_at: Sequence[int], has_ended: bool) -> PriorTrial:
        """Return a trial in the samplers' form: ended, stopped at its last pause, or running."""
        running = PriorTrial(
            trial.number, trial.params, trial.attributes, proposed_by=trial.proposed_by
        )
        if has_ended:
            return self._with_end(self._with_reports(running, trial, len(trial.reports)), trial)
        if not paused_at:
            return running
        rung, violations = paused_at[-1], ()
        if self.objectives.constraints:
            limited = self.objectives.limited(trial.extra_reports[rung])
            violations = self.objectives.violations(limited)
        paused = self._with_reports(running, trial, rung + 1)
        return replace(paused, state=TrialState.STOPPED, violations=violations)

    def _with_reports(self, past: PriorTrial, trial: Trial, count: int) -> PriorTrial:
        """Add a trial's losses at its first `count` rungs."""
        reports = tuple(map(self.objective.loss, trial.reports[:count]))
        if not self.objectives.others:
            return replace(past, reports=reports)
        more = tuple(map(self.objectives.losses, trial.extra_reports[:count]))
        return replace(past, reports=reports, more_reports=more)

    def _with_end(self, past: PriorTrial, trial: Trial) -> PriorTrial:
        """Add the state and the losses of an ended trial."""
        loss, more, violations = None, (), ()
        if trial.value is not None:
            loss = self.objective.loss(trial.value)
        if trial.objectives[1:]:
            more = self.objectives.losses(trial.objectives[1:])
        if self.objectives.constraints and trial.constraints:
            violations = self.objectives.violations(trial.constraints)
        return replace(
            past,
            state=trial.state,
            loss=loss,
            more=more,
            violations=violations,
            seeds=tuple(map(self.objective.loss, trial.seed_values)),
        )
