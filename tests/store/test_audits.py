"""How often stops were wrong, against counts by hand and SciPy's rank correlation."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import beta, kendalltau

from hpo.errors import ConfigError
from hpo.store.audits import audit_of, weighted_kendall
from hpo.store.rows import DecisionRow, StudyMeta, TrialRow, TrialState
from hpo.store.statistics import binomial_interval

FINISHING = frozenset({"plateau"})


def meta(goal="maximize", **changes):
    return StudyMeta("s", "h", "", "eval/return_mean", goal, "mean", {}, **changes)


def trial(number, value, state=TrialState.FINISHED, audited=False, rule=""):
    return TrialRow(number, state, "random", 0, "b", {}, value, audited=audited, stop_rule=rule)


def decision(number, rung, value, action, rule="asha eta=2"):
    return DecisionRow(number, rung, 1_000 * (rung + 1), value, action, rule, None, 1, 1)


def small_study(sign=1.0):
    """Eight trials: 0, 1, 2 survive with 10, 20, 30; of the stopped 3, 4 and 7 were audited."""
    rows = [
        trial(0, sign * 10.0),
        trial(1, sign * 20.0),
        trial(2, sign * 30.0),
        trial(3, sign * 25.0, audited=True, rule="asha eta=2"),  # wrongly stopped
        trial(4, sign * 15.0, audited=True, rule="asha eta=2"),
        trial(5, None, TrialState.STOPPED, rule="asha eta=2"),
        trial(6, None, TrialState.STOPPED, rule="asha eta=2"),
        trial(7, None, TrialState.DIVERGED, audited=True, rule="asha eta=2"),
    ]
    at_rung = {0: 6.0, 1: 8.0, 2: 9.0, 3: 3.0, 4: 2.0, 5: 1.0, 6: 0.0, 7: 4.0}
    actions = {0: "continue", 1: "continue", 2: "continue", 3: "audit", 4: "audit", 5: "stop",
               6: "stop", 7: "audit"}  # fmt: skip
    decisions = [decision(n, 0, sign * value, actions[n]) for n, value in at_rung.items()]
    decisions += [decision(n, 1, sign * at_rung[n], "continue") for n in (0, 1, 2)]
    return rows, decisions


@pytest.mark.parametrize(("goal", "sign"), [("maximize", 1.0), ("minimize", -1.0)])
def test_wrong_stops_are_counted_against_the_median_of_the_survivors(goal, sign):
    rows, decisions = small_study(sign)
    audit = audit_of(meta(goal), rows, decisions, FINISHING)
    assert (audit.survivors, audit.bar) == (3, sign * 20.0)
    assert len(audit.rungs) == 1
    for found in (audit.rungs[0], audit.whole):
        assert (found.judged, found.stopped, found.audited) == (8, 5, 3)
        assert (found.wrong, found.level, found.winners) == (1, 0, 0)
        assert found.share == pytest.approx(1 / 3)
        assert (found.low, found.high) == binomial_interval(1, 3)
    assert (audit.rungs[0].rung, audit.rungs[0].env_steps) == (0, 1_000)


def test_audited_trials_are_weighted_by_the_stopped_share():
    rows, decisions = small_study()
    found = audit_of(meta(), rows, decisions, FINISHING).rungs[0].correlation
    at_rung = [6.0, 8.0, 9.0, 3.0, 2.0, 4.0]
    ends = [10.0, 20.0, 30.0, 25.0, 15.0, -math.inf]
    weights = [1.0, 1.0, 1.0, 5 / 3, 5 / 3, 5 / 3]  # three of five stopped ones were audited
    assert found == pytest.approx(slow_kendall(at_rung, ends, weights))


def test_stopped_trial_better_than_all_survivors_is_reported():
    rows, decisions = small_study()
    rows[3] = trial(3, 31.0, audited=True, rule="asha eta=2")
    assert audit_of(meta(), rows, decisions, FINISHING).whole.winners == 1


def test_stopped_trials_at_the_ceiling_count_as_level_not_wrong():
    rows, decisions = small_study()
    rows = [replace(row, value=None if row.value is None else 500.0) for row in rows]
    found = audit_of(meta(), rows, decisions, FINISHING).whole
    assert (found.audited, found.wrong, found.level, found.winners) == (3, 0, 2, 0)


def test_audit_is_none_for_multi_objective_or_constrained_studies():
    rows, decisions = small_study()
    assert audit_of(meta(), [row for row in rows if not row.audited], decisions, FINISHING) is None
    assert audit_of(meta(), [row for row in rows if row.audited], decisions, FINISHING) is None
    assert (
        audit_of(meta(objectives=({"name": "a"}, {"name": "b"})), rows, decisions, FINISHING)
        is None
    )
    assert audit_of(meta(constraints=({"metric": "a"},)), rows, decisions, FINISHING) is None
    level = [decision(d.trial, d.rung, d.value, d.action, "plateau") for d in decisions]
    assert audit_of(meta(), rows, level, FINISHING) is None
    assert audit_of(meta(), rows, level, frozenset()) is not None


def test_custom_rule_that_finishes_trials_is_not_audited():
    rows, decisions = small_study()
    own = [replace(row, rule="level off, patience 3") for row in decisions]
    assert audit_of(meta(), rows, own, FINISHING) is not None
    rows[5] = trial(5, 12.0, rule="level off, patience 3")
    own[5] = replace(own[5], action="finish")
    assert audit_of(meta(), rows, own, FINISHING) is None


def test_rank_correlation_requires_audited_trials_at_each_rung():
    rows, decisions = small_study()
    decisions[1] = decision(1, 0, 8.0, "continue")
    decisions[-2] = decision(1, 1, 8.0, "stop")  # the only stop of rung 1, not audited
    rows[1] = trial(1, None, TrialState.STOPPED, rule="asha eta=2")
    audit = audit_of(meta(), rows, decisions, FINISHING)
    assert [rung.correlation for rung in audit.rungs] == [None, None]
    assert (audit.rungs[1].stopped, audit.rungs[1].audited, audit.rungs[1].share) == (1, 0, None)


def slow_kendall(first, second, weights):
    agree = one_untied = other_untied = 0.0
    for i in range(len(first)):
        for j in range(len(first)):
            if i == j:
                continue
            one = int(first[i] > first[j]) - int(first[i] < first[j])
            other = int(second[i] > second[j]) - int(second[i] < second[j])
            pair = weights[i] * weights[j]
            agree += pair * one * other
            one_untied += pair * (one != 0)
            other_untied += pair * (other != 0)
    return agree / math.sqrt(one_untied * other_untied)


def test_weighted_kendall_matches_scipy_with_equal_weights():
    rng = np.random.default_rng(3)
    first, second = rng.integers(0, 6, (2, 25)).astype(float)
    expected = kendalltau(first, second).statistic
    assert weighted_kendall(first, second, np.ones(25)) == pytest.approx(expected)
    weights = rng.uniform(0.5, 3.0, 25)
    found = weighted_kendall(first, second, weights)
    assert found == pytest.approx(slow_kendall(first, second, weights))
    assert weighted_kendall([1.0, 1.0], [1.0, 2.0], [1.0, 1.0]) is None


@pytest.mark.parametrize(("hits", "count"), [(0, 5), (5, 5), (1, 3), (7, 40), (199, 400)])
def test_binomial_interval_matches_clopper_pearson(hits, count):
    low = 0.0 if hits == 0 else beta.ppf(0.025, hits, count - hits + 1)
    high = 1.0 if hits == count else beta.ppf(0.975, hits + 1, count - hits)
    assert binomial_interval(hits, count) == pytest.approx((low, high), abs=1e-9)


@pytest.mark.parametrize(("hits", "count"), [(0, 0), (-1, 3), (4, 3)])
def test_binomial_interval_of_invalid_counts_is_refused(hits, count):
    with pytest.raises(ConfigError, match="cannot compute an interval"):
        binomial_interval(hits, count)
