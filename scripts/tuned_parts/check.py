"""`scripts/tuned check`, for CI.

It checks that every file is complete, its study file is unchanged, its configuration is legal for
the current hyperparameters and environments, and the tables match the files.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from hpo.environments.registry import find
from hpo.errors import HpoError
from hpo.files.plain_data import as_lists
from hpo.knobs import KNOBS, complete
from hpo.studies.load import loads, recorded
from hpo.studies.spec import Study
from hpo.studies.tuned.record import DEFAULT, TUNED, TunedRecord, file_name, read_record
from hpo.studies.tuned.study_text import around_text, knobs_of, train_text

from .record_file import SEEDS, published, record_text
from .tables import tables_of


def faults_of_folder(folder: Path) -> tuple[list[TunedRecord], list[str]]:
    """Return the records in a folder that can be read, and every fault as `file: text`."""
    records, faults = list[TunedRecord](), list[str]()
    for path in sorted(folder.glob("*.yaml")):
        try:
            record = read_record(path)
        except HpoError as error:
            faults.append(str(error))
            continue
        records.append(record)
        found = [*_own_faults(record, path), *_study_faults(record, path.parent)]
        found += _configuration_faults(record)
        if not found and path.read_text(encoding="utf-8") != record_text(record):
            found.append("its text is not written from its data; make the record again")
        faults += [f"{path}: {fault}" for fault in found]
    return records, [*faults, *_table_faults(folder, records)]


def _own_faults(record: TunedRecord, path: Path) -> Iterator[str]:
    if path.name != file_name(record.name):
        yield f"name is {record.name!r}, so the file is {file_name(record.name)}"
    who = [one.who for one in record.contenders]
    wanted = [TUNED, DEFAULT, *(other.by for other in published(record.env))]
    if missing := [name for name in wanted if name not in who]:
        yield f"results lack {', '.join(missing)}; make the record again"
    for one in record.contenders:
        if len(one.greedy) < SEEDS:
            yield f"results.{one.who} has {len(one.greedy)} seeds; {SEEDS} are needed"
    commit = record.made.commit
    if not re.fullmatch(r"[0-9a-f]{40}", commit):
        yield f"made.commit is {commit!r}; a record is made from a clean checkout"
    for package in ("hpo-lanes", "jax", "numpy"):
        if package not in record.made.versions:
            yield f"made.versions lacks {package}"


def _study_faults(record: TunedRecord, folder: Path) -> list[str]:
    name = record.origin.file
    path = folder.parent.parent / name
    if not name or not path.is_file():
        return [f"study.file is {name!r}, which is not at {path}"]
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != record.origin.sha256:
        return [f"{name} differs from the study that ran; undo its changes"]
    try:
        study = _read(data.decode("utf-8"), str(path), record)
    except HpoError as error:
        return [f"{name}: {error}"]
    if (study.env.id, study.env_steps) != (record.env, record.env_steps):
        return [f"{name} is about {study.env.id} in {study.env_steps} env steps"]
    if as_lists(dict(study.env.values)) != as_lists(dict(record.env_values)):
        return [f"{name} has other keys of {study.env.id} than the record"]
    missing = [rule for rule in study.baselines if rule not in record.heuristics]
    return [f"heuristics lacks {', '.join(missing)} of {name}"] if missing else []


def _read(text: str, shown: str, record: TunedRecord) -> Study:
    """Read a study, even if the packages of its environment are not installed here."""
    return recorded(text, shown) if find(record.env) is None else loads(text, shown)


def _configuration_faults(record: TunedRecord) -> Iterator[str]:
    legal = True
    for one in record.contenders:
        gone = sorted(name for name in one.config if name not in KNOBS)
        if gone:
            yield f"results.{one.who}: no knobs of today: {', '.join(gone)}"
        try:
            complete({name: value for name, value in one.config.items() if name in KNOBS})
        except HpoError as error:
            gone = [str(error)]
            yield f"results.{one.who}: {error}"
        legal = legal and not gone
    if legal:
        try:
            complete(knobs_of(record))
            _read(train_text(record), f"tuned:{record.name}", record)
            _read(around_text(record), f"the space around {record.name}", record)
        except HpoError as error:
            yield str(error)


def _table_faults(folder: Path, records: Sequence[TunedRecord]) -> Iterator[str]:
    import pyarrow.parquet as pq

    for name, table in tables_of(records).items() if records else ():
        path = folder / f"{name}.parquet"
        if not path.is_file() or not pq.read_table(path).equals(table):
            yield f"{path}: not what the files say; write the tables again"
