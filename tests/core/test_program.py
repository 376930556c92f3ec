import threading

import jax
import numpy as np
import pytest

from hpo.core.envs import registry
from hpo.core.hypers import make_hypers
from hpo.core.memory import estimate_memory, parameter_count
from hpo.core.plan import EnvPlan, make_plan
from hpo.core.program import EvaluationPlan, LaneProgram, Program, compiled_property
from hpo.core.training_program import TrainingProgram
from hpo.errors import ConfigError
from hpo.machine.devices import prepare_devices


def test_indivisible_lane_count_is_refused_with_the_next_valid(tiny):
    with pytest.raises(ConfigError, match="next possible number is 8"):
        Program(tiny.plan, 6, 1, 2, EvaluationPlan(), prepare_devices("cpu"), tiny.hypers())


def test_evaluating_no_lanes_is_empty_and_compiles_nothing(tiny):
    plan = make_plan({**tiny.knobs, "num_envs": 2}, EnvPlan("navigators"))
    params = registry.make(plan.env).default_params
    hypers = make_hypers(tiny.knobs, params, params)
    program = Program(plan, 4, 1, 2, EvaluationPlan(3), prepare_devices("cpu"), hypers)
    none = program.evaluate(program.empty(), [])
    assert none.returns.shape == none.lengths.shape == (0, 3)
    assert none.returns.dtype == np.float32 and none.lengths.dtype == np.int32
    assert {name: value.shape for name, value in none.metrics.items()} == {
        "collision_share": (0, 3),
        "arrived_share": (0, 3),
    }
    assert not program.evaluation_compiled


def test_lane_order_fills_tiles_alternating_between_devices(tiny):
    order = tiny.program().lane_order()  # 8 lanes, tiles of 2, 2 devices of 4 lanes
    np.testing.assert_array_equal(order, [0, 1, 4, 5, 2, 3, 6, 7])


def test_idle_tiles_keep_their_state_and_show_zeros(tiny):

    program = tiny.program()
    rows = tiny.start(program, {i: ({}, i) for i in range(8)})
    lanes, _ = program.advance(tiny.seed, program.empty(), rows)
    before = jax.device_get(lanes)
    rest = program.no_refills()
    rest.busy[:] = False
    rest.busy[4] = True  # the tile of lanes 4 and 5
    lanes, metrics = program.advance(tiny.seed, lanes, rest)
    after = jax.device_get(lanes)
    moved = np.asarray(after.state.updates) - np.asarray(before.state.updates)
    np.testing.assert_array_equal(moved, [0, 0, 0, 0, 2, 2, 0, 0])
    loss = np.asarray(metrics.loss)
    assert np.all(loss[:, [0, 1, 2, 3, 6, 7]] == 0.0) and np.all(loss[:, 4] != 0.0)


def test_parameter_count_and_memory_follow_from_shapes(tiny):
    hypers = tiny.hypers()
    towers = 2 * (4 * 8 + 8)  # one hidden layer of 8 for actor and critic
    assert parameter_count(tiny.plan, hypers) == towers + (8 * 2 + 2) + (8 + 1)
    few, many = (estimate_memory(tiny.plan, hypers, n, 2, 2) for n in (8, 80))
    assert 0 < few < many < 10 * few


def test_two_programs_compile_at_the_same_time():
    """Until Python 3.12 a `cached_property` would let one wait for the other."""
    both = threading.Barrier(2, timeout=30)

    class Meets:
        @compiled_property
        def made(self):
            both.wait()  # breaks unless the other one computes its own meanwhile
            return object()

    one, other = Meets(), Meets()
    thread = threading.Thread(target=lambda: other.made)
    thread.start()
    assert one.made is one.made
    thread.join()
    assert other.made is other.made is not one.made


def test_programs_are_compiled_by_properties_without_a_common_lock():
    for kind, name in [(LaneProgram, "_advance"), (Program, "_evaluate")]:
        assert isinstance(vars(kind)[name], compiled_property)
    assert isinstance(vars(TrainingProgram)["_evaluate"], compiled_property)
