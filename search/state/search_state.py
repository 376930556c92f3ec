"""All that the loop knows, and the rows not committed yet: one place that every part shares.

Parts read trials and state here and write rows here; nothing else passes between them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...store.interim_analyses import Look, attribute_of_looks
from ...store.rows import AskRow, AttributeRow, DecisionRow, EvaluationRow, Stream, TrialState
from ...studies.spec import Study
from ..lanes.contract import Resolved, Resolver
from ..samplers.registry import Past
from .loop_state import LoopState, Phase
from .objective import Objective, Objectives
from .trials import Run, Trial, lineage_of, params_at


@dataclass
class Unwritten:
    """Rows since the last commit."""

    trials: set[int] = field(default_factory=set)
    evaluations: list[EvaluationRow] = field(default_factory=list)
    decisions: list[DecisionRow] = field(default_factory=list)
    asks: list[AskRow] = field(default_factory=list)
    attributes: list[AttributeRow] = field(default_factory=list)

    def add(self, *rows: EvaluationRow | DecisionRow | AskRow | AttributeRow) -> None:
        """Take rows, each to those of its kind; see `Commit.decisions` for promotions."""
        for row in rows:
            match row:
                case EvaluationRow():
                    self.evaluations.append(row)
                case DecisionRow():
                    if row.action == "promote":
                        place = (row.trial, row.rung)
                        others = [one for one in self.decisions if (one.trial, one.rung) != place]
                        self.decisions = others
                    self.decisions.append(row)
                case AskRow():
                    self.asks.append(row)
                case AttributeRow():
                    self.attributes.append(row)


class Ledger:
    """The state of a study in memory.

    Attributes:
        study: what was asked.
        objective: its metric, the first objective.
        objectives: what else it measures.
        state: what the store keeps as text.
        trials: every trial by number, ended ones included.
        unwritten: rows since the last commit.
        ended: trials that ended at this boundary, for observers.
        earlier: trials of an earlier study, which samplers see too.
        looks: at how many test seeds which trials had values, see `store.interim_analyses`.
        undecided: live trials that showed something at a rung before the last commit, of which
            no decision was written down yet: a foreign scheduler had not answered.
    """

    def __init__(
        self,
        study: Study,
        state: LoopState,
        ended: Iterable[Trial] = (),
        clock: Callable[[], float] | None = None,
        *,
        resolver: Resolver,
        earlier: Iterable[Past] = (),
        undecided: Iterable[int] = (),
        looks: Sequence[Look] = (),
    ):
        self.study = study
        self.objective = Objective.of(study)
        self.objectives = Objectives.of(study)
        self.state = state
        self.trials: dict[int, Trial] = {trial.number: trial for trial in ended}
        self.trials.update(state.live)
        self.unwritten = Unwritten()
        self.ended: list[Trial] = []
        self.earlier, self.undecided = tuple(earlier), frozenset(undecided)
        self.looks = tuple(looks)
        self._clock = clock
        self._resolver = resolver
        self._resolved: dict[int, Resolved] = {}  # held for live trials
        self._pasts: dict[int, Past] = {}
        self._judged: list[list[int]] = []
        for number, trial in self.trials.items():
            for rung in range(len(trial.reports)):
                self.judge(rung, [number])

    def add(self, trial: Trial) -> None:
        """Take in a new trial."""
        self.trials[trial.number] = trial
        self.state.admit(trial)
        self.touch(trial)
        for name, value in trial.attributes.items():
            self.unwritten.add(AttributeRow(trial.number, name, value))

    def note_looks(self, winner: int | None) -> None:
        """Write down at how many test seeds trials have values now, where that is new.

        To be called before a stage that adds test seeds or winners, and at its end.

        Args:
            winner: the trial that the study's conclusion is about, unless it is the default.
        """
        sizes = {
            number: len(trial.report_values) + len(trial.report_diverged)
            for number, trial in sorted(self.trials.items())
        }
        seen = [Look(one, size, one == winner) for one, size in sizes.items() if size]
        new = [look for look in seen if look not in self.looks]
        if new:
            self.looks = (*self.looks, *new)
            self.unwritten.add(attribute_of_looks(self.looks))

    def touch(self, trial: Trial) -> None:
        """Note that a trial's row has changed."""
        self.unwritten.trials.add(trial.number)

    def live(self) -> list[Trial]:
        """Return the trials of the search that wait or run, by number."""
        return [trial for trial in self.state.live.values() if trial.is_live]

    def paused(self) -> list[Trial]:
        """Return the trials that are paused, by number."""
        return [trial for trial in self.state.live.values() if trial.is_paused]

    def going_on(self) -> list[Trial]:
        """Return the trials of the search that may go on: those that are live or paused."""
        return [t for t in self.state.live.values() if t.is_live or t.is_paused]

    def pause(self, trial: Trial, rule: str) -> None:
        """Let a trial wait at its rung, in place of ending; samplers see it as stopped there."""
        trial.pause(rule)
        self.state.tell(trial)
        self._pasts.pop(trial.number, None)
        self.touch(trial)

    def promote(self, trial: Trial) -> None:
        """Let a paused trial go on; to samplers it stays what it was until it ends or waits."""
        trial.promote()
        self.touch(trial)

    def started(self, run: Run) -> None:
        """Note that a replicate has entered a lane."""
        run.start()
        trial = self.trials[run.trial]
        if trial.state is TrialState.WAITING:
            trial.start(self.now())
            self.touch(trial)

    def end(self, trial: Trial, state: TrialState, error: str = "") -> None:
        """End a trial of the search; its replicates that still wait, run or are paused are cut."""
        trial.end(state, error, self.now(), self.state.bits)
        self.state.dismiss(trial)
        self._pasts.pop(trial.number, None)
        if held := self._resolved.pop(trial.number, None):
            self._resolver.touch(held)  # its policy, or its confirmation, may ask for it
        self.ended.append(trial)
        self.touch(trial)

    def settle(self, trial: Trial, value: float) -> None:
        """End a trial that has a value, with what else its replicates measured."""
        objectives, constraints = self.aggregated(trial, Stream.SEARCH, value)
        trial.settle(value, objectives, constraints)
        self.end(trial, TrialState.FINISHED)

    def aggregated(
        self, trial: Trial, stream: Stream, value: float
    ) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return objectives, `value` the first, and what constraints bound, over a stream's seeds.

        Both are empty where the study has none. Costs are those of the search, on as many seeds.
        """
        if self.objectives.is_plain:
            return (), ()
        extras = self.objectives.aggregate(trial.extras_of(stream), trial.costs())
        others = self.objectives.values(extras)
        objectives = (value, *others) if self.objectives.others else ()
        return objectives, self.objectives.limited(extras)

    def fail(self, number: int, why: str) -> None:
        """End a trial of the search that met an error; of one that is confirmed note it."""
        trial = self.trials[number]
        if trial.is_live or trial.is_paused:
            self.end(trial, TrialState.FAILED, why)
        elif trial.state is not TrialState.FAILED:
            trial.fail_confirming(why)
            self.touch(trial)

    def count(self, run: Run, env_steps: int, trains: bool, seconds: float) -> None:
        """Count a chunk of a replicate: its env steps, and its share of the running time.

        Of several environments it took so many env steps on each.
        """
        trial, env_steps = self.trials[run.trial], env_steps * self.study.spread
        self.state.usage.count(env_steps, run.stream, trains, self.state.phase is Phase.ALSO)
        if run.stream is Stream.SEARCH:
            trial.count(env_steps, trains, seconds)
        self.touch(trial)

    def count_evaluation(self, run: Run, env_steps: int) -> None:
        """Count an evaluation of a replicate."""
        trial = self.trials[run.trial]
        self.state.usage.count_evaluation(env_steps)
        if run.stream is Stream.SEARCH:
            trial.count_evaluation(env_steps)
        self.touch(trial)

    def reopen(self, trial: Trial) -> None:
        """Let the only trial run on, as it stood at its end."""
        trial.reopen()
        self.trials[trial.number] = trial
        self.state.reopen(trial)
        self.touch(trial)

    def written(self) -> None:
        """Forget the rows that a commit has written."""
        self.unwritten = Unwritten()

    def take_ended(self) -> list[Trial]:
        """Return the trials that ended since the last call."""
        ended, self.ended = self.ended, []
        return ended

    def judged(self, rung: int) -> Sequence[int]:
        """Return the trials judged at a rung so far."""
        return tuple(self._judged[rung]) if rung < len(self._judged) else ()

    def judge(self, rung: int, trials: Iterable[int]) -> None:
        """Note that trials were judged at a rung."""
        while len(self._judged) <= rung:
            self._judged.append([])
        self._judged[rung] += trials

    def order(self, trials: Iterable[Trial]) -> list[Trial]:
        """Return trials that have values, the best first.

        Feasible ones come first; of several objectives those on better fronts, then those with
        more room around them.
        """
        listed = sorted(trials, key=lambda trial: trial.number)
        keys = self.objectives.keys(
            [self.losses(trial) for trial in listed],
            [self.violation(trial.constraints) for trial in listed],
        )
        return [trial for _, trial in sorted(zip(keys, listed, strict=True), key=lambda e: e[0])]

    def best(self, trials: Iterable[Trial]) -> Trial:
        """Return the first of `order`."""
        if self.objectives.is_plain:
            return min(trials, key=lambda trial: (*self.losses(trial), trial.number))
        return self.order(trials)[0]

    def losses(self, trial: Trial) -> tuple[float, ...]:
        """Return one loss an objective of a trial that has a value."""
        first = self.objective.loss(trial.value if trial.value is not None else math.nan)
        return (first, *self.objectives.losses(trial.objectives[1:]))

    def violation(self, limited: Sequence[float]) -> float:
        """Return by how much constraints are violated in all; 0 where none is measured."""
        return self.objectives.violation(limited)

    def resolved(self, params: Mapping[str, Any]) -> Resolved:
        """Return the configuration of some searched values, ready for lanes.

        Raises:
            ConfigError: they contradict each other, or no program can run them.
        """
        return self._resolver.of(params)

    def resolved_of(self, number: int) -> Resolved:
        """Return the configuration of a trial, ready for lanes; kept while the trial is live.

        Raises:
            ConfigError: as of `resolved`.
        """
        found = self.resolved(self.trials[number].params)
        if number in self.state.live:
            self._resolved[number] = found
        return found

    def resolved_at(self, number: int, env_steps: int) -> Resolved:
        """Return the configuration that trains a trial's lineage on from some env steps."""
        return self.resolved(params_at(lineage_of(self.trials[number]), env_steps))

    def now(self) -> float | None:
        """Return the seconds since the epoch."""
        return self._clock() if self._clock else None

    def history(self, unseen: Sequence[int] = ()) -> tuple[Past, ...]:
        """Return every trial as samplers see it, by number, those of a warm start first.

        It changes only when a trial is added, ends or is paused, so a batch begun again after a
        crash sees what it saw the first time. A trial that was paused is stopped to samplers, also
        when it was promoted since, until it ends or is paused again.

        Args:
            unseen: trials that ended or were paused, which is not to be known; each as often as it
                was told.
        """
        for number, trial in self.trials.items():
            if trial.state is TrialState.REFERENCE:  # not of the search
                continue
            if number not in self._pasts:
                self._pasts[number] = self._past(trial)
        shown = [self._pasts[number] for number in sorted(self._pasts)]
        if unseen:
            news = Counter(unseen)
            shown = [self._before(p.trial, news[p.trial]) if news[p.trial] else p for p in shown]
        return (*self.earlier, *shown)

    def _report_losses(self, trial: Trial) -> tuple[float, ...]:
        return tuple(self.objective.loss(value) for value in trial.reports)

    def _past(self, trial: Trial) -> Past:
        if trial.is_live or trial.is_paused:
            return self._past_at(trial, trial.paused_at)
        return Past(
            trial=trial.number,
            params=trial.params,
            attributes=trial.attributes,
            state=trial.state,
            loss=None if trial.value is None else self.objective.loss(trial.value),
            reports=self._report_losses(trial),
            proposed_by=trial.proposed_by,
            **({} if self.objectives.is_plain else self._more(trial)),
        )

    def _before(self, number: int, news: int) -> Past:
        """Return a trial as it was seen before the last news: it was paused, or ended."""
        trial = self.trials[number]
        has_ended = not (trial.is_live or trial.is_paused)
        known = len(trial.paused_at) - (news - has_ended)
        return self._past_at(trial, trial.paused_at[:known])

    def _past_at(self, trial: Trial, paused_at: Sequence[int]) -> Past:
        """Return a trial that has not ended: it runs, or is stopped where it was paused last."""
        bare = Past(trial.number, trial.params, trial.attributes, proposed_by=trial.proposed_by)
        if not paused_at:
            return bare
        seen = paused_at[-1] + 1
        more: dict[str, Any] = {}
        if not self.objectives.is_plain:
            extras = trial.extra_reports[:seen]
            limited = self.objectives.limited(extras[-1])
            more = self._more_of((), extras, limited if self.objectives.constraints else ())
        reports = self._report_losses(trial)[:seen]
        return replace(bare, state=TrialState.STOPPED, reports=reports, **more)

    def _more(self, trial: Trial) -> dict[str, Any]:
        limited = trial.constraints if self.objectives.constraints else ()
        return self._more_of(trial.objectives, trial.extra_reports, limited)

    def _more_of(
        self,
        objectives: Sequence[float],
        extras: Sequence[Sequence[float]],
        limited: Sequence[float],
    ) -> dict[str, Any]:
        return {
            "more": self.objectives.losses(objectives[1:]) if objectives else (),
            "more_reports": tuple(map(self.objectives.losses, extras))
            if self.objectives.others
            else (),
            "violations": self.objectives.violations(limited) if limited else (),
        }
