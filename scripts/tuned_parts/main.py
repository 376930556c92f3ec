"""Creates tuned configurations from scratch or from a study, and checks them.

    scripts/tuned make CartPole-v1 Acrobot-v1    the study, the test, the check; without names, all
    scripts/tuned add STUDY                      the winner of a finished study, or of its bundle
    scripts/tuned check [--write]                the check in CI; --write: also rewrite the tables

Interrupted commands resume. Run it from a clean checkout on an idle machine, then commit
results/tuned and docs/reference/tuned.md.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

from hpo.cli import main as hpo
from hpo.errors import ConfigError, HpoError, StoreError, counted
from hpo.files import atomic_files
from hpo.store.journal import JOURNAL_NAME
from hpo.store.study_folder import StudyFolder, checked_name, find_study
from hpo.studies.tuned.record import PLACE, file_name, read_record, record_files
from hpo.views.bundle.verify import Bundle
from hpo.views.bundle.write import sha256
from hpo.views.commands.tuned import INTERRUPTED, record_words, runner_of
from hpo.views.output import echo, note, print_json
from hpo.views.words import on_command_line

from .candidate import candidate_of, contribute
from .check import faults_of_folder
from .record_file import SEEDS, record_text
from .tables import write_tables

ROOT = Path(__file__).resolve().parents[2]


def main(argv: list[str] | None = None) -> int:
    """Run one command; 2 for a mistake or a fault, 130 for Ctrl-C."""
    parser = argparse.ArgumentParser(
        prog="scripts/tuned", description="Make tuned configurations."
    )
    parser.add_argument("--tuned", type=Path, default=PLACE, metavar="DIR", help="their folder")
    verbs = parser.add_subparsers(required=True)
    made = verbs.add_parser("make", help="from nothing: the study, the test, the check")
    made.add_argument("names", nargs="*", metavar="ENV", help="files of studies/tuned; none: all")
    added = verbs.add_parser("add", help="the winner of a study")
    added.add_argument("study", metavar="STUDY", help="a study, or a file of hpo bundle")
    added.add_argument("--name", help="default: the environment; the study, where it has keys")
    added.add_argument("--seeds", type=int, default=SEEDS, metavar="N", help="test seeds")
    more = "also a winner not shown to be as good as the default; replace a study file"
    added.add_argument("--anyway", action="store_true", help=more)
    for one in (made, added):
        one.add_argument("--out", default="results", metavar="DIR", help="of the studies")
        one.add_argument("--quiet", action="store_true", help="print only the results")
    checked = verbs.add_parser("check", help="check all files")
    checked.add_argument("--write", action="store_true", help="rewrite the tables")
    checked.add_argument("--json", action="store_true", help="print one JSON document")
    for one, call in ((made, _make), (added, _add), (checked, _check)):
        one.set_defaults(call=call)
    args = parser.parse_args(argv)
    try:
        return args.call(args)
    except HpoError as error:
        note(on_command_line(error))
        return 2


def _make(args: Namespace) -> int:
    files = sorted(path.stem for path in (ROOT / "studies" / "tuned").glob("*.yaml"))
    for name in args.names or [one for one in files if one != "published"]:
        file = str(ROOT / "studies" / "tuned" / f"{name}.yaml")
        if code := hpo(["run", file, "--out", args.out, "--quiet"]):
            return code
        own = {"study": f"tuned-{name}", "name": None, "seeds": SEEDS, "anyway": False}
        if code := _add(Namespace(**{**vars(args), **own, "quiet": True})):
            return code
    code = _check(Namespace(tuned=args.tuned, write=False, json=False))
    return code or subprocess.call([sys.executable, str(ROOT / "scripts" / "docs"), "--write"])


def _add(args: Namespace) -> int:
    out, place = Path(args.out), args.tuned
    given = Path(args.study)
    folder = _unpacked(given, out) if given.is_file() else find_study(args.study, out, note)
    candidate = candidate_of(folder, args.anyway)
    env = candidate.study.env
    own = candidate.study.name.removeprefix("tuned-")  # further keys make it a different task
    name = args.name or (own if env.values else env.id)
    study_file = place.parent.parent / "studies" / "tuned" / file_name(name)
    known = study_file.read_text(encoding="utf-8") if study_file.is_file() else candidate.text
    if known != candidate.text and not args.anyway:
        raise ConfigError(
            f"{study_file} differs from the study that ran; run that one, or replace it (--anyway)"
        )
    watched = Namespace(**vars(args), json=False, verbose=False, argv=["run", args.study])
    record = contribute(candidate, out, args.seeds, runner_of(watched, out), name)
    if record is None:
        return INTERRUPTED
    shown = study_file.relative_to(place.parent.parent).as_posix()
    bundle = sha256(given) if given.is_file() else ""
    record = replace(record, origin=replace(record.origin, file=shown, bundle=bundle))
    for path, text in (
        (study_file, candidate.text),
        (place / file_name(name), record_text(record)),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_files.write_text(path, text)
    write_tables([read_record(path) for path in record_files([place]).values()], place)
    echo(record_words(record, sys.stdout))
    note(f"wrote {place / file_name(name)}; next: scripts/tuned check")
    return 0


def _unpacked(path: Path, out: Path) -> StudyFolder:
    """Return a bundle's study in the results folder, after checking its claims."""
    with tempfile.TemporaryDirectory() as temporary:
        bundle = Bundle(path, Path(temporary) / "study")
        level, _ = bundle.consistent()
        if not level.holds:
            wrong = "; ".join(level.wrong[:2])
            raise StoreError(f"{path} is not consistent: {wrong}; see hpo verify {path}")
        target = out / checked_name(bundle.study.name)
        if not target.exists():
            atomic_files.copy_folder(bundle.folder, target)
        elif sha256(target / JOURNAL_NAME) != bundle.members[JOURNAL_NAME]:
            raise StoreError(f"{target} is a different study; name another folder", out="DIR")
    return StudyFolder(target)


def _check(args: Namespace) -> int:
    if args.write:
        files = record_files([args.tuned])
        write_tables([read_record(path) for path in files.values()], args.tuned)
    records, faults = faults_of_folder(args.tuned)
    if args.json:
        print_json({"records": len(records), "faults": faults})
    elif faults:
        again = "scripts/tuned add STUDY; the tables: scripts/tuned check --write"
        for text in (*faults, f"to make a record again: {again}"):
            note(text)
    else:
        echo(f"{counted(len(records), 'tuned configuration')}, nothing at fault")
    return 2 if faults else 0
