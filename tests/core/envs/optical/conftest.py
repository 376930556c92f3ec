"""The slow simulator as a fixture: tests are no package, so it is loaded from its file."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def simulator():
    name = "optical_slow_simulator"
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name("simulator.py"))
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def strict_jax():
    import jax

    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        yield
