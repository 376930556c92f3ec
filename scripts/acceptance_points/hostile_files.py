"""Point 8: study files written to break a program are rejected with a message, at once."""

from __future__ import annotations

from pathlib import Path

from .common import ROOT, Outcome, hpo_command, load_file


def refusals(small: bool, work: Path) -> Outcome:
    """Give every file to `hpo check` and to `hpo run`, each in a separate process."""
    hostile = load_file(ROOT / "tests" / "helpers" / "hostile.py")
    files = hostile.hostile_files(work, 200)[:: 50 if small else 1]
    faults = []
    for path in files:
        for verb in ("check", "run"):
            fault = hostile.fault_of_command(path, [*hpo_command(), verb])
            if fault is not None:
                faults.append(f"hpo {verb} {path.name}: {fault}")
    held = 2 * len(files) - len(faults)
    numbers = f"{held} of {2 * len(files)} refusals of {len(files)} files are as they should be"
    if faults:
        numbers += "; first fault: " + " ".join(faults[0].split())
    return Outcome(not faults, numbers)
