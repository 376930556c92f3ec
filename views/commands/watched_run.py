"""Runs a study with a view of its progress, and prints the result at the end."""

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
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from textwrap import wrap
from typing import Any

from rich.console import Console

from ...errors import HpoError, counted, ignore, never
from ...search.api import run as run_study
from ...search.checks import check_before_code
from ...search.engine.interrupts import HEARD, leaves_at_once
from ...search.run import RunResults
from ...store.environment_columns import environment_names
from ...store.follow import is_finished
from ...store.journal import Journal
from ...store.rows import counts_evaluations_alone
from ...store.study_folder import REPORT_NAME, StudyFolder, free_name
from ...store.verdict_text import as_json
from ...studies.algorithm import ENV_STEPS
from ...studies.load import BeforeCode
from ...studies.overrides import Given
from ...studies.spec import Study
from ...studies.study_environments import value_words
from ..formatting import duration, steps
from ..leaderboard_text import (
    front_line,
    headline,
    next_commands,
    print_baselines,
    print_headline,
    print_leaderboard,
    target,
)
from ..output import echo, plain_warnings, print_json, to_stderr
from ..terminal.console import can_draw, console, let_go_of_terminal
from ..terminal.run_view import PATIENCE, LinesView, QuietView, RunView
from ..time_spent import time_text
from ..trial_view import Board

_SHOWN, _BRIEF, _FRONT = 10, 2, 6
INTERRUPTED = 130
_Show = Callable[[RunResults], None]


@dataclass(frozen=True)
class StudyWords:
    """The names under which a study's values and units are displayed."""

    metric: str
    objectives: Sequence[str] = ()  # if there are several
    environments: Sequence[str] = ()  # if there are several
    unit: str = ENV_STEPS
    lanes: str = "lanes"


def print_results(
    console: Console,
    results: RunResults,
    words: StudyWords,
    *,
    quiet: bool = False,
    verbose: bool = False,
) -> None:
    entries = results.leaderboard
    lines = headline(results.conclusion, entries, words.metric, words.unit)
    print_headline(console, lines)
    if words.objectives:
        console.print(front_line(entries, results.hypervolume))
    if entries:
        console.print()
        board = Board.of(entries, words.objectives, words.environments)
        print_leaderboard(console, board, _row_count(words, verbose), target(results.folder))
    if quiet:
        return
    console.print()
    if verbose and results.baselines:
        print_baselines(console, results.baselines)
        console.print()
    console.print(summary(results, words.unit))
    if results.advice:
        console.print(results.advice)
    if verbose:
        usage = results.usage
        speed = steps(round(usage.env_steps_per_second))
        console.print(f"{speed} {words.unit} per second, {words.lanes} busy {usage.occupancy:.0%}")
        console.print(time_text(usage.seconds_by_part))
        console.print(f"idle {usage.idle_share:.0%} of the time (no training, no evaluation)")
    if commands := next_commands(results.folder, entries, results.conclusion, verbose):
        console.print("Next:")
    for line in _command_lines(commands, console.width):
        console.print(line, soft_wrap=True)


def _row_count(words: StudyWords, verbose: bool) -> int:
    if verbose:
        return _SHOWN
    if words.objectives:
        return _FRONT
    return _BRIEF


def _command_lines(commands: Sequence[tuple[str, str]], width: int) -> list[str]:
    """Return (command, meaning) pairs as lines, with the meaning after the command or above it."""
    room = max((len(command) for command, meaning in commands if meaning), default=0)
    lines = [
        f"  {command.ljust(room)}  # {meaning}" if meaning else f"  {command}"
        for command, meaning in commands
    ]
    if max(map(len, lines), default=0) <= width:
        return lines
    lines = []
    for command, meaning in commands:
        if meaning:
            lines.append(f"  # {meaning}")
        parts = [command]  # a command cut inside '...' would be invalid
        if "'" not in command:
            parts = wrap(
                command, max(20, width - 8), break_long_words=False, break_on_hyphens=False
            )
        lines.append("  " + " \\\n      ".join(parts))
    return lines


def summary(results: RunResults, unit: str = ENV_STEPS) -> str:
    usage = results.usage
    report = StudyFolder(results.folder).report
    where = f"Results: {results.folder}/"
    if report.is_file():
        where = f"Report: {report}"
    trials = counted(sum(entry.trial >= 0 for entry in results.leaderboard), "trial")
    spent = f"{steps(usage.env_steps)} {unit} in {duration(usage.run_seconds)}"
    return f"{trials}, {spent}. {where}"


def results_data(results: RunResults) -> dict[str, Any]:
    best, report = None, None
    if results.best is not None:
        best = results.best.as_json()
    if (written := StudyFolder(results.folder).report).is_file():
        report = str(written)
    usage = asdict(results.usage)
    for name in ("env_steps", "occupancy", "seconds_by_part", "idle_share"):  # properties
        usage[name] = getattr(results.usage, name)
    return {
        "state": results.state,
        "folder": str(results.folder),
        "report": report,
        "best": best,
        "conclusion": as_json(results.conclusion),
        "hypervolume": results.hypervolume,
        "leaderboard": [entry.as_json() for entry in results.leaderboard],
        "baselines": [entry.as_json() for entry in results.baselines],
        "advice": results.advice or None,
        "finished_at": results.finished_at,
        "usage": {**usage, "rejected_share": results.rejected_share},
    }


_GLANCE = 0.1  # seconds


class InterruptListener:
    """Listens for Ctrl-C in its context while armed; works only in the main thread.

    A thread calls `on_first` after the first signal that ends a study, and `on_second` after the
    next Ctrl-C or a later SIGTERM. Then the process ends with code 130. The journal is consistent
    at all times.
    """

    def __init__(
        self,
        on_first: Callable[[], None],
        on_second: Callable[[], None],
        leave: Callable[[int], object] = os._exit,
        is_stuck: Callable[[], bool] = never,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._on_first, self._on_second, self._leave = on_first, on_second, leave
        self._is_stuck = is_stuck  # in a compile, which no signal interrupts
        self._clock = clock
        self._armed = threading.Event()
        self._thread: threading.Thread | None = None

    def arm(self) -> None:
        self._armed.set()

    def __enter__(self) -> InterruptListener:
        if threading.current_thread() is threading.main_thread():
            self._hears, self._rings = socket.socketpair()
            self._rings.setblocking(False)
            self._before = signal.set_wakeup_fd(self._rings.fileno(), warn_on_full_buffer=False)
            self._thread = threading.Thread(target=self._listen_for_signals, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._thread is None:
            return
        signal.set_wakeup_fd(self._before)
        self._rings.close()  # the listener reads end-of-file and returns
        self._thread.join()
        self._hears.close()
        self._thread = None

    def _listen_for_signals(self) -> None:
        pressed, since = False, 0.0
        while byte := self._hears.recv(1):
            if byte[0] not in HEARD or not self._armed.is_set():
                continue
            if byte[0] == signal.SIGHUP:
                let_go_of_terminal()
            if not pressed:
                pressed, since = True, self._clock()
                self._on_first()
                threading.Thread(target=self._leave_if_stuck, daemon=True).start()
            elif leaves_at_once(byte[0], self._clock() - since):
                self._leave_now()

    def _leave_if_stuck(self) -> None:
        """Quit if compilation takes too long; batch systems kill processes after 10 s or more."""
        end = time.monotonic() + PATIENCE
        while self._is_stuck():
            if time.monotonic() > end:
                self._leave_now()
                return
            time.sleep(_GLANCE)

    def _leave_now(self) -> None:
        try:
            self._on_second()
        finally:
            self._leave(130)


def before_code_of(args: Namespace) -> BeforeCode:
    """Return a function that checks that a resumed study's files are unchanged before they run."""
    file = Path(args.file)

    def check(name: str) -> None:
        if not args.new:
            check_before_code(
                Path(args.out) / name,
                file.parent,
                file.read_text(encoding="utf-8"),
                args.set,
                accept_changed_files=args.accept_changed_files,
                retry_failed=getattr(args, "retry_failed", False),
            )

    return check


def run_watched(study: Study, text: str, args: Namespace) -> int:
    def show(results: RunResults) -> None:
        write_report_of(results)
        if args.json:
            print_json(results_data(results))
            return
        words = _words_of(study, results)
        print_results(console(sys.stdout), results, words, quiet=args.quiet, verbose=args.verbose)

    results = watch(study, text, args, show)
    if results.state == "interrupted":
        return INTERRUPTED
    return int(nothing_learnt(results))


def _words_of(study: Study, results: RunResults) -> StudyWords:
    with Journal(results.folder) as journal:
        environments = environment_names(journal.meta.environments)
        alone = counts_evaluations_alone(journal.attributes())
    return StudyWords(
        value_words(study, alone),
        study.objective_names,
        environments,
        study.algorithm.unit,
        study.algorithm.lanes,
    )


def nothing_learnt(results: RunResults) -> bool:
    states = {entry.state for entry in results.leaderboard}
    return bool(states) and states <= {"failed", "diverged"}


def watch(study: Study, text: str, args: Namespace, show: _Show = ignore) -> RunResults:
    name, new_name = args.name, None
    if args.new:
        name = new_name = free_name(Path(args.out), study.name)
        study = replace(study, name=new_name)
    command = resume_command(args.argv, new_name)
    given = Given(args.argv[0], args.file, tuple(args.set), name, args.out)
    again = getattr(args, "retry_failed", False)
    run = partial(run_study, study, args.out, study_text=text, given=given, retry_failed=again)
    return watch_run(run, args, command, Path(args.out) / study.name, show)


def watch_run(
    run: Callable[..., RunResults], args: Namespace, command: str, folder: Path, show: _Show
) -> RunResults:
    view = _make_view(args, command, folder)
    listener = InterruptListener(view.pressed, view.leaving, is_stuck=lambda: view.is_compiling)
    view.on_ready = listener.arm
    with listener, view, plain_warnings(view.warn):
        results = run(
            observers=[view],
            compiling=view.compiling,
            warn=view.warn,
            accept_new_bits=args.accept_new_bits,
            accept_changed_files=args.accept_changed_files,
        )
    let_go_of_terminal()
    if results.finished_at is not None and not args.json:
        since = max(0.0, time.time() - results.finished_at)
        echo(f"{folder.name} finished {duration(since)} ago; nothing to do.")
    show(results)
    if hasattr(args, "retry_failed") and _can_retry(results):
        view.write(
            "To run failed trials again, after fixing the cause:", f"{command} --retry-failed"
        )
    if results.state == "interrupted":
        view.write("Interrupted; everything so far is kept. Resume with:", command)
    return results


def _can_retry(results: RunResults) -> bool:
    """Return whether there are failed trials or failed test-seed runs to retry."""
    states = [entry.state for entry in results.leaderboard]
    return ("failed" in states and "finished" in states) or bool(results.conclusion.failed)


def resume_command(argv: Sequence[str], name: str | None) -> str:
    words = [word for word in argv if word not in ("--new", "--retry-failed")]
    if name is not None:
        words += ["--name", name]
    return shlex.join(["hpo", *words])


def _make_view(args: Namespace, command: str, folder: Path) -> RunView:
    if args.quiet:
        return QuietView(command=command)
    if args.json or not can_draw():
        return LinesView(command=command)
    from ..terminal.live_view import LiveView

    try:
        over = Journal.exists(folder) and is_finished(folder)
    except HpoError:  # a damaged study is reported later
        over = False
    return LiveView(command, at_once=not over)


def write_report_of(results: RunResults) -> None:
    from ..report.report import is_current, write_report

    folder = StudyFolder(results.folder)
    try:
        if results.finished_at is None or not is_current(folder):
            write_report(folder)
    except (HpoError, OSError) as error:
        to_stderr(f"no {REPORT_NAME} was written: {error}")
