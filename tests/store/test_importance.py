"""Which knobs decided, against slow references and searches with a known truth."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import stats

from hpo.errors import ConfigError
from hpo.store.importance import (
    ImportanceColumn,
    decide,
    explained,
    explained_when_dealt,
    midranks,
    removed,
    resampled,
    shape,
)


def reals(rng: np.random.Generator, trials: int, count: int) -> list[ImportanceColumn]:
    return [ImportanceColumn(f"x{i}", rng.random(trials).tolist()) for i in range(count)]


def places(column: ImportanceColumn) -> np.ndarray:
    return np.array([np.nan if place is None else place for place in column.places])


def test_midranks_match_scipy() -> None:
    values = np.random.default_rng(0).integers(0, 6, 40) * 1.0
    assert midranks(values) == pytest.approx(stats.rankdata(values) - 20.5)
    with pytest.raises(ConfigError):
        midranks([1.0, np.nan])


def test_real_knob_importance_fits_a_parabola() -> None:
    rng = np.random.default_rng(1)
    (column,) = reals(rng, 30, 1)
    ranks = midranks(rng.normal(size=30))
    fitted = np.polyval(np.polyfit(places(column), ranks, 2), places(column))
    expected = 1 - ((ranks - fitted) ** 2).sum() / (ranks**2).sum()
    found = explained(shape(column, np.zeros((30, 0))), ranks[None])
    assert found == pytest.approx([expected])
    again, left = resampled(column, np.zeros((30, 0)), ranks, np.ones((1, 30)))
    assert (again[0], left[0]) == pytest.approx((expected, 1.0))


def test_blockwise_permutation_importance_is_bitwise_equal() -> None:
    rng = np.random.default_rng(5)
    some = ImportanceColumn("u", [v if v > 0.3 else None for v in rng.random(300)])
    forms = [shape(one, np.zeros((300, 0))) for one in (*reals(rng, 300, 2), some)]
    ranks = midranks(rng.normal(size=300))
    deals = np.stack([rng.permutation(300) for _ in range(150)])  # more than two blocks
    whole = np.stack([explained(form, ranks[deals]) for form in forms])
    assert np.array_equal(explained_when_dealt(forms, ranks, deals), whole)


def test_categorical_importance_fits_group_means() -> None:
    rng = np.random.default_rng(2)
    column = ImportanceColumn("c", (rng.integers(0, 4, 40) * 1.0).tolist(), choices=True)
    ranks = midranks(rng.normal(size=40))
    groups = [ranks[places(column) == level] for level in range(4)]
    expected = sum(len(g) * g.mean() ** 2 for g in groups) / (ranks**2).sum()
    assert explained(shape(column, np.zeros((40, 0))), ranks[None]) == pytest.approx([expected])
    assert expected * 39 == pytest.approx(stats.kruskal(*groups).statistic)


def test_conditional_knob_importance_uses_only_its_trials() -> None:
    rng = np.random.default_rng(3)
    values = rng.random(40)
    column = ImportanceColumn("u", [v if i % 2 else None for i, v in enumerate(values)])
    ranks = midranks(rng.normal(size=40))
    alone = ImportanceColumn("u", values[1::2].tolist())
    expected = explained(shape(alone, np.zeros((20, 0))), ranks[None, 1::2])
    assert explained(shape(column, np.zeros((40, 0))), ranks[None]) == pytest.approx(expected)


def test_bootstrap_importance_refits_resampled_trials() -> None:
    rng = np.random.default_rng(4)
    first, second = reals(rng, 30, 2)
    ranks, drawn = midranks(rng.normal(size=30)), rng.integers(0, 30, 30)
    before = removed([first], 30)
    counts = np.bincount(drawn, minlength=30)[None].astype(float)

    def error(*parts: np.ndarray) -> float:
        design = np.column_stack([np.ones(30), *parts])[drawn]
        fit = design @ np.linalg.lstsq(design, ranks[drawn], rcond=None)[0]
        return float(((ranks[drawn] - fit) ** 2).sum())

    x = places(second)
    share, left = resampled(second, before, ranks, counts)
    assert share == pytest.approx([1 - error(before, x, x**2) / error(before)])
    assert left == pytest.approx([error(before) / error()])


def test_significant_knob_is_named_with_the_true_share() -> None:
    rng = np.random.default_rng(5)
    columns = reals(rng, 400, 6)
    signal = places(columns[2]) * 12**0.5
    found = decide(columns, signal + rng.normal(size=400))
    assert found.names == ("x2",) and found.knobs[0].name == "x2"
    assert found.knobs[0].low <= 0.48 <= found.knobs[0].high  # of ranks; 0.5 of values
    assert found.knobs[0].share == pytest.approx(0.48, abs=0.08)
    assert len(found.knobs) == 6
    assert all(knob.share <= knob.floor for knob in found.knobs[1:])
    first = found.knobs[0]
    assert found.sentence == (
        f"x2 matters: it explains {first.share:.0%} [{first.low:.0%}, {first.high:.0%}] of the "
        "ranking of 400 trials."
    )
    assert json.loads(json.dumps(found.as_json()))["decided"] == ["x2"]


def test_importance_uses_ranks_and_is_deterministic() -> None:
    rng = np.random.default_rng(6)
    columns, values = reals(rng, 40, 4), rng.normal(size=40)
    assert decide(columns, values) == decide(columns, np.exp(values)) == decide(columns, values)


def test_verdict_is_printed_when_no_hyperparameter_is_significant() -> None:
    rng = np.random.default_rng(7)
    columns = reals(rng, 40, 5)
    found = decide(columns, rng.normal(size=40))
    assert found.names == ()
    assert found.sentence == "No hyperparameter was found to matter in 40 trials."
    assert found.unseen.startswith("With 40 trials, effects below about ")
    tied = decide(columns, [500.0] * 40)
    assert tied.names == () and all(knob.share == 0.0 for knob in tied.knobs)
    few = decide(
        [*columns, ImportanceColumn("rare", [0.5] * 3 + [None] * 37)], rng.normal(size=40)
    )
    assert next(knob for knob in few.knobs if knob.name == "rare").floor == 1.0
    assert decide([], rng.normal(size=12)).names == ()


def test_too_few_trials_for_importance_are_refused() -> None:
    with pytest.raises(ConfigError, match="needs 10"):
        decide([ImportanceColumn("a", [0.1] * 9)], [1.0] * 9)
    with pytest.raises(ConfigError, match="one position"):
        decide([ImportanceColumn("a", [0.1] * 9)], [1.0] * 12)


def test_knobs_correlated_with_the_significant_one_are_not_named() -> None:
    """As under a model: both drift, one of them decides."""
    rng = np.random.default_rng(8)
    wrongly = 0
    for _ in range(20):
        drift = np.linspace(0.0, 0.6, 80)
        a, b = (np.clip(drift + 0.4 * rng.random(80), 0, 1) for _ in range(2))
        found = decide(
            [ImportanceColumn("a", a.tolist()), ImportanceColumn("b", b.tolist())],
            4 * a + 0.5 * rng.normal(size=80),
        )
        assert "a" in found.names
        wrongly += "b" in found.names
    assert wrongly <= 3


@pytest.mark.slow
def test_importance_false_positive_rate_is_bounded() -> None:
    """100 studies of 7 knobs: 4 % and three standard errors are 10 of them."""
    rng = np.random.default_rng(9)
    named = 0
    for _ in range(100):
        columns = [
            *reals(rng, 32, 5),
            ImportanceColumn("two", (rng.integers(0, 2, 32) * 1.0).tolist(), choices=True),
            ImportanceColumn("under", [v if v < 0.6 else None for v in rng.random(32)]),
        ]
        values = (
            np.minimum(500.0, rng.normal(500, 30, 32))
            if rng.random() < 0.5
            else (rng.exponential(size=32))
        )
        named += bool(decide(columns, values).names)
    assert named <= 10
