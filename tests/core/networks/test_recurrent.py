import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers import slow_networks as slow
from hpo.core import policy
from hpo.core.networks import registry
from hpo.core.networks.recurrent import Recurrent
from hpo.core.plan import EnvPlan, make_plan

pytestmark = pytest.mark.usefixtures("quickly_compiled")


@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize("shared", [False, True])
def test_it_computes_what_the_loop_computes(kind, shared):
    knobs = {"network": kind, "hidden_sizes": [6], "recurrent_size": 3, "shared_encoder": shared,
             "layer_norm": shared}  # fmt: skip
    plan = make_plan(knobs, EnvPlan("CartPole-v1"), features=())
    module = Recurrent(plan, 2, (4,))
    params = slow.drawn(module, jnp.zeros(4))
    rng = np.random.default_rng(1)
    seen = rng.normal(size=(5, 2, 4)).astype(np.float32)
    first = np.zeros((5, 2), bool)
    first[3, 1] = True
    carry = jax.tree.map(
        lambda x: rng.normal(size=x.shape).astype(np.float32), module.initial_carry((2,))
    )
    made = policy.unroll(plan, params, jnp.asarray(seen), jnp.asarray(first), carry)
    exact = slow.as_float64(params)
    towers = ("encoder", "encoder") if shared else ("actor", "critic")
    cells = ("cell", "cell") if shared else ("actor_cell", "critic_cell")
    for s in range(2):
        for which, (tower, cell) in enumerate(zip(towers, cells, strict=True)):
            memory = jax.tree.map(lambda x, s=s: np.float64(x[s]), carry[-1 if which else 0])
            for t in range(5):
                if first[t, s]:
                    memory = jax.tree.map(np.zeros_like, memory)
                layers = exact[tower]
                x = slow.dense(layers["dense_0"], seen[t, s])
                x = np.tanh(slow.norm(layers["norm_0"], x) if shared else x)
                memory = slow.cell(kind, exact[cell], memory, x)
                hidden = memory[1] if kind == "lstm" else memory
                if shared:
                    hidden = slow.norm(exact["norm"], hidden)
                if which:
                    value = slow.head(exact["critic_head"], hidden)[0]
                    np.testing.assert_allclose(made.value[t, s], value, rtol=1e-3, atol=1e-4)
                else:
                    logits = slow.head(exact["actor_head"], hidden)
                    np.testing.assert_allclose(made.policy[t, s], logits, rtol=1e-3, atol=1e-4)


def test_only_recurrent_networks_have_a_carry():
    for name in registry.known():
        if name in ("gnn", "cnn"):
            continue  # CartPole shows neither graphs nor images
        plan = make_plan({"network": name}, EnvPlan("CartPole-v1"), features=())
        assert policy.is_recurrent(plan) == (name in ("lstm", "gru")), name
        carry = policy.initial_carry(plan, (3,))
        assert all(leaf.shape == (3, 64) for leaf in jax.tree.leaves(carry))
        assert bool(jax.tree.leaves(carry)) == policy.is_recurrent(plan)
