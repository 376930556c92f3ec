"""A script without dependencies that ends a study's processes once hpo itself has died.

`guard.py run PARENT COMMAND...` becomes the command, which Linux kills together with its parent.
`guard.py watch` reads lines `+ GROUP MARK` and `- GROUP`. When its input ends, it kills the
remaining groups, and all processes with one of their marks in the environment.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from contextlib import suppress

_PR_SET_PDEATHSIG = 1
NOT_STARTED = 127
_TRIES, _PAUSE = 20, 0.005  # scans for marked processes, and seconds between two scans


def marked(mark: str) -> list[int]:
    """Return the processes that have this text in their environment; none except on Linux."""
    found: list[int] = []
    try:
        names = [name for name in os.listdir("/proc") if name.isdecimal()]
    except OSError:
        return found
    for name in names:
        with suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
            if mark.encode() in file.read():
                found.append(int(name))
    return found


def kill(group: int, mark: str) -> None:
    """Kill a process group, and any processes with its mark that have left it."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
    for _ in range(_TRIES):  # a marked process may be starting another one
        left = [process for process in marked(mark) if process != os.getpid()]
        if not left:
            return
        for process in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        time.sleep(_PAUSE)


def watch() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # a batch system sends it to all processes of a job
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    groups: dict[int, str] = {}
    for line in sys.stdin:
        words = line.split()
        if words[0] == "+":
            groups[int(words[1])] = words[2]
        else:
            groups.pop(int(words[1]), None)
    for group, mark in groups.items():
        kill(group, mark)


def become(parent: int, argv: list[str]) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent died first
            os._exit(NOT_STARTED)
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        print(f"{argv[0]} cannot be started: {error.strerror}", file=sys.stderr, flush=True)
        os._exit(NOT_STARTED)


if __name__ == "__main__":
    if sys.argv[1] == "watch":
        watch()
    else:
        become(int(sys.argv[2]), sys.argv[3:])
