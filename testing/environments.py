"""Tests for any environment: subclass `EnvironmentContract` and define one fixture.

The tests need pytest to run, but not to be imported:

    class TestMine(EnvironmentContract):
        @pytest.fixture
        def environment(self):
            return Mine()
"""

# The name of a test is its docstring.

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from ..core.envs.contract import Box, Discrete, Environment, MultiDiscrete, agents_of
from ..core.envs.traced_once import action_struct, lead_axes, mask_size, trace_once


def _canonical_params(env: Environment) -> Any:
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), env.default_params)


def _reset_shapes(env: Environment) -> tuple[Any, Any]:
    key = jax.random.key(0, impl="threefry2x32")
    return jax.eval_shape(env.reset, key, _canonical_params(env))


def _random_action(env: Environment, key: PRNGKeyArray, mask: Array | None) -> Array:
    space, lead = env.action_space, lead_axes(env)
    if isinstance(space, Discrete):
        return _random_choice(key, (*lead, space.n), mask)
    if isinstance(space, MultiDiscrete):
        parts, end = list[Array](), 0
        for count in space.nvec:
            start, end = end, end + count
            valid = None if mask is None else mask[..., start:end]
            parts.append(_random_choice(jax.random.fold_in(key, end), (*lead, count), valid))
        return jnp.stack(parts, axis=-1)
    struct = action_struct(env)
    low, high = (
        jnp.broadcast_to(np.float32(np.clip(x, -10.0, 10.0)).reshape(space.shape), struct.shape)
        for x in (space.low, space.high)  # an unbounded action is drawn from a finite range
    )
    return jax.random.uniform(key, struct.shape, jnp.float32, low, high)


def _random_choice(key: PRNGKeyArray, shape: tuple[int, ...], mask: Array | None) -> Array:
    noise = jax.random.uniform(key, shape, jnp.float32)
    if mask is not None:
        noise = jnp.where(mask, noise, -1.0)
    return jnp.argmax(noise, axis=-1).astype(np.int32)


def play(env: Environment, steps: int, episodes: int) -> Callable[[int], dict[str, Any]]:
    """Return a function that takes random valid actions for a given seed, with resets.

    The function returns arrays [steps, episodes, ...] named as in `contract.Step`, and the masks;
    it is compiled once.
    """
    params = _canonical_params(env)

    def step(carry: tuple[Any, Any], key: PRNGKeyArray) -> tuple[tuple[Any, Any], Any]:
        state, _ = carry
        act, move, fresh = jax.random.split(key, 3)
        mask = None
        if env.has_mask:
            mask = env.action_mask(state, params)
        after = env.step(move, state, _random_action(env, act, mask), params)
        ended = after.terminated | after.truncated
        new, going = env.reset(fresh, params), (after.state, after.observation)
        row = {name: getattr(after, name) for name in _SHOWN}
        return jax.tree.map(lambda a, b: jnp.where(ended, a, b), new, going), row | {"mask": mask}

    def chain(key: PRNGKeyArray) -> Any:
        return jax.lax.scan(step, env.reset(key, params), jax.random.split(key, steps))[1]

    def chains(seed: Array) -> Any:
        keys = jax.random.split(jax.random.key(seed, impl="threefry2x32"), episodes)
        return jax.vmap(chain, out_axes=1)(keys)

    compiled = jax.jit(chains)
    return lambda seed: jax.device_get(compiled(np.int32(seed)))


_SHOWN = ("observation", "reward", "terminated", "truncated", "info")


class EnvironmentContract:
    """Tests the properties that rollouts and evaluation rely on; see `contract.Environment`."""

    steps = 64  # number of random steps
    episodes = 4  # number of episodes in parallel

    def test_it_is_an_environment(self, environment: Environment) -> None:
        assert isinstance(environment, Environment)
        assert isinstance(environment.action_space, (Discrete, MultiDiscrete, Box))
        assert environment.warmup_steps >= 0
        assert agents_of(environment) >= 1

    def test_parameters_are_fields_of_float_numbers(self, environment: Environment) -> None:
        params = environment.default_params
        assert dataclasses.is_dataclass(params)
        names = [field.name for field in dataclasses.fields(params)]
        assert len(jax.tree.leaves(params)) == len(names)
        assert all(np.isfinite(getattr(params, name)) for name in names)

    def test_every_method_gives_the_declared_shapes_and_types(
        self, environment: Environment
    ) -> None:
        trace_once(environment)

    def test_the_state_is_of_arrays_that_can_be_stored(self, environment: Environment) -> None:
        for leaf in jax.tree.leaves(_reset_shapes(environment)[0]):
            is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
            assert not is_key, "store a key as its words: jax.random.key_data"
            assert leaf.size > 0, "an empty array cannot be stored; remove it"

    def test_reset_and_step_give_strong_types(self, environment: Environment) -> None:
        start, params = _reset_shapes(environment), _canonical_params(environment)
        key = jax.random.key(0, impl="threefry2x32")
        action = action_struct(environment)
        after = jax.eval_shape(environment.step, key, start[0], action, params)
        leaves = jax.tree.leaves((start, after))
        weak = [leaf for leaf in leaves if getattr(leaf, "weak_type", False)]
        assert not weak, "weakly typed arrays make programs compile twice; give them a dtype"

    def test_every_parameter_may_differ_per_lane(self, environment: Environment) -> None:
        one = environment.default_params
        lanes = jax.tree.map(lambda _: jax.ShapeDtypeStruct((3,), np.float32), one)

        def run(params: Any) -> Any:
            key = jax.random.key(0, impl="threefry2x32")
            state, _ = environment.reset(key, params)
            struct = action_struct(environment)
            return environment.step(key, state, jnp.zeros(struct.shape, struct.dtype), params)

        if jax.tree.leaves(lanes):
            reward = jax.eval_shape(jax.vmap(run), lanes).reward
            assert reward.shape == (3, *lead_axes(environment))

    def test_random_play_keeps_its_promises(self, environment: Environment) -> None:
        run = play(environment, self.steps, self.episodes)
        arrays, again = run(0), run(0)
        floats = [leaf for leaf in jax.tree.leaves(arrays) if leaf.dtype == np.float32]
        assert all(np.all(np.isfinite(leaf)) for leaf in floats)
        ended = arrays["terminated"] | arrays["truncated"]
        assert not (environment.never_ends and ended.any())
        for left, right in zip(jax.tree.leaves(arrays), jax.tree.leaves(again), strict=True):
            np.testing.assert_array_equal(left, right)
        if environment.has_mask:
            assert isinstance(environment.action_space, (Discrete, MultiDiscrete))
            one = (*lead_axes(environment), mask_size(environment))
            shape = (self.steps, self.episodes, *one)
            assert arrays["mask"].shape == shape and arrays["mask"].dtype == bool
        sums = {name: jnp.float32(leaf.sum()) for name, leaf in arrays["info"].items()}
        summary = environment.summarise(sums, jnp.float32(ended.size))
        assert all(np.shape(value) == () for value in summary.values())
