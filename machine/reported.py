"""Reads the metrics that a process reports: JSON lines, CSV tables, TensorBoard and W&B files.

`report` prints a JSON line. Readers return rows of (step, name -> number) as the files grow.
"""

from __future__ import annotations

import csv
import glob
import json
import math
import os
import struct
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

Row = tuple[float | None, dict[str, float]]  # the step (None if not given), and name -> number
_LOOK_SECONDS = 0.5  # between two searches for files that match a pattern
_MOST_NAMES = 200  # metrics per process
_LONGEST = 1 << 20  # bytes per line
_EARLIER = 2.0  # by which a file system's clock may be behind


def report(step: Any = None, *given: Any, **metrics: Any) -> Any:
    """Print metrics as a JSON line, which a study with `command` reads.

    Without metrics, it runs `hpo report`; see `hpo.views.python.open_study.report`.

    >>> report(4096, eval_return=12.5)
    {"step": 4096, "eval_return": 12.5}
    """
    if isinstance(step, int | float) and not given:
        numbers = {name: float(value) for name, value in metrics.items()}
        print(json.dumps({"step": step, **numbers}), flush=True)
        return None
    from importlib import import_module  # report page of a study; a script may lack its packages

    page = import_module("..views.python.open_study", __package__)
    if step is not None:
        given = (step, *given)
    return page.report(*given, **metrics)


class Files:
    """The files that match a pattern and have changed since a given time, the latest one last."""

    def __init__(self, pattern: str, since: float):
        self._pattern, self._since = pattern, since - _EARLIER
        self._found: list[Path] = []
        self._looked = -math.inf

    def now(self, again: bool = False) -> list[Path]:
        if again or time.monotonic() - self._looked > _LOOK_SECONDS:
            self._looked = time.monotonic()
            paths = [Path(name) for name in glob.glob(self._pattern, recursive=True)]
            fresh = [(path.stat().st_mtime, path) for path in paths if path.is_file()]
            self._found = [path for at, path in sorted(fresh) if at >= self._since]
        return self._found


class Tail:
    """The new part of a growing file."""

    def __init__(self, path: Path):
        self._path, self.offset = path, 0

    def read(self) -> bytes:
        try:
            # opening makes network disks report the current size
            with self._path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size < self.offset:  # the file was rewritten
                    self.offset = 0
                file.seek(self.offset)
                return file.read(size - self.offset)
        except FileNotFoundError:
            return b""

    def lines(self, whole: bool = False) -> Iterator[str]:
        """Yield new complete lines; if the file is `whole`, its last line counts as complete."""
        data = self.read()
        end = data.rfind(b"\n") + 1
        if whole or len(data) > _LONGEST:
            end = len(data)
        self.offset += end
        for line in data[:end].split(b"\n"):
            if line.strip():
                yield line.decode("utf-8", errors="replace").strip()


class Reader:
    """Reads the rows that a process reports; each subclass reads one kind of file."""

    def __init__(self, files: Files, step: str):
        self._files, self._step = files, step
        self._tails: dict[Path, Tail] = {}
        self.names: dict[str, None] = {}  # names seen so far

    def read(self, ended: bool = False) -> list[Row]:
        """Return the new rows; `ended` means that the process has finished writing."""
        found: list[Row] = []
        for path in self._files.now(again=ended):
            tail = self._tails.setdefault(path, Tail(path))
            for step, numbers in self._read_rows(path, tail, ended):
                known = {
                    name: value
                    for name, value in numbers.items()
                    if name in self.names or len(self.names) < _MOST_NAMES
                }
                self.names |= dict.fromkeys(known)
                found.append((step, known))
        return found

    def _read_rows(self, path: Path, tail: Tail, ended: bool) -> Iterator[Row]:
        raise NotImplementedError

    def _make_row(self, given: Mapping[str, Any]) -> Row:
        numbers = dict(_flat_numbers(given))
        return numbers.pop(self._step, None), numbers


def _flat_numbers(given: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, float]]:
    for name, value in given.items():
        if isinstance(value, dict):
            yield from _flat_numbers(value, f"{before}{name}/")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{before}{name}", float(value)


class JsonLines(Reader):
    """Lines that are JSON objects; other lines are ignored."""

    def _read_rows(self, path: Path, tail: Tail, ended: bool) -> Iterator[Row]:
        for line in tail.lines(whole=ended):
            if line.startswith("{") and line.endswith("}"):
                try:
                    given = json.loads(line)
                except ValueError:
                    continue
                yield self._make_row(given)


class CsvTable(Reader):
    """A table whose first line contains the column names."""

    def __init__(self, files: Files, step: str):
        super().__init__(files, step)
        self._heads: dict[Path, list[str]] = {}

    def _read_rows(self, path: Path, tail: Tail, ended: bool) -> Iterator[Row]:
        for line in tail.lines(whole=ended):
            if line.startswith("#"):  # header of a Monitor file
                continue
            cells = next(csv.reader([line]))
            head = self._heads.setdefault(path, cells)
            if cells is head or len(cells) != len(head):
                continue
            pairs = ((name, _parse_number(cell)) for name, cell in zip(head, cells, strict=True))
            yield self._make_row({name: value for name, value in pairs if value is not None})


def _parse_number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


class EventFiles(Reader):
    """TensorBoard scalars: each record is a length, its checksum, an event, and its checksum."""

    def _read_rows(self, path: Path, tail: Tail, ended: bool) -> Iterator[Row]:
        data, at = tail.read(), 0
        while len(data) - at >= 12:
            (length,) = struct.unpack_from("<Q", data, at)
            if len(data) - at < length + 16:
                break
            yield from _event_scalars(data[at + 12 : at + 12 + length])
            at += length + 16
        tail.offset += at


def _event_scalars(event: bytes) -> Iterator[Row]:
    fields = _protobuf_fields(event)
    step = next((float(value) for number, value in fields if number == 2), 0.0)
    for summary in (value for number, value in fields if number == 5):
        for value in (one for number, one in _protobuf_fields(summary) if number == 1):
            parts = dict(_protobuf_fields(value))
            number = _scalar_of_summary(parts)
            if number is not None and isinstance(parts.get(1), bytes):
                yield step, {parts[1].decode("utf-8", errors="replace"): number}


class OfflineRuns(Reader):
    """Offline W&B runs: a log of records in LevelDB's format.

    Blocks are 32 KiB long. Each chunk in a block has a checksum, its length, and a kind: a whole
    record, or its first, middle or last part. The file starts with a header of seven bytes.
    """

    def __init__(self, files: Files, step: str):
        super().__init__(files, step)
        # start of a record that spans several chunks
        self._partial_records: dict[Path, bytes] = {}

    def _read_rows(self, path: Path, tail: Tail, ended: bool) -> Iterator[Row]:
        tail.offset = max(tail.offset, _WANDB_HEAD)
        data, at = tail.read(), 0
        while True:
            left = _WANDB_BLOCK - (tail.offset + at) % _WANDB_BLOCK
            if left < _WANDB_CHUNK:  # zero padding
                at += left
                continue
            if len(data) - at < _WANDB_CHUNK:
                break
            length, kind = struct.unpack_from("<HB", data, at + 4)
            if len(data) - at < _WANDB_CHUNK + length:
                break
            at += _WANDB_CHUNK
            whole = self._partial_records.pop(path, b"") + data[at : at + length]
            at += length
            if kind in _WANDB_ENDS:
                yield from map(self._make_row, _history_rows(whole))
            else:
                self._partial_records[path] = whole
        tail.offset += min(at, len(data))


_WANDB_HEAD, _WANDB_BLOCK, _WANDB_CHUNK = 7, 32768, 7  # bytes
_WANDB_ENDS = (1, 4)  # chunk kinds that end a record


def _history_rows(record: bytes) -> Iterator[dict[str, Any]]:
    """Yield the logged values of a record, if it belongs to the run's history."""
    for message in (value for number, value in _protobuf_fields(record) if number == 2):
        found: dict[str, Any] = {}
        if not isinstance(message, bytes):
            continue
        for item in (value for number, value in _protobuf_fields(message) if number == 1):
            parts = _protobuf_fields(item)
            names = [value.decode() for number, value in parts if number in (1, 2)]
            text = next((value for number, value in parts if number == 16), b"null")
            found[".".join(names)] = json.loads(text)
        yield found


def _scalar_of_summary(parts: Mapping[int, Any]) -> float | None:
    """Return the number in a summary value, which is a plain number or a one-element tensor."""
    if 2 in parts:
        return struct.unpack("<f", parts[2])[0]
    tensor = dict(_protobuf_fields(parts.get(8, b"")))
    for field, size, code in ((4, 4, "<f"), (4, 8, "<d"), (5, 4, "<f"), (6, 8, "<d")):
        data = tensor.get(field, b"")
        if isinstance(data, bytes) and len(data) == size:
            return struct.unpack(code, data)[0]
    return None


def _protobuf_fields(message: bytes) -> list[tuple[int, Any]]:
    """Return (number, value) for each field of a protocol buffer, fixed-size values as bytes."""
    found: list[tuple[int, Any]] = []
    at = 0
    while at < len(message):
        key, at = _read_varint(message, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = _read_varint(message, at)
        else:
            length = {1: 8, 5: 4}.get(wire)
            if length is None:
                length, at = _read_varint(message, at)
            value, at = message[at : at + length], at + length
        found.append((number, value))
    return found


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        byte = message[at] if at < len(message) else 0
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


_KINDS = {
    "stdout": JsonLines, "jsonl": JsonLines, "csv": CsvTable, "tensorboard": EventFiles,
    "wandb": OfflineRuns,
}  # fmt: skip
_DEFAULTS = {
    "jsonl": "*.jsonl", "csv": "*.csv", "tensorboard": os.path.join("**", "events.out.tfevents.*"),
    "wandb": os.path.join("wandb", "*run-*", "run-*.wandb"),
}  # fmt: skip


def reader_of(kind: str, pattern: str, folder: Path, step: str, since: float) -> Reader:
    """Return a reader of files changed since `since` that match a pattern, by default in `folder`.

    If the pattern matches a folder, the reader looks in it for files of its kind.
    """
    inside = _DEFAULTS.get(kind, "")
    if kind == "stdout":
        pattern = glob.escape(str(folder / "stdout.log"))
    elif not pattern:
        pattern = os.path.join(glob.escape(str(folder)), inside)
    elif kind == "tensorboard" and "tfevents" not in pattern:
        pattern = os.path.join(pattern, inside)
    return _KINDS[kind](Files(pattern, since), step)
