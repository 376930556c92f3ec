"""Writes a bundle: a study's folder with the data behind all claims, and hashes of all files.

Unzipped, it is a study folder that `hpo top`, `query` and `replay` can read.
"""

from __future__ import annotations

import json
import platform
import shutil
from collections.abc import Iterable
from hashlib import file_digest
from importlib import metadata
from pathlib import Path
from typing import Any

from ...errors import StoreError
from ...files.atomic_files import make_folder, temporary_folder, write_text
from ...store.journal import Journal
from ...store.lock import lock_holder
from ...store.query import require_tables
from ...store.rows import StudyMeta
from ...store.study_folder import StudyFolder
from ...store.tables import write_baselines, write_evaluations, write_trials
from ...studies.load import recorded
from ...studies.study_files import changed_files, words_of_changes
from ...studies.user_code import is_inside
from ...version import __version__
from ..charts.snapshot import read_snapshot
from ..report.report import report_html
from .claims import claims_of
from .container import pack
from .members import (
    CLAIMS,
    COPIED,
    LOCK,
    MANIFEST,
    NUMPY,
    PAGE,
    POLICIES,
    REPORT,
    SOURCE,
    policy_files,
    source_files,
)
from .page import verify_page
from .policy_forms import export

FORMAT = 3
FORMATS = (2, FORMAT)  # format 2 has no report and no page
_PACKAGE = Path(__file__).parents[2]
_CODE = (".py", ".css", ".js")


def write_bundle(folder: StudyFolder, trial: int | None, source: Path, to: Path) -> dict[str, Any]:
    """Write a study's bundle; return its description and claims.

    `source` is the folder of the files named by the study. Raises `StoreError` if the study is
    running or has no tables, or if its files changed or are missing.
    """
    if to.exists():
        raise StoreError(f"{to} already exists; choose another file with --to")
    if (holder := lock_holder(folder.path)) is not None:
        raise StoreError(f"{folder.name} is being written by {holder}; wait for it, or stop it")
    require_tables(folder.path)
    with temporary_folder("bundle") as temporary:
        staged = temporary / "study"
        staged.mkdir()
        for name in filter(lambda name: (folder.path / name).is_file(), COPIED):
            shutil.copyfile(folder.path / name, staged / name)
        write_rows(staged, staged)
        claims = claims_of(staged, trial)
        with Journal(staged) as journal:
            meta = journal.meta
        # the study as it ran, even if the copy in the results was edited since
        write_text(staged / "study.resolved.yaml", meta.study_text)
        outside = _copy_source(meta, source, staged / SOURCE)
        copied = f"{POLICIES}/trial_{claims['trial']}"
        kept, why = folder.path / copied, f"no policy of trial {claims['trial']} was saved"
        if kept.is_dir():
            why = _copy_policy(kept, meta, staged / copied)
            why = why or export(staged / copied, staged / NUMPY)
        write_text(staged / REPORT, portable_report(staged))
        write_text(staged / PAGE, verify_page())
        about = {"hpo": __version__, "not_in_it": outside, "no_numpy": why}
        write_text(staged / CLAIMS, as_text(claims))
        write_text(staged / LOCK, as_text({**about, **_software_here()}))
        paths = {p.relative_to(staged).as_posix(): p for p in staged.rglob("*") if p.is_file()}
        members = {name: sha256(paths[name]) for name in sorted(paths)}
        manifest = {"format": FORMAT, "trial": claims["trial"], "members": members}
        write_text(staged / MANIFEST, as_text(manifest))
        pack({name: staged / name for name in (MANIFEST, *members)}, to)
    return {"study": claims["study"], **manifest, **about, "claims": claims["claims"]}


def write_rows(folder: Path, to: Path) -> None:
    """Write the tables from a folder's journal, because the existing ones may be older."""
    with Journal(folder) as journal, journal.at_one_commit():
        for write in (write_baselines, write_evaluations, write_trials):
            write(to, journal)


def portable_report(folder: Path) -> str:
    """Return the report of an unpacked bundle; it is identical on every machine."""
    return report_html(read_snapshot(StudyFolder(folder)), portable=True)


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def as_text(data: Any) -> str:
    return json.dumps(data, indent=1, allow_nan=False) + "\n"


def _copy_source(meta: StudyMeta, source: Path, to: Path) -> list[str]:
    """Copy the files named by the study; return those outside its folder, which are omitted."""
    if changes := changed_files(meta.files, source):
        text = "files changed since the study ran; restore them, or name the study file's folder"
        raise StoreError(f"{text}:\n{words_of_changes(changes)}", source="DIR")
    _copy_files(source_files(meta, source), source, to)
    return [path for path in meta.files if not is_inside(path)]


def _copy_policy(kept: Path, meta: StudyMeta, to: Path) -> str:
    """Copy a kept policy; return why it was omitted, or ""."""
    try:
        names = policy_files(kept, recorded(meta.study_text), meta.files)
    except StoreError as error:
        return " ".join(str(error).replace(f"{kept}/", "").split())
    _copy_files(names, kept, to)
    return ""


def _copy_files(names: Iterable[str], source: Path, to: Path) -> None:
    for name in names:
        make_folder((to / name).parent)
        shutil.copyfile(source / name, to / name)


def _software_here() -> dict[str, Any]:
    """Return the versions of the installed software; the claims contain the study's versions."""
    return {
        "python": platform.python_version(),
        "packages": {one.metadata["Name"]: one.version for one in metadata.distributions()},
        "code": code_sums(),
    }


def code_sums() -> dict[str, str]:
    """Return the sha256 of each file in this package that creates claims and pages."""
    packages = [path.parent for path in _PACKAGE.glob("*/__init__.py")]
    code = list(_PACKAGE.glob("*.py"))
    for suffix in _CODE:
        code += [path for one in packages for path in one.rglob(f"*{suffix}")]
    return {path.relative_to(_PACKAGE).as_posix(): sha256(path) for path in sorted(code)}
