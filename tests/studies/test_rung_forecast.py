"""Trials past each rung: exact cases by hand, and rules applied one by one."""

import math
from dataclasses import replace

import numpy as np
import pytest

from hpo.studies.rung_forecast import Race, trials_past

RANDOM = Race(64, 64, (2, 8, 16), "halving", 4.0, guesses=0)


@pytest.mark.parametrize("eta", [2.0, 3.0, 4.0])
@pytest.mark.parametrize("trials", [5, 16, 40])
def test_trials_that_all_run_at_once_are_halved_exactly(eta, trials):
    first, second = trials_past(replace(RANDOM, trials=trials, at_once=trials, eta=eta))
    assert first == math.ceil(trials / eta)
    assert second == (first if first < eta else math.ceil(first / eta))


@pytest.mark.parametrize("eta", [2.0, 3.0, 4.0])
def test_single_trials_pass_rung_like_sequential_asha(eta):
    rng, passed = np.random.default_rng(0), []
    for _ in range(300):
        values, count = [], 0
        for value in rng.random(64):
            values.append(value)
            rank = 1 + sum(other > value for other in values)
            count += len(values) < eta or rank <= math.ceil(len(values) / eta)
        passed.append(count)
    first, _ = trials_past(replace(RANDOM, at_once=1, eta=eta))
    assert first == pytest.approx(np.mean(passed), abs=1.2)


def test_paused_trials_are_promoted_in_forecast():
    """At least floor(n / eta) of them, and those that were among the best for a while."""
    first, second = trials_past(replace(RANDOM, pause=64))
    assert (first, second) == (16, 4)
    alone, _ = trials_past(replace(RANDOM, at_once=1, pause=64))
    stopped, _ = trials_past(replace(RANDOM, at_once=1))
    assert 16 < alone < 30 and stopped < 26
    none_kept, _ = trials_past(replace(RANDOM, at_once=1, pause=1))
    assert none_kept < alone


def test_one_paused_trial_is_always_finished():
    assert trials_past(replace(RANDOM, trials=3, at_once=1, pause=10)) == (1, 1)


def test_a_median_stops_half():
    first, _ = trials_past(replace(RANDOM, kind="half"))
    assert first == 32


def test_late_brackets_pass_early_rungs():
    first, second = trials_past(replace(RANDOM, kind="brackets", trials=1000, at_once=1000))
    weights = np.array([16 / 3, 4 / 2, 1.0]) / (16 / 3 + 4 / 2 + 1.0)
    assert first == pytest.approx(1000 * (weights[0] / 4 + weights[1] + weights[2]), rel=0.1)
    later = weights[0] / 16 + weights[1] / 4 + weights[2]
    assert second == pytest.approx(1000 * later, rel=0.15)


def test_audited_trials_run_to_the_end():
    first, second = trials_past(replace(RANDOM, audit=1.0))
    assert (first, second) == (64, 64)


def test_a_protected_default_is_never_stopped():
    alone = replace(RANDOM, trials=8, at_once=8, keeps_first=True)
    assert trials_past(alone)[0] > 2.5 > trials_past(replace(alone, keeps_first=False))[0]


def test_model_proposals_pass_rungs_more_often():
    race = replace(RANDOM, at_once=4)
    learnt = replace(race, learns_from=10, random_share=0.2)
    assert trials_past(learnt)[0] > 1.15 * trials_past(race)[0]
    assert trials_past(replace(learnt, random_share=1.0)) == pytest.approx(
        trials_past(race), rel=0.1
    )
    at_once = replace(RANDOM, learns_from=10)  # drawn before there is a result
    assert trials_past(at_once) == trials_past(RANDOM)


def test_forecast_scales_with_number_of_trials():
    few = trials_past(replace(RANDOM, trials=2_000, at_once=16))
    many = trials_past(replace(RANDOM, trials=200_000, at_once=1_600))
    assert many == pytest.approx([100 * past for past in few])
