import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from jaxtyping import TypeCheckError

from helpers import slow
from hpo.core.advantages import Steps, gae, temporal_differences, v_trace

T, E = 9, 3
compiled = jax.jit(gae)
compiled_v_trace = jax.jit(v_trace)


def steps_of(rewards, values, next_values, terminated, truncated):
    arrays = (jnp.asarray(x, jnp.float32) for x in (rewards, values, next_values))
    return Steps(*arrays, *(jnp.asarray(x, bool) for x in (terminated, truncated)))


def run(rewards, values, next_values, terminated, truncated, gamma, lam):
    steps = steps_of(rewards, values, next_values, terminated, truncated)
    return np.asarray(compiled(steps, jnp.float32(gamma), jnp.float32(lam)))


def numbers(seed=0, ends=0.3):
    rng = np.random.default_rng(seed)
    rewards, values, next_values = rng.normal(size=(3, T, E))
    return rewards, values, next_values, rng.random((T, E)) < ends, rng.random((T, E)) < ends


def reals():
    return hnp.arrays(np.float32, (T, E), elements=st.floats(-10, 10, width=32))


def flags():
    return hnp.arrays(bool, (T, E))


@settings(max_examples=100, deadline=None)
@given(st.tuples(reals(), reals(), reals(), flags(), flags(), st.floats(0, 1), st.floats(0, 1)))
def test_it_is_the_sum_over_each_episode(numbers):
    np.testing.assert_allclose(run(*numbers), slow.gae(*numbers), rtol=1e-4, atol=2e-3)


def test_array_shapes_and_dtypes_are_type_checked_in_tests():
    """By the hook of tests/conftest.py: a function's, and those of a tree of arrays."""
    steps = steps_of(*numbers())
    with pytest.raises(TypeCheckError, match="gamma"):
        temporal_differences(steps, jnp.int32(1))
    for value in (steps.value > 0, steps.value[:, 1:]):
        with pytest.raises(TypeCheckError, match="value"):
            Steps(steps.reward, value, steps.next_value, steps.terminated, steps.truncated)


def test_gae_matches_manual_example():
    # gamma 0.5, lambda 0.5; values 1, 2, 3; rewards 1, 1, 1; then V = 4.
    # deltas: 1 + 0.5 2 - 1 = 1; 1 + 0.5 3 - 2 = 0.5; 1 + 0.5 4 - 3 = 0
    # A_2 = 0; A_1 = 0.5; A_0 = 1 + 0.25 0.5 = 1.125
    column = np.ones((3, 1))
    values, following = np.array([[1.0], [2.0], [3.0]]), np.array([[2.0], [3.0], [4.0]])
    never = np.zeros((3, 1))
    advantages = run(column, values, following, never, never, 0.5, 0.5)
    np.testing.assert_allclose(advantages[:, 0], [1.125, 0.5, 0.0], atol=1e-6)


def test_lambda_zero_is_the_one_step_error():
    rewards, values, following, terminated, truncated = numbers()
    expected = rewards + 0.9 * (1 - terminated) * following - values
    made = run(rewards, values, following, terminated, truncated, 0.9, 0.0)
    np.testing.assert_allclose(made, expected, atol=1e-5)


def test_lambda_one_is_the_discounted_return_minus_the_value():
    rewards, values, _, terminated, _ = numbers(ends=0.2)
    last = np.full((1, E), 0.7)
    following = np.concatenate([values[1:], last])
    made = run(rewards, values, following, terminated, np.zeros((T, E)), 0.9, 1.0)
    for e in range(E):
        for t in range(T):
            total, factor = 0.0, 1.0
            for k in range(t, T):
                total += factor * rewards[k, e]
                factor *= 0.9
                if terminated[k, e]:
                    break
            else:
                total += factor * last[0, e]
            assert made[t, e] == pytest.approx(total - values[t, e], abs=1e-4)


def test_an_ending_stops_the_bootstrap_and_a_cut_takes_the_final_observation_s():
    rewards, values, following, _, _ = numbers()
    ended = np.zeros((T, E), bool)
    ended[4] = True
    never = np.zeros((T, E), bool)
    terminated = run(rewards, values, following, ended, never, 0.9, 0.8)
    np.testing.assert_allclose(terminated[4], rewards[4] - values[4], atol=1e-5)
    truncated = run(rewards, values, following, never, ended, 0.9, 0.8)
    bootstrapped = rewards[4] + 0.9 * following[4] - values[4]
    np.testing.assert_allclose(truncated[4], bootstrapped, atol=1e-5)
    both = run(rewards, values, following, ended, ended, 0.9, 0.8)
    np.testing.assert_array_equal(both, terminated)


@pytest.mark.parametrize("which", ["terminated", "truncated"])
def test_advantages_do_not_leak_across_episodes(which):
    rewards, values, following, _, _ = numbers()
    ended, never = np.zeros((T, E), bool), np.zeros((T, E), bool)
    ended[4] = True
    ends = (ended, never) if which == "terminated" else (never, ended)
    before = run(rewards, values, following, *ends, 0.99, 1.0)
    changed = [x.copy() for x in (rewards, values, following)]
    for x in changed:
        x[5:] += 1e3
    after = run(*changed, *ends, 0.99, 1.0)
    np.testing.assert_array_equal(after[:5], before[:5])
    assert np.all(after[5:] != before[5:])


def test_discounts_may_differ_by_batch_entry():
    arrays = numbers()
    gamma, lam = np.array([0.5, 0.9, 1.0]), np.array([1.0, 0.5, 0.0])
    made = compiled(steps_of(*arrays), gamma.astype(np.float32), lam.astype(np.float32))
    for e in range(E):
        one = slow.gae(*(x[:, e : e + 1] for x in arrays), gamma[e], lam[e])
        np.testing.assert_allclose(made[:, e], one[:, 0], rtol=1e-4, atol=1e-4)


def run_v_trace(rewards, values, next_values, terminated, truncated, gamma, lam, ratio, rho, c):
    steps = steps_of(rewards, values, next_values, terminated, truncated)
    made = compiled_v_trace(
        steps,
        jnp.float32(gamma),
        jnp.float32(lam),
        np.asarray(ratio, np.float32),
        rho_clip=jnp.float32(rho),
        c_clip=jnp.float32(c),
    )
    return np.asarray(made)


def ratios(seed=1):
    return np.exp(np.random.default_rng(seed).normal(scale=0.5, size=(T, E)))


@settings(max_examples=100, deadline=None)
@given(
    st.tuples(reals(), reals(), reals(), flags(), flags(), st.floats(0, 1), st.floats(0, 1)),
    hnp.arrays(np.float32, (T, E), elements=st.floats(0, 4, width=32)),
    st.floats(0.25, 2),
    st.floats(0.25, 2),
)
def test_v_trace_is_the_weighted_sum_over_each_episode(numbers, ratio, rho, c):
    made = run_v_trace(*numbers, ratio, rho, c)
    expected = slow.v_trace(*numbers, ratio, rho, c)
    np.testing.assert_allclose(made, expected, rtol=1e-3, atol=2e-2)


def test_v_trace_on_policy_is_gae():
    arrays = numbers()
    for rho, c in ((1.0, 1.0), (2.0, 1.5)):  # ratios of 1 are cut by no clip of at least 1
        made = run_v_trace(*arrays, 0.9, 0.8, np.ones((T, E)), rho, c)
        np.testing.assert_allclose(made, run(*arrays, 0.9, 0.8), atol=1e-6)


def test_v_trace_at_lambda_one_is_equation_1_of_impala():
    """v_s = V(x_s) + sum_t gamma^(t-s) (prod c_i) rho_t (r_t + gamma V(x_t+1) - V(x_t))."""
    rewards, values, _, _, _ = numbers()
    following = np.concatenate([values[1:], np.full((1, E), 0.7)])
    ratio, never, gamma = ratios(), np.zeros((T, E), bool), 0.9
    made = run_v_trace(rewards, values, following, never, never, gamma, 1.0, ratio, 1.2, 0.9)
    assert (ratio > 1.2).any() and (ratio < 0.9).any()
    for e in range(E):
        for s in range(T):
            target = values[s, e]
            for t in range(s, T):
                product = np.prod([min(0.9, ratio[i, e]) for i in range(s, t)])
                error = rewards[t, e] + gamma * following[t, e] - values[t, e]
                target += gamma ** (t - s) * product * min(1.2, ratio[t, e]) * error
            assert made[s, e] + values[s, e] == pytest.approx(target, abs=1e-4)


def test_v_trace_matches_manual_example():
    # gamma 0.5, lambda 1; values 1, 2; rewards 1, 1; then V = 4; ratios 2 and 0.5; clips 1.5, 1.
    # errors: 1 + 0.5 2 - 1 = 1; 1 + 0.5 4 - 2 = 1; deltas 1.5 1 = 1.5 and 0.5 1 = 0.5
    # A_1 = 0.5; A_0 = 1.5 + 0.5 1 0.5 = 1.75
    column = np.ones((2, 1))
    values, following = np.array([[1.0], [2.0]]), np.array([[2.0], [4.0]])
    never = np.zeros((2, 1))
    made = run_v_trace(
        column, values, following, never, never, 0.5, 1.0, np.array([[2.0], [0.5]]), 1.5, 1.0
    )
    np.testing.assert_allclose(made[:, 0], [1.75, 0.5], atol=1e-6)


def test_temporal_differences_are_gae_at_lambda_zero():
    arrays = numbers()
    made = temporal_differences(steps_of(*arrays), jnp.float32(0.9))
    expected = run(*arrays, 0.9, 0.0)
    np.testing.assert_allclose(made, expected, atol=1e-6)
