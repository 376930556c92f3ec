"""Write a bundle: a study's folder with all that its claims rest on, and hashes of everything.

Unzipped it is the folder of a study, so that `hpo top`, `query` and `replay` read it.
"""

from __future__ import annotations

import json
import platform
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import file_digest
from importlib import metadata
from pathlib import Path
from typing import Any

from ...errors import StoreError
from ...files.atomic_files import make_folder, write_text
from ...search.checks import changed_files, words_of_changes
from ...store.journal import Journal
from ...store.journal_file import JOURNAL_NAME
from ...store.lock import lock_holder
from ...store.query import require_tables
from ...store.rows import StudyMeta
from ...store.study_folder import StudyFolder
from ...store.tables import write_baselines, write_evaluations, write_trials
from ...studies.load import recorded
from ...studies.user_code import is_inside
from ...version import __version__
from .claims import claims_of
from .container import pack
from .numpy_policy import export

FORMAT = 1
MANIFEST, CLAIMS, LOCK, SOURCE, NUMPY = (
    "bundle.json",
    "claims.json",
    "lock.json",
    "source",
    "numpy",
)
_PACKAGE = Path(__file__).parents[2]
_COPIED = ("study.yaml", "study.resolved.yaml", JOURNAL_NAME, "curves.parquet")


@dataclass(frozen=True)
class Written:
    path: Path
    sha256: str
    manifest: Mapping[str, Any]
    claims: Mapping[str, Any]


def write_bundle(folder: StudyFolder, trial: int | None, source: Path, to: Path) -> Written:
    """Write the bundle of a study; `source`: the folder of the files that the study names.

    Raises:
        StoreError: the study runs, has no tables, or files that it names changed or are missing.
    """
    if to.exists():
        raise StoreError(f"{to} exists already; choose another file with --to")
    if (holder := lock_holder(folder.path)) is not None:
        raise StoreError(f"{folder.name} is being written by {holder}; wait for it, or stop it")
    require_tables(folder.path)
    with Journal(folder.path) as journal:
        meta = journal.meta
    with tempfile.TemporaryDirectory(prefix="hpo-bundle-") as temporary:
        staged = Path(temporary) / "study"
        staged.mkdir()
        for name in _COPIED:
            if (folder.path / name).is_file():
                shutil.copyfile(folder.path / name, staged / name)
        write_rows(staged, staged)
        claims = claims_of(staged, trial)
        manifest = {
            "format": FORMAT,
            "hpo": __version__,
            "study": meta.name,
            "trial": claims["trial"],
            "not_in_it": _copy_source(meta, source, staged / SOURCE),
            **_copy_policy(folder, claims["trial"], staged),
        }
        _write_json(staged / CLAIMS, claims)
        _write_json(staged / LOCK, _lock(meta))
        files = [path for path in staged.rglob("*") if path.is_file()]
        named = {path.relative_to(staged).as_posix(): path for path in sorted(files)}
        manifest["members"] = {name: sha256(path) for name, path in named.items()}
        _write_json(staged / MANIFEST, manifest)
        pack({MANIFEST: staged / MANIFEST, **named}, to)
    return Written(to, sha256(to), manifest, claims)


def write_rows(folder: Path, to: Path) -> None:
    """Write the tables that follow from the journal of a folder; those on disk may be older."""
    with Journal(folder) as journal, journal.at_one_commit():
        for write in (write_baselines, write_evaluations, write_trials):
            write(to, journal)


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def as_text(data: Any) -> str:
    return json.dumps(data, indent=1, allow_nan=False) + "\n"


def _write_json(path: Path, data: Any) -> None:
    write_text(path, as_text(data))


def _copy_source(meta: StudyMeta, source: Path, to: Path) -> list[str]:
    """Copy the files that the study names; return those outside their folder, which stay out."""
    if changes := changed_files(meta.files, source):
        raise StoreError(
            "these files are not as they were when the study ran; name the folder of the study "
            f"file, or restore them:\n{words_of_changes(changes)}",
            source="DIR",
        )
    inside = [path for path in meta.files if is_inside(path)]
    for path in inside:
        make_folder((to / path).parent)
        shutil.copyfile(source / path, to / path)
    start = recorded(meta.study_text).init
    if start is not None and is_inside(start.folder):
        shutil.copytree(source / start.folder, to / start.folder, dirs_exist_ok=True)
    return [path for path in meta.files if path not in inside]


def _copy_policy(folder: StudyFolder, trial: int, staged: Path) -> dict[str, Any]:
    kept = folder.policies / f"trial_{trial}"
    if not kept.is_dir():
        return {"policy": None, "numpy": f"no policy of trial {trial} was kept"}
    copied = staged / "policies" / kept.name
    shutil.copytree(kept, copied)
    why = export(copied, staged / NUMPY)
    return {"policy": copied.relative_to(staged).as_posix(), "numpy": why}


def _lock(meta: StudyMeta) -> dict[str, Any]:
    here = {one.metadata["Name"]: one.version for one in metadata.distributions()}
    code = {
        path.relative_to(_PACKAGE).as_posix(): sha256(path)
        for path in sorted(_PACKAGE.rglob("*.py"))
        if path.relative_to(_PACKAGE).parts[0] not in ("tests", "benchmarks", "scripts", "build")
    }
    return {
        "study": lock_of(meta),
        "bundled_with": {
            "python": platform.python_version(),
            "packages": dict(sorted(here.items())),
        },
        "hpo_code": code,
    }


def lock_of(meta: StudyMeta) -> dict[str, Any]:
    """Return what the journal says of the software and files that the study ran with."""
    found = {"versions": meta.versions, "backend": meta.backend, "devices": meta.devices}
    return {**found, "files": dict(meta.files)}
