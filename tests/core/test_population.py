import jax
import numpy as np
import pytest

pytestmark = pytest.mark.slow

CHUNKS = 3
ME = {"learning_rate": 1e-3, "ent_coef": 0.01}
OTHERS = {"learning_rate": 3e-3, "update_epochs": 7, "target_kl": 0.001, "gamma": 0.9}


def same(a, b):
    """Bitwise equality of two trees of arrays."""
    for left, right in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.fixture(scope="module")
def alone(tiny):
    """The curve of one configuration, replicate 3, in lane 0 of an otherwise empty population."""
    program = tiny.program()
    rows = tiny.start(program, {0: (ME, 3)})
    _, curve = tiny.curve(program, program.empty(), rows, CHUNKS, lane=0)
    return curve


def test_ratio_is_one_before_the_first_gradient_step(alone):
    assert np.all(alone.ratio_start_error <= 1e-6)
    assert np.any(alone.ratio_std > 0.0)  # and not afterwards


def test_training_metrics_are_finite_and_weights_move(alone):
    assert not alone.diverged.any()
    for leaf in jax.tree.leaves(alone):
        assert np.all(np.isfinite(leaf.astype(np.float64)))
    assert len(np.unique(alone.param_norm)) == CHUNKS * 2


def test_neighbours_change_no_bit(tiny, alone):
    program = tiny.program()
    lanes = {i: (OTHERS, i) for i in range(8)} | {0: (ME, 3)}
    _, curve = tiny.curve(program, program.empty(), tiny.start(program, lanes), CHUNKS, lane=0)
    same(curve, alone)


def test_lane_index_does_not_change_results(tiny, alone):
    program = tiny.program()
    lanes = {i: (OTHERS, i) for i in range(8)} | {5: (ME, 3)}
    _, curve = tiny.curve(program, program.empty(), tiny.start(program, lanes), CHUNKS, lane=5)
    same(curve, alone)


def test_refill_time_does_not_change_results(tiny, alone):
    program = tiny.program()
    busy = tiny.start(program, {i: (OTHERS, i) for i in range(8)})
    state, _ = tiny.curve(program, program.empty(), busy, 2, lane=0)
    rows = tiny.start(program, {6: (ME, 3)})
    _, curve = tiny.curve(program, state, rows, CHUNKS, lane=6)
    same(curve, alone)


def test_population_size_does_not_change_results(tiny, alone):
    program = tiny.program(lanes=16)
    rows = tiny.start(program, {i: (OTHERS, i) for i in range(16)} | {9: (ME, 3)})
    _, curve = tiny.curve(program, program.empty(), rows, CHUNKS, lane=9)
    same(curve, alone)


def test_diverged_lane_is_flagged_without_affecting_others(tiny, alone):
    program = tiny.program()
    wild = {"learning_rate": 1e9, "max_grad_norm": None}
    lanes = {i: (wild, i) for i in range(8)} | {1: (ME, 3)}
    rows = tiny.start(program, lanes)
    state, curve = tiny.curve(program, program.empty(), rows, CHUNKS, lane=1)
    same(curve, alone)
    state, metrics = program.advance(tiny.seed, state, program.no_refills())
    np.testing.assert_array_equal(
        np.asarray(metrics.diverged).any(axis=0), [i != 1 for i in range(8)]
    )


def test_different_seeds_differ_and_equal_seeds_agree(tiny):
    program = tiny.program()
    rows = tiny.start(program, {0: (ME, 1), 1: (ME, 1), 2: (ME, 2)})
    _, first = tiny.curve(program, program.empty(), rows, 1, lane=0)
    _, second = tiny.curve(program, program.empty(), rows, 1, lane=1)
    _, third = tiny.curve(program, program.empty(), rows, 1, lane=2)
    same(first, second)
    assert not np.array_equal(first.loss, third.loss)


def test_traced_knobs_do_not_recompile(tiny):
    """One compiled program takes any value of any traced knob, without weak types."""
    program = tiny.program()
    compiled = program._advance
    knobs = {
        "lr_schedule": "warmup_cosine", "clip_eps_schedule": "linear", "ent_schedule": "cosine",
        "value_clip_eps": "same", "target_kl": 0.01, "gae_lambda_initial": 0.9,
        "gae_lambda_final": 0.98, "separate_vf_optimiser": True, "normalise_rewards": True,
        "normalise_observations": True, "normalise_advantages": False, "update_epochs": 3,
    }  # fmt: skip
    rows = tiny.start(program, {i: (knobs, i) for i in range(8)})
    _, curve = tiny.curve(program, program.empty(), rows, CHUNKS, lane=2)
    assert program._advance is compiled
    assert np.all(np.isfinite(curve.loss)) and np.all(curve.ratio_start_error <= 1e-6)
    np.testing.assert_allclose(curve.vf_learning_rate, curve.learning_rate / 3, rtol=1e-5)
    with pytest.raises(TypeError):
        compiled(np.float32(0), program.empty(), program.place(rows), program._initial_on_devices)
