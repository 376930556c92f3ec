"""All of PPO: its table, its features against slow references, and lanes next to each other."""

from __future__ import annotations

import re
from pathlib import Path

from .bits import run_tests
from .common import ROOT, Outcome
from .learning import train

PAGE = ROOT / "docs" / "reference" / "ppo-features.md"
_NAMED = re.compile(r"`([\w/]+\.py):(\w+)`")
REFERENCES = (
    "tests/core/test_features.py",
    "tests/core/test_advantages.py",
    "tests/core/test_priority.py",
    "tests/core/test_masking.py",
    "tests/core/test_schedules.py",
    "tests/core/test_optimisers.py",
)
SWITCHING = "test_switching_a_lane_compiles_nothing_and_changes_no_other_lane"
BITS = ("tests/core/test_population.py", f"tests/core/test_features.py::{SWITCHING}")


def table(small: bool, work: Path) -> Outcome:
    """Check that all names in docs/reference/ppo-features.md exist, and all knobs are in it."""
    from hpo.knobs import KNOBS

    text = PAGE.read_text(encoding="utf-8")
    named = sorted(set(_NAMED.findall(text)))
    missing = [f"{path}:{name}" for path, name in named if not defines(ROOT / path, name)]
    words = set(re.findall(r"`([\w.<>]+)`", text))
    unnamed = [name for name in KNOBS if name not in words]
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    empty = [row for row in rows if row.rstrip().endswith("| |")]
    problems = [*missing, *unnamed, *empty]
    numbers = f"{len(named)} names of code and tests exist, {len(KNOBS)} knobs are in the tables"
    return Outcome(not problems, numbers if not problems else "; ".join(problems[:5]))


def defines(path: Path, name: str) -> bool:
    """Return whether a Python file defines a name, at its top level or in a class."""
    if not path.is_file():
        return False
    text = path.read_text(encoding="utf-8")
    return re.search(rf"^\s*(def|class) {name}\b|^{name}\b.*=", text, re.MULTILINE) is not None


def references(small: bool, work: Path) -> Outcome:
    """Compare features with their slow references; bfloat16 must learn CartPole like float32."""
    if small:
        passed = run_tests(["tests/core/test_advantages.py"])
        return Outcome(passed > 0, f"{passed} tests hold")
    passed = run_tests(REFERENCES)
    values = {
        dtype: sorted(
            train("base_cartpole", work, False, (f"fixed.dtype={dtype}",), dtype)["values"]
        )
        for dtype in ("float32", "bfloat16")
    }
    good = {dtype: sum(v >= 475.0 for v in found) for dtype, found in values.items()}
    worst = {dtype: found[0] for dtype, found in values.items()}
    alike = good["bfloat16"] >= 9 and good["float32"] >= 9
    return Outcome(
        passed > 0 and alike,
        f"{passed} tests hold; base_cartpole reaches 475 on {good['float32']} of 10 seeds in "
        f"float32 (worst {worst['float32']:.1f}) and on {good['bfloat16']} in bfloat16 (worst "
        f"{worst['bfloat16']:.1f})",
    )


def switching(small: bool, work: Path) -> Outcome:
    """Switch features in one lane: nothing compiles, and no other lane changes a bit."""
    passed = run_tests(BITS[1:] if small else BITS)
    return Outcome(passed > 0, f"{passed} tests of lanes beside each other hold")
