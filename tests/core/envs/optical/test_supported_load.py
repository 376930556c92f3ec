"""Supported loads and their ratios against traffic whose true crossing is known."""

import math

import numpy as np
import pytest

from hpo.core.envs.optical import supported_load
from hpo.core.envs.optical.heuristic_evaluation import Evaluation
from hpo.core.envs.optical.optical_environment import make_from_keys
from hpo.core.envs.optical.supported_load import find_load, more_load

TARGET, SEEDS, REQUESTS = 0.001, 10, 20_000
NETWORK = make_from_keys(slots=40, k=3, load=100.0)


def evaluation(loads, share):
    blocked = np.asarray(share) * REQUESTS
    return Evaluation(np.array(loads), REQUESTS, blocked, blocked, blocked, blocked)


def traffic(draw, crossing, luck, power):
    """Return what evaluates a rule that blocks `TARGET` at `crossing` Erlang in the mean.

    Each seed has its luck, common to all rules and loads, and some of its own for every rule; each
    load blocks a Poisson number of requests more or less.
    """
    own = 0.05 * draw.standard_normal(SEEDS)
    hard = np.exp(luck + own) / np.exp(0.5 * (0.2**2 + 0.05**2))

    def evaluate(environment, rule, *, seeds, steps, seed, loads):
        mean = TARGET * (np.array(loads)[:, None] / crossing) ** power * hard
        few = draw.poisson(np.minimum(mean, 1.0) * steps * 0.1) + 0.9 * mean * steps
        return evaluation(loads, few / steps)

    return evaluate


def found(monkeypatch, evaluate):
    monkeypatch.setattr(supported_load, "evaluate_heuristic", evaluate)
    return find_load(NETWORK, "any", TARGET, seeds=SEEDS, steps=REQUESTS)


def test_the_ratio_of_two_loads_lies_in_its_interval_as_often_as_it_says(monkeypatch):
    draw = np.random.default_rng(0)
    held, narrower = 0, 0
    for _ in range(300):
        luck = 0.2 * draw.standard_normal(SEEDS)
        ours = found(monkeypatch, traffic(draw, 103.0, luck, 13.0))
        theirs = found(monkeypatch, traffic(draw, 100.0, luck, 12.0))
        more = more_load(ours, theirs)
        held += more.low <= 0.03 <= more.high
        narrower += (more.high - more.low) < (ours.high - ours.low) / ours.load
    assert 0.90 <= held / 300 <= 0.99
    assert narrower > 280  # what the requests have in common is gone


def test_the_load_of_each_seed_is_where_a_straight_line_crosses(monkeypatch):
    def evaluate(environment, rule, *, seeds, steps, seed, loads):
        logs = np.log(np.array(loads))[:, None]
        easy = np.linspace(-0.2, 0.2, SEEDS)
        return evaluation(loads, 0.5 + 0.1 * (logs - math.log(80.0) - easy))

    monkeypatch.setattr(supported_load, "evaluate_heuristic", evaluate)
    one = find_load(NETWORK, "any", 0.45, seeds=SEEDS)
    crossing = 80.0 * np.exp(np.linspace(-0.2, 0.2, SEEDS) - 0.5)
    np.testing.assert_allclose(one.of_seeds, crossing, rtol=1e-6)
    assert one.load == pytest.approx(80.0 * math.exp(-0.5))
    same = more_load(one, one)
    assert (same.value, same.low, same.high) == (0.0, 0.0, 0.0)
