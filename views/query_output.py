"""What `hpo query` prints: CSV, JSON or a table, of results that need not fit into memory.

A piece of the rows is in memory at a time. A table's columns are as wide as their widest cell, so
that its cells wait in a temporary file until all are known.
"""

from __future__ import annotations

import csv
import io
import json
import pickle
import tempfile
from collections.abc import Iterator
from typing import IO, Any

from ..errors import StoreError
from ..store.query import CELLS, Rows, rows_as_json
from .formatting import aligned_line

__all__ = ["csv_pieces", "json_pieces", "table_pieces"]

_IN_MEMORY = 8_000_000  # bytes of a table


def csv_pieces(rows: Rows) -> Iterator[str]:
    """Yield a result as CSV with a header; missing is empty, lists are JSON."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(rows.columns)
    for some in rows:
        writer.writerows([_csv_cell(value) for value in row] for row in some)
        yield out.getvalue()
        out.seek(0)
        out.truncate()
    yield out.getvalue()


def json_pieces(rows: Rows) -> Iterator[str]:
    """Yield a result as one JSON list, an object a row."""
    before = "[\n"
    for some in rows:
        text = json.dumps(rows_as_json(rows.columns, some), indent=2, allow_nan=False)
        yield before + text.removeprefix("[\n").removesuffix("\n]")
        before = ",\n"
    yield "[]\n" if before == "[\n" else "\n]\n"


def table_pieces(rows: Rows) -> Iterator[str]:
    """Yield a result as a table; numbers to the right.

    Raises:
        StoreError: it has more cells than anybody reads.
    """
    header = [name or "?" for name in rows.columns]
    widths, right, count = [len(name) for name in header], [True] * len(header), 0
    with tempfile.SpooledTemporaryFile(_IN_MEMORY) as waiting:
        for some in rows:
            count += len(some)
            if count * len(header) > CELLS:
                raise StoreError(
                    f"the table has more than {CELLS:,} cells; aggregate, add LIMIT 1000, or take "
                    "--csv or --json, which may have any number"
                )
            cells = [[_cell(value) for value in row] for row in some]
            for place, column in enumerate(zip(*cells, strict=True)):
                widths[place] = max(widths[place], *map(len, column))
                right[place] = right[place] and all(map(_goes_right, (r[place] for r in some)))
            pickle.dump(cells, waiting)
        rule = ["-" * width for width in widths]
        yield "".join(f"{aligned_line(line, widths, right)}\n" for line in (header, rule))
        waiting.seek(0)
        for cells in _unpickled(waiting):
            yield "".join(f"{aligned_line(line, widths, right)}\n" for line in cells)


def _unpickled(file: IO[bytes]) -> Iterator[list[list[str]]]:
    while True:
        try:
            yield pickle.load(file)
        except EOFError:
            return


def _goes_right(value: Any) -> bool:
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_cell, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {_cell(item)}' for key, item in value.items())}}}"
    # One row is one line, and no text of a study may steer the terminal.
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(value))


def _csv_cell(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple, dict)):
        return json.dumps(rows_as_json(["cell"], [(value,)])[0]["cell"])
    return value
