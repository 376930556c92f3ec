"""`hpo export` and `hpo import`: export tables for other tools, and import their studies."""

from __future__ import annotations

import re
import shutil
import sys
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ...errors import ConfigError, StoreError, counted
from ...files.atomic_files import make_folder
from ...importers.convert import HAS_SPACE, add_space
from ...importers.converted_study import ConvertedStudy, is_of_the_file
from ...importers.formats import flags_of
from ...importers.readers import NetworkFile
from ...search.loggers import make_sink
from ...store.journal import Journal
from ...store.query import require_tables
from ...store.study_folder import StudyFolder
from ...store.tables import TABLES, damaged_table
from ...studies.load import logger_of, recorded
from ...studies.study_environments import only_one_environment
from ...studies.yaml_io import recorded_data
from ..arguments import study_of
from ..output import note, print_answer
from .init_check_run import write_study


def do_export(args: Namespace) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = study_of(args)
    if args.format == "optuna":
        return _to_optuna(folder, args)
    if args.format == "table":
        return _to_table(folder, args)
    target = Path(args.to)
    require_tables(folder.path)
    for name in TABLES:
        try:
            pq.read_schema(folder.table(name))
        except (pa.ArrowException, OSError) as error:
            raise damaged_table(folder.table(name)) from error
    with Journal(folder.path) as journal:
        text = journal.meta.study_text
    if args.format != "csv":
        only_one_environment(recorded(text), f"hpo export {args.format}")
    study = recorded_data(text)
    sink = make_sink(logger_of(args.format, args.set), study, target)
    if not target.is_dir():  # it may be a link
        make_folder(target)
    sink.published(folder.path)
    sink.close()
    data = {"study": folder.name, "format": args.format, "target": str(target)}
    text = f"wrote {folder.name} for {args.format} into {target}/"
    print_answer(args.json, data, text, sys.stderr)
    return 0


def _to_optuna(folder: StudyFolder, args: Namespace) -> int:
    from ...search.analysis.checkpoint_values import points_of
    from ...search.analysis.to_optuna_storage import write_storage

    options = dict(word.partition("=")[::2] for word in args.set)
    unknown = sorted(options.keys() - {"name"})
    if unknown:
        raise ConfigError(f"--set {unknown[0]}: with optuna, only the study's name can be set")
    if "name" in options and not options["name"]:
        raise ConfigError("--set name; allowed: name=NAME, the study's name in Optuna")
    name = options.get("name", folder.name)
    with Journal(folder.path) as journal:
        with journal.at_one_commit():
            points = points_of(journal)
        changes = write_storage(args.to, name, journal.meta, points)
    for change in changes:
        note(f"changed: {change}")
    data = {"study": folder.name, "format": "optuna", "target": args.to, "name": name,
            "changed": changes}  # fmt: skip
    trials = counted(len(points.trials), "trial")
    text = f"wrote {trials} of {folder.name} into {args.to} as {name}"
    print_answer(args.json, data, text, sys.stderr)
    return 0


def _to_table(folder: StudyFolder, args: Namespace) -> int:
    """Write the finished runs as a table of recorded runs for `hpo bench`."""
    from ...search.bench.tables import read_table
    from ...search.bench.write_table import made_with, reduce_study

    with Journal(folder.path) as journal:
        study = recorded(journal.meta.study_text)
    only_one_environment(study, "hpo export table")
    if study.early_terminate is not None or study.seeds.racing is not None:
        text = "has runs that were stopped or given fewer seeds; a table needs whole runs"
        remedy = "run the study with `early_terminate: null` and without `seeds.racing`"
        raise ConfigError(f"{folder.name} {text}; {remedy}")
    target = Path(args.to) / folder.name
    with TemporaryDirectory() as temporary:
        draft = Path(temporary) / folder.name
        reduce_study(folder.path, draft, made_with(folder.path))
        try:
            found = read_table(draft)
        except StoreError as error:
            raise StoreError(str(error).replace(str(draft), folder.name)) from None
        make_folder(target.parent)
        shutil.copytree(draft, target, dirs_exist_ok=True)
    data = {"study": folder.name, "format": "table", "target": str(target)}
    runs = f"{counted(len(found.params), 'configuration')}, {counted(found.seeds, 'seed')} each"
    print_answer(args.json, data, f"wrote {target}: {runs}", sys.stderr)
    return 0


_ORDER = (
    "name", "command", "length", "space", "metric", "metrics", "search", "early_terminate",
    "seeds", "confirm", "budget",
)  # fmt: skip


def do_import(args: Namespace) -> int:
    given = flags_of(args.rest) | ({} if args.env is None else {"env": args.env})
    if args.kind == "wandb" and (path := _existing_file(args.source)):
        from ...importers.wandb_sweeps import has_program

        if has_program(path, given):
            return _import_program(path, given, args)
    draft = _converted_study(args, given)
    draft.override(given)
    if args.space:
        add_space(draft)
        # again, because they override settings that came with the space
        draft.override({key: value for key, value in given.items() if is_of_the_file(key)})
    text = draft.text()
    _note_changes(draft)
    if any("system=" in item for item in draft.notes):
        note("pass such options after --, as in: -- system=none")
    version = re.search(r"version=(\S+)", "\n".join(draft.notes))
    if version:
        note(f"for another version add: -- --version {version[1]}")
    if isinstance(draft, NetworkFile):
        flags = " ".join(f"--{name} {value}" for name, value in draft.evaluation.items())
        write_study(text, args.to, lambda file: f"hpo eval --env {file} {flags}")
    else:
        write_study(text, args.to)
    return 0


def _note_changes(draft: ConvertedStudy) -> None:
    for title, items in (("changed", draft.notes), ("left out", draft.left_out)):
        for item in items:
            note(f"{title}: {item}")


def _existing_file(given: str) -> Path:
    path = Path(given)
    if not path.is_file():
        raise ConfigError(f"{path}: no such file")
    return path


def _import_program(path: Path, given: Mapping[str, Any], args: Namespace) -> int:
    """Write a study that runs a sweep's program, with the sweep's flags as keys."""
    from ...importers.wandb_sweeps import program_of, read_program
    from ...studies.load import loads
    from ...studies.yaml_io import to_yaml

    draft, program = read_program(path, given), program_of(path)
    if args.space and draft.space:
        raise draft.fault(HAS_SPACE)
    if args.space:
        raise draft.fault("the ranges of --space are those of PPO; name an environment with --env")
    if args.to is not None and not (Path(args.to).parent / program).is_file():
        raise ConfigError(
            f"{args.to}: a study starts its program in its own folder, which has no {program}; "
            f"write it to {path.parent / Path(args.to).name}"
        )
    head = [f"# {path.name}, a Weights & Biases sweep with its program"]
    head += [f"# {text}" for text in draft.notes]
    head += [f"# left out: {text}" for text in draft.left_out]
    data = {**draft.rest, "space": draft.space}
    first = {key: data[key] for key in _ORDER if key in data}
    text = "\n".join([*head, ""]) + to_yaml({**first, **data})
    loads(text, path.name, path.parent)
    _note_changes(draft)
    note("to train with hpo's PPO instead, add: -- --env ID")
    write_study(text, args.to)
    return 0


def _converted_study(args: Namespace, given: Mapping[str, Any]) -> ConvertedStudy:
    from ...importers import readers, storages, wandb_sweeps

    of_file = {
        "wandb": wandb_sweeps.read_sweep,
        "configspace": storages.read_space,
        "rlzoo": readers.read_hyperparameters,
    }
    if args.kind in of_file:
        return of_file[args.kind](_existing_file(args.source), given)
    if args.kind == "xlron":
        return readers.read_flags(args.source, given)
    if args.kind == "optuna":
        return storages.read_storage(args.source, args.study, given)
    return readers.read_settings(args.source, args.kind, given)
