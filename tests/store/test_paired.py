"""Intervals of paired differences against SciPy, the paper's formula, and simulated coverage."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import brentq

from hpo.errors import ConfigError
from hpo.store.comparison import decided_pairs, seeds_to_tell
from hpo.store.interim_analyses import Look, earlier_looks, levels, winners_looks
from hpo.store.mean_difference import paired_interval, paired_over_looks
from hpo.store.permutation_tests import sign_flip_p
from hpo.store.probability_of_improvement import chance_of_better
from hpo.store.unobserved import Bounds


@pytest.mark.parametrize("count", [6, 8, 16, 32])
def test_paired_interval_matches_student_t(count: int) -> None:
    rng = np.random.default_rng(count)
    b = rng.normal(0, 2, count)  # the other side has as long tails
    a = np.roll(b, 1) + 0.1
    found = paired_interval(a.tolist(), b.tolist())
    expected = stats.ttest_rel(a, b).confidence_interval(0.96)
    assert expected.low < 0.0 < expected.high  # else the exact test may widen it
    assert found.kind == "t"
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


@pytest.mark.parametrize("count", [8, 16, 32])
def test_difference_to_a_constant_uses_halls_interval(count: int) -> None:
    """Its ends are the means at which Hall's transformed statistic is a quantile of t."""
    b = 460.0 - 5.0 * np.random.default_rng(count).exponential(1, count)
    d = 500.0 - b
    skewness, spread = stats.skew(d), d.std(ddof=1)

    def transformed(centre: float) -> float:
        x = (d.mean() - centre) / spread
        cubic = x + skewness * x**2 / 3 + skewness**2 * x**3 / 27 + skewness / (6 * count)
        return math.sqrt(count) * cubic

    reach = stats.t.ppf(0.98, count - 1)
    ends = [brentq(lambda m, to=to: transformed(m) - to, -1e6, 1e6) for to in (reach, -reach)]
    found = decided_pairs([500.0] * count, b.tolist()).unless.interval
    plain = stats.t.interval(0.96, count - 1, d.mean(), stats.sem(d))
    assert found.kind == "hall"  # all signs are the same, so no further beyond 0 than Student's
    assert (found.low, found.high) == pytest.approx((max(ends[0], plain[0]), ends[1]))


def test_paired_interval_is_none_without_spread_or_seeds() -> None:
    assert paired_interval([1.0, 2.0, 3.0, 5.0, 4.0], [0.0] * 5).kind == "none"
    assert (
        paired_interval([0.1 * i + 0.1 for i in range(8)], [0.1 * i for i in range(8)]).kind
        == "none"
    )
    assert paired_interval([0.1 + 0.2] * 8, [0.3] * 8).kind == "none"  # but for rounding
    assert paired_interval([1.0, 2.0, 3.0, 4.0, 5.0, math.nan], [0.0] * 6).kind == "none"
    with pytest.raises(ConfigError):
        paired_interval([1.0], [1.0, 2.0])


def test_paired_probability_has_the_exact_binomial_interval() -> None:
    ours, theirs = [1.0] * 13 + [0.0] * 3, [0.5] * 16
    chance, found = chance_of_better(ours, theirs)
    expected = stats.binomtest(13, 16).proportion_ci(0.95, "exact")
    assert chance == 13 / 16
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert chance_of_better([1.0] * 5, [math.nan] * 4 + [1.0])[0] == 0.9
    assert chance_of_better([1.0] * 4, [0.0] * 4)[1].kind == "none"


def test_seeds_to_tell_reaches_the_promised_power() -> None:
    differences = (np.random.default_rng(0).normal(0, 1, 12) + 0.4).tolist()
    centre, spread = np.mean(differences), np.std(differences, ddof=1)

    def power(count: int) -> float:
        away = math.sqrt(count) * centre / spread
        return float(stats.nct.sf(stats.t.ppf(0.975, count - 1), count - 1, away))

    needed = seeds_to_tell(centre, spread, level=0.05)
    assert needed is not None
    assert power(needed) >= 0.79 and power(needed - 2) <= 0.81
    assert seeds_to_tell(centre, spread) > needed  # a first look is at 4 %
    assert seeds_to_tell(0.0, 1.0) is None and seeds_to_tell(1e-9, 1.0) is None


def _coverage(a: np.ndarray, b: np.ndarray, truth: float) -> float:
    found = [paired_interval(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    held = [f.low <= truth <= f.high for f in found if f.low is not None and f.high is not None]
    return sum(held) / len(held)


@pytest.mark.parametrize("count", [8, 16])
def test_paired_intervals_have_nominal_coverage(count: int) -> None:
    """600 studies: the standard error is 0.9 %, so 93 to 97 % has two of them on either side."""
    rng, size = np.random.default_rng(5), (600, count)
    gamma = _coverage(-rng.gamma(2, 50, size), -rng.gamma(3, 50, size), 50.0)
    discrete = _coverage(rng.poisson(2.0, size) * 1.0, rng.poisson(1.5, size) * 1.0, 0.5)
    assert 0.92 <= (gamma + discrete) / 2 <= 0.98
    ceiling = _coverage(np.full(size, 0.0), -rng.exponential(1, size), 1.0)
    assert ceiling >= 0.89  # Student's holds 0.88 and 0.90 of these


def every_sign(differences: list[float]) -> float:
    """The share of all ways to flip signs whose sum is as far from 0, by a loop."""
    seen = abs(sum(differences))
    ways = list(itertools.product([-1, 1], repeat=len(differences)))
    far = sum(
        abs(sum(s * d for s, d in zip(way, differences, strict=True))) >= seen - 1e-9
        for way in ways
    )
    return far / len(ways)


@pytest.mark.parametrize("count", [1, 5, 9])
def test_sign_flip_test_is_exhaustive(count: int) -> None:
    rng = np.random.default_rng(count)
    for values in (rng.normal(0.5, 1, count), rng.integers(-1, 3, count), np.full(count, 0.1)):
        differences = values.astype(float).tolist()
        assert sign_flip_p(differences) == pytest.approx(every_sign(differences))


def test_large_samples_use_random_flips_then_student_t() -> None:
    rng = np.random.default_rng(0)
    some = rng.normal(0.4, 1, 30)
    theirs = stats.permutation_test(
        (some,), np.mean, permutation_type="samples", n_resamples=20_000, rng=1
    ).pvalue
    assert sign_flip_p(some.tolist()) == pytest.approx(theirs, rel=0.15)
    many = rng.normal(0.2, 1, 150)
    assert sign_flip_p(many.tolist()) == pytest.approx(stats.ttest_1samp(many, 0.0).pvalue)
    assert sign_flip_p([0.0] * 8) == 1.0


def test_equal_differences_on_more_than_100_seeds_are_decided() -> None:
    """Student's test divided by their deviation of 0."""
    assert sign_flip_p([1.0] * 101) == 0.0
    assert decided_pairs([2.0] * 101, [1.0] * 101).verdict == "better"
    assert decided_pairs([1.0] * 200, [2.0] * 200, bounds=Bounds(0.0, 5.0)).verdict == "worse"


def test_paired_interval_agrees_with_the_exact_test() -> None:
    rng = np.random.default_rng(1)
    decided = 0
    for _ in range(300):
        count = int(rng.integers(6, 14))
        ours = np.where(rng.random(count) < 0.7, 500.0, rng.uniform(0, 400, count)).tolist()
        theirs = np.where(rng.random(count) < 0.4, 500.0, rng.uniform(0, 400, count)).tolist()
        found = paired_interval(ours, theirs)
        if found.low is None or found.high is None or found.low <= 0.0 <= found.high:
            continue
        decided += 1
        assert every_sign([a - b for a, b in zip(ours, theirs, strict=True)]) <= 0.04
    assert decided >= 30


def test_paired_interval_respects_value_bounds() -> None:
    theirs = [0.0, 0.1, 0.0, 0.9, 0.4, 0.0, 0.7, 0.0]
    ours = [1.0, 1.0, 0.2, 1.0, 1.0, 1.0, 0.0, 1.0]
    free, bound = (paired_interval(ours, theirs, bounds=b) for b in (Bounds(), Bounds(0.0, 1.0)))
    assert free.high > 1.0 == bound.high and bound.low == free.low
    assert paired_interval(theirs, ours, bounds=Bounds(0.0, 1.0)).low == -1.0
    top = paired_interval([1.0] * 8, theirs, bounds=Bounds(high=1.0))
    assert 0.0 < paired_interval([1.0] * 8, theirs).low < top.low


def test_levels_count_only_looks_that_could_decide() -> None:
    assert levels([]) == ([], 0.04)
    assert levels([3]) == ([], 0.04)  # 3 seeds of each decide nothing
    assert levels([4]) == ([(4, 0.03)], 0.016)
    assert levels([], pairs=5) == ([], 0.03)
    assert levels([5, 6]) == ([(5, 0.03)], 0.016)  # 6 pairs decide nothing at 1.6 %
    assert levels([4, 8]) == ([(4, 0.03), (8, 0.016)], pytest.approx(0.0032))
    assert levels([4], interim=True) == ([], 0.04)
    assert levels([8, 5]) == ([(8, 0.04)], 0.008)  # only a first look compares so few
    assert levels([8, 20]) == ([(8, 0.04), (20, 0.008)], pytest.approx(0.0016))
    assert levels([8, 7]) == ([(8, 0.04)], 0.008)  # 7 decide nothing at 0.8 %
    assert levels([8], interim=True) == ([(8, 0.008)], 0.04)
    assert levels([7], interim=True) == ([], 0.04)  # the planned end keeps its level
    assert levels([7, 15], interim=True) == ([(15, 0.04)], pytest.approx(0.0016))
    assert sum(0.04 * 0.2**k for k in range(50)) == pytest.approx(0.05)


def test_earlier_looks_count_pairs_seen_by_both_trials() -> None:
    looks = [Look(0, 8), Look(9, 8, True), Look(0, 20), Look(6, 20), Look(9, 20, True)]
    assert earlier_looks(looks, 9, 0, 20) == (8,)
    assert earlier_looks(looks, 9, 0, 30) == (8, 20)
    assert earlier_looks(looks, 6, 0, 20) == ()  # 6 has been seen at 20 only
    assert winners_looks([*looks, Look(6, 20, True)], 6, 0, 20) == (0, 0)
    assert winners_looks(looks, 9, 0, 20) == (8,)
    few = [Look(0, 3), Look(9, 3, True), Look(0, 16), Look(6, 16, True)]
    assert winners_looks(few, 6, 0, 16) == ()  # 3 seeds of another winner decided nothing
    five = [Look(0, 5), Look(9, 5, True), Look(0, 16), Look(6, 16, True)]
    assert winners_looks(five, 6, 0, 16) == (0,)


def test_interval_over_looks_is_their_intersection() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.normal(0.5, 1, (2, 20)).tolist()
    each = [paired_interval(a[:8], b[:8], level=0.04), paired_interval(a, b, level=0.008)]
    found = paired_over_looks(a, b, [8])
    assert found.low == max(one.low for one in each)
    assert found.high == min(one.high for one in each)


def test_unanimous_wins_still_give_a_wide_probability_interval() -> None:
    """32 of 32 leave out what would make them rarer than 2.5 %, not what was not seen."""
    for paired, least in ((True, 0.025 ** (1 / 32)), (False, 0.88)):
        chance, found = chance_of_better([1.0] * 32, [0.0] * 32, paired=paired)
        assert chance == 1.0 and found.high == pytest.approx(1.0)
        assert found.low == pytest.approx(least, abs=0.01)


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("count", [5, 8, 32])
def test_probability_false_positive_rate_is_at_most_5_percent(count: int, paired: bool) -> None:
    """500 pairs of equals, a third of them ties: 5 % and two standard errors are 35."""
    rng, missed = np.random.default_rng(count), 0
    for _ in range(500):
        a, b = np.minimum(rng.normal(size=(2, count)), 0.2).tolist()
        found = chance_of_better(a, b, paired=paired)[1]
        missed += not found.low <= 0.5 <= found.high
    assert missed <= 35
