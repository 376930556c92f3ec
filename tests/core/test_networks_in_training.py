"""Networks inside whole updates: the ratio starts at 1, memories are kept and emptied."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hpo.core import policy
from hpo.core.envs import registry
from hpo.core.hypers import make_hypers
from hpo.core.memory import for_platform
from hpo.core.plan import EnvPlan, make_plan
from hpo.core.population import init_lane
from hpo.core.pytree import stack
from hpo.core.rollout import rollout
from hpo.core.update import learn

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quickly_compiled")]

RMSA = EnvPlan(
    "rmsa",
    (("continuous", False), ("k", 2), ("max_requests", 5), ("slots", 8), ("topology", "ring4")),
)
MEMORY = EnvPlan("MemoryChain-bsuite", (("memory_length", 2),))
CASES = {
    "mlp": (RMSA, {"hidden_sizes": [8]}, 1e-6),
    "gnn": (RMSA, {"gnn_message_passing_steps": 1, "gnn_edge_mlp_layers": 1,
                   "gnn_node_mlp_layers": 1, "gnn_edge_mlp_latent": 8,
                   "gnn_edge_embedding_size": 8, "gnn_node_mlp_latent": 8}, 1e-4),
    "path_mlp": (RMSA, {"hidden_sizes": [8], "path_mlp_begins": "slot"}, 1e-5),
    "transformer": (RMSA, {"transformer_embedding_size": 8, "transformer_heads": 2,
                           "transformer_critic_mlp_depth": 1,
                           "transformer_intermediate_size": 8, "transformer_enable_dropout": True,
                           "transformer_actor_mlp_width": 8, "transformer_critic_mlp_width": 8},
                    1e-4),
    "lstm": (MEMORY, {"hidden_sizes": [4], "recurrent_size": 4, "normalise_observations": True},
             1e-6),
}  # fmt: skip
LANES, ENVS, STEPS = 2, 4, 7


class Trained:
    """Two lanes after one update and after two, and the second rollout; learning rates differ."""

    def __init__(self, network):
        where, sizes, self.tolerance = CASES[network]
        knobs = {
            "network": network,
            "num_envs": ENVS,
            "rollout_length": STEPS,
            "num_minibatches": 2,
            "update_epochs": 1,
            "policy_gain": 1.0,
            **sizes,
        }
        features = tuple(name for name in ("normalise_observations",) if name in sizes)
        self.plan = plan = for_platform(make_plan(knobs, where, features=features), "cpu")
        params = registry.make(where).default_params
        self.hypers = stack(
            [make_hypers({**knobs, "learning_rate": r}, params, params) for r in (1e-2, 1e-3)]
        )

        def start(args):
            hypers, replicate = args
            zero, many = jnp.int32(0), jnp.int32(9)
            return init_lane(plan, jnp.int32(5), hypers, zero, replicate, zero, many)

        @jax.jit
        def begin(hypers):
            return jax.lax.map(start, (hypers, jnp.arange(LANES, dtype=jnp.int32)))

        @jax.jit
        def once(hypers, state):
            rolled = rollout(plan, hypers, state)
            return learn(plan, hypers, rolled), rolled.trajectory

        first = begin(self.hypers)
        (second, metrics), _ = once(self.hypers, first)
        (third, _), trajectory = once(self.hypers, second)
        self.states, self.metrics, self.trajectory = jax.device_get(
            ((first, second, third), metrics, trajectory)
        )


@pytest.fixture(scope="module", params=list(CASES))
def trained(request):
    return Trained(request.param)


def test_the_ratio_starts_at_one_and_learning_moves_it(trained):
    metrics = trained.metrics
    assert np.all(metrics.ratio_start_error <= trained.tolerance)
    assert np.all(metrics.ratio_max > 1.0) and not np.any(metrics.diverged)
    assert np.all(np.isfinite(metrics.loss)) and np.all(metrics.grad_norm > 0.0)
    moved = jax.tree.map(lambda a, b: np.any(a != b), *(s.params for s in trained.states[:2]))
    assert all(jax.tree.leaves(moved)), "a parameter was never learned"


def test_a_memory_is_what_stepping_through_the_episode_gives(trained):
    plan, state = trained.plan, trained.states[1]
    assert bool(jax.tree.leaves(state.carry)) == (plan.network == "lstm")
    if plan.network != "lstm":
        return
    seen = trained.trajectory
    ended = seen.terminated | seen.truncated
    assert ended.any() and not ended.all()
    for lane in range(LANES):
        hypers, params, carry, statistics = (
            jax.tree.map(lambda x, at=lane: jnp.asarray(x[at]), tree)
            for tree in (trained.hypers, state.params, state.carry, state.observation_statistics)
        )
        np.testing.assert_array_equal(jax.tree.leaves(seen.carry)[0][0, lane], carry[0][0])
        for t in range(STEPS):
            shown = policy.normalised(
                plan, hypers, statistics, jnp.asarray(seen.observation[t, lane])
            )
            outputs, carry = policy.step(plan, params, shown, carry)
            np.testing.assert_allclose(outputs.value, seen.value[t, lane], rtol=1e-4, atol=1e-5)
            carry = jax.tree.map(
                lambda x, t=t, at=lane: jnp.where(ended[t, at][:, None], 0.0, x), carry
            )
    kept = jax.tree.leaves(trained.states[1].carry)[0]
    last = jax.tree.leaves(trained.states[2].carry)[0]
    assert np.any(kept) and np.any(last)


def test_dropout_words_are_stored_in_the_trajectory(trained):
    seen = trained.trajectory.observation
    if trained.plan.network != "transformer":
        assert policy.plain(seen) is seen
        return
    words = seen.words.reshape((-1, 2))
    assert len(np.unique(words, axis=0)) == len(words) == STEPS * LANES * ENVS
