"""Programs as they are written for a GPU, run on this CPU: they learn what the CPU's learn."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hpo.core import memory
from hpo.core.advantages import Steps, gae
from hpo.core.memory import MEMORY_SHARE, estimate_memory, for_platform, gpu_tile
from hpo.core.plan import CPU, GPU, EnvPlan, backend_of, make_plan, plan_hash
from hpo.core.population import Lanes, Refills, init_lane, lane_shapes, refill_lanes
from hpo.core.program import EvaluationPlan, Program
from hpo.core.pytree import stack
from hpo.core.rollout import Trajectory, as_record, from_record

LANES = 10


def test_program_backend_does_not_change_the_cpu_plan_hash(tiny):
    assert backend_of("cpu") == CPU == tiny.plan.backend and backend_of("gpu") == GPU
    written = for_platform(tiny.plan, "gpu")
    assert written.backend == GPU and written != tiny.plan
    assert plan_hash(tiny.plan) == plan_hash(for_platform(tiny.plan, "cpu")) != plan_hash(written)
    assert tiny.program().plan.backend == CPU


@pytest.mark.parametrize(
    ("id_", "given", "packed"),
    [
        ("rmsa", {}, True),
        ("rwa", {"k": 3}, True),
        ("rmsa", {"observation": "flat"}, False),
        ("deeprmsa", {}, False),
        ("rwa_lightpath_reuse", {}, False),
        ("CartPole-v1", {}, False),
    ],
)
def test_gpu_defaults_to_packed_observations(id_, given, packed):
    where = EnvPlan(id_, tuple(sorted(given.items())))
    plan = make_plan({}, where)
    assert for_platform(plan, "cpu").env == where
    written = for_platform(plan, "gpu")
    assert written.env.unrolled == (id_ != "CartPole-v1") and not where.unrolled
    kept = {**given, "observation": "packed"} if packed else given
    assert dict(written.env.keys) == dict(written.eval_env.keys) == kept
    assert for_platform(written, "gpu") == written


def test_gpu_keeps_observations_of_link_networks_and_histories():
    for knobs in ({"network": "gnn"}, {"network": "transformer"}, {"history": 2}):
        plan = make_plan(knobs, EnvPlan("rmsa"))
        unrolled = dataclasses.replace(plan.env, unrolled=True)
        assert for_platform(plan, "gpu").env == unrolled


def test_gpu_program_learns_like_the_cpu_program(tiny, monkeypatch, quickly):
    devices = tuple(jax.devices())
    words = (tiny.plan, 8, tiny.updates, 4, EvaluationPlan(), devices, tiny.hypers())
    plain = Program(*words)
    monkeypatch.setattr(memory, "backend_of", lambda platform: GPU)
    written = Program(*words)
    assert plain.plan.backend == CPU and written.plan.backend == GPU
    other = {"learning_rate": 3e-3, "update_epochs": 7, "target_kl": 0.001}
    starts = {i: (other if i % 2 else {}, i) for i in range(8)}
    again = {2: ({}, 30), 5: (other, 31)}
    curves = []
    for program in (plain, written):
        state, seen = program.empty(), []
        for lanes in (starts, again):
            state, metrics = program.advance(tiny.seed, state, tiny.start(program, lanes))
            seen.append(jax.device_get(metrics))
        curves.append((seen, jax.device_get(state)))
    for ours, theirs in zip(*map(jax.tree.leaves, curves), strict=True):
        if np.issubdtype(ours.dtype, np.floating):
            np.testing.assert_allclose(theirs, ours, rtol=1e-3, atol=1e-5)
        else:
            np.testing.assert_array_equal(theirs, ours)


@pytest.fixture(scope="module")
def running(tiny):
    """Lanes of a GPU's program that have run before: none of their numbers is a fresh one's."""
    shapes = lane_shapes(tiny.plan, tiny.hypers())
    state = jax.tree.map(lambda x: np.full((LANES, *x.shape), 7, x.dtype), shapes)
    return Lanes(stack([tiny.hypers(gamma=0.5)] * LANES), state)


@pytest.fixture(scope="module", params=[1, 4], ids=["in turn", "four side by side"])
def started(request, tiny):
    """A function of lanes and refills: the lanes that a program starts, and each one alone."""
    backend = dataclasses.replace(CPU, refill_batch=request.param)
    batches = dataclasses.replace(tiny.plan, backend=backend)

    @jax.jit
    def both(running, refills):
        def alone(given):
            hypers, *numbers = given
            return init_lane(tiny.plan, jnp.int32(5), hypers, *numbers)

        r = refills
        given = r.hypers, r.stream, r.replicate, r.updates, r.total_updates
        return refill_lanes(batches, jnp.int32(5), running, refills), jax.lax.map(alone, given)

    return both


@pytest.mark.parametrize("starts", [(), (3,), (0, 2, 4, 5, 9), tuple(range(LANES))])
def test_started_lanes_are_those_started_alone(tiny, running, starts, started, quickly):
    numbers = np.arange(LANES, dtype=np.int32)
    mask = np.isin(numbers, starts)
    hypers = stack([tiny.hypers(learning_rate=1e-4 * (i + 1)) for i in range(LANES)])
    refills = Refills(mask, mask, hypers, numbers % 3, numbers, -numbers, numbers + 50)
    made, alone = jax.device_get(started(running, refills))
    for lane in range(LANES):
        wanted = Lanes(hypers, alone) if lane in starts else running
        for one, other in zip(jax.tree.leaves(made), jax.tree.leaves(wanted), strict=True):
            np.testing.assert_allclose(one[lane], other[lane], rtol=1e-5, atol=1e-6)


def test_trajectory_record_round_trips_bitwise():
    rng = np.random.default_rng(0)
    words = [rng.integers(0, 2**32, (3, 2, 4), dtype=np.uint32).view(np.float32) for _ in range(5)]
    words[0][0, 0, :3] = np.nan, -0.0, np.inf
    flags = [rng.random((3, 2, 4)) < 0.5 for _ in range(2)]
    seen = jax.tree.map(
        jnp.asarray,
        {
            "observation": rng.random((3, 2, 4, 5)).astype(np.float32),
            "action": rng.integers(-9, 9, (3, 2, 4)).astype(np.int32),
            **dict(
                zip(("log_prob", "value", "reward", "bootstrap", "valid_mass"), words, strict=True)
            ),
            **dict(zip(("terminated", "truncated"), flags, strict=True)),
        },
    )
    seen = Trajectory(mask=None, **seen)
    _, (rest, rows) = jax.lax.scan(lambda _, step: (None, as_record(step)), None, seen)
    assert rows.shape == (3, 7, 2, 4)
    back = from_record(rest, rows)
    for one, other in zip(jax.tree.leaves(back), jax.tree.leaves(seen), strict=True):
        assert one.dtype == other.dtype
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


@pytest.mark.parametrize("steps", [5, 16, 40])
def test_unrolled_gae_matches_plain_gae(steps):
    rng = np.random.default_rng(steps)
    rewards, values, following = rng.normal(size=(3, steps, 6)).astype(np.float32)
    terminated, truncated = rng.random((2, steps, 6)) < 0.1
    rows = Steps(*map(jnp.asarray, (rewards, values, following, terminated, truncated)))
    one, many = (gae(rows, jnp.float32(0.97), jnp.float32(0.9), n) for n in (1, 16))
    np.testing.assert_allclose(many, one, rtol=1e-6, atol=1e-6)


def test_gpu_tile_is_the_largest_that_fits_memory(tiny):
    plan, hypers = for_platform(tiny.plan, "gpu"), tiny.hypers()

    def needed(lanes, tile):
        return estimate_memory(plan, hypers, lanes, tile, 1) / MEMORY_SHARE

    plenty = 10**12
    tiles = [gpu_tile(plan, hypers, lanes, plenty) for lanes in (1, 60, 64, 65, 512, 4096, 9000)]
    assert tiles == [8, 64, 64, 72, 512, 4096, 4096]
    assert gpu_tile(plan, hypers, 512, int(needed(512, 512)) + 1) == 512
    assert gpu_tile(plan, hypers, 512, int(needed(512, 512)) - 1) == 256
    assert gpu_tile(plan, hypers, 4096, int(needed(4096, 64)) + 1) == 64
    little = int(needed(4096, 64)) - 1  # then fewer lanes, in as wide a tile as fits
    alone = next(tile for tile in (4096, 1024, 256) if needed(tile, tile) <= little)
    assert alone >= 256 and gpu_tile(plan, hypers, 4096, little) == alone
    assert gpu_tile(plan, hypers, 4096, 0) == 4
