"""Timings of programs on this machine, kept for next time beside the compile cache.

One JSON file a kind of machine. It only ever saves time: one that cannot be read is begun anew,
one that cannot be written is left, and both are said.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from ... import disk
from ...errors import HpoError
from ..lanes.compile_cache import default_cache
from .costs import Costs

__all__ = ["Kept", "default_file", "key_of"]

VERSION = 1
_MOST = 500  # timings, the latest


def default_file() -> Path:
    """Return where timings of this machine lie: `hpo/timings` of the user's caches."""
    cache = default_cache()
    return cache.parent.parent / "timings" / f"{cache.name}-{os.cpu_count() or 1}.json"


def key_of(*parts: Any) -> str:
    """Return the name of what was timed: a short hash of all that its time depends on."""
    text = json.dumps([platform.node(), *map(str, parts)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass
class Kept:
    """The file.

    Attributes:
        path: of it.
        timings: name -> what was timed, and the environment it was.
        note: what is wrong with the file, "" if nothing is.
    """

    path: Path
    timings: dict[str, dict[str, Any]]
    note: str = ""

    @classmethod
    def read(cls, path: Path | None = None) -> Kept:
        """Read the file; without one, or if it is damaged, there are no timings."""
        path = path or default_file()
        if not path.exists():
            return cls(path, {})
        try:
            found = json.loads(disk.read_text(path))
            if found["version"] == VERSION:
                return cls(path, {name: _sound(entry) for name, entry in found["timings"].items()})
            why = f"is of version {found['version']}"
        except (HpoError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            why = f"cannot be read ({type(error).__name__})"
        return cls(path, {}, f"{path} {why}; timings are kept anew")

    def costs(self, key: str) -> Costs | None:
        """Return what was timed under a name, None if nothing was."""
        entry = self.timings.get(key)
        return None if entry is None else Costs(**entry["costs"])

    def of_env(self, env: str) -> tuple[float, float] | None:
        """Return seconds a training env step of an environment, and when that was timed.

        The latest timing of any program of it; None if there is none.
        """
        found = [entry for entry in self.timings.values() if entry["env"] == env]
        if not found:
            return None
        latest = max(found, key=lambda entry: entry["costs"]["at"])
        return latest["step_seconds"], latest["costs"]["at"]

    def keep(self, key: str, env: str, step_seconds: float, costs: Costs) -> None:
        """Keep a timing; the file may be gone or not writable, which is noted."""
        self.timings[key] = {"env": env, "step_seconds": step_seconds, "costs": asdict(costs)}
        latest = sorted(self.timings, key=lambda name: self.timings[name]["costs"]["at"])
        self.timings = {name: self.timings[name] for name in latest[-_MOST:]}
        try:
            disk.make_folder(self.path.parent)
            text = json.dumps({"version": VERSION, "timings": self.timings}, indent=1)
            disk.write_text(self.path, f"{text}\n")
        except (HpoError, OSError) as error:
            self.note = f"timings are not kept for next time: {error}"


def _sound(entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry of the file.

    Raises:
        ValueError: it is none.
    """
    costs, names = entry["costs"], {field.name for field in fields(Costs)}
    numbers = [*costs.values(), entry["step_seconds"]]
    whole = set(costs) == names and isinstance(entry["env"], str)
    if not whole or not all(type(n) in (int, float) and math.isfinite(n) for n in numbers):
        raise ValueError("not a timing")
    return entry
