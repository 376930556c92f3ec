"""How often a verdict is wrong beside a constant, and what two constants say."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from hpo.store.comparison import Bounds, compare, decided_pairs, paired_interval, unseen_p
from hpo.store.verdict import conclude

SAID = ("better", "worse")


def failing(rng, size):
    """CartPole's returns: 500, but for one seed in ten."""
    return np.where(rng.random(size) < 0.1, rng.uniform(50.0, 400.0, size), 500.0)


NULLS = {
    "normal": lambda rng, size: rng.normal(0.0, 1.0, size),
    "skewed": lambda rng, size: -np.exp(rng.normal(0.0, 1.0, size)),
    "bimodal": lambda rng, size: np.where(rng.random(size) < 0.5, 100.0, 400.0),
    "ceiling": failing,
    "nearly a ceiling": lambda rng, size: failing(rng, size) - np.abs(rng.normal(0, 0.05, size)),
    "at both ends": lambda rng, size: np.clip(rng.normal(300.0, 400.0, size), 0.0, 500.0),
    "a failure in three": lambda rng, size: np.where(rng.random(size) < 0.3, 100.0, 500.0),
}


@pytest.mark.slow
@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("seeds", [5, 6, 8, 16, 32])
@pytest.mark.parametrize("null", NULLS)
def test_a_constant_is_seldom_told_from_what_has_it_for_its_mean(null, seeds, paired) -> None:
    """400 pairs of samples; where 10 % fail, 8 seeds show no failure in 43 %."""
    rng, draw = np.random.default_rng(seeds), NULLS[null]
    mean, wrong = float(draw(np.random.default_rng(0), 1_000_000).mean()), 0
    for _ in range(400):
        wrong += compare([mean] * seeds, draw(rng, seeds).tolist(), paired=paired).verdict in SAID
    assert wrong <= stats.binom.ppf(0.999, 400, 0.05)


@pytest.mark.parametrize("paired", [True, False])
def test_the_same_difference_decides_where_no_unseen_seed_could_turn_it(paired) -> None:
    def told(one, other, seeds, **more):
        return compare([one] * seeds, [other] * seeds, paired=paired, **more)

    for one, other in ((500.0, 10.0), (1.0, 0.0), (-21.0, 21.0), (-0.01, 0.99)):
        for seeds in (6, 8, 16):
            found = told(one, other, seeds)
            assert found.verdict == ("better" if one > other else "worse")
            ends = found.difference_interval
            assert ends.low < one - other < ends.high and ends.low * ends.high > 0.0
    close = told(500.0, 499.0, 16)
    assert close.verdict == "no_difference" and close.more_seeds is None
    assert close.difference_interval.low < 0.0 < close.difference_interval.high
    assert told(500.0, 480.0, 64, bounds=Bounds(high=500.0)).verdict == "undecided"
    assert told(3.0, 3.0, 8).verdict == "no_difference"
    assert told(0.1 + 0.2, 0.3, 8).verdict == "no_difference"  # a rounding apart


def test_the_same_difference_of_sides_that_vary_is_a_sign_test() -> None:
    luck = np.random.default_rng(0).normal(0.0, 50.0, 6)
    found = decided_pairs((luck + 1.0).tolist(), luck.tolist())
    assert found.verdict == "better" and found.interval.kind == "none"
    assert decided_pairs((luck[:5] + 1.0).tolist(), luck[:5].tolist()).more_seeds == 1
    assert decided_pairs((luck + 1.0).tolist(), luck.tolist(), [8]).verdict == "undecided"


def test_seeds_asked_for_decide_if_they_show_the_same() -> None:
    few = decided_pairs([1.1] * 16, [1.0] * 16)
    assert few.verdict == "undecided"
    seeds = 16 + few.more_seeds
    assert decided_pairs([1.1] * seeds, [1.0] * seeds, [16]).verdict == "better"
    assert decided_pairs([1.1] * (seeds - 1), [1.0] * (seeds - 1), [16]).verdict == "undecided"


def test_the_interval_of_one_difference_is_clopper_and_pearsons() -> None:
    """Of 8 seeds none had another difference: at most so many of all do, in 98 %."""
    share = stats.binomtest(0, 8).proportion_ci(0.96, "exact").high
    found = paired_interval([9.0] * 8, [4.0] * 8, bounds=Bounds(0.0, 10.0))
    assert found.kind == "exact"
    assert found.low == pytest.approx((1 - share) * 5.0 + share * (0.0 - 4.0))
    assert found.high == pytest.approx((1 - share) * 5.0 + share * (9.0 - 0.0))


def test_unseen_seeds_weigh_as_gaffkes_bound_says() -> None:
    """With all of one sign a product, which a hair of the other sign hardly moves."""
    values = [0.5, 2.0, 1.0, 3.0, 1.5, 0.8]
    product = np.prod([4.0 / (4.0 + value) for value in values])
    assert unseen_p(values, -4.0, 9.0) == pytest.approx(2 * product)
    assert unseen_p([*values, -1e-9], -4.0, 9.0) == pytest.approx(2 * product, rel=0.1)
    assert unseen_p([-value for value in values], -9.0, 4.0) == pytest.approx(2 * product)
    assert unseen_p(values, 0.0, 9.0) == 0.0


def test_a_known_ceiling_leaves_nothing_unseen_above() -> None:
    """A winner at the ceiling needs no more seeds than the exact test does."""
    ours, theirs = [500.0] * 8, [498.0, 492.0, 484.0, 476.0, 468.0, 460.0, 450.0, 440.0]
    assert decided_pairs(ours, theirs, bounds=Bounds(high=500.0)).verdict == "better"
    assert decided_pairs(ours, theirs).verdict == "undecided"


def test_the_interval_of_a_difference_ends_where_the_values_end() -> None:
    """Means between 0 and 1 differ by 1 at most; Student's interval here reaches 1.2."""
    ours, theirs = [1.0, 0.9, 1.0, 1.0, 0.2, 1.0], [0.0, 0.1, 0.0, 0.0, 0.9, 0.0]
    for paired in (True, False):
        open_ended = compare(ours, theirs, paired=paired).difference_interval
        found = compare(ours, theirs, paired=paired, bounds=Bounds(0.0, 1.0)).difference_interval
        assert open_ended.high > 1.0 == found.high and found.low == open_ended.low
        losses = [[-value for value in side] for side in (ours, theirs)]
        lower = compare(*losses, "minimize", paired, bounds=Bounds(-1.0, 0.0))
        assert lower.difference_interval == found
    sides = (dict(enumerate(ours)), dict(enumerate(theirs)))
    assert conclude(*sides, bounds=Bounds(0.0, 1.0)).against.interval.high == 1.0
