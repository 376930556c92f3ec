"""Decisions at rungs: find the trials at a rung, apply the rule, record its verdicts.

A trial is judged by its values at the rung, once all its replicates have passed the rung. Trials
that pass a rung in the same chunk are judged together.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from ...store.pareto import scores
from ...store.rows import Stream, TrialState
from ...studies.stopping_rules import rule_row
from ..rules.registry import Judged, Pruner, Rung, TrialAtRung, Verdict, is_audited
from ..rules.stopping import PromotingAsha
from ..state.schedule import EventSchedule
from ..state.search_state import SearchState
from ..state.trials import Replicate, RunState, Trial, any_live


def rung_of(search_state: SearchState, rung: int) -> Rung:
    """Return the trials judged at a rung; ranks replace multiple losses (`store.pareto`)."""
    if search_state.objectives.is_plain:
        return search_state.rung(rung)
    return Rung(
        ranked(
            search_state,
            [search_state.trials[number] for number in search_state.judged(rung)],
            rung,
        )
    )


def ranked(search_state: SearchState, trials: Sequence[Trial], rung: int) -> list[TrialAtRung]:
    """Return the results of trials with several losses; a rank among them replaces the losses."""
    alone = [search_state.standing(trial, rung) for trial in trials]
    extras = [trial.extra_reports[rung] for trial in trials]
    more = [search_state.objectives.losses(row) for row in extras]
    limited = [search_state.objectives.limited(row) for row in extras]
    shown = scores(
        [(one.loss, *rest) for one, rest in zip(alone, more, strict=True)],
        [search_state.objectives.violation(values) for values in limited],
    )
    return [replace(one, loss=place) for one, place in zip(alone, shown, strict=True)]


def cutoff_value(search_state: SearchState, cutoff: float | None) -> float | None:
    """Return the cutoff as a metric value; None if losses are ranks."""
    if cutoff is None or not search_state.objectives.is_plain:
        return None
    return search_state.objective.loss(cutoff)


def promote(search_state: SearchState, rule: PromotingAsha, rung: int) -> list[Trial]:
    """Resume paused trials that are among the best at a rung, and return them."""
    waiting = [trial for trial in search_state.paused() if trial.rung == rung]
    if not waiting:
        return []
    there = rung_of(search_state, rung)
    last = rule.last(there.order)
    if last is None:
        return []
    going = [trial for trial in waiting if there.order_of(trial.number) <= last]
    for trial in going:
        _promote_trial(search_state, rule, there, trial)
    return going


def promote_last(
    search_state: SearchState, rule: PromotingAsha, able: Collection[str]
) -> Trial | None:
    """Resume the best trial of the highest rung if nothing else can run.

    This way, a search that ends before `eta` trials have reached a rung still has one finished
    trial. Returns None if a trial is live or has finished, or if no trial is paused in the
    buckets that the budget covers (`able`).
    """
    if search_state.live() or any(
        t.state is TrialState.FINISHED for t in search_state.trials.values()
    ):
        return None
    waiting = {t.number: t for t in search_state.paused() if t.bucket in able}
    if not waiting:
        return None
    rung = max(trial.rung for trial in waiting.values())
    there = rung_of(search_state, rung)
    here = (trial for trial in waiting.values() if trial.rung == rung)
    best = min(here, key=lambda trial: there.order_of(trial.number))
    _promote_trial(search_state, rule, there, best)
    return best


def let_go(search_state: SearchState, rule: PromotingAsha) -> None:
    """Stop surplus paused trials, starting with those furthest from the cutoff.

    The distance is the share of trials at the same rung that rank higher. Among ties, trials at
    lower rungs are stopped first, then those with larger numbers.
    """
    paused = search_state.paused()
    too_many = len(paused) - rule.most
    if too_many <= 0:
        return
    shares: dict[int, float] = {}
    for rung in {trial.rung for trial in paused}:
        there = rung_of(search_state, rung)
        here = [trial.number for trial in paused if trial.rung == rung]
        shares |= {number: there.place(number) / len(there) for number in here}
    paused.sort(key=lambda trial: (-shares[trial.number], trial.rung, -trial.number))
    for trial in paused[:too_many]:
        search_state.end(trial, TrialState.STOPPED)


def _promote_trial(
    search_state: SearchState, rule: PromotingAsha, there: Rung, trial: Trial
) -> None:
    cutoff = None
    if last := rule.last(there.order):
        cutoff = last[0]
    search_state.promote(trial)
    search_state.decide(
        trial,
        action="promote",
        rule=rule.words,
        cutoff=cutoff_value(search_state, cutoff),
        rank=1 + there.place(trial.number),
        judged=len(there),
    )


def judge(
    search_state: SearchState, pruner: Pruner | None, schedules: Mapping[str, EventSchedule]
) -> list[Trial]:
    """Judge every trial that is due, rung by rung; end or pause those that the rule stops."""
    promoted: list[Trial] = []
    if pruner is None:
        return promoted
    for rung in range(max((len(entry.rungs) for entry in schedules.values()), default=0)):
        due = [trial for trial in search_state.live() if is_due(trial, rung)]
        if due:
            _judge_rung(search_state, pruner, schedules, rung, due)
        # before the next rung, where one of them may be
        if due and isinstance(pruner, PromotingAsha):
            promoted += promote(search_state, pruner, rung)
    if isinstance(pruner, PromotingAsha):
        let_go(search_state, pruner)
    return [trial for trial in promoted if trial.is_live]


def is_due(trial: Trial, rung: int) -> bool:
    """Return whether a live trial must be judged at this rung now.

    Diverged replicates within the tolerance do not delay it. Audited trials, and trials with a
    replicate cut by the budget, are no longer judged.
    """
    if trial.rung != rung - 1 or trial.audited:
        return False
    runs = _counted_runs(trial)
    return all(run.state is not RunState.CUT and len(run.rung_values) > rung for run in runs)


def _judge_rung(
    search_state: SearchState,
    pruner: Pruner,
    schedules: Mapping[str, EventSchedule],
    rung: int,
    due: list[Trial],
) -> None:
    for trial in due:
        _report_at_rung(search_state, trial, rung, schedules[trial.bucket])
    earlier, arriving = _rung_and_standings(search_state, rung, due)
    search_state.judge(rung, [trial.number for trial in due])
    verdicts = pruner.judge(rung, _as_given(search_state, earlier), arriving)
    for standing in arriving:
        earlier.add(standing)
    for trial, standing, verdict in zip(due, arriving, verdicts, strict=True):
        search_state.touch(trial)
        action = _carry_out(search_state, trial, rung, verdict)
        search_state.decide(
            trial,
            action=action,
            rule=verdict.rule,
            cutoff=_cutoff_of_verdict(search_state, verdict),
            rank=earlier.rank(standing.loss),
            judged=len(earlier),
        )


def _as_given(search_state: SearchState, earlier: Rung) -> Sequence[TrialAtRung]:
    """Return the trials at a rung in the form passed to a rule; user rules may modify the list."""
    spec = search_state.study.early_terminate
    if spec is not None and rule_row(spec.type).registered:
        return list(earlier.standings.values())
    return Judged(earlier)


def _rung_and_standings(
    search_state: SearchState, rung: int, due: Sequence[Trial]
) -> tuple[Rung, list[TrialAtRung]]:
    """Return the trials already compared at this rung, and those to be compared now."""
    if search_state.objectives.is_plain:
        return search_state.rung(rung), [search_state.standing(trial, rung) for trial in due]
    before = search_state.judged(rung)
    everyone = [*(search_state.trials[number] for number in before), *due]
    standings = ranked(search_state, everyone, rung)
    return Rung(standings[: len(before)]), standings[len(before) :]


def value_at(search_state: SearchState, trial: Trial, rung: int) -> float:
    """Return a trial's value at a rung that it has passed, over replicates that did not diverge.

    With training returns, replicates that diverged after the rung also count, because values may
    still change.
    """
    early = search_state.study.early_terminate
    if search_state.study.metric.training_weight and not (early is not None and early.evolves):
        first = search_state.study.seeds.first
        passed = [
            run.rung_values[rung]
            for run in trial.runs_of(Stream.SEARCH)
            if len(run.rung_values) > rung and run.replicate < first
        ]
        return search_state.objective.aggregate(passed)
    return search_state.objective.aggregate(
        [run.rung_values[rung] for run in _counted_runs(trial)]
    )


def _report_at_rung(
    search_state: SearchState, trial: Trial, rung: int, schedule: EventSchedule
) -> None:
    value, extras = value_at(search_state, trial, rung), []
    if not search_state.objectives.is_plain:
        steps = schedule.env_steps_at(rung) * len(trial.runs) * search_state.study.spread
        costs = {**trial.costs(), "env_steps": float(steps)}
        rows = [run.rung_extras[rung] for run in _counted_runs(trial)]
        extras = search_state.objectives.aggregate(rows, costs)
    trial.report(value, schedule.env_steps_at(rung))
    trial.report_extras(extras, search_state.objectives.limited(extras))


def _counted_runs(trial: Trial) -> list[Replicate]:
    return [run for run in trial.runs_of(Stream.SEARCH) if run.state is not RunState.DIVERGED]


def _is_protected(search_state: SearchState, trial: Trial) -> bool:
    """Return whether a trial is the default of a study with a portfolio, which no rung stops."""
    return trial.number == 0 and search_state.study.search.portfolio > 0


def _cutoff_of_verdict(search_state: SearchState, verdict: Verdict) -> float | None:
    """Return the cutoff that a stopped trial missed; for a trial that passed, return its value."""
    if verdict.finish and verdict.cutoff is not None:
        return search_state.objective.loss(verdict.cutoff)
    return cutoff_value(search_state, verdict.cutoff)


def _carry_out(search_state: SearchState, trial: Trial, rung: int, verdict: Verdict) -> str:
    if not verdict.stop or _is_protected(search_state, trial):
        return "continue"
    if verdict.pause:
        if not any_live(trial.runs):  # it incurs no further cost
            return "continue"
        search_state.pause(trial, verdict.rule)
        return "pause"
    spec = search_state.study.early_terminate
    audited = spec is not None and is_audited(search_state.study.seed, trial.number, spec.audit)
    trial.stop_by(verdict.rule, audited)
    if audited:
        return "audit"
    if verdict.finish:  # its runs end here with their values; `finish_trials` ends the trial
        for run in _counted_runs(trial):
            run.end_at(rung)
        return "finish"
    search_state.end(trial, TrialState.STOPPED)
    return "stop"
