"""Several objectives, constraints and costs, through whole studies and in their parts."""

import dataclasses
import math

import numpy as np
import pytest

from helpers import search_samples as samples
from helpers.analytic_lanes import AnalyticPopulation
from helpers.loading import run_file
from hpo.search.lanes.contract import EvaluationResult
from hpo.search.run import run
from hpo.search.state.budget import reserve
from hpo.search.state.loop_state import Phase
from hpo.search.state.objective import Objectives
from hpo.store import tables_equal
from hpo.store.journal import Journal
from hpo.store.pareto import fronts, hypervolume
from hpo.store.query import query
from hpo.store.rows import Stream, TrialState
from hpo.studies.execution_spec import Budget
from hpo.studies.search_spec import Constraint, EarlyTerminate, Metric

RETURN, THRIFT = Metric(), Metric("eval/thrift")
FACTORY = samples.AnalyticFactory(lanes=12, block=4, diverges_above=0.3)


def study(*objectives, **changes):
    return samples.study(
        metric=objectives[0], objectives=objectives if len(objectives) > 1 else (), **changes
    )


def finish(asked, folder, factory=FACTORY):
    return run(asked, folder, factory, (), samples.quick())


def slow_front(rows):
    """Those that no other row beats or equals everywhere and beats somewhere (all maximised)."""
    return {
        i
        for i, a in enumerate(rows)
        if not any(
            all(y >= x for x, y in zip(a, b, strict=True)) and tuple(a) != tuple(b) for b in rows
        )
    }


def test_additional_objectives_are_measured_and_aggregated():
    asked = study(
        RETURN,
        Metric("env_steps", "minimize"),
        Metric("eval/thrift", "maximize", "min"),
        constraints=(Constraint("eval/length_max", max=10.0),),
    )
    extras = Objectives.of(asked)
    evaluation = EvaluationResult(
        np.array([1.0, 3.0]), np.array([8, 12]), {"thrift": np.array([2.0, 4.0])}
    )
    assert extras.measure(evaluation) == [3.0, 12.0]  # costs are no metric of an evaluation
    of_trial = extras.aggregate([[3.0, 12.0], [5.0, 6.0]], {"env_steps": 700.0, "seconds": 1.0})
    assert of_trial == [700.0, 3.0, 9.0]
    assert extras.losses(of_trial) == (700.0, -3.0)
    assert extras.violations(extras.limited(of_trial)) == (-1.0,)


def test_constraint_violation_is_the_distance_to_the_bound():
    both = Objectives(constraints=(Constraint("eval/length_mean", min=2.0, max=5.0),))
    found = [both.violations([value]) for value in (1.0, 2.0, 3.0, 7.5, math.nan)]
    assert found == [(1.0,), (0.0,), (-1.0,), (2.5,), (math.inf,)]


@pytest.mark.parametrize("method", ["tpe", "nsga2", "random"])
def test_a_study_of_two_objectives_has_a_front(tmp_path, method):
    asked = study(RETURN, THRIFT, method=method, budget=Budget(trials=40))
    results = finish(asked, tmp_path / "s")
    finished = [entry for entry in results.leaderboard if entry.state is TrialState.FINISHED]
    values = [entry.objectives for entry in finished]
    best = slow_front(values)
    assert {i for i, entry in enumerate(finished) if entry.front == 1} == best
    assert [entry.front for entry in finished] == sorted(entry.front for entry in finished)
    assert all(entry.objectives[0] == entry.value for entry in finished)
    _, rows = query(
        tmp_path / "s", "SELECT trial, eval_return_mean, eval_thrift FROM trials WHERE front = 1"
    )
    assert {row[0] for row in rows} == {finished[i].trial for i in best}
    low = [min(column) for column in zip(*values, strict=True)]
    high = [max(column) for column in zip(*values, strict=True)]
    shares = [
        [(h - v) / (h - w) for v, w, h in zip(row, low, high, strict=True)] for row in values
    ]
    assert results.hypervolume == pytest.approx(hypervolume(shares, (1.0, 1.0)))
    _, rows = query(tmp_path / "s", "SELECT DISTINCT hypervolume FROM trials WHERE front = 1")
    assert [row[0] for row in rows] == [results.hypervolume]
    assert all(
        (entry.hypervolume is None) is (entry.front is None) for entry in results.leaderboard
    )


def test_rungs_keep_trials_that_are_good_at_either_objective(tmp_path):
    asked = study(
        RETURN,
        THRIFT,
        budget=Budget(trials=48),
        early_terminate=EarlyTerminate("asha", 4_000, 2.0),
    )
    finish(asked, tmp_path / "s")
    with Journal(tmp_path / "s") as journal:
        decisions = journal.decisions()
    assert {decision.action for decision in decisions} == {"continue", "stop"}
    assert all(decision.cutoff is None and len(decision.extras) == 1 for decision in decisions)
    for decision in decisions:
        goes_on = decision.judged < 2 or decision.rank <= math.ceil(decision.judged / 2)
        assert (decision.action == "continue") is goes_on
    # Those judged together at the first rung were compared with all before them as well:
    # dominated ones rank low.
    rung, behind = [d for d in decisions if d.rung == 0], []
    for count in sorted({d.judged for d in rung}):
        front = fronts([(-d.value, -d.extras[0]) for d in rung[:count]])
        pairs = zip(front, rung[:count], strict=True)
        batch = [(number, d.rank) for number, d in pairs if d.judged == count]
        behind += [(one, other) for one in batch for other in batch if one[0] < other[0]]
    assert behind and all(one[1] < other[1] for one, other in behind)


def test_front_is_confirmed_on_selection_seeds_without_winner(tmp_path):
    asked = study(
        RETURN,
        THRIFT,
        budget=Budget(trials=24),
        confirm=samples.Confirm(4, 3, 9),
        early_terminate=None,
    )
    results = finish(asked, tmp_path / "s")
    confirmed = [entry for entry in results.leaderboard if entry.confirmed]
    assert any(entry.is_default for entry in confirmed)  # one of the four best here
    assert len(confirmed) == 4 and results.leaderboard[:4] == confirmed
    assert all(entry.value_from == "choose" and entry.seeds == 3 for entry in confirmed)
    assert all(len(entry.objectives) == 2 and entry.front is not None for entry in confirmed)
    assert results.usage.confirm_env_steps == 4 * 3 * 16_000
    with Journal(tmp_path / "s") as journal:
        searched = {row.trial: row for row in journal.trials()}
    for entry in confirmed:
        assert entry.objectives[0] != searched[entry.trial].objectives[0]  # other seeds
        assert entry.objectives[1] == pytest.approx(searched[entry.trial].objectives[1])


def test_budget_reserve_for_front_equals_confirm_runs(tmp_path):
    """3 selection seeds for each of 2 trials and the default, and no test seeds."""
    stage, run_steps = samples.Confirm(2, 3, 9), 16_000
    one, two = study(RETURN, confirm=stage), study(RETURN, THRIFT, confirm=stage)
    alone = dataclasses.replace(two, confirm=dataclasses.replace(stage, default=False))
    kept = {
        phase: [reserve(asked, phase, run_steps) // run_steps for asked in (one, two, alone)]
        for phase in Phase
    }
    assert kept[Phase.SEARCH] == [2 * 3 + 2 * 9, 3 * 3, 2 * 3]
    assert kept[Phase.CHOOSE] == [9, 0, 0]  # the winner's share of the test seeds
    assert all(kept[phase] == [0, 0, 0] for phase in (Phase.REPORT, Phase.ALSO, Phase.DONE))
    bound = 400_000
    asked = dataclasses.replace(two, budget=Budget(trials=None, env_steps=bound))
    usage = finish(asked, tmp_path / "s").usage
    assert usage.confirm_env_steps in (9 * run_steps, 6 * run_steps)  # the default may be in both
    assert bound - (9 + 2) * run_steps < usage.search_env_steps <= bound - 9 * run_steps


def test_infeasible_trials_rank_below_feasible_ones(tmp_path):
    limit = Constraint("eval/thrift", min=3.0)  # learning rates of at most 1e-3
    asked = samples.study(constraints=(limit,), early_terminate=None, budget=Budget(trials=30))
    results = finish(asked, tmp_path / "s")
    finished = [entry for entry in results.leaderboard if entry.state is TrialState.FINISHED]
    kept = [entry.params["learning_rate"] <= 1e-3 for entry in finished]
    assert [entry.feasible for entry in finished] == kept
    assert kept == sorted(kept, reverse=True) and 0 < sum(kept) < len(kept)
    good = [entry.value for entry in finished if entry.feasible]
    assert good == sorted(good, reverse=True)
    bad = [entry.constraints[0] for entry in finished if not entry.feasible]
    assert bad == sorted(bad, reverse=True)
    assert query(tmp_path / "s", "SELECT count(*) FROM trials WHERE feasible")[1] == [(sum(kept),)]


def test_constraint_aware_samplers_propose_feasible_trials(tmp_path):
    limit = Constraint("eval/thrift", min=4.0)  # the best return lies outside
    shares = {}
    for method in ("tpe", "random"):
        asked = samples.study(
            method=method, constraints=(limit,), early_terminate=None, budget=Budget(trials=80)
        )
        results = finish(asked, tmp_path / method)
        later = [entry for entry in results.leaderboard if entry.trial >= 30]
        shares[method] = np.mean([entry.feasible is True for entry in later])
    assert shares["tpe"] > shares["random"] + 0.2


def test_plateau_rule_varies_the_env_steps_objective(tmp_path):
    asked = study(
        RETURN,
        Metric("env_steps", "minimize"),
        early_terminate=EarlyTerminate("plateau", 1_000, patience=2, tolerance=0.2),
    )
    asked = dataclasses.replace(asked, env_steps=64_000)
    results = finish(asked, tmp_path / "s")
    finished = [entry for entry in results.leaderboard if entry.state is TrialState.FINISHED]
    assert len({entry.env_steps for entry in finished}) > 1
    early = [entry for entry in finished if entry.stop_rule.startswith("plateau")]
    assert early and all(entry.env_steps < 2 * 64_000 for entry in early)
    with Journal(tmp_path / "s") as journal:
        ends = {d.trial: d for d in journal.decisions() if d.action == "finish"}
    for entry in early:
        assert entry.value == ends[entry.trial].value
        assert entry.objectives[1] == float(entry.env_steps) >= 2 * ends[entry.trial].env_steps


def test_seconds_may_be_an_objective(tmp_path):
    asked = study(RETURN, Metric("seconds", "minimize"), budget=Budget(trials=8))
    factory = dataclasses.replace(FACTORY, chunk_seconds=0.002)
    results = finish(asked, tmp_path / "s", factory)
    ended = [entry for entry in results.leaderboard if entry.objectives]
    assert ended and all(entry.objectives[1] > 0.0 for entry in ended)


@pytest.mark.parametrize("method", ["nsga2", "tpe"])
def test_multi_objective_study_resumes_to_same_tables(tmp_path, method):
    asked = study(
        RETURN,
        THRIFT,
        method=method,
        budget=Budget(trials=30),
        confirm=samples.Confirm(3, 2, 0),
        constraints=(Constraint("eval/length_mean", min=1.0),),
    )
    finish(asked, tmp_path / "whole")
    tests = run_file("tests/search/engine/test_resume.py")
    state, chunks = "interrupted", 2
    while state == "interrupted":
        state = run(asked, tmp_path / "cut", FACTORY, [tests.CutAt(chunks)], samples.quick()).state
        chunks += 3
    assert tests.same(tmp_path / "whole", tmp_path / "cut") == []
    assert tables_equal(tmp_path / "whole", tmp_path / "cut") == []


class Turned(AnalyticPopulation):
    """On fresh seeds what was thrifty wastes, and what wasted is thrifty."""

    def result_of(self, lane):
        found = super().result_of(lane)
        if lane.stream is Stream.SEARCH:
            return found
        return dataclasses.replace(found, metrics={"thrift": 6.0 - found.metrics["thrift"]})


class TurnedFactory(samples.AnalyticFactory):
    def make(self, resolved, lanes):
        return Turned(self, resolved.steps_per_chunk, lanes or self.lanes)


def test_confirmed_trials_are_feasible_by_selection_seeds(tmp_path):
    limit = Constraint("eval/thrift", min=3.0)  # the search: rates of at most 1e-3
    asked = samples.study(
        constraints=(limit,),
        early_terminate=None,
        budget=Budget(trials=12),
        confirm=samples.Confirm(12, 2, 2),
    )
    results = finish(asked, tmp_path / "s", TurnedFactory(lanes=12, diverges_above=2.0))
    confirmed = [entry for entry in results.leaderboard if entry.confirmed]
    kept = [entry.params["learning_rate"] >= 1e-3 for entry in confirmed]
    assert len(confirmed) == 12 and [entry.feasible for entry in confirmed] == kept
    assert kept == sorted(kept, reverse=True) and 0 < sum(kept) < 12
    good = [entry.choose_value for entry in confirmed if entry.feasible]
    assert good == sorted(good, reverse=True)
    winner = results.best
    assert winner == results.leaderboard[0] and winner.value_from == "report"
    with Journal(tmp_path / "s") as journal:
        reported = {row.trial for row in journal.trials() if row.report_values}
    assert reported == {winner.trial, 0}
