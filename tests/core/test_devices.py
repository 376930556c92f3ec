"""Lanes over several devices: the bits of two, and nothing that devices would wait for."""

import os
import re
import subprocess
import sys

import jax
import numpy as np

CHILD = """
import sys, pathlib
sys.path[:0] = [{folder!r}]
import jax, numpy as np
from runpy import run_path
tiny = run_path({folder!r} + "/conftest.py")["Tiny"]()
assert len(jax.devices()) == 4
program = tiny.program(lanes=8)
lanes = {{i: ({{"learning_rate": 1e-3 * (i + 1)}}, i) for i in range(8)}}
state, metrics = program.advance(tiny.seed, program.empty(), tiny.start(program, lanes))
state = program.change(state, program.no_changes())
leaves = jax.tree.leaves(jax.device_get((state, metrics)))
np.savez({out!r}, *leaves)
"""
COLLECTIVE = r"\b(all-reduce|all-gather|all-to-all|reduce-scatter|collective-\w+)\b"


def test_four_devices_give_the_bits_of_two(tiny, tmp_path):
    out = str(tmp_path / "four.npz")
    folder = os.path.dirname(os.path.abspath(__file__))
    environment = {**os.environ, "JAX_NUM_CPU_DEVICES": "4"}
    done = subprocess.run(
        [sys.executable, "-c", CHILD.format(folder=folder, out=out)],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    program = tiny.program(lanes=8)
    lanes = {i: ({"learning_rate": 1e-3 * (i + 1)}, i) for i in range(8)}
    state, metrics = program.advance(tiny.seed, program.empty(), tiny.start(program, lanes))
    ours = jax.tree.leaves(jax.device_get((state, metrics)))
    with np.load(out) as theirs:
        assert len(theirs.files) == len(ours) > 50
        for name, leaf in zip(theirs.files, ours, strict=True):
            assert theirs[name].tobytes() == np.asarray(leaf).tobytes(), name


def test_the_training_program_has_no_collective(tiny):
    program = tiny.program()
    program.compile()
    text = program._advance.as_text()
    assert "HloModule" in text and not re.search(COLLECTIVE, text)
