import dataclasses

from helpers import search_samples as samples
from hpo.search.engine.rung_decisions import is_due, judge
from hpo.search.lanes.resolver import Resolver
from hpo.search.rules.stopping import Asha
from hpo.search.state.loop_state import LoopState
from hpo.search.state.schedule import schedule_of
from hpo.search.state.search_state import SearchState
from hpo.search.state.trials import Replicate, RunState, Trial
from hpo.store.rows import Stream, TrialState
from hpo.studies.search_spec import EarlyTerminate

STUDY = samples.study()
SCHEDULES = {"a": schedule_of(STUDY, 1000)}


def trial(number, *rung_values, state=RunState.RUNNING):
    """A running trial; one list of rung values a replicate."""
    runs = [
        Replicate(number, Stream.SEARCH, index, state, rung_values=list(values))
        for index, values in enumerate(rung_values)
    ]
    return Trial(number, TrialState.RUNNING, "random", 0, "a", {}, runs=runs)


def empty(study=STUDY):
    return SearchState(study, LoopState(), resolver=Resolver(study, samples.AnalyticFactory()))


def judged(*trials, study=STUDY, eta=2.0, search_state=None):
    if search_state is None:
        search_state = empty(study)
    for entry in trials:
        search_state.add(entry)
    judge(search_state, Asha(eta), SCHEDULES)
    return search_state


def rows(search_state):
    return [
        (row.trial, row.rung, row.action, row.rank, row.judged)
        for row in search_state.unwritten.decisions
    ]


def test_schedule_of_example_study_has_expected_rungs():
    schedule = SCHEDULES["a"]
    assert schedule.rungs == (2, 8) and schedule.length == 16
    assert schedule.evaluations == {2, 8, 16} and schedule.env_steps == 16_000


def test_rungs_and_points_round_up_to_whole_chunks():
    study = samples.study(
        evaluation=dataclasses.replace(STUDY.evaluation, every=5_000),
        early_terminate=EarlyTerminate("asha", 1_500, 2.0),
    )
    schedule = schedule_of(study, 3_000)
    # rungs at 1500, 3000, 6000, 12000 -> chunks 1, 1, 2, 4; points 5000, 10000, 15000 -> 2, 4, 5
    assert schedule.rungs == (1, 1, 2, 4) and schedule.rungs_at(1) == [0, 1]
    assert schedule.length == 6 and schedule.evaluations == {1, 2, 4, 5, 6}
    assert schedule_of(study, 16_000).rungs == ()  # all of them fall on the end


def test_trials_of_one_boundary_are_compared_with_each_other():
    search_state = judged(trial(0, [1.0], [3.0]), trial(1, [9.0], [9.0]), trial(2, [5.0], [5.0]))
    # higher is better; ceil(3/2) = 2 of 3 go on
    assert rows(search_state) == [
        (0, 0, "stop", 3, 3),
        (1, 0, "continue", 1, 3),
        (2, 0, "continue", 2, 3),
    ]
    row = search_state.unwritten.decisions[0]
    assert (row.value, row.cutoff, row.env_steps, row.rule) == (2.0, 5.0, 2_000, "asha eta=2")
    stopped = search_state.trials[0]
    assert stopped.state is TrialState.STOPPED and stopped.stop_rule == "asha eta=2"
    assert all(run.state is RunState.CUT for run in stopped.runs)
    assert (stopped.rung, stopped.row().rung_value) == (0, 2.0)


def test_trial_is_judged_after_its_last_replicate():
    assert not is_due(trial(0, [1.0], []), 0)
    assert is_due(trial(0, [1.0, 2.0], [1.0]), 0)
    assert not is_due(trial(0, [1.0, 2.0], [1.0]), 1)


def test_judged_values_are_those_at_the_rung():
    search_state = judged(trial(0, [1.0, 100.0], [3.0]))
    assert search_state.unwritten.decisions[0].value == 2.0
    assert search_state.trials[0].reports == [2.0]


def test_verdicts_are_never_revised():
    search_state = judged(trial(0, [1.0]), trial(1, [2.0]))
    assert [row.action for row in search_state.unwritten.decisions] == ["stop", "continue"]
    judged(*[trial(number, [0.5]) for number in range(2, 6)], search_state=search_state)
    assert search_state.trials[1].state is TrialState.RUNNING
    assert [search_state.trials[number].reports for number in search_state.judged(0)] == [
        [1.0],
        [2.0],
        [0.5],
        [0.5],
        [0.5],
        [0.5],
    ]


def test_diverged_replicate_is_excluded_at_rung():
    tolerant = trial(0, [4.0], [], [6.0])
    tolerant.runs[1].state = RunState.DIVERGED
    assert judged(tolerant).unwritten.decisions[0].value == 5.0


def test_two_rungs_at_one_boundary_are_judged_in_turn():
    # The replicate that was behind has diverged: the other one has passed both rungs.
    late = trial(0, [4.0, 5.0], [])
    late.runs[1].state = RunState.DIVERGED
    search_state = judged(late)
    assert [(row.rung, row.value) for row in search_state.unwritten.decisions] == [
        (0, 4.0),
        (1, 5.0),
    ]


def test_a_trial_cut_by_the_budget_is_not_judged():
    partial = trial(0, [4.0], [4.0])
    partial.runs[1].state = RunState.CUT
    assert judged(partial).unwritten.decisions == []


def test_audited_trials_run_on_and_are_not_judged_again():
    study = samples.study(early_terminate=EarlyTerminate("asha", 2_000, 4.0, audit=1.0))
    search_state = judged(trial(0, [1.0]), trial(1, [2.0]), study=study)
    assert [row.action for row in search_state.unwritten.decisions] == ["audit", "continue"]
    audited = search_state.trials[0]
    assert audited.is_live and audited.audited and audited.stop_rule == "asha eta=2"
    audited.runs[0].rung_values.append(9.0)
    judged(search_state=search_state)
    assert len(search_state.unwritten.decisions) == 2


def test_minimised_metric_reverses_rung_order():
    metric = dataclasses.replace(STUDY.metric, goal="minimize")
    search_state = judged(trial(0, [1.0]), trial(1, [2.0]), study=samples.study(metric=metric))
    assert [row.action for row in search_state.unwritten.decisions] == ["continue", "stop"]
    assert search_state.unwritten.decisions[1].cutoff == 1.0


def test_no_trial_is_judged_without_rule():
    search_state = empty()
    search_state.add(trial(0, [1.0]))
    judge(search_state, None, SCHEDULES)
    assert search_state.unwritten.decisions == []
