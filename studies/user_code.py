"""A study's `imports`: Python files beside it that register environments and the like.

Each is run once a process; what goes wrong in one is told with its own file and line.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any

from ..environments.registry import find, fitting_distributions
from ..errors import ConfigError
from ..knobs import KNOBS, check_value
from .several_environments import environments_of
from .spec import Study


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


_DONE: dict[Path, ModuleType] = {}
_texts: dict[Path, list[bytes]] = {}  # of each, and of what it imports beside it, when it was run


def import_user_code(paths: Iterable[str], source: str | Path) -> None:
    """Run the files that a study names.

    One that has changed since it was run, as in a notebook that mends it, is run again. They may
    import each other and what lies beside them: their folder comes last on `sys.path`,
    so that it hides nothing.

    Args:
        paths: as the study names them.
        source: the folder they are relative to.

    Raises:
        ConfigError: `file:line: what went wrong`.
    """
    for given in paths:
        path = (Path(source) / given).resolve()
        files = [Path(source) / name for name in imported_files([given], Path(source))]
        texts = [file.read_bytes() for file in files]
        mended = path in _DONE and texts != _texts[path]
        if path in _DONE and not mended:
            continue
        if mended:
            _forget(file.resolve() for file in files)
        folder = str(path.parent)
        if folder not in sys.path:
            sys.path.append(folder)
        try:
            _DONE[path] = _run(path, Path(source) / given)
        except ConfigError as error:
            if not mended:
                raise
            raise ConfigError(f"{error}; it was mended since it was run: start Python anew") from (
                error.__cause__
            )
        _texts[path] = texts


def user_module(name: str) -> ModuleType | None:
    """Return the module of an imported file by its name without `.py`, the latest of several."""
    found = [module for path, module in _DONE.items() if path.stem == name]
    return found[-1] if found else None


def check_registered(study: Study) -> None:
    """Check the words that a study could only be sure of once its `imports` had run.

    Raises:
        ConfigError: says where the word stands, what it is and what is known.
    """
    places: list[tuple[str, Iterable[tuple[str, Any]]]] = [("fixed", study.fixed.items())]
    for parameter in study.space.parameters:
        if not parameter.name.startswith("env."):
            values = getattr(parameter.distribution, "values", ())
            places.append(("space", [(parameter.name, value) for value in values]))
    places += [("enqueue", given.items()) for given in study.enqueue]
    for place, items in places:
        for name, value in items:
            if name in KNOBS and KNOBS[name].type == "choice":
                try:
                    check_value(name, value)
                except ConfigError as error:
                    hint = "; own ones are registered by `imports`"
                    raise ConfigError(f"{place}: {error}{hint}") from None
            if name == "distribution" and value is not None:
                for one in environments_of(study):
                    _check_fits(one.id, place, value)


def _check_fits(id_: str, place: str, distribution: str) -> None:
    known = find(id_)
    fitting = () if known is None else fitting_distributions(known.actions)
    if known is not None and fitting and distribution not in fitting:
        raise ConfigError(
            f"{place}: distribution {distribution!r} does not fit {known.id}, whose actions are "
            f"{known.actions}; allowed: {', '.join(fitting)}"
        )


def _run(path: Path, shown: Path) -> ModuleType:
    name = path.stem
    if name in sys.modules:
        before = getattr(sys.modules[name], "__file__", None)
        if before is not None and Path(before).resolve() == path:
            return sys.modules[name]  # another of the files has imported it
        name = f"hpo_imports_{name}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{shown}: is no Python file that can be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise ConfigError(f"{shown}:{_line(error, path)}: {_said(error)}") from error
    return module


def _forget(files: Iterable[Path]) -> None:
    """Let modules of some files be imported anew."""
    paths = set(files)
    for name, module in list(sys.modules.items()):
        place = getattr(module, "__file__", None)
        if place is not None and Path(place).resolve() in paths:
            del sys.modules[name]


def _line(error: BaseException, path: Path) -> int:
    """Return the line of the file that led to an error, the innermost of several."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return error.lineno or 1
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    return (lines[-1] if lines else None) or 1


def _said(error: BaseException) -> str:
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    first = text.strip().splitlines()[0] if text.strip() else ""
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def run_own_code(study: Study, cores: int | None = None) -> None:
    """Run a study's `imports`; a module that starts jax finds as many devices as the study needs.

    An array made at import, as gymnax and many a module of one's own has, starts jax.

    Args:
        study: whose `imports` are run.
        cores: of this machine that this process may use; None: all.

    Raises:
        ConfigError: `file:line: what went wrong`.
    """
    if study.imports:
        from ..core.device_request import ask_for_devices

        ask_for_devices(study.population.device, study.population.deterministic, cores)
    import_user_code(study.imports, study.source)


def is_inside(path: str) -> bool:
    r"""Return whether a path, as written in a file, stays below the folder it is relative to.

    >>> is_inside("spaces/ppo.yaml"), is_inside("../x"), is_inside("/etc/x"), is_inside("a\\b")
    (True, False, False, False)
    """
    pure = PurePosixPath(path)
    unclear = any(character in path for character in "\\:\x00") or len(path) > 500
    return bool(path) and not pure.is_absolute() and ".." not in pure.parts and not unclear
