"""Lanes over several devices: the bits of two, and nothing that devices would wait for."""

import os
import re
import subprocess
import sys

import jax
import numpy as np
import pytest

pytestmark = pytest.mark.slow

CHILD = """
import sys, pathlib
sys.path[:0] = [{folder!r}]
import jax, numpy as np
from runpy import run_path
tiny = run_path({folder!r} + "/conftest.py")["Tiny"]()
assert len(jax.devices()) == 8
program = tiny.program(lanes=16)
lanes = {{i: ({{"learning_rate": 1e-3 * (i + 1)}}, i) for i in range(16)}}
state, metrics = program.advance(tiny.seed, program.empty(), tiny.start(program, lanes))
state = program.change(state, program.no_changes())
state, metrics = jax.device_get((state, metrics))
first = jax.tree.map(lambda x: x[:8], state), jax.tree.map(lambda x: x[:, :8], metrics)
np.savez({out!r}, *jax.tree.leaves(first))
pathlib.Path({text!r}).write_text(program._advance.as_text())
"""
COLLECTIVE = r"\b(all-reduce|all-gather|all-to-all|reduce-scatter|collective-\w+)\b"


def test_eight_devices_match_two_bitwise_without_collectives(tiny, tmp_path):
    out, text = str(tmp_path / "eight.npz"), tmp_path / "eight.hlo"
    folder = os.path.dirname(os.path.abspath(__file__))
    environment = {**os.environ, "JAX_NUM_CPU_DEVICES": "8"}
    done = subprocess.run(
        [sys.executable, "-c", CHILD.format(folder=folder, out=out, text=str(text))],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    program = tiny.program(lanes=8)
    lanes = {i: ({"learning_rate": 1e-3 * (i + 1)}, i) for i in range(8)}
    state, metrics = program.advance(tiny.seed, program.empty(), tiny.start(program, lanes))
    ours = jax.tree.leaves(jax.device_get((state, metrics)))
    with np.load(out) as theirs:
        assert len(theirs.files) == len(ours) > 50
        for name, leaf in zip(theirs.files, ours, strict=True):
            assert theirs[name].tobytes() == np.asarray(leaf).tobytes(), name
    compiled = text.read_text()
    assert "num_partitions=8" in compiled and not re.search(COLLECTIVE, compiled)


def test_lane_copy_program_contains_collectives(tiny):
    """So that the search for them above would find one."""
    program = tiny.program()
    lanes, changes = program.empty(), program.no_changes()
    assert re.search(COLLECTIVE, program._change.lower(lanes, changes).compile().as_text())
