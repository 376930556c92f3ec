"""Shared by the parts of a visit: the location of the checkout, and each part's output file."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
BENCHMARKS = ROOT / "benchmarks"
PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy", "gymnax")


@dataclass
class Report:
    """The JSON file of one part, rewritten whenever there are new results.

    Attributes:
        path: path of the file.
        document: its contents; `failures` lists faults, and `done` is true once it is complete.
    """

    path: Path
    document: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Start without faults and incomplete."""
        self.document = {"done": False, "summary": "", "failures": [], **self.document}

    def fail(self, words: str) -> None:
        """Record a fault; the part continues."""
        self.document["failures"].append(words)

    def finish(self, summary: str) -> None:
        """Mark the document as complete, with a summary of one line."""
        self.document.update(done=True, summary=summary)
        self.write()

    def write(self) -> None:
        """Write the file atomically: if the visit is interrupted, it is the old or the new one."""
        write_json(self.path, self.document)


def write_json(path: Path, document: Any) -> None:
    """Replace a JSON file atomically."""
    partial = path.with_name(f".{path.name}")
    partial.write_text(json.dumps(document, indent=1) + "\n")
    partial.replace(path)


def versions() -> dict[str, str]:
    """Return the versions of Python and of the numerical packages."""
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "missing"
    return found


def cores() -> int:
    """Return the number of cores that this process may use."""
    return (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
