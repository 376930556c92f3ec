"""Output of commands: text with visible control characters, JSON, CSV files.

Names and messages can come from untrusted study files, journals and imported files. An escape
sequence in them could rename a window, hide a line or type into a shell. Output printed by user
code itself is not changed.
"""

from __future__ import annotations

import math
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    import numpy as np

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Control characters except tab and line feed, and those that change the direction of text."""


def shown(text: str) -> str:
    r"""Make the control characters in a string visible.

    >>> print(shown("a\x1b[2Jc"))
    a\x1b[2Jc
    """
    return _CONTROL.sub(lambda found: ascii(found.group())[1:-1], text)


def echo(
    text: object = "", *, file: TextIO | None = None, end: str = "\n", flush: bool = False
) -> None:
    """Print text, escaped on stderr and terminals, but raw to a pipe or file on stdout."""
    stream = file or sys.stdout
    if stream is None:  # there is no terminal, as with pythonw
        return
    if stream is sys.stderr or stream.isatty():
        text = shown(str(text))
    print(text, file=stream, end=end, flush=flush)


def discard(descriptor: int) -> None:
    """Discard everything that is written to a file descriptor from now on."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def note(text: str) -> None:
    echo(text, file=sys.stderr)


def to_stderr(text: str) -> None:
    echo(f"warning: {text}", file=sys.stderr)


@contextmanager
def plain_warnings(say: Callable[[str], None] = to_stderr) -> Iterator[None]:
    """Print each Python `UserWarning` once, as one line without the file name and source code."""
    printed: set[str] = set()
    with warnings.catch_warnings():
        original = warnings.showwarning

        def show(message: Any, category: type[Warning], *rest: Any) -> None:
            text = " ".join(str(message).split())
            if not issubclass(category, UserWarning):
                original(message, category, *rest)
            elif text not in printed:
                printed.add(text)
                say(text)

        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield


def print_json(data: Any) -> None:
    import json  # imported late so that `hpo --help` starts faster

    echo(json.dumps(data, indent=2, allow_nan=False))


def print_json_line(data: Mapping[str, Any]) -> None:
    """Print one JSON document as one line, flushed; non-finite numbers become null."""
    import json

    echo(json.dumps(_finite_data(data), allow_nan=False), flush=True)


def _finite_data(data: Any) -> Any:
    if isinstance(data, Mapping):
        return {str(name): _finite_data(value) for name, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite_data(value) for value in data]
    if isinstance(data, float):
        return finite_or_none(data)
    return data


def print_answer(as_json: bool, data: Any, text: str, file: TextIO | None = None) -> None:
    if as_json:
        print_json(data)
    else:
        echo(text, file=file)


def finite_or_none(value: float | None) -> float | None:
    if value is None or not math.isfinite(value):
        return None
    return value


def write_csv(path: str, columns: Mapping[str, np.ndarray]) -> None:
    import csv
    from pathlib import Path

    from ..files.atomic_files import output

    with output(Path(path)) as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        rows = zip(*(column.tolist() for column in columns.values()), strict=True)
        writer.writerows(map(_csv_cell, row) for row in rows)


def _csv_cell(value: Any) -> Any:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float):
        return f"{value:.9g}"
    return value
