"""How often a method chooses better than another: by hand, by loops, and how often it is wrong."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"


@pytest.fixture(scope="module")
def load():
    sys.path.insert(0, str(BENCHMARKS))
    yield import_module("against_the_usual")
    sys.path.remove(str(BENCHMARKS))


def test_share_of_pairs_counts_all_pairs(load):
    draws = np.random.default_rng(0)
    both = [(draws.integers(0, 4, 7) * 1.0, draws.integers(0, 4, 7) * 1.0) for _ in range(2)]
    shares = [
        np.mean([1.0 if a > b else 0.5 if a == b else 0.0 for a in mine for b in theirs])
        for mine, theirs in both
    ]
    share, low, high = load.share_of_pairs(both)
    assert share == pytest.approx(np.mean(shares)) and low < share < high


def test_share_of_pairs_interval_matches_manual_computation(load):
    """Two repetitions that beat two: with a level one, Student's of one degree of freedom."""
    order = np.array([[1, 1, 0.5], [1, 1, 0.5], [0.5, 0.5, 0.5]])
    centre = order.mean()
    adds = order.mean(axis=1) + order.mean(axis=0) - 2 * centre
    error = np.sqrt((adds**2).sum() / 6)
    share, low, high = load.share_of_pairs([(np.array([3.0, 4.0]), np.array([1.0, 2.0]))])
    assert share == 1.0 and high == 1.0
    assert low == pytest.approx(max(0.0, centre - 12.7062 * error))
    same = np.array([1.0, 1.0])
    assert load.share_of_pairs([(same, same)]) == (0.5, 0.5, 0.5)


@pytest.mark.parametrize("together", [0.0, 0.5])
def test_share_of_pairs_intervals_have_nominal_coverage(load, together):
    """Of 10 repetitions in three environments; with 12 at once, hardly one is ever wrong."""
    draws, wrong, wrong_of_all = np.random.default_rng(1), 0, 0
    for trial in range(300):
        shift = (0.0, 0.5)[trial % 2]
        truth = norm.cdf(shift / np.sqrt(2))
        parts = draws.normal(size=(3, 3, 10))
        both = [
            (
                np.sqrt(together) * c + np.sqrt(1 - together) * a + shift,
                np.sqrt(together) * c + np.sqrt(1 - together) * b,
            )
            for a, b, c in parts
        ]
        _, low, high = load.share_of_pairs(both)
        wrong += not low <= truth <= high
        _, low, high = load.share_of_pairs(both, tests=12)
        wrong_of_all += not low <= truth <= high
    assert wrong <= 25  # 15 are allowed on the average, and chance passes 25 in 1 % of them
    assert wrong_of_all <= 5


def test_methods_are_compared_with_the_reference_method(load):
    good = [[None, 2.0 + at] for at in range(10)]
    bad = [[0.1 * at, 0.1 * at] for at in range(10)]
    only_late = [[None, 0.95 - 0.1 * at] for at in range(10)]
    one = {"random": good, "tpe": bad, "pbt": only_late}
    rows = load.against([one, one, one], "tpe", (0.5, 1.0), (0.5, 1.0))
    found = {(row.method, row.budget): row for row in rows}
    assert list(found) == [("random", 1.0), ("pbt", 1.0)]  # nothing was chosen at half
    assert found["random", 1.0].share == 1.0 and found["random", 1.0].verdict == "better"
    assert found["pbt", 1.0].share == pytest.approx(0.55) and found["pbt", 1.0].verdict == ""
    assert found["pbt", 1.0].environments == 3
    assert found["pbt", 1.0].each == pytest.approx((0.55,) * 3)
    (worse,) = (
        row for row in load.against([one] * 3, "random", (0.5, 1.0), (1.0,)) if row.method == "tpe"
    )
    assert worse.verdict == "worse"
    assert load.against([one], "gp", (0.5, 1.0), (1.0,)) == []
    said = load.table(rows)
    assert said.startswith("| method | better than tpe, 100% of the budget |")
    assert "| random | 100% [" in said and "**better**" in said
