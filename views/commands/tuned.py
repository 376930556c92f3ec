"""`hpo tuned`: shipped configurations, their tests, and how to verify or contribute one."""

from __future__ import annotations

import shutil
import sys
import tempfile
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import ConfigError, counted
from ...files import atomic_files
from ...store.study_folder import find_study
from ...studies.resolved import resolved_yaml
from ...studies.spec import Study
from ...studies.tuned.catalogue import PLACE, file_name, find_record, folders, record_files
from ...studies.tuned.check import faults_of_folder
from ...studies.tuned.record import SEEDS, Record, read_record, record_text
from ...studies.tuned.tables import write_tables
from ..escape_control import echo, note
from ..json_output import print_answer, print_json
from ..tuned_text import record_data, record_words, records_table, verified_data, verified_words

if TYPE_CHECKING:
    from ...search.run import Results

_OF_ACTIONS = {
    "seeds": ("verify", "add"),
    "recorded": ("verify",),
    "seed": ("verify",),
    "bits": ("verify",),
    "anyway": ("add",),
    "name": ("add",),
    "write": ("check",),
}
"""Option -> the actions that it belongs to."""
INTERRUPTED = 130


def do_tuned(args: Namespace) -> int:
    """List tuned configurations, print one, or do what the first word says."""
    first, *rest = args.words or [""]
    if len(rest) != (first in ("verify", "add")):
        usage = {"verify": "verify ENV", "add": "add STUDY", "check": "check"}.get(first, "ENV")
        raise ConfigError(f"type: hpo tuned {usage}")
    for option, actions in _OF_ACTIONS.items():
        if getattr(args, option) not in (None, False) and first not in actions:
            raise ConfigError(f"--{option} is an option of: hpo tuned {' and '.join(actions)}")
    place = None if args.tuned is None else Path(args.tuned)
    if first == "verify":
        return _verify(find_record(rest[0], place), args)
    if first == "add":
        return _add(rest[0], args, place or PLACE)
    if first == "check":
        return _check(folders(place), args)
    if first:
        record = find_record(first, place)
        text = record_words(record, sys.stdout, args.verbose)
        print_answer(args.json, record_data(record), text)
        return 0
    records = [read_record(path) for path in record_files(folders(place)).values()]
    print_answer(args.json, [record_data(record) for record in records], records_table(records))
    return 0


def _verify(record: Record, args: Namespace) -> int:
    """Train it again in a temporary folder; exit code 1 if it differs from the record."""
    from ...search.tuned_runs import FRESH, RECORDED, verify

    seeds = args.seeds or FRESH
    if seeds < 5:
        raise ConfigError(f"--seeds {seeds}: at least 5 seeds are needed for an interval")
    folder = Path(tempfile.mkdtemp(prefix="hpo-verify-"))
    try:
        runner = _runner(args, folder)
        found = verify(record, folder, args.recorded or RECORDED, seeds, args.seed or 0, runner)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if found is None:
        return INTERRUPTED
    print_answer(args.json, verified_data(found), verified_words(found))
    refused = found.verdict == "not" or (args.bits and found.verdict != "bit-equal")
    return int(refused)


def _add(name: str, args: Namespace, place: Path) -> int:
    from ...search.tuned_record import candidate_of, contribute

    out = Path(args.out)
    candidate = candidate_of(find_study(name, out, note), args.anyway)
    env = candidate.study.env
    own = candidate.study.name.removeprefix("tuned-")  # further keys make it another task
    record_name = args.name or (own if env.values else env.id)
    study_file = place.parent.parent / "studies" / "tuned" / file_name(record_name)
    known = study_file.read_text(encoding="utf-8") if study_file.is_file() else candidate.text
    if known != candidate.text and not args.anyway:
        raise ConfigError(
            f"{study_file} differs from the study that ran; run that one, or replace it with "
            "--anyway"
        )
    runner = _runner(args, out)
    record = contribute(candidate, out, args.seeds or SEEDS, runner, record_name)
    if record is None:
        return INTERRUPTED
    shown = study_file.relative_to(place.parent.parent).as_posix()
    record = replace(record, origin=replace(record.origin, file=shown))
    for path, text in (
        (study_file, candidate.text),
        (place / file_name(record_name), record_text(record)),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_files.write_text(path, text)
    write_tables([read_record(path) for path in record_files([place]).values()], place)
    print_answer(args.json, record_data(record), record_words(record, sys.stdout))
    echo(f"wrote {place / file_name(record_name)}; next: hpo tuned check", file=sys.stderr)
    return 0


def _check(where: list[Path], args: Namespace) -> int:
    """Check every file; exit code 2 if one is at fault."""
    faults, counts = list[str](), dict[Path, int]()
    for folder in where:
        if args.write:
            files = record_files([folder])
            write_tables([read_record(path) for path in files.values()], folder)
        records, found = faults_of_folder(folder)
        faults += found
        counts[folder] = len(records)
    if args.json:
        print_json({"records": sum(counts.values()), "faults": faults})
    elif faults:
        again = "hpo tuned add STUDY; the tables: hpo tuned check --write"
        for text in (*faults, f"to make a record again: {again}"):
            note(text)
    else:
        for folder, count in counts.items():
            words = f"{counted(count, 'tuned configuration')}, nothing at fault"
            echo(words if len(counts) == 1 else f"{words}, in {folder}")
    return 2 if faults else 0


def _runner(args: Namespace, out: Path) -> Callable[[Study, Path], Results]:
    """Return a function that runs a study with the view of `hpo run`."""
    from .watched_run import watch

    defaults = {"new": False, "set": [], "name": None, "out": str(out), "accept_new_bits": False,
                "accept_changed_files": False}  # fmt: skip

    def run(study: Study, _: Path) -> Results:
        given = Namespace(**{**vars(args), **defaults, "file": study.name})
        return watch(study, resolved_yaml(study), given)

    return run
