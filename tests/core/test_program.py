import os
import subprocess
import sys
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from hpo.core.envs import registry
from hpo.core.hypers import make_hypers
from hpo.core.memory import estimate_memory, parameter_count
from hpo.core.plan import EnvPlan, make_plan
from hpo.core.program import (
    EvaluationPlan,
    Program,
    prepare_devices,
)
from hpo.errors import ConfigError


def child(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh process, where jax has not been started."""
    keep = {name: value for name, value in os.environ.items() if name != "JAX_NUM_CPU_DEVICES"}
    return subprocess.run(
        [sys.executable, "-c", code], env={**keep, **environment}, capture_output=True, text=True,
        timeout=600,
    )  # fmt: skip


def test_two_host_devices_at_least_wherever_jax_is_fresh():
    code = "from hpo.core.program import prepare_devices; print(len(prepare_devices('cpu')))"
    made = child(code)
    assert made.returncode == 0, made.stderr
    assert int(made.stdout) == max(2, os.cpu_count() or 2)


def test_one_host_device_that_runs_already_is_refused():
    code = (
        "import jax; jax.devices()\n"
        "from hpo.core.program import prepare_devices\n"
        "from hpo.errors import ConfigError\n"
        "try: prepare_devices()\n"
        "except ConfigError as error: print(error)\n"
    )
    assert "JAX_NUM_CPU_DEVICES=2" in child(code).stdout


def test_deterministic_kernels_are_asked_for_before_jax_starts():
    code = (
        "import os\n"
        "from hpo.core.program import prepare_devices\n"
        "prepare_devices('auto', deterministic=True)\n"
        "print(os.environ['XLA_FLAGS'])\n"
    )
    assert "xla_gpu_deterministic_ops" in child(code, JAX_PLATFORMS="cpu").stdout


def test_deterministic_kernels_that_come_too_late_are_refused(monkeypatch):
    """Also where the number of host devices needed no change, which jax would have refused."""
    assert len(jax.devices()) >= 2  # jax has started
    monkeypatch.setenv("XLA_FLAGS", "")
    before = jax.config.values["jax_num_cpu_devices"]
    assert prepare_devices("auto", deterministic=True)[0].platform == "cpu"  # they always are
    monkeypatch.setattr(jax, "devices", lambda *_: [SimpleNamespace(platform="gpu")])
    with pytest.raises(ConfigError, match="after jax had started; set the environment variable"):
        prepare_devices("auto", deterministic=True)
    assert os.environ["XLA_FLAGS"] == "" and jax.config.values["jax_num_cpu_devices"] == before
    assert prepare_devices("auto")[0].platform == "gpu"


def test_lanes_that_do_not_divide_are_refused_with_the_number_that_does(tiny):
    with pytest.raises(ConfigError, match="next number that does is 8"):
        Program(tiny.plan, 6, 1, 2, EvaluationPlan(), prepare_devices("cpu"), tiny.hypers())


def test_no_lanes_give_no_episodes_and_compile_nothing(tiny):
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


def test_lanes_are_filled_tile_by_tile_with_devices_in_turn(tiny):
    order = tiny.program().lane_order()  # 8 lanes, tiles of 2, 2 devices of 4 lanes
    np.testing.assert_array_equal(order, [0, 1, 4, 5, 2, 3, 6, 7])


def test_idle_tiles_keep_their_state_and_show_zeros(tiny):
    import jax

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


def test_parameters_and_memory_are_counted_from_shapes(tiny):
    hypers = tiny.hypers()
    towers = 2 * (4 * 8 + 8)  # one hidden layer of 8 for actor and critic
    assert parameter_count(tiny.plan, hypers) == towers + (8 * 2 + 2) + (8 + 1)
    few, many = (estimate_memory(tiny.plan, hypers, n, 2, 2) for n in (8, 80))
    assert 0 < few < many < 10 * few
