import jax
import jax.numpy as jnp
import numpy as np
import pytest

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


def watched(env, steps=40):
    """Return states and observations of a network that random requests fill, valid actions."""
    key = jax.random.key(5, impl="threefry2x32")
    state, _ = env.reset(key, env.default_params)
    step, mask = jax.jit(env.step), jax.jit(env.action_mask)
    states, seen, valid = [], [], []
    for i in range(steps):
        allowed = np.asarray(mask(state, env.default_params))
        action = np.int32(np.flatnonzero(allowed)[0] if allowed.any() else 0)
        made = step(jax.random.fold_in(key, i), state, action, env.default_params)
        state = made.state
        states.append(state)
        seen.append(made.observation)
        valid.append(np.asarray(mask(state, env.default_params)))
    return states, jnp.stack(seen), np.stack(valid)


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
    outputs = module.apply({"params": jax.tree.map(jnp.asarray, params)}, seen.reshape((2, 4, -1)))
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
    params = module.init(jax.random.key(0, impl="threefry2x32"), seen[0])
    logits = np.asarray(module.apply(params, seen).policy)
    rule = make_heuristic(heuristic, env)

    @jax.jit
    def both(state, action):
        offers = env.offers(state, env.default_params)
        return env.decode(state, offers, action), rule(state, offers, env.default_params)

    full = 0
    for state, scores, allowed in zip(states, logits, valid, strict=True):
        if allowed[: env.settings.k * env.routes.outputs].any():  # else all block, or refuse
            action = np.int32(np.where(allowed, scores, -np.inf).argmax())
            ours, theirs = both(state, action)
            assert jax.tree.map(int, ours) == jax.tree.map(int, theirs)
            full += action >= env.routes.outputs
    assert full > 5  # the first path had no room in some


def test_the_number_of_paths_changes_no_parameter_s_shape():
    few, many = (
        slow.drawn(module, jnp.zeros(observed_size(env.routes)))
        for env, module in (made(plan_of({"k": k})) for k in (1, 2))
    )
    assert jax.tree.map(np.shape, few) == jax.tree.map(np.shape, many)


@pytest.mark.parametrize(
    ("keys", "knobs", "words"),
    [
        ({"observation": "flat"}, {}, "take `observation: paths` and no `history`"),
        ({}, {"history": 2}, "take `observation: paths` and no `history`"),
        ({}, {"shared_encoder": True}, "leave out shared_encoder"),
        ({}, {"hidden_sizes": ()}, "needs a hidden layer"),
        ({}, {"path_mlp_begins": "slot", "normalise_observations": True}, "as they are"),
        ({}, {"path_mlp_begins": "slot", "dtype": "bfloat16"}, "as they are"),
    ],
)
def test_what_it_cannot_read_is_refused(keys, knobs, words):
    plan = plan_of(keys, **knobs)
    env = environments.make(plan.env)
    with pytest.raises(ConfigError, match=words):
        registry.make(plan, env.action_space.n, env.observation_struct)


def test_an_environment_without_paths_is_refused():
    plan = make_plan({"network": "path_mlp"}, EnvPlan("CartPole-v1"), features=())
    env = environments.make(plan.env)
    with pytest.raises(ConfigError, match="CartPole-v1 does not show here"):
        registry.make(plan, 2, env.observation_struct)
