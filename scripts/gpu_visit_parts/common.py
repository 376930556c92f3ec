"""What the parts of a visit share: where the checkout is, and the file that each part writes."""

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
    """The JSON file of one part, written anew whenever there is more to say.

    Attributes:
        path: of the file.
        document: what it holds; `failures` says what is wrong, `done` that nothing is missing.
    """

    path: Path
    document: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Begin with nothing wrong and nothing done."""
        self.document = {"done": False, "summary": "", "failures": [], **self.document}

    def fail(self, words: str) -> None:
        """Note what is wrong; the part goes on."""
        self.document["failures"].append(words)

    def finish(self, summary: str) -> None:
        """Note that nothing is missing, and what it comes to in one line."""
        self.document.update(done=True, summary=summary)
        self.write()

    def write(self) -> None:
        """Write the file in one go: whoever cuts the visit finds the old one or the new."""
        write_json(self.path, self.document)


def write_json(path: Path, document: Any) -> None:
    """Replace a JSON file in one go."""
    partial = path.with_name(f".{path.name}")
    partial.write_text(json.dumps(document, indent=1) + "\n")
    partial.replace(path)


def versions() -> dict[str, str]:
    """Return the versions of Python and of what computes."""
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "missing"
    return found


def cores() -> int:
    """Return how many cores this process may use."""
    return (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
