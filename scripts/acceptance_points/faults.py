"""A failing disk: each fault is one sentence, and committed work resumes to equal tables.

Faults are injected into the system calls of a study by strace, if it is installed, and a study is
run on small in-memory file systems, if mounting is allowed.
"""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from .common import ROOT, Outcome
from .reliability import differences

FAULTS = 150
SIZES_KB = (160, 200, 240, 280, 320, 360, 400, 500, 600, 700, 800, 900, 1000, 1200, 1400, 1600)
_CALLS = (
    "openat", "mkdir", "rename", "fsync", "fdatasync", "ftruncate", "pwrite64", "write", "unlink",
    "unlinkat", "rmdir", "flock",
)  # fmt: skip
_CALL = re.compile(r"^(\d+) +(\w+)\(")
_STUDY = """\
import sys
from pathlib import Path
sys.path.insert(0, {scripts!r})
from acceptance_points.common import make_importable
make_importable()
from hpo.errors import HpoError
from acceptance_points.faults_study import {kind}
try:
    {kind}(Path(sys.argv[1]))
except HpoError as error:
    print(f"{{type(error).__name__}}: {{error}}", file=sys.stderr)
    sys.exit(2)
"""


def failing_disk(small: bool, work: Path) -> Outcome:
    """Inject faults, then fill small disks."""
    one, ok = _injected(6 if small else FAULTS, work / "faults")
    two, held = _filled(SIZES_KB[::8] if small else SIZES_KB, work / "disks")
    return Outcome(ok and held, f"{one}; {two}")


def _command(kind: str, folder: Path) -> list[str]:
    text = _STUDY.format(scripts=str(ROOT / "scripts"), kind=kind)
    return [sys.executable, "-c", text, str(folder)]


def _run(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)


def _fault(done: subprocess.CompletedProcess[str]) -> str:
    """Return what is wrong with how a study ended; "" if it ended well or with a sentence."""
    text = done.stderr.strip()
    if done.returncode == 0:
        return ""
    if done.returncode == 2 and "Traceback" not in text and len(text.splitlines()) == 1:
        return ""
    return f"exit {done.returncode}: {' / '.join(text.splitlines()[-2:])[:300]}"


# ---------------------------------------------------------------------- injected


def _injected(count: int, work: Path) -> tuple[str, bool]:
    if shutil.which("strace") is None:
        return "strace is not installed: no faults injected", True
    work.mkdir()
    whole = work / "whole"
    places = _places(whole, work / "calls")
    rng, counts, faults = random.Random(11), Counter[str](), []
    for number in range(count):
        call = rng.choice(sorted(places))
        when, error = rng.choice(places[call]), rng.choice(("ENOSPC", "EIO"))
        folder = work / f"study-{number}"
        injection = f"inject={call}:error={error}:when={when}"
        strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e", injection]
        done = _run([*strace, *_command("analytic", folder)])
        counts["in a sentence" if done.returncode else "not noticed"] += 1
        fault = _fault(done)
        if not fault:
            again = _run(_command("analytic", folder))
            fault = _fault(again) or ("refused" if again.returncode else "")
            fault = fault or "; ".join(differences(whole, folder)[:2])
        if fault:
            faults.append(f"{call} {error} {when}: {fault}")
        shutil.rmtree(folder, ignore_errors=True)
    words = ", ".join(f"{n} {word}" for word, n in counts.most_common())
    words = f"{count} faults at {len(places)} kinds of call: {words}; all gone on with and equal"
    return words if not faults else f"{words} BUT {faults[:4]}", not faults


def _places(folder: Path, log: Path) -> dict[str, list[int]]:
    """Return which calls of each kind in the first thread concern the study's folder."""
    strace = ["strace", "-f", "-y", "-qq", "-o", str(log), "-e", f"trace={','.join(_CALLS)}"]
    done = _run([*strace, *_command("analytic", folder)])
    if done.returncode:
        raise RuntimeError(done.stderr[-600:])
    found: dict[str, list[int]] = {}
    seen: Counter[str] = Counter()
    first = ""
    for line in log.read_text(errors="replace").splitlines():
        match = _CALL.match(line)
        if match is None:
            continue
        first = first or match[1]
        if match[1] == first:
            seen[match[2]] += 1
            if str(folder) in line:
                found.setdefault(match[2], []).append(seen[match[2]])
    return found


# ---------------------------------------------------------------------- small disks


def _filled(sizes: Sequence[int], work: Path) -> tuple[str, bool]:
    work.mkdir()
    whole, disk = work / "whole", work / "disk"
    disk.mkdir()
    done = _run(_command("saving", whole))
    if done.returncode:
        raise RuntimeError(done.stderr[-600:])
    counts: Counter[str] = Counter()
    faults: list[str] = []
    for size in sizes:
        if _run(["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", str(disk)]).returncode:
            return "mounting is not allowed: no disk filled", True
        try:
            done = _run(_command("saving", disk / "study"))
            counts["full" if done.returncode else "large enough"] += 1
            fault = _fault(done)
            _run(["mount", "-o", "remount,size=64m", str(disk)])
            again = _run(_command("saving", disk / "study"))
            fault = fault or _fault(again) or ("refused" if again.returncode else "")
            fault = fault or "; ".join(differences(whole, disk / "study")[:2])
        finally:
            _run(["umount", str(disk)])
        if fault:
            faults.append(f"{size} kB: {fault}")
    words = ", ".join(f"{n} {word}" for word, n in counts.most_common())
    words = f"{len(sizes)} small disks under Orbax's checkpoints: {words}; all equal with room"
    return words if not faults else f"{words} BUT {faults[:4]}", not faults
