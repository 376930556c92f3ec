"""Every network passes the contract test; ones that break a promise do not."""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp
import pytest

from helpers.doc_blocks import block
from hpo.core.networks import registry
from hpo.core.networks.layers import Outputs
from hpo.core.networks.mlp import MLP, Head
from hpo.core.plan import EnvPlan
from hpo.testing.learners import NetworkContract

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quickly_compiled")]

RMSA = EnvPlan("rmsa", (("k", 2), ("slots", 8), ("topology", "ring7"), ("warmup_requests", 0)))

PAGE = "docs/networks.md"


class TestMLP(NetworkContract):
    knobs = {"hidden_sizes": (5,), "layer_norm": True}  # noqa: RUF012


class TestCNN(NetworkContract):
    network = "cnn"
    env = EnvPlan("Breakout-MinAtar")
    knobs = {"cnn_channels": (3,), "cnn_kernels": (3,), "cnn_strides": (3,),  # noqa: RUF012
             "cnn_dense": (4,), "history": 2, "activation": "tanh"}  # fmt: skip


class TestResidualCNN(NetworkContract):
    network = "cnn"
    env = EnvPlan("Breakout-MinAtar")
    knobs = {"cnn_channels": (3,), "cnn_kernels": (3,), "cnn_strides": (3,),  # noqa: RUF012
             "cnn_dense": (4,), "cnn_residual_blocks": 1, "activation": "tanh"}  # fmt: skip


class TestGNN(NetworkContract):
    network = "gnn"
    env = RMSA
    knobs = {"gnn_edge_mlp_latent": 8, "gnn_node_mlp_latent": 8,  # noqa: RUF012
             "gnn_edge_mlp_layers": 1, "gnn_node_mlp_layers": 1,
             "gnn_message_passing_steps": 2, "activation": "tanh"}  # fmt: skip


class TestLinkTransformer(NetworkContract):
    network = "transformer"
    env = RMSA
    knobs = {"transformer_embedding_size": 16, "activation": "tanh"}  # noqa: RUF012


class TestPathMLP(NetworkContract):
    network = "path_mlp"
    env = EnvPlan("rmsa", (*RMSA.keys, ("aggregate_slots", 3), ("no_op", True)))
    knobs = {"hidden_sizes": (5, 4), "layer_norm": True, "activation": "tanh"}  # noqa: RUF012


class TestSequenceTransformer(NetworkContract):
    network = "transformer"
    env = EnvPlan("Pendulum-v1")
    knobs = {"transformer_embedding_size": 8, "transformer_heads": 2,  # noqa: RUF012
             "history": 3, "activation": "tanh"}  # fmt: skip


class TestLSTM(NetworkContract):
    network = "lstm"
    knobs = {"hidden_sizes": (5,), "recurrent_size": 4}  # noqa: RUF012


class TestGRU(NetworkContract):
    network = "gru"
    knobs = {"hidden_sizes": (), "recurrent_size": 4, "shared_encoder": True}  # noqa: RUF012


class TestDocumented(block(PAGE, "class TestScaled(").run()["TestScaled"]):
    """The example of docs/networks.md, by the test there."""

    @classmethod
    def plan(cls):
        if "scaled" not in registry.known():
            block(PAGE, "class Scaled(").run()
        return super().plan()


class Mixed(nn.Module):
    """Looks at other rows, and lets its critic decide."""

    plan: Any
    outputs: int

    @nn.compact
    def __call__(self, observation):
        x = nn.Dense(4, name="critic")(observation)
        x = x - jnp.mean(x, axis=0, keepdims=True) if x.ndim > 1 else x
        zeros = nn.initializers.normal(1.0)
        return Outputs(Head(self.outputs, zeros, name="actor_head")(x), x[..., 0])


class BadNetwork(NetworkContract):
    network = "test-mixed"


@pytest.mark.parametrize(
    "test",
    ["test_a_row_depends_on_itself_alone", "test_parameters_of_the_critic_serve_the_value_alone"],
)
def test_network_contract_rejects_broken_networks(test):
    if "test-mixed" not in registry.known():
        registry.register("test-mixed", lambda plan, outputs, _: Mixed(plan, outputs))
    with pytest.raises(AssertionError):
        getattr(BadNetwork(), test)()


def test_a_registered_network_is_a_choice_that_keeps_every_knob():
    from hpo.core.plan import make_plan
    from hpo.errors import ConfigError
    from hpo.knobs import check_value

    if "test-wide" not in registry.known():
        registry.register("test-wide", lambda plan, outputs, struct: MLP(plan, outputs, 1))
    assert check_value("network", "test-wide") == "test-wide"
    plan = make_plan({"network": "test-wide", "cnn_dense": [7]}, EnvPlan("CartPole-v1"))
    assert plan.cnn_dense == (7,)
    with pytest.raises(ConfigError, match="did you mean 'test-wide'"):
        make_plan({"network": "test-wid"}, EnvPlan("CartPole-v1"))
