"""Command lines and flag files: words to a mapping of flag to value."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from ...errors import ConfigError

__all__ = ["flags_of", "words_of"]

_FLAG = re.compile(r"--?([A-Za-z][A-Za-z0-9_.-]*)(?:=(.*))?", re.DOTALL)
_FILE_KEYS = ("flagfile",)


def words_of(text: str) -> list[str]:
    """Split a flag file or a command line, comments and line continuations taken away.

    Raises:
        ConfigError: a quotation is not closed.
    """
    try:
        return shlex.split(text.replace("\\\n", " "), comments=True)
    except ValueError as error:
        raise ConfigError(f"cannot be split into words: {error}") from None


def flags_of(words: Sequence[str]) -> dict[str, str | bool]:
    """Give flag -> value; a flag without one is true, `--noflag` is kept as it stands.

    Words before the first flag (a program, its interpreter) are passed over.

    Raises:
        ConfigError: a word stands where a flag should, or a flag refers to another file.

    >>> flags_of(["python", "train.py", "--LR=3e-4", "--k", "5", "--WANDB"])
    {'LR': '3e-4', 'k': '5', 'WANDB': True}
    """
    found: dict[str, str | bool] = {}
    waiting: str | None = None
    for word in words:
        match = _FLAG.fullmatch(word)
        if match is None:
            if waiting is not None:
                found[waiting], waiting = word, None
            elif found:
                raise ConfigError(f"{word!r} is no flag; flags look like --name=value")
            continue
        name, value = match[1].replace("-", "_"), match[2]
        if name in _FILE_KEYS:
            raise ConfigError(f"--{name} names another file; give that one instead")
        found[name] = True if value is None else value
        waiting = name if value is None else None
    return found
