"""The CSV logger: `trials.csv` and `curves.csv` beside the Parquet tables, with equal content.

They are rewritten from the tables and not appended to, so that they too are equal after any
interruption; lists become JSON text, a missing value is an empty cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .. import disk
from .codec import strict_json

if TYPE_CHECKING:  # loaded on use: pyarrow costs 0.15 s
    import pyarrow as pa

__all__ = ["CsvSink"]


class CsvSink:
    """Writes the CSV copies; see `store.sinks.Sink`."""

    name = "csv"

    def __init__(self, target: Path | None = None, tables: Sequence[str] = ("trials", "curves")):
        """Choose the folder to write into (None is the study's) and the tables to copy."""
        self._target, self._tables = target, tuple(tables)

    def published(self, directory: Path) -> None:
        """Rewrite the files, each whole or not at all."""
        for table in self._tables:
            _copy(directory / f"{table}.parquet", (self._target or directory) / f"{table}.csv")

    def close(self) -> None:
        """Nothing is open between two publications."""


def _copy(source: Path, target: Path) -> None:
    import pyarrow as pa
    import pyarrow.csv as csv
    import pyarrow.parquet as pq

    with pq.ParquetFile(source) as file:
        schema = pa.schema([(field.name, _flat_type(field.type)) for field in file.schema_arrow])
        with disk.replacing(target) as partial, csv.CSVWriter(partial, schema) as writer:
            for batch in file.iter_batches():
                writer.write_table(_flat(pa.Table.from_batches([batch]), schema))


def _flat_type(type_: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    return pa.string() if pa.types.is_list(type_) else type_


def _flat(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with its lists as JSON text."""
    import pyarrow as pa

    columns = [
        pa.array(map(strict_json, table[name].to_pylist()), pa.string())
        if pa.types.is_list(table[name].type)
        else table[name]
        for name in table.column_names
    ]
    return pa.table(columns, schema=schema)
