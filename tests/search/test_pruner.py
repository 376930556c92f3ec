import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpo.errors import ConfigError, UnknownNameError
from hpo.search.asha import Asha
from hpo.search.contracts import PrunerContract
from hpo.search.median import Median
from hpo.search.pruner import PRUNERS, is_audited, make_pruner, rank_of, register_pruner
from hpo.studies.spec import EarlyTerminate


class TestAsha(PrunerContract):
    def make(self):
        return Asha(eta=3.0)


class TestGentleAsha(PrunerContract):
    def make(self):
        return Asha(eta=1.5)


class TestMedian(PrunerContract):
    def make(self):
        return Median()


def stops(pruner, earlier, arriving):
    return [verdict.stop for verdict in pruner.judge(earlier, arriving)]


def test_asha_keeps_the_best_of_all_judged_so_far():
    # n = 8, eta = 4: the ceil(8/4) = 2nd best, 2.0, is the cut-off.
    assert stops(Asha(4), [1.0, 5.0, 6.0, 7.0, 8.0, 9.0], [2.0, 3.0]) == [False, True]
    # n = 5: ceil(5/4) = 2nd best again, now among fewer.
    assert stops(Asha(4), [1.0, 9.0, 9.0, 9.0], [5.0]) == [False]


def test_asha_compares_those_that_arrive_together():
    assert stops(Asha(2), [], [3.0, 1.0, 2.0, 4.0]) == [True, False, False, True]


def test_asha_lets_everyone_go_on_below_eta():
    assert stops(Asha(4), [1.0], [9.0, 99.0]) == [False, False]
    assert Asha(4).judge([1.0], [9.0])[0].cutoff is None
    assert stops(Asha(4), [1.0, 2.0], [9.0, 99.0]) == [True, True]


def test_asha_lets_ties_go_on():
    assert stops(Asha(4), [1.0, 1.0, 1.0], [1.0, 1.0, 2.0]) == [False, False, True]


@given(
    st.lists(st.integers(0, 9).map(float)),
    st.lists(st.integers(0, 9).map(float), min_size=1),
    st.sampled_from([1.5, 2.0, 3.0, 4.0]),
)
def test_asha_equals_a_count_of_better_trials(earlier, arriving, eta):
    everyone = earlier + arriving
    for loss, verdict in zip(arriving, Asha(eta).judge(earlier, arriving), strict=True):
        better = sum(other < loss for other in everyone)
        goes_on = len(everyone) < eta or better < math.ceil(len(everyone) / eta)
        assert verdict.stop is not goes_on


def test_asha_refuses_an_eta_that_stops_nobody():
    with pytest.raises(ConfigError, match="above 1"):
        Asha(1.0)


def test_median_waits_for_five_and_then_stops_the_worse_half():
    assert stops(Median(), [1.0, 2.0], [9.0, 8.0]) == [False, False]
    assert stops(Median(), [1.0, 2.0, 3.0], [4.0, 2.5]) == [True, False]
    assert Median().judge([1.0, 2.0, 3.0, 4.0], [5.0])[0].cutoff == 3.0


def test_audit_takes_its_share_and_depends_on_nothing_else():
    chosen = [is_audited(5, trial, 0.05) for trial in range(4000)]
    assert 150 < sum(chosen) < 250
    assert chosen == [is_audited(5, trial, 0.05) for trial in range(4000)]
    assert chosen != [is_audited(6, trial, 0.05) for trial in range(4000)]
    assert not any(is_audited(5, trial, 0.0) for trial in range(100))


def test_rank_counts_the_better_ones():
    assert [rank_of(loss, [1.0, 1.0, 3.0]) for loss in (1.0, 3.0)] == [1, 3]


def test_rules_are_made_by_name():
    assert make_pruner(EarlyTerminate("asha", 10, 3.0)) == Asha(3.0)
    assert make_pruner(EarlyTerminate("median", 10)) == Median()
    with pytest.raises(UnknownNameError, match="did you mean 'asha'"):
        make_pruner(EarlyTerminate("ahsa", 10))


def test_a_rule_is_registered_once(monkeypatch):
    monkeypatch.setattr("hpo.search.pruner.PRUNERS", dict(PRUNERS))
    register_pruner("always", lambda spec: Median(at_least=1))
    assert make_pruner(EarlyTerminate("always", 1)) == Median(at_least=1)
    with pytest.raises(ConfigError, match="registered already"):
        register_pruner("always", lambda spec: Median())
