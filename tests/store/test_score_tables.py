"""Scores of one and two configurations against the formulas, written as loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from hpo.errors import ConfigError
from hpo.store.aggregate_environments import beside, difference, on_each, profile_band, profiles
from hpo.store.mean_difference import paired_interval

NAN = (math.nan, math.nan, math.nan)


def seeds(number: int, count: int = 6) -> dict[int, tuple[float, ...]]:
    rng = np.random.default_rng(number)
    return {n: tuple(rng.normal([0.2, 0.6, 1.0], 0.2).tolist()) for n in range(count)}


def test_on_each_gives_per_env_means_and_aggregates() -> None:
    given = {**seeds(1), 9: NAN}
    found = on_each(given)
    assert (found.seeds, found.lost) == (7, 1)
    whole = [row for row in given.values() if row != NAN]
    means = [sum(row[at] for row in whole) / 6 for at in range(3)]
    assert [one.value for one in found.each] == pytest.approx(means)
    for at, one in enumerate(found.each):
        reach = stats.t.interval(0.95, 5, means[at], stats.sem([row[at] for row in whole]))
        assert (one.interval.low, one.interval.high) == pytest.approx(reach)
    flat = [score for row in whole for score in row]
    assert found.together["mean"].value == pytest.approx(sum(flat) / 18)
    assert found.together["iqm"].value == pytest.approx(stats.trim_mean(flat, 0.25))
    assert found.together["worst"].value == pytest.approx(min(means))
    assert found.together["worst"].interval.kind == "none"


def test_shared_seeds_give_paired_score_differences() -> None:
    ours, theirs = {**seeds(2), 8: (1.0, 1.0, 1.0)}, {**seeds(3), 5: NAN, 7: (9.0, 9.0, 9.0)}
    found = beside(ours, theirs, paired=True)
    assert (found.paired, found.seeds) == (True, 6)
    both = [n for n in range(6) if n != 5]  # 5 diverged: it is in no difference
    for at, one in enumerate(found.each):
        pairs = [(ours[n][at], theirs[n][at]) for n in both]
        assert one.difference.value == pytest.approx(np.mean([x - y for x, y in pairs]))
        assert one.difference.interval == paired_interval(*map(list, zip(*pairs, strict=True)))
        wins = [float(x > y) for x, y in pairs] + [1.0]  # and loses
        assert one.probability.value == pytest.approx(np.mean(wins))
    sides = [[[side[n][at] for n in both] for at in range(3)] for side in (ours, theirs)]
    assert found.lost == 1
    for over, one in found.differences.items():
        assert (one.value, one.interval) == difference(*sides, over, paired=True)
    chance = [
        float(ours[i][at] > theirs[j][at] or j == 5)
        for at in range(3)
        for i in range(6)
        for j in range(6)
    ]
    assert found.improvement.value == pytest.approx(np.mean(chance))


def test_different_seeds_give_unpaired_score_differences() -> None:
    ours, theirs = seeds(4, 8), seeds(5, 6)
    found = beside(ours, theirs, paired=False)
    assert (found.paired, found.seeds) == (False, 6)
    for at, one in enumerate(found.each):
        x, y = ([row[at] for row in side.values()] for side in (ours, theirs))
        assert one.difference.value == pytest.approx(np.mean(x) - np.mean(y))
        wide = stats.ttest_ind(x, y, equal_var=False).confidence_interval(0.95)
        # rounding the degrees of freedom down widens it a little
        assert one.difference.interval.low <= wide.low + 1e-12
        assert one.difference.interval.high >= wide.high - 1e-12
        wins = [float(a > b) for a in x for b in y]
        assert one.probability.value == pytest.approx(np.mean(wins))
    flat = [[score for row in side.values() for score in row] for side in (ours, theirs)]
    apart = found.differences["iqm"]
    assert apart.value == pytest.approx(
        stats.trim_mean(flat[0], 0.25) - stats.trim_mean(flat[1], 0.25)
    )
    assert apart.interval.kind == "bootstrap" and found.lost == 0
    assert beside({**ours, 9: NAN}, {**theirs, 8: NAN}, paired=False).lost == 2


def test_performance_profiles_share_thresholds() -> None:
    sides = [{**seeds(6), 6: NAN}, seeds(7, 4)]
    found = profiles(sides)
    flat = [score for side in sides for row in side.values() for score in row]
    finite = [score for score in flat if math.isfinite(score)]
    for side, one in zip(sides, found, strict=True):
        assert one.thresholds == found[0].thresholds and len(one.thresholds) == 101
        assert one.thresholds[0] == min(0.0, *finite)
        assert one.thresholds[-1] == pytest.approx(max(1.0, *finite))
        own = [score for row in side.values() for score in row]
        for tau, share in list(zip(one.thresholds, one.shares, strict=True))[::10]:
            assert share == pytest.approx(sum(score > tau for score in own) / len(own))
    assert found[0].shares[0] <= 6 / 7  # who diverged is below every threshold
    columns = [list(column) for column in zip(*sides[0].values(), strict=True)]
    assert list(found[0].band or ()) == profile_band(columns, found[0].thresholds)
    assert found[1].band is None  # of four seeds


def test_score_tables_handle_diverged_and_missing_runs() -> None:
    nothing = on_each({0: NAN, 1: NAN})
    assert nothing.lost == 2 and {one.value for one in nothing.each} == {None}
    assert nothing.together["mean"].value is None
    with pytest.raises(ConfigError, match="nothing to compare"):
        beside({0: NAN}, {1: NAN}, paired=True)
    with pytest.raises(ConfigError, match="no run"):
        on_each({})
    lost = beside({0: NAN}, {0: (1.0, 1.0, 1.0)}, paired=True)
    assert lost.each[0].difference.value is None and lost.each[0].probability.value == 0.0
    assert {one.value for one in lost.differences.values()} == {None}
