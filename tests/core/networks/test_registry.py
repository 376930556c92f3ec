import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hpo.core.networks import registry
from hpo.core.networks.mlp import MLP
from hpo.core.plan import EnvPlan, make_plan
from hpo.errors import ConfigError, UnknownNameError

PLAN = make_plan({}, EnvPlan("CartPole-v1"), features=())
STRUCT = jax.ShapeDtypeStruct((4,), jnp.float32)


def test_the_mlp_is_known():
    assert "mlp" in registry.known()
    assert isinstance(registry.make(PLAN, 2, STRUCT), MLP)


def test_a_taken_name_is_refused():
    with pytest.raises(ConfigError, match="network 'mlp' is already registered"):
        registry.register("mlp", lambda plan, outputs, struct: MLP(plan, outputs, 1))


def test_an_unknown_network_is_named():
    plan = make_plan({}, EnvPlan("CartPole-v1"), features=())
    object.__setattr__(plan, "network", "mpl")
    with pytest.raises(UnknownNameError, match=r"unknown network 'mpl'; did you mean 'mlp'\?"):
        registry.make(plan, 2, STRUCT)


def test_the_mlp_refuses_trees_of_observations():
    tree = {"a": STRUCT, "b": jax.ShapeDtypeStruct((2,), np.float32)}
    with pytest.raises(ConfigError, match="reads a single array"):
        registry.make(PLAN, 2, tree)
