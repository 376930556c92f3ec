"""A study file, or the words `tuned:ENV` in the place of one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..load import load, loads
from ..spec import Study
from .catalogue import PREFIX, find_record
from .study_text import train_text

__all__ = ["load_given"]


def load_given(
    file: str, overrides: Sequence[str] = (), name: str | None = None
) -> tuple[Study, str]:
    """Return a study and its text: of a file, or the one that trains a tuned configuration.

    Raises:
        StudyError: with every mistake in the file.
        UnknownNameError: there is no such tuned configuration.
    """
    if not file.startswith(PREFIX):
        return load(file, overrides, name), Path(file).read_text(encoding="utf-8")
    text = train_text(find_record(file.removeprefix(PREFIX)))
    return loads(text, file, ".", overrides, name), text
