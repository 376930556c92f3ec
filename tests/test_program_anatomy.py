"""benchmarks/program_anatomy.py counts what is in a small program whose parts are known."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"


@pytest.fixture(scope="module")
def script():
    sys.path.insert(0, str(BENCHMARKS))
    yield import_module("program_anatomy")
    sys.path.remove(str(BENCHMARKS))


def program(key, x, y):
    with jax.named_scope("rollout"):
        x = jax.lax.fori_loop(0, 5, lambda _, x: jnp.sin(x) * 2.0, x)
    with jax.named_scope("epochs"):  # two equal kernels, of which one is compiled
        x, y = (jax.lax.fori_loop(0, 3, lambda _, x: jnp.cos(x) + 1.0, x) for x in (x, y))
    return x, y + jax.random.uniform(key, y.shape)


@pytest.fixture(scope="module")
def lowered():
    given = jnp.ones(8)
    return jax.jit(program).lower(jax.random.key(0), given, 2.0 * given)


def test_operations_are_counted_in_the_part_that_they_come_from(script, lowered):
    found = script.operations(lowered)
    text = lowered.as_text()
    assert found["rollout"] > 0 and found["epochs"] > found["rollout"]
    assert found["random numbers"] > found["epochs"]
    results = [line for line in text.splitlines() if line.lstrip().startswith("%")]
    assert sum(found.values()) == len(results)
    assert set(found) <= {"rollout", "epochs", "random numbers", "lanes"}


def test_equal_fusions_are_one_kernel(script, lowered):
    every, fusions, kernels = script.instructions(lowered.compile().as_text())
    assert every["epochs"] > fusions["epochs"] > kernels["epochs"] > 0
    assert sum(kernels.values()) < sum(fusions.values()) < sum(every.values())


@pytest.mark.parametrize(
    "path, part",
    [
        ("jit(f)/shard_map/refill/while/body/set", "refill"),
        ("jit(f)/vmap(metrics)/sub", "metrics"),
        ("jit(f)/refill/while/body/jit(_threefry_fold_in)/add", "random numbers"),
        ("jit(f)/while/body/dynamic_slice", "lanes"),
    ],
)
def test_a_path_of_scopes_names_its_part(script, path, part):
    assert script.part_of(path) == part


def test_the_kept_table_adds_up(script):
    kept = json.loads((BENCHMARKS / "program_anatomy.json").read_text())
    for case in kept["cases"].values():
        for program in case["hpo"].values():
            for size in script.SIZES:
                assert program[size] == sum(part[size] for part in program["parts"].values())
