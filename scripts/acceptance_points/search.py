"""Checks of the search: population based training on lanes, and several devices."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from .bits import run_tests
from .common import BENCHMARKS, ROOT, Outcome, call

_EXACT = ("tests/core/test_change.py", "tests/search/analysis/test_replay.py")
_COST = 1.05
_CLOSE = 1e-5

Arrays = dict[str, Any]

_CHILD = Path(__file__).with_name("lanes_on.py")


def population_based(small: bool, work: Path) -> Outcome:
    """Copies are exact, a replay has the winner's bits, and 64 lanes cost at most 5 % more."""
    passed = run_tests(_EXACT)
    words = [sys.executable, str(BENCHMARKS / "pbt.py"), "--out", str(work / "pbt.json")]
    done = call([*words, *(["--small"] if small else [])], ROOT)
    numbers = f"{passed} tests of copies and replay hold; "
    if small:
        return Outcome(passed > 0, numbers + done.stdout.strip().splitlines()[-2])
    found: dict[str, Any] = json.loads((work / "pbt.json").read_text())
    pbt, pb2, alone = found["pbt"], found["pb2"], found["alone"]
    numbers += f"64 lanes, {found['scale']['rungs'] - 1} rungs: {alone['seconds']:.1f} s alone, "
    numbers += f"pbt {pbt['ratio']:.3f} times ({pbt['copies']:.0f} copies; in CPU-seconds "
    numbers += f"{pbt['cpu_ratio']:.3f}), pb2 {pb2['ratio']:.3f} ({pb2['cpu_ratio']:.3f})"
    return Outcome(passed > 0 and pbt["ratio"] <= _COST, numbers)


def devices(small: bool, work: Path) -> Outcome:
    """Four devices give the bits of two, one device nearly so, and none waits for another."""
    import numpy as np

    chunks, lanes = (1, 16) if small else (4, 64)

    def on(count: int, chunks: int, updates: int) -> tuple[Arrays, dict[str, Any]]:
        out = work / f"{count}-{updates}.npz"
        told = _run_child(count, out, chunks, lanes, updates)
        with np.load(out) as file:
            return {name: file[name] for name in file.files}, told

    two, told_two = on(2, chunks, 2)
    four, told_four = on(4, chunks, 2)
    same = all(two[name].tobytes() == four[name].tobytes() for name in two | four)
    first_two, _ = on(2, 1, 1)
    first_one, _ = on(1, 1, 1)
    far, where = max(
        (_distance(array.astype(np.float64), first_two[name].astype(np.float64)), name)
        for name, array in first_one.items()
        if array.dtype == np.float32
    )
    collectives = told_two["collectives"] + told_four["collectives"]
    numbers = f"{lanes} lanes, {2 * chunks} updates: {len(two)} arrays of 4 devices "
    numbers += f"{'equal' if same else 'DIFFER from'} those of 2 bit for bit; one device after "
    numbers += f"the first update within {far:.1e} ({where}); {collectives} collectives in "
    numbers += f"{told_two['lines'] + told_four['lines']:,} lines of compiled HLO"
    return Outcome(same and far <= _CLOSE and collectives == 0, numbers)


def _distance(ours: Any, theirs: Any) -> float:
    """Return the largest relative difference; non-finite values must be equal."""
    import numpy as np

    if not np.array_equal(np.isfinite(ours), np.isfinite(theirs)):
        return float("inf")
    both = np.isfinite(ours)
    if not np.array_equal(ours[~both], theirs[~both], equal_nan=True):
        return float("inf")
    apart = np.abs(ours[both] - theirs[both]) / np.maximum(1.0, np.abs(theirs[both]))
    return float(np.max(apart, initial=0.0))


def _run_child(count: int, out: Path, chunks: int, lanes: int, updates: int) -> dict[str, Any]:
    environment = {**os.environ, "JAX_NUM_CPU_DEVICES": str(count), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, str(_CHILD), str(out), str(chunks), str(lanes), str(updates)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    told: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    if told["devices"] != count:
        raise RuntimeError(f"asked for {count} devices, jax gave {told['devices']}")
    return told
