import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers import countdown, slow
from hpo.core.envs import registry
from hpo.core.hypers import make_hypers
from hpo.core.lane_state import use_key
from hpo.core.plan import EnvPlan, make_plan
from hpo.core.population import ENV_RESET, init_lane
from hpo.core.pytree import stack
from hpo.core.rollout import ROLLOUT_STEPS, rollout

pytestmark = pytest.mark.usefixtures("quickly_compiled")

LANES = 2


class Rolled:
    """Two lanes of one environment after two rollouts, on the host; seeds 0 and 1 differ."""

    def __init__(self, where, steps, envs=3):
        config = {"num_envs": envs, "rollout_length": steps, "hidden_sizes": [4],
                  "policy_gain": 1.0, "normalise_observations": True}  # fmt: skip
        self.plan = make_plan(config, where, features=("normalise_observations",))
        self.env = registry.make(where)
        params = self.env.default_params
        self.hypers = stack([make_hypers(config, params, params)] * LANES)
        replicates = jnp.arange(LANES, dtype=jnp.int32)

        def start(args):
            hypers, replicate = args
            zero, many = jnp.int32(0), jnp.int32(10)
            return init_lane(self.plan, jnp.int32(5), hypers, zero, replicate, zero, many)

        begin = jax.jit(lambda hypers: jax.lax.map(start, (hypers, replicates)))
        once = jax.jit(lambda hypers, state: rollout(self.plan, hypers, state))
        first = begin(self.hypers)
        begun = once(self.hypers, first)
        second = begun.state.replace(updates=begun.state.updates + 1)
        went_on = once(self.hypers, second)
        self.states, self.seen = jax.device_get(((first, second, went_on.state), (begun, went_on)))

    def lane(self, lane):
        """Return (states, both rollouts' (trajectory, sums, last value)) of one lane."""

        def at(tree, axis):
            return jax.tree.map(lambda x: np.take(x, lane, axis=axis), tree)

        seen = [
            (at(played.trajectory, 1), at(played.sums, 0), at(played.last_value, 0))
            for played in self.seen
        ]
        return [at(state, 0) for state in self.states], seen


@pytest.fixture(scope="module")
def cartpole():
    return Rolled(EnvPlan("CartPole-v1"), 40)


@pytest.fixture(scope="module")
def pendulum():
    return Rolled(EnvPlan("Pendulum-v1", (("max_steps_in_episode", 7),)), 10)


@pytest.fixture(scope="module")
def masked():
    return Rolled(countdown.plan_of(), 20)


@pytest.fixture(params=["cartpole", "pendulum", "masked"])
def rolled(request):
    return request.getfixturevalue(request.param)


def reset_key(words):
    """A reset's key is the step's with one word changed."""
    return jax.random.wrap_key_data(
        words ^ np.array([0, 0x9E3779B9], np.uint32), impl="threefry2x32"
    )


def walked(id_, params, state, seen, words, start):
    """Step gymnax by hand with the actions of a trajectory of one environment.

    Gives what each step saw: (observation before, reward, terminated, truncated, final).
    """
    env, full = gymnax.make(id_)
    full = full.replace(**params)
    reset, step = jax.jit(env.reset_env), jax.jit(env.step_env)
    rows = []
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        observation = start
        for t, action in enumerate(seen):
            key = jax.random.wrap_key_data(words[t], impl="threefry2x32")
            box = env.action_space(full)
            action = np.clip(action, box.low, box.high) if hasattr(box, "low") else action
            after, state, reward, terminated, _ = step(key, state, action, full)
            truncated = env.is_truncated(state, full)
            row = np.asarray(reward).item(), bool(terminated), bool(truncated)
            rows.append((np.asarray(observation), *row, np.asarray(after)))
            observation = after
            if terminated or truncated:
                observation, state = reset(reset_key(words[t]), full)
    return rows, np.asarray(observation)


@pytest.mark.parametrize(
    ("name", "id_", "params", "ends"),
    [
        ("cartpole", "CartPole-v1", {}, "terminated"),
        ("pendulum", "Pendulum-v1", {"max_steps_in_episode": 7}, "truncated"),
    ],
)
def test_it_is_gymnax_stepped_by_hand(request, name, id_, params, ends):
    rolled = request.getfixturevalue(name)
    shape = rolled.plan.rollout_length, rolled.plan.num_envs, 2
    found = 0
    for lane in range(LANES):
        states, seen = rolled.lane(lane)
        for state, after, (trajectory, _, _) in zip(states, states[1:], seen, strict=False):
            words = np.asarray(
                jax.random.bits(use_key(state.key, ROLLOUT_STEPS, int(state.updates)), shape)
            )
            for e in range(rolled.plan.num_envs):
                env_state = jax.tree.map(lambda x, e=e: x[e], state.env_state)
                rows, last = walked(
                    id_,
                    params,
                    env_state,
                    trajectory.action[:, e],
                    words[:, e],
                    state.observation[e],
                )
                for t, (observation, reward, terminated, truncated, _) in enumerate(rows):
                    np.testing.assert_allclose(
                        trajectory.observation[t, e], observation, rtol=1e-3, atol=1e-3
                    )
                    assert trajectory.reward[t, e] == pytest.approx(reward, rel=1e-3, abs=1e-3)
                    assert trajectory.terminated[t, e] == terminated
                    assert trajectory.truncated[t, e] == truncated
                    found += terminated if ends == "terminated" else truncated
                np.testing.assert_allclose(after.observation[e], last, rtol=1e-3, atol=1e-3)
    assert found >= LANES * 2  # episodes did end within the rollouts, and were reset


def test_first_observations_are_env_resets_with_separate_keys(cartpole):
    for lane in range(LANES):
        (first, _, _), _ = cartpole.lane(lane)
        keys = jax.random.split(use_key(first.key, ENV_RESET), cartpole.plan.num_envs)
        for key, observation in zip(keys, first.observation, strict=True):
            made = cartpole.env.reset(key, cartpole.env.default_params)[1]
            np.testing.assert_allclose(made, observation, rtol=0.0, atol=1e-7)
    assert len(np.unique(cartpole.states[0].observation[..., 0])) == LANES * 3


def test_truncated_step_bootstraps_from_the_final_observation(pendulum):
    for lane in range(LANES):
        states, seen = pendulum.lane(lane)
        params = slow.as_float64(states[0].params)
        for trajectory, _, last in seen:
            cut = trajectory.truncated
            assert cut.any() and not trajectory.terminated.any()
            assert np.all(trajectory.bootstrap[~cut] == 0.0)
            for t, e in zip(*np.nonzero(cut), strict=True):
                theta = step_pendulum(trajectory.observation[t, e], trajectory.action[t, e])
                value = slow.network(params, theta[None])[1][0]
                assert trajectory.bootstrap[t, e] == pytest.approx(value, abs=1e-4)
                following = trajectory.value[t + 1, e] if t + 1 < len(cut) else last[e]
                assert abs(following - value) > 1e-4  # that of the next episode differs


def step_pendulum(observation, action):
    """Return the next observation of a pendulum by its equations (g 10, m 1, l 1, dt 0.05)."""
    cosine, sine, speed = (float(x) for x in observation)
    torque = min(max(float(action[0]), -2.0), 2.0)
    speed = min(max(speed + (15.0 * sine + 3.0 * torque) * 0.05, -8.0), 8.0)
    angle = np.arctan2(sine, cosine) + speed * 0.05
    return np.array([np.cos(angle), np.sin(angle), speed])


def test_rollout_values_and_log_probs_match_the_network(rolled):
    for lane in range(LANES):
        states, seen = rolled.lane(lane)
        params = slow.as_float64(states[0].params)
        for i, (trajectory, _, last) in enumerate(seen):
            rows = {
                "observation": trajectory.observation,
                "action": trajectory.action,
                "mask": trajectory.mask,
            }
            flat = {k: None if v is None else v.reshape(-1, *v.shape[2:]) for k, v in rows.items()}
            log_prob, _, value = slow.policy_terms(params, flat)
            np.testing.assert_allclose(trajectory.log_prob.ravel(), log_prob, atol=1e-4)
            np.testing.assert_allclose(trajectory.value.ravel(), value, atol=1e-4)
            after = slow.network(params, states[i + 1].observation)[1]
            np.testing.assert_allclose(last, after, atol=1e-4)


def test_episode_sums_cover_finished_episodes(rolled):
    for lane in range(LANES):
        states, seen = rolled.lane(lane)
        running = np.zeros(rolled.plan.num_envs)
        length = np.zeros(rolled.plan.num_envs, int)
        for state, (trajectory, sums, _) in zip(states[1:], seen, strict=True):
            episodes, returns, lengths = 0, 0.0, 0
            ended = trajectory.terminated | trajectory.truncated
            for t in range(len(ended)):
                running += trajectory.reward[t]
                length += 1
                for e in np.nonzero(ended[t])[0]:
                    episodes += 1
                    returns += running[e]
                    lengths += length[e]
                    running[e], length[e] = 0.0, 0
            assert episodes > 0
            assert (sums.episodes, sums.lengths) == (episodes, lengths)
            assert sums.returns == pytest.approx(returns, rel=1e-4)
            np.testing.assert_allclose(state.episode_return, running, rtol=1e-4, atol=1e-4)
            np.testing.assert_array_equal(state.episode_length, length)


def test_terminated_and_truncated_step_is_not_bootstrapped(masked):
    both = ends = 0
    for lane in range(LANES):
        for trajectory, _, _ in masked.lane(lane)[1]:
            at_once = trajectory.terminated & trajectory.truncated
            both += at_once.sum()
            ends += (trajectory.terminated & ~trajectory.truncated).sum()
            assert np.all(trajectory.bootstrap[trajectory.terminated] == 0.0)
            cut = trajectory.truncated & ~trajectory.terminated
            assert np.all(trajectory.bootstrap[cut] != 0.0)
    assert both > 0 and ends > 0


def test_masked_rollout_takes_only_valid_actions_and_sums_info(masked):
    """Where nothing is valid (the fourth step) anything is taken, and counted as invalid."""
    seen_none = False
    for lane in range(LANES):
        for trajectory, sums, _ in masked.lane(lane)[1]:
            taken = np.take_along_axis(trajectory.mask, trajectory.action[..., None], -1)[..., 0]
            none = ~trajectory.mask.any(axis=-1)
            assert np.all(taken | none)
            assert sums.info["invalid"] == none.sum()
            seen_none |= none.any()
    assert seen_none
    assert np.isfinite(masked.seen[1].trajectory.reward).all()  # nobody stepped past an end


def test_next_rollout_continues_with_new_random_numbers(cartpole):
    for lane in range(LANES):
        states, seen = cartpole.lane(lane)
        np.testing.assert_array_equal(seen[1][0].observation[0], states[1].observation)
        assert not np.array_equal(seen[0][0].action, seen[1][0].action)
    first, second = (cartpole.lane(lane)[1][0][0] for lane in range(LANES))
    assert not np.array_equal(first.action, second.action)
