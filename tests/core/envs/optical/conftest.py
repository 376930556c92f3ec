"""The slow simulator as a fixture."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def simulator():
    from helpers import simulator

    return simulator


@pytest.fixture(autouse=True)
def strict_jax():
    import jax

    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        yield
