"""Files that a study names and that are part of what it is: their contents, when it began and now.

A study that goes on with another environment, topology or policy would have trials of two studies
in one table. So their sums are kept in the journal, and compared when the study goes on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..environments import files_of
from ..errors import StoreError
from ..studies.imported_files import imported_files
from ..studies.spec import Study

__all__ = ["changed_files", "files_of_study", "takes_changed_files", "words_of_changes"]

_SHOWN = 12


def files_of_study(study: Study) -> dict[str, str]:
    """Return the files whose contents decide results: path as from the study's folder -> sha256.

    These are what `imports` names, with the modules beside it that it imports in turn; the files
    of the environment (topology, traffic, modulations, requests, ...), searched ones and those of
    `eval_env` too; and the policy that lanes start from. A space kept in a file and the trials of
    a warm start are copied into the study when it begins, so they are not among them.
    """
    source = Path(study.source)
    paths = [
        *imported_files(study.imports, source),
        *_of_environment(study),
        *_of_policy(study, source),
    ]
    sums = {path: _sum(source / path) for path in dict.fromkeys(paths)}
    return {path: found for path, found in sums.items() if found is not None}


def changed_files(before: Mapping[str, str], source: str | Path) -> dict[str, str]:
    """Return the files that are not what they were: path -> what is there now, in words."""
    found: dict[str, str] = {}
    for path, was in before.items():
        now = _sum(Path(source) / path)
        if now != was:
            sums = f"its sha256 was {was[:_SHOWN]}"
            found[path] = "is gone" if now is None else f"{sums}, now it is {now[:_SHOWN]}"
    return found


def words_of_changes(changes: Mapping[str, str]) -> str:
    """Return one line a file."""
    return "\n".join(f"  {path}: {words}" for path, words in changes.items())


def takes_changed_files(name: str, before: Mapping[str, str], study: Study, accept: bool) -> bool:
    """Return whether a study goes on with files that have changed.

    Raises:
        StoreError: with every such file, where that was not accepted.
    """
    changes = changed_files(before, study.source)
    if changes and not accept:
        raise StoreError(
            f"these files changed after study {name!r} started; undo the changes, start another "
            "study, or resume with the changed files, which marks the trials that finish from now "
            "on:\n" + words_of_changes(changes),
            new=True,
            accept_changed_files=True,
        )
    return bool(changes)


# ---------------------------------------------------------------------- which files


def _of_environment(study: Study) -> list[str]:
    """Return the files that any configuration of the study can name."""
    given: list[Mapping[str, Any]] = [study.env.values, study.evaluation.env]
    for parameter in study.space.parameters:
        name = parameter.name.removeprefix("env.")
        if name != parameter.name:
            values = getattr(parameter.distribution, "values", ())
            given += [{name: value} for value in (*values, parameter.default)]
    for entry in study.enqueue:
        given.append({n[4:]: value for n, value in entry.items() if n.startswith("env.")})
    own = [*((study.env.id, keys) for keys in given)]
    for one in study.more_envs:
        own += [(one.id, keys) for keys in (one.values, *given[2:])]
    return [path for id_, keys in own for path in files_of(id_, keys).values()]


def _of_policy(study: Study, source: Path) -> list[str]:
    """Return the files of the policy that lanes start from; what else lies there is not read."""
    if study.init is None:
        return []
    folder = Path(study.init.folder)
    names = ["policy.json", "arrays/SHA256SUMS"]
    names += ["parts/optimiser.npz"] if study.init.optimiser == "restored" else []
    return [(folder / name).as_posix() for name in names if (source / folder / name).is_file()]


def _sum(path: Path) -> str | None:
    """Return the sha256 of a file in hex, None where there is none that can be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None
