"""`hpo export`: a study's published tables for another tool."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

from ...disk import make_folder
from ...errors import ConfigError
from ...search.loggers import make_sink
from ...store.journal import Journal
from ...store.query import require_tables
from ...store.study_folder import StudyFolder, find_study
from ...store.tables import TABLES, damaged_table
from ...studies.load import recorded
from ...studies.logger_section import logger_of
from ...studies.reader import plain, read_text
from ...studies.several import only_one_environment
from ..documents import print_json
from ..formatting import counted
from ..visible import echo, note

__all__ = ["do_export"]


def do_export(args: Namespace) -> int:
    """Write a copy of the tables, or bring an existing copy up to date.

    Raises:
        StudyError: an option of the format is wrong.
        StoreError: there is no such study, or it has no tables yet.
        ConfigError: Optuna's storage cannot take it, or the format is of one environment.
        MissingExtraError: the tool's package is not installed.
    """
    folder = find_study(args.study, Path(args.out), note)
    if args.format == "optuna":
        return _to_optuna(folder, args)
    target = Path(args.to)
    _check(folder)
    with Journal(folder.path) as journal:
        text = journal.meta.study_text
    if args.format in ("tensorboard", "wandb"):
        only_one_environment(recorded(text), f"hpo export {args.format}")
    study = plain(read_text(text, "study.resolved.yaml"))
    sink = make_sink(logger_of(args.format, args.set), study, target)
    if not target.is_dir():  # which a link may be
        make_folder(target)
    sink.published(folder.path)
    sink.close()
    if args.json:
        print_json({"study": folder.name, "format": args.format, "target": str(target)})
    else:
        echo(f"wrote {folder.name} for {args.format} into {target}/", file=sys.stderr)
    return 0


def _to_optuna(folder: StudyFolder, args: Namespace) -> int:
    """Write a study into a storage of Optuna; report what that cannot express."""
    from ...search.after.looking_back import points_of
    from ...search.after.to_optuna_storage import write_storage

    options = dict(word.partition("=")[::2] for word in args.set)
    unknown = sorted(options.keys() - {"name"})
    if unknown:
        raise ConfigError(f"--set {unknown[0]}: for optuna only the study's name can be set")
    if "name" in options and not options["name"]:
        raise ConfigError("--set name; allowed: name=NAME, the study's name there")
    name = options.get("name", folder.name)
    with Journal(folder.path) as journal:
        with journal.at_one_commit():
            points = points_of(journal)
        changes = write_storage(args.to, name, journal.meta, points)
    for change in changes:
        echo(f"changed: {change}", file=sys.stderr)
    if args.json:
        print_json(
            {"study": folder.name, "format": "optuna", "target": args.to, "name": name,
             "changed": changes}
        )  # fmt: skip
    else:
        count = len(points.trials)
        echo(
            f"wrote {counted(count, 'trial')} of {folder.name} into {args.to} as {name}",
            file=sys.stderr,
        )
    return 0


def _check(folder: StudyFolder) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    require_tables(folder.path)
    for name in TABLES:
        try:
            pq.read_schema(folder.table(name))
        except (pa.ArrowException, OSError) as error:
            raise damaged_table(folder.table(name)) from error
