"""Copies of the results for other tools; none of them can stop a study.

A sink is told whenever the tables were published and reads them; what it raises is said once,
and from then on the sink is left alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ..files import atomic_files
from .codec import strict_json


class Sink(Protocol):
    """A copy of the results, made from the published tables."""

    name: str

    def published(self, directory: Path) -> None:
        """The tables in this study's folder are new."""
        ...

    def close(self) -> None:
        """The study's process ends."""
        ...


class Sinks:
    """Several sinks, each shut off after its first failure.

    Args:
        sinks: to feed.
        warn: takes one line of text about a sink that failed.
    """

    def __init__(self, sinks: Sequence[Sink], warn: Callable[[str], None] = lambda text: None):
        self._sinks, self._warn = list(sinks), warn

    def published(self, directory: Path) -> None:
        """Feed all sinks."""
        self._each(lambda sink: sink.published(directory))

    def close(self) -> None:
        """Close all sinks; a second call does nothing."""
        self._each(lambda sink: sink.close())
        self._sinks = []

    def _each(self, act: Callable[[Sink], None]) -> None:
        for sink in list(self._sinks):
            try:
                act(sink)
            except Exception as error:  # a logger is never worth a study
                self._sinks.remove(sink)
                self._warn(
                    f"the {sink.name} logger failed and is off from here on; the study and its "
                    f"tables are unharmed: {type(error).__name__}: {error}"
                )


PATIENCE_SECONDS = 60.0


class Background:
    """Runs a sink in a thread; itself a sink. What the other raises comes out at the next call.

    Args:
        sink: the one that works.
        warn: takes a line when the sink falls behind or does not end.
        patience_seconds: how long `close` waits for the sink to write what is left.

    Attributes:
        name: of the sink.
        skipped: publications that the sink saw only together with a later one.
    """

    def __init__(
        self,
        sink: Sink,
        warn: Callable[[str], None] = lambda text: None,
        patience_seconds: float = PATIENCE_SECONDS,
    ):
        self.name, self.skipped = sink.name, 0
        self._sink, self._warn, self._patience = sink, warn, patience_seconds
        self._changed = threading.Condition()
        self._waiting: Path | None = None
        self._closing = False
        self._error: Exception | None = None
        self._thread: threading.Thread | None = None

    def published(self, directory: Path) -> None:
        """Leave a notice and return at once.

        Raises:
            Exception: what the sink raised since the last call.
        """
        with self._changed:
            self._raise()
            behind = self._waiting is not None
            self._waiting = directory
            self._changed.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self.name, daemon=True)
            self._thread.start()
        if behind:
            self.skipped += 1
        if behind and self.skipped == 1:
            self._warn(
                f"the {self.name} logger is slower than the study: it takes several publications "
                "together from here on, and loses nothing by it"
            )

    def close(self) -> None:
        """Wait for what is left, but not for ever; a second call does nothing.

        Raises:
            Exception: what the sink raised since the last call.
        """
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread is None:
            return
        self._thread.join(self._patience)
        if self._thread.is_alive():
            self._warn(
                f"the {self.name} logger was still busy after {self._patience:g} s and was left; "
                f"export the study to {self.name} to get the rest"
            )
        self._thread = None
        self._raise()

    def _raise(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _work(self) -> None:
        """Serve notices until closed; end at the first error."""
        try:
            while (directory := self._next()) is not None:
                self._sink.published(directory)
            self._sink.close()
        except Exception as error:  # told by the study's thread, at its next call
            self._error = error

    def _next(self) -> Path | None:
        """Wait for a notice; None once closed and nothing waits."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting is not None or self._closing)
            directory, self._waiting = self._waiting, None
            return directory


if TYPE_CHECKING:  # loaded on use: pyarrow costs 0.15 s
    import pyarrow as pa


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
        with atomic_files.replacing(target) as partial, csv.CSVWriter(partial, schema) as writer:
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
