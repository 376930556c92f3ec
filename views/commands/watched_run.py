"""A study run with a view of its progress, for `hpo run` and `hpo train`."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from ...errors import HpoError
from ...search.api import run as run_study
from ...search.engine.interrupts import HEARD, leaves_at_once
from ...search.run import Results
from ...store.environment_columns import environment_names
from ...store.follow import is_finished
from ...store.journal import Journal
from ...store.study_folder import REPORT_NAME, StudyFolder, free_name
from ...studies.overrides import Given
from ...studies.spec import Study, metric_words
from ..escape_control import echo
from ..final_summary import print_results, results_data
from ..formatting import duration
from ..json_output import print_json
from ..terminal.console import can_draw, console, let_go_of_terminal, plain_warnings, to_stderr
from ..terminal.run_view import LinesView, QuietView, RunView


class InterruptListener:
    """Listens for Ctrl-C while entered and armed; only in the main thread.

    The listening thread calls `on_first` at the first signal that ends a study and `on_second` at
    the next Ctrl-C; then the process ends with code 130. The journal is whole at any moment.
    """

    def __init__(
        self, on_first: Callable[[], None], on_second: Callable[[], None],
        leave: Callable[[int], object] = os._exit,
    ):  # fmt: skip
        self._on_first, self._on_second, self._leave = on_first, on_second, leave
        self._armed = threading.Event()
        self._thread: threading.Thread | None = None

    def arm(self) -> None:
        """Count presses from now on; the loop has installed its handlers."""
        self._armed.set()

    def __enter__(self) -> InterruptListener:
        if threading.current_thread() is threading.main_thread():
            self._hears, self._rings = socket.socketpair()
            self._rings.setblocking(False)
            self._before = signal.set_wakeup_fd(self._rings.fileno(), warn_on_full_buffer=False)
            self._thread = threading.Thread(target=self._listen, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._thread is None:
            return
        signal.set_wakeup_fd(self._before)
        self._rings.close()  # the listener reads the end and returns
        self._thread.join()
        self._hears.close()
        self._thread = None

    def _listen(self) -> None:
        pressed = False
        while byte := self._hears.recv(1):
            if byte[0] not in HEARD or not self._armed.is_set():
                continue
            if byte[0] == signal.SIGHUP:
                let_go_of_terminal()
            if not pressed:
                pressed = True
                self._on_first()
            elif leaves_at_once(byte[0]):
                try:
                    self._on_second()
                finally:
                    self._leave(130)


INTERRUPTED = 130


def run_watched(study: Study, text: str, args: Namespace) -> int:
    """Run a study, show its progress, print its results, and return the exit code."""

    def show(results: Results) -> None:
        write_report_of(results)
        if args.json:
            print_json(results_data(results))
            return
        names = [metric.name for metric in study.objectives]
        with Journal(results.folder) as journal:
            environments = environment_names(journal.meta.environments)
        print_results(console(sys.stdout), results, metric_words(study), args.quiet, names,
                      environments, args.verbose, study.algorithm.unit)  # fmt: skip

    results = watch(study, text, args, show)
    return INTERRUPTED if results.state == "interrupted" else int(nothing_learnt(results))


def nothing_learnt(results: Results) -> bool:
    """Return whether there are trials and all of them failed or diverged."""
    states = {entry.state for entry in results.leaderboard}
    return bool(states) and states <= {"failed", "diverged"}


_Show = Callable[[Results], None]


def watch(study: Study, text: str, args: Namespace, show: _Show = lambda results: None) -> Results:
    """Run a study and show its progress; print how to resume an interrupted one."""
    if args.new:
        study = replace(study, name=free_name(Path(args.out), study.name))
    command = resume_command(args.argv, study.name if args.new else None)
    name = study.name if args.new else args.name
    given = Given(args.argv[0], args.file, tuple(args.set), name, args.out)

    run = partial(run_study, study, args.out, study_text=text, given=given)
    return watch_run(run, args, command, Path(args.out) / study.name, show)


def watch_run(
    run: Callable[..., Results], args: Namespace, command: str, folder: Path, show: _Show
) -> Results:
    """Call `run` with `observers`, `compiling` and `warn` of a view, and show the results."""
    view = _view(args, command, folder)
    listener = InterruptListener(view.pressed, view.leaving)
    view.on_ready = listener.arm
    with listener, view, plain_warnings(view.warn):
        results = run(
            observers=[view], compiling=view.compiling, warn=view.warn,
            accept_new_bits=args.accept_new_bits, accept_changed_files=args.accept_changed_files,
        )  # fmt: skip
    let_go_of_terminal()
    if results.finished_at is not None and not args.json:
        since = max(0.0, time.time() - results.finished_at)
        echo(f"{folder.name} finished {duration(since)} ago; nothing to do.")
    show(results)
    if results.state == "interrupted":
        view.write("Interrupted; everything so far is kept. Resume with:", command)
    return results


def resume_command(argv: Sequence[str], name: str | None) -> str:
    words = [word for word in argv if word != "--new"]
    if name is not None:
        words += ["--name", name]
    return shlex.join(["hpo", *words])


def _view(args: Namespace, command: str, folder: Path) -> RunView:
    if args.quiet:
        return QuietView(command=command)
    if args.json or not can_draw():
        return LinesView(command=command)
    from ..terminal.live_view import LiveView

    try:
        over = Journal.exists(folder) and is_finished(folder)
    except HpoError:  # a damaged study is refused later
        over = False
    return LiveView(command, at_once=not over)


def write_report_of(results: Results) -> None:
    """Write `report.html`; if that fails, warn: the results are kept in any case."""
    from ..report.report import write_report

    try:
        write_report(StudyFolder(results.folder))
    except (HpoError, OSError) as error:
        to_stderr(f"no {REPORT_NAME} was written: {error}")
