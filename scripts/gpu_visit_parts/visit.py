"""The course of a visit: parts, each a process with a time limit, and their results.

A part writes its JSON file as it proceeds, and `visit.json` is rewritten after each part, so an
interrupted visit leaves all results so far.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .common import write_json

PASS, FAIL, CUT = "PASS", "FAIL", "CUT"
LEAST_SECONDS = 20.0  # least time in which a part can give results
RESERVE_SECONDS = 4.0  # part of the budget reserved for a clean end
_SHOWN = 110


@dataclass(frozen=True)
class Part:
    """One part of a visit.

    Attributes:
        name: name of the part and of its file.
        seconds: its time limit.
        decides: whether the visit fails if it does; otherwise it only measures.
        env: environment variables of its process.
    """

    name: str
    seconds: float
    decides: bool = False
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """The result of a part."""

    name: str
    status: str
    seconds: float
    words: str


@dataclass
class Visit:
    """Runs parts one after the other within a budget.

    Attributes:
        out: folder for the files.
        budget: seconds for the whole visit.
        command: returns the words that run a part, given the part and the path of its file.
        work: folder for logs, which is not kept.
        about: further contents of `visit.json`.
    """

    out: Path
    budget: float
    command: Callable[[Part, Path], Sequence[str]]
    work: Path
    about: Mapping[str, Any] = field(default_factory=dict)
    results: list[Result] = field(default_factory=list)

    def run(self, parts: Sequence[Part]) -> None:
        """Run the parts in order; a part without enough time left is skipped."""
        end = time.monotonic() + self.budget - RESERVE_SECONDS
        for part in parts:
            left = end - time.monotonic()
            if left < min(LEAST_SECONDS, part.seconds):
                result = Result(part.name, CUT, 0.0, "not started: the budget is used up")
            else:
                result = self._one(part, min(part.seconds, left))
            self.results.append(result)
            print(f"{result.status} {result.name} [{result.seconds:.0f} s]", flush=True)
            write_json(
                self.out / "visit.json", {**self.about, "parts": [asdict(r) for r in self.results]}
            )

    def _one(self, part: Part, seconds: float) -> Result:
        """Run one part, and end it with all its children when its time is up."""
        path, log = self.out / f"{part.name}.json", self.work / f"{part.name}.log"
        path.unlink(missing_ok=True)
        started = time.monotonic()
        with log.open("wb") as said:
            process = subprocess.Popen(
                self.command(part, path),
                stdout=said,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **part.env},
                start_new_session=True,
            )
            try:
                code: int | None = process.wait(seconds)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                _end(process)
        status, words = judged(path, code, log.read_text(errors="replace"))
        if code is None and status == CUT:
            words = f"after {seconds:.0f} s; {words}"
        return Result(part.name, status, round(time.monotonic() - started, 1), words)

    def failed(self, parts: Sequence[Part]) -> bool:
        """Return whether a deciding part has failed."""
        deciding = {part.name for part in parts if part.decides}
        return any(r.status == FAIL and r.name in deciding for r in self.results)

    def table(self) -> str:
        """Return one line per part, with its summary."""
        lines = []
        for result in self.results:
            words = " ".join(result.words.split())
            lines.append(
                f"{result.status} {result.name:20} {result.seconds:4.0f} s  {words[:_SHOWN]}"
            )
            if rest := words[_SHOWN : 3 * _SHOWN]:
                lines.append(" " * 12 + rest[: 2 * _SHOWN])
        return "\n".join(lines)


def judged(path: Path, code: int | None, log: str) -> tuple[str, str]:
    """Return the result of a part, from its file, its exit status and its output.

    Args:
        path: path of its file, which may be missing or incomplete.
        code: exit status; None: it was ended because its time was up.
        log: its output.
    """
    document = json.loads(path.read_text()) if path.is_file() else {}
    last = next((line for line in reversed(log.splitlines()) if line.strip()), "it said nothing")
    if failures := document.get("failures"):
        return FAIL, "; ".join(failures)
    if document.get("done"):
        return PASS, document["summary"]
    if code is None:
        return CUT, f"{path.name} has what was seen" if document else "before it had anything"
    return FAIL, f"ended with {code}: {last[-300:]}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a part's process group, including its children, and wait for the part itself."""
    with contextlib.suppress(ProcessLookupError):  # all of them have ended
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
