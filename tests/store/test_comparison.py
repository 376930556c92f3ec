import itertools
import math

import numpy as np
import pytest
from scipy import stats

from hpo.errors import ConfigError
from hpo.store.comparison import compare
from hpo.store.permutation_tests import deal_p
from hpo.store.probability_of_improvement import chance_of_better
from hpo.store.verdict import Evidence, conclude


def test_probability_of_improvement_counts_all_pairs():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 5, 7).astype(float), rng.integers(0, 5, 9).astype(float)
    slow = np.mean([(x > y) + 0.5 * (x == y) for x, y in itertools.product(a, b)])
    found, spread = chance_of_better(a, b, paired=False)
    assert found == pytest.approx(slow)
    assert found == pytest.approx(stats.mannwhitneyu(a, b).statistic / 63)
    assert spread.low <= found <= spread.high


def test_probability_interval_is_a_score_interval():
    """At its ends the distance from the estimate is t standard errors of so many pairs."""
    rng = np.random.default_rng(1)
    a, b = rng.normal(0.3, 1, 8), rng.normal(0, 1, 8)
    table = a[:, None] > b
    chance, spread = chance_of_better(a, b, paired=False)
    shares = [table.mean(axis=axis).var(ddof=1) / 8 for axis in (0, 1)]
    degrees = int(sum(shares) ** 2 / sum(share**2 / 7 for share in shares))
    pairs = (chance * (1 - chance) + 0.5 / 8) / (sum(shares) + 0.5 / 64)
    for end in (spread.low, spread.high):
        error = math.sqrt(end * (1 - end) / pairs)
        assert abs(end - chance) == pytest.approx(stats.t.ppf(0.975, degrees) * error)


def test_unpaired_seeds_use_welch_interval():
    rng = np.random.default_rng(2)
    a, b = rng.normal(1, 1, 9).tolist(), rng.normal(0, 3, 6).tolist()
    theirs = stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.96)
    ours = compare(a, b).difference_interval
    # Ours rounds the degrees of freedom down, and so is a little wider.
    assert ours.low <= theirs.low and theirs.high <= ours.high
    assert ours.high - ours.low < 1.1 * (theirs.high - theirs.low)


def test_shared_seeds_are_compared_pairwise():
    base = [1.0, 50.0, 100.0, 7.0, 23.0, 60.0]
    shifted = [value + 1.0 + 0.1 * i for i, value in enumerate(base)]
    result = compare(shifted, base, paired=True)
    assert (result.verdict, result.sentence()) == ("better", "A is better")
    apart = compare(shifted, base)
    assert (apart.verdict, apart.sentence()) == ("no_difference", "no significant difference")
    assert result.difference_interval.low == pytest.approx(
        stats.ttest_rel(shifted, base).confidence_interval(0.96).low
    )


def test_minimize_goal_prefers_smaller_values():
    a, b = [0.01, 0.05, 0.08, 0.02, 0.04], [0.91, 0.85, 0.95, 0.9, 0.89]
    result = compare(a, b, goal="minimize")
    assert result.verdict == "better" and result.probability == 1.0
    assert result.means == pytest.approx((0.04, 0.9))


def test_few_seeds_have_no_interval():
    result = compare([1.0, 2.0], [0.0, 0.5])
    assert result.difference_interval.low is None and result.more_seeds == 3
    assert result.sentence() == "undecided: 3 more seeds per side would decide"
    assert result.iqms == (None, None)


@pytest.mark.parametrize(("a", "b", "paired"), [([], [1.0], False), ([1.0], [1.0, 2.0], True)])
def test_incomparable_samples_are_refused(a, b, paired):
    with pytest.raises(ConfigError):
        compare(a, b, paired=paired)


def test_probability_interval_has_nominal_coverage():
    rng = np.random.default_rng(3)
    truth = stats.norm.cdf(0.5 / math.sqrt(2))
    held = 0
    for _ in range(200):
        a, b = rng.normal(0.5, 1, 20), rng.normal(0, 1, 20)
        _, spread = chance_of_better(a, b, paired=False)
        held += spread.low <= truth <= spread.high
    assert 0.88 <= held / 200 <= 0.99


def test_paired_comparison_matches_the_conclusion():
    rng = np.random.default_rng(4)
    base = rng.normal(0, 10, 16)
    a, b = (base + rng.normal(1, 0.5, 16)).tolist(), base.tolist()
    ours, theirs = (
        compare(a, b, paired=True),
        conclude(Evidence(dict(enumerate(a)), dict(enumerate(b)))),
    )
    against = theirs.against
    assert ours.probability == against.probability == 15 / 16
    assert ours.probability_interval == against.probability_interval
    assert ours.difference_interval == against.interval and against.verdict == "better"
    assert compare(a, b).probability < 0.7  # of any two seeds, which is another question


def test_unpaired_verdict_follows_the_permutation_test():
    """Values dealt out anew by SciPy; 16 at the ceiling against 13 of 16 are no difference."""
    rng = np.random.default_rng(5)
    for shift in (0.0, 0.8, 1.5):
        a, b = rng.normal(shift, 1, 9), rng.normal(0, 1, 7)
        theirs = stats.permutation_test(
            (a, b), lambda x, y, axis: x.mean(axis) - y.mean(axis), vectorized=True, rng=0
        ).pvalue
        assert deal_p([a.tolist()], [b.tolist()]) == pytest.approx(theirs, abs=0.02)
    found = compare([500.0] * 16, [500.0] * 12 + [100.0] * 4)
    assert found.verdict == "undecided" and found.difference_interval.low <= 0.0
    assert compare([500.0] * 16, [500.0] * 9 + [100.0] * 7).verdict == "better"
