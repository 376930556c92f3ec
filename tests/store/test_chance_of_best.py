"""How likely the chosen trial is the best: against simulated truth and a plain Monte Carlo."""

import math

import numpy as np
import pytest

from hpo.store.chance_of_best import chance_of_best


def test_chance_of_best_matches_monte_carlo():
    rng = np.random.default_rng(0)
    y = rng.normal(size=(9, 1)) + rng.normal(0, 0.7, (9, 2)) + rng.normal(0, 3.0, 2)
    chosen = int(y.mean(1).argmax())
    found = chance_of_best(y.tolist(), chosen)
    # The model again, step by step, with other random numbers.
    own = [[y[i, s] - y[:, s].mean() for s in range(2)] for i in range(9)]
    means = [sum(row) / 2 for row in own]
    squares = sum((own[i][s] - means[i]) ** 2 for i in range(9) for s in range(2))
    above = [mean - sorted(means)[4] for mean in means]
    upper = [x * x for x in above if x >= 0]
    hits = 0
    for _ in range(20_000):
        noise = 0.5 * squares / rng.chisquare(0.5 * 8)
        spread = max(sum(upper) / rng.chisquare(len(upper)) - noise / 2, 0.05 * noise)
        kept = spread / (spread + noise / 2)
        draws = [
            kept * x + math.sqrt(kept * noise / 2) * z
            for x, z in zip(above, rng.normal(size=9), strict=True)
        ]
        hits += max(draws) == draws[chosen]
    assert found is not None and found.trials == 9
    assert found.chance == pytest.approx(hits / 20_000, abs=0.03)


@pytest.mark.parametrize("noise", ["normal", "skewed"])
def test_almost_certain_wording_is_right_for_three_selected_trials(noise):
    """Three of 24 on three seeds: "0.97" was right in 80 to 89 %."""
    rng, hits = np.random.default_rng(9), []
    draw = {
        "normal": lambda shape: rng.normal(size=shape),
        "skewed": lambda shape: -(np.exp(rng.normal(size=shape)) - np.exp(0.5)) / 2.16,
    }[noise]
    for _ in range(250):
        truth = np.exp(rng.normal(size=24))
        truth = truth[np.argsort(-(truth + draw(24)))[:3]]
        y = truth[:, None] + draw((3, 3))
        chosen = int(y.mean(1).argmax())
        found = chance_of_best(y.tolist(), chosen)
        assert found is not None
        if found.words == "is almost certainly the best":
            hits.append(truth.argmax() == chosen)
    assert len(hits) > 20 and np.mean(hits) >= 0.9


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.5, 1.0, 2.0])
def test_chance_of_best_wording_is_calibrated(noise):
    """The best was chosen as often as the words say, within two standard errors."""
    allowed = {
        "is almost certainly the best": (0.85, 1.0),
        "is probably the best": (0.6, 0.9),
        "may be the best, but so may others": (0.3, 0.65),
        "is one of several that may be the best": (0.1, 0.4),
    }
    rng, said = np.random.default_rng(1), dict[str, list[bool]]()
    for _ in range(1500):
        truth = rng.normal(size=12)
        y = truth[:, None] + noise * rng.normal(size=(12, 2)) + rng.normal(size=2)
        chosen = int(y.mean(1).argmax())
        found = chance_of_best(y.tolist(), chosen)
        assert found is not None
        said.setdefault(found.words, []).append(truth.argmax() == chosen)
    assert len(said) >= 3
    for words, hits in said.items():
        if len(hits) < 15:  # said in fewer than one study in a hundred
            continue
        slack = 1.0 / len(hits) ** 0.5  # two standard errors at one half
        low, high = allowed[words]
        assert low - slack <= np.mean(hits) <= high + slack, (words, len(hits))


def test_far_worse_trial_does_not_change_chance_of_best():
    y = [[10.0, 10.2], [9.9, 10.3], [10.1, 9.8], [9.7, 10.0], [9.8, 9.9], [1.0, 1.2]]
    near, far = chance_of_best(y, 0), chance_of_best([*y[:-1], [-1e7, -1e7 + 0.2]], 0)
    assert near is not None and far is not None
    assert far.chance == pytest.approx(near.chance, abs=0.03)


def test_chance_of_best_is_none_for_too_few_trials_or_seeds():
    assert chance_of_best([[1.0, 2.0], [2.0, 1.0]], 0) is None  # two trials
    assert chance_of_best([[1.0], [2.0], [3.0]], 2) is None  # one seed
    assert chance_of_best([[1.0, 1.0]] * 4, 0) is None  # no noise
    assert chance_of_best([[1.0, float("nan")], [2.0, 1.0], [3.0, 1.0]], 0) is None
