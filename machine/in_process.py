"""Batches that this process steps, with a time limit for environment calls.

A thread watches the calls. If a call takes too long, the main thread is interrupted, which counts
as an environment error. If the call continues even then, this process ends, because the
environment would never release the lanes.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from ..core.host.batch import (
    Batch,
    CallOutcome,
    Infos,
    Opening,
    SpaceCode,
    Warn,
    unheard,
)
from ..core.host.vector_batch import local_batch

_SIGNAL = signal.SIGURG  # ignored by default, so a late one does nothing
_LOOK_SECONDS = 1.0
TOLD_SECONDS = 20.0  # seconds in a call before a warning about a slow call
_GRACE_SECONDS = 5.0  # from the interruption of a call to the end of the process
_WORKERS = "with population.workers: 1, only a worker process would end"


class TookTooLong(BaseException):
    """An environment call took too long; `except Exception` in its code cannot catch this."""


class LimitedBatch:
    """A batch that records the time limit and the thread of its running call."""

    def __init__(self, id_: str, code: SpaceCode, count: int, own: InProcess):
        self.id, self._own, self._batch = id_, own, local_batch(id_, code, count)
        self.arrays, self.may_lose = self._batch.arrays, self._batch.may_lose
        self.continues = self._batch.continues
        self.limit, self.thread = own.limit, 0

    @property
    def said(self) -> Infos:
        return self._batch.said

    def open(self, openings: Sequence[Opening]) -> CallOutcome:
        self.limit, self.thread = self._own.opening_limit, threading.get_ident()
        return self._batch.open(openings)

    def step(self, restart: bool) -> CallOutcome:
        self.limit, self.thread = self._own.limit, threading.get_ident()
        return self._batch.step(restart)

    def close(self) -> None:
        self._batch.close()

    @property
    def call(self) -> int:
        """The number of the running environment call; 0 between calls."""
        return int(self.arrays.inside.max(initial=0))


@dataclass
class _Seen:
    """A running call and its duration, excluding time in which the process was suspended."""

    call: int = 0
    seconds: float = 0.0
    warned: bool = False
    interrupted: bool = False


class InProcess:
    """Creates batches that are stepped here; see `core.host.batch.BatchMaker`.

    An environment call may take `limit` seconds, and creating an environment may take
    `opening_limit` seconds. `warn` receives a line about a slow call; `leave` ends the process.
    """

    def __init__(
        self,
        limit: float,
        opening_limit: float,
        warn: Warn = unheard,
        leave: Callable[[int], object] = os._exit,
    ):
        self.limit, self.opening_limit = limit, opening_limit
        self._warn, self._leave = warn, leave
        self._batches: weakref.WeakKeyDictionary[LimitedBatch, _Seen] = weakref.WeakKeyDictionary()
        self._watched = threading.Lock()
        self._thread: threading.Thread | None = None
        _install_handler()

    @property
    def look_seconds(self) -> float:
        return min(_LOOK_SECONDS, self.limit / 4, self.opening_limit / 4)

    def batch(self, id_: str, code: SpaceCode, count: int, tells: bool = False) -> Batch:
        """Create a batch of `count` slots, which always records info metrics in `said`."""
        made = LimitedBatch(id_, code, count, self)
        if math.isfinite(min(self.limit, self.opening_limit)):
            with self._watched:
                self._batches[made] = _Seen()
            if self._thread is None:
                self._thread = threading.Thread(
                    target=_watch_calls, args=(weakref.ref(self),), name="step limit", daemon=True
                )
                self._thread.start()
        return made

    def look(self, seconds: float) -> None:
        """Check the running calls once, `seconds` after the previous check."""
        with self._watched:
            batches = list(self._batches.items())
        for batch, timer in batches:
            call = batch.call
            if call == 0 or call != timer.call:
                self._batches[batch] = _Seen(call)
                continue
            timer.seconds += seconds
            self._judge_call(batch, timer)

    def _judge_call(self, batch: LimitedBatch, timer: _Seen) -> None:
        if timer.seconds >= TOLD_SECONDS and not timer.warned:
            timer.warned = True
            self._warn(_long_words(batch, timer))
        if timer.seconds >= batch.limit and not timer.interrupted:
            timer.interrupted = True
            _interrupt_call(batch, timer.call)
        if timer.seconds >= batch.limit + min(_GRACE_SECONDS, batch.limit):
            self._warn(
                f"{batch.id} has not answered for {timer.seconds:.0f} s"
                f"{_place_of_call(batch)} (population.step_timeout), and its call cannot be "
                "interrupted, so this process ends; everything committed is kept. "
                f"{_WORKERS.capitalize()}"
            )
            _show_cursor()
            self._leave(1)


def _watch_calls(of: weakref.ref[InProcess]) -> None:
    while (own := of()) is not None:
        seconds = own.look_seconds
        own.look(seconds)
        del own  # may be collected from here on
        time.sleep(seconds)


def _long_words(batch: LimitedBatch, timer: _Seen) -> str:
    return (
        f"{batch.id} has not answered for {timer.seconds:.0f} s{_place_of_call(batch)}; its call "
        f"will be interrupted after {batch.limit:g} s (population.step_timeout)"
    )


def _place_of_call(batch: LimitedBatch) -> str:
    """Return ` in FILE:LINE` of the running call, or ""."""
    frame = sys._current_frames().get(batch.thread)
    if frame is None:
        return ""
    package = str(Path(__file__).parents[1])
    for call in reversed(traceback.extract_stack(frame)):
        if not _is_in(call.filename, package):
            return f" in {Path(call.filename).name}:{call.lineno}"
    return ""


def _is_in(file: str, package: str) -> bool:
    return file.startswith(package + os.sep)


def _show_cursor() -> None:
    """Show the cursor if a terminal view has hidden it, because no other code will do so."""
    if sys.stderr is not None and sys.stderr.isatty():
        sys.stderr.write("\x1b[?25h")
        sys.stderr.flush()


# ---------------------------------------------------------------------- the main thread

_overdue: weakref.WeakKeyDictionary[LimitedBatch, int] = weakref.WeakKeyDictionary()
"""Batch -> the number of the call that must be interrupted."""


def _install_handler() -> None:
    """Install the handler that interrupts long calls, unless its signal is in use."""
    in_main = threading.current_thread() is threading.main_thread()
    if in_main and signal.getsignal(_SIGNAL) in (signal.SIG_DFL, signal.SIG_IGN):
        signal.signal(_SIGNAL, _on_signal)


def _interrupt_call(batch: LimitedBatch, call: int) -> None:
    """Interrupt a call if it runs in the main thread and the handler is installed."""
    main = threading.main_thread().ident
    if main is not None and batch.thread == main and signal.getsignal(_SIGNAL) is _on_signal:
        _overdue[batch] = call
        signal.pthread_kill(main, _SIGNAL)


def _on_signal(number: int, frame: FrameType | None) -> None:
    for batch, call in list(_overdue.items()):
        del _overdue[batch]
        if batch.call == call:
            raise TookTooLong(f"no answer for {batch.limit:g} s (population.step_timeout)")
