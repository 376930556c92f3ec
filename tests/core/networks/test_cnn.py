import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers import slow_networks as slow
from hpo.core import policy
from hpo.core.hypers import make_hypers
from hpo.core.lane_state import RunningStatistics
from hpo.core.networks import registry
from hpo.core.networks.cnn import CNN, convolutions_of
from hpo.core.plan import EnvPlan, make_plan
from hpo.errors import ConfigError

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quickly_compiled")]

SIZES = {"cnn_channels": [3, 2], "cnn_kernels": [3, 2], "cnn_strides": [2, 1], "cnn_dense": [5]}


def plan_of(**knobs):
    return make_plan({"network": "cnn", **knobs}, EnvPlan("Breakout-MinAtar"), features=())


def test_it_computes_what_the_loop_computes():
    plan = plan_of(**SIZES)
    module = CNN(plan, 4, (9, 8, 2))
    images = np.random.default_rng(0).normal(size=(2, 3, 9, 8, 2)).astype(np.float32)
    params = slow.drawn(module, jnp.asarray(images[0, 0]))
    made = jax.jit(lambda p, x: module.apply({"params": p}, x))(params, images)
    exact = slow.as_float64(params)
    for place in np.ndindex(2, 3):
        expected = {}
        for tower in ("actor", "critic"):
            x = slow.relu(slow.convolution(exact[tower]["convolution_0"], images[place], 3, 2))
            x = slow.relu(slow.convolution(exact[tower]["convolution_1"], x, 2, 1))
            expected[tower] = slow.relu(slow.dense(exact[tower]["dense_0"], x.reshape(-1)))
        policy = slow.head(exact["actor_head"], expected["actor"])
        value = slow.head(exact["critic_head"], expected["critic"])[0]
        np.testing.assert_allclose(made.policy[place], policy, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(made.value[place], value, rtol=1e-4, atol=1e-4)


def _pooled(image):
    """Return the largest of each 3x3 window, every second row and column, pixel by pixel."""
    height, width, _ = image.shape
    rows, columns = -(-height // 2), -(-width // 2)
    above, left = (
        (2 * (count - 1) + 3 - side) // 2 for count, side in ((rows, height), (columns, width))
    )
    made = np.full((rows, columns, image.shape[-1]), -np.inf)
    for row, column in np.ndindex(rows, columns):
        for i, j in np.ndindex(3, 3):
            at, across = 2 * row + i - above, 2 * column + j - left
            if 0 <= at < height and 0 <= across < width:
                made[row, column] = np.maximum(made[row, column], image[at, across])
    return made


def _same(layer, image):
    return slow.convolution(layer, np.pad(image, ((1, 1), (1, 1), (0, 0))), 3, 1)


def test_residual_blocks_compute_what_the_loop_computes():
    """Espeholt et al. 2018, figure 3: convolution, max pooling, two residual blocks, a stage."""
    plan = plan_of(cnn_residual_blocks=2, cnn_channels=[3, 2], cnn_kernels=[3, 3],
                   cnn_strides=[2, 2], cnn_dense=[5], shared_encoder=True)  # fmt: skip
    module = CNN(plan, 4, (9, 8, 2))
    images = np.random.default_rng(0).normal(size=(2, 9, 8, 2)).astype(np.float32)
    params = slow.drawn(module, jnp.asarray(images[0]))
    made = jax.jit(lambda p, x: module.apply({"params": p}, x))(params, images)
    exact = slow.as_float64(params)
    for at, x in enumerate(images):
        for number in range(2):
            stage = exact["encoder"][f"stage_{number}"]
            x = _pooled(_same(stage["convolution"], x))
            for block in range(2):
                inner = _same(stage[f"convolution_{block}a"], slow.relu(x))
                x = x + _same(stage[f"convolution_{block}b"], slow.relu(inner))
        assert x.shape == (3, 2, 2)
        x = slow.relu(slow.dense(exact["encoder"]["dense_0"], slow.relu(x).reshape(-1)))
        policy = slow.head(exact["actor_head"], x)
        np.testing.assert_allclose(made.policy[at], policy, rtol=1e-4, atol=1e-4)
        value = slow.head(exact["critic_head"], x)[0]
        np.testing.assert_allclose(made.value[at], value, rtol=1e-4, atol=1e-4)


def test_the_residual_network_has_the_published_size():
    """As the stages of 16, 32, 32 channels and 256 units count, of images of 84 pixels."""
    plan = plan_of(cnn_residual_blocks=2, shared_encoder=True)
    module = registry.make(plan, 6, jax.ShapeDtypeStruct((4, 84, 84), np.uint8))
    shapes = jax.eval_shape(module.init, jax.random.key(0), jnp.zeros((4, 84, 84), np.uint8))
    count = sum(leaf.size for leaf in jax.tree.leaves(shapes["params"]["encoder"]))
    stages, before = 0, 4
    for channels in (16, 32, 32):
        stages += 9 * before * channels + channels + 4 * (9 * channels * channels + channels)
        before = channels
    assert count == stages + 11 * 11 * 32 * 256 + 256


def test_bytes_are_scaled_and_histories_become_channels():
    plan = plan_of(**SIZES, shared_encoder=True, layer_norm=True)
    frames = np.random.default_rng(1).integers(0, 256, size=(3, 9, 8, 2), dtype=np.uint8)
    stacked = CNN(plan, 2, frames.shape)
    params = {"params": slow.drawn(stacked, jnp.asarray(frames))}
    image = np.concatenate([frame / np.float32(255.0) for frame in frames], axis=-1)
    flat = CNN(plan, 2, image.shape).apply(params, jnp.asarray(image))
    made = stacked.apply(params, jnp.asarray(frames))
    np.testing.assert_allclose(made.policy, flat.policy, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(made.value, flat.value, rtol=1e-5)
    grey = CNN(plan, 2, (9, 8))
    params = {"params": slow.drawn(grey, jnp.zeros((9, 8)))}
    assert grey.apply(params, jnp.ones((5, 9, 8))).policy.shape == (5, 2)


def test_smallest_leading_axis_is_treated_as_channels():
    """As in Atari's stacks [4, 84, 84]."""
    plan = plan_of(**SIZES)
    frames = np.random.default_rng(1).integers(0, 256, size=(4, 9, 8), dtype=np.uint8)
    first = registry.make(plan, 2, jax.ShapeDtypeStruct(frames.shape, np.uint8))
    params = {"params": slow.drawn(first, jnp.asarray(frames))}
    made = first.apply(params, jnp.asarray(frames))
    last = np.moveaxis(frames, 0, -1)
    same = registry.make(plan, 2, jax.ShapeDtypeStruct(last.shape, np.uint8))
    expected = same.apply(params, jnp.asarray(last))
    np.testing.assert_array_equal(made.policy, expected.policy)
    np.testing.assert_array_equal(made.value, expected.value)


def test_history_axis_of_grey_images_is_not_taken_for_channels():
    plan = plan_of(**SIZES, history=3)
    frames = np.random.default_rng(1).normal(size=(2, 3, 9, 8)).astype(np.float32)
    stacked = registry.make(plan, 2, jax.ShapeDtypeStruct((3, 9, 8), np.float32))
    params = {"params": slow.drawn(stacked, jnp.asarray(frames[0]))}
    made = stacked.apply(params, jnp.asarray(frames))
    image = jnp.asarray(np.moveaxis(frames, 1, -1))
    flat = CNN(plan_of(**SIZES), 2, (9, 8, 3)).apply(params, image)
    np.testing.assert_allclose(made.policy, flat.policy, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(made.value, flat.value, rtol=1e-5)
    with pytest.raises(ConfigError, match="images of 3 x 2 pixels"):  # not of 9 x 3
        registry.make(plan, 2, jax.ShapeDtypeStruct((9, 3, 2), np.float32))


@pytest.mark.parametrize("on", [False, True])
def test_uint8_images_are_scaled_when_other_lanes_normalise(on):
    """A lane that does not sees what it would see where nobody can."""
    plan = plan_of(**SIZES)
    frames = np.random.default_rng(1).integers(0, 256, size=(5, 9, 8, 2), dtype=np.uint8)
    params = {"params": slow.drawn(CNN(plan, 2, (9, 8, 2)), jnp.asarray(frames[0]))}
    statistics = RunningStatistics.empty((9, 8, 2)).merge(jnp.asarray(frames, jnp.float32))
    hypers = jax.tree.map(jnp.asarray, make_hypers({"normalise_observations": on}, {}, {}))
    able = dataclasses.replace(plan, features=("normalise_observations",))
    shown = policy.normalised(able, hypers, statistics, jnp.asarray(frames))
    made = CNN(plan, 2, (9, 8, 2)).apply(params, shown)
    expected = (frames - frames.mean(axis=0)) / frames.std(axis=0) if on else frames
    exact = CNN(plan, 2, (9, 8, 2)).apply(params, jnp.asarray(expected, None if on else "uint8"))
    np.testing.assert_allclose(made.policy, exact.policy, rtol=1e-4, atol=1e-6)


def test_defaults_are_the_published_ones():
    large, small = convolutions_of(plan_of(), 84, 84), convolutions_of(plan_of(), 10, 10)
    assert (large.channels, large.kernels, large.strides) == ((32, 64, 64), (8, 4, 3), (4, 2, 1))
    assert large.dense == (512,)
    assert (small.channels, small.kernels, small.strides) == ((16,), (3,), (1,))
    assert small.dense == (128,) and plan_of().activation == "relu"


def test_invalid_cnn_sizes_and_observations_are_refused():
    with pytest.raises(
        ConfigError,
        match=r"cnn_kernels\[1\] is 4, but its input is only 1 pixels wide \(images of 10 x 10",
    ):
        sizes = {"cnn_channels": [4, 4], "cnn_kernels": [8, 4], "cnn_strides": [4, 2]}
        registry.make(plan_of(**sizes), 3, jax.ShapeDtypeStruct((10, 10, 4), np.float32))
    with pytest.raises(ConfigError, match="reads images"):
        registry.make(plan_of(), 3, jax.ShapeDtypeStruct((4,), np.float32))
    with pytest.raises(ConfigError, match="go together"):
        plan_of(cnn_channels=[4])
