"""Processes that run a command, and executors that start them here or on a cluster.

Each process on this machine has a session, output files, and a mark in its environment. The mark
also identifies children outside the process group. A guard kills all such processes if this one
dies.
"""

from __future__ import annotations

import math
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ..errors import ConfigError, SearchError, counted
from ..files.atomic_files import make_folder
from . import guard

if TYPE_CHECKING:  # not on nodes, where every process starts this module
    from ..studies.execution_spec import Processes

_SCRIPT = str(Path(guard.__file__))
_PYTHON = [sys.executable, "-I", "-S", _SCRIPT]
_MARK = "HPO_RUN"
_THREADS = (
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS",
)  # fmt: skip
_OF_XLA = 0.9  # fraction of a process's GPU share that jax reserves
_PAUSE = 0.01  # seconds between two checks of a followed process
STDOUT, STDERR = "stdout.log", "stderr.log"


@dataclass(frozen=True)
class Launch:
    """The command and settings with which a process is started."""

    argv: Sequence[str]
    settings: Mapping[str, str]  # environment variables in addition to ours
    cwd: Path
    folder: Path  # for its output; created if missing


class StartedProcess(Protocol):
    """A started process and its children, here or on a cluster.

    Its output is in the files `STDOUT` and `STDERR` of its folder.
    """

    is_paused: bool
    lost: str
    """Why the process ended without its command ending (such as a dead node); it may run again."""

    @property
    def is_waiting(self) -> bool:
        """Return whether the process waits for a slot on a cluster."""
        ...

    def look(self) -> int | None:
        """Return the exit code (negative for a signal); None while the process is running."""
        ...

    def pause(self) -> None: ...

    def go_on(self) -> None: ...

    def ask_to_end(self, grace: float) -> None:
        """Send SIGTERM, and SIGKILL after `grace` seconds; `look` detects the exit."""
        ...

    def end(self, grace: float = 0.0) -> None:
        """End the process and wait until it has ended."""
        ...

    def memory(self) -> int:
        """Return the memory in use, in bytes; 0 if unknown."""
        ...


class ProcessExecutor(Protocol):
    """Runs a study's processes on this machine or on a cluster."""

    @property
    def at_once(self) -> int:
        """The number of processes that can run at once."""
        ...

    def check(self, program: str, cwd: Path) -> None:
        """Raise ConfigError if no process could start; an empty program name is not checked."""
        ...

    def begin(self, folder: Path) -> None:
        """Set the folder for all processes; end or find those that an earlier start has left."""
        ...

    def find(self, folder: Path) -> StartedProcess | None:
        """Return the process in a run's folder that an earlier start has left, if any."""
        ...

    def start(self, launch: Launch, lane: int) -> StartedProcess: ...

    def close(self) -> None:
        """End all processes that still run."""
        ...


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


def share_of_memory(each: float) -> dict[str, str]:
    """Return the environment variable that limits jax to its share of a GPU."""
    if not 0 < each < 1:
        return {}
    return {"XLA_PYTHON_CLIENT_MEM_FRACTION": f"{_OF_XLA * each:.3g}"}


def share_of_gpus(lane: int, each: float, gpus: Sequence[str]) -> dict[str, str]:
    """Return the variables that give a process `each` GPUs, which may be a fraction of one.

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
        return own | share_of_memory(each)
    whole = int(each)
    first = lane * whole % len(gpus)
    return {"CUDA_VISIBLE_DEVICES": ",".join(gpus[first : first + whole])}


def share_of_threads(threads: int | None, at_once: int) -> dict[str, str]:
    """Return the variables that limit a process's threads; {} if the user has set any of them."""
    if threads is None and any(name in os.environ for name in _THREADS):
        return {}
    return thread_settings(threads or max(1, cores() // at_once))


def thread_settings(count: int) -> dict[str, str]:
    """Return the variables that set a process's number of threads."""
    return dict.fromkeys(_THREADS, str(count))


class OrphanKiller:
    """A helper process that kills the watched process groups once this process has died."""

    def __init__(self):
        self._process: subprocess.Popen[str] | None = None
        self._known: dict[int, str] = {}

    def watch(self, group: int, mark: str) -> None:
        self._known[group] = mark
        self._tell_watcher(f"+ {group} {mark}")

    def forget(self, group: int) -> None:
        self._known.pop(group, None)
        self._tell_watcher(f"- {group}")

    def _tell_watcher(self, line: str) -> None:
        if self._process is None or self._process.poll() is not None:
            if not self._known:
                return
            self._process = subprocess.Popen(
                [*_PYTHON, "watch"], stdin=subprocess.PIPE, text=True, start_new_session=True
            )
            lines = [f"+ {group} {mark}" for group, mark in self._known.items()]
        else:
            lines = [line]
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):  # it was killed: the next line starts another one
                print(*lines, sep="\n", file=self._process.stdin, flush=True)

    def close(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
            self._process.wait()
        self._process = None


class Running:
    """A process on this machine; see `StartedProcess`."""

    lost, is_waiting = "", False

    def __init__(self, launch: Launch, guard: OrphanKiller):
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
        self.exit_code: int | None = None  # negative for the signal that ended it
        self._deadline: float | None = None  # time by which it must have ended, once asked to
        self.is_paused = False

    @property
    def group(self) -> int:
        return self._process.pid

    def look(self) -> int | None:
        """Return the exit code, or None while running; kill leftover and overdue processes."""
        if self.exit_code is not None:
            return self.exit_code
        if self._deadline is not None and time.monotonic() > self._deadline:
            guard.kill(self.group, self.mark)
            self._deadline = None
        if not self._has_ended():
            return None
        guard.kill(self.group, self.mark)  # before its process id can be reused
        self.exit_code = self._process.wait()
        self._guard.forget(self.group)
        return self.exit_code

    def _has_ended(self) -> bool:
        """Return whether the process has ended, without reaping it where `os.waitid` exists."""
        if not hasattr(os, "waitid"):  # macOS before Python 3.13
            return self._process.poll() is not None
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self.group, flags) is not None

    def pause(self) -> None:
        if not self.is_paused and self.exit_code is None:
            self.is_paused = True
            self._signal_group(signal.SIGSTOP)

    def go_on(self) -> None:
        if self.is_paused:
            self.is_paused = False
            self._signal_group(signal.SIGCONT)

    def ask_to_end(self, grace: float) -> None:
        """Send SIGTERM; `look` kills the process after `grace` seconds."""
        if self._deadline is None and self.exit_code is None:
            self._deadline = time.monotonic() + grace
            self._signal_group(signal.SIGTERM)
            self._signal_group(signal.SIGCONT)
            self.is_paused = False

    def end(self, grace: float = 0.0) -> None:
        """End the process and wait for it."""
        self.ask_to_end(grace)
        while self.look() is None:
            time.sleep(0.005)

    def memory(self) -> int:
        return memory_of(self.group)

    def _signal_group(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.group, number)


@dataclass(frozen=True)
class Wish:
    """The state that another machine requests for a process on this one."""

    halted: bool = False
    grace: float | None = None  # seconds from SIGTERM to SIGKILL, if it must end


def follow(launch: Launch, wish: Callable[[], Wish], pause: float = _PAUSE) -> int:
    """Run a process here to its end, following another machine's `wish`; return its exit code."""
    watching = OrphanKiller()
    process = Running(launch, watching)
    while (code := process.look()) is None:
        now = wish()
        if now.grace is not None:
            process.ask_to_end(now.grace)
        elif now.halted:
            process.pause()
        else:
            process.go_on()
        time.sleep(pause)
    watching.close()
    return code


class LocalProcesses:
    """Starts processes on this machine; see `ProcessExecutor`."""

    def __init__(self, settings: Processes):
        self._settings, self._guard = settings, OrphanKiller()

    @cached_property
    def _usable_gpus(self) -> tuple[str, ...]:
        if not self._settings.gpus:
            return ()
        return gpus_here()

    @property
    def at_once(self) -> int:
        given, each = self._settings.at_once, self._settings.gpus
        if given is not None:
            return given
        if each:
            return max(1, int(len(self._usable_gpus) / each + 1e-9))
        return max(1, cores() // (self._settings.threads or 1))

    def check(self, program: str, cwd: Path) -> None:
        """Reject a program that does not exist, or more GPUs than the machine has."""
        each = self._settings.gpus
        if each and len(self._usable_gpus) < math.ceil(each):
            available = counted(len(self._usable_gpus), "GPU")
            raise ConfigError(
                f"processes.gpus is {each:g}, but hpo finds {available} on this machine; remove "
                "gpus, or set gpus: 0"
            )
        if program and shutil.which(program) is None and shutil.which(str(cwd / program)) is None:
            raise ConfigError(f"command: {program} was not found here; give its path")

    def begin(self, folder: Path) -> None:
        end_leftovers(folder)

    def find(self, folder: Path) -> StartedProcess | None:
        return None  # `begin` has ended all of them

    def start(self, launch: Launch, lane: int) -> StartedProcess:
        share = share_of_threads(self._settings.threads, self.at_once)
        if self._settings.gpus is not None:
            share |= share_of_gpus(lane, self._settings.gpus, self._usable_gpus)
        return Running(replace(launch, settings={**share, **launch.settings}), self._guard)

    def close(self) -> None:
        self._guard.close()


def memory_of(process: int) -> int:
    """Return a process's current memory in bytes; 0 if unknown."""
    try:
        text = Path(f"/proc/{process}/statm").read_text(encoding="ascii")
        return int(text.split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def end_leftovers(folder: Path) -> None:
    """Kill the processes of a study whose earlier start was killed together with its guard."""
    for process in guard.marked(f"HPO_FOLDER={folder}{os.sep}"):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(process, signal.SIGKILL)


def last_lines(path: Path, most: int = 6, letters: int = 360) -> str:
    """Return the last lines of a file that are not empty; "" if there are none."""
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
