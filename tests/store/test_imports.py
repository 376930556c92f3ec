"""The store is cheap to import: what is heavy waits for its first use."""

from __future__ import annotations

import subprocess
import sys

import hpo.store

HEAVY = ("numpy", "pyarrow", "duckdb", "jax", "optuna")


def test_store_import_is_lightweight() -> None:
    code = f"import sys, hpo.store; print([m for m in {HEAVY} if m in sys.modules])"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"


def test_all_names_exist_and_are_sorted() -> None:
    assert sorted(hpo.store.__all__) == list(hpo.store.__all__)
    for name in hpo.store.__all__:
        assert getattr(hpo.store, name) is not None
