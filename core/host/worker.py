"""A worker process: steps its share of the environments, and ends when its parent does.

It waits for messages on a socket. A parent that has ended, however suddenly, closes the other end;
and in case an environment never comes back, a thread watches the parent as well.
"""

from __future__ import annotations

import mmap
import os
import signal
import socket
import threading
import time
from typing import Any

from ...errors import HpoError
from .board import Board
from .messages import receive, receive_descriptor, send
from .slots import Opening, Slots
from .spaces import SpaceCode

__all__ = ["serve"]

_WATCH_SECONDS = 1.0


def serve(descriptor: int, parent: int) -> None:
    """Answer messages until the parent ends.

    Args:
        descriptor: of this side's socket.
        parent: process id.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    batches: dict[int, Slots] = {}
    with socket.socket(fileno=descriptor) as link:
        while True:
            try:
                message = receive(link)
                block = receive_descriptor(link) if message["do"] == "begin" else None
            except (EOFError, OSError):
                return
            try:
                _answer(batches, message, block)
                reply: dict[str, Any] = {}
            except HpoError as error:
                reply = {"error": str(error), "expected": True}
            except Exception as error:  # told where the step was asked for
                text = f"{type(error).__name__}: {error}".splitlines()[0]
                reply = {"error": text, "expected": False}
            try:
                send(link, reply)
            except OSError:
                return


def _answer(batches: dict[int, Slots], message: dict[str, Any], block: int | None) -> None:
    number = message["batch"]
    if message["do"] == "step":
        batches[number].step(message["restart"])
    elif message["do"] == "open":
        batches[number].open([Opening(**opening) for opening in message["openings"]])
    elif message["do"] == "begin" and block is not None:
        code = SpaceCode(**{name: _tuple(value) for name, value in message["code"].items()})
        memory = mmap.mmap(block, Board.size_of(code, message["count"]))
        os.close(block)
        board = Board.over(code, message["count"], memory)
        batches[number] = Slots(message["id"], code, board)
    else:
        batches.pop(number).close()


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_WATCH_SECONDS)
    os._exit(1)
