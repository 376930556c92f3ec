"""Intervals of paired differences against SciPy, the paper's formula, and simulated coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import brentq

from hpo.errors import ConfigError
from hpo.store.paired import chance_of_better, paired_interval, seeds_to_tell


@pytest.mark.parametrize("count", [5, 8, 16, 32])
def test_the_interval_is_students_of_the_differences(count: int) -> None:
    rng = np.random.default_rng(count)
    a, b = rng.normal(1, 2, count), rng.exponential(1, count)
    found = paired_interval(a.tolist(), b.tolist())
    expected = stats.ttest_rel(a, b).confidence_interval(0.95)
    assert found.kind == "t"
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


@pytest.mark.parametrize("count", [5, 8, 16, 32])
def test_beside_a_constant_it_is_halls(count: int) -> None:
    """Its ends are the means at which Hall's transformed statistic is a quantile of t."""
    b = np.random.default_rng(count).exponential(1, count)
    d = 3.0 - b
    skewness, spread = stats.skew(d), d.std(ddof=1)

    def transformed(centre: float) -> float:
        x = (d.mean() - centre) / spread
        cubic = x + skewness * x**2 / 3 + skewness**2 * x**3 / 27 + skewness / (6 * count)
        return math.sqrt(count) * cubic

    reach = stats.t.ppf(0.975, count - 1)
    ends = [brentq(lambda m, to=to: transformed(m) - to, -1e6, 1e6) for to in (reach, -reach)]
    found = paired_interval([3.0] * count, b.tolist())
    assert found.kind == "hall"
    assert (found.low, found.high) == pytest.approx(tuple(ends))


def test_there_is_no_interval_where_nothing_tells_it() -> None:
    assert paired_interval([1.0, 2.0, 3.0, 5.0], [0.0] * 4).kind == "none"
    assert paired_interval([500.0] * 8, [499.0] * 8).kind == "none"
    assert paired_interval([1.0, 2.0, 3.0, 4.0, math.nan], [0.0] * 5).kind == "none"
    with pytest.raises(ConfigError):
        paired_interval([1.0], [1.0, 2.0])


def test_the_chance_has_wilsons_interval() -> None:
    ours, theirs = [1.0] * 13 + [0.0] * 3, [0.5] * 16
    chance, found = chance_of_better(ours, theirs)
    expected = stats.binomtest(13, 16).proportion_ci(0.95, "wilson")
    assert chance == 13 / 16
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert chance_of_better([1.0] * 5, [math.nan] * 4 + [1.0])[0] == 0.9
    assert chance_of_better([1.0] * 4, [0.0] * 4)[1].kind == "none"


def test_so_many_seeds_have_the_power_they_promise() -> None:
    differences = (np.random.default_rng(0).normal(0, 1, 12) + 0.4).tolist()
    centre, spread = np.mean(differences), np.std(differences, ddof=1)

    def power(count: int) -> float:
        away = math.sqrt(count) * centre / spread
        return float(stats.nct.sf(stats.t.ppf(0.975, count - 1), count - 1, away))

    needed = seeds_to_tell(differences)
    assert needed is not None
    assert power(needed) >= 0.79 and power(needed - 2) <= 0.81
    assert seeds_to_tell([0.0, 0.0]) is None and seeds_to_tell([1.0]) is None
    assert seeds_to_tell([1.0, -1.0, 1e-9]) is None


def _coverage(a: np.ndarray, b: np.ndarray, truth: float) -> float:
    found = [paired_interval(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    held = [f.low <= truth <= f.high for f in found if f.low is not None and f.high is not None]
    return sum(held) / len(held)


@pytest.mark.parametrize("count", [5, 16])
def test_intervals_hold_what_they_say(count: int) -> None:
    """600 studies: the standard error is 0.9 %, so 93 to 97 % has two of them on either side."""
    rng, size = np.random.default_rng(5), (600, count)
    gamma = _coverage(-rng.gamma(2, 50, size), -rng.gamma(3, 50, size), 50.0)
    discrete = _coverage(rng.poisson(2.0, size) * 1.0, rng.poisson(1.5, size) * 1.0, 0.5)
    assert 0.92 <= (gamma + discrete) / 2 <= 0.98
    ceiling = _coverage(np.full(size, 0.0), -rng.exponential(1, size), 1.0)
    assert ceiling >= 0.89  # Student's holds 0.88 and 0.90 of these
