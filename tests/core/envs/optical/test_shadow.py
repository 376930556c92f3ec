"""A shadow serves what the heuristic would, and takes luck away without bias."""

import functools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hpo.core.envs import registry
from hpo.core.envs.optical.optical_environment import make_from_keys
from hpo.core.envs.optical.traffic import random_words
from hpo.core.envs.traced_once import trace_once
from hpo.core.hypers import make_hypers
from hpo.core.lane_state import use_key
from hpo.core.plan import EnvPlan, make_plan
from hpo.core.population import init_lane
from hpo.core.pytree import stack
from hpo.core.rollout import ROLLOUT_STEPS, rollout
from hpo.core.update import prepare, update
from hpo.errors import ConfigError, UnknownNameError

pytestmark = pytest.mark.usefixtures("quickly_compiled")

NETWORK = {"topology": "ring4", "k": 2, "slots": 12, "warmup_requests": 0}
ENVS, STEPS = 3, 40
RESET = np.uint32(0x9E3779B9)


class Lanes:
    """Lanes of one program, all with the same seed: they meet the same requests."""

    def __init__(self, id_, keys, lanes, features=(), **config):
        self.config = {
            "num_envs": ENVS,
            "rollout_length": STEPS,
            "hidden_sizes": [8],
            "num_minibatches": 1,
            "update_epochs": 1,
            "policy_gain": 3.0,
            **config,
        }
        where = EnvPlan(id_, tuple(sorted({**NETWORK, **keys}.items())))
        self.plan = make_plan(self.config, where, features=features)
        self.env = registry.make(self.plan.env)
        made = []
        for knobs in lanes:
            knobs = {**self.config, **knobs}
            load = knobs.pop("load", 30.0)
            params = self.env.default_params.replace(load=jnp.float32(load))
            made.append(make_hypers(knobs, params, params))
        self.hypers = stack(made)
        self._rolled = jax.jit(self._roll)

    def begin(self, hypers):
        zero, many = jnp.int32(0), jnp.int32(10)
        one = partial(init_lane, self.plan, jnp.int32(5))
        return jax.lax.map(lambda h: one(h, zero, zero, zero, many), hypers)

    @functools.cached_property
    def state(self):
        return jax.jit(self.begin)(self.hypers)

    def _roll(self, hypers, state):
        played = rollout(self.plan, hypers, state)
        return played, prepare(self.plan, hypers, played)

    def rolled(self, state=None):
        """Return a rollout of all lanes and what they would learn from."""
        return self._rolled(self.hypers, self.state if state is None else state)


def requests_of(lanes):
    """Step the requests of every environment by hand, from lanes' keys, [L, E, T]."""
    env = lanes.env

    def step(params, state, words):
        key = jax.random.wrap_key_data(words, impl="threefry2x32")
        row = {
            "pair": state.request.pair,
            "bitrate": state.request.bitrate,
            "holding": state.request.holding,
            "wait": env.traffic.wait(random_words(key, 4), state.number, params),
        }
        after = env.step(key, state, jnp.int32(0), params)
        again = jax.random.wrap_key_data(words.at[1].set(words[1] ^ RESET), impl="threefry2x32")
        fresh, _ = env.reset(again, params)
        row["done"] = after.truncated
        return jax.tree.map(lambda a, b: jnp.where(after.truncated, a, b), fresh, after.state), row

    def one(params, state, words):
        return jax.lax.scan(partial(step, params), state, words)[1]

    def lane(hypers, state):
        key = use_key(state.key, ROLLOUT_STEPS, 0)
        words = jax.random.bits(key, (STEPS, ENVS, 2)).swapaxes(0, 1)
        return jax.vmap(partial(one, hypers.env_params))(state.env_state, words)

    return jax.device_get(jax.jit(jax.vmap(lane))(lanes.hypers, lanes.state))


WEIGHTS, LOADS = (0.0, 0.5, 1.0), (20.0, 200.0, 200.0)
KNOBS = {"normalise_rewards": True, "reward_centering": True, "average_reward_initial": -0.4,
         "vf_gae_lambda": 0.5, "reward_scale": 3.0, "reward_clip": 1.5}  # fmt: skip


@pytest.fixture(scope="module")
def lanes():
    """Lanes of other weights and loads, whose episodes end, with the features of rewards."""
    keys = {"continuous": False, "max_requests": 30, "slots": 6, "aggregate_slots": 4,
            "no_op": True}  # fmt: skip
    each = [
        {**KNOBS, "shadow_weight": weight, "load": load}
        for weight, load in zip(WEIGHTS, LOADS, strict=True)
    ]
    features = ("normalise_rewards", "reward_centering", "vf_gae_lambda")
    return Lanes("rmsa", {**keys, "shadow": "ksp_bf"}, each, features)


def test_it_is_the_heuristics_own_simulation_request_for_request(lanes, simulator):
    """From an empty network on, in lanes of other loads, and through the end of episodes."""
    played, _ = lanes.rolled()
    settings, blocked, asked = lanes.env.settings, [], requests_of(lanes)
    for lane in range(len(LOADS)):
        for e in range(ENVS):
            rows = {name: values[lane, e] for name, values in asked.items()}
            slow = simulator.SlowNetwork(
                lanes.env.tables, "rmsa", settings.slots, settings.width, settings.guardband
            )
            for t in range(STEPS):
                slow.ask(int(rows["pair"][t]), float(rows["bitrate"][t]))
                holding, wait = int(rows["holding"][t]), int(rows["wait"][t])
                accepted = slow.serve(*slow.choose("ksp_bf"), holding, wait)
                assert played.trajectory.shadow.reward[t, lane, e] == accepted - 1.0, (lane, e, t)
                blocked.append(not accepted)
                if rows["done"][t]:
                    slow.forget()
    assert 0.02 < np.mean(blocked) < 0.8
    assert not np.array_equal(played.trajectory.shadow.reward, played.trajectory.reward)
    np.testing.assert_array_equal(
        played.sums.info["blocked"], -np.asarray(played.trajectory.reward).sum((0, 2))
    )


def test_shadow_is_independent_of_policy_actions(lanes):
    """Two policies that act otherwise have one shadow, so that its expected gradient is zero."""
    other = jax.tree.map(lambda x: -2.0 * x, lanes.state.params)
    params = jax.tree.map(lambda a, b: jnp.stack([a[0], a[1], b[2]]), lanes.state.params, other)
    played, (_, _, samples) = lanes.rolled(lanes.state.replace(params=params))
    seen = played.trajectory
    assert not np.array_equal(seen.action[:, 1], seen.action[:, 2])
    assert not np.array_equal(seen.reward[:, 1], seen.reward[:, 2])
    np.testing.assert_array_equal(seen.shadow.reward[:, 1], seen.shadow.reward[:, 2])
    assert not np.array_equal(seen.shadow.reward[:, 0], seen.shadow.reward[:, 1]), "other loads"
    assert not np.array_equal(2.0 * samples.shadow[1], samples.shadow[2]), "their critics differ"


def summed(steps, reward, value, following, cut, decay):
    """Generalised advantages [T, E] by their definition, in float64."""
    found, later = np.zeros((steps, ENVS)), np.zeros(ENVS)
    for t in reversed(range(steps)):
        delta = reward[t] + 0.99 * following[t] - value[t]
        later = delta + 0.99 * decay * ~cut[t] * later
        found[t] = later
    return found


def test_advantages_are_less_those_of_the_shadow_and_targets_are_not(lanes):
    """In the learner's units, with centred rewards, and cut where episodes are."""
    _, (_, state, _) = lanes.rolled()
    state = state.replace(updates=state.updates + 1)
    played, (_, after, samples) = lanes.rolled(state)
    seen, beside = played.trajectory, played.trajectory.shadow
    for lane, weight in enumerate(WEIGHTS):
        statistics = jax.tree.map(lambda x, lane=lane: x[lane], after.return_statistics)
        cut = np.asarray(seen.truncated[:, lane])

        def advantages(steps, last, decay, lane=lane, statistics=statistics, cut=cut):
            reward = np.clip(steps.reward[:, lane] * 3.0 / float(statistics.std()), -1.5, 1.5)
            reward = reward - float(state.average_reward[lane])
            value = np.asarray([*steps.value[:, lane], last[lane]], np.float64)
            following = np.where(cut, steps.bootstrap[:, lane], value[1:])
            return summed(STEPS, reward, value, following, cut, decay)

        theirs = advantages(beside, played.shadow_value, 0.95)
        mine = advantages(seen, played.last_value, 0.95) - weight * theirs
        target = advantages(seen, played.last_value, 0.5) + np.asarray(seen.value[:, lane])
        for name, expected in (
            ("shadow", weight * theirs),
            ("advantage", mine),
            ("target", target),
        ):
            found = getattr(samples, name)[lane].reshape(STEPS, ENVS)
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
        assert cut.any() and np.all(beside.bootstrap[:, lane][~cut] == 0.0)
        assert np.all(beside.bootstrap[:, lane][cut] != 0.0) and np.abs(theirs).max() > 0.1


def shapes(tree):
    return [(x.shape, x.dtype) for x in jax.tree.leaves(tree)], jax.tree.structure(tree)


ONE_CHOICE = {"k": 1, "aggregate_slots": 12, "shadow": "ksp_ff"}


def test_policy_equal_to_its_shadow_has_zero_advantage():
    """One path and one block leave no choice; with memory, history, drawn matrices, episodes."""
    keys = {**ONE_CHOICE, "traffic_matrix": "random", "continuous": False, "max_requests": 15}
    config = {"network": "gru", "recurrent_size": 4, "history": 2}  # a knob: see `make_plan`
    weights = [{"shadow_weight": 1.0}, {"shadow_weight": 0.0}]
    lanes = Lanes("rsa", keys, weights, **config)
    state = lanes.state
    for _ in range(2):
        played, (_, state, samples) = lanes.rolled(state)
        state = state.replace(updates=state.updates + 1)
        np.testing.assert_array_equal(samples.advantage[0], 0.0)
        assert np.std(samples.advantage[1]) > 0.1
        np.testing.assert_array_equal(samples.target[0], samples.target[1])
    assert (np.asarray(played.trajectory.reward) < 0).any()
    plain = Lanes("rsa", {**keys, "shadow": ""}, [{}] * 2, **config)
    expected = jax.eval_shape(plain.begin, plain.hypers)
    assert shapes(lanes.state) == shapes(expected), "a checkpoint knows no shadow"


def test_v_trace_is_less_the_shadow_too():
    both = [
        {
            "shadow_weight": w,
            "rho_clip": 1.0,
            "c_clip": 1.0,
            "normalise_advantages": False,
            "masking_gating": False,
            "masking_damping": False,
        }
        for w in (1.0, 0.0)
    ]
    keys = {"k": 1, "shadow": "ksp_ff", "observation": "packed"}
    lanes = Lanes("deeprmsa", keys, both, features=("v_trace",))
    _, metrics = jax.jit(partial(update, lanes.plan))(lanes.hypers, lanes.state)
    assert metrics.policy_loss[0] == pytest.approx(0.0, abs=1e-5)
    assert abs(metrics.policy_loss[1]) > 1e-2
    np.testing.assert_allclose(metrics.features["shadow_removed"], [1.0, 0.0], atol=1e-6)
    assert metrics.value_loss[0] == metrics.value_loss[1] > 0.0


def test_unsupported_shadow_settings_are_refused():
    with pytest.raises(UnknownNameError, match="did you mean 'ksp_ff'"):
        make_from_keys(id="rmsa", **NETWORK, shadow="ksp_fff")
    with pytest.raises(ConfigError, match="must end at the same request"):
        make_from_keys(id="rmsa", **NETWORK, shadow="ksp_ff", end_first_blocking=True)
    assert make_from_keys(id="rmsa", **NETWORK, shadow=None).has_shadow is False


def test_shadow_with_mismatched_shapes_is_refused_at_tracing():
    env = make_from_keys(id="rmsa", **NETWORK, shadow="ksp_ff")

    class Other(type(env)):
        def shadow_step(self, key, state, params):
            after = super().shadow_step(key, state, params)
            return after.replace(observation=after.observation[1:])

    trace_once(env)
    with pytest.raises(
        ConfigError, match=r"shadow_step returns the wrong structure:\n +observation is"
    ):
        trace_once(Other(env.settings))
