"""`hpo export`: a study's published tables for another tool."""

from __future__ import annotations

import shlex
import sys
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import ConfigError, counted
from ...files.atomic_files import make_folder
from ...importers.convert import add_space
from ...importers.converted_study import Draft, of_the_file
from ...importers.formats import flags_of
from ...importers.readers import NetworkFile
from ...search.loggers import make_sink
from ...store.journal import Journal
from ...store.query import require_tables
from ...store.study_folder import StudyFolder, find_study
from ...store.tables import TABLES, damaged_table
from ...studies.load import logger_of, recorded
from ...studies.several_environments import only_one_environment
from ...studies.yaml_io import plain, read_text
from ..escape_control import echo, note
from ..json_output import print_json
from .init_check_run import write_study


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
    from ...search.analysis.checkpoint_values import points_of
    from ...search.analysis.to_optuna_storage import write_storage

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


def do_import(args: Namespace) -> int:
    """Write the study file that a file of another system amounts to.

    Raises:
        HpoError: it cannot be read, or a part of it has no counterpart in a study file.
    """
    given = flags_of(args.rest)
    if args.env is not None:
        given = {**given, "env": args.env}
    draft = _draft(args, given)
    draft.override(given)
    if args.space:
        add_space(draft)
        draft.override(of_the_file(given))  # once more, over what came with the space
    text = draft.text()
    for title, items in (("changed", draft.notes), ("left out", draft.left_out)):
        for item in items:
            echo(f"{title}: {item}", file=sys.stderr)
    if any("system=" in item for item in draft.notes):
        echo("such words are typed after --, as in: -- system=none", file=sys.stderr)
    if isinstance(draft, NetworkFile):
        flags = " ".join(f"--{name} {value}" for name, value in draft.evaluation.items())
        write_study(text, args.to, lambda file: f"hpo eval --env {shlex.quote(file)} {flags}")
    else:
        write_study(text, args.to)
    return 0


def _draft(args: Namespace, given: Mapping[str, Any]) -> Draft:
    from ...importers import readers, storages, wandb_sweeps

    if args.kind == "wandb":
        return wandb_sweeps.read_sweep(_file(args.source), given)
    if args.kind == "xlron":
        return readers.read_flags(args.source, given)
    if args.kind == "configspace":
        return storages.read_space(_file(args.source), given)
    if args.kind == "optuna":
        return storages.read_storage(args.source, args.study, given)
    if args.kind == "rlzoo":
        return readers.read_hyperparameters(_file(args.source), given)
    return readers.read_settings(args.source, args.kind, given)


def _file(source: str) -> Path:
    path = Path(source)
    if not path.is_file():
        raise ConfigError(f"{path}: no such file")
    return path
