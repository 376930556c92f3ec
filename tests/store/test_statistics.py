"""Statistics against slow references, SciPy, and simulated coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from hpo.errors import ConfigError
from hpo.store.statistics import (
    AGGREGATES,
    RESAMPLES,
    aggregate,
    interval,
    iqm,
    mean,
    median,
    t_quantile,
)

FLOATS = st.floats(-1e6, 1e6)


@given(st.lists(FLOATS, min_size=1, max_size=40))
def test_mean_and_median_equal_numpy(values: list[float]) -> None:
    assert mean(values) == pytest.approx(np.mean(values), rel=1e-9, abs=1e-6)
    assert median(values) == pytest.approx(np.median(values), rel=1e-9, abs=1e-6)


@given(st.lists(FLOATS, min_size=8, max_size=40))
def test_iqm_equals_the_trimmed_mean(values: list[float]) -> None:
    assert iqm(values) == pytest.approx(stats.trim_mean(values, 0.25), rel=1e-9, abs=1e-6)


@given(st.permutations([0.1, 0.2, 0.3, 1e16, -1e16, 0.7, 1.1, 5.0, 9.0]))
def test_aggregates_do_not_depend_on_seed_order(values: list[float]) -> None:
    for kind in AGGREGATES:
        assert aggregate(values, kind) == aggregate(sorted(values), kind)


@pytest.mark.parametrize("kind", AGGREGATES)
def test_nan_values_propagate_through_aggregates(kind: str) -> None:
    for place in range(9):
        values = [1.0] * 9
        values[place] = math.nan
        assert math.isnan(aggregate(values, kind))


def test_infinite_values_do_not_raise() -> None:
    assert mean([math.inf, 1.0]) == math.inf
    assert math.isnan(mean([math.inf, -math.inf]))
    assert mean([1e308, 1e308, 1e308]) == math.inf


def test_iqm_needs_eight_seeds() -> None:
    with pytest.raises(ConfigError, match=r"at least 8 seeds \(here: 7\)"):
        iqm([1.0] * 7)
    with pytest.raises(ConfigError, match="no values"):
        aggregate([], "mean")
    with pytest.raises(ConfigError, match="unknown aggregate 'mode'"):
        aggregate([1.0], "mode")


@pytest.mark.parametrize("degrees", [*range(1, 31), 50, 199, 1000])
def test_t_quantiles_equal_scipy(degrees: int) -> None:
    for probability in (0.001, 0.025, 0.3, 0.5, 0.75, 0.95, 0.975, 0.995, 0.9999):
        expected = stats.t.ppf(probability, degrees)
        assert t_quantile(probability, degrees) == pytest.approx(expected, rel=1e-11, abs=1e-12)


def test_t_quantile_refuses_invalid_arguments() -> None:
    for probability, degrees in ((0.0, 3), (1.0, 3), (0.5, 0)):
        with pytest.raises(ConfigError):
            t_quantile(probability, degrees)


@pytest.mark.parametrize("count", range(5, 11))
def test_t_interval_equals_scipy(count: int) -> None:
    values = np.random.default_rng(count).normal(3, 2, count)
    found = interval(list(values))
    expected = stats.t.interval(0.95, count - 1, values.mean(), stats.sem(values))
    assert found.kind == "t"
    assert (found.low, found.high) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("kind", ["mean", "median", "iqm"])
@pytest.mark.parametrize("count", [11, 16, 33])
def test_bootstrap_equals_a_slow_loop(kind: str, count: int) -> None:
    values = [float(value) for value in np.random.default_rng(count).normal(0, 1, count)]
    draws = np.random.Generator(np.random.PCG64(0)).integers(0, count, (RESAMPLES, count))
    resampled = sorted(aggregate([values[i] for i in draw], kind) for draw in draws)
    tail = stats.norm.cdf(-math.sqrt(count / (count - 1)) * stats.t.ppf(0.975, count - 1))
    found = interval(values, kind)
    assert found.kind == "bootstrap"
    assert found.low == pytest.approx(np.quantile(resampled, tail), rel=1e-9)
    assert found.high == pytest.approx(np.quantile(resampled, 1 - tail), rel=1e-9)
    assert interval(tuple(values), kind) == found


def test_interval_is_none_for_few_seeds_min_or_non_finite() -> None:
    assert interval([1.0, 2.0, 3.0, 4.0]).kind == "none"
    assert interval([1.0, 2.0, 3.0, 4.0]).low is None
    assert interval([1.0] * 16, "min").kind == "none"
    assert interval([1.0] * 10, "median").kind == "none"
    assert interval([1.0] * 15 + [math.nan]).kind == "none"
    assert interval([1.0] * 15 + [math.inf]).kind == "none"


@pytest.mark.slow
@pytest.mark.parametrize("count", [5, 8, 10, 11, 16, 30])
def test_mean_intervals_have_95_percent_coverage(count: int) -> None:
    """4,000 simulated trials of normal seeds: the standard error of the share is 0.35 %."""
    draws = np.random.default_rng(7).normal(450.0, 30.0, (4_000, count))
    held = 0
    for values in draws:
        found = interval(list(values))
        assert found.low is not None and found.high is not None
        held += found.low <= 450.0 <= found.high
    assert 0.93 <= held / len(draws) <= 0.97


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["median", "iqm"])
def test_bootstrap_intervals_have_nominal_coverage(kind: str) -> None:
    draws = np.random.default_rng(8).normal(0.0, 1.0, (1_500, 16))
    held = 0
    for values in draws:
        found = interval(list(values), kind)
        assert found.low is not None and found.high is not None
        held += found.low <= 0.0 <= found.high
    assert 0.93 <= held / len(draws) <= 0.985  # a median of few seeds is held a little too often
