"""Lanes that start from a saved policy, whole or in part."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hpo.core.checkpoint import part_path, read_part, write_parts
from hpo.core.lane_state import RewardState, RunningStatistics, reward_notes
from hpo.core.plan import make_plan
from hpo.core.population import init_lane, kept, lane_shapes, start_from
from hpo.core.program import EvaluationPlan, Program
from hpo.errors import ConfigError, StoreError


@pytest.fixture(scope="module")
def lanes(tiny):
    """Two fresh lanes of the tiny plan, on other keys."""

    def make(replicate):
        numbers = (jnp.int32(0), jnp.int32(replicate), jnp.int32(0), jnp.int32(9))
        return init_lane(tiny.plan, jnp.int32(7), tiny.hypers(), *numbers)

    return make(0), make(1)


@pytest.fixture(scope="module")
def shapes(tiny):
    return lane_shapes(tiny.plan, tiny.hypers())


def statistics():
    return RunningStatistics.empty((4,)).merge(jnp.ones((3, 4), jnp.float32))


def equal(one, other):
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("keep", ["all", "critic", "policy"])
def test_what_is_kept_is_saved_and_the_rest_is_fresh(tiny, lanes, shapes, keep):
    saved, fresh = lanes
    initial = kept(tiny.plan, shapes, saved.params, statistics(), keep)
    started = start_from(fresh, initial)
    assert set(started.params) == set(fresh.params)
    for name, value in started.params.items():
        is_kept = keep == "all" or name.startswith("critic") == (keep == "critic")
        assert equal(value, (saved if is_kept else fresh).params[name]), name
    assert any(not equal(saved.params[name], fresh.params[name]) for name in saved.params)
    assert equal(started.observation_statistics, statistics())
    assert equal(started.moments, fresh.moments)
    rest = ("params", "observation_statistics")
    for field in dataclasses.fields(fresh):
        if field.name not in rest:
            assert equal(getattr(started, field.name), getattr(fresh, field.name))


def test_saved_optimiser_state_is_restored_on_request(tiny, lanes, shapes, tmp_path):
    saved, fresh = lanes
    moments = jax.tree.map(lambda x: x + jnp.ones_like(x), saved.moments)
    write_parts(tmp_path, {"optimiser": moments})
    read = read_part(tmp_path, "optimiser", shapes.moments)
    assert equal(read, moments)
    initial = kept(tiny.plan, shapes, saved.params, statistics(), "all").replace(moments=read)
    assert equal(start_from(fresh, initial).moments, moments)


def test_start_without_a_saved_policy_is_unchanged(lanes):
    assert start_from(lanes[1], None) is lanes[1]


def test_population_lanes_start_from_the_saved_policy(tiny, lanes, shapes, quickly):
    """With a step size of nothing, what comes out of a chunk is what went in."""
    saved = lanes[0]
    initial = kept(tiny.plan, shapes, jax.device_get(saved.params), statistics(), "policy")
    program = Program(
        tiny.plan,
        4,
        tiny.updates,
        2,
        EvaluationPlan(),
        tuple(jax.devices()),
        tiny.hypers(),
        jax.device_get(initial),
    )
    still = {"learning_rate": 1e-30, "normalise_observations": True}
    rows = tiny.start(program, {0: (still, 1), 3: (still, 2)})
    after, _ = program.advance(tiny.seed, program.empty(), rows)
    one, other = (program.lane_state(after, lane) for lane in (0, 3))
    for name in saved.params:
        if name.startswith("critic"):
            assert not equal(one.params[name], other.params[name])
        else:
            for lane in (one, other):
                pairs = zip(
                    jax.tree.leaves(lane.params[name]),
                    jax.tree.leaves(saved.params[name]),
                    strict=True,
                )
                assert all(np.allclose(a, b, rtol=0.0, atol=1e-25) for a, b in pairs), name
    steps = tiny.updates * tiny.plan.steps_per_update
    assert float(one.observation_statistics.count) == 3 + steps


def test_different_network_is_refused_naming_the_parameter(tiny, lanes):
    wider = make_plan({**tiny.knobs, "hidden_sizes": [9]}, tiny.plan.env, None, tiny.features)
    with pytest.raises(ConfigError, match=r"init: the parameter \w+/\S+ has shape \(.*8.*9"):
        kept(wider, lane_shapes(wider, tiny.hypers()), lanes[0].params, statistics(), "all")
    deeper = make_plan({**tiny.knobs, "hidden_sizes": [8, 8]}, tiny.plan.env, None, tiny.features)
    with pytest.raises(ConfigError, match=r"has shape none in the saved policy"):
        kept(deeper, lane_shapes(deeper, tiny.hypers()), lanes[0].params, statistics(), "all")


def test_normalisation_must_agree(tiny, lanes, shapes):
    with pytest.raises(ConfigError, match="without normalise_observations"):
        kept(tiny.plan, shapes, lanes[0].params, RunningStatistics.empty(()), "all")
    with pytest.raises(ConfigError, match="observations have a different shape"):
        kept(tiny.plan, shapes, lanes[0].params, RunningStatistics.empty((5,)), "all")
    plain = make_plan(tiny.knobs, tiny.plan.env, features=())
    bare = lane_shapes(plain, tiny.hypers())
    with pytest.raises(ConfigError, match="trained on normalised observations"):
        kept(plain, bare, lanes[0].params, statistics(), "all")
    initial = kept(plain, bare, lanes[0].params, RunningStatistics.empty(()), "all")
    assert initial.statistics is None
    # Gathered beside a lane that did not use them:
    initial = kept(plain, bare, lanes[0].params, statistics(), "all", normalised=False)
    assert initial.statistics is None


def test_missing_or_damaged_policy_parts_are_refused(shapes, tmp_path):
    with pytest.raises(StoreError, match=r"has no optimiser; train again with checkpoint"):
        read_part(tmp_path, "optimiser", shapes.moments)
    write_parts(tmp_path, {"optimiser": {"other": np.zeros(3)}})
    with pytest.raises(ConfigError, match="to a different network or optimiser"):
        read_part(tmp_path, "optimiser", shapes.moments)
    path = part_path(tmp_path, "optimiser")
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(StoreError, match="is damaged"):
        read_part(tmp_path, "optimiser", shapes.moments)


def test_policy_parts_are_plain_numpy_files(lanes, tmp_path):
    write_parts(tmp_path, {"parameters": lanes[0].params})
    with np.load(part_path(tmp_path, "parameters")) as file:
        names = list(file)
        total = sum(file[name].size for name in names)
    assert all("/" in name for name in names)
    assert total == sum(leaf.size for leaf in jax.tree.leaves(lanes[0].params))


def remembering(lane):
    """Return a lane that has seen rewards."""
    returns = RunningStatistics.empty(()).merge(jnp.asarray([1.0, 4.0, 10.0], jnp.float32))
    return lane.replace(
        return_statistics=returns, average_reward=jnp.float32(0.3), average_trace=jnp.float32(0.7)
    )


BOTH = ("normalise_rewards", "reward_centering")


@pytest.mark.parametrize("keep", ["all", "critic", "policy"])
def test_reward_statistics_are_restored_with_the_critic(tiny, lanes, keep):
    saved, fresh = remembering(lanes[0]), lanes[1]
    plan = make_plan(tiny.knobs, tiny.plan.env, None, ("normalise_observations", *BOTH))
    shapes = lane_shapes(plan, tiny.hypers())
    rewards = RewardState.of(jax.device_get(saved))
    initial = kept(plan, shapes, saved.params, statistics(), keep, rewards=rewards)
    started = start_from(fresh, jax.tree.map(jnp.asarray, initial))
    for name in ("return_statistics", "average_reward", "average_trace"):
        source = fresh if keep == "policy" else saved
        assert equal(getattr(started, name), getattr(source, name)), name
    running = ("discounted_return", "episode_return", "episode_length", "carry")
    assert all(equal(getattr(started, name), getattr(fresh, name)) for name in running)


def test_unused_reward_statistics_are_not_restored(tiny, lanes):
    plain = make_plan(tiny.knobs, tiny.plan.env, features=())
    bare, nothing = lane_shapes(plain, tiny.hypers()), RunningStatistics.empty(())
    rewards = RewardState.of(remembering(lanes[0]))
    initial = kept(plain, bare, lanes[0].params, nothing, "all", rewards=rewards)
    assert jax.tree.leaves(initial.rewards) == []


def test_unset_reward_statistics_do_not_override_the_study(lanes):
    """`average_reward_initial` is of this study, where the saved one centred nothing."""
    rewards = RewardState.of(lanes[0])
    assert rewards.fields() == {}


@pytest.mark.parametrize(
    ("initial", "average", "trace"),
    [(None, 0.0, 0.0), (0.0, 0.0, 1.0), (0.5, 0.5, 1.0), (-0.25, -0.25, 1.0)],
)
def test_average_reward_initial_zero_differs_from_off(tiny, initial, average, trace):
    """A known average moves by `average_reward_step` from the start: its trace is whole."""
    hypers = tiny.hypers(reward_centering=True, average_reward_initial=initial)
    numbers = (jnp.int32(0), jnp.int32(0), jnp.int32(0), jnp.int32(9))
    lane = init_lane(tiny.plan, jnp.int32(7), hypers, *numbers)
    assert (float(lane.average_reward), float(lane.average_trace)) == (average, trace)


def test_reward_statistics_round_trip_json_bitwise(lanes):
    rewards = RewardState.of(remembering(lanes[0]))
    read = RewardState.from_data(**json.loads(json.dumps(rewards.as_data())))
    assert len(jax.tree.leaves(rewards)) == 5
    assert equal(read, rewards)
    assert RewardState.from_data(**RewardState().as_data()).fields() == {}


def test_reward_deviation_in_different_units_is_dropped_with_a_note(tiny, lanes):
    """That of returns means nothing to a lane that divides by that of rewards."""
    rewards = RewardState.of(remembering(lanes[0]))
    plan = make_plan(tiny.knobs, tiny.plan.env, None, BOTH)
    for saved in (False, True):
        assert rewards.in_units(saved, frozenset({saved})) is rewards
        for here in ({not saved}, {False, True}):
            left = rewards.in_units(saved, frozenset(here))
            assert left.returns is None and left.average is rewards.average
            (note,) = reward_notes(plan, left, same_units=False)
            assert "reward statistics (normalise_rewards)" in note and "average" not in note
            assert note.endswith("(its raw_reward_deviation may be different)")


def test_missing_reward_statistics_are_noted(tiny, lanes):
    plan = make_plan(tiny.knobs, tiny.plan.env, None, BOTH)
    (old,) = reward_notes(plan, None)
    assert "reward statistics (normalise_rewards) and average reward" in old
    assert "written by an earlier version" in old
    returns = remembering(lanes[0]).return_statistics
    (part,) = reward_notes(plan, RewardState(returns=returns))
    assert "no average reward (reward_centering)" in part and "trained without" in part
    assert reward_notes(plan, RewardState.of(remembering(lanes[0]))) == []
    assert reward_notes(make_plan(tiny.knobs, tiny.plan.env, features=()), None) == []
