"""All errors that `hpo` raises deliberately.

A message names the problem, with the value and the allowed values, in the library's terms. Its
`remedies` are settings that would help; `hpo.views.words` phrases them for each interface. The
command line exits with `exit_code`.

    HpoError
    ├── StudyError          the study file is wrong; has every mistake with its line
    ├── ConfigError         a hyperparameter, plan or environment value is wrong
    ├── UnknownNameError    an id that is in no registry; suggests the nearest
    │   └── UnimportedModuleError  an id in a module that only `imports` may load
    ├── StoreError          results on disk are missing, locked, damaged or of another study
    │   └── UnreadableError    files that this user may not read
    ├── MissingExtraError   an optional package is not installed; names the extra
    └── SearchError         the search cannot continue (all trials diverged, too many failures)
        └── CallbackError   a user's callback raised; the results so far are kept
"""

from __future__ import annotations

import importlib
import os
import re
import signal
import sys
import threading
from collections.abc import Container, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

_MOST_LISTED, _NEAREST = 12, 5
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
_OURS = f"{__name__.partition('.')[0]}."


class HpoError(Exception):
    """Base class of all errors raised deliberately; the command line exits with `exit_code`.

    `remedies` maps settings or requests to values, such as `new=True`. Each remedy suffices by
    itself; a remedy with the value None does not apply.
    """

    exit_code = 2

    def __init__(self, message: str, **remedies: Any):
        self.remedies = {name: value for name, value in remedies.items() if value is not None}
        super().__init__(message)


class ConfigError(HpoError):
    """A hyperparameter, plan or environment has a value that is not allowed."""


class StoreError(HpoError):
    """Results on disk are missing, locked or damaged, or belong to another study."""


class UnreadableError(StoreError):
    """Results on disk are not readable by this user."""


class SearchError(HpoError):
    """The search cannot continue."""

    exit_code = 1


class CallbackError(SearchError):
    """A callback raised an error (the cause), which ended the study."""

    def __init__(self, callback: str, method: str, error: Exception):
        self.callback, self.method = callback, method
        super().__init__(
            f"the callback {callback}.{method} raised {type(error).__name__}: {error}; "
            "the results so far are kept, and the same call resumes the study"
        )


class Mistake(NamedTuple):  # a dataclass would make `hpo --help` import `inspect`
    """One mistake in a study file."""

    line: int | None  # 1-based; None if the mistake is not at one line
    text: str

    def at(self, path: str) -> str:
        """Format the mistake with its place in a file."""
        if self.line is None:
            return f"{path}: {self.text}"
        return f"{path}:{self.line}: {self.text}"


class StudyError(HpoError):
    """A study file is wrong; `mistakes` has all mistakes in file order."""

    def __init__(self, path: str, mistakes: Sequence[Mistake], **remedies: Any):
        self.path, self.mistakes = path, tuple(mistakes)
        super().__init__("\n".join(one.at(path) for one in self.mistakes), **remedies)


class UnknownNameError(ConfigError):
    """An id is in no registry; the message suggests the nearest one."""

    def __init__(self, kind: str, name: str, known: Iterable[str], meant: str | None = None):
        self.kind, self.name, self.known = kind, name, tuple(sorted(known))
        hint = f" did you mean {meant!r}?"
        if meant is None:
            hint = suggestion(name, self.known)
        super().__init__(f"unknown {kind} {name!r};{hint} {listed(name, self.known)}")


class UnimportedModuleError(UnknownNameError):
    """An id belongs to a module that is not imported, such as `gym:module:Env-v0` or Atari.

    `package` is the package to install; empty if it is known to be installed.
    """

    def __init__(self, id_: str, module: str, package: str = ""):
        self.kind, self.name, self.known = "environment", id_, ()
        install = clause("pip install {}, ", package)
        ConfigError.__init__(
            self,
            f"{id_} is registered by the module {module!r}, which is not imported; "
            f"{install}write a file my_envs.py that contains `import {module}`, and set "
            "imports: [my_envs.py]",
            imports="my_envs.py",
        )


class MissingExtraError(HpoError):
    """An optional package is not installed."""

    def __init__(self, package: str, extra: str, purpose: str):
        text = f"{purpose} needs the package {package!r}, which is not installed"
        super().__init__(f"{text}; type: {install_command(extra)}")


def extra_module(module: str, extra: str, what: str) -> Any:
    """Import an optional package; `MissingExtraError` names the extra that installs it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise MissingExtraError(module.replace("_", "-"), extra, what) from error


def install_command(extra: str) -> str:
    """Return the pip command that adds an extra to this installation.

    A checkout, or a package installed from one, is given by its folder (`.` for the working
    folder). Any other package is given by its name in the index.
    """
    from pathlib import Path  # here and below: only a message needs them

    here = Path(__file__).resolve().parent
    if (here / "pyproject.toml").is_file():
        return f"pip install -e {_pip_requirement(here, extra)}"
    return f"pip install {_pip_requirement(_source_folder(), extra)}"


def _pip_requirement(folder: Path | None, extra: str) -> str:
    """Return pip's argument, quoted for a shell: the folder, or else the package in the index."""
    import shlex
    from pathlib import Path

    name = "hpo-lanes" if folder is None else str(folder)
    if folder == Path.cwd():
        name = "."
    return shlex.quote(f"{name}[{extra}]")


def _source_folder() -> Path | None:
    """Return the checkout that pip installed this package from, if it still exists."""
    import json
    from importlib.metadata import PackageNotFoundError, distribution
    from pathlib import Path
    from urllib.parse import unquote, urlsplit

    try:
        record = distribution("hpo-lanes").read_text("direct_url.json")
    except PackageNotFoundError:
        return None
    url = urlsplit(json.loads(record or "{}").get("url", ""))
    folder = Path(unquote(url.path))
    if url.scheme == "file" and (folder / "pyproject.toml").is_file():
        return folder
    return None


def not_as_written(what: str) -> StoreError:
    """Return the error for a missing or damaged file in a study."""
    return StoreError(f"{what}; restore it from a copy, or start the study over", new=True)


def counted(count: int, noun: str) -> str:
    """Format a count with its noun, in the plural unless it is 1.

    >>> counted(1, "trial"), counted(64, "trial"), counted(20_000, "request")
    ('1 trial', '64 trials', '20,000 requests')
    """
    return f"{count:,} {noun}{'s' * (count != 1)}"


def clause(form: str, text: object) -> str:
    """Fill a template with a string; "" if the string is empty.

    >>> clause(" ({})", "trial 9"), clause(" ({})", "")
    (' (trial 9)', '')
    """
    if not text:
        return ""
    return form.format(text)


def enumerated(names: Sequence[str]) -> str:
    """Join names as an enumeration in a sentence.

    >>> enumerated(["a"]), enumerated(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def ignore(*_: object, **__: object) -> None:
    """Do nothing: the default of callbacks for warnings and progress."""


def never(*_: object) -> bool:
    """Return False: the default of callbacks that ask whether to do something."""
    return False


def require_new(kind: str, name: str, known: Container[str]) -> None:
    """Raise `ConfigError` if a name is already registered."""
    if name in known:
        raise ConfigError(f"{kind} {name!r} is already registered; choose a different name")


def quoted_number(value: object) -> str:
    """Return ` use 16, without quotes;` for a number given as text; or "".

    >>> quoted_number("16"), quoted_number("1e-4"), quoted_number("many"), quoted_number(16)
    (' use 16, without quotes;', ' use 1e-4, without quotes;', '', '')
    """
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        return f" use {value.strip()}, without quotes;"
    return ""


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return ` did you mean 'x'?` for the only name with this prefix, or the nearest one; else "".

    >>> suggestion("tpee", ["tpe", "random"]), suggestion("max", ["maximize", "minimize"])
    (" did you mean 'tpe'?", " did you mean 'maximize'?")
    """
    import difflib  # imported late so that `hpo --help` starts faster

    known, text = list(known), str(name).casefold()
    near = [one for one in known if len(text) > 1 and one.casefold().startswith(text)]
    if len(near) != 1:
        near = difflib.get_close_matches(str(name), known, n=1, cutoff=0.6)
    if not near:
        return ""
    return f" did you mean {near[0]!r}?"


def listed(name: str, known: Sequence[str]) -> str:
    """Return `Known: ...`, or the five nearest names if the list is long.

    >>> listed("b", ["a", "b2"])
    'Known: a, b2'
    >>> listed("ab", [f"{i}b" for i in range(20)] + ["ab"]).split(",")[0]
    'Nearest of 21: ab'
    """
    if len(known) <= _MOST_LISTED:
        return f"Known: {', '.join(known)}"
    import difflib

    near = difflib.get_close_matches(str(name), known, n=_NEAREST, cutoff=0.0)
    return f"Nearest of {len(known)}: {', '.join(near)}"


class Leave(KeyboardInterrupt):
    """A second Ctrl-C while a study runs, which makes hpo quit at once."""


def is_interrupt(error: BaseException) -> bool:
    """Return whether an exception was caused by a signal, not by the code that it passed through.

    While a study runs, a signal raises `Leave`. Elsewhere, Python's handler raises a plain
    `KeyboardInterrupt`. It is treated as a signal, although code could also raise one.
    """
    if not isinstance(error, KeyboardInterrupt) or isinstance(error, Leave):
        return isinstance(error, Leave)
    in_main = threading.current_thread() is threading.main_thread()
    return in_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def format_error(error: BaseException) -> str:
    """Format an exception as one line: `file:line: Type: message`.

    The line is the innermost one in the user's code, or else the innermost one outside this
    package. If a library called by that code raised the error, `, in package/file.py:line`
    follows.
    """
    place = _find_place(error.__traceback__)
    if not place.shown:
        return named(error)
    return f"{place.shown}: {named(error)}{place.foreign}"


def format_error_if_own(error: BaseException) -> str:
    """Format an exception by `format_error` if it passed through user code, else by `named`."""
    if not _find_place(error.__traceback__).is_own:
        return named(error)
    return format_error(error)


def place_of(error: BaseException) -> str:
    """Return the innermost `file:line` in the user's code, or ""."""
    place = _find_place(error.__traceback__)
    if not place.is_own:
        return ""
    return place.shown


def foreign_of(error: BaseException) -> str:
    """Return `, in package/file.py:line` for a library called by the user's code, or ""."""
    return _find_place(error.__traceback__).foreign


def format_traceback(error: BaseException) -> str:
    """Format an exception like `format_error`, with all lines of its message."""
    more = str(error).strip().splitlines()[1:]
    return "\n".join([format_error(error), *more])


def named(error: BaseException) -> str:
    """Format an exception as one line: `Type: message`.

    >>> named(ValueError("too large"))
    'ValueError: too large'
    """
    kind, text = type(error).__name__, str(error).strip()
    if not text:
        return kind
    return f"{kind}: {text.splitlines()[0]}"


@contextmanager
def blamed(id_: str, values: Mapping[str, Any]) -> Generator[None, None, None]:
    """Turn any error in a constructor into a single line with the constructor's arguments."""
    try:
        yield
    except BaseException as error:
        if is_interrupt(error):
            raise
        shown = ", ".join(f"{name}={value!r}" for name, value in values.items()) or "its defaults"
        raise ConfigError(f"{id_} cannot be created with {shown}: {named(error)}") from error


class _RaisedAt(NamedTuple):
    """The place where an exception was raised."""

    shown: str = ""  # file:line
    is_own: bool = False  # whether that is in the user's code
    foreign: str = ""  # `, in package/file.py:line` of a library that the user's code called


# Their errors are about the values they were given; a line inside them does not help.
_WITHOUT_FRAMES = ("jax", "jaxlib", "numpy", "jaxtyping", "beartype")


@cache
def _library_folders() -> tuple[str, ...]:
    import sysconfig

    paths = sysconfig.get_paths()
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return tuple(os.path.join(os.path.abspath(paths[name]), "") for name in names)


def _package_path(path: str) -> str:
    """Return a file's path starting at its installed package, or "" for other files."""
    for folder in _library_folders()[2:]:
        if path.startswith(folder):
            return path[len(folder) :]
    return ""


def _find_place(trace: TracebackType | None) -> _RaisedAt:
    import traceback

    found, foreign, is_own = "", "", False
    for frame, line in traceback.walk_tb(trace):
        path = frame.f_code.co_filename
        if str(frame.f_globals.get("__name__", "")).startswith(_OURS):
            continue
        own = not path.startswith(("<", *_library_folders()))
        if own or not is_own:
            found, is_own = f"{shown_path(path)}:{line}", own
        package = _package_path(path)
        if own:
            foreign = ""
        elif package and package.partition(os.sep)[0] not in _WITHOUT_FRAMES:
            foreign = f", in {package}:{line}"
    if not is_own:
        foreign = ""
    return _RaisedAt(found, is_own, foreign)


def own_place(frames: Iterable[tuple[str, int]]) -> str:
    """Return `file:line` of the innermost frame in the user's code, or ""."""
    modules = [module for name, module in list(sys.modules.items()) if name.startswith(_OURS)]
    ours = {getattr(module, "__file__", None) for module in modules}
    for path, line in frames:
        if path not in ours and not path.startswith(("<", *_library_folders())):
            return f"{shown_path(path)}:{line}"
    return ""


def shown_path(path: str) -> str:
    """Return a path relative to the working folder if the file is in it, else unchanged."""
    return path.removeprefix(os.path.join(os.getcwd(), ""))


@contextmanager
def user_streams() -> Generator[None]:
    """Restore stdout and stderr in case user code removed them."""
    kept = {name: getattr(sys, name) for name in ("stdout", "stderr")}
    try:
        yield
    finally:
        for name, stream in kept.items():
            if getattr(sys, name) is None:
                setattr(sys, name, stream)


def check_platform() -> None:
    """Raise `ConfigError` on Windows, or if Python lacks `fcntl` or `termios`."""
    for module, purpose in (("fcntl", "lock studies"), ("termios", "show running studies")):
        try:
            importlib.import_module(module)
        except ImportError:
            text = f"hpo runs on Linux and macOS; Python on {sys.platform} has no module {module},"
            text += f" which hpo needs to {purpose}; on Windows use WSL 2"
            raise ConfigError(text) from None
