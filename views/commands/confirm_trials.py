"""`hpo confirm`: given trials of a study on test seeds, and what they show then."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

from ...errors import ConfigError
from ...search.confirm_trials import ask, confirm
from ...search.run import Results
from ...store.paired import FEWEST_PAIRS
from ...store.study_folder import find_study
from ..visible import echo
from .compare_trials import do_compare
from .read_study import do_top
from .watched_run import INTERRUPTED, resume_command, watch_run, write_report_of

__all__ = ["do_confirm"]


def do_confirm(args: Namespace) -> int:
    """Run trials of a study on test seeds; print their comparison, or the leaderboard.

    Raises:
        ConfigError: no trial is named, or files that the study names are not there.
        StoreError: there is no such study or trial, or the study runs.
        HpoError: see `search.api.run`.
    """
    study, trials = _named(args)
    source = None if args.source is None else Path(args.source)
    asked = ask(find_study(study, Path(args.out)), trials, args.seeds, source)
    if asked.seeds < FEWEST_PAIRS and not args.quiet:
        words = f"{asked.seeds} test seeds cannot decide a comparison, which takes at least "
        echo(f"{words}{FEWEST_PAIRS}: --seeds {FEWEST_PAIRS}", file=sys.stderr)
    command = resume_command(args.argv, None)

    def run(**watching: Any) -> Results:
        return confirm(
            asked,
            accept_new_bits=args.accept_new_bits,
            accept_changed_files=args.accept_changed_files,
            **watching,
        )

    results = watch_run(run, args, command, asked.folder.path, write_report_of)
    if results.state == "interrupted":
        return INTERRUPTED
    shown = Namespace(study=str(asked.folder.path), out=args.out, json=args.json)
    if len(asked.trials) != 2:
        return do_top(Namespace(**vars(shown), n=None, explain=False))
    a, b = map(str, asked.trials)
    return do_compare(Namespace(**vars(shown), a=a, b=b, leave_one_out=False))


def _named(args: Namespace) -> tuple[str | None, list[int]]:
    """Return the study, if it is named, and the numbers of the trials.

    Raises:
        ConfigError: there is no number, or a word that is none.
    """
    words, study = list(args.words), args.study
    if not _is_number(words[0]):
        if study is not None:
            raise ConfigError(f"the study is given twice, as {words[0]} and as {study}; keep one")
        study = words.pop(0)
    odd = next((word for word in words if not _is_number(word)), None)
    if odd is not None:
        raise ConfigError(f"{odd!r} is not the number of a trial, which `hpo top` lists")
    if not words:
        raise ConfigError(f"give the trials to confirm, such as: hpo confirm {study} 9 6")
    return study, [int(word) for word in words]


def _is_number(word: str) -> bool:
    return word.isascii() and word.removeprefix("-").isdigit()
