"""`hpo stop` and `hpo rm`: end a study that runs elsewhere, and remove studies."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from ...errors import ConfigError, StoreError, counted
from ...store.lock import ask_to_stop, lock_holder
from ...store.remove_study import check_removable, remove_studies
from ...store.study_folder import StudyFolder, StudySummary, find_study, summary_of
from ..escape_control import echo, note
from ..json_output import print_answer

_LOOK_SECONDS = 0.2


def do_stop(args: Namespace) -> int:
    """Ask a running study to end as Ctrl-C would, and wait until it has.

    Raises:
        StoreError: there is no such study, or it is not running.
    """
    folder = find_study(args.study, Path(args.out), note)
    holder = lock_holder(folder.path)
    if holder is None:
        raise StoreError(f"{folder.name} is not running; see: hpo list")
    ask_to_stop(folder.path, holder)
    asked = f"asked {holder.partition(', since')[0]} to stop {folder.name}"
    if args.no_wait:
        echo(asked, file=sys.stderr)
    else:
        echo(f"{asked}; it finishes its chunk and commits", file=sys.stderr)
        while lock_holder(folder.path) == holder:
            time.sleep(_LOOK_SECONDS)
    summary = summary_of(folder.path)
    data = {"study": folder.name, "state": summary.state}
    print_answer(args.json, data, _standing(summary))
    return 0


def _standing(study: StudySummary) -> str:
    ended = f"{study.done} of {counted(study.trials, 'trial')} ended"
    more = "; its `hpo run` command resumes it" if study.state == "interrupted" else ""
    return f"{study.name}: {study.state}, {ended}{more}"


def do_rm(args: Namespace) -> int:
    """Remove studies, after a question.

    Raises:
        StoreError: there is no such study, it is running, or its folder holds files of others.
        ConfigError: nobody is there to be asked, and `--yes` was not given.
    """
    folders = _folders(args.studies, Path(args.out))
    for folder in folders:
        check_removable(folder)
    names = ", ".join(folder.name for folder in folders)
    if not args.yes:
        for folder in folders:
            echo(_described(summary_of(folder.path)), file=sys.stderr)
        if not _confirmed(f"Remove {'it' if len(folders) == 1 else 'them'} for good? [y/N] "):
            echo("nothing was removed", file=sys.stderr)
            return 1
    remove_studies(folders)
    echo(f"removed {names}", file=sys.stderr)
    return 0


def _folders(studies: Sequence[str], root: Path) -> list[StudyFolder]:
    """Return the folders of studies, each once."""
    found = [find_study(study, root, note) for study in studies]
    return list({folder.path.absolute(): folder for folder in found}.values())


def _described(study: StudySummary) -> str:
    if study.error:
        return f"{study.path}: {study.state}"
    return f"{study.path}: {study.state}, {counted(study.trials, 'trial')}"


def _confirmed(question: str) -> bool:
    """Ask on the terminal.

    Raises:
        ConfigError: stdin is none.
    """
    if sys.stdin is None or not sys.stdin.isatty():
        raise ConfigError("there is no terminal to ask on; add --yes to remove without a question")
    echo(question, end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
