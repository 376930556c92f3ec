"""How many parts a gradient is summed from where nobody says so, and that it is the whole one."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hpo.core import memory, policy
from hpo.core.hypers import make_hypers
from hpo.core.losses import loss_and_gradient
from hpo.core.memory import fitting_parts, for_platform
from hpo.core.minibatches import Samples
from hpo.core.optimisers import Coefficients
from hpo.core.plan import AUTOMATIC, EnvPlan, make_plan, plan_hash
from hpo.core.program import EvaluationPlan, Program
from hpo.errors import ConfigError

RING = EnvPlan("rmsa", (("k", 2), ("slots", 8), ("topology", "ring7")))
NARROW = {"gnn_edge_embedding_size": 16, "gnn_edge_mlp_latent": 16, "gnn_node_mlp_latent": 16,
          "gnn_attn_mlp_latent": 8}  # fmt: skip
TINY = {"network": "transformer", "history": 2, "transformer_heads": 1, "num_minibatches": 1,
        "transformer_embedding_size": 4, "transformer_intermediate_size": 4,
        "transformer_actor_mlp_width": 4, "transformer_critic_mlp_width": 4, "num_envs": 4,
        "rollout_length": 6}  # fmt: skip


@pytest.mark.parametrize("rows", [1, 7, 24, 96, 97, 1600])
@pytest.mark.parametrize("row_bytes", [1, 30_000, 500_000, 10**8])
def test_parts_are_the_fewest_whose_rows_fit(rows, row_bytes):
    parts, least = fitting_parts(rows, row_bytes), 16

    def fits(count):
        size = -(-rows // count)
        return size * row_bytes <= memory._CACHE_BYTES or size <= least

    fewest = next(count for count in range(1, rows + 1) if fits(count))
    dividing = [count for count in range(fewest, 2 * fewest) if rows % count == 0]
    assert parts == (dividing[0] if dividing else fewest) and fits(parts)


def test_gradient_accumulation_is_automatic_only_for_link_networks():
    def plan(**knobs):
        return make_plan({"num_envs": 16, "rollout_length": 64, **knobs}, RING)

    assert plan().gradient_accumulation == plan(network="lstm").gradient_accumulation == 1
    given = plan(network="gnn", gradient_accumulation=3)
    assert for_platform(given, "cpu") == given and given.gradient_accumulation == 3
    assert plan(network="gnn").gradient_accumulation == AUTOMATIC
    assert for_platform(plan(), "cpu") == plan()
    with pytest.raises(ConfigError, match="gradient_accumulation is 0; allowed: an integer"):
        plan(gradient_accumulation=0)


def test_gradient_parts_grow_with_memory_on_cpu_and_are_one_on_gpu():
    one = {"network": "gnn", "num_envs": 16, "gnn_message_passing_steps": 1}  # quickly traced

    def parts(platform="cpu", **knobs):
        plan = make_plan({**one, **NARROW, **knobs}, RING)
        return for_platform(plan, platform).gradient_accumulation

    found = [parts(num_minibatches=count) for count in (32, 8, 2, 1)]
    assert found[0] == 1 and found == sorted(set(found))
    assert parts(num_minibatches=1, gnn_edge_mlp_latent=512) > parts(num_minibatches=1)
    clips = {"rho_clip": 1.0, "c_clip": 1.0, "num_minibatches": 1}
    assert 1 < parts(**clips) <= 16, "whole segments"
    assert parts("gpu", num_minibatches=1) == 1


def test_program_resolves_gradient_parts_without_changing_plan_hash():
    knobs = {
        "network": "gnn",
        "num_envs": 16,
        "num_minibatches": 1,
        "gnn_message_passing_steps": 1,
        **NARROW,
    }
    plan, hypers = make_plan(knobs, RING), make_hypers(knobs, {}, {})
    made = Program(plan, 2, 1, 1, EvaluationPlan(), tuple(jax.devices())[:2], hypers)
    assert made.plan == for_platform(plan, "cpu") and made.plan.gradient_accumulation > 1
    assert dataclasses.replace(made, lanes=4).plan == made.plan
    assert plan.gradient_accumulation == AUTOMATIC and plan_hash(plan) != plan_hash(made.plan)


def test_accumulated_gradient_equals_full_minibatch_gradient(monkeypatch):
    """The same losses and gradient, up to what float32 rounds."""
    plan = make_plan(TINY, EnvPlan("CartPole-v1"), features=())
    monkeypatch.setattr(memory, "_CACHE_BYTES", 1)
    memory._parts_on_cpu.cache_clear()
    plan = for_platform(plan, "cpu")
    assert plan.gradient_accumulation == 2
    rng = np.random.default_rng(2)
    hypers = jax.tree.map(jnp.asarray, make_hypers(TINY, {}, {}))
    probe = jax.eval_shape(lambda key: policy.init_params(plan, hypers, key), jax.random.key(0))
    params = jax.tree.map(
        lambda leaf: jnp.asarray(rng.normal(scale=0.5, size=leaf.shape), jnp.float32), probe
    )
    numbers = {
        name: jnp.asarray(rng.normal(size=24), jnp.float32)
        for name in ("value", "advantage", "target")
    }
    rows = Samples(
        observation=jnp.asarray(rng.normal(size=(24, 2, 4)), jnp.float32),
        action=jnp.asarray(rng.integers(0, 2, 24), jnp.int32),
        mask=None,
        log_prob=jnp.full(24, -0.7, jnp.float32),
        **numbers,
    )
    given = Coefficients(*(jnp.float32(x) for x in (0.2, 0.01, 0.0, 0.95, 0.95)))
    whole = dataclasses.replace(plan, gradient_accumulation=1)
    found = [
        jax.jit(lambda p, s, plan=plan: loss_and_gradient(p, plan, hypers, given, s, weight=None))(
            params, rows
        )
        for plan in (plan, whole)
    ]
    for one, other in zip(*map(jax.tree.leaves, found), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-6)
    memory._parts_on_cpu.cache_clear()


def test_unresolved_gradient_parts_raise_a_config_error():
    plan = make_plan({"network": "gnn", **NARROW}, RING)
    with pytest.raises(ConfigError, match=r"is auto, .* give a number, or call"):
        _ = plan.gradient_parts
    assert for_platform(plan, "gpu").gradient_parts == 1
