"""A worker process: steps its share of environments, and ends when its parent does.

It waits for messages on a socket that closes when the parent ends. A thread also watches the
parent, in case an environment hangs. The worker ignores stop signals: batch systems, containers
and terminals send them to all processes at once, and the parent still needs its workers.
"""

from __future__ import annotations

import mmap
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, TextIO, cast

from ..core.host.batch import SharedArrays, Slots, numbers
from ..errors import HpoError


def send_descriptor(link: Connection, descriptor: int) -> None:
    with socket.socket(fileno=os.dup(link.fileno())) as same:
        socket.send_fds(same, [b"."], [descriptor])


def receive_descriptor(link: Connection) -> int:
    with socket.socket(fileno=os.dup(link.fileno())) as same:
        descriptors = socket.recv_fds(same, 1, 1)[1]
    if not descriptors:
        raise EOFError("the other process has ended")
    return descriptors[0]


def shared_block(size: int) -> tuple[int, memoryview]:
    """Return a shareable file descriptor and the zeroed anonymous memory that it refers to."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("hpo-environments")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, size)
    return descriptor, memoryview(mmap.mmap(descriptor, size))


# Signals that a worker ignores; they are blocked while it starts, see `workers`
PARENTS_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_WATCH_SECONDS = 1.0


def serve(descriptor: int, parent: int) -> None:
    for number in PARENTS_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PARENTS_SIGNALS)
    sys.stderr = cast("TextIO", _Unheard(sys.stderr))
    threading.Thread(target=_exit_with_parent, args=(parent,), daemon=True).start()
    batches: dict[int, Slots] = {}
    with Connection(descriptor) as link:
        while True:
            try:
                message, block = link.recv(), None
                if message["do"] == "begin":
                    block = receive_descriptor(link)
            except (EOFError, OSError):
                return
            try:
                failed = _answer_message(batches, message, block)
                reply: dict[str, Any] = {}
                if failed:
                    reply["failed"] = failed
                if message.get("tells"):
                    said = batches[message["batch"]].info
                    reply["said"] = {slot: numbers(info) for slot, info in said.items()}
            except HpoError as error:
                reply = {"error": str(error), "expected": True}
            except Exception as error:  # reported to the caller of the step
                text = f"{type(error).__name__}: {error}".splitlines()[0]
                reply = {"error": text, "expected": False}
            try:
                link.send(reply)
            except OSError:
                return


def _answer_message(
    batches: dict[int, Slots], message: dict[str, Any], block: int | None
) -> dict[int, str]:
    number = message["batch"]
    if message["do"] == "step":
        return batches[number].step(message["restart"])
    if message["do"] == "open":
        return batches[number].open(message["openings"])
    if message["do"] == "begin" and block is not None:
        code = message["code"]
        memory = mmap.mmap(block, SharedArrays.size_of(code, message["count"]))
        os.close(block)
        arrays = SharedArrays.over(code, message["count"], memoryview(memory))
        batches[number] = Slots(message["id"], code, arrays)
    else:
        batches.pop(number).close()
    return {}


class _Unheard:
    """A stream to which environments can write after the terminal has closed."""

    def __init__(self, stream: TextIO):
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with suppress(OSError, ValueError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._stream.flush()


def _exit_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_WATCH_SECONDS)
    os._exit(1)
