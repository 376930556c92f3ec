import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from hpo.core import policy
from hpo.core.distributions import family_of
from hpo.core.envs import registry
from hpo.core.envs.contract import Box, Discrete, MultiDiscrete
from hpo.core.hypers import make_hypers
from hpo.core.networks.layers import Outputs
from hpo.core.plan import EnvPlan, make_plan
from hpo.core.policy import action_range, environment_action, head_outputs
from hpo.core.population import init_lane
from hpo.core.update import update
from hpo.errors import ConfigError
from hpo.knobs import complete

pytestmark = pytest.mark.usefixtures("quickly_compiled")

KINDS = ("gaussian", "tanh_gaussian", "beta")
PENDULUM = EnvPlan("Pendulum-v1", (("max_steps_in_episode", 9),))
KNOBS = {"num_envs": 3, "rollout_length": 8, "num_minibatches": 2, "hidden_sizes": [6],
         "policy_gain": 1.0, "ent_coef": 0.01, "learning_rate": 3e-3}  # fmt: skip


def plan_of(env=PENDULUM, **knobs):
    return make_plan({**KNOBS, **knobs}, env, features=())


class Space:
    """An environment as far as its actions go."""

    id = "test-space"
    observation_struct = default_params = None
    has_mask = never_ends = False
    warmup_steps = 0

    def reset(self, *_):
        raise NotImplementedError

    step = action_mask = summarise = reset

    def __init__(self, space):
        self.action_space = space


UNBOUNDED = Space(Box((-np.inf, -1.0), (np.inf, 1.0), (2,)))
SQUARE = Space(Box((-1.0, 0.0, -3.0, 2.0), (1.0, 4.0, -2.0, 6.0), (2, 2)))


@pytest.mark.parametrize(
    ("space", "kind", "shape", "outputs"),
    [
        (Discrete(5), "categorical", (), 5),
        (MultiDiscrete((3, 2)), "multi_discrete", (2,), 5),
        (Box((-1.0,), (1.0,), (1,)), "gaussian", (1,), 1),
        (SQUARE.action_space, "gaussian", (4,), 4),
        (SQUARE.action_space, "tanh_gaussian", (4,), 4),
        (SQUARE.action_space, "beta", (4,), 8),
    ],
)
def test_action_spaces_accept_their_distribution_kinds(space, kind, shape, outputs):
    env = Space(space)
    unset = kind in ("categorical", "multi_discrete", "gaussian")
    plan = plan_of(**({} if unset else {"distribution": kind}))
    assert policy.distribution_kind(plan, env) == kind
    assert policy.action_shape(env) == shape and head_outputs(plan, env) == outputs
    assert policy.has_log_std(plan, env) == ("gaussian" in kind)
    assert policy.distribution_kind(plan_of(distribution=kind), env) == kind


@pytest.mark.parametrize(
    ("space", "kind"), [(Discrete(2), "beta"), (SQUARE.action_space, "categorical")]
)
def test_distribution_incompatible_with_action_space_is_refused(space, kind):
    with pytest.raises(ConfigError, match=f"'{kind}', which does not fit .*one of: "):
        policy.distribution_kind(plan_of(distribution=kind), Space(space))


def test_a_range_of_one_s_own_replaces_the_space_s():
    low, high = action_range(plan_of(action_low=-5.0), SQUARE.action_space)
    assert (list(low), list(high)) == ([-5.0] * 4, [1.0, 4.0, -2.0, 6.0])
    low, high = action_range(plan_of(action_low=-9.0, action_high=9.0), UNBOUNDED.action_space)
    assert (list(low), list(high)) == ([-9.0, -9.0], [9.0, 9.0])


def test_empty_action_range_is_refused():
    with pytest.raises(ConfigError, match="from 3 to 1; action_low must be below"):
        action_range(plan_of(action_low=3.0), SQUARE.action_space)
    with pytest.raises(ConfigError, match=r"action_low .2. must be below action_high .1."):
        complete({"action_low": 2.0, "action_high": 1.0})


@pytest.mark.parametrize("kind", KINDS)
def test_invalid_action_range_is_refused_at_network_creation(kind):
    """So that `hpo check` says it, which knows shapes alone."""
    with pytest.raises(ConfigError, match="from 3 to 1"):
        head_outputs(plan_of(action_low=3.0, distribution=kind), SQUARE)
    if kind != "gaussian":
        with pytest.raises(ConfigError, match="set action_low and action_high"):
            head_outputs(plan_of(distribution=kind), UNBOUNDED)
    assert head_outputs(plan_of(action_low=-5.0, distribution=kind), SQUARE) in (4, 8)


@pytest.mark.parametrize("kind", ["tanh_gaussian", "beta"])
def test_unbounded_box_requires_an_action_range(kind):
    plan, rows = plan_of(distribution=kind), jnp.zeros((3, 2), jnp.float32)
    with pytest.raises(
        ConfigError, match=r"test-space are unbounded; set action_low and action_high"
    ):
        environment_action(plan, UNBOUNDED, rows)
    bounded = plan_of(distribution=kind, action_low=-2.0, action_high=3.0)
    np.testing.assert_allclose(environment_action(bounded, UNBOUNDED, rows), np.full((3, 2), 0.5))


def test_actions_are_mapped_into_the_box_and_no_further():
    raw = np.array([[-50.0, -1.0, 0.3, 80.0], [1e4, 0.0, -0.2, -1e4]], np.float32)
    low, high = (np.array(x) for x in (SQUARE.action_space.low, SQUARE.action_space.high))
    wanted = {
        "gaussian": raw,
        "tanh_gaussian": low + (high - low) * (np.tanh(raw.astype(np.float64)) + 1) / 2,
        "beta": low + (high - low) * scipy.special.expit(raw.astype(np.float64)),
    }
    for kind, expected in wanted.items():
        made = environment_action(plan_of(distribution=kind), SQUARE, jnp.asarray(raw))
        assert made.shape == (2, 2, 2)  # as the environment takes it
        flat = np.asarray(made).reshape(2, 4)
        np.testing.assert_allclose(flat, expected, rtol=1e-5, atol=1e-6)
        if kind != "gaussian":
            assert np.all(flat >= low) and np.all(flat <= high)
    raw = jnp.asarray(raw)
    clipped = environment_action(plan_of(action_low=-0.5, action_high=0.25), SQUARE, raw)
    np.testing.assert_array_equal(np.asarray(clipped).reshape(2, 4), raw.clip(-0.5, 0.25))
    half = environment_action(plan_of(action_high=0.25), UNBOUNDED, raw[:, :2])
    np.testing.assert_array_equal(
        half, np.stack([raw[:, 0].clip(None, 0.25), raw[:, 1].clip(-1.0, 0.25)], 1)
    )


def test_discrete_actions_are_passed_unchanged():
    action = jnp.arange(6, dtype=jnp.int32).reshape(3, 2)
    assert environment_action(plan_of(), Space(MultiDiscrete((6, 6))), action) is action


class Learned:
    """One lane of Pendulum after an update, and after another, by one distribution."""

    def __init__(self, kind):
        self.plan = plan_of(distribution=kind)
        self.env = registry.make(self.plan.env)
        params = self.env.default_params
        self.hypers = make_hypers(KNOBS, params, params)

        @jax.jit
        def begin(hypers):
            zero, many = jnp.int32(0), jnp.int32(10)
            return init_lane(self.plan, jnp.int32(1), hypers, zero, zero, zero, many)

        once = jax.jit(lambda *lanes: update(self.plan, *lanes))
        state = begin(self.hypers)
        rows = jax.tree.map(lambda x: np.asarray(x)[None], (self.hypers, state))
        first = once(*rows)
        second = once(rows[0], first[0])
        self.state, self.first, self.second = jax.device_get((state, first, second))


@pytest.fixture(scope="module", params=["tanh_gaussian", "beta"])
def learned(request):
    return Learned(request.param)


def test_the_ratio_is_one_before_the_first_gradient_step(learned):
    for state, metrics in (learned.first, learned.second):
        assert metrics.ratio_start_error <= 1e-6 and metrics.ratio_std > 0.0
        assert not metrics.diverged and all(
            map(np.all, jax.tree.map(np.isfinite, jax.tree.leaves(state.params)))
        )
    moved = jax.tree.map(
        lambda a, b: np.abs(a - b[0]).max(), learned.state.params, learned.first[0].params
    )
    assert min(jax.tree.leaves(moved)) > 0.0
    assert learned.first[1].entropy != learned.second[1].entropy


@pytest.mark.parametrize("kind", KINDS)
def test_samples_and_modes_agree_with_density_and_entropy(kind):
    """By way of the policy's own functions: entropy is the mean of -log p, the mode is inside."""
    plan, count = plan_of(distribution=kind), 20_000
    env = registry.make(plan.env)
    params = env.default_params
    hypers = jax.tree.map(
        jnp.asarray, make_hypers({**KNOBS, "log_std_init": -0.3}, params, params)
    )
    outputs = jnp.full((count, head_outputs(plan, env)), 0.4, jnp.float32)
    own = {"log_std": jnp.full((1,), -0.3, jnp.float32)}
    both = Outputs(outputs, jnp.zeros(count, jnp.float32))
    dist = policy.distribution_of(plan, hypers, own, both, None)
    key = jax.random.key(0, impl="threefry2x32")
    sampled = dist.sample(family_of(kind).noise(key, (count,), policy.action_shape(env)))
    surprise = -np.asarray(dist.log_prob(sampled), np.float64)
    noise = jax.random.normal(jax.random.fold_in(key, 1), (count, 2, 1), jnp.float32)
    entropy = np.asarray(dist.entropy(noise), np.float64)
    spread = np.sqrt((surprise.var() + entropy.var()) / count)
    assert abs(surprise.mean() - entropy.mean()) <= 4.0 * spread
    taken = np.asarray(environment_action(plan, env, sampled))
    greedy = float(environment_action(plan, env, dist.mode())[0, 0])
    assert abs(np.median(taken) - greedy) < 0.1 and taken.std() > 0.1
    if kind != "gaussian":
        assert np.all(np.abs(taken) <= 2.0)
