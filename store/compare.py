"""Whether two studies left the same tables: every row, every float to its last bit.

Columns that tell the time (`_seconds`, `_per_second`, `_at`) are left out; all others must be
equal after any interruption, which is what crash tests check with this.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..plain_data import is_list
from .tables import TABLES

if TYPE_CHECKING:  # loaded on use: pyarrow costs 0.15 s
    import numpy as np
    import pyarrow as pa

__all__ = ["tables_equal"]

_KEYS = {
    "trials": ("trial",),
    "evaluations": ("trial", "stream", "replicate", "env_steps", "episode"),
    "curves": ("trial", "stream", "replicate", "env_steps"),
}
_ENVIRONMENT = {"evaluations": ("environment",), "curves": ("environment",)}
_SHOWN = 3
_TIMES = ("_seconds", "_per_second", "_at")


def tables_equal(directory_a: Path, directory_b: Path) -> list[str]:
    """The differences between two studies' published tables; an empty list when there are none.

    Rows are matched by key, whatever their order. NaN equals NaN; 0.0 and -0.0 differ.
    """
    import pyarrow.parquet as pq

    differences: list[str] = []
    for name in TABLES:
        paths = [Path(folder) / f"{name}.parquet" for folder in (directory_a, directory_b)]
        if missing := [str(path) for path in paths if not path.is_file()]:
            differences.append(f"{name}: missing {' and '.join(missing)}")
            continue
        first, second = (_timeless(pq.ParquetFile(path).read()) for path in paths)
        more = tuple(key for key in _ENVIRONMENT.get(name, ()) if key in first.column_names)
        keys = (*_KEYS[name], *more)
        differences += [f"{name}: {text}" for text in _differences(first, second, keys)]
    return differences


def _timeless(table: pa.Table) -> pa.Table:
    kept = [name for name in table.column_names if not name.endswith(_TIMES)]
    return table.select(kept)


def _differences(first: pa.Table, second: pa.Table, keys: tuple[str, ...]) -> list[str]:
    if first.schema != second.schema:
        fields = [{f"{field.name} {field.type}" for field in t.schema} for t in (first, second)]
        return [f"columns differ: {sorted(fields[0] ^ fields[1]) or 'in their order'}"]
    if first.num_rows != second.num_rows:
        return [f"{first.num_rows} rows and {second.num_rows} rows"]
    order = [(name, "ascending") for name in keys]
    first, second = first.sort_by(order), second.sort_by(order)
    found: list[str] = []
    for name in first.column_names:
        rows = _unequal_rows(first[name], second[name])
        for row in rows[:_SHOWN]:
            key = ", ".join(f"{key} {first[key][row].as_py()}" for key in keys)
            values = (repr(table[name][row].as_py()) for table in (first, second))
            found.append(f"{name} at {key}: {' and '.join(values)}")
        if len(rows) > _SHOWN:
            found.append(f"{name}: {len(rows) - _SHOWN} more rows differ")
    return found


def _unequal_rows(first: pa.ChunkedArray, second: pa.ChunkedArray) -> list[int]:
    """Indices of the rows in which two columns of equal type differ."""
    import numpy as np
    import pyarrow as pa

    if pa.types.is_floating(first.type):
        (values_a, known_a), (values_b, known_b) = _bits(first), _bits(second)
        return np.flatnonzero((known_a != known_b) | (values_a != values_b)).tolist()
    pairs = zip(map(_exact, first.to_pylist()), map(_exact, second.to_pylist()), strict=True)
    return [row for row, (a, b) in enumerate(pairs) if a != b]


def _bits(column: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """The bits of a column's floats as integers, all NaNs alike and nulls as 0; what is known."""
    import numpy as np

    known = column.is_valid().to_numpy()
    values = column.fill_null(0.0).to_numpy().copy()
    values[np.isnan(values)] = np.nan
    return values.view(np.int64), known


def _exact(value: Any) -> Any:
    """A cell in a form whose equality is that of bits: floats by their hexadecimal text."""
    if isinstance(value, float):
        return value.hex()
    return [_exact(item) for item in value] if is_list(value) else value
