"""Intervals of means end where the returns of the environment end."""

import math
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from hpo.environments.registry import find
from hpo.search.state.progress import bounds_of
from hpo.store.aggregate_environments import beside, on_each
from hpo.store.baselines import baseline_entries
from hpo.store.leaderboard import leaderboard_of
from hpo.store.mean_difference import paired_interval
from hpo.store.rows import BaselineRow, StudyMeta, TrialRow, TrialState
from hpo.store.unobserved import Bounds
from hpo.store.value_bounds import metric_range, return_bounds, score_bounds, value_bounds
from hpo.studies.load import load
from hpo.studies.study_meta import study_meta

EVALUATIONS = Path(__file__).parents[2] / "results" / "tuned" / "evaluations.parquet"
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
        ({"env": "FourRooms-misc"}, (0.0, 1.0), (0.0, 1.0)),
        ({"env": "MountainCarContinuous-v0"}, (-math.inf, 100.0), (-math.inf, 100.0)),
        (
            {"env": "rmsa", "metric": "eval/service_blocking_probability"},
            (0.0, math.inf),
            (-math.inf, math.inf),
        ),
        ({"env": "Pendulum-v1"}, (-math.inf, math.inf), (-math.inf, math.inf)),
        ({"env": "imported:nobody-knows"}, (-math.inf, math.inf), (-math.inf, math.inf)),
    ],
    ids=str,
)
def test_value_bounds_follow_metric_and_env(given, evaluated, trained):
    assert value_bounds(meta(**given)) == Bounds(*evaluated)
    assert return_bounds(meta(**given)) == Bounds(*trained)


def test_leaderboard_interval_is_clipped_to_the_return_range():
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


def test_known_return_ranges_are_finite():
    for env in ("CartPole-v1", "MountainCar-v0", "Acrobot-v1"):
        known = find(env)
        assert all(map(math.isfinite, known.return_range({})))
        assert known.best_return is None or known.returns[1] == known.best_return


def test_recorded_returns_are_in_the_range_of_their_environment():
    known = 0
    for row in pq.read_table(EVALUATIONS, columns=["env", "greedy"]).to_pylist():
        if row["greedy"] is None or find(row["env"]) is None:
            continue
        bounds = metric_range("eval/return_mean", {"id": row["env"]})
        known += bounds != Bounds()
        assert bounds.low <= row["greedy"] <= bounds.high, row
    assert known > 1_000


SCALES = (
    {"name": "CartPole-v1", "random": 20.0, "reference": 500.0},
    {"name": "Acrobot-v1", "random": -500.0, "reference": -100.0},
)


def several(over="mean", metric="eval/return_mean", envs="[{id: CartPole-v1}, {id: Acrobot-v1}]"):
    text = f"env: {envs}\nspace: {{}}\nover_environments: {over}\nmetric: {{name: {metric}}}\n"
    return StudyMeta("s", "h", text, "score", "maximize", "mean", {}, environments=SCALES)


def test_score_bounds_follow_env_return_ranges():
    low, high = -20 / 480, 1.25  # no return of CartPole is below 0, none of Acrobot above 0
    ends = score_bounds(several())
    assert [(one.low, one.high) for one in ends] == [(low, 1.0), (0.0, high)]
    assert value_bounds(several()) == Bounds(pytest.approx(low / 2), pytest.approx(1.125))
    assert value_bounds(several("worst")) == Bounds(pytest.approx(low), 1.0)
    open_ended = value_bounds(several(envs="[{id: CartPole-v1}, {id: imported:nobody-knows}]"))
    assert open_ended == Bounds()
    assert value_bounds(several(metric="eval/length_mean")) == Bounds()
    blocking = [
        replace(
            several(metric="eval/service_blocking_probability"),
            environments=[{"name": n, "random": 0.5, "reference": 0.1} for n in "ab"],
        )
    ]
    assert score_bounds(blocking[0])[0] == Bounds(-math.inf, pytest.approx(1.25))


@pytest.mark.parametrize("name", ["several", "cartpole", "nsfnet_rmsa", "pendulum"])
def test_loaded_study_has_the_bounds_of_its_record(name):
    study = load(EVALUATIONS.parents[2] / "studies" / f"{name}.yaml")
    known = bounds_of(study)
    assert known == value_bounds(study_meta(study, {}, "cpu", 1))
    assert (known == Bounds()) == (name == "pendulum")


def test_multi_env_intervals_use_each_env_range():
    """Eight seeds at both ends of the scale show no spread, and may fail all the same."""
    ends = score_bounds(several())
    top = {seed: (1.0, 1.25) for seed in range(8)}
    poor = {seed: (0.9 - 0.001 * seed, 1.1 + 0.001 * seed) for seed in range(8)}
    assert on_each(top).each[0].interval.kind == on_each(top).together["mean"].interval.kind
    assert on_each(top).each[0].interval.kind == "none"
    found = on_each(top, ends)
    share = 0.05 ** (1 / 8)
    low = share - (1 - share) * 20 / 480
    assert found.each[0].interval.low == pytest.approx(low, abs=1e-3)
    assert found.each[0].interval.high == found.together["mean"].interval.high - 0.125 == 1.0
    assert found.together["mean"].interval.low < 0.8
    noisy = {seed: (1.0 - 0.4 * (seed == 3), 1.2 - 0.3 * (seed == 5)) for seed in range(8)}
    for over in ("mean", "iqm"):
        around = on_each(noisy, ends).together[over].interval
        assert around.high <= 1.125 + 0.125 * (over == "iqm")
    assert on_each(noisy).each[0].interval.high > 1.0 == on_each(noisy, ends).each[0].interval.high
    told = beside(top, poor, paired=True, bounds=ends)
    sides = [one[0] for one in top.values()], [one[0] for one in poor.values()]
    assert told.each[0].difference.interval == paired_interval(*sides, bounds=ends[0])
    assert told.each[0].difference.interval.low == 0.0  # one failure in ten seeds is hidden
    assert told.differences["mean"].interval.high <= 1.125 - sum(poor[0]) / 2 + 0.01


def test_baseline_intervals_use_value_bounds():
    row = BaselineRow("rule", {"search": (500.0,) * 8}, {})
    [alone] = baseline_entries([row], [], "maximize")
    [known] = baseline_entries([row], [], "maximize", Bounds(0.0, 500.0))
    assert alone.around.low is None
    assert (known.around.low, known.around.high) == (pytest.approx(343.8, abs=0.1), 500.0)
