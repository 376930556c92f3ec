"""Stores the timings of programs on this machine, next to the compile cache.

There is one JSON file per kind of machine. The file only saves time: if it is unreadable, it is
replaced, and a failed write only causes a warning.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..errors import HpoError
from ..files import atomic_files
from .software import default_cache

VERSION = 3
_MOST = 500  # timings, the latest


@dataclass(frozen=True)
class Costs:
    """A program's times, in seconds."""

    block: float  # one chunk of one block of lanes
    trace: float  # tracing, which every process repeats
    xla: float  # compiling the traced program, unless it is cached
    evaluation: float  # one call of the evaluation
    # env steps that determine this call's time: of its longest episode, or of all episodes if the
    # host steps them
    evaluation_steps: int
    baseline: float
    at: float  # since the epoch


def default_file() -> Path:
    """Return the path of this machine's file, in `hpo/timings` in the user's cache folder."""
    cache = default_cache()
    name = f"{cache.name}-{os.cpu_count() or 1}.v{VERSION}.json"
    return cache.parent.parent / "timings" / name


def key_of(*parts: Any) -> str:
    """Return a timing's key: a short hash of everything that it depends on."""
    text = json.dumps([platform.node(), *map(str, parts)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass
class Timings:
    path: Path
    known: dict[str, Costs]
    note: str = ""  # what is wrong with the file, or ""

    @classmethod
    def read(cls, path: Path | None = None) -> Timings:
        """Read the file; a missing or damaged file counts as empty."""
        path = path or default_file()
        try:
            if not path.exists():
                return cls(path, {})
            found = json.loads(atomic_files.read_text(path))
            known = {name: Costs(**entry) for name, entry in found.items()}
            for costs in known.values():
                if not all(map(math.isfinite, asdict(costs).values())):
                    raise ValueError("not a timing")
            return cls(path, known)
        except (HpoError, OSError, ValueError, TypeError, AttributeError) as error:
            text = f"{path} cannot be read ({type(error).__name__}); it will be replaced"
            return cls(path, {}, text)

    def keep(self, key: str, costs: Costs) -> None:
        self.known[key] = costs
        latest = sorted(self.known.items(), key=lambda entry: entry[1].at)[-_MOST:]
        self.known = dict(latest)
        try:
            atomic_files.make_folder(self.path.parent)
            text = json.dumps({name: asdict(one) for name, one in latest}, indent=1)
            atomic_files.write_text(self.path, f"{text}\n")
        except (HpoError, OSError) as error:
            self.note = f"timings were not saved: {error}"
