"""Tests that every network must pass; subclass `NetworkContract` and say which one.

They need pytest to run them, nothing to import them:

    class TestMine(NetworkContract):
        network = "mine"
        env = EnvPlan("CartPole-v1")
        knobs = {"hidden_sizes": (8,)}
"""

# The name of a test is its docstring.
# ruff: noqa: D102

from __future__ import annotations

import functools
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .. import policy
from ..envs import registry as environments
from ..envs.contract import Discrete
from ..hypers import make_hypers
from ..plan import EnvPlan, Plan, make_plan
from .outputs import Outputs
from .registry import RecurrentNetwork, make

__all__ = ["NetworkContract"]

_STEPS, _WIDTH, _LANES = 4, 3, 2


class NetworkContract:
    """What rollouts, losses and optimisers rely on.

    Attributes:
        network: its registered name.
        env: an environment whose observations it reads.
        knobs: others than the defaults; small ones make the tests quick.
        tolerance: absolute and relative, between batches of different shapes.
    """

    network: ClassVar[str] = "mlp"
    env: ClassVar[EnvPlan] = EnvPlan("CartPole-v1")
    knobs: ClassVar[dict[str, Any]] = {}
    tolerance: ClassVar[float] = 1e-4

    @classmethod
    def plan(cls) -> Plan:
        return make_plan({**cls.knobs, "network": cls.network}, cls.env, features=())

    def test_outputs_and_values_have_their_shapes(self) -> None:
        seen, plan = _examined(type(self)), self.plan()
        outputs = seen["together"]
        assert isinstance(outputs, Outputs)
        space = environments.make(plan.env).action_space
        assert outputs.value.shape == (_STEPS, _WIDTH)
        assert outputs.policy.shape[:2] == (_STEPS, _WIDTH) and outputs.policy.ndim == 3
        if isinstance(space, Discrete):
            assert outputs.policy.shape[2] == space.n
        for array in (outputs.policy, outputs.value):
            assert array.dtype == np.float32 and np.all(np.isfinite(array))

    def test_a_row_depends_on_itself_alone(self) -> None:
        seen = _examined(type(self))
        whole, one = seen["together"], seen["one"]
        self._close(whole.policy[2, 1], one.policy)
        self._close(whole.value[2, 1], one.value)

    def test_rows_differ(self) -> None:
        outputs = _examined(type(self))["together"]
        assert np.ptp(outputs.policy[..., 0]) > 0.0 and np.ptp(outputs.value) > 0.0

    def test_lanes_run_side_by_side(self) -> None:
        seen = _examined(type(self))
        self._close(seen["lanes"].policy[1], seen["together"].policy)
        self._close(seen["lanes"].value[1], seen["together"].value)

    def test_parameters_follow_the_key(self) -> None:
        seen = _examined(type(self))
        drawn, again, other = (jax.tree.leaves(seen[name]) for name in ("drawn", "again", "other"))
        for left, right in zip(drawn, again, strict=True):
            np.testing.assert_array_equal(left, right)
        differ = [np.any(left != right) for left, right in zip(drawn, other, strict=True)]
        assert any(differ), "initialisation ignores its key"

    def test_parameters_of_the_critic_serve_the_value_alone(self) -> None:
        slopes = _examined(type(self))["policy_slopes"]
        for name, leaves in slopes.items():
            used = any(np.any(leaf) for leaf in jax.tree.leaves(leaves))
            assert used or policy.is_critic(name), f"the policy does not need {name!r}"
            assert not (used and policy.is_critic(name)), f"the policy needs {name!r}"

    def test_every_parameter_is_needed(self) -> None:
        slopes = _examined(type(self))["slopes"]
        for path, leaf in jax.tree.leaves_with_path(slopes):
            assert np.all(np.isfinite(leaf)), jax.tree_util.keystr(path)
            assert np.any(leaf), f"nothing needs {jax.tree_util.keystr(path)}"

    def test_stepping_and_unrolling_agree(self) -> None:
        seen, plan = _examined(type(self)), self.plan()
        env = environments.make(plan.env)
        module = make(plan, 2, env.observation_struct)
        assert isinstance(module, RecurrentNetwork) == policy.is_recurrent(plan), (
            "networks with a memory are registered with recurrent=True, no others"
        )
        if not policy.is_recurrent(plan):
            assert policy.initial_carry(plan, (_WIDTH,)) == ()
            return
        for one, whole in zip(seen["stepped"], _rows(seen["unrolled"]), strict=True):
            self._close(one.policy, whole.policy)
            self._close(one.value, whole.value)
        # The second episode begins at step 2 with an empty memory, as if it were the first.
        self._close(seen["unrolled"].value[2, 0], seen["fresh"].value[2, 0])
        assert np.any(seen["unrolled"].value[2, 1] != seen["fresh"].value[2, 1])

    def _close(self, left: Any, right: Any) -> None:
        np.testing.assert_allclose(left, right, rtol=self.tolerance, atol=self.tolerance)


def _rows(outputs: Outputs) -> list[Outputs]:
    return [jax.tree.map(lambda x, t=t: x[t], outputs) for t in range(_STEPS)]


def _shaken(params: Any) -> Any:
    """Return random parameters around the drawn ones, so that none is zero."""
    rng = np.random.default_rng(5)
    return jax.tree.map(
        lambda x: (np.asarray(x) + 0.3 * rng.normal(size=x.shape)).astype(np.float32), params
    )


def _walk(plan: Plan) -> Any:
    """Return observations [T, S, ...] of a few steps with the first valid action."""
    env = environments.make(plan.env)
    params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), env.default_params)
    space = env.action_space

    def step(carry: Any, key: Array) -> Any:
        state, observation = carry
        if isinstance(space, Discrete):
            mask = env.action_mask(state, params) if env.has_mask else jnp.ones(space.n, bool)
            action = jnp.argmax(mask).astype(jnp.int32)
        else:
            action = jnp.zeros(policy.action_shape(env), jnp.float32)
        after = env.step(key, state, action, params)
        return (after.state, after.observation), observation

    def chain(key: Array) -> Any:
        start = env.reset(key, params)
        return jax.lax.scan(step, start, jax.random.split(key, _STEPS))[1]

    keys = jax.random.split(jax.random.key(3, impl="threefry2x32"), _WIDTH)
    return jax.vmap(chain, out_axes=1)(keys)


@functools.cache
def _examined(contract: type[NetworkContract]) -> dict[str, Any]:
    """Return all that the tests look at, from one compiled program."""
    plan = contract.plan()
    env = environments.make(plan.env)
    params_of_env = jax.tree.map(np.asarray, env.default_params)
    hypers = jax.tree.map(jnp.asarray, make_hypers({}, params_of_env, params_of_env))

    @jax.jit
    def draw(seed: Array) -> Any:
        return policy.init_params(plan, hypers, jax.random.key(seed, impl="threefry2x32"))

    drawn = {name: draw(np.int32(seed)) for name, seed in
             (("drawn", 0), ("again", 0), ("other", 1))}  # fmt: skip
    params = _shaken(drawn["drawn"])
    params.pop("log_std", None)

    @jax.jit
    def look(params: Any) -> dict[str, Any]:
        observation = _walk(plan)

        def apply(params: Any) -> Outputs:
            return policy.apply(plan, params, observation)

        scaled = jax.tree.map(lambda x: jnp.stack([0.5 * x, x]), params)
        found = {
            "together": apply(params),
            "one": policy.apply(plan, params, jax.tree.map(lambda x: x[2, 1], observation)),
            "lanes": jax.vmap(apply)(scaled),
            "policy_slopes": jax.grad(_number)(params, plan, observation, 0.0),
            "slopes": jax.grad(_number)(params, plan, observation, 1.0),
        }
        if policy.is_recurrent(plan):
            found |= _remembered(plan, params, observation)
        return found

    return {**jax.device_get(look(params)), **jax.device_get(drawn)}


def _number(params: Any, plan: Plan, observation: Any, value: float) -> Array:
    """Return a number that all parameters of the policy, and of the value if asked, take part in.

    Uneven weights: a softmax or a norm passes nothing on from even ones.
    """
    first = jnp.zeros((_STEPS, _WIDTH), bool)
    carry = policy.initial_carry(plan, (_WIDTH,))
    outputs = policy.unroll(plan, params, observation, first, carry)
    weights = jnp.cos(jnp.arange(outputs.policy.size, dtype=jnp.float32))
    total = jnp.sum(outputs.policy.reshape(-1) * weights)
    return total + value * jnp.sum(jnp.square(outputs.value))


def _remembered(plan: Plan, params: Any, observation: Any) -> dict[str, Any]:
    """Step through and unroll; the first column begins a second episode at step 2."""
    first = np.zeros((_STEPS, _WIDTH), bool)
    first[2, 0] = True
    start = carry = policy.initial_carry(plan, (_WIDTH,))
    stepped = []
    for t in range(_STEPS):
        carry = jax.tree.map(
            lambda new, old, t=t: jnp.where(
                first[t].reshape((-1,) + (1,) * (old.ndim - 1)), new, old
            ),
            start, carry,
        )  # fmt: skip
        here = jax.tree.map(lambda x, t=t: x[t], observation)
        outputs, carry = policy.step(plan, params, here, carry)
        stepped.append(outputs)
    return {
        "stepped": stepped,
        "unrolled": policy.unroll(plan, params, observation, jnp.asarray(first), start),
        "fresh": policy.apply(plan, params, observation),
    }
