"""Point 3: the same trial gives the same bits, whatever its neighbours are."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from .common import ROOT, Outcome, call

TESTS = ("tests/core/test_population.py",)
ONE = "test_neighbours_change_no_bit"


def independence(small: bool, work: Path) -> Outcome:
    """Run the tests of bitwise independence."""
    passed = run_tests([f"{TESTS[0]}::{ONE}"] if small else TESTS)
    return Outcome(passed > 0, f"{passed} tests of tests/core/test_population.py hold")


def run_tests(words: Sequence[str], env: Mapping[str, str] | None = None) -> int:
    """Run pytest with some arguments and environment variables; return how many tests passed.

    Raises:
        RuntimeError: a test failed or was skipped.
    """
    done = call([sys.executable, "-m", "pytest", "-q", "-x", *words], ROOT, env)
    last = done.stdout.strip().splitlines()[-1]
    if "skipped" in last:
        raise RuntimeError(f"tests were skipped: {last}")
    found = re.search(r"(\d+) passed", last)
    return int(found.group(1)) if found else 0
