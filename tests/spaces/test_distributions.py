import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from hpo.errors import ConfigError
from hpo.spaces import KINDS, make_distribution
from hpo.spaces.make import read_distribution

EXAMPLES = {
    "uniform": {"min": -1.5, "max": 2.5, "distribution": "uniform"},
    "uniform_q": {"min": 0.1, "max": 0.95, "q": 0.05, "distribution": "uniform"},
    "uniform_zero": {"min": 1.0, "max": 2.0, "zero": 0.3, "distribution": "uniform"},
    "log_uniform": {"min": 1e-5, "max": 1e-2, "distribution": "log_uniform"},
    "log_uniform_q": {"min": 0.1, "max": 10.0, "q": 0.1, "distribution": "log_uniform"},
    "log_uniform_zero": {"min": 1e-4, "max": 0.1, "zero": 0.2, "distribution": "log_uniform"},
    "int_uniform": {"min": 3, "max": 17},
    "int_uniform_q": {"min": 10, "max": 50, "q": 7},
    "int_uniform_zero": {"min": 5, "max": 12, "zero": 0.2},
    "log_int_uniform": {"min": 1, "max": 20, "distribution": "log_int_uniform"},
    "log_int_uniform_q": {"min": 4, "max": 64, "q": 4, "distribution": "log_int_uniform"},
    "log_int_uniform_zero": {"min": 2, "max": 64, "zero": 0.5, "distribution": "log_int_uniform"},
    "pow2": {"min": 16, "max": 1024, "distribution": "pow2"},
    "pow2_zero": {"min": 1, "max": 8, "zero": 0.2, "distribution": "pow2"},
    "one_minus_log": {"min": 0.9, "max": 0.9999, "distribution": "one_minus_log"},
    "one_minus_log_low": {"min": 0.0, "max": 0.5, "distribution": "one_minus_log"},
    "logit": {"min": 0.001, "max": 0.9999, "distribution": "logit"},
    "normal": {"mu": -0.5, "sigma": 0.3},
    "normal_cut": {"mu": 100.0, "sigma": 7.0, "min": 90.0, "max": 130.0},
    "normal_zero": {"mu": 3.0, "sigma": 0.1, "zero": 0.4},
    "categorical": {"values": ["tanh", "relu", None, True, 1, [64, 64]]},
    "ordinal": {"values": [1, 2, 8], "distribution": "ordinal"},
}
every = pytest.mark.parametrize("fields", EXAMPLES.values(), ids=EXAMPLES)


def draws(fields, count=2000):
    rng = np.random.default_rng(0)
    distribution = make_distribution(fields)
    return distribution, [distribution.sample(rng) for _ in range(count)]


def test_examples_cover_every_kind():
    assert {make_distribution(fields).kind for fields in EXAMPLES.values()} == set(KINDS)


@every
def test_samples_are_contained_and_canonical(fields):
    distribution, values = draws(fields)
    for value in values:
        assert distribution.why_not(value) is None
        assert distribution.canonical(value) == value
        axis = distribution.axis
        assert axis.low <= distribution.inward(value) <= axis.high


@every
def test_distribution_mapping_round_trips(fields):
    distribution = make_distribution(fields)
    assert make_distribution(distribution.as_mapping()) == distribution


@every
def test_grid_middle_and_ends_are_contained(fields):
    distribution = make_distribution(fields)
    grid = list(distribution.grid(5))
    for value in [*grid, distribution.middle(), *distribution.ends()]:
        assert distribution.why_not(value) is None
    assert len({repr(value) for value in grid}) == len(grid)
    if not fields.get("zero") and distribution.kind not in ("categorical", "ordinal", "normal"):
        assert (grid[0], grid[-1]) == distribution.ends()


@every
@settings(deadline=None)
@given(share=st.floats(0, 1))
def test_canonical_is_idempotent_anywhere(fields, share):
    distribution = make_distribution(fields)
    value = distribution.outward(distribution.axis.at(share))
    assert distribution.canonical(value) == value


@settings(deadline=None)
@given(st.floats(0.9, 0.9999))
def test_canonical_one_minus_log_is_stable_and_near(value):
    distribution = make_distribution(EXAMPLES["one_minus_log"])
    near = distribution.canonical(value)
    assert abs(near - value) < 1e-11
    assert distribution.canonical(near) == near


@pytest.mark.parametrize("value", [0.9, 0.95, 0.99, 0.995, 0.999, 0.9999])
def test_canonical_keeps_short_decimals(value):
    assert make_distribution(EXAMPLES["one_minus_log"]).canonical(value) == value
    assert make_distribution(EXAMPLES["logit"]).canonical(value) == value


# One sample of each transformed kind against the law it should follow (Kolmogorov-Smirnov).
LAWS = {
    "uniform": lambda x: stats.kstest(x, stats.uniform(-1.5, 4.0).cdf),
    "log_uniform": lambda x: stats.kstest(np.log10(x), stats.uniform(-5.0, 3.0).cdf),
    "one_minus_log": lambda x: stats.kstest(
        np.log10(1.0 - np.asarray(x)), stats.uniform(-4.0, 3.0).cdf
    ),
    "logit": lambda x: stats.kstest(
        np.log(np.asarray(x) / (1 - np.asarray(x))),
        stats.uniform(math.log(1e-3 / 0.999), math.log(9999) - math.log(1e-3 / 0.999)).cdf,
    ),
    "normal": lambda x: stats.kstest(x, stats.norm(-0.5, 0.3).cdf),
}


@pytest.mark.parametrize("name", LAWS)
def test_continuous_samples_follow_their_distribution(name):
    _, values = draws(EXAMPLES[name], 4000)
    assert LAWS[name](values).pvalue > 0.01


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name.endswith("_zero")])
def test_zero_is_sampled_with_the_given_probability(name):
    distribution, values = draws(EXAMPLES[name], 4000)
    share = sum(value == 0 for value in values) / len(values)
    # Integer axes grow by whole positions: 8 values and 2 for zero give exactly 0.2, 4 and 1 too.
    assert share == pytest.approx(EXAMPLES[name]["zero"], abs=0.03)
    assert any(value != 0 for value in values)
    assert distribution.why_not(0) is None


def test_int_uniform_samples_are_uniform():
    _, values = draws(EXAMPLES["int_uniform"], 6000)
    counts = np.bincount(values)[3:]
    assert len(counts) == 15
    assert stats.chisquare(counts).pvalue > 0.01


def test_zero_is_not_contained_without_zero_probability():
    assert make_distribution(EXAMPLES["log_uniform"]).why_not(0) is not None


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"min": 1, "max": 5}, "int_uniform"),
        ({"min": 1.0, "max": 5}, "uniform"),
        ({"min": 0, "max": 5, "q": 0.5}, "uniform"),
        ({"values": [1, 2]}, "categorical"),
        ({"value": 3}, "categorical"),
        ({"mu": 0, "sigma": 1}, "normal"),
    ],
)
def test_kind_is_inferred_as_weights_and_biases_does(fields, kind):
    assert make_distribution(fields).kind == kind


@pytest.mark.parametrize(
    ("fields", "key", "words"),
    [
        ({}, None, "`min` and `max`"),
        ({"min": 1}, None, "give `min` and `max`"),
        ({"min": 2, "max": 1}, "min", "above max"),
        ({"min": float("nan"), "max": 1.0}, "min", "finite"),
        ({"min": 0.0, "max": float("inf")}, "max", "finite"),
        ({"min": "1e-4x", "max": 1.0, "distribution": "uniform"}, "min", "a number"),
        ({"min": True, "max": 3, "distribution": "int_uniform"}, "min", "a number"),
        ({"min": 0.0, "max": 1.0, "distribution": "log_uniform"}, "min", "above 0"),
        ({"min": 0, "max": 4, "distribution": "log_int_uniform"}, "min", "at least 1"),
        ({"min": 3, "max": 8, "distribution": "pow2"}, "min", "power of two"),
        ({"min": 0.5, "max": 1.0, "distribution": "one_minus_log"}, "max", "below 1"),
        ({"min": 0.0, "max": 0.5, "distribution": "logit"}, "min", "above 0"),
        ({"min": 1.5, "max": 3, "distribution": "int_uniform"}, "min", "integers"),
        ({"min": 0.0, "max": 1.0, "q": 2.0}, "q", "steps from min to max"),
        ({"min": 0.0, "max": 1.0, "q": 0.0}, "q", "above 0"),
        ({"min": 0.5, "max": 1.0, "zero": 1.0}, "zero", "from 0 to 0.9"),
        ({"min": 0.5, "max": 1.0, "zero": -0.1}, "zero", "from 0 to 0.9"),
        ({"mu": 0.0, "sigma": 0.0}, "sigma", "above 0"),
        ({"mu": 0.0, "sigma": 1.0, "min": 5.0}, "min", "no value from min to max"),
        ({"values": []}, "values", "at least one"),
        ({"values": 3}, "values", "a list"),
        ({"values": [1, 2, 1.0]}, "values", "twice"),
        ({"min": 0.1, "max": 1.0, "distribution": "log_unifrom"}, "distribution", "log_uniform"),
        ({"min": 1, "max": 2, "distribution": "q_uniform"}, "distribution", "`q`"),
        ({"min": 0.1, "max": 1.0, "maximum": 2}, "maximum", "'max'"),
        ({"min": 0.1, "max": 1.0, "value": 0.2, "distribution": "uniform"}, "value", "no 'value'"),
        ({"min": 0.1, "max": 0.5, "zero": 0.1, "distribution": "logit"}, "zero", "no 'zero'"),
        ({"min": 1, "max": 10**20}, "max", "too large"),
        ({"min": 0.5, "max": 0.5, "zero": 0.5}, "zero", "values: [0, 0.5]"),
        ({"min": 0, "max": 5, "zero": 0.5}, "zero", "0 is already one of the values"),
    ],
)
def test_distribution_faults_name_the_key_and_allowed_values(fields, key, words):
    distribution, faults = read_distribution(fields)
    assert distribution is None
    assert faults[0].key == key
    assert words in faults[0].text
    with pytest.raises(ConfigError):
        make_distribution(fields)


@every
@given(factor=st.sampled_from([0.1, 0.8, 1.25, 3.0]), share=st.floats(0.0, 1.0))
@settings(max_examples=30)
def test_nudged_values_are_contained_and_move_monotonically(fields, factor, share):
    distribution = make_distribution(fields)
    value = distribution.outward(distribution.axis.at(share))
    moved = distribution.nudged(value, factor)
    assert distribution.why_not(moved) is None
    assert distribution.nudged(value, 1.0) == value
    before, after = distribution.inward(value), distribution.inward(moved)
    if distribution.axis.kind == "choice":
        assert moved == value
    elif factor > 1.0:
        assert after >= before
    else:
        assert after <= before


def test_nudged_matches_manual_examples():
    log = make_distribution({"min": 1e-5, "max": 1.0, "distribution": "log_uniform"})
    assert log.nudged(1e-3, 1.25) == pytest.approx(1.25e-3) and log.nudged(0.9, 1.25) == 1.0
    near_one = make_distribution({"min": 0.9, "max": 0.999, "distribution": "one_minus_log"})
    assert near_one.nudged(0.99, 1.25) == pytest.approx(0.9875)
    flat = make_distribution({"min": -2.0, "max": 2.0, "distribution": "uniform"})
    assert flat.nudged(0.0, 1.25) == pytest.approx(4.0 * math.log(1.25))
    whole = make_distribution({"min": 1, "max": 4})
    assert [whole.nudged(value, 1.25) for value in (1, 2, 4)] == [2, 3, 4]
    assert [whole.nudged(value, 0.8) for value in (1, 2, 4)] == [1, 1, 3]
    powers = make_distribution({"min": 16, "max": 128, "distribution": "pow2"})
    assert powers.nudged(32, 0.8) == 16 and powers.nudged(32, 1.25) == 64
    often_off = make_distribution({"min": 1e-4, "max": 0.1, "zero": 0.2,
                                   "distribution": "log_uniform"})  # fmt: skip
    assert often_off.nudged(0, 1.25) == 0 and often_off.nudged(1e-4, 0.8) == 1e-4


@every
def test_shares_are_in_unit_range_and_invertible(fields):
    distribution, values = draws(fields, 200)
    for value in values:
        share = distribution.share(value)
        assert 0.0 <= share <= 1.0
        if distribution.axis.kind == "real" and fields.get("zero") is None:
            back = distribution.outward(distribution.axis.at(share))
            if distribution.kind not in ("log_int_uniform",) and not fields.get("q"):
                assert back == pytest.approx(value, rel=1e-6)
