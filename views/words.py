"""Writes the remedies in errors as command-line options or as Python arguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from typing import Any

from ..errors import HpoError

REMEDIES = {
    "accept_changed_files": ("--accept-changed-files", "accept_changed_files=True"),
    "accept_new_bits": ("--accept-new-bits", "accept_new_bits=True"),
    "at": ("--at N", ""),
    "env": ("--env {}", ""),
    "evaluate": ("hpo eval", "hpo.load_policy(...)"),
    "export": ("hpo export {} STUDY --to STORAGE", ""),
    "flags": ("-- {}", ""),
    "imports": ("hpo init and hpo eval: --import {}", ""),
    "init": ("hpo init {}", ""),
    "knobs": ("all: hpo knobs", ""),
    "name": ("--set name={}", ""),
    "new": ("--new", "new=True"),
    "out": ("--out {}", "out="),
    "policy_imports": ("hpo eval {}", "hpo.load_policy(folder, imports=True)"),
    "reader": ("hpo import {}", ""),
    "reuse": (
        "--new --set search.warm_start.study={}, which reuses its trials",
        "new=True and search: {{warm_start: {{study: {}}}}}, which reuses its trials",
    ),
    "run": ("hpo run {}", 'hpo.run("{}")'),
    "setting": ("--set {}", ""),
    "source": ("--source {}", ""),
    "stop": ("hpo stop {}", ""),
    "study": ("--study NAME", "study="),
    "timeout": ("--timeout {}; 0 means no limit", ""),
    "trial": ("hpo show {}", ""),
    "trials": ("to list them: hpo top {}", ""),
    "tuned": ("scripts/tuned add STUDY", ""),
    "without": ("-- {}", ""),
}
"""Name in `HpoError.remedies` -> text for the command line and for Python, or ""."""


def on_command_line(error: HpoError) -> str:
    """Return an error with its remedies as command-line options.

    >>> on_command_line(HpoError("results/a has a study already; start another", new=True))
    'results/a has a study already; start another (--new)'
    """
    return _with_words(error, 0)


def in_python(error: HpoError) -> str:
    """Return an error with its remedies as Python arguments.

    >>> in_python(HpoError("results/a has a study already; start another", new=True))
    'results/a has a study already; start another (new=True)'
    """
    return _with_words(error, 1)


@contextmanager
def speaks_python() -> Iterator[None]:
    try:
        yield
    except HpoError as error:
        error.args = (in_python(error), *error.args[1:])
        error.remedies = {}
        raise


def _with_words(error: HpoError, column: int) -> str:
    found = [
        words.format(value_text(value))
        for name, value in error.remedies.items()
        if (words := REMEDIES[name][column])
    ]
    if not found:
        return str(error)
    first, newline, rest = str(error).partition("\n")
    bare = first.removesuffix(":")
    return f"{bare} ({' or '.join(found)}){first[len(bare) :]}{newline}{rest}"


def value_text(value: Any) -> str:
    import shlex  # here: `hpo --help` starts faster

    if isinstance(value, list):
        return " ".join(value_text(part) for part in value)
    if isinstance(value, Mapping):
        return " ".join(f"--{name} {one}" for name, one in value.items())
    if isinstance(value, PathLike):
        return shlex.quote(str(value))
    if isinstance(value, tuple):
        folder, files = value
        return " ".join([shlex.quote(str(folder)), *(f"--import {shlex.quote(f)}" for f in files)])
    return str(value)
