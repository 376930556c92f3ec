"""Worker processes that step environments, and the batches that use them.

Workers start as new interpreters (never by fork, because jax has threads). Each is connected to
this process by a socket, and ends when this process does. If a worker ends, or hangs in an
environment for too long, its environments are lost; a new worker starts when it is next needed.
"""

from __future__ import annotations

import itertools
import math
import os
import select
import signal
import subprocess
import sys
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from ..core.host.batch import FINE, CallOutcome, Opening, SharedArrays, SpaceCode, Warn, unheard
from ..environments.hosted import is_simulated, module_of
from ..errors import ConfigError
from ..studies.spec import Study
from ..studies.user_code import import_user_code
from . import worker
from .in_process import TOLD_SECONDS, InProcess
from .worker import send_descriptor, serve, shared_block

_PATIENCE_SECONDS = 5.0
_LOOK_SECONDS = 1.0


@dataclass(frozen=True)
class _Worker:
    process: subprocess.Popen[bytes]
    link: Connection
    waiter: Any  # `select.poll` object of the link


class Workers:
    """Worker processes, which start on first use and are restarted after they have ended.

    `entry` is `module:function`, called with the socket, this process's id and `arguments`; it
    must call `worker.serve`. An environment call may take `limit` seconds, and creating an
    environment may take `opening_limit` seconds; `warn` receives a line about a slow call.
    """

    def __init__(
        self,
        count: int,
        entry: str = "",
        arguments: Sequence[Any] = (),
        *,
        limit: float = math.inf,
        opening_limit: float | None = None,
        warn: Warn = unheard,
    ):
        self.count = count
        self.limit = limit
        self._opening_limit = limit
        if opening_limit is not None:
            self._opening_limit = opening_limit
        self._warn = warn
        self._entry = entry or f"{worker.__name__}:{worker.serve.__name__}"
        self._arguments = tuple(arguments)
        self.there: dict[int, _Worker] = {}
        self._batches = itertools.count()
        self._finalize = weakref.finalize(self, _end_workers, self.there)

    def batch(self, id_: str, code: SpaceCode, count: int, tells: bool = False) -> WorkerBatch:
        """Create a batch of `count` slots; slot i uses worker i modulo the number of workers."""
        return WorkerBatch(self, next(self._batches), id_, code, count, tells=tells)

    @property
    def process_ids(self) -> list[int]:
        return [found.process.pid for _, found in sorted(self.there.items())]

    def close(self) -> None:
        _end_workers(self.there)

    def worker(self, at: int) -> _Worker:
        if at not in self.there:
            parent_conn, child_conn = Pipe()
            with child_conn:
                process = _start_worker(child_conn.fileno(), self._entry, self._arguments)
            waiter = select.poll()
            waiter.register(parent_conn.fileno(), select.POLLIN)
            self.there[at] = _Worker(process, parent_conn, waiter)
        return self.there[at]

    def tell(
        self,
        messages: Mapping[int, Mapping[str, Any]],
        inside: np.ndarray,
        block: int | None = None,
    ) -> tuple[dict[int, dict[str, Any]], dict[int, str]]:
        """Send messages to workers by index; return replies, and why the other workers ended."""
        replies: dict[int, dict[str, Any]] = {}
        ended: dict[int, str] = {}
        try:
            for at, message in messages.items():
                there = self.worker(at)
                try:
                    there.link.send(message)
                    if block is not None:
                        send_descriptor(there.link, block)
                except OSError:
                    ended[at] = self._remove_worker(at)
            for at, message in messages.items():
                if at in ended:
                    continue
                try:
                    limit = self._opening_limit
                    if message["do"] == "step":
                        limit = self.limit
                    hangs = not self._wait_for_reply(at, inside[at :: self.count], limit)
                    if hangs:
                        why = f"did not answer for {limit:g} s (population.step_timeout)"
                        ended[at] = self._remove_worker(at, why)
                    else:
                        replies[at] = self.there[at].link.recv()
                except (OSError, EOFError):
                    ended[at] = self._remove_worker(at)
        except BaseException:  # a reply may still arrive and would be taken for a later one
            self.close()
            raise
        return replies, ended

    def _wait_for_reply(self, at: int, inside: np.ndarray, limit: float) -> bool:
        """Wait for a worker's reply, at most `limit` seconds per environment call."""
        look = min(_LOOK_SECONDS, limit / 4)
        call, waited, warned, waiter = 0, 0.0, False, self.there[at].waiter
        while not waiter.poll(1000 * look):
            now = int(inside.max(initial=0))
            waited += look
            if now != call or not now:
                waited = 0.0
            call = now
            if waited >= limit:
                return False
            if waited >= TOLD_SECONDS and not warned:
                warned = True
                self._warn(_long_words(waited, limit))
        return True

    def _remove_worker(self, at: int, why: str = "") -> str:
        gone = self.there.pop(at)
        gone.link.close()
        if why:
            gone.process.kill()
        code = _wait_or_kill(gone.process)
        return why or _exit_words(code)


class WorkerBatch:
    """Environments in worker processes; the first call after a restart reports the lost ones."""

    may_lose = True
    continues = False

    def __init__(
        self,
        workers: Workers,
        number: int,
        id_: str,
        code: SpaceCode,
        count: int,
        *,
        tells: bool = False,
    ):
        self._workers, self._number, self._tells = workers, number, tells
        self.said: dict[int, dict[str, float]] = {}
        self._block, memory = shared_block(SharedArrays.size_of(code, count))
        self._close_block = weakref.finalize(self, os.close, self._block)
        self.arrays = SharedArrays.over(code, count, memory)
        self._begin = {"do": "begin", "id": id_, "code": code, "count": count}
        self._homes: dict[int, _Worker] = {}  # index -> the worker that has opened this batch
        self._open: set[int] = set()
        self._gone: set[int] = set()

    def open(self, openings: Sequence[Opening]) -> CallOutcome:
        lists: dict[int, list[Opening]] = {}
        for opening in openings:
            lists.setdefault(opening.slot % self._workers.count, []).append(opening)
        slots = {opening.slot for opening in openings}
        self._open -= slots
        self.said = {slot: said for slot, said in self.said.items() if slot not in slots}
        ended = self._start_batch(sorted(lists))
        self._gone -= slots
        self._open |= slots
        for at in ended:
            self._lose_slots(at)
        messages = {
            at: {"do": "open", "openings": lists[at]} for at in sorted(lists) if at not in ended
        }
        return self._tell_workers(messages, ended)

    def step(self, restart: bool) -> CallOutcome:
        which = np.unique(np.flatnonzero(self.arrays.active) % self._workers.count).tolist()
        ended = self._start_batch(which)
        step = {"do": "step", "restart": restart, "tells": self._tells}
        return self._tell_workers({at: step for at in which if at not in ended}, ended)

    def close(self) -> None:
        there = [at for at, home in self._homes.items() if self._workers.there.get(at) is home]
        self._workers.tell(
            self._with_batch_number({at: {"do": "drop"} for at in there}), self.arrays.inside
        )
        self._homes, self._open, self._gone = {}, set(), set()

    def _with_batch_number(
        self, messages: Mapping[int, Mapping[str, Any]]
    ) -> dict[int, dict[str, Any]]:
        return {at: {**message, "batch": self._number} for at, message in messages.items()}

    def _lose_slots(self, at: int) -> None:
        lost = {slot for slot in self._open if slot % self._workers.count == at}
        self._open -= lost
        self._gone |= lost
        self.arrays.inside[at :: self._workers.count] = 0

    def _start_batch(self, which: Sequence[int]) -> dict[int, str]:
        new = [at for at in which if self._homes.get(at) is not self._workers.worker(at)]
        if not new:
            return {}
        for at in new:
            self._lose_slots(at)
        messages = self._with_batch_number(dict.fromkeys(new, self._begin))
        replies, ended = self._workers.tell(messages, self.arrays.inside, self._block)
        _raise_wrong(replies)
        self._homes |= {at: self._workers.worker(at) for at in replies}
        return ended

    def _tell_workers(
        self, messages: Mapping[int, Mapping[str, Any]], ended_before: Mapping[int, str]
    ) -> CallOutcome:
        replies, ended = self._workers.tell(self._with_batch_number(messages), self.arrays.inside)
        blamed: dict[int, str] = {}
        for at, how in ended.items():
            called = np.flatnonzero(self.arrays.inside[at :: self._workers.count]).tolist()
            blamed |= {at + self._workers.count * row: how for row in called}
            self._lose_slots(at)
        _raise_wrong(replies)
        failed: dict[int, str] = {}
        for reply in replies.values():
            failed |= reply.get("failed", {})
            self.said |= reply.get("said", {})
        self._open -= set(failed)
        lost, self._gone = self._gone, set()
        if not (failed or lost or ended or ended_before):
            return FINE
        return CallOutcome(failed, lost, blamed, (*ended_before.values(), *ended.values()))


def _raise_wrong(replies: Mapping[int, Mapping[str, Any]]) -> None:
    wrong = next((reply for reply in replies.values() if "error" in reply), None)
    if wrong is None:
        return
    if wrong["expected"]:
        raise ConfigError(wrong["error"])
    raise RuntimeError(wrong["error"])


def _start_worker(
    descriptor: int, entry: str, arguments: tuple[Any, ...]
) -> subprocess.Popen[bytes]:
    """Start a worker with the same import path; signals are blocked while it imports."""
    module, _, function = entry.partition(":")
    given = ", ".join(map(repr, (descriptor, os.getpid(), *arguments)))
    code = f"import sys; sys.path[:] = {sys.path!r}; from {module} import {function}; "
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}  # user code must not use an accelerator
    before = signal.pthread_sigmask(signal.SIG_BLOCK, worker.PARENTS_SIGNALS)
    try:
        return subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", f"{code}{function}({given})"],
            pass_fds=[descriptor],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # stdout is only for results
            env=environment,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_workers(there: dict[int, _Worker]) -> None:
    gone = list(there.values())
    there.clear()
    for found in gone:
        found.link.close()
    for found in gone:
        _wait_or_kill(found.process)


def _wait_or_kill(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait(_PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _long_words(waited: float, limit: float) -> str:
    what = f"an environment has not answered for {waited:.0f} s"
    if math.isinf(limit):
        return f"{what}; to end such calls, set population.step_timeout"
    return f"{what}; its worker process will be ended after {limit:g} s (population.step_timeout)"


def _exit_words(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:  # a signal specific to the system
        name = f"signal {-code}"
    if name == "SIGKILL":
        name += " (perhaps out of memory)"
    return f"was ended by {name}"


# Modules whose environments take less time per step than a message to another process
_LIGHT = ("gymnasium.envs.classic_control.", "gymnasium.envs.toy_text.", "gymnasium.envs.tabular.")
_STEP_SECONDS = 120.0  # for a step and the reset after it, by default
_OPENING_SECONDS = 300.0  # for creating an environment and its first reset


def workers_of(study: Study, cores: int, warn: Warn = unheard) -> Workers | InProcess:
    """Return the batch maker of a study: either worker processes, or this process."""
    count = worker_count(study, cores)
    limit, opening_limit = _limits_of(study)
    if count == 0:
        return InProcess(limit, opening_limit, warn)
    source = str(Path(study.source).resolve())
    entry = f"{__name__}:{serve_study.__name__}"
    given = [list(study.imports), source]
    return Workers(count, entry, given, limit=limit, opening_limit=opening_limit, warn=warn)


def _limits_of(study: Study) -> tuple[float, float]:
    """Return how many seconds a step and the creation of an environment may take."""
    asked = study.population.step_timeout
    if asked is None:
        return _STEP_SECONDS, _OPENING_SECONDS
    return asked or math.inf, asked or math.inf


def worker_count(study: Study, cores: int) -> int:
    """Return the number of workers, which never affects results; a step limit needs workers."""
    asked = study.population.workers
    if is_simulated(study.env.id):  # it has its own threads
        return 0
    if asked is not None:
        return asked
    if study.population.step_timeout:
        return cores
    if cores < 2 or f"{module_of(study.env.id)}.".startswith(_LIGHT):
        return 0
    return cores


def serve_study(descriptor: int, parent: int, imports: Sequence[str], source: str) -> None:
    """Run user code, which registers environments, and then serve requests."""
    import_user_code(imports, source)
    serve(descriptor, parent)
