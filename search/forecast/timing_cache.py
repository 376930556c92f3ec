"""Timings of programs on this machine, kept next to the compile cache.

One JSON file per kind of machine. It only saves time: a file that cannot be read is replaced, and
a file that cannot be written is a warning.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any

from ...errors import HpoError
from ...files import atomic_files
from ...machine.software import default_cache
from ...studies.chunk_sizes import quanta_of
from ...studies.expected_cost import LONG_SECONDS, expected_steps, span_of_time
from ...studies.spec import Study

_RETRIEVED = 0.05  # of a compile, the time that a program of that size takes from the cache


@dataclass(frozen=True)
class Costs:
    fixed_seconds: float  # of a chunk, however few lanes are busy
    block_seconds: float  # of each block with a busy lane
    error: float  # standard error of a chunk's time as a share of it
    chunks: int  # that were timed
    trace_seconds: float  # before XLA has both programs to compile; in every process
    xla_seconds: float  # compiling both of them, without a cache
    evaluate_seconds: float  # of one call of the evaluation
    # env steps that this call's time grows with: of its longest episode, or, where the host steps,
    # of all of them
    evaluate_steps: int
    baseline_seconds: float
    at: float  # seconds since the epoch

    def chunk_seconds(self, chunks: float, blocks: float) -> float:
        return chunks * self.fixed_seconds + blocks * self.block_seconds

    def compile_seconds(self, cached: bool) -> float:
        """Return the time until both programs are there, XLA's part from the cache or not."""
        return self.trace_seconds + self.xla_seconds * (_RETRIEVED if cached else 1.0)


VERSION = 1
_MOST = 500  # timings, the latest


def default_file() -> Path:
    """Return the file of this machine, in `hpo/timings` of the user's caches."""
    cache = default_cache()
    return cache.parent.parent / "timings" / f"{cache.name}-{os.cpu_count() or 1}.json"


def key_of(*parts: Any) -> str:
    """Return the name of a timing: a short hash of all that it depends on."""
    text = json.dumps([platform.node(), *map(str, parts)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass
class Kept:
    path: Path
    timings: dict[str, dict[str, Any]]  # name -> what was timed, and the environment it was
    note: str = ""  # what is wrong with the file, "" if nothing is

    @classmethod
    def read(cls, path: Path | None = None) -> Kept:
        """Read the file; a missing or damaged one gives no timings."""
        path = path or default_file()
        if not path.exists():
            return cls(path, {})
        try:
            found = json.loads(atomic_files.read_text(path))
            if found["version"] == VERSION:
                return cls(path, {name: _sound(entry) for name, entry in found["timings"].items()})
            why = f"is of version {found['version']}"
        except (HpoError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            why = f"cannot be read ({type(error).__name__})"
        return cls(path, {}, f"{path} {why}; it is replaced")

    def costs(self, key: str) -> Costs | None:
        entry = self.timings.get(key)
        return None if entry is None else Costs(**entry["costs"])

    def of_env(self, env: str) -> tuple[float, float] | None:
        """Return seconds per env step, and when: the latest timing of any program of it."""
        found = [entry for entry in self.timings.values() if entry["env"] == env]
        if not found:
            return None
        latest = max(found, key=lambda entry: entry["costs"]["at"])
        return latest["step_seconds"], latest["costs"]["at"]

    def keep(self, key: str, env: str, step_seconds: float, costs: Costs) -> None:
        self.timings[key] = {"env": env, "step_seconds": step_seconds, "costs": asdict(costs)}
        latest = sorted(self.timings, key=lambda name: self.timings[name]["costs"]["at"])
        self.timings = {name: self.timings[name] for name in latest[-_MOST:]}
        try:
            atomic_files.make_folder(self.path.parent)
            text = json.dumps({"version": VERSION, "timings": self.timings}, indent=1)
            atomic_files.write_text(self.path, f"{text}\n")
        except (HpoError, OSError) as error:
            self.note = f"timings are not kept for next time: {error}"


def _sound(entry: dict[str, Any]) -> dict[str, Any]:
    costs, names = entry["costs"], {field.name for field in fields(Costs)}
    numbers = [*costs.values(), entry["step_seconds"]]
    whole = set(costs) == names and isinstance(entry["env"], str)
    if not whole or not all(type(n) in (int, float) and math.isfinite(n) for n in numbers):
        raise ValueError("not a timing")
    return entry


def at_a_glance(study: Study, kept: Kept | None = None) -> str:
    """Return a warning if a study takes hours here, judged by its env steps; else ""."""
    known = (kept or Kept.read()).of_env(study.env.id)
    config = study.default()
    expected = expected_steps(study, quanta_of(study, study.steps_per_update(config)))
    if known is None or not expected.total or study.more_envs:
        return ""
    each, at = known
    seconds = expected.total * each
    if seconds < LONG_SECONDS:
        return ""
    share = expected.confirm / expected.total
    return (
        f"warning: this takes about {span_of_time(seconds)} here, {share:.0%} of it confirming, "
        f"judged by a timing of {study.env.id} of {datetime.fromtimestamp(at):%Y-%m-%d}; lower "
        "env_steps, budget.trials or confirm"
    )
