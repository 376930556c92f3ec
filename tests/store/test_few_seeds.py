"""A first look at 4 or 5 seeds: all splits of the values of both sides are compared."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from hpo.store.comparison import compare, decided_pairs
from hpo.store.permutation_tests import split_p
from hpo.store.unobserved import Bounds
from hpo.store.verdict import Conclusion, Evidence, conclude
from hpo.store.verdict_text import as_json, sentences

STUDIES = 500
MOST_WRONG = 34  # of 500: 5 % and two standard errors
Draw = Callable[[np.random.Generator], np.ndarray]


@pytest.mark.parametrize("seeds", [4, 5])
def test_split_p_value_matches_scipy(seeds: int) -> None:
    rng = np.random.default_rng(seeds)
    for shift in (0.0, 1.0, 3.0):
        a, b = rng.normal(size=(2, seeds)).round(1)
        reference = stats.permutation_test(
            (a + shift, b), lambda x, y: abs(np.mean(x) - np.mean(y)), alternative="greater"
        )
        assert split_p((a + shift).tolist(), b.tolist()) == pytest.approx(reference.pvalue)


def test_split_p_value_of_ties_is_one() -> None:
    assert split_p([1.0] * 4, [1.0] * 4) == 1.0
    assert split_p([0.1 + 0.2] * 4, [0.3] * 4) == 1.0  # a rounding apart


def equal_means(name: str) -> tuple[Draw, Draw]:
    """Return two sides with the same mean, also where their distributions differ."""

    def normal(spread: float) -> Draw:
        return lambda rng: rng.normal(0.0, spread, 8)

    def skewed(rng: np.random.Generator) -> np.ndarray:
        return -np.exp(rng.normal(0.0, 0.7, 8))

    def failing(rng: np.random.Generator) -> np.ndarray:
        return np.where(rng.random(8) < 0.1, 0.0, 500.0) + rng.normal(0.0, 5.0, 8)

    def reliable(rng: np.random.Generator) -> np.ndarray:
        return 450.0 + rng.normal(0.0, 1e-6, 8)

    return {
        "normal": (normal(1.0), normal(1.0)),
        "unequal spreads": (normal(1.0), normal(8.0)),
        "skewed": (skewed, skewed),
        "rare failures": (failing, failing),
        "rare failures beside a reliable side": (failing, reliable),
    }[name]


@pytest.mark.parametrize("seeds", [4, 5])
@pytest.mark.parametrize(
    "name",
    [
        "normal",
        "unequal spreads",
        "skewed",
        "rare failures",
        "rare failures beside a reliable side",
    ],
)
def test_two_looks_keep_the_error_rate_for_equal_means(name: str, seeds: int) -> None:
    """Two looks, at few seeds and at 8, are wrong together in at most 5 % of studies."""
    rng = np.random.default_rng(7)
    ours, theirs = equal_means(name)
    wrong = 0
    for _ in range(STUDIES):
        a, b = ours(rng).tolist(), theirs(rng).tolist()
        first = decided_pairs(a[:seeds], b[:seeds])
        second = decided_pairs(a, b, [seeds])
        wrong += any(one.verdict in ("better", "worse") for one in (first, second))
    assert wrong <= MOST_WRONG


def test_correlated_seeds_keep_the_error_rate() -> None:
    """A common effect of a seed makes the test of splits only more careful."""
    rng = np.random.default_rng(3)
    wrong = 0
    for _ in range(STUDIES):
        common = rng.normal(0.0, 2.0, 4)
        a, b = ((common + rng.normal(0.0, 1.0, 4)).tolist() for _ in range(2))
        wrong += decided_pairs(a, b).verdict in ("better", "worse")
    assert wrong <= MOST_WRONG


def test_four_seeds_decide_only_if_fully_separated() -> None:
    bounds = Bounds(0.0, 10.0)
    clear = decided_pairs([8.1, 9.0, 8.5, 8.8], [1.0, 3.5, 0.5, 2.2], bounds=bounds)
    assert clear.verdict == "better" and clear.interval.low > 0.0
    alike = decided_pairs([5.0] * 4, [3.0] * 4, bounds=bounds)
    assert (alike.verdict, alike.of_seen) == ("undecided", "better")
    assert alike.unless is not None and alike.unless.one_in == 4
    one_behind = decided_pairs([8.1, 9.0, 8.5, 3.0], [1.0, 3.5, 0.5, 2.2], bounds=bounds)
    assert one_behind.verdict == "undecided" and one_behind.unless is None
    assert decided_pairs([8.1, 9.0, 8.5], [1.0, 3.5, 0.5]).more_seeds == 3


def test_clearly_separated_noisy_seeds_give_a_verdict() -> None:
    found = decided_pairs([3.0, 5.0, 4.0, 6.0, 5.5], [-9.0, -2.0, -6.0, -4.0, -7.0])
    assert found.verdict == "better" and found.interval.low > 0.0


def test_compare_matches_the_few_seed_verdict() -> None:
    found = compare([3.0, 5.0, 4.0, 6.0, 5.5], [-9.0, -2.0, -6.0, -4.0, -7.0], paired=True)
    assert found.sentence("trial 3", "the default") == "trial 3 is better"


def studied(lead: float, spread: float, seeds: int = 4) -> Conclusion:
    """Paired differences with this mean and standard error."""
    shape = np.array([1.0, -1.0] * (seeds // 2))
    error = shape.std(ddof=1) / np.sqrt(seeds)
    differences = lead + shape * spread / error
    theirs = {seed: 100.0 * seed for seed in range(seeds)}
    ours = {seed: theirs[seed] + float(one) for seed, one in enumerate(differences)}
    return conclude(Evidence(ours, theirs, name="trial 3"))


def test_small_lead_keeps_the_default() -> None:
    leads = (-1.8, 0.9, 1.1, 1.8)
    behind, close, ahead, clear = (studied(lead, 1.0) for lead in leads)
    assert behind.against.standard_error == pytest.approx(1.0)
    advice = [one.against.advice for one in (behind, close, ahead, clear)]
    assert advice == ["keep", "keep", "take", "take"]
    first = [sentences(one)[0] for one in (behind, close, ahead, clear)]
    assert first[0].startswith("Keep the default: it leads trial 3 by 1.8 [")
    assert first[1] == "Keep the default: no significant difference from trial 3."
    assert first[2] == "Trial 3 leads the default, but not significantly."
    assert sentences(ahead)[1].startswith("Trial 3 leads the default by 1.1 [")
    assert first[3].startswith("Undecided: trial 3 leads the default by 1.8 [")
    assert as_json(close)["advice"] == "keep"


def test_equal_trials_rarely_replace_the_default() -> None:
    rng = np.random.default_rng(5)
    taken = 0
    for _ in range(STUDIES):
        ours, theirs = (dict(enumerate(rng.normal(size=4).tolist())) for _ in range(2))
        taken += conclude(Evidence(ours, theirs)).against.advice == "take"
    assert 60 <= taken <= 118  # 16 to 20 %, and two standard errors


def test_default_winning_the_search_is_kept() -> None:
    values = {seed: 1.0 * seed for seed in range(4)}
    found = conclude(Evidence(values, None, is_default=True, beaten=3, of_search=True))
    assert (
        sentences(found)[0] == "Keep the default: none of 3 other trials was better in the search."
    )
    assert found.against.advice == "keep"
