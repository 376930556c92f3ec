"""A point that consists of cases, which can be run a few at a time.

The environment variable HPO_CASES lists the cases to run, separated by commas. The last result of
each case is stored in a file in docs/figures, and the point's row contains all of them.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from .common import ROOT, Outcome

FIGURES = ROOT / "docs" / "figures"
Case = Callable[[str, bool, Path], Outcome]
"""Takes the case's name, whether to do a short form, and a folder to work in."""


def run_cases(cases: Mapping[str, Case], kept: str, small: bool, work: Path) -> Outcome:
    """Run the requested cases, by default all; pass if the last result of every case is good.

    Args:
        cases: the cases by name.
        kept: file in docs/figures that stores the results; the short form does not change it.
        small: run the short form.
        work: a folder to work in.

    Raises:
        ValueError: HPO_CASES names an unknown case.
    """
    wanted = os.environ.get("HPO_CASES", "")
    names = wanted.split(",") if wanted else list(cases)
    unknown = [name for name in names if name not in cases]
    if unknown:
        raise ValueError(f"no case {unknown[0]!r}; known: {', '.join(cases)}")
    path = FIGURES / kept
    for name in names:
        started = time.monotonic()
        outcome = cases[name](name, small, work)
        seconds = round(time.monotonic() - started)
        print(f"  {name}: {outcome.numbers} [{seconds} s]", flush=True)
        seen = _read(path)  # again, because another run may have added its cases meanwhile
        seen[name] = {"passed": outcome.passed, "numbers": outcome.numbers, "seconds": seconds}
        if not small:
            path.write_text(json.dumps(seen, indent=1, sort_keys=True) + "\n")
    seen = seen if small else _read(path)
    left = [name for name in cases if name not in seen]
    words = [f"{name}: {seen[name]['numbers']}" for name in cases if name in seen]
    words += [f"not run: {', '.join(left)}"] if left else []
    held = not left and all(seen[name]["passed"] for name in cases)
    return Outcome(held or small, "; ".join(words))


def _read(path: Path) -> dict:
    return json.loads(path.read_text()) if path.is_file() else {}
