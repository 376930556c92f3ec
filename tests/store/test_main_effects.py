"""Main effects: means of groups along an axis."""

from __future__ import annotations

import numpy as np
import pytest

from hpo.store.importance import ImportanceColumn, main_effect
from hpo.store.statistics import interval
from hpo.store.unobserved import Bounds


def test_real_main_effect_has_equal_sized_groups() -> None:
    rng = np.random.default_rng(0)
    places, values = rng.random(70), rng.normal(size=70)
    points = main_effect(ImportanceColumn("a", places.tolist()), values.tolist())
    order = np.array_split(np.argsort(places), 8)
    assert len(points) == 8 and sum(point.trials for point in points) == 70
    assert {point.trials for point in points} == {8, 9}
    first = np.argsort(places)[: points[0].trials]
    assert len(order) == 8 and points[0].place == pytest.approx(places[first].mean())
    assert points[0].mean == pytest.approx(values[first].mean())
    assert points[0].interval.low == pytest.approx(interval(values[first].tolist()).low)


def test_main_effect_bands_respect_value_bounds() -> None:
    column = ImportanceColumn("a", [0.0] * 8 + [1.0] * 8)
    values = [500.0] * 7 + [300.0] + [0.0] * 7 + [40.0]
    poor, good = reversed(main_effect(column, values, Bounds(0.0, 500.0)))
    assert poor.interval.low == 0.0 and good.interval.high == 500.0
    open_ended = main_effect(column, values)
    assert open_ended[0].interval.high > 500.0 and open_ended[1].interval.low < 0.0


def test_main_effect_groups_choices_and_skips_rare_ones() -> None:
    places = [0.0] * 9 + [1.0] * 3 + [2.0] * 6 + [None] * 4
    points = main_effect(ImportanceColumn("c", places, choices=True), list(range(22)))
    assert [(point.place, point.trials, point.mean) for point in points] == [
        (0.0, 9, 4.0),
        (2.0, 6, 14.5),
    ]


def test_single_group_has_no_main_effect() -> None:
    rng = np.random.default_rng(1)
    assert main_effect(ImportanceColumn("a", rng.random(15).tolist()), [0.0] * 15) == ()
    assert main_effect(ImportanceColumn("a", [None] * 20), [0.0] * 20) == ()
    assert main_effect(ImportanceColumn("a", [0.5] * 20), [0.0] * 20) == ()
    assert len(main_effect(ImportanceColumn("a", rng.random(16).tolist()), [0.0] * 16)) == 2


def test_main_effect_bands_have_nominal_coverage() -> None:
    """30 studies of 6 groups, each an interval of a mean: 95 % of 180 less four errors is 159."""
    rng, held = np.random.default_rng(2), 0
    for _ in range(30):
        places = rng.random(60)
        values = 3 * places + rng.normal(size=60)
        for point in main_effect(ImportanceColumn("a", places.tolist()), values.tolist()):
            held += point.interval.low <= 3 * point.place <= point.interval.high
    assert held >= 159
