"""Aggregates over environments against the paper's formulas, written as loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from hpo.errors import ConfigError
from hpo.store import aggregate_environments as over
from hpo.store.aggregate_environments import (
    difference,
    overall,
    overall_interval,
    performance_profile,
    probability_of_improvement,
    profile_band,
    together,
)
from hpo.store.mean_difference import paired_interval


def scores(seed: int, environments: int = 3, seeds: int = 8) -> list[list[float]]:
    rng = np.random.default_rng(seed)
    return (
        rng.normal(0.6, 0.3, (environments, seeds)) + np.arange(environments)[:, None]
    ).tolist()


@pytest.mark.parametrize(("environments", "seeds"), [(3, 8), (5, 3), (1, 7), (2, 2)])
def test_multi_env_aggregates_match_agarwal_et_al(environments: int, seeds: int) -> None:
    given = scores(1, environments, seeds)
    flat = [score for each in given for score in each]
    assert overall(given, "mean") == pytest.approx(stats.trim_mean(flat, 0.0))
    assert overall(given, "iqm") == pytest.approx(stats.trim_mean(flat, 0.25))
    assert overall(given, "worst") == pytest.approx(min(sum(e) / len(e) for e in given))


def test_together_aggregates_a_single_seed() -> None:
    seed = [0.9, -0.2, 0.5, 0.4, 3.0]
    assert together(seed, "mean") == pytest.approx(0.92)
    assert together(seed, "iqm") == pytest.approx((0.9 + 0.5 + 0.4) / 3)
    assert together(seed, "worst") == -0.2
    assert together(seed[:3], "iqm") == together(seed[:3], "mean")
    assert math.isnan(together([1.0, math.nan], "worst"))
    assert together([1.0, -math.inf], "mean") == -math.inf


def test_performance_profile_is_the_share_above_thresholds() -> None:
    given, thresholds = scores(2), [-0.5, 0.3, 0.6, 1.7, 9.0]
    flat = [score for each in given for score in each]
    expected = [sum(score > tau for score in flat) / len(flat) for tau in thresholds]
    assert performance_profile(given, thresholds) == pytest.approx(expected)
    band = profile_band(given, thresholds)
    assert band is not None
    for share, (low, high) in zip(expected, band, strict=True):
        assert low <= share <= high
    exact = stats.binomtest(len(flat), len(flat)).proportion_ci(0.95, "exact")
    assert band[0] == pytest.approx((exact.low, 1.0))  # all are above: most of others will be
    assert band[1][0] < band[1][1]


def test_probability_of_improvement_matches_mann_whitney() -> None:
    ours, theirs = np.round(scores(3), 1), np.round(scores(4, seeds=6), 1)  # with ties
    each = [
        stats.mannwhitneyu(a, b, alternative="greater").statistic / (len(a) * len(b))
        for a, b in zip(ours, theirs, strict=True)
    ]
    chance, around = probability_of_improvement(ours.tolist(), theirs.tolist())
    assert chance == pytest.approx(np.mean(each))
    assert around.low is not None
    assert around.high is not None
    assert around.low < chance < around.high
    other, back = probability_of_improvement(theirs.tolist(), ours.tolist())
    assert other == pytest.approx(1.0 - chance)
    assert back.kind == "score"


def test_diverged_runs_lose_in_probability_of_improvement() -> None:
    chance, _ = probability_of_improvement([[math.nan, 1.0]], [[0.0, 0.0]])
    assert chance == 0.5
    assert probability_of_improvement([[math.nan]], [[math.inf]])[0] == 0.5


def test_iqm_interval_is_a_stratified_bootstrap() -> None:
    """The same draws, one resample and one environment after the other; expanded percentiles."""
    given = scores(5, 4, 6)
    drawn = np.random.Generator(np.random.PCG64(0)).integers(0, 6, (2_000, 4, 6))
    sampled = []
    for draw in drawn:
        flat = [given[e][s] for e, row in enumerate(draw) for s in row]
        sampled.append(stats.trim_mean(flat, 0.25))
    degrees = welch([np.array(row) for row in given])
    beyond = stats.norm.cdf(-math.sqrt(6 / 5) * stats.t.ppf(0.975, degrees))
    found = overall_interval(given, "iqm")
    ends = np.quantile(sampled, [beyond, 1.0 - beyond])
    assert (found.low, found.high) == pytest.approx(tuple(ends))


def test_overall_mean_has_a_t_interval_and_worst_has_none() -> None:
    given = scores(5, 4, 6)
    seeds, rows = np.mean(given, axis=0), np.array(given)
    reach = stats.t.ppf(0.975, 5) * stats.sem(seeds)
    error = math.sqrt((rows.var(axis=1, ddof=1) / 6).sum()) / 4
    reach = max(reach, stats.t.ppf(0.975, welch(list(rows))) * error)
    found = overall_interval(given, "mean")
    assert (found.low, found.high) == pytest.approx((seeds.mean() - reach, seeds.mean() + reach))
    assert overall_interval(given, "worst").kind == "none"
    for how in over.OVER:  # all at the ceiling: nothing says how far another seed may be
        assert overall_interval([[1.0] * 8] * 3, how).kind == "none"
    top = [[1.0] * 8] * 5 + [[1.0] * 7 + [0.2]]  # which the IQM leaves out
    assert overall_interval(top, "iqm").kind == "none"
    assert overall_interval(top, "mean").kind == "t"


@pytest.mark.slow
@pytest.mark.parametrize("environments", [2, 6])
@pytest.mark.parametrize("how", ["mean", "iqm"])
def test_overall_intervals_have_nominal_coverage_at_five_seeds(
    how: str, environments: int
) -> None:
    """At most what 5 % misses give in 999 of 1,000 runs of this test.

    Of 40,000 trials the mean's missed 5.0 and 5.1 % (Student's, exact), of 12,000 the IQM's 2.9
    and 4.2 %, on 2 and 6 environments.
    """
    rng, trials, missed = np.random.default_rng(environments), 2_000, 0
    for _ in range(trials):
        found = overall_interval(rng.normal(size=(environments, 5)).tolist(), how)
        missed += not found.low <= 0.0 <= found.high
    assert missed <= stats.binom.ppf(0.999, trials, 0.05)


@pytest.mark.slow
def test_overall_mean_interval_covers_bimodal_returns() -> None:
    """20,000 trials of 8 seeds; the interval of the means of seeds alone missed in 5.8 %."""
    rng, trials, missed = np.random.default_rng(8), 20_000, 0
    modes = np.where(rng.random((trials, 6, 8)) < 0.5, 100.0, 400.0)
    for table in (modes + rng.normal(size=modes.shape)).tolist():
        found = overall_interval(table, "mean")
        missed += not found.low <= 250.0 <= found.high
    assert missed <= stats.binom.ppf(0.999, trials, 0.05)


def test_probability_interval_of_equals_contains_one_half() -> None:
    """300 pairs on 4 environments; 5 % and two standard errors are 22. Sure of it is nobody."""
    rng, missed = np.random.default_rng(1), 0
    for _ in range(300):
        a, b = rng.normal(size=(2, 4, 6)).tolist()
        found = probability_of_improvement(a, b)[1]
        missed += not found.low <= 0.5 <= found.high
    assert missed <= 22
    chance, found = probability_of_improvement([[1.0] * 8] * 4, [[0.0] * 8] * 4)
    assert chance == 1.0 and 0.85 < found.low < 0.91


@pytest.mark.parametrize("paired", [True, False])
def test_iqm_difference_interval_agrees_with_the_exact_test(paired: bool) -> None:
    """300 pairs of equals at both ends of their range; 4 % and two standard errors are 18."""
    rng, missed = np.random.default_rng(2), 0
    for _ in range(300):
        a, b = np.clip(rng.normal(0.6, 0.8, (2, 3, 6)), 0.0, 1.0).tolist()
        found = difference(a, b, "iqm", paired)[1]
        missed += found.low is not None and not found.low <= 0.0 <= found.high
    assert missed <= 18


def welch(samples: list[np.ndarray]) -> int:
    """Return the degrees of freedom of a sum of means, rounded down (Welch 1947)."""
    shares = [np.var(one, ddof=1) / len(one) for one in samples]
    below = sum(s**2 / (len(one) - 1) for s, one in zip(shares, samples, strict=True))
    return int(sum(shares) ** 2 / below)


@pytest.mark.parametrize("paired", [True, False])
def test_iqm_difference_bootstrap_resamples_paired_seeds(paired: bool) -> None:
    """One resample and one environment after the other."""
    ours, theirs = scores(8, 3, 6), scores(9, 3, 6)
    draws = [np.random.Generator(np.random.PCG64(s)).integers(0, 6, (2_000, 3, 6)) for s in (0, 1)]

    def told(table: list[list[float]], drawn: np.ndarray) -> float:
        flat = [table[e][s] for e, row in enumerate(drawn) for s in row]
        return float(stats.trim_mean(flat, 0.25))

    sampled = [
        told(ours, left) - told(theirs, left if paired else right)
        for left, right in zip(*draws, strict=True)
    ]
    apart = [np.subtract(x, y) for x, y in zip(ours, theirs, strict=True)]
    degrees = welch(apart if paired else [np.array(row) for row in (*ours, *theirs)])
    assert degrees < (15 if paired else 30)
    beyond = stats.norm.cdf(-math.sqrt(6 / 5) * stats.t.ppf(0.98, degrees))
    value, around = difference(ours, theirs, "iqm", paired)
    assert value == pytest.approx(overall(ours) - overall(theirs))
    ends = np.quantile(sampled, [beyond, 1.0 - beyond])
    assert (around.low, around.high) == pytest.approx(tuple(ends), rel=1e-4)
    assert around.kind == "bootstrap"


def test_mean_difference_uses_paired_or_welch_intervals() -> None:
    ours, theirs = scores(8, 3, 6), scores(9, 3, 6)
    seeds = [np.mean(side, axis=0) for side in (ours, theirs)]
    value, around = difference(ours, theirs, "mean", paired=True)
    assert value == pytest.approx(np.mean(ours) - np.mean(theirs))
    apart = seeds[0] - seeds[1]
    wide = stats.t.interval(0.96, 5, apart.mean(), stats.sem(apart))
    assert (around.low, around.high) == pytest.approx(wide, rel=0.02)  # Hall's, a little
    assert around == paired_interval(*(side.tolist() for side in seeds))
    welch_s = stats.ttest_ind(*seeds, equal_var=False).confidence_interval(0.96)
    around = difference(ours, theirs, "mean")[1]
    assert (around.low, around.high) == pytest.approx((welch_s.low, welch_s.high), abs=0.02)


def test_worst_env_difference_has_no_interval() -> None:
    ours, theirs = scores(8, 3, 6), scores(9, 3, 6)
    value, around = difference(ours, theirs, "worst", paired=True)
    assert value == pytest.approx(min(map(np.mean, ours)) - min(map(np.mean, theirs)))
    assert around.low is None


def test_paired_difference_cancels_shared_seed_noise() -> None:
    rng = np.random.default_rng(0)
    luck, own = rng.normal(0.0, 0.5, (4, 8)), rng.normal(0.1, 1e-3, (4, 8))
    ours, theirs = (luck + own).tolist(), luck.tolist()
    for how in ("mean", "iqm"):
        near, far = (difference(ours, theirs, how, paired)[1] for paired in (True, False))
        assert None not in (near.low, near.high, far.low, far.high)
        assert 0.09 < near.low < near.high < 0.11 and far.low < 0.0 < far.high


@pytest.mark.parametrize("how", ["mean", "iqm"])
def test_constant_difference_has_no_interval(how: str) -> None:
    luck = np.random.default_rng(0).normal(0.0, 0.5, (4, 8))
    value, around = difference((luck + 0.1).tolist(), luck.tolist(), how, paired=True)
    assert value == pytest.approx(0.1) and around.low is None
    assert difference(luck.tolist(), luck.tolist(), how, paired=True) == (0.0, over.NO_INTERVAL)
    top = np.ones((5, 8))
    top[0] = luck[0]  # which the IQM leaves out
    around = difference(top.tolist(), np.ones((5, 8)).tolist(), how)[1]
    assert (around.low is None) == (how == "iqm")


SPREADS = {"unlike": [0.3, 0.2, 0.1, 0.1, 0.05], "one holds all": [0.01, 0.01, 0.3, 0.01, 0.01]}


@pytest.mark.parametrize(
    ("how", "paired", "case"),
    [
        ("mean", True, "one holds all"),
        ("iqm", True, "one holds all"),
        ("iqm", True, "unlike"),
        ("iqm", False, "unlike"),
    ],
)
def test_difference_intervals_have_nominal_coverage(how: str, paired: bool, case: str) -> None:
    """Sides of equal worth on 5 environments with 5 seeds, 6 where the exact test needs them.

    Of the IQM's, plain percentiles missed in 10 to 13 % of 400, expanded ones with the degrees of
    freedom of equal spreads in up to 8 %, these in 3 to 5 %.
    """
    rng = np.random.default_rng(3)
    levels, spreads = np.array([0.1, 0.5, 0.7, 0.9, 1.0]), np.array(SPREADS[case])
    rounds, missed, seeds = 200, 0, 6 if how == "mean" else 5
    for _ in range(rounds):
        luck = rng.normal(0.0, 1.0, (5, seeds)) * paired
        own = rng.normal(0.0, 1.0, (2, 5, seeds))
        sides = levels[:, None] + spreads[:, None] * (luck + own)
        around = difference(*sides.tolist(), how, paired)[1]
        assert around.low is not None and around.high is not None
        missed += not around.low <= 0.0 <= around.high
    assert missed <= stats.binom.ppf(0.99, rounds, 0.05)


def test_too_few_or_diverged_runs_have_no_interval() -> None:
    assert overall_interval(scores(1, seeds=4)).low is None
    assert profile_band(scores(1, seeds=4), [0.5]) is None
    assert overall_interval([[*[0.0] * 5, math.inf]]).low is None
    assert probability_of_improvement(scores(1), scores(2, seeds=4))[1].low is None
    assert difference(scores(1), scores(2, seeds=4))[1].low is None
    assert difference([[0.0] * 5], [[*[0.0] * 4, math.inf]], paired=True)[1].low is None


def test_unknown_aggregates_and_unequal_scores_are_refused() -> None:
    with pytest.raises(ConfigError, match="known: mean, iqm, worst"):
        overall(scores(1), "median")
    with pytest.raises(ConfigError, match="known: mean, iqm, worst"):
        together([1.0], "median")
    with pytest.raises(ConfigError, match="have 2, 1 seeds"):
        overall([[1.0, 2.0], [1.0]])
    with pytest.raises(ConfigError, match="no run"):
        overall([])
    with pytest.raises(ConfigError, match="no environment"):
        together([], "mean")
    with pytest.raises(ConfigError, match=r"\(here: 8 and 6\)"):
        difference(scores(1), scores(1, seeds=6), paired=True)
    with pytest.raises(ConfigError, match="on 3 and on 2 environments"):
        difference(scores(1), scores(1, 2))
    with pytest.raises(ConfigError, match="on 3 and on 2 environments"):
        probability_of_improvement(scores(1), scores(1, 2))
