"""Intervals of means end where the returns of the environment end."""

import math
from dataclasses import replace

import pytest

from hpo.environments.registry import find
from hpo.store.comparison import Bounds
from hpo.store.leaderboard import leaderboard_of
from hpo.store.rows import StudyMeta, TrialRow, TrialState
from hpo.store.value_bounds import return_bounds, value_bounds

_TEXT = "env: {{id: {env}{keys}}}\neval_env: {held_out}\nspace: {space}\n"


def meta(env="CartPole-v1", keys="", held_out="{}", space="{}", metric="eval/return_mean"):
    text = _TEXT.format(env=env, keys=keys, held_out=held_out, space=space)
    return StudyMeta("s", "h", text, metric, "maximize", "mean", {})


@pytest.mark.parametrize(
    "given, evaluated, trained",
    [
        ({}, (0.0, 500), (0.0, 500)),
        ({"keys": ", max_steps_in_episode: 200"}, (0.0, 200), (0.0, 200)),
        ({"held_out": "{max_steps_in_episode: 300}"}, (0.0, 300), (0.0, 500)),
        ({"space": "{env.max_steps_in_episode: {}}"}, (0.0, math.inf), (0.0, math.inf)),
        ({"metric": "eval/length_mean"}, (-math.inf, math.inf), (0.0, 500)),
        ({"env": "MountainCar-v0"}, (-200, 0.0), (-200, 0.0)),
        ({"env": "Asterix-MinAtar"}, (0.0, math.inf), (0.0, math.inf)),
        ({"env": "Breakout-MinAtar"}, (0.0, 1000), (0.0, 1000)),
        ({"env": "Catch-bsuite"}, (-1.0, 1.0), (-1.0, 1.0)),
        ({"env": "UmbrellaChain-bsuite", "keys": ", chain_length: 5"}, (-5, 5), (-5, 5)),
        (
            {"env": "UmbrellaChain-bsuite", "space": "{env.chain_length: {}}"},
            (-math.inf, math.inf),
            (-math.inf, math.inf),
        ),
        ({"env": "Pendulum-v1"}, (-math.inf, math.inf), (-math.inf, math.inf)),
        ({"env": "imported:nobody-knows"}, (-math.inf, math.inf), (-math.inf, math.inf)),
    ],
    ids=str,
)
def test_the_bounds_of_a_study(given, evaluated, trained):
    assert value_bounds(meta(**given)) == Bounds(*evaluated)
    assert return_bounds(meta(**given)) == Bounds(*trained)


def test_the_interval_on_a_leaderboard_ends_where_returns_end():
    """Student's interval of one seed in eight below 500 reaches 520; no mean can be there."""
    values = (500.0, 500.0, 500.0, 500.0, 380.3, 500.0, 500.0, 500.0)
    row = TrialRow(3, TrialState.FINISHED, "random", 0, "b", {})
    row = replace(row, value=485.0375, seed_values=values)
    [entry] = leaderboard_of(meta(), [row])
    assert (entry.ci_low, entry.ci_high) == (pytest.approx(449.66, abs=0.01), 500)
    [open_ended] = leaderboard_of(meta("Pendulum-v1"), [row])
    assert open_ended.ci_high == pytest.approx(520.42, abs=0.01)
    low = replace(row, value=2.0, seed_values=(0.0, 0.0, 0.0, 0.0, 10.0))
    [entry] = leaderboard_of(meta(), [low])
    assert entry.ci_low == 0.0 and entry.ci_high == pytest.approx(7.553, abs=0.001)


def test_bounds_name_a_key_of_their_environment():
    for env in ("CartPole-v1", "MountainCar-v0", "Acrobot-v1"):
        known = find(env)
        assert all(map(math.isfinite, known.return_range({})))
        assert known.best_return is None or known.returns[1] == known.best_return
