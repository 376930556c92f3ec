"""Sinks: copies of the results for other tools; a failing sink cannot stop a study.

A sink reads the tables after each publication. Its first error becomes a warning, and the sink is
then dropped.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from ..errors import ignore
from ..files import atomic_files
from .codec import strict_json
from .libraries import csv, pa, pq


class Sink(Protocol):
    """Writes a copy of the results, based on the published tables."""

    name: str

    def published(self, directory: Path) -> None:
        """Read the new tables in this study's folder."""
        ...

    def close(self) -> None:
        """Close the sink when the study's process ends."""
        ...


class Sinks:
    """Several sinks; each is dropped after its first failure, which is reported to `warn`."""

    def __init__(self, sinks: Sequence[Sink], warn: Callable[[str], None] = ignore):
        self._sinks, self._warn = list(sinks), warn

    def published(self, directory: Path) -> None:
        self._call_sinks(lambda sink: sink.published(directory))

    def close(self) -> None:
        self._call_sinks(lambda sink: sink.close())
        self._sinks = []

    def _call_sinks(self, act: Callable[[Sink], None]) -> None:
        for sink in list(self._sinks):
            try:
                act(sink)
            except Exception as error:  # a logger must not stop a study
                self._sinks.remove(sink)
                self._warn(
                    f"the {sink.name} logger failed and is now off; the study and its tables "
                    f"are not affected: {type(error).__name__}: {error}"
                )


class Background:
    """A sink that runs another sink in a thread, and raises its errors at the next call.

    If the sink is slower than the study, it receives several publications together; none is lost.
    """

    def __init__(
        self,
        sink: Sink,
        warn: Callable[[str], None] = ignore,
        patience_seconds: float = 60.0,
    ):
        self.name = sink.name
        self._sink, self._warn, self._patience = sink, warn, patience_seconds
        self._changed = threading.Condition()
        self._waiting: Path | None = None
        self._closing = False
        self._error: Exception | None = None
        self._thread: threading.Thread | None = None

    def published(self, directory: Path) -> None:
        """Notify the thread and return at once."""
        with self._changed:
            self._raise_kept()
            self._waiting = directory
            self._changed.notify()
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._publish_waiting, name=self.name, daemon=True
            )
            self._thread.start()

    def close(self) -> None:
        """Wait for the remaining work, with a time limit; a second call does nothing."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread is None:
            return
        self._thread.join(self._patience)
        if self._thread.is_alive():
            self._warn(
                f"the {self.name} logger was still busy after {self._patience:g} s, and was "
                f"abandoned; export the study to {self.name} to upload the rest"
            )
        self._thread = None
        self._raise_kept()

    def _raise_kept(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _publish_waiting(self) -> None:
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._waiting is not None or self._closing)
                    directory, self._waiting = self._waiting, None
                if directory is None:
                    break
                self._sink.published(directory)
            self._sink.close()
        except Exception as error:  # raised in the study's thread, at its next call
            self._error = error


class CsvSink:
    """Writes CSV copies of tables to a folder; None means the study's folder."""

    name = "csv"

    def __init__(self, target: Path | None = None, tables: Sequence[str] = ("trials", "curves")):
        self._target, self._tables = target, tuple(tables)

    def published(self, directory: Path) -> None:
        for table in self._tables:
            _copy_as_csv(
                directory / f"{table}.parquet", (self._target or directory) / f"{table}.csv"
            )

    def close(self) -> None:
        pass  # nothing is open between two publications


def _copy_as_csv(source: Path, target: Path) -> None:
    with pq.ParquetFile(source) as file:
        lists = {f.name for f in file.schema_arrow if pa.types.is_list(f.type)}
        kinds = ((f.name, pa.string() if f.name in lists else f.type) for f in file.schema_arrow)
        schema = pa.schema(list(kinds))
        with atomic_files.replacing(target) as partial, csv.CSVWriter(partial, schema) as writer:
            for batch in file.iter_batches():
                table = pa.Table.from_batches([batch])
                columns = [
                    pa.array(map(strict_json, table[name].to_pylist()), pa.string())
                    if name in lists
                    else table[name]
                    for name in schema.names
                ]
                writer.write_table(pa.table(columns, schema=schema))
