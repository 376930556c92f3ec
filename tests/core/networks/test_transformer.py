import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers import slow_networks as slow
from hpo.core.envs import registry as environments
from hpo.core.networks import registry
from hpo.core.networks.path_pooling import Pooling
from hpo.core.networks.transformer import Keyed, LinkTransformer, SequenceTransformer, dropped
from hpo.core.plan import EnvPlan, make_plan
from hpo.errors import ConfigError

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quickly_compiled")]

SMALL = {"network": "transformer", "transformer_layers": 2, "transformer_heads": 2,
         "transformer_embedding_size": 8, "transformer_intermediate_size": 6,
         "transformer_actor_mlp_width": 5, "transformer_critic_mlp_width": 4}  # fmt: skip


def plan_of(keys, **knobs):
    keys = {"topology": "ring7", "slots": 6, "k": 2, "warmup_requests": 0, **keys}
    where = EnvPlan("rmsa", tuple(sorted(keys.items())))
    return make_plan({**SMALL, **knobs}, where, features=())


def tokens(env, count=3):
    keys = jax.random.split(jax.random.key(4, impl="threefry2x32"), count)
    _, seen = jax.jit(jax.vmap(env.reset, in_axes=(0, None)))(keys, env.default_params)
    rng = np.random.default_rng(0)
    slots = jnp.asarray(rng.normal(size=seen.slots.shape), jnp.float32)
    return seen.replace(slots=slots)


def encoded(plan, layers, columns, position):
    rows = np.concatenate(columns, axis=-1)
    embedded = np.array(
        [slow.norm(layers["embed_norm"], slow.gelu(slow.dense(layers["embed"], x))) for x in rows]
    )
    used = plan.transformer_wire_features
    return slow.blocks(
        layers["blocks"],
        embedded,
        plan.transformer_heads,
        plan.transformer_layers,
        position[:, :used] if used else None,
    )


def expected(plan, params, env, seen):
    """Return (logits, value) of one network's tokens."""
    routes, columns = env.routes, (seen.position, seen.slots, seen.marginals)
    everything = (*columns, seen.request)
    if "encoder" in params:
        actor = critic = encoded(plan, params["encoder"], everything, seen.position)
    else:
        actor = encoded(plan, params["actor"], everything, seen.position)
        if plan.link_critic_sees == "shares":
            used = [4.0 * sum(x > 0 for x in row) / len(row) - 2.0 for row in seen.slots]
            columns = (seen.position, np.array(used)[:, None], seen.marginals)
        critic = encoded(plan, params["critic"], columns, seen.position)
    hidden = np.array([slow.hidden(params["actor_mlp"], x) for x in actor])
    logits = []
    for path in range(routes.hops.shape[1]):
        taken = routes.hops[seen.pair, path][: routes.hop_counts[seen.pair, path]]
        row = slow.pooled(
            plan.transformer_actor_pooling, hidden[taken], params.get("actor_pooling")
        )
        logits += list(slow.head(params["actor_head"], row))
    if "actor_further" in params:
        logits += list(slow.head(params["actor_further"], hidden.mean(0)))
    row = slow.pooled(plan.transformer_critic_pooling, critic, params.get("critic_pooling"))
    return logits, slow.head(params["critic_head"], slow.hidden(params["critic_mlp"], row))[0]


@pytest.mark.parametrize(
    ("keys", "knobs"),
    [
        ({}, {}),
        (
            {"no_op": True, "directed": False},
            {
                "transformer_actor_pooling": "attention",
                "transformer_critic_pooling": "attention",
                "transformer_wire_features": 3,
                "transformer_actor_mlp_depth": 2,
                "link_critic_sees": "shares",
            },
        ),
        (
            {"aggregate_slots": 4},
            {
                "transformer_actor_pooling": "min_mean_max",
                "transformer_critic_pooling": "sum",
                "transformer_share_layers": True,
                "transformer_wire_features": 0,
            },
        ),
    ],
)
def test_over_links_it_computes_what_the_loop_computes(keys, knobs):
    plan = plan_of(keys, **knobs)
    env = environments.make(plan.env)
    module = registry.make(plan, env.action_space.n, env.observation_struct)
    assert isinstance(module, LinkTransformer)
    seen = tokens(env)
    params = slow.drawn(module, jax.tree.map(lambda x: x[0], seen))
    made = jax.jit(lambda p, x: module.apply({"params": p}, x))(params, seen)
    exact = slow.as_float64(params)
    for i in range(3):
        one = jax.tree.map(lambda x, i=i: np.asarray(x[i]), seen)
        logits, value = expected(plan, exact, env, one)
        np.testing.assert_allclose(made.policy[i], logits, rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(made.value[i], value, rtol=1e-3, atol=1e-3)


def test_over_a_history_it_computes_what_the_loop_computes():
    knobs = {**SMALL, "history": 3, "transformer_actor_pooling": "attention"}
    plan = make_plan(knobs, EnvPlan("CartPole-v1"), features=())
    env = environments.make(plan.env)
    module = registry.make(plan, 2, env.observation_struct)
    assert isinstance(module, SequenceTransformer)
    seen = np.random.default_rng(1).normal(size=(4, 3, 4)).astype(np.float32)
    params = slow.drawn(module, jnp.asarray(seen[0]))
    made = jax.jit(lambda p, x: module.apply({"params": p}, x))(params, seen)
    exact = slow.as_float64(params)
    for i in range(4):
        rows = {}
        for tower in ("actor", "critic"):
            layers = exact[tower]
            embedded = np.array([slow.dense(layers["embed"], x) for x in seen[i]])
            rows[tower] = slow.blocks(layers["blocks"], embedded + layers["positions"], 2, 2)
        row = slow.pooled("attention", rows["actor"], exact["actor_pooling"])
        logits = slow.head(exact["actor_head"], slow.hidden(exact["actor_mlp"], row))
        np.testing.assert_allclose(made.policy[i], logits, rtol=1e-3, atol=1e-3)
        hidden = slow.hidden(exact["critic_mlp"], rows["critic"].mean(0))
        value = slow.head(exact["critic_head"], hidden)[0]
        np.testing.assert_allclose(made.value[i], value, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kind", ["mean", "sum", "min_mean_max", "attention"])
def test_pooling_an_empty_group_gives_zeros_and_finite_gradients(kind):
    items = jnp.asarray(np.random.default_rng(0).normal(size=(4, 3)), jnp.float32)
    groups = jnp.asarray([[True, False, True, False], [False] * 4])
    module = Pooling(kind)
    params = {"params": slow.drawn(module, items, groups)}
    made = module.apply(params, items, groups)
    np.testing.assert_array_equal(made[1], 0.0)
    layers = slow.as_float64(params["params"])
    np.testing.assert_allclose(made[0], slow.pooled(kind, items[::2], layers), rtol=1e-5)
    slopes = jax.grad(lambda x: jnp.sum(module.apply(params, x, groups) ** 2))(items)
    assert np.all(np.isfinite(slopes)) and not np.any(slopes[1::2])


def test_dropout_is_each_sample_s_own_and_keeps_the_mean():
    words = jnp.asarray([[1, 2], [1, 2], [3, 4]], jnp.uint32)
    x = jnp.ones((3, 2000), jnp.float32)
    made = np.asarray(dropped(x, words, 0, 0.25))
    np.testing.assert_array_equal(made[0], made[1])
    assert np.any(made[0] != made[2])
    other = np.asarray(dropped(x, words, 1, 0.25))
    assert np.any(other[0] != made[0])
    np.testing.assert_allclose(np.unique(made), [0.0, 4.0 / 3.0], rtol=1e-6)
    assert abs(made.mean() - 1.0) < 0.03  # 6,000 draws: deviation 0.0075
    assert dropped(x, None, 0, 0.25) is x and dropped(x, words, 0, 0.0) is x


def test_dropout_is_off_without_random_words():
    plan = plan_of({}, transformer_enable_dropout=True, transformer_dropout=0.5)
    env = environments.make(plan.env)
    module = registry.make(plan, env.action_space.n, env.observation_struct)
    seen = tokens(env)
    params = {"params": slow.drawn(module, jax.tree.map(lambda x: x[0], seen))}
    apply = jax.jit(module.apply)
    words = jnp.asarray(np.random.default_rng(0).integers(0, 2**32, size=(3, 2)), jnp.uint32)
    once, again = (apply(params, Keyed(seen, words)) for _ in range(2))
    np.testing.assert_array_equal(once.value, again.value)
    assert np.all(np.asarray(once.value) != np.asarray(apply(params, seen).value))


def test_transformer_refuses_unsupported_settings_and_observations():
    plan = make_plan({**SMALL, "link_critic_sees": "shares"}, EnvPlan("CartPole-v1"), features=())
    with pytest.raises(ConfigError, match="CartPole-v1 have no links with slots; use 'slots'"):
        registry.make(plan, 2, environments.make(plan.env).observation_struct)
    keys = {"topology": "ring7", "slots": 6, "k": 2, "observation": "link_capacity"}
    where = EnvPlan("rwa_lightpath_reuse", tuple(sorted(keys.items())))
    plan = make_plan({**SMALL, "link_critic_sees": "shares"}, where, features=())
    with pytest.raises(ConfigError, match="does not distinguish full and unused"):
        registry.make(plan, 2, environments.make(plan.env).observation_struct)
    with pytest.raises(ConfigError, match="is 8, but transformer_heads: 3 needs a multiple"):
        plan_of({}, transformer_heads=3)
    with pytest.raises(ConfigError, match="the observations of rmsa are neither"):
        plan = plan_of({"observation": "graph"})
        registry.make(plan, 2, environments.make(plan.env).observation_struct)
