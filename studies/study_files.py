"""The files that affect a study's results, with their checksums."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..environments.registry import files_of
from .spec import Study
from .study_environments import env_settings
from .user_code import imported_files

_SHOWN = 12
"""Digits of a checksum that are shown."""


def files_of_study(study: Study) -> dict[str, str]:
    """Return the sha256 of each file that affects results, by path relative to the study's folder.

    Included are the files of `imports` with their local imports, environment files (topology,
    traffic, modulations, requests, ...), and the initial policy. Environment files include
    searched ones and those of `eval_env`. A space file and warm-start trials are excluded, because
    they are copied into the study when it starts.
    """
    source = Path(study.source)
    paths = [*imported_files(study.imports, source), *files_of_environment(study)]
    paths += _of_policy(study, source)
    sums = {path: _file_checksum(source / path) for path in dict.fromkeys(paths)}
    return {path: found for path, found in sums.items() if found is not None}


def changed_files(before: Mapping[str, str], source: str | Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for path, was in before.items():
        now = _file_checksum(Path(source) / path)
        if now is None:
            found[path] = "is gone"
        elif now != was:
            found[path] = f"its sha256 was {was[:_SHOWN]}, now it is {now[:_SHOWN]}"
    return found


def words_of_changes(changes: Mapping[str, str]) -> str:
    return "\n".join(f"  {path}: {words}" for path, words in changes.items())


def files_of_environment(study: Study) -> list[str]:
    """Return the files read by a study's environments, relative to its folder."""
    given: list[Mapping[str, Any]] = [study.env.values, study.evaluation.env]
    for parameter in study.space.parameters:
        name = parameter.name.removeprefix("env.")
        if name != parameter.name:
            values = getattr(parameter.distribution, "values", ())
            given += [{name: value} for value in (*values, parameter.default)]
    for entry in study.enqueue:
        given.append(env_settings(entry))
    own = [*((study.env.id, keys) for keys in given)]
    for one in study.more_envs:
        own += [(one.id, keys) for keys in (one.values, *given[2:])]
    return [path for id_, keys in own for path in files_of(id_, keys).values()]


def _of_policy(study: Study, source: Path) -> list[str]:
    """Return the files that are read from the folder of the initial policy."""
    if study.init is None:
        return []
    folder = Path(study.init.folder)
    names = ["policy.json", "arrays/SHA256SUMS"]
    if study.init.optimiser == "restored":
        names.append("parts/optimiser.npz")
    return [(folder / name).as_posix() for name in names if (source / folder / name).is_file()]


def _file_checksum(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None
