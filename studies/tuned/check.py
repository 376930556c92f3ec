"""What must hold of tuned configurations, for CI: `hpo tuned check`.

Every file is whole, its study file has the bytes it had, its configuration is legal for the
knobs and environments of today, and the tables hold what the files say.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

from ...environments.registry import find
from ...errors import HpoError
from ...files.plain_data import as_lists
from ...knobs import KNOBS, complete
from ..load import loads, recorded
from ..spec import Study
from .catalogue import file_name, published
from .record import DEFAULT, SEEDS, TUNED, Record, read_record, record_text
from .study_text import around_text, knobs_of, train_text
from .tables import TABLES, tables_of

_COMMIT = re.compile(r"[0-9a-f]{40}")
_PACKAGES = ("hpo-lanes", "jax", "numpy")


def faults_of_folder(folder: Path) -> tuple[list[Record], list[str]]:
    """Return the records of a folder that can be read, and every fault as `file: words`."""
    records, faults = list[Record](), list[str]()
    for path in sorted(folder.glob("*.yaml")):
        try:
            record = read_record(path)
        except HpoError as error:
            faults.append(str(error))
            continue
        records.append(record)
        faults += [f"{path}: {fault}" for fault in faults_of(record, path)]
    return records, faults + _table_faults(folder, records)


def faults_of(record: Record, path: Path) -> list[str]:
    """Return what is wrong with one record."""
    faults = [*_own_faults(record, path), *_study_faults(record, path.parent)]
    faults += _configuration_faults(record)
    if not faults and path.read_text(encoding="utf-8") != record_text(record):
        faults.append("its text is not written from its data; make the record again")
    return faults


def _own_faults(record: Record, path: Path) -> list[str]:
    faults = list[str]()
    if path.name != file_name(record.name):
        faults.append(f"name is {record.name!r}, so the file is {file_name(record.name)}")
    who = [one.who for one in record.contenders]
    wanted = [TUNED, DEFAULT, *(other.by for other in published(record.env))]
    missing = [name for name in wanted if name not in who]
    if missing:
        faults.append(f"results lack {', '.join(missing)}; make the record again")
    for one in record.contenders:
        if len(one.greedy) < SEEDS:
            faults.append(f"results.{one.who} has {len(one.greedy)} seeds; {SEEDS} are needed")
    if not _COMMIT.fullmatch(record.made.commit):
        faults.append(
            f"made.commit is {record.made.commit!r}; a record is made from a clean checkout"
        )
    for package in _PACKAGES:
        if package not in record.made.versions:
            faults.append(f"made.versions lacks {package}")
    return faults


def _study_faults(record: Record, folder: Path) -> list[str]:
    """Return what is wrong with the study file that a record names."""
    name = record.origin.file
    path = folder.parent.parent / name
    if not name or not path.is_file():
        return [f"study.file is {name!r}, which is not at {path}"]
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != record.origin.sha256:
        return [f"{name} has other bytes than the study that ran; take its changes back"]
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


def _read(text: str, shown: str, record: Record) -> Study:
    """Read a study; without what its environment needs where that is not installed here."""
    return recorded(text, shown) if find(record.env) is None else loads(text, shown)


def _configuration_faults(record: Record) -> list[str]:
    faults = list[str]()
    for one in record.contenders:
        gone = sorted(name for name in one.config if name not in KNOBS)
        if gone:
            faults.append(f"results.{one.who}: no knobs of today: {', '.join(gone)}")
        try:
            complete({name: value for name, value in one.config.items() if name in KNOBS})
        except HpoError as error:
            faults.append(f"results.{one.who}: {error}")
    if not faults:
        try:
            complete(knobs_of(record))
            _read(train_text(record), f"tuned:{record.name}", record)
            _read(around_text(record), f"the space around {record.name}", record)
        except HpoError as error:
            faults.append(str(error))
    return faults


def _table_faults(folder: Path, records: Sequence[Record]) -> list[str]:
    import pyarrow.parquet as pq

    faults = list[str]()
    if not records:
        return faults
    wanted = tables_of(records)
    for name in TABLES:
        path = folder / f"{name}.parquet"
        if not path.is_file() or not pq.read_table(path).equals(wanted[name]):
            faults.append(f"{path}: not what the files say; write the tables again")
    return faults
