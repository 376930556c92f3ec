import itertools
import math
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import search_samples as samples
from hpo.errors import ConfigError, UnknownNameError
from hpo.search.rules.registry import TrialAtRung, is_audited, make_pruner, rank_of, register_rule
from hpo.search.rules.stopping import Asha, Hyperband, Median, Plateau, PromotingAsha
from hpo.studies.search_spec import EarlyTerminate
from hpo.studies.stopping_rules import RULES
from hpo.testing.search import PrunerContract


def made(early):
    """The rule of a study with runs of 16,000 env steps."""
    return make_pruner(samples.study(early_terminate=early))


class TestAsha(PrunerContract):
    def make(self):
        return Asha(eta=3.0)


class TestGentleAsha(PrunerContract):
    def make(self):
        return Asha(eta=1.5)


class TestMedian(PrunerContract):
    def make(self):
        return Median()


class TestHyperband(PrunerContract):
    def make(self):
        return Hyperband(3.0, 3, seed=4)

    def numbers(self, count):
        found = (n for n in itertools.count() if self.make().bracket(n) == 0)
        return list(itertools.islice(found, count))


class TestHyperbandLater(TestHyperband):
    rung = 2


class TestPlateau(PrunerContract):
    def make(self):
        return Plateau(patience=2)


def standings(losses, first=0):
    return [TrialAtRung(first + n, loss, (loss,)) for n, loss in enumerate(losses)]


def verdicts(pruner, earlier, arriving):
    return pruner.judge(0, standings(earlier), standings(arriving, len(earlier)))


def stops(pruner, earlier, arriving):
    return [verdict.stop for verdict in verdicts(pruner, earlier, arriving)]


@pytest.mark.parametrize(
    "rule", [Asha, partial(PromotingAsha, most=1), partial(Hyperband, rungs=2)]
)
@pytest.mark.parametrize("eta", [0, 1.0, -2.0, math.nan])
def test_eta_of_one_or_less_is_refused(rule, eta):
    with pytest.raises(ValueError, match=r"eta is .*; allowed: above 1"):
        rule(eta)


def test_asha_keeps_best_share_of_all_judged_trials():
    # n = 8, eta = 4: the ceil(8/4) = 2nd best, 2.0, is the cut-off.
    assert stops(Asha(4), [1.0, 5.0, 6.0, 7.0, 8.0, 9.0], [2.0, 3.0]) == [False, True]
    # n = 5: ceil(5/4) = 2nd best again, now among fewer.
    assert stops(Asha(4), [1.0, 9.0, 9.0, 9.0], [5.0]) == [False]


def test_asha_compares_those_that_arrive_together():
    assert stops(Asha(2), [], [3.0, 1.0, 2.0, 4.0]) == [True, False, False, True]


def test_asha_continues_all_trials_below_eta():
    assert stops(Asha(4), [1.0], [9.0, 99.0]) == [False, False]
    assert verdicts(Asha(4), [1.0], [9.0])[0].cutoff is None
    assert stops(Asha(4), [1.0, 2.0], [9.0, 99.0]) == [True, True]


def test_asha_continues_tied_trials():
    assert stops(Asha(4), [1.0, 1.0, 1.0], [1.0, 1.0, 2.0]) == [False, False, True]


@given(
    st.lists(st.integers(0, 9).map(float)),
    st.lists(st.integers(0, 9).map(float), min_size=1),
    st.sampled_from([1.5, 2.0, 3.0, 4.0]),
)
def test_asha_equals_a_count_of_better_trials(earlier, arriving, eta):
    everyone = earlier + arriving
    for loss, verdict in zip(arriving, verdicts(Asha(eta), earlier, arriving), strict=True):
        better = sum(other < loss for other in everyone)
        goes_on = len(everyone) < eta or better < math.ceil(len(everyone) / eta)
        assert verdict.stop is not goes_on


def test_median_waits_for_five_and_then_stops_the_worse_half():
    assert stops(Median(), [1.0, 2.0], [9.0, 8.0]) == [False, False]
    assert stops(Median(), [1.0, 2.0, 3.0], [4.0, 2.5]) == [True, False]
    assert verdicts(Median(), [1.0, 2.0, 3.0, 4.0], [5.0])[0].cutoff == 3.0


def test_audit_selects_its_share_by_seed_and_trial():
    chosen = [is_audited(5, trial, 0.05) for trial in range(4000)]
    assert 150 < sum(chosen) < 250
    assert chosen == [is_audited(5, trial, 0.05) for trial in range(4000)]
    assert chosen != [is_audited(6, trial, 0.05) for trial in range(4000)]
    assert not any(is_audited(5, trial, 0.0) for trial in range(100))


def test_rank_counts_the_better_ones():
    assert [rank_of(loss, [1.0, 1.0, 3.0]) for loss in (1.0, 3.0)] == [1, 3]


def test_rules_are_made_by_name():
    assert made(EarlyTerminate("asha", 10, 3.0)) == Asha(3.0)
    assert made(EarlyTerminate("median", 10)) == Median()
    assert made(EarlyTerminate("hyperband", 1_000, 4.0)) == Hyperband(4.0, 2, 0)
    assert made(EarlyTerminate("plateau", 10, patience=3)) == Plateau(3, 0.02)
    assert made(None) is None
    with pytest.raises(UnknownNameError, match="did you mean 'asha'"):
        made(EarlyTerminate("ahsa", 10))


def test_a_rule_is_registered_once(monkeypatch):
    monkeypatch.setitem(RULES, "always", RULES["asha"])
    del RULES["always"]
    register_rule("always", lambda spec, study: Median(at_least=1))
    assert made(EarlyTerminate("always", 1)) == Median(at_least=1)
    with pytest.raises(ConfigError, match="already registered"):
        register_rule("always", lambda spec, study: Median())


# ---------------------------------------------------------------- hyperband


def test_hyperband_brackets_follow_seed_and_trial():
    rule = Hyperband(4.0, 3, seed=1)
    found = [rule.bracket(trial) for trial in range(8000)]
    assert found == [Hyperband(4.0, 3, seed=1).bracket(trial) for trial in range(8000)]
    # eta^s / (s + 1) for s = 3, 2, 1, 0: 16, 16/3, 2, 1.
    for bracket, weight in enumerate((16, 16 / 3, 2, 1)):
        expected = weight / (16 + 16 / 3 + 2 + 1)
        assert found.count(bracket) / 8000 == pytest.approx(expected, abs=0.02)


def test_hyperband_compares_trials_within_their_bracket():
    rule = Hyperband(2.0, 2, seed=0)
    of = {b: [t for t in range(200) if rule.bracket(t) == b][:4] for b in range(3)}
    everyone = [TrialAtRung(t, float(i), ()) for b in of for i, t in enumerate(of[b])]
    for rung in range(2):
        found = dict(zip((s.trial for s in everyone), rule.judge(rung, [], everyone), strict=True))
        for bracket, trials in of.items():
            stopped = [found[trial].stop for trial in trials]
            halved = [False, False, True, True]
            assert stopped == (halved if bracket <= rung else [False] * 4)
    late = TrialAtRung(of[0][3], 9.0, ())
    rivals = [TrialAtRung(trial, 1.0, ()) for trial in of[1]]
    assert not rule.judge(0, rivals, [late])[0].stop  # alone in its bracket


# ---------------------------------------------------------------- plateau


def ends(curve, **options):
    rule = Plateau(**options)
    verdict = rule.judge(len(curve) - 1, [], [TrialAtRung(0, curve[-1], tuple(curve))])[0]
    assert verdict.finish is verdict.stop
    return verdict.stop


def test_a_plateau_needs_patience():
    # The best of the last two is 5.0, that before 5.0 too: nothing gained.
    assert ends([9.0, 5.0, 6.0, 5.0], patience=2)
    assert not ends([9.0, 5.0, 6.0], patience=2)  # 5.0 is among the last two
    assert not ends([5.0, 5.0], patience=2)
    assert ends([5.0, 5.0, 5.0], patience=2)


def test_plateau_tolerance_is_a_share_of_the_gain():
    # Gain so far 10.0 -> 5.0 is 5; 2 % of it is 0.1. Needed: below or at 5.05 - 0.1 = 4.95.
    assert ends([10.0, 5.05, 5.0], patience=1, tolerance=0.02)
    assert not ends([10.0, 5.05, 4.9], patience=1, tolerance=0.02)
    assert not ends([10.0, 5.05, 5.0], patience=1, tolerance=0.0)


def test_invalid_plateau_patience_is_refused():
    with pytest.raises(ConfigError, match="patience"):
        Plateau(patience=0)
