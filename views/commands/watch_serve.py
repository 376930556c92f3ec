"""`hpo watch` and `hpo serve`: follow studies that run elsewhere, in a terminal or a browser."""

from __future__ import annotations

import errno
import secrets
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

from rich.console import RenderableType

from ...errors import ConfigError, StoreError
from ...search.analysis.verdict import conclusion_of
from ...store.journal import JOURNAL_NAME, Journal
from ...store.leaderboard import leaderboard_of
from ...store.rows import counts_evaluations_alone
from ...store.study_folder import StudyFolder, trials_seen
from ...studies.study_environments import value_words
from ..arguments import study_of
from ..formatting import duration
from ..leaderboard_text import headline, target
from ..live.library import Library, PerCommit
from ..live.server import LiveServer, is_loopback
from ..live.study_status import StudyStatus, read_standing
from ..output import echo, print_json, print_json_line
from ..resuming import resuming
from ..terminal.console import can_draw, console, hush_keys, in_columns
from ..terminal.live_view import live, panel, title_of
from ..terminal.run_view import status_line

_PORT, _TRIES = 8765, 10
_LOOK_SECONDS = 0.5


def do_serve(args: Namespace) -> int:
    root = Path(args.out)
    if (root / JOURNAL_NAME).is_file():
        above = root.resolve().parent
        raise StoreError(f"{root} is a study; give the results folder: hpo serve {above}")
    if not root.is_dir():
        raise StoreError(f"no such folder: {root}/; start a study with: hpo run study.yaml")
    server = _bind_server(root, args.host, args.port, args.token)
    import_module("duckdb")  # otherwise the first page would wait for it
    with server:
        if args.json:
            print_json({"url": server.url, "port": server.guard.port})
        else:
            echo(server.url)
        sys.stdout.flush()
        echo(f"serving {root}/, read-only; Ctrl-C stops the server", file=sys.stderr)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            echo("", file=sys.stderr)  # below the ^C
    return 0


def _bind_server(root: Path, host: str, port: int | None, always: bool) -> LiveServer:
    token, ports = None, [*range(_PORT, _PORT + _TRIES), 0]
    if always or not is_loopback(host):
        token = secrets.token_urlsafe(24)
    if port is not None:
        ports = [port]
    for at in ports:
        try:
            return LiveServer(Library(root), host, at, token)
        except OSError as error:
            if error.errno == errno.EADDRINUSE and port is None:
                continue
            text = f"cannot listen on {host} port {at}: {error.strerror or error}"
            raise ConfigError(f"{text}; change --host or --port") from error
    raise ConfigError(f"no free port on {host}; choose one with --port")


def do_watch(args: Namespace) -> int:
    folder = study_of(args)
    lines = args.json or not can_draw()
    last = _print_lines(folder, args.json) if lines else _draw_until_end(folder)
    ended = last.word in ("finished", "running")
    stream = sys.stderr
    if ended and not args.json:  # else what goes to stdout is data, or there is no answer
        stream = sys.stdout
    echo(_end_text(folder, last), file=stream)
    return 0 if last.word == "finished" else 1


def standings(
    folder: StudyFolder,
    wait: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[StudyStatus]:
    kept = PerCommit(folder.path, read_standing, clock)
    last: tuple[int, float, str] | None = None
    while True:
        standing = kept.get().value
        current = (standing.head.number, standing.head.at, standing.word)
        if current != last:  # a very recent commit is read again, and may be unchanged
            last = current
            yield standing
            if standing.word != "running" or standing.head.phase == "finished":
                return
        wait(_LOOK_SECONDS)


def _print_lines(folder: StudyFolder, as_json: bool) -> StudyStatus:
    last: StudyStatus | None = None
    printed = -1
    for standing in standings(folder):
        over = last is None and standing.word == "finished"
        last = standing
        again = standing.head.number == printed and not (as_json and standing.word != "running")
        printed = standing.head.number
        if again:
            continue
        if as_json:
            print_json_line(_status_data(standing))
        elif standing.progress is not None and not over:
            unit = standing.study.algorithm.unit
            echo(status_line(standing.progress, unit=unit), flush=True)
    assert last is not None
    return last


def _status_data(standing: StudyStatus) -> dict[str, object]:
    head, progress = standing.head, standing.progress
    found: dict[str, object] = {
        "study": standing.name, "state": standing.word, "commit": head.number, "at": head.at,
    }  # fmt: skip
    if progress is not None:
        found |= {**asdict(progress), "share": standing.share}
        del found["compiles"]  # only known in the process that runs the study
    return found


def _draw_until_end(folder: StudyFolder) -> StudyStatus:
    last: StudyStatus | None = None
    unhush = hush_keys()
    try:
        with live(console(sys.stderr), lambda: picture_of(last)):
            for standing in standings(folder):
                last = standing
    finally:
        unhush()
    assert last is not None
    return last


def picture_of(standing: StudyStatus | None) -> RenderableType:
    if standing is None:
        return panel("", None, 0.0, "reading")
    head = standing.head
    doing = "nothing is committed yet"
    age = max(0.0, time.time() - head.at)
    if head.number:
        doing = f"commit {head.number}, {duration(age)} ago"
    title, unit = title_of(standing.study, standing.name), standing.study.algorithm.unit
    return panel(title, standing.progress, age, doing, unit=unit)


def _end_text(folder: StudyFolder, standing: StudyStatus) -> str:
    if standing.word in ("finished", "running"):
        with Journal(folder.path) as journal, journal.at_one_commit():
            conclusion = conclusion_of(journal)
            entries = leaderboard_of(journal.meta, trials_seen(journal))
            alone = counts_evaluations_alone(journal.attributes())
        verdict, *_ = headline(
            conclusion, entries, value_words(standing.study, alone), standing.study.algorithm.unit
        )
        said = in_columns(f"{standing.name} is finished: {verdict}", sys.stdout)
        return f"{said}\nNext: hpo top{target(folder.path)}"
    why = "The run was interrupted"
    if standing.word == "died":
        why = "The process has died"
    why += f" after commit {standing.head.number}; everything so far is kept.\n"
    how = resuming(folder.path)
    return f"{why}{how[0].upper()}{how[1:]}\nResults so far: hpo top{target(folder.path)}"
