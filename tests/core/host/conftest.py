"""Twins of the same environment, registered for all tests of hosted environments."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

import pytest


@pytest.fixture(scope="session")
def twins():
    found = SimpleNamespace(**run_path(str(Path(__file__).with_name("twins.py"))))
    found.register()
    return found
