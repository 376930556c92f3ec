"""What the next update of a lane would see."""

import jax
import numpy as np
import pytest

from hpo.core.envs import registry
from hpo.core.hypers import make_hypers
from hpo.core.plan import EnvPlan, make_plan
from hpo.core.population import lane_shapes
from hpo.core.update import inspect_lane

KNOBS = {"gamma": 0.9, "gae_lambda": 0.8, "normalise_rewards": False}


@pytest.fixture(scope="module")
def seen(tiny):
    """A lane after two updates, and what its next one would see."""
    program = tiny.program()
    rows = tiny.start(program, {3: (KNOBS, 1)})
    lanes, _ = program.advance(tiny.seed, program.empty(), rows)
    state = program.lane_state(lanes, 3)
    hypers = tiny.hypers(**KNOBS)
    run = jax.jit(lambda h, s: inspect_lane(tiny.plan, h, s))
    return state, jax.device_get(run(hypers, state))


def test_inspected_rollout_has_the_plan_shapes(seen, tiny):
    _, parts = seen
    trajectory = parts["trajectories"]
    shape = (tiny.plan.rollout_length, tiny.plan.num_envs)
    assert trajectory.reward.shape == trajectory.action.shape == shape
    assert trajectory.observation.shape == (*shape, 4)
    assert np.all(trajectory.reward == 1.0)


def test_inspected_rollout_contains_env_info():
    where = EnvPlan("navigators")
    knobs = {"num_envs": 2, "rollout_length": 4, "hidden_sizes": [4], "num_minibatches": 1}
    plan, params = make_plan(knobs, where), registry.make(where).default_params
    hypers = make_hypers(knobs, params, params)
    lane = lane_shapes(plan, hypers)
    info = jax.eval_shape(lambda h, s: inspect_lane(plan, h, s), hypers, lane)["trajectories"].info
    shapes = {name: value.shape for name, value in info.items()}
    assert shapes == {"arrived": (4, 2), "touching": (4, 2)}


def test_advantages_follow_their_recursion(seen):
    """A_t = delta_t + gamma lambda A_{t+1} within an episode (see `advantages.gae`)."""
    _, parts = seen
    trajectory, advantage = parts["trajectories"], parts["advantages"]["advantage"]
    steps = 0
    for t in range(len(advantage) - 1):
        for e in range(advantage.shape[1]):
            ended, cut = trajectory.terminated[t, e], trajectory.truncated[t, e]
            after = trajectory.bootstrap[t, e] if cut else trajectory.value[t + 1, e]
            expected = trajectory.reward[t, e] - trajectory.value[t, e]
            expected += 0.0 if ended else 0.9 * after
            expected += 0.0 if ended or cut else 0.9 * 0.8 * advantage[t + 1, e]
            assert advantage[t, e] == pytest.approx(expected, abs=1e-4)
            steps += 1
    assert steps > 50
    np.testing.assert_allclose(
        parts["advantages"]["target"], advantage + trajectory.value, rtol=1e-5, atol=1e-5
    )


def test_inspected_losses_precede_any_gradient_step(seen):
    losses = seen[1]["losses"]
    assert losses.ratio_mean == pytest.approx(1.0, abs=1e-5) and losses.clip_fraction == 0.0
    trajectory, target = seen[1]["trajectories"], seen[1]["advantages"]["target"]
    squares = 0.5 * np.mean((trajectory.value - target) ** 2)
    assert losses.value_loss == pytest.approx(squares, rel=1e-4)


def test_inspected_gradients_match_parameter_shapes(seen):
    state, parts = seen
    assert jax.tree.structure(parts["gradients"]) == jax.tree.structure(state.params)
    for gradient, value in zip(
        jax.tree.leaves(parts["gradients"]), jax.tree.leaves(state.params), strict=True
    ):
        assert gradient.shape == value.shape and np.isfinite(gradient).all()
        assert np.any(gradient != 0.0)
