"""The files that a study's `imports` are made of: those it names, and what these import."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

__all__ = ["imported_files"]


def imported_files(imports: Iterable[str], source: Path) -> list[str]:
    """Return the files of `imports`, and what they import from beside them, each once.

    Args:
        imports: as a study names them.
        source: the folder they are relative to, as the returned paths are.
    """
    named, found = list(imports), dict[str, None]()
    waiting = [Path(given) for given in named]
    while waiting:
        path = waiting.pop(0)
        if path.as_posix() not in found and (source / path).is_file():
            found[path.as_posix()] = None
            roots = {Path(given).parent for given in named}
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
