"""Output for programs: one JSON document on stdout, tables as CSV files."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from ..files.atomic_files import output
from .escape_control import echo

if TYPE_CHECKING:
    import numpy as np


def print_json(data: Any) -> None:
    echo(json.dumps(data, indent=2, allow_nan=False))


def print_json_line(data: Mapping[str, Any]) -> None:
    """Print one JSON document as one line, at once; numbers that are not finite become null."""
    echo(json.dumps(_finite(data), allow_nan=False), flush=True)


def _finite(data: Any) -> Any:
    if isinstance(data, Mapping):
        return {str(name): _finite(value) for name, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    return finite_or_none(data) if isinstance(data, float) else data


def print_answer(as_json: bool, data: Any, text: str, file: TextIO | None = None) -> None:
    if as_json:
        print_json(data)
    else:
        echo(text, file=file)


def finite_or_none(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def write_csv(path: str, columns: Mapping[str, np.ndarray]) -> None:
    with output(Path(path)) as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        rows = zip(*(column.tolist() for column in columns.values()), strict=True)
        writer.writerows(map(_cell, row) for row in rows)


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return int(value)
    return f"{value:.9g}" if isinstance(value, float) else value
