"""Seed racing: losers get few seeds, the best get all, equals are seldom dropped."""

import random

import pytest
from scipy.stats import ttest_rel

from helpers import search_samples as samples
from helpers.loading import run_file
from hpo.search.engine.finish_trials import clearly_worse, more_seeds
from hpo.search.lanes.resolver import Resolver
from hpo.search.run import run
from hpo.search.state.loop_state import LoopState
from hpo.search.state.schedule import stages
from hpo.search.state.search_state import SearchState
from hpo.search.state.trials import Replicate, RunState, Trial
from hpo.store.journal import Journal
from hpo.store.rows import Stream, TrialState
from hpo.studies.execution_spec import Budget
from hpo.studies.search_spec import Racing, Seeds

FACTORY = samples.AnalyticFactory(lanes=12, block=4, diverges_above=0.3)
RACING = samples.study(
    seeds=Seeds(12, racing=Racing(start=3)), early_terminate=None, budget=Budget(trials=30)
)


def test_looks_double_up_to_all_seeds():
    assert stages(2, 10) == [2, 4, 8, 10] and stages(5, 5) == [5]


def test_the_test_is_the_paired_one_sided_t_test():
    rng = random.Random(0)
    for _ in range(200):
        seeds = [rng.gauss(0, 3) for _ in range(rng.randrange(2, 9))]
        own = [noise + rng.gauss(0.7, 1) for noise in seeds]
        best = [noise + rng.gauss(0, 1) for noise in seeds]
        p_value = ttest_rel(own, best, alternative="greater").pvalue
        assert clearly_worse(own, best, 0.05) is bool(p_value < 0.05)


def test_single_pair_or_infinite_value_is_inconclusive():
    assert not clearly_worse([9.0], [1.0], 0.05)
    assert not clearly_worse([9.0, float("inf")], [1.0, 1.0], 0.05)


def test_equal_configurations_are_rarely_dropped():
    rng, dropped, looks = random.Random(1), 0, stages(3, 12)
    for _ in range(2000):
        best = [rng.gauss(0, 1) for _ in range(12)]
        own = [rng.gauss(0, 1) for _ in range(12)]
        risk = 0.05 / (len(looks) - 1)
        dropped += any(clearly_worse(own[:n], best[:n], risk) for n in looks[:-1])
    assert dropped / 2000 <= 0.055


@pytest.mark.parametrize(
    "most, spread, is_dropped",
    [(12, 0.5, False), (12, 0.3, True), (6, 0.5, True), (6, 0.7, False)],
)
def test_racing_splits_error_rate_over_looks(most, spread, is_dropped):
    """Three pairs with mean difference 1: t is sqrt(3) / spread, 2 degrees of freedom.

    Of 12 seeds 3 and 6 are looked at, each at 0.025 (t = 4.30); of 6 seeds 3 alone, at 0.05
    (t = 2.92).
    """
    study = samples.study(seeds=Seeds(most, racing=Racing(3, 0.95)), early_terminate=None)
    search_state = SearchState(study, LoopState(), resolver=Resolver(study, FACTORY))
    best = Trial(0, TrialState.FINISHED, "random", 0, "a", {}, value=9.0)
    best.seed_values = (9.0,) * most
    own = [9.0 - difference for difference in (1.0 - spread, 1.0, 1.0 + spread)]
    runs = [
        Replicate(1, Stream.SEARCH, i, RunState.ENDED, value=value) for i, value in enumerate(own)
    ]
    trial = Trial(1, TrialState.RUNNING, "random", 0, "a", {}, runs=runs)
    search_state.add(best)
    search_state.add(trial)
    more = [run.replicate for run in more_seeds(search_state, trial)]
    assert more == ([] if is_dropped else [3, 4, 5])
    assert trial.stop_rule.startswith("racing: clearly below trial 0") is is_dropped


def test_losers_stop_early_and_the_best_run_on_all_seeds(tmp_path):
    results = run(RACING, tmp_path / "s", FACTORY, (), samples.quick())
    finished = [entry for entry in results.leaderboard if entry.state is TrialState.FINISHED]
    assert finished[0].seeds == 12 and all(entry.seeds in (3, 6, 12) for entry in finished)
    few = [entry for entry in finished if entry.seeds < 12]
    assert len(few) > len(finished) / 2
    assert all(entry.stop_rule.startswith("racing: clearly below trial") for entry in few)
    assert all(entry.env_steps == entry.seeds * 16_000 for entry in finished)
    assert min(entry.value for entry in finished[:3]) > max(entry.value for entry in few[-5:])
    full = run(
        samples.study(seeds=Seeds(12), early_terminate=None, budget=Budget(trials=30)),
        tmp_path / "full",
        FACTORY,
        (),
        samples.quick(),
    )
    assert results.best.trial == full.best.trial and results.best.value == full.best.value
    assert results.usage.env_steps < 0.7 * full.usage.env_steps


def test_env_steps_saved_by_racing_run_more_trials(tmp_path):
    bound = 12 * 16_000 * 10
    counts = {}
    for name, seeds in (("all", Seeds(12)), ("racing", RACING.seeds)):
        study = samples.study(
            seeds=seeds, early_terminate=None, budget=Budget(trials=None, env_steps=bound)
        )
        results = run(study, tmp_path / name, FACTORY, (), samples.quick())
        assert results.usage.env_steps <= bound
        counts[name] = sum(e.state is TrialState.FINISHED for e in results.leaderboard)
    assert counts["racing"] >= 1.4 * counts["all"]


@pytest.mark.parametrize("early", [None, "asha"])
def test_racing_resumes_to_the_same_tables(tmp_path, early):
    tests = run_file("tests/search/engine/test_resume.py")
    rule = None if early is None else samples.study().early_terminate
    study = samples.study(
        seeds=RACING.seeds, early_terminate=rule, budget=Budget(trials=20), method="tpe"
    )
    run(study, tmp_path / "whole", FACTORY, (), samples.quick())
    state, chunks = "interrupted", 3
    while state == "interrupted":
        observers = [tests.CutAt(chunks)]
        state = run(study, tmp_path / "cut", FACTORY, observers, samples.quick()).state
        chunks += 4
    assert tests.same(tmp_path / "whole", tmp_path / "cut") == []
    with Journal(tmp_path / "cut") as journal:
        assert any(row.stop_rule.startswith("racing") for row in journal.trials())


@pytest.mark.parametrize("steps", [33, 41])
def test_best_trial_keeps_policy_when_budget_cuts_racing(tmp_path, steps):
    interim = run_file("tests/search/engine/test_interim.py")
    asked = interim.study(
        confirm=None,
        early_terminate=None,
        seeds=Seeds(6, racing=Racing(2, 0.9)),
        budget=Budget(trials=None, env_steps=steps * 16_000),
    )
    best = run(asked, tmp_path, interim.Noisy(lanes=4), (), samples.quick()).best
    assert best.stop_rule.startswith("racing: the budget ran out")
    assert (tmp_path / "policies" / f"trial_{best.trial}" / "policy.json").is_file()
    assert len(list((tmp_path / "policies").iterdir())) == asked.checkpoint.keep_best
