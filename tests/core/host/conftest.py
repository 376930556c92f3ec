"""Twins of the same environment, registered for all tests of hosted environments."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def twins():
    from helpers import twins

    twins.register()
    return twins
