"""Restores the working folder after user code, which may change it."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def same_working_folder() -> Generator[None]:
    """Restore the working folder at the end, in case the code in the block has changed it.

    Configuration libraries change it on startup. Paths such as `results/` are relative to the
    folder where the command was typed.
    """
    before = os.getcwd()
    try:
        yield
    finally:
        if not _is_here(before):
            os.chdir(before)


def _is_here(folder: str) -> bool:
    try:
        return os.getcwd() == folder
    except FileNotFoundError:  # it was deleted
        return False


def as_given(given: Path, absolute: Path) -> Path:
    """Return a path as it was given, or its absolute form if the working folder has changed."""
    try:
        return given if given.absolute() == absolute else absolute
    except FileNotFoundError:
        return absolute
