"""Worker processes that step environments, and the batches they share among them.

They are started anew from the interpreter (never forked: jax has threads), know this process by
one socket each, and end with it.
"""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
import sys
import weakref
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from ...errors import ConfigError
from . import worker
from .board import Board, shared_block
from .messages import receive, send, send_descriptor
from .slots import Opening
from .spaces import SpaceCode

__all__ = ["WorkerBatch", "Workers"]

_PATIENCE_SECONDS = 5.0


class Workers:
    """Some processes; started when the first batch is begun, and again if one of them ended.

    Args:
        count: how many.
        entry: `module:function` that a worker calls with its socket, the id of this process and
            `arguments`; it must call `worker.serve`.
        arguments: further ones, texts and numbers or lists of them.
    """

    def __init__(self, count: int, entry: str = "", arguments: Sequence[Any] = ()):
        self.count = count
        self._entry = entry or f"{worker.__name__}:{worker.serve.__name__}"
        self._arguments = tuple(arguments)
        self._team: _Team | None = None

    def batch(self, id_: str, code: SpaceCode, count: int) -> WorkerBatch:
        """Begin a batch of `count` slots, slot i with worker i modulo their number."""
        if self._team is None or self._team.broken:
            self._team = _Team(self.count, self._entry, self._arguments)
        return WorkerBatch(self._team, id_, code, count)

    @property
    def process_ids(self) -> list[int]:
        """Ids of the processes that run."""
        return [] if self._team is None else [process.pid for process in self._team.processes]

    def close(self) -> None:
        """End all of them."""
        if self._team is not None:
            self._team.close()
            self._team = None


class _Team:
    """Processes that live and end together."""

    def __init__(self, count: int, entry: str, arguments: tuple[Any, ...]):
        self.processes: list[subprocess.Popen[bytes]] = []
        self.links: list[socket.socket] = []
        self.broken = False
        self.numbers = itertools.count()
        self.close = weakref.finalize(self, _end, self.processes, self.links)
        for _ in range(count):
            ours, theirs = socket.socketpair()
            self.links.append(ours)
            with theirs:
                self.processes.append(_start(theirs.fileno(), entry, arguments))

    def tell(
        self, messages: Sequence[tuple[int, dict[str, Any]]], block: int | None = None
    ) -> None:
        """Send messages to some of the workers, which work on them side by side; wait for all.

        Raises:
            ConfigError: an environment cannot be made as asked.
            RuntimeError: an environment failed, or a worker ended.
        """
        if self.broken:
            raise RuntimeError("the worker processes that step environments have ended")
        replies: list[dict[str, Any]] = []
        at = 0
        try:
            for at, message in messages:
                send(self.links[at], message)
                if block is not None:
                    send_descriptor(self.links[at], block)
            for at, _ in messages:
                replies.append(receive(self.links[at]))
        except (OSError, EOFError) as error:
            self.broken = True
            process = self.processes[at]
            self.close()
            raise RuntimeError(
                f"a worker process that steps environments has ended (exit {process.returncode})"
            ) from error
        except BaseException:  # an answer may be on its way: nothing that follows would fit
            self.broken = True
            self.close()
            raise
        wrong = next((reply for reply in replies if "error" in reply), None)
        if wrong is not None:
            raise (ConfigError if wrong["expected"] else RuntimeError)(wrong["error"])


class WorkerBatch:
    """A batch whose environments are with the workers; see `batch.Batch`."""

    def __init__(self, team: _Team, id_: str, code: SpaceCode, count: int):
        self._team, self._number = team, next(team.numbers)
        self._share = len(team.processes)
        descriptor, memory = shared_block(Board.size_of(code, count))
        self.board = Board.over(code, count, memory)
        begin = {"do": "begin", "id": id_, "code": asdict(code), "count": count}
        try:
            self._tell(range(self._share), begin, descriptor)
        finally:
            os.close(descriptor)

    def _tell(self, which: Any, message: dict[str, Any], block: int | None = None) -> None:
        self._team.tell([(at, {**message, "batch": self._number}) for at in which], block)

    def open(self, openings: Sequence[Opening]) -> None:
        """Begin episodes."""
        lists: dict[int, list[dict[str, Any]]] = {}
        for opening in openings:
            lists.setdefault(opening.slot % self._share, []).append(opening.as_json())
        self._team.tell(
            [
                (at, {"do": "open", "batch": self._number, "openings": part})
                for at, part in sorted(lists.items())
            ]
        )

    def step(self, restart: bool) -> None:
        """Step the active slots, the workers side by side."""
        which = np.unique(np.flatnonzero(self.board.active) % self._share).tolist()
        self._tell(which, {"do": "step", "restart": restart})

    def close(self) -> None:
        """Close its environments."""
        if not self._team.broken:
            self._tell(range(self._share), {"do": "drop"})


def _start(descriptor: int, entry: str, arguments: tuple[Any, ...]) -> subprocess.Popen[bytes]:
    """Start a worker that finds what this process finds."""
    module, _, function = entry.partition(":")
    given = ", ".join(map(repr, (descriptor, os.getpid(), *arguments)))
    code = f"import sys; sys.path[:] = {sys.path!r}; from {module} import {function}; "
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}  # user code must not take an accelerator
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", f"{code}{function}({given})"],
        pass_fds=[descriptor],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,  # results alone go there
        env=environment,
    )


def _end(processes: list[subprocess.Popen[bytes]], links: list[socket.socket]) -> None:
    """Close the sockets, upon which workers end; kill one that does not."""
    for link in links:
        link.close()
    for process in processes:
        try:
            process.wait(_PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
