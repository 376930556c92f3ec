"""Processes of a command: started as groups, suspended, resumed, and ended with children.

Each has a session, output files, and a mark in its environment that also identifies children
outside the group. A guard kills all of them if this process dies.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..errors import SearchError
from ..files.atomic_files import make_folder
from . import guard

_SCRIPT = str(Path(guard.__file__))
_PYTHON = [sys.executable, "-I", "-S", _SCRIPT]
_MARK = "HPO_RUN"
_THREADS = (
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS",
)  # fmt: skip
_OF_XLA = 0.9  # of a process's share of a GPU, that jax reserves
STDOUT, STDERR = "stdout.log", "stderr.log"


@dataclass(frozen=True)
class Launch:
    """The arguments of one process."""

    argv: Sequence[str]
    settings: Mapping[str, str]  # environment variables beyond ours
    cwd: Path
    folder: Path  # of its output; made if it is not there


def cores() -> int:
    """Return the CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def gpus_here() -> tuple[str, ...]:
    """Return the GPUs visible to this process, as in CUDA_VISIBLE_DEVICES."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        return tuple(word.strip() for word in given.split(",") if word.strip() not in ("", "-1"))
    try:
        text = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, text=True, timeout=20, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ()
    found = [line for line in text.splitlines() if line.startswith("GPU ")]
    return tuple(str(number) for number in range(len(found)))


def share_of_gpus(lane: int, each: float, gpus: Sequence[str]) -> dict[str, str]:
    """Return the variables that give a process `each` GPUs, or a part of one.

    >>> share_of_gpus(3, 0.5, ["0", "1"])
    {'CUDA_VISIBLE_DEVICES': '1', 'XLA_PYTHON_CLIENT_MEM_FRACTION': '0.45'}
    >>> share_of_gpus(1, 2, ["0", "1", "2", "3"])
    {'CUDA_VISIBLE_DEVICES': '2,3'}
    """
    if each == 0:
        return {"CUDA_VISIBLE_DEVICES": ""}
    if each < 1:
        beside = int(1 / each + 1e-9)
        own = {"CUDA_VISIBLE_DEVICES": gpus[lane // beside % len(gpus)]}
        return {**own, "XLA_PYTHON_CLIENT_MEM_FRACTION": f"{_OF_XLA * each:.3g}"}
    whole = int(each)
    first = lane * whole % len(gpus)
    return {"CUDA_VISIBLE_DEVICES": ",".join(gpus[first : first + whole])}


def share_of_threads(threads: int | None, at_once: int) -> dict[str, str]:
    """Return the variables that limit a process's threads; none if the user has set some."""
    if threads is None and any(name in os.environ for name in _THREADS):
        return {}
    count = threads or max(1, cores() // at_once)
    return dict.fromkeys(_THREADS, str(count))


class Guard:
    """A small process that kills all others once this one has died."""

    def __init__(self):
        self._process: subprocess.Popen[str] | None = None
        self._known: dict[int, str] = {}

    def watch(self, group: int, mark: str) -> None:
        self._known[group] = mark
        self._tell(f"+ {group} {mark}")

    def forget(self, group: int) -> None:
        self._known.pop(group, None)
        self._tell(f"- {group}")

    def _tell(self, line: str) -> None:
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                [*_PYTHON, "watch"], stdin=subprocess.PIPE, text=True, start_new_session=True
            )
            lines = [f"+ {group} {mark}" for group, mark in self._known.items()]
        else:
            lines = [line]
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):  # it was killed: the next line starts another
                print(*lines, sep="\n", file=self._process.stdin, flush=True)

    def close(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
            self._process.wait()
        self._process = None


class Running:
    """A started process and its children."""

    def __init__(self, launch: Launch, guard: Guard):
        self._guard, self.mark = guard, f"{_MARK}={uuid.uuid4().hex}"
        folder = launch.folder
        make_folder(folder)
        own = dict([self.mark.split("=")])
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", **launch.settings, **own}
        argv = [*_PYTHON, "run", str(os.getpid()), *launch.argv]
        with open(folder / STDOUT, "ab") as out, open(folder / STDERR, "ab") as errors:
            try:
                self._process = subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=errors,
                    cwd=launch.cwd,
                    env=environment,
                    start_new_session=True,
                )
            except OSError as error:
                text = f"no process can be started in {launch.cwd}: {error.strerror}"
                raise SearchError(text) from error
        self.started = time.time()
        self._guard.watch(self._process.pid, self.mark)
        self.exit_code: int | None = None  # negative: the signal that ended it
        self._deadline: float | None = None  # for its end, once asked
        self.is_paused = False

    @property
    def group(self) -> int:
        return self._process.pid

    def look(self) -> int | None:
        """Return the exit code after its end; kills remaining children and overdue processes."""
        if self.exit_code is not None:
            return self.exit_code
        if self._deadline is not None and time.monotonic() > self._deadline:
            guard.kill(self.group, self.mark)
            self._deadline = None
        if not self._has_ended():
            return None
        guard.kill(self.group, self.mark)  # before its number is free for others
        self.exit_code = self._process.wait()
        self._guard.forget(self.group)
        return self.exit_code

    def _has_ended(self) -> bool:
        """Return whether it has ended; its number stays reserved, except on older systems."""
        if not hasattr(os, "waitid"):  # macOS before Python 3.13
            return self._process.poll() is not None
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self.group, flags) is not None

    def pause(self) -> None:
        if not self.is_paused and self.exit_code is None:
            self.is_paused = True
            self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        if self.is_paused:
            self.is_paused = False
            self._signal(signal.SIGCONT)

    def ask_to_end(self, grace: float) -> None:
        """Send SIGTERM; `look` kills the process after `grace` seconds."""
        if self._deadline is None and self.exit_code is None:
            self._deadline = time.monotonic() + grace
            self._signal(signal.SIGTERM)
            self._signal(signal.SIGCONT)
            self.is_paused = False

    def end(self, grace: float = 0.0) -> None:
        """End the process and wait for it."""
        self.ask_to_end(grace)
        while self.look() is None:
            time.sleep(0.005)

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.group, number)


def memory_of(process: int) -> int:
    """Return a process's current memory in bytes; 0 if unknown."""
    try:
        text = Path(f"/proc/{process}/statm").read_text(encoding="ascii")
        return int(text.split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def end_leftovers(folder: Path) -> None:
    """Kill processes left by an earlier start of a study that was killed with its guard."""
    for process in guard.marked(f"HPO_FOLDER={folder}{os.sep}"):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(process, signal.SIGKILL)


def last_lines(path: Path, most: int = 6, letters: int = 360) -> str:
    """Return a file's last lines that contain text; "" if there are none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 8192))
            text = file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    found = lines[-most:]
    while len(found) > 1 and sum(map(len, found)) > letters:
        del found[0]
    return "\n".join(line[:letters] for line in found)
