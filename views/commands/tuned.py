"""`hpo tuned`: shipped configurations, their tests, and how to verify one."""

from __future__ import annotations

import shutil
import sys
import tempfile
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import ConfigError
from ...studies.resolved import resolved_yaml
from ...studies.spec import Study
from ...studies.tuned.record import Record, find_record, folders, read_record, record_files
from ..json_output import print_answer
from ..tuned_text import record_data, record_words, records_table, verified_data, verified_words

if TYPE_CHECKING:
    from ...search.run import Results

INTERRUPTED = 130


def do_tuned(args: Namespace) -> int:
    """List tuned configurations, print one, or do what the first word says."""
    first, *rest = args.words or [""]
    if len(rest) != (first == "verify"):
        raise ConfigError(f"type: hpo tuned {'verify ' * (first == 'verify')}ENV")
    for option in ("seeds", "recorded", "seed", "bits"):
        if getattr(args, option) not in (None, False) and first != "verify":
            raise ConfigError(f"--{option} is an option of: hpo tuned verify")
    place = None if args.tuned is None else Path(args.tuned)
    if first == "verify":
        return _verify(find_record(rest[0], place), args)
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
        runner = runner_of(args, folder)
        found = verify(record, folder, args.recorded or RECORDED, seeds, args.seed or 0, runner)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if found is None:
        return INTERRUPTED
    print_answer(args.json, verified_data(found), verified_words(found))
    refused = found.verdict == "not" or (args.bits and found.verdict != "bit-equal")
    return int(refused)


def runner_of(args: Namespace, out: Path) -> Callable[[Study, Path], Results]:
    """Return a function that runs a study with the view of `hpo run`."""
    from .watched_run import watch

    defaults = {"new": False, "set": [], "name": None, "out": str(out), "accept_new_bits": False,
                "accept_changed_files": False}  # fmt: skip

    def run(study: Study, _: Path) -> Results:
        given = Namespace(**{**vars(args), **defaults, "file": study.name})
        return watch(study, resolved_yaml(study), given)

    return run
