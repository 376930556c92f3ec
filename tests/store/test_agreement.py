import itertools

import numpy as np
import pytest

from hpo.errors import ConfigError
from hpo.store.permutation_tests import AGREEMENT_LEVEL, agreement

NULLS = {
    "normal": lambda rng, n: rng.normal(0.0, 1.0, n),
    "skewed": lambda rng, n: rng.exponential(1.0, n) ** 2,
    "some seeds fail": lambda rng, n: np.where(rng.random(n) < 0.2, -200.0, -110.0),
    "a ceiling": lambda rng, n: np.minimum(500.0, rng.normal(520.0, 30.0, n)),
}


def test_interval_matches_exhaustive_permutations():
    ours, theirs = [1.0, 2.0, 4.0, 8.0, 16.0], [3.0, 5.0, 6.0, 7.0, 30.0]
    whole = [*ours, *theirs]
    dealt = sorted(
        sum(whole[i] for i in second) / 5 - (sum(whole) - sum(whole[i] for i in second)) / 5
        for second in itertools.combinations(range(10), 5)
    )
    found = agreement(ours, theirs, deals=199_999)
    cut = int(len(dealt) * (1 - AGREEMENT_LEVEL) / 2)  # 1 of 252 at either end
    assert found.difference == pytest.approx(51 / 5 - 31 / 5)
    assert dealt[cut - 1] <= found.low <= dealt[cut + 1]
    assert dealt[-2 - cut] <= found.high <= dealt[-cut]
    assert found.within


@pytest.mark.slow
@pytest.mark.parametrize("name", NULLS)
def test_agreement_test_has_at_most_one_percent_false_positives(name):
    """400 pairs of samples of one distribution: 1 % is 4, and 13 happen once in 4,000 times."""
    rng = np.random.default_rng(7)
    wrong = sum(
        not agreement(NULLS[name](rng, 32), NULLS[name](rng, 32), deals=999, seed=i).within
        for i in range(400)
    )
    assert wrong <= 12


@pytest.mark.parametrize(
    ("change", "least"),
    [(lambda x: x - 1.25, 90), (lambda x: np.where(np.arange(len(x)) % 2, x, x - 5.0), 90)],
    ids=["all seeds", "every other seed"],
)
def test_agreement_test_detects_lost_performance(change, least):
    """A loss of 1.25 standard deviations on 32 seeds, and a half of the seeds that fails."""
    rng = np.random.default_rng(3)
    told = sum(
        not agreement(rng.normal(size=32), change(rng.normal(size=32)), deals=999).within
        for _ in range(100)
    )
    assert told >= least


def test_equal_and_near_ceiling_values_agree():
    full = [500.0] * 32
    assert agreement(full, full).difference == 0.0 and agreement(full, full).within
    assert agreement(full, [*full[:-1], 499.0]).within
    assert not agreement(full, [300.0] * 32).within


def test_unequal_numbers_of_seeds_are_compared_by_their_means():
    found = agreement([0.0, 1.0] * 16, [1.0, 2.0] * 4)
    assert found.difference == pytest.approx(1.0) and not found.within


@pytest.mark.parametrize("sides", [([1.0] * 4, [1.0] * 9), ([1.0] * 9, [float("nan")] * 9)])
def test_too_few_seeds_and_non_finite_values_are_refused(sides):
    with pytest.raises(ConfigError, match=r"at least 5|finite"):
        agreement(*sides)
