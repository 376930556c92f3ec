"""The closed list of a bundle's members: files named by its journal and policy, and no others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path

from ...core.policy_document import (
    IMPORTS,
    NAME,
    TRAINING,
    read_document,
    read_training,
    saved_env,
)
from ...environments.registry import files_of
from ...errors import StoreError
from ...files.atomic_files import read_text
from ...store.journal import JOURNAL_NAME
from ...store.rows import StudyMeta
from ...studies.load import recorded
from ...studies.spec import Study
from ...studies.study_environments import labels
from ...studies.user_code import imported_files, is_inside

MANIFEST, CLAIMS, LOCK = "bundle.json", "claims.json", "lock.json"
SOURCE, NUMPY, POLICIES = "source", "numpy", "policies"
COPIED = ("study.yaml", "study.resolved.yaml", JOURNAL_NAME, "curves.parquet")
TABLES = ("trials.parquet", "evaluations.parquet", "baselines.parquet")
REPORT, PAGE = "report.html", "verify.html"
NUMPY_FILES = (f"{NUMPY}/forward.py", f"{NUMPY}/policy.json")
_TOP = (CLAIMS, LOCK, REPORT, PAGE, *COPIED, *TABLES, *NUMPY_FILES)
LANE = "lane"
_ARRAYS, _SUMS, _PARTS = "arrays", "SHA256SUMS", "parts"

_DIGEST = 32  # bytes

Sums = dict[str, str | None]  # file -> its sha256; None if any content is allowed


def is_known_place(name: str, trial: int) -> bool:
    """Return whether a bundle of this trial can have a member with this name."""
    below = (f"{SOURCE}/", f"{POLICIES}/trial_{trial}/")
    return name in _TOP or name.startswith(below)


def source_files(meta: StudyMeta, source: Path) -> Sums:
    """Return the files that a study ran with: those in its journal, and its initial policy.

    `source` is the folder that contains them.
    """
    found: Sums = {path: summed for path, summed in meta.files.items() if is_inside(path)}
    study = recorded(meta.study_text)
    if study.init is not None and is_inside(study.init.folder):
        start = Path(study.init.folder)
        for name, summed in policy_files(source / start, study, meta.files).items():
            found.setdefault((start / name).as_posix(), summed)
    return found


def policy_files(folder: Path, study: Study, code: Mapping[str, str]) -> Sums:
    """Return the files in a kept policy's folder.

    `code` has the checksums of the study's files, which imported code must match. The checksums of
    arrays are in a separate file.
    """
    names = labels(study)
    if len(names) > 1 and not (folder / NAME).is_file():  # one folder per environment
        found: Sums = {}
        for name in names:
            own = policy_files(folder / name, study, code)
            found |= {f"{name}/{file}": summed for file, summed in own.items()}
        return found
    if (folder / TRAINING).is_file():
        return dict.fromkeys([TRAINING, LANE, *_environment_files(folder)])
    if not (folder / NAME).is_file():
        return {}
    found = dict.fromkeys([NAME, *_environment_files(folder)])
    for path in imported_files(read_document(folder / NAME).imports, folder / IMPORTS):
        found[f"{IMPORTS}/{path}"] = code.get(path, "")
    for part in study.checkpoint.parts:
        file = f"{_PARTS}/{part}.npz"
        found |= {file: None} if (folder / file).is_file() else {}
    return found | dict(_array_checksums(folder))


def is_whole_lane(path: Path) -> bool:
    """Return whether the kept state of a custom training run has its original bytes.

    The file starts with the sha256 of the remaining bytes.
    """
    content = path.read_bytes()
    return sha256(content[_DIGEST:]).digest() == content[:_DIGEST]


def _environment_files(folder: Path) -> list[str]:
    """Return the files that a kept policy's environments read, relative to the policy's folder."""
    if (folder / TRAINING).is_file():
        given = read_training(folder).get("env")
        plans = [] if given is None else [saved_env(given["id"], given["keys"], folder)]
    else:
        document = read_document(folder / NAME)
        plans = [document.env, document.eval_env]
    return [file for plan in plans for file in files_of(plan.id, dict(plan.keys)).values()]


def _array_checksums(folder: Path) -> Iterator[tuple[str, str | None]]:
    path = folder / _ARRAYS / _SUMS
    if not path.is_file():
        raise StoreError(f"{_ARRAYS}/{_SUMS} of the policy is missing")
    yield f"{_ARRAYS}/{_SUMS}", None
    for line in read_text(path).splitlines():
        summed, _, name = line.partition("  ")
        yield f"{_ARRAYS}/{name}", summed
