"""Parquet files: written atomically, small, and identical for equal rows.

Floats are split into byte streams before compression. On training curves this is four times as
fast as the default dictionary, and takes half the space.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import StoreError, not_as_written
from ..files import atomic_files
from .libraries import np, pa, pc, pq
from .rows import Part, Stream, is_part_name

PARTS_NAME = "parts"
KEY_COLUMNS = ("trial", "stream", "replicate", "env_steps")
# prefix of metric columns in a part, so that a metric may be called `trial`
METRIC_PREFIX = "metric:"

GROUP_ROWS = 131_072  # rows per row group; fixed, so that equal rows give equal bytes
BUFFER_ROWS = 250_000  # about 35 MB with 15 metrics; a full buffer is written before the commit
MERGE_PARTS = 32  # so many adjacent parts of one level are merged into one of the next level
MERGE_LEVELS = 2
MERGE_ROWS = 4_000_000  # limits a merge between two chunks to a second or two
_BATCH_ROWS = 65_536


def open_writer(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    floats = [field.name for field in schema if pa.types.is_floating(field.type)]
    others = [field.name for field in schema if pa.types.is_primitive(field.type)]
    others += [field.name for field in schema if pa.types.is_string(field.type)]
    encodings: dict[str, Any] = {  # pyarrow's stubs accept flags here, but not lists
        "use_dictionary": [name for name in others if name not in floats] or False,
        "use_byte_stream_split": floats or False,
    }
    return pq.ParquetWriter(path, schema, compression="zstd", compression_level=1, **encodings)


@contextmanager
def replacing(path: Path, schema: pa.Schema) -> Generator[pq.ParquetWriter]:
    """Yield a writer for a temporary file that replaces `path` at the end.

    The temporary name does not end in `.parquet`, so that readers' globs skip it.
    """
    with atomic_files.replacing(path) as partial, open_writer(partial, schema) as writer:
        yield writer


def write_table(path: Path, table: pa.Table) -> None:
    with replacing(path, table.schema) as writer:
        writer.write_table(table)


def write_grouped(writer: pq.ParquetWriter, tables: Iterable[pa.Table]) -> None:
    waiting: list[pa.Table] = []
    rows = 0
    for table in tables:
        waiting.append(table)
        rows += table.num_rows
        while rows >= GROUP_ROWS:
            joined = pa.concat_tables(waiting)
            writer.write_table(joined.slice(0, GROUP_ROWS), row_group_size=GROUP_ROWS)
            waiting, rows = [joined.slice(GROUP_ROWS)], rows - GROUP_ROWS
    if rows:
        writer.write_table(pa.concat_tables(waiting), row_group_size=GROUP_ROWS)


class CurveParts:
    """One study's curve parts, for its writer; `live` lists the last commit's parts in order."""

    def __init__(self, directory: Path, live: Sequence[Part]):
        self.directory = Path(directory) / PARTS_NAME
        atomic_files.make_folder(self.directory)
        self.live = list(live)
        self._buffer: list[pa.Table] = []
        self._buffered = 0
        self._pending: list[Part] = []  # written, but not yet listed
        self._merged: list[str] = []  # merged, but not yet removed from the list
        self._number = max((int(Path(part.name).stem) for part in live), default=0)
        for part in self.live:
            _verify_part(self.directory / part.name, part)
        listed = {part.name for part in self.live}
        # Only now, when every file listed in the journal is known to exist.
        for path in self.directory.iterdir():
            name = path.name.removesuffix(atomic_files.PARTIAL)
            if path.name not in listed and is_part_name(name):
                atomic_files.delete_file(path)

    @property
    def rows(self) -> int:
        parts = sum(part.rows for part in (*self.live, *self._pending))
        merged = sum(part.rows for part in self.live if part.name in self._merged)
        return parts - merged + self._buffered

    def add_chunk(
        self,
        trials: Sequence[int],
        streams: Sequence[Stream],
        replicates: Sequence[int],
        env_steps: Sequence[int],
        metrics: Mapping[str, np.ndarray | Sequence[float]],
    ) -> None:
        if not len(trials):
            return
        try:
            keys = zip(
                _key_fields(), (trials, map(str, streams), replicates, env_steps), strict=True
            )
            columns = {key.name: pa.array(values, key.type) for key, values in keys}
            for name in sorted(metrics):
                columns[METRIC_PREFIX + name] = pa.array(metrics[name], pa.float64())
            table = pa.table(columns)
        except (pa.ArrowException, TypeError, OverflowError) as error:
            raise StoreError(f"curve rows need one number per metric: {error}") from error
        self._buffer.append(table)
        self._buffered += table.num_rows
        if self._buffered >= BUFFER_ROWS:
            self._write_buffer()

    def _write_buffer(self) -> None:
        if not self._buffer:
            return
        table = pa.concat_tables(self._buffer, promote_options="default")
        ends = (part.first + part.rows for part in (*self.live, *self._pending))
        # after `drop`, there are gaps between parts
        first = max(self.rows - self._buffered, *ends, 0)
        part = self._write_part([table], table.schema, first, level=0)
        self._pending.append(part)
        self._buffer, self._buffered = [], 0  # only now: a full disk must not lose rows

    def _write_part(
        self, tables: Iterable[pa.Table], schema: pa.Schema, first: int, level: int
    ) -> Part:
        self._number += 1
        path = self.directory / f"{self._number:06d}.parquet"
        rows = 0
        with atomic_files.telling(path):
            atomic_files.delete_file(path)  # left by a failed commit
            with open_writer(path, schema) as writer:
                for table in tables:
                    writer.write_table(table)
                    rows += table.num_rows
            atomic_files.sync(path)
        return Part(path.name, atomic_files.sha256_of(path), rows, first, level)

    def reached(self, without: Stream) -> dict[tuple[int, str, int], int]:
        """Return the last env steps of each committed curve, by (trial, stream, replicate)."""
        found: dict[tuple[int, str, int], int] = {}
        wanted = pc.field("stream") != str(without)  # skips whole row groups
        for part in self.live:
            table = pq.read_table(
                self.directory / part.name, columns=list(KEY_COLUMNS), filters=wanted
            )
            columns = (table[name].to_pylist() for name in KEY_COLUMNS)
            for trial, stream, replicate, env_steps in zip(*columns, strict=True):
                key = (trial, stream, replicate)
                found[key] = max(env_steps, found.get(key, 0))
        return found

    def drop(self, trials: Collection[int]) -> None:
        """Remove the rows of some trials: parts that contain any are rewritten without them."""
        numbers = list(trials)
        unwanted = pc.field("trial").isin(numbers)
        for part in self.live:
            path = self.directory / part.name
            if part.name in self._merged:
                continue
            if not pq.read_table(path, columns=["trial"], filters=unwanted).num_rows:
                continue
            schema = unified_schema(self.directory, [part])
            tables = part_batches(self.directory, [part], schema)
            rests = (table.filter(_other_trials_filter(table, numbers)) for table in tables)
            kept = [rest for rest in rests if rest.num_rows]
            self._merged.append(part.name)
            if kept:
                self._pending.append(self._write_part(kept, schema, part.first, part.level))

    def flush(self) -> tuple[list[Part], list[str]]:
        """Write the buffer; return the parts that the next commit must add and remove."""
        self._write_buffer()
        for level in range(MERGE_LEVELS):
            self._merge_level(level)
        if self._pending:
            with atomic_files.telling(self.directory):
                atomic_files.sync(self.directory)
        return list(self._pending), list(self._merged)

    def _merge_level(self, level: int) -> None:
        now = [part for part in (*self.live, *self._pending) if part.name not in self._merged]
        run = [part for part in now if part.level == level]
        if len(run) < MERGE_PARTS or sum(part.rows for part in run) > MERGE_ROWS:
            return
        schema = unified_schema(self.directory, run)
        tables = part_batches(self.directory, run, schema)
        merged = self._write_part(tables, schema, run[0].first, level + 1)
        names = {part.name for part in run}
        for name in names & {part.name for part in self._pending}:
            atomic_files.delete_file(self.directory / name)  # never listed, so no commit needs it
        self._merged += sorted(names & {part.name for part in self.live})
        self._pending = [part for part in self._pending if part.name not in names]
        self._pending.append(merged)

    def committed(self) -> None:
        """Delete merged files, once the commit with the parts of `flush` is on disk."""
        gone = set(self._merged)
        kept = [part for part in self.live if part.name not in gone]
        self.live = sorted([*kept, *self._pending], key=lambda part: part.first)
        self._pending, self._merged = [], []
        for name in gone:
            atomic_files.delete_file(self.directory / name)


def _other_trials_filter(table: pa.Table, trials: Sequence[int]) -> pc.Expression:
    """Return a filter for a table's rows of all trials except `trials`."""
    found = {int(trial) for trial in table["trial"].to_pylist()}
    return pc.field("trial").isin(sorted(found - set(trials)))


def unified_schema(directory: Path, parts: Sequence[Part]) -> pa.Schema:
    fields = {
        field.name: field for part in parts for field in pq.read_schema(directory / part.name)
    }
    metrics = sorted(name for name in fields if name not in KEY_COLUMNS)
    return pa.schema(_key_fields() + [fields[name] for name in metrics])


def _key_fields() -> list[pa.Field]:
    kinds = (pa.int64(), pa.string(), pa.int64(), pa.int64())
    return [pa.field(name, kind) for name, kind in zip(KEY_COLUMNS, kinds, strict=True)]


def part_batches(directory: Path, parts: Sequence[Part], schema: pa.Schema) -> Iterator[pa.Table]:
    for part in parts:
        with pq.ParquetFile(directory / part.name) as file:
            for batch in file.iter_batches(batch_size=_BATCH_ROWS):
                table = pa.Table.from_batches([batch])
                yield pa.concat_tables([schema.empty_table(), table], promote_options="default")


def _verify_part(path: Path, part: Part) -> None:
    try:
        checksum = atomic_files.sha256_of(path)
    except OSError as error:
        raise not_as_written(f"the curve part {path} cannot be read ({error.strerror})") from error
    if checksum != part.checksum:
        raise not_as_written(
            f"the curve part {path} is damaged: its sha256 is {checksum[:12]}..., "
            f"but {part.checksum[:12]}... was written"
        )
