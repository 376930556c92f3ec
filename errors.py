"""Every error that `hpo` raises on purpose.

A message says what is wrong, with the value, and what is allowed, in the library's terms. What to
type is `remedies`: `hpo.views.words` has the words of each interface for them. The command line
exits with `exit_code`.

    HpoError
    ├── StudyError          the study file is wrong; carries every mistake with its line
    ├── ConfigError         a knob, plan or environment value is wrong
    ├── UnknownNameError    an id that no registry knows; suggests the nearest
    │   └── UnimportedModuleError  an id names a module that only `imports` may bring in
    ├── StoreError          results on disk are missing, locked, damaged or of another study
    ├── MissingExtraError   an optional package is not installed; names the extra
    └── SearchError         the search cannot go on (all trials diverged, too many failures)
        └── CallbackError   a callback of the user's raised; what was done is kept
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = [
    "CallbackError",
    "ConfigError",
    "HpoError",
    "MissingExtraError",
    "Mistake",
    "SearchError",
    "StoreError",
    "StudyError",
    "UnimportedModuleError",
    "UnknownNameError",
    "counted",
    "listed",
    "not_as_written",
    "suggestion",
]

_MOST_LISTED, _NEAREST = 12, 5


class HpoError(Exception):
    """Base of all errors raised on purpose; `exit_code` is what the command line returns.

    Attributes:
        remedies: setting or request -> its value, such as `new=True` or `stop="my-study"`; each
            one alone helps.
    """

    exit_code = 2

    def __init__(self, message: str, **remedies: Any):
        self.remedies = remedies
        super().__init__(message)


class ConfigError(HpoError):
    """A value of a knob, a plan or an environment is not allowed."""


class StoreError(HpoError):
    """Results on disk are missing, locked, damaged or belong to another study."""


class SearchError(HpoError):
    """The search cannot go on."""

    exit_code = 1


class CallbackError(SearchError):
    """A callback raised, which ended the study; the error it raised is the cause."""

    def __init__(self, callback: str, method: str, error: Exception):
        self.callback, self.method = callback, method
        super().__init__(
            f"the callback {callback}.{method} raised {type(error).__name__}: {error}; what the "
            "study has done is kept, and the same call goes on with it"
        )


@dataclass(frozen=True)
class Mistake:
    """One mistake in a study file: where it is and what to do about it.

    Attributes:
        line: 1-based line in the file, or None when the mistake has no place in it.
        text: what was given, what is allowed, what to type instead.
    """

    line: int | None
    text: str


class StudyError(HpoError):
    """A study file is wrong; `mistakes` holds every one found, in the order of the file."""

    def __init__(self, path: str, mistakes: Sequence[Mistake], **remedies: Any):
        self.path = path
        self.mistakes = tuple(mistakes)
        lines = (
            f"{path}:{mistake.line}: {mistake.text}"
            if mistake.line is not None
            else f"{path}: {mistake.text}"
            for mistake in self.mistakes
        )
        super().__init__("\n".join(lines), **remedies)


class UnknownNameError(ConfigError):
    """An id that no registry knows; a long list of known ones is cut to the nearest five."""

    def __init__(self, kind: str, name: str, known: Iterable[str], meant: str | None = None):
        self.kind, self.name, self.known = kind, name, tuple(sorted(known))
        hint = suggestion(name, self.known) if meant is None else f" did you mean {meant!r}?"
        super().__init__(f"unknown {kind} {name!r};{hint} {listed(name, self.known)}")


class UnimportedModuleError(UnknownNameError):
    """An id names a module, as `gym:module:Env-v0` does, that nobody has imported."""

    def __init__(self, id_: str, module: str):
        self.kind, self.name, self.known = "environment", id_, ()
        ConfigError.__init__(
            self,
            f"{id_} comes from the module {module!r}, which an id alone does not import; "
            f"write a file my_envs.py that says `import {module}`, and type imports: [my_envs.py]",
            imports="my_envs.py",
        )


class MissingExtraError(HpoError):
    """An optional package is not installed."""

    def __init__(self, package: str, extra: str, purpose: str):
        super().__init__(
            f"{purpose} needs the package {package!r}, which is not installed; "
            f"type: pip install 'hpo-lanes[{extra}]'"
        )


def not_as_written(what: str) -> StoreError:
    """Return the error of a study's file that is missing or damaged."""
    return StoreError(f"{what}; restore it from a copy, or start the study anew", new=True)


def counted(count: int, noun: str) -> str:
    """Format a count with its noun, in the plural unless it is 1.

    >>> counted(1, "trial"), counted(64, "trial"), counted(20_000, "request")
    ('1 trial', '64 trials', '20,000 requests')
    """
    return f"{count:,} {noun}{'s' * (count != 1)}"


def suggestion(name: str, known: Iterable[str]) -> str:
    """The words ` did you mean 'x'?` for the nearest known name, or nothing.

    That is the only one that begins with the name, if there is one.

    >>> suggestion("tpee", ["tpe", "random"]), suggestion("max", ["maximize", "minimize"])
    (" did you mean 'tpe'?", " did you mean 'maximize'?")
    """
    known, text = list(known), str(name).casefold()
    begun = [one for one in known if len(text) > 1 and one.casefold().startswith(text)]
    if len(begun) == 1:
        return f" did you mean {begun[0]!r}?"
    near = difflib.get_close_matches(str(name), list(known), n=1, cutoff=0.6)
    return f" did you mean {near[0]!r}?" if near else ""


def listed(name: str, known: Sequence[str]) -> str:
    """The words `Known: ...`, or the nearest five of a list that nobody would read.

    >>> listed("b", ["a", "b2"])
    'Known: a, b2'
    >>> listed("ab", [f"{i}b" for i in range(20)] + ["ab"]).split(",")[0]
    'Nearest of 21: ab'
    """
    if len(known) <= _MOST_LISTED:
        return f"Known: {', '.join(known)}"
    near = difflib.get_close_matches(str(name), known, n=_NEAREST, cutoff=0.0)
    return f"Nearest of {len(known)}: {', '.join(near)}"
