"""Command lines and flag files: words to a mapping of flag to value."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from ...errors import ConfigError

__all__ = ["flags_of", "words_of"]

_FLAG = re.compile(r"--?([A-Za-z][A-Za-z0-9_.-]*)(?:=(.*))?", re.DOTALL)
_FILE = "flagfile"
_DEEPEST = 8


def words_of(text: str) -> list[str]:
    """Split a flag file or a command line, comments and line continuations taken away.

    Raises:
        ConfigError: a quotation is not closed.
    """
    try:
        return shlex.split(text.replace("\\\n", " "), comments=True)
    except ValueError as error:
        raise ConfigError(f"cannot be split into words: {error}") from None


def flags_of(
    words: Sequence[str], folder: Path | None = None, depth: int = 0
) -> dict[str, str | bool]:
    """Return flag -> value; a flag without one is true, `--noflag` is kept as it stands.

    Words before the first flag (a program, its interpreter, `-m` and a module) are passed over.
    The flags of a `--flagfile` stand in its place; later ones override them.

    Args:
        words: of the command, or of a flag file.
        folder: where flag files are looked for, beside the working directory; None refuses them.
        depth: how many flag files lead here.

    Raises:
        ConfigError: a word stands where a flag should, or a flag file cannot be read.

    >>> flags_of(["python", "-m", "train", "--LR=3e-4", "--k", "5", "--WANDB"])
    {'LR': '3e-4', 'k': '5', 'WANDB': True}
    """
    found: dict[str, str | bool] = {}
    waiting: str | None = None
    for word in _behind_the_program(words):
        match = _FLAG.fullmatch(word)
        if match is None:
            if waiting is not None:
                _put(found, waiting, word, folder, depth)
                waiting = None
            elif found:
                raise ConfigError(f"{word!r} is no flag; flags look like --name=value")
            continue
        name, value = match[1].replace("-", "_"), match[2]
        if name == _FILE and value is None:
            waiting = name
            continue
        _put(found, name, True if value is None else value, folder, depth)
        waiting = name if value is None else None
    if waiting == _FILE:
        raise ConfigError("--flagfile names no file")
    return found


def _behind_the_program(words: Sequence[str]) -> Sequence[str]:
    """Return what follows the program: `uv run python -m package.module`, or a path."""
    for index, word in enumerate(words):
        if word == "-m" and index + 1 < len(words):
            return words[index + 2 :]
        if word.startswith("--") or word.endswith(".py"):
            return words[index:]
    return words


def _put(
    found: dict[str, str | bool], name: str, value: str | bool, folder: Path | None, depth: int
) -> None:
    if name != _FILE:
        found.pop(name, None)  # what is given last stands last
        found[name] = value
        return
    for flag, given in _flags_in(str(value), folder, depth).items():
        found.pop(flag, None)
        found[flag] = given


def _flags_in(file: str, folder: Path | None, depth: int) -> dict[str, str | bool]:
    if folder is None:
        raise ConfigError(f"--flagfile names another file, {file!r}; give that one instead")
    if depth >= _DEEPEST:
        raise ConfigError(f"--flagfile={file}: flag files that name flag files without end")
    places = [folder / file, Path(file)]
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        raise ConfigError(f"--flagfile={file}: no such file beside the command, nor here")
    try:
        words = words_of(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise ConfigError(f"--flagfile={file}: no text in UTF-8") from None
    return flags_of(words, path.parent, depth + 1)
