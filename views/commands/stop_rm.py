"""`hpo stop` and `hpo rm`: end a study that runs elsewhere, and remove studies."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from pathlib import Path

from ...errors import ConfigError, StoreError, counted
from ...store.lock import ask_to_stop, lock_holder
from ...store.remove_study import check_removable, remove_studies
from ...store.study_folder import find_study, summary_of
from ..arguments import study_of
from ..escape_control import echo, note
from ..json_output import print_answer


def do_stop(args: Namespace) -> int:
    """Ask a running study to end as Ctrl-C would, and wait until it has."""
    folder = study_of(args)
    holder = lock_holder(folder.path)
    if holder is None:
        raise StoreError(f"{folder.name} is not running; see: hpo list")
    ask_to_stop(folder.path, holder)
    asked = f"asked {holder.partition(', since')[0]} to stop {folder.name}"
    if args.no_wait:
        note(asked)
    else:
        note(f"{asked}; it finishes its chunk and commits")
        while lock_holder(folder.path) == holder:
            time.sleep(0.2)
    summary = summary_of(folder.path)
    ended = f"{summary.done} of {counted(summary.trials, 'trial')} ended"
    more = "; its `hpo run` command resumes it" if summary.state == "interrupted" else ""
    text = f"{summary.name}: {summary.state}, {ended}{more}"
    print_answer(args.json, {"study": folder.name, "state": summary.state}, text)
    return 0


def do_rm(args: Namespace) -> int:
    found = [find_study(study, Path(args.out), note) for study in args.studies]
    folders = list({folder.path.absolute(): folder for folder in found}.values())
    for folder in folders:
        check_removable(folder)
    if not args.yes:
        for folder in folders:
            study = summary_of(folder.path)
            trials = "" if study.error else f", {counted(study.trials, 'trial')}"
            note(f"{study.path}: {study.state}{trials}")
        question = f"Remove {'it' if len(folders) == 1 else 'them'} for good? [y/N] "
        if not confirmed(question, "remove", "--yes"):
            note("nothing was removed")
            return 1
    remove_studies(folders)
    data = {"removed": [folder.name for folder in folders]}
    print_answer(args.json, data, f"removed {', '.join(data['removed'])}", sys.stderr)
    return 0


def confirmed(question: str, doing: str, option: str) -> bool:
    """Ask in the terminal; `ConfigError` names the option where there is none."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise ConfigError(
            f"cannot ask: stdin is not a terminal; to {doing} without a question: {option}"
        )
    echo(question, end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
