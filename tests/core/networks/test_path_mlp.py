import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from helpers import slow_networks as slow
from hpo.core.envs import registry as environments
from hpo.core.envs.optical.heuristics import make_heuristic
from hpo.core.networks import registry
from hpo.core.networks.mlp import observed_size
from hpo.core.plan import EnvPlan, make_plan
from hpo.errors import ConfigError

pytestmark = pytest.mark.usefixtures("quickly_compiled")


def plan_of(keys, id="rmsa", **knobs):
    keys = {"topology": "ring7", "slots": 8, "k": 2, "warmup_requests": 0, **keys}
    where = EnvPlan(id, tuple(sorted(keys.items())))
    knobs = {"network": "path_mlp", "hidden_sizes": (6, 5), **knobs}
    features = ("normalise_observations",) if knobs.get("normalise_observations") else ()
    return make_plan(knobs, where, features=features)


def made(plan):
    env = environments.make(plan.env)
    return env, registry.make(plan, env.action_space.n, env.observation_struct)


@functools.cache
def watched(env, steps):
    """Return states and observations of a network that requests fill, valid actions."""
    params, key = env.default_params, jax.random.key(5, impl="threefry2x32")

    def step(state, at):
        action = jnp.argmax(env.action_mask(state, params)).astype(jnp.int32)
        made = env.step(jax.random.fold_in(key, at), state, action, params)
        return made.state, (made.state, made.observation, env.action_mask(made.state, params))

    @jax.jit
    def walk():
        return lax.scan(step, env.reset(key, params)[0], jnp.arange(steps))[1]

    return jax.device_get(walk())


def expected(plan, params, env, row):
    """Return (logits, value) of one observation, path by path and option by option."""
    routes, settings = env.routes, env.settings
    nodes, paths = routes.num_nodes, settings.k
    request = row[: 2 * nodes + 3]
    of_paths = row[2 * nodes + 3 : 2 * nodes + 3 + 8 * paths]
    free = row[2 * nodes + 3 + 8 * paths :]
    assert len(free) == len(routes.km)
    loads = [request[-1], *(2.0 - 4.0 * share for share in free)]
    logits, last = [], []
    for path in range(paths):
        x = [np.arcsinh(value) for value in of_paths[8 * path : 8 * path + 8]]
        x = np.array([*x, path / paths, 1.0 / (1.0 + path), *request, *loads])
        layer = params["path_0"]
        kernel = np.concatenate([layer["kernel"], params["shared"]["kernel"]])
        x = slow.relu(x @ kernel + layer["bias"])
        for i in range(1, len(plan.hidden_sizes)):
            x = slow.relu(slow.dense(params[f"path_{i}"], x))
        last.append(x)
        scores = slow.head(params["actor_head"], x)
        for option, score in enumerate(scores):
            order = params["slopes"][1] * option / env.routes.outputs
            if plan.path_mlp_begins == "slot":
                order += params["slopes"][0] * path / paths
                order += params["slopes"][2] * of_paths[8 * path + 1] * settings.slots
            else:
                order += params["slopes"][0] * path
            logits.append(score - order)
    if "actor_further" in params:
        rest = slow.head(params["actor_further"], np.mean(last, axis=0))
        first, option, *start = params["slopes"]
        logits += list(
            rest - option - (first + start[0] * settings.slots if start else first * paths)
        )
    value = np.array(loads)
    for i in range(len(plan.hidden_sizes)):
        value = slow.relu(slow.dense(params[f"critic_{i}"], value))
    return np.array(logits), slow.head(params["critic_head"], value)[0]


@pytest.mark.parametrize("begins", ["path", "slot"])
@pytest.mark.parametrize(
    ("id", "keys"),
    [
        ("rmsa", {"aggregate_slots": 3, "no_op": True}),
        ("rmsa", {"aggregate_slots": 4, "directed": False}),
        ("deeprmsa", {"fits": ("best", "first")}),
        ("rwa_lightpath_reuse", {}),
    ],
)
def test_it_computes_what_a_slow_reference_computes(id, keys, begins):
    plan = plan_of(keys, id=id, path_mlp_begins=begins)
    assert dict(plan.env.keys)["observation"] == "paths"
    env, module = made(plan)
    _, seen, _ = watched(env, 8)
    params = slow.drawn(module, seen[0])
    outputs = jax.jit(module.apply)({"params": params}, seen.reshape((2, 4, -1)))
    for place, row in enumerate(seen):
        at = divmod(place, 4)
        logits, value = expected(plan, slow.as_float64(params), env, np.asarray(row, np.float64))
        np.testing.assert_allclose(outputs.policy[at], logits, rtol=2e-4, atol=2e-4)
        np.testing.assert_allclose(outputs.value[at], value, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize(
    ("id", "keys", "begins", "heuristic"),
    [
        ("deeprmsa", {"fits": ("first", "best")}, "path", "ksp_ff"),
        ("deeprmsa", {"fits": ("best", "first")}, "path", "ksp_bf"),
        ("deeprmsa", {"fits": ("first", "best")}, "slot", "ff_ksp"),
        ("rmsa", {"aggregate_slots": 7, "no_op": True}, "path", "ksp_ff"),
        ("rmsa", {"aggregate_slots": 7, "no_op": True}, "slot", "ff_ksp"),
        ("rmsa", {"no_op": True}, "slot", "ff_ksp"),
    ],
)
def test_untrained_it_chooses_as_a_heuristic(id, keys, begins, heuristic):
    keys = {**keys, "topology": "nsfnet_deeprmsa", "slots": 40, "k": 4, "load": 120.0}
    env, module = made(plan_of(keys, id=id, path_mlp_begins=begins))
    states, seen, valid = watched(env, 150)
    first = env.routes.outputs
    some = valid[:, : env.settings.k * first].any(axis=1)  # else all block, or refuse

    @jax.jit
    def look(seen):
        params = module.init(jax.random.key(0, impl="threefry2x32"), seen[0])
        return module.apply(params, seen).policy

    @jax.jit
    @jax.vmap
    def both(state, action):
        offers = env.offers(state, env.default_params)
        return env.decode(state, offers, action), rule(state, offers, env.default_params)

    rule = make_heuristic(heuristic, env)
    actions = np.where(valid, look(seen), -np.inf).argmax(axis=1).astype(np.int32)
    ours, theirs = (np.stack(one, axis=1)[some] for one in both(states, actions))
    np.testing.assert_array_equal(ours, theirs)
    full = np.sum(actions[some] >= first)
    assert full > 5  # the first path had no room in some


def test_parameter_shapes_do_not_depend_on_path_count():
    few, many = (
        slow.drawn(module, jnp.zeros(observed_size(env.routes)))
        for env, module in (made(plan_of({"k": k})) for k in (1, 2))
    )
    assert jax.tree.map(np.shape, few) == jax.tree.map(np.shape, many)


@pytest.mark.parametrize(
    ("keys", "knobs", "words"),
    [
        ({"observation": "flat"}, {}, "use `observation: paths` without `history`"),
        ({}, {"history": 2}, "use `observation: paths` without `history`"),
        ({}, {"shared_encoder": True}, "remove shared_encoder"),
        ({}, {"hidden_sizes": ()}, "needs a hidden layer"),
        (
            {},
            {"path_mlp_begins": "slot", "normalise_observations": True},
            "needs unscaled start slots",
        ),
        ({}, {"path_mlp_begins": "slot", "dtype": "bfloat16"}, "needs unscaled start slots"),
    ],
)
def test_path_mlp_refuses_unsupported_observations(keys, knobs, words):
    plan = plan_of(keys, **knobs)
    env = environments.make(plan.env)
    with pytest.raises(ConfigError, match=words):
        registry.make(plan, env.action_space.n, env.observation_struct)


def test_path_mlp_refuses_envs_without_paths():
    plan = make_plan({"network": "path_mlp"}, EnvPlan("CartPole-v1"), features=())
    env = environments.make(plan.env)
    with pytest.raises(ConfigError, match="CartPole-v1 does not provide"):
        registry.make(plan, 2, env.observation_struct)
