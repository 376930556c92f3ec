"""Tests for any network, optimiser or action distribution: subclass a contract.

The tests need pytest to run, but not to be imported:

    class TestMine(OptimiserContract):
        optimiser = "mine"

    class TestOther(DistributionContract):
        distribution = "other"
        env = EnvPlan("Pendulum-v1")
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..core import policy
from ..core.distributions import Family, family_of
from ..core.envs import registry as environments
from ..core.envs.contract import Box, Discrete, Environment
from ..core.hypers import Hypers, make_hypers
from ..core.networks.layers import Outputs
from ..core.networks.registry import RecurrentNetwork, make
from ..core.optimisers import apply_gradients, init_moments, step_sizes
from ..core.plan import EnvPlan, Plan, make_plan
from ..core.policy import draw_entropy_noise, draw_noise, environment_action, head_outputs

# The name of a test is its docstring.


_STEPS, _WIDTH, _LANES = 4, 3, 2


class NetworkContract:
    """Tests the properties of a network that rollouts, losses and optimisers rely on."""

    network: ClassVar[str] = "mlp"  # its registered name
    env: ClassVar[EnvPlan] = EnvPlan("CartPole-v1")  # the environment whose observations it reads
    # changed hyperparameters; small values make the tests quick
    knobs: ClassVar[dict[str, Any]] = {}
    tolerance: ClassVar[float] = 1e-4  # absolute and relative, between batches of different shapes

    @classmethod
    def plan(cls) -> Plan:
        return make_plan({**cls.knobs, "network": cls.network}, cls.env, features=())

    def test_outputs_and_values_have_their_shapes(self) -> None:
        results, plan = _network_results(type(self)), self.plan()
        outputs = results["together"]
        assert isinstance(outputs, Outputs)
        space = environments.make(plan.env).action_space
        assert outputs.value.shape == (_STEPS, _WIDTH)
        assert outputs.policy.shape[:2] == (_STEPS, _WIDTH) and outputs.policy.ndim == 3
        if isinstance(space, Discrete):
            assert outputs.policy.shape[2] == space.n
        for array in (outputs.policy, outputs.value):
            assert array.dtype == np.float32 and np.all(np.isfinite(array))

    def test_a_row_depends_on_itself_alone(self) -> None:
        results = _network_results(type(self))
        self._assert_close(jax.tree.map(lambda x: x[2, 1], results["together"]), results["one"])

    def test_rows_differ(self) -> None:
        outputs = _network_results(type(self))["together"]
        assert np.ptp(outputs.policy[..., 0]) > 0.0 and np.ptp(outputs.value) > 0.0

    def test_lanes_run_side_by_side(self) -> None:
        results = _network_results(type(self))
        self._assert_close(jax.tree.map(lambda x: x[1], results["lanes"]), results["together"])

    def test_parameters_follow_the_key(self) -> None:
        results = _network_results(type(self))
        drawn, again, other = (
            jax.tree.leaves(results[name]) for name in ("drawn", "again", "other")
        )
        for left, right in zip(drawn, again, strict=True):
            np.testing.assert_array_equal(left, right)
        differ = [np.any(left != right) for left, right in zip(drawn, other, strict=True)]
        assert any(differ), "initialisation ignores its key"

    def test_parameters_of_the_critic_serve_the_value_alone(self) -> None:
        slopes = _network_results(type(self))["policy_slopes"]
        for name, leaves in slopes.items():
            used = any(np.any(leaf) for leaf in jax.tree.leaves(leaves))
            assert used or policy.is_critic(name), f"the policy does not need {name!r}"
            assert not (used and policy.is_critic(name)), f"the policy needs {name!r}"

    def test_every_parameter_is_needed(self) -> None:
        slopes = _network_results(type(self))["slopes"]
        for path, leaf in jax.tree.leaves_with_path(slopes):
            assert np.all(np.isfinite(leaf)), jax.tree_util.keystr(path)
            assert np.any(leaf), f"no output depends on {jax.tree_util.keystr(path)}"

    def test_stepping_and_unrolling_agree(self) -> None:
        results, plan = _network_results(type(self)), self.plan()
        env = environments.make(plan.env)
        module = make(plan, 2, env.observation_struct)
        assert isinstance(module, RecurrentNetwork) == policy.is_recurrent(plan), (
            "register networks with a memory, and no others, with recurrent=True"
        )
        if not policy.is_recurrent(plan):
            assert policy.initial_carry(plan, (_WIDTH,)) == ()
            return
        for t, one in enumerate(results["stepped"]):
            self._assert_close(one, jax.tree.map(lambda x, t=t: x[t], results["unrolled"]))
        # The second episode begins at step 2 with an empty memory, as if it were the first.
        self._assert_close(results["unrolled"].value[2, 0], results["fresh"].value[2, 0])
        assert np.any(results["unrolled"].value[2, 1] != results["fresh"].value[2, 1])

    def _assert_close(self, left: Any, right: Any) -> None:
        for one, other in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
            np.testing.assert_allclose(one, other, rtol=self.tolerance, atol=self.tolerance)


def _random_params(params: Any) -> Any:
    rng = np.random.default_rng(5)
    return jax.tree.map(
        lambda x: (np.asarray(x) + 0.3 * rng.normal(size=x.shape)).astype(np.float32), params
    )


def _walk_environment(plan: Plan) -> Any:
    env = environments.make(plan.env)
    params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), env.default_params)
    space = env.action_space

    def step(carry: Any, key: Array) -> Any:
        state, observation = carry
        if isinstance(space, Discrete):
            mask = jnp.ones(space.n, bool)
            if env.has_mask:
                mask = env.action_mask(state, params)
            action = jnp.argmax(mask).astype(jnp.int32)
        else:
            action = jnp.zeros(policy.action_shape(env), jnp.float32)
        after = env.step(key, state, action, params)
        return (after.state, after.observation), observation

    def chain(key: Array) -> Any:
        return jax.lax.scan(step, env.reset(key, params), jax.random.split(key, _STEPS))[1]

    keys = jax.random.split(jax.random.key(3, impl="threefry2x32"), _WIDTH)
    return jax.vmap(chain, out_axes=1)(keys)


@functools.cache
def _network_results(contract: type[NetworkContract]) -> dict[str, Any]:
    plan = contract.plan()
    env = environments.make(plan.env)
    params_of_env = jax.tree.map(np.asarray, env.default_params)
    hypers = jax.tree.map(jnp.asarray, make_hypers({}, params_of_env, params_of_env))

    @jax.jit
    def draw(seed: Array) -> Any:
        return policy.init_params(plan, hypers, jax.random.key(seed, impl="threefry2x32"))

    drawn = {
        name: draw(np.int32(seed)) for name, seed in (("drawn", 0), ("again", 0), ("other", 1))
    }
    params = _random_params(drawn["drawn"])
    params.pop("log_std", None)

    @jax.jit
    def look(params: Any) -> dict[str, Any]:
        observation = _walk_environment(plan)

        def apply(params: Any) -> Outputs:
            return policy.apply(plan, params, observation)

        scaled = jax.tree.map(lambda x: jnp.stack([0.5 * x, x]), params)
        found = {
            "together": apply(params),
            "one": policy.apply(plan, params, jax.tree.map(lambda x: x[2, 1], observation)),
            "lanes": jax.vmap(apply)(scaled),
            "policy_slopes": jax.grad(_weighted_total)(params, plan, observation, 0.0),
            "slopes": jax.grad(_weighted_total)(params, plan, observation, 1.0),
        }
        if policy.is_recurrent(plan):
            found |= _memory_results(plan, params, observation)
        return found

    return {**jax.device_get(look(params)), **jax.device_get(drawn)}


def _weighted_total(params: Any, plan: Plan, observation: Any, value: float) -> Array:
    """Return a weighted sum of policy outputs, plus `value` times the sum of squared values."""
    first = jnp.zeros((_STEPS, _WIDTH), bool)
    carry = policy.initial_carry(plan, (_WIDTH,))
    outputs = policy.unroll(plan, params, observation, first, carry)
    weights = jnp.cos(jnp.arange(outputs.policy.size, dtype=jnp.float32))
    total = jnp.sum(outputs.policy.reshape(-1) * weights)
    return total + value * jnp.sum(jnp.square(outputs.value))


def _memory_results(plan: Plan, params: Any, observation: Any) -> dict[str, Any]:
    first = np.zeros((_STEPS, _WIDTH), bool)
    first[2, 0] = True
    start = carry = policy.initial_carry(plan, (_WIDTH,))
    stepped = []
    for t in range(_STEPS):
        carry = jax.tree.map(
            lambda new, old, t=t: jnp.where(
                first[t].reshape((-1,) + (1,) * (old.ndim - 1)), new, old
            ),
            start,
            carry,
        )
        here = jax.tree.map(lambda x, t=t: x[t], observation)
        outputs, carry = policy.step(plan, params, here, carry)
        stepped.append(outputs)
    return {
        "stepped": stepped,
        "unrolled": policy.unroll(plan, params, observation, jnp.asarray(first), start),
        "fresh": policy.apply(plan, params, observation),
    }


_CARTPOLE = EnvPlan("CartPole-v1")
_TARGET = 0.3


class OptimiserContract:
    """Tests the properties of an optimiser that updates, lanes and checkpoints rely on."""

    optimiser: ClassVar[str] = "adam"  # its registered name
    knobs: ClassVar[dict[str, Any]] = {}  # changed hyperparameters
    steps: ClassVar[int] = 100  # of descent on a bowl, |p - 0.3|^2, from p between -1 and 1
    learning_rate: ClassVar[float] = 0.02  # halves the distance, or better, in these steps

    @classmethod
    def run(cls, rates: Sequence[float], **knobs: Any) -> list[dict[str, Any]]:
        """Return the parameters after each step of a run with one learning rate per step."""
        return _descent_path(cls, tuple(rates), tuple(sorted({**cls.knobs, **knobs}.items())))

    def test_it_goes_down(self) -> None:
        reached = self.run([self.learning_rate] * self.steps)[-1]
        for before, after in zip(
            _leaf_arrays(_start_params()), _leaf_arrays(reached), strict=True
        ):
            assert np.all(np.isfinite(after))
            distance = np.linalg.norm(after - _TARGET) / np.linalg.norm(before - _TARGET)
            assert distance < 0.5, f"{distance:.2f} of the initial distance to the target is left"

    def test_the_learning_rate_of_each_step_reaches_it(self) -> None:
        """A rate stored in the state at the start, or rounded by Python, would fail this test."""
        rate = self.learning_rate
        same, larger, still = (self.run([rate, rate, last]) for last in (rate, 3.0 * rate, 1e-12))
        moved = [_param_distance(run[2], run[1]) for run in (same, larger, still)]
        assert moved[1] > 1.5 * moved[0] > 0.0, "the third step ignores its learning rate"
        assert moved[2] < 1e-3 * moved[0], "parameters still move at a learning rate of nearly 0"

    def test_lanes_run_side_by_side(self) -> None:
        rates = [self.learning_rate, 0.3 * self.learning_rate]
        side_by_side = _descend_together(type(self), tuple(rates))
        for lane, rate in enumerate(rates):
            alone = self.run([rate] * 3)[-1]
            for one, other in zip(_leaf_arrays(side_by_side), _leaf_arrays(alone), strict=True):
                np.testing.assert_allclose(one[lane], other, rtol=1e-4, atol=1e-6)

    def test_its_state_is_arrays_that_keep_their_shape(self) -> None:
        plan, hypers = _contract_plan(type(self)), _contract_hypers(type(self), {})
        state = init_moments(plan, _start_params())
        for leaf in jax.tree.leaves(state):
            assert isinstance(leaf, jax.Array) and leaf.size, (
                "checkpoints store only non-empty arrays"
            )
            assert not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key), (
                "store a key as jax.random.key_data"
            )

        def step(state: Any) -> Any:
            sizes = step_sizes(hypers, jnp.float32(0.0))
            return apply_gradients(
                plan,
                hypers,
                sizes,
                _quadratic_gradient(_start_params()),
                params=_start_params(),
                moments=state,
            )[1]

        after = jax.eval_shape(step, state)  # raises an error that names any change
        assert jax.tree.structure(after) == jax.tree.structure(state)

    def test_no_gradient_gives_finite_parameters(self) -> None:
        params = jax.tree.map(lambda x: jnp.full_like(x, _TARGET), _start_params())
        step, rate = _step_functions(type(self))[0], jnp.float32(self.learning_rate)
        made, _ = step(
            _contract_hypers(type(self), {}),
            rate,
            params,
            init_moments(_contract_plan(type(self)), params),
        )
        assert all(np.all(np.isfinite(leaf)) for leaf in _leaf_arrays(made))


def _start_params() -> dict[str, Any]:
    rng = np.random.default_rng(1)
    shapes = {"actor": (3, 4), "actor_head": (2,), "critic": (4, 2), "critic_head": (1,)}
    return {
        name: {"kernel": jnp.asarray(rng.uniform(-1.0, 1.0, size=shape), jnp.float32)}
        for name, shape in shapes.items()
    }


def _quadratic_gradient(params: Any) -> Any:
    return jax.tree.map(lambda p: 2.0 * (p - _TARGET), params)


def _leaf_arrays(tree: Any) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def _param_distance(one: Any, other: Any) -> float:
    pairs = zip(_leaf_arrays(one), _leaf_arrays(other), strict=True)
    return float(np.sqrt(sum(np.sum((a - b) ** 2) for a, b in pairs)))


def _contract_plan(contract: type[OptimiserContract]) -> Plan:
    return make_plan({**contract.knobs, "optimiser": contract.optimiser}, _CARTPOLE, features=())


def _contract_hypers(contract: type[OptimiserContract], knobs: dict[str, Any]) -> Hypers:
    given = {**contract.knobs, **knobs, "optimiser": contract.optimiser}
    given.setdefault("learning_rate", contract.learning_rate)
    return jax.tree.map(jnp.asarray, make_hypers(given, {}, {}))


@functools.cache
def _step_functions(contract: type[OptimiserContract]) -> Any:
    plan = _contract_plan(contract)

    def step(hypers: Hypers, rate: Array, params: Any, state: Any) -> Any:
        sizes = step_sizes(hypers.replace(learning_rate=rate), jnp.float32(0.0))
        return apply_gradients(
            plan, hypers, sizes, _quadratic_gradient(params), params=params, moments=state
        )[:2]

    return jax.jit(step), jax.jit(jax.vmap(step, in_axes=(None, 0, 0, 0)))


@functools.cache
def _descent_path(
    contract: type[OptimiserContract], rates: tuple[float, ...], knobs: tuple[Any, ...]
) -> list[dict[str, Any]]:
    hypers, (step, _) = _contract_hypers(contract, dict(knobs)), _step_functions(contract)
    params = _start_params()
    state, path = init_moments(_contract_plan(contract), params), []
    for rate in rates:
        params, state = step(hypers, jnp.float32(rate), params, state)
        path.append(params)
    return path


def _descend_together(contract: type[OptimiserContract], rates: tuple[float, ...]) -> Any:
    hypers, (_, step) = _contract_hypers(contract, {}), _step_functions(contract)
    one = (_start_params(), init_moments(_contract_plan(contract), _start_params()))
    params, state = jax.tree.map(lambda x: jnp.stack([x] * len(rates)), one)
    for _ in range(3):
        params, state = step(hypers, jnp.asarray(rates, jnp.float32), params, state)
    return params


_ROWS, _DRAWS = 3, 20_000


class DistributionContract:
    """Tests the properties of a distribution that rollouts, losses and evaluation rely on.

    The action's unit, to which densities refer, does not matter.
    """

    distribution: ClassVar[str] = "gaussian"  # its registered name
    # an environment with the kind of actions it supports
    env: ClassVar[EnvPlan] = EnvPlan("Pendulum-v1")
    knobs: ClassVar[dict[str, Any]] = {}  # changed hyperparameters
    # standard deviation of the tested head outputs; smaller if 20,000 draws from one head do not
    # estimate another head's mean
    spread: ClassVar[float] = 0.3

    @classmethod
    def plan(cls) -> Plan:
        return make_plan({**cls.knobs, "distribution": cls.distribution}, cls.env, features=())

    def test_actions_have_their_shape_and_lie_in_the_space(self) -> None:
        samples, env = _contract_samples(type(self)), environments.make(self.env)
        shape, dtype = policy.action_shape(env), np.int32
        if isinstance(env.action_space, Box):
            dtype = np.float32
        for name, lead in (("actions", (_DRAWS, _ROWS)), ("mode", (_ROWS,))):
            assert samples[name].shape == (*lead, *shape)
            assert samples[name].dtype == dtype
            assert np.all(np.isfinite(samples[name]))
        taken = samples["taken"]
        if isinstance(env.action_space, Box):
            assert taken.shape == (_DRAWS, _ROWS, *env.action_space.shape)
            assert taken.dtype == np.float32
            family = type(family_of(self.distribution))
            if family.environment_action is Family.environment_action:
                assert np.array_equal(taken.reshape(samples["actions"].shape), samples["actions"])
        else:
            assert np.all(taken >= 0) and np.all(taken < _choice_counts(env))

    def test_samples_follow_the_density(self) -> None:
        """The mean of q(a) / p(a) over draws from p must be 1, in any unit of the densities."""
        samples = _contract_samples(type(self))
        assert np.all(np.isfinite(samples["log_prob"]))
        ratio = np.exp(samples["other_log_prob"] - samples["log_prob"])
        error = ratio.std(axis=0) / np.sqrt(_DRAWS)
        assert np.all(error < 0.05), "the two heads are too far apart; lower `spread`"
        assert np.all(ratio.std(axis=0) > 1e-3), "the density ignores the head"
        assert np.all(np.abs(ratio.mean(axis=0) - 1.0) < 5.0 * error + 1e-3)

    def test_the_entropy_is_minus_the_mean_of_log_probabilities(self) -> None:
        samples = _contract_samples(type(self))
        error = samples["log_prob"].std(axis=0) / np.sqrt(_DRAWS)
        entropy = samples["entropy"]
        error += entropy.std(axis=0) / np.sqrt(len(entropy))  # of sampled estimates
        away = np.abs(entropy.mean(axis=0) + samples["log_prob"].mean(axis=0))
        assert np.all(away < 5.0 * error + 1e-3), "entropy() is not that of log_prob()"

    def test_the_head_can_learn(self) -> None:
        slopes = _contract_samples(type(self))["slopes"]
        assert np.all(np.isfinite(slopes))
        assert np.all(np.any(slopes != 0.0, axis=(0, 1))), "log_prob ignores an output"

    def test_a_row_depends_on_itself_alone(self) -> None:
        samples = _contract_samples(type(self))
        np.testing.assert_allclose(
            samples["alone"], samples["log_prob"][:4, 1], rtol=1e-4, atol=1e-4
        )

    def test_invalid_choices_are_never_taken(self) -> None:
        samples = _contract_samples(type(self)).get("masked")
        if samples is None:  # real-valued actions
            return
        mask, sizes = samples["mask"], samples["sizes"]
        first = np.cumsum([0, *sizes[:-1]])
        for name in ("actions", "mode"):
            places = samples[name].reshape(-1, len(sizes)) + first
            assert mask[places].all(), f"{name} contains an invalid choice"
        assert np.all(np.isfinite(samples["log_prob"])) and np.all(np.isfinite(samples["entropy"]))
        np.testing.assert_allclose(samples["total"], 1.0, atol=1e-4)
        assert np.all(np.isfinite(samples["unmasked"])), (
            "log_prob must ignore a mask without valid choices"
        )


def _choice_counts(env: Environment) -> np.ndarray:
    space = env.action_space
    assert not isinstance(space, Box)
    if isinstance(space, Discrete):
        return np.asarray([space.n])
    return np.asarray(space.nvec)


@functools.cache
def _contract_samples(contract: type[DistributionContract]) -> dict[str, Any]:
    plan = contract.plan()
    env = environments.make(plan.env)
    hypers = jax.tree.map(jnp.asarray, make_hypers(dict(contract.knobs), {}, {}))
    rng = np.random.default_rng(3)
    width = head_outputs(plan, env)
    head, other = (
        jnp.asarray(contract.spread * rng.normal(size=(_ROWS, width)), jnp.float32)
        for _ in range(2)
    )
    shape = policy.action_shape(env)
    params: dict[str, Array] = {}
    if policy.has_log_std(plan, env):
        params["log_std"] = jnp.full(shape, -0.3, jnp.float32)

    def of(outputs: Array, mask: Array | None = None) -> Any:
        value = jnp.zeros(outputs.shape[:-1], jnp.float32)
        return policy.distribution_of(plan, hypers, params, Outputs(outputs, value), mask)

    def drawn(outputs: Array, mask: Array | None, key: Array) -> tuple[Any, Array, Any]:
        many = jnp.broadcast_to(outputs, (_DRAWS, *outputs.shape))
        if mask is not None:
            mask = jnp.broadcast_to(mask, (_DRAWS, *mask.shape))
        distribution = of(many, mask)
        noise = draw_noise(plan, env, key, (_DRAWS, _ROWS))
        extra = draw_entropy_noise(plan, env, jax.random.fold_in(key, 1), (_DRAWS, _ROWS))
        return distribution, distribution.sample(noise), distribution.entropy(extra)

    @jax.jit
    def look(head: Array, other: Array, key: Array) -> dict[str, Any]:
        distribution, actions, entropy = drawn(head, None, key)
        few = actions[:4]

        def total(outputs: Array) -> Array:
            return jnp.sum(of(jnp.broadcast_to(outputs, (4, _ROWS, width))).log_prob(few))

        wide = jnp.broadcast_to(other, (_DRAWS, *other.shape))
        found = {
            "actions": actions,
            "taken": environment_action(plan, env, actions),
            "mode": of(head).mode(),
            "log_prob": distribution.log_prob(actions),
            "other_log_prob": of(wide).log_prob(actions),
            "entropy": entropy,
            "slopes": jax.grad(total)(head)[None],
            "alone": of(jnp.broadcast_to(head[1], (4, width))).log_prob(few[:, 1]),
        }
        if isinstance(env.action_space, Box):
            return found
        return {**found, "masked": _try_masks(env, of, drawn, head, key)}

    return jax.device_get(look(head, other, jax.random.key(5, impl="threefry2x32")))


def _try_masks(env: Environment, of: Any, drawn: Any, head: Array, key: Array) -> dict[str, Any]:
    sizes = _choice_counts(env)
    mask = jnp.concatenate([jnp.arange(size) % 2 == 0 for size in sizes])
    wide = jnp.broadcast_to(mask, (_ROWS, mask.shape[0]))
    distribution, actions, entropy = drawn(head, wide, key)
    grid = np.stack(np.meshgrid(*(np.arange(n) for n in sizes), indexing="ij"), -1)
    every = jnp.asarray(grid.reshape(-1, len(sizes)), jnp.int32)
    if isinstance(env.action_space, Discrete):
        every = every[:, 0]
    rows = every.shape[0]
    one = of(
        jnp.broadcast_to(head[0], (rows, head.shape[1])), jnp.broadcast_to(mask, (rows, mask.size))
    )
    nothing = of(head, jnp.zeros_like(wide))
    return {
        "mask": mask,
        "sizes": sizes,
        "actions": actions,
        "mode": of(head, wide).mode(),
        "log_prob": distribution.log_prob(actions),
        "entropy": entropy,
        "total": jnp.sum(jnp.exp(one.log_prob(every))),
        "unmasked": nothing.log_prob(nothing.mode()),
    }
