"""Supported loads and their ratios against traffic whose true crossing is known."""

import math

import numpy as np
import pytest

from hpo.core.envs.optical import supported_load
from hpo.core.envs.optical.heuristic_evaluation import Evaluation
from hpo.core.envs.optical.optical_environment import make_from_keys
from hpo.core.envs.optical.supported_load import SupportedLoad, find_load
from hpo.errors import ConfigError
from hpo.views.network_results import more_load

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


def test_loads_and_their_ratio_lie_in_their_intervals_as_often_as_these_say(monkeypatch):
    draw = np.random.default_rng(0)
    held, narrower, known = 0, 0, 0
    for _ in range(300):
        luck = 0.2 * draw.standard_normal(SEEDS)
        ours = found(monkeypatch, traffic(draw, 103.0, luck, 13.0))
        theirs = found(monkeypatch, traffic(draw, 100.0, luck, 12.0))
        more = more_load(ours, theirs)
        known += theirs.low <= 100.0 <= theirs.high
        held += more["ci_low"] <= 0.03 <= more["ci_high"]
        narrower += (more["ci_high"] - more["ci_low"]) < (ours.high - ours.low) / ours.load
    assert 0.90 <= held / 300 <= 0.99
    assert 0.90 <= known / 300 <= 0.99
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
    assert more_load(one, one) == {"more": 0.0, "ci_low": None, "ci_high": None}


def test_the_interval_of_a_ratio_by_hand():
    def of(*loads):
        middle = math.exp(sum(map(math.log, loads)) / len(loads))
        return SupportedLoad(middle, 1.0, 1.0, None, np.array(loads))

    ratios = [1.02, 1.05, 0.99, 1.04, 1.01]
    theirs = [90.0, 110.0, 100.0, 95.0, 105.0]
    ours = [load * ratio for load, ratio in zip(theirs, ratios, strict=True)]
    logs = [math.log(ratio) for ratio in ratios]
    middle = sum(logs) / 5
    deviation = math.sqrt(sum((one - middle) ** 2 for one in logs) / 4)
    reach = 2.7764451 * deviation / math.sqrt(5)  # Student's t, 4 degrees of freedom
    more = more_load(of(*ours), of(*theirs))
    assert more["more"] == pytest.approx(math.exp(middle) - 1)
    assert (more["ci_low"], more["ci_high"]) == pytest.approx(
        (math.exp(middle - reach) - 1, math.exp(middle + reach) - 1)
    )


def test_too_few_blocked_requests_are_said(monkeypatch):
    def evaluate(environment, rule, *, seeds, steps, seed, loads):
        share = np.zeros((len(loads), SEEDS))
        share[len(loads) // 2] = 2 * TARGET  # a single load blocks anything, the highest none
        share[-1] = 2 * TARGET if len(calls) == 0 else 0.0
        share[len(loads) // 2] *= len(calls) == 0
        calls.append(loads)
        return evaluation(loads, share)

    calls = []
    monkeypatch.setattr(supported_load, "evaluate_heuristic", evaluate)
    with pytest.raises(ConfigError, match="too few requests are blocked; give more --seeds"):
        find_load(NETWORK, "any", TARGET, seeds=SEEDS)
