"""A study's `imports`: Python files that register environments and more, run once per process."""

from __future__ import annotations

import ast
import importlib.util
import itertools
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path, PurePosixPath
from types import CodeType, ModuleType
from typing import Any

from ..environments.registry import fitting_distributions
from ..environments.table import ENVIRONMENTS
from ..errors import ConfigError, is_interrupt, user_streams
from ..files.working_folder import same_working_folder
from ..knobs import KNOBS, check_value
from .spec import Study
from .study_environments import environments_of

_DONE: dict[Path, ModuleType] = {}
_texts: dict[Path, list[bytes]] = {}  # text of each file and its local imports, when it was run
_RUNNING = threading.RLock()  # another thread would otherwise see a module that is half run


def imported_files(imports: Iterable[str], source: Path) -> list[str]:
    """Return the files of `imports` and their local imports, relative to `source`, each once."""
    waiting, found = [Path(given) for given in imports], dict[str, None]()
    roots = list(dict.fromkeys(path.parent for path in waiting))
    while waiting:
        path = waiting.pop(0)
        if path.as_posix() not in found and (source / path).is_file():
            found[path.as_posix()] = None
            waiting += _imports_of(source, path, roots)
    return list(found)


def _imports_of(source: Path, path: Path, roots: list[Path]) -> Iterator[Path]:
    """Return the local files that a file imports anywhere in its text, and their packages."""
    try:
        tree = ast.parse((source / path).read_bytes())
    except (SyntaxError, ValueError, OSError):  # reported when it is run
        return
    for node in ast.walk(tree):
        starts = roots
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            names = [module, *(f"{module}.{alias.name}".strip(".") for alias in node.names)]
            if 0 < node.level <= len(path.parents):
                starts = [path.parents[node.level - 1]]
        else:
            continue
        for start, name in itertools.product(starts, filter(None, names)):
            words = name.split(".")
            for count in range(1, len(words) + 1):
                stem = start.joinpath(*words[:count])
                files = (stem.with_name(f"{stem.name}.py"), stem / "__init__.py")
                yield from (file for file in files if (source / file).is_file())


def import_user_code(paths: Iterable[str], source: str | Path) -> None:
    """Run the files named by a study; a file that was edited (as in a notebook) runs again.

    The files may import each other and other modules in their folder. The folder is last on
    `sys.path`, so it hides no other module. Errors are reported as `file:line: message`.
    """
    with _RUNNING:
        for given in paths:
            _import_file(given, Path(source))


def _import_file(given: str, source: Path) -> None:
    path = (source / given).resolve()
    files = [source / name for name in imported_files([given], source)]
    texts = [file.read_bytes() for file in files]
    changed = path in _DONE and texts != _texts[path]
    if path in _DONE and not changed:
        return
    if changed:
        stale = {file.resolve() for file in files}
        for name, loaded in list(sys.modules.items()):
            place = getattr(loaded, "__file__", None)
            if place is not None and Path(place).resolve() in stale:
                del sys.modules[name]
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.append(folder)
    try:
        _DONE[path] = _run_file(path, source / given)
    except ConfigError as error:
        if not changed:
            raise
        text = f"{error}; the file changed after it was imported, so restart Python"
        raise ConfigError(text) from error.__cause__
    _texts[path] = texts


def user_module(name: str) -> ModuleType | None:
    """Return the most recently loaded module of an imported file, by its name without `.py`."""
    found = (module for path, module in reversed(_DONE.items()) if path.stem == name)
    return next(found, None)


def choices_of(study: Study) -> list[tuple[str, str, Any]]:
    """Return (section, hyperparameter, word) for every choice that a study sets."""
    found = [("fixed", *item) for item in study.fixed.items()]
    for parameter in study.space.parameters:
        values = getattr(parameter.distribution, "values", ())
        found += [("space", parameter.name, value) for value in values]
    found += [("enqueue", *item) for given in study.enqueue for item in given.items()]
    return [one for one in found if one[1] in KNOBS and KNOBS[one[1]].type == "choice"]


def misfits(study: Study, imported: bool) -> Iterator[tuple[str, str]]:
    """Yield (section, message) for each action distribution that an environment rejects."""
    for section, name, value in choices_of(study):
        own = not imported and study.imports and value not in KNOBS[name].choices
        if name != "distribution" or value is None or own:
            continue
        for one in environments_of(study):
            if one.id not in ENVIRONMENTS:
                continue
            known = ENVIRONMENTS[one.id]
            fitting = fitting_distributions(known.actions)
            if fitting and value not in fitting:
                text = f"{value!r} does not fit {known.id}, whose actions are {known.actions}"
                yield section, f"{text}; allowed: {', '.join(fitting)}"


def check_registered(study: Study) -> None:
    """Check words that only a study's `imports` can make legal, after the imports have run."""
    for section, name, value in choices_of(study):
        try:
            check_value(name, value)
        except ConfigError as error:
            text = f"{section}: {error}; custom ones are registered by `imports`"
            raise ConfigError(text) from None
    for section, text in misfits(study, imported=True):
        raise ConfigError(f"{section}: distribution {text}")


class _FromSource(SourceFileLoader):
    """Loads source without cached bytecode, which may predate an edit within the same second."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def _run_file(path: Path, shown: Path) -> ModuleType:
    name = path.stem
    if name in sys.modules:
        before = getattr(sys.modules[name], "__file__", None)
        if before is not None and Path(before).resolve() == path:
            return sys.modules[name]  # another of these files has imported it
        name = f"hpo_imports_{name}"
    loader = None
    if path.suffix == ".py":
        loader = _FromSource(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{shown}: not an importable Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with user_streams(), same_working_folder():
            spec.loader.exec_module(module)
    except BaseException as error:
        sys.modules.pop(name, None)
        if is_interrupt(error):
            raise
        raise ConfigError(f"{shown}:{_error_line(error, path)}: {_error_text(error)}") from error
    return module


def _error_line(error: BaseException, path: Path) -> int:
    """Return the innermost line of a file in an error's traceback."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return error.lineno or 1
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    if not lines:
        return 1
    return lines[-1] or 1


def _error_text(error: BaseException) -> str:
    text = str(error)
    if isinstance(error, SyntaxError):
        text = error.msg
    lines = text.strip().splitlines()
    return ": ".join([type(error).__name__, *lines[:1]])


def run_own_code(study: Study, cores: int | None = None) -> None:
    """Run a study's `imports`, after requesting the devices that the study needs.

    Creating an array at import time, as gymnax and many user modules do, starts jax. `cores` is
    the number of CPUs that this process may use; by default all.
    """
    if study.imports:
        from ..core.device_request import ask_for_devices

        ask_for_devices(study.population.device, study.population.deterministic, cores)
    import_user_code(study.imports, study.source)


def is_inside(path: str) -> bool:
    r"""Return whether a relative path stays within its folder.

    >>> is_inside("spaces/ppo.yaml"), is_inside("../x"), is_inside("/etc/x"), is_inside("a\\b")
    (True, False, False, False)
    """
    pure = PurePosixPath(path)
    unclear = any(character in path for character in "\\:\x00") or len(path) > 500
    return bool(path) and not pure.is_absolute() and ".." not in pure.parts and not unclear
