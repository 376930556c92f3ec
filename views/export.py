"""`hpo export`: a study's tables for another tool, from what it has published."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

from ..errors import StoreError
from ..search.loggers import make_sink
from ..store.journal import Journal
from ..store.study_folder import StudyFolder, find_study
from ..store.tables import TABLES
from ..studies.logger_section import logger_of
from ..studies.reader import plain, read_text
from .documents import print_json

__all__ = ["do_export"]


def do_export(args: Namespace) -> int:
    """Write the copy, or bring the one that is there up to date.

    Raises:
        StudyError: an option of the format is wrong.
        StoreError: there is no such study, or it has no tables yet.
        MissingExtraError: the tool's package is not installed.
    """
    folder = find_study(args.study, Path(args.out))
    target = Path(args.to)
    _check(folder)
    with Journal(folder.path) as journal:
        study = plain(read_text(journal.meta.study_text, "study.resolved.yaml"))
    sink = make_sink(logger_of(args.format, args.set), study, target)
    target.mkdir(parents=True, exist_ok=True)
    sink.published(folder.path)
    sink.close()
    if args.json:
        print_json({"study": folder.name, "format": args.format, "target": str(target)})
    else:
        print(f"wrote {folder.name} for {args.format} into {target}/", file=sys.stderr)
    return 0


def _check(folder: StudyFolder) -> None:
    for name in TABLES:
        if not folder.table(name).is_file():
            raise StoreError(
                f"{folder.path} has no {name}.parquet yet; tables come with the first commit"
            )
