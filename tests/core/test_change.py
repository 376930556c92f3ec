"""Copies between lanes: exact to the last bit, on every device, and nothing else is touched."""

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from hpo.core import population
from hpo.core.population import Lanes
from hpo.core.program import EvaluationPlan, Program

ME = {"learning_rate": 0.003, "normalise_observations": True}
LATER = {"learning_rate": 0.01, "clip_eps": 0.1, "normalise_observations": True}
LANES = 8  # 4 on each of two devices


def words(tree):
    """Return every leaf as bytes, lane by lane: NaN and the sign of zero count."""
    host = jax.device_get(tree)
    return [
        [np.ascontiguousarray(leaf[lane]).tobytes() for leaf in jax.tree.leaves(host)]
        for lane in range(LANES)
    ]


def rows_of(tiny, program, changes):
    """Return changes from {lane: (source or None, knobs)}."""
    rows = program.no_changes()
    for lane, (source, knobs) in changes.items():
        rows.mask[lane] = True
        rows.source[lane] = lane if source is None else source
        made = tiny.hypers(**knobs)
        for name in type(made).__dataclass_fields__:
            if name not in ("env_params", "eval_params"):
                getattr(rows.hypers, name)[lane] = getattr(made, name)
    return rows


@pytest.fixture
def trained(tiny):
    """Eight lanes after a chunk, each with other knobs and random numbers."""
    program = tiny.program()
    lanes = {i: ({"learning_rate": 1e-3 * (i + 1)}, i) for i in range(LANES)}
    state, _ = program.advance(tiny.seed, program.empty(), tiny.start(program, lanes))
    return state


@pytest.mark.parametrize("source", [1, 6], ids=["on its device", "on the other"])
def test_lane_copy_is_bitwise_exact_and_leaves_other_lanes(tiny, trained, source):
    program = tiny.program()
    before, hypers = words(trained.state), words(trained.hypers)
    after = program.change(trained, rows_of(tiny, program, {2: (source, LATER)}))
    expected = [before[source] if lane == 2 else before[lane] for lane in range(LANES)]
    assert words(after.state) == expected and before[source] != before[2]
    assert [a == b for a, b in zip(words(after.hypers), hypers, strict=True)] == [
        lane != 2 for lane in range(LANES)
    ]
    assert float(after.hypers.clip_eps[2]) == np.float32(0.1)


def test_simultaneous_lane_copies_read_the_old_state(tiny, trained):
    program = tiny.program()
    before = words(trained.state)
    around = {lane: ((lane + 3) % LANES, ME) for lane in range(LANES)}
    after = program.change(trained, rows_of(tiny, program, around))
    assert words(after.state) == [before[(lane + 3) % LANES] for lane in range(LANES)]


@pytest.mark.parametrize("batch", [1, 3])
def test_batched_lane_copies_match_a_single_batch(tiny, trained, monkeypatch, batch):
    """Seven of eight lanes, so that the last batch of three reaches over one that stays."""
    monkeypatch.setattr(population, "COPIED_AT_A_TIME", batch)
    program = tiny.program()
    before = words(trained.state)
    sources = [5, 1, 0, 2, 7, 7, 1, 4]
    rows = rows_of(tiny, program, {lane: (source, ME) for lane, source in enumerate(sources)})
    after = population.change_function(program.mesh)(trained, rows)
    assert words(after.state) == [before[source] for source in sources]


def test_lane_copy_preserves_nan_infinity_and_denormal_bits(tiny, trained):
    """Minus zero, NaN with a payload, infinities, the smallest numbers: all travel as bits."""
    program = tiny.program()
    strange = np.array([0x80000000, 0x7FC00123, 0xFFC00001, 0x7F800000, 1, 0x80000001], np.uint32)
    host = jax.device_get(trained)

    def put(leaf):
        if leaf.dtype != np.float32 or leaf[6].size == 0:
            return leaf
        leaf = leaf.copy()
        leaf[6] = np.resize(strange, leaf[6].shape).view(np.float32)
        return leaf

    given = Lanes(host.hypers, jax.tree.map(put, host.state))
    expected = words(given.state)[6]
    after = program.change(program.place(given), rows_of(tiny, program, {0: (6, ME)}))
    assert words(after.state)[0] == expected


def test_copied_lane_trains_like_its_source_with_new_knobs(tiny):
    """The random stream comes along: a lineage over two lanes is one lane whose knobs change."""
    program = tiny.program()
    lanes = {0: (ME, 3), 5: ({"learning_rate": 1e-4}, 3), 6: ({"gamma": 0.9}, 4)}
    state, _ = program.advance(tiny.seed, program.empty(), tiny.start(program, lanes))
    state = program.change(state, rows_of(tiny, program, {5: (0, LATER)}))
    _, over_two = tiny.curve(program, state, program.no_refills(), 2, lane=5)
    state, _ = program.advance(tiny.seed, program.empty(), tiny.start(program, {2: (ME, 3)}))
    state = program.change(state, rows_of(tiny, program, {2: (None, LATER)}))
    _, alone = tiny.curve(program, state, program.no_refills(), 2, lane=2)
    for a, b in zip(jax.tree.leaves(over_two), jax.tree.leaves(alone), strict=True):
        np.testing.assert_array_equal(a, b)


def test_lane_changes_do_not_recompile(tiny, trained):
    program = tiny.program()
    state = program.change(trained, program.no_changes())
    size = program._change._cache_size()
    state = program.change(state, rows_of(tiny, program, {1: (7, LATER), 3: (None, ME)}))
    state, _ = program.advance(tiny.seed, state, program.no_refills())
    program.change(state, program.no_changes())
    assert program._change._cache_size() == size == 1


def test_single_device_lane_copy_compiles_once(tiny):
    """There a chunk gives lanes whose sharding has another name than that of lanes put there."""
    program = Program(
        tiny.plan, 2, tiny.updates, 1, EvaluationPlan(), (jax.devices()[0],), tiny.hypers()
    )
    named = NamedSharding(program.mesh, PartitionSpec())
    for state in (program.empty(), jax.device_put(jax.device_get(program.empty()), named)):
        for _ in range(2):
            state = program.change(state, program.no_changes())
    assert program._change._cache_size() == 1
