"""Checks of answers: queries and pages of a large study stream, and the page stays small."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .chromium import Chromium
from .common import Outcome
from .written_studies import Size, write_study

_SQL = "SELECT trial, episode_return FROM curves"
_FORMATS = ("--csv", "--json")
_OPENED = "performance.getEntriesByType('navigation')[0].domComplete"


@dataclass(frozen=True)
class Bounds:
    """Limits for studies of these sizes.

    Attributes:
        sizes: by name; `many` has many trials, and its page is opened in a browser.
        query, report: memory limits in megabytes.
        page: size limit of the report's file in megabytes.
        opens: seconds until a browser has opened the page; None: not tried.
    """

    sizes: dict[str, Size]
    query: float
    report: float
    page: float
    opens: float | None


_FULL = Bounds(
    {"long": Size(64, 1, 62_500, 8), "many": Size(5_000, 2, 400, 8)}, 300.0, 500.0, 4.0, 2.0
)
_SMALL = Bounds({"long": Size(20, 1, 20_000, 4)}, 200.0, 350.0, 1.0, None)


@dataclass(frozen=True)
class Seen:
    """The cost of one command: lines on stdout, peak megabytes, seconds."""

    lines: int
    megabytes: float
    seconds: float


def streaming(small: bool, work: Path) -> Outcome:
    """Read studies with 4M curve rows to a pipe and as a page, and measure the memory."""
    bounds = _SMALL if small else _FULL
    words: list[str] = []
    held = True
    for name, size in bounds.sizes.items():
        folder = write_study(work / name, size)
        for form in _FORMATS[-1:] if small else _FORMATS:
            seen = watched(["query", _SQL, form, "--study", str(folder)])
            rows = seen.lines - 1 if form == "--csv" else (seen.lines - 2) // 4
            held = held and seen.megabytes <= bounds.query and rows == size.curve_rows
            words.append(f"{name}: {rows:,} rows {form} {_told(seen)}")
        page = work / f"{name}.html"
        seen = watched(["report", str(folder), "--to", str(page)])
        large = page.stat().st_size / 1e6
        held = held and seen.megabytes <= bounds.report and large <= bounds.page
        words.append(f"report {_told(seen)}, {large:.2f} MB")
        if bounds.opens is not None:
            opened = _opening(page, work)
            held = held and opened <= bounds.opens
            words.append(f"open in {opened:.2f} s")
    return Outcome(held, "; ".join(words))


_CHILD = """
import sys
from pathlib import Path
from hpo.cli import main
code = main(sys.argv[1:])
[peak] = [line for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line]
print(peak.split()[1], file=sys.stderr)
sys.exit(code)
"""
"""A process inherits its parent's peak memory; started by this line, it begins with its own."""


def watched(words: Sequence[str]) -> Seen:
    """Run a command whose stdout is a pipe, and return its cost.

    Raises:
        RuntimeError: the command failed.
    """
    begun, lines = time.monotonic(), 0
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", _CHILD, *words], stdout=pipe, stderr=pipe) as run:
        assert run.stdout is not None and run.stderr is not None
        while piece := run.stdout.read(1 << 20):
            lines += piece.count(b"\n")
        told = run.stderr.read().decode().split("\n")
    if run.returncode:
        raise RuntimeError(f"`hpo {words[0]}` ended with {run.returncode}: {told[0]}")
    return Seen(lines, int(told[-2]) / 1024, time.monotonic() - begun)


def _opening(page: Path, work: Path) -> float:
    with Chromium(work) as browser:
        browser.look(1280, 900, False, False)
        browser.open(page)
        return float(browser.value(_OPENED)) / 1000


def _told(seen: Seen) -> str:
    return f"{seen.megabytes:.0f} MB in {seen.seconds:.0f} s"
