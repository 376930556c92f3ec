"""`hpo stop`: end a study that runs elsewhere."""

from __future__ import annotations

import time
from argparse import Namespace

from ...errors import StoreError, counted
from ...store.lock import ask_to_stop, lock_holder
from ...store.study_folder import summary_of
from ..arguments import study_of
from ..escape_control import note
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
