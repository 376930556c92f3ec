"""Files that a study names and that are part of what it is: their contents, when it began and now.

A study that goes on with another environment, topology or policy would have trials of two studies
in one table. So their sums are kept in the journal, and compared when the study goes on.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..environments import files_of
from ..errors import StoreError
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
    paths = [*_imported(study, source), *_of_environment(study), *_of_policy(study, source)]
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
            f"study {name!r} was begun with other contents of these files; take the changes back, "
            "begin another study with --new, or go on with what is there now with "
            "--accept-changed-files, which marks the trials that end from here on:\n"
            + words_of_changes(changes)
        )
    return bool(changes)


# ---------------------------------------------------------------------- which files


def _imported(study: Study, source: Path) -> list[str]:
    """Return the files of `imports`, and what they import from beside them, each once."""
    found: dict[str, None] = {}
    waiting = [Path(given) for given in study.imports]
    while waiting:
        path = waiting.pop(0)
        if path.as_posix() not in found and (source / path).is_file():
            found[path.as_posix()] = None
            roots = {Path(given).parent for given in study.imports}
            waiting += _imports_of(source, path, roots)
    return list(found)


def _imports_of(source: Path, path: Path, roots: Iterable[Path]) -> Iterator[Path]:
    """Find the files beside a study's imports that one of them imports, wherever in its text."""
    try:
        tree = ast.parse((source / path).read_bytes())
    except (SyntaxError, ValueError, OSError):  # told where it is run
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
            starts = list(roots)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            names = [module, *(f"{module}.{alias.name}".strip(".") for alias in node.names)]
            starts = [path.parents[node.level - 1]] if 0 < node.level <= len(path.parents) else []
            starts = starts or list(roots)
        else:
            continue
        for start in starts:
            for name in filter(None, names):
                yield from _modules(source, start, name.split("."))


def _modules(source: Path, start: Path, words: list[str]) -> Iterator[Path]:
    """Find the files of a dotted name: those of the packages on the way, and its own."""
    for count in range(1, len(words) + 1):
        stem = start.joinpath(*words[:count])
        for path in (stem.with_name(f"{stem.name}.py"), stem / "__init__.py"):
            if (source / path).is_file():
                yield path


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
    return [path for keys in given for path in files_of(study.env.id, keys).values()]


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
