"""Reads requests and traffic matrices from CSV files.

A slot becomes free if its service ends no later than the current arrival. These comparisons are
made here in float64; compiled code compares integers, with the same results.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ....errors import ConfigError, UnknownNameError, clause, counted
from ....files.plain_data import reading
from .candidate_paths import pair_index
from .topology import Topology

HEADER = ("source", "destination", "bitrate", "arrival", "holding")
LONGEST_TICKS = 2**28
LONGEST_WAIT = 2.0**30  # ticks; longer than any service, so a longer wait changes nothing


@dataclass(frozen=True, eq=False)
class RequestList:
    pair: np.ndarray  # int32, row of the pair in the path table
    bitrate: np.ndarray  # float32, Gb/s
    holding: np.ndarray  # int32 ticks
    until_next: np.ndarray  # int32 ticks to the next arrival; 0 for the last request
    tick: float  # units of the file's time in one tick
    arrival: np.ndarray  # float64, as in the file
    duration: np.ndarray  # float64, duration of the service as in the file

    def __len__(self) -> int:
        return len(self.pair)


def read_requests(file: str, topology: Topology) -> RequestList:
    """Read a request list with the header `source,destination,bitrate,arrival,holding`."""
    with reading(file, "request list"), open(file, newline="", encoding="utf-8") as handle:
        reader = csv.reader(handle)
        header = tuple(name.strip() for name in next(reader, []))
        if header != HEADER:
            raise ConfigError(
                f"{file}:1: the header is {','.join(header)!r}; it must be {','.join(HEADER)}"
            )
        numbered = [
            (reader.line_num, _parse_row(file, reader.line_num, row, topology))
            for row in reader
            if row
        ]
    if not numbered:
        raise ConfigError(f"{file}: the list has no requests")
    rows = [row for _, row in numbered]
    arrivals = np.array([row[2] for row in rows], np.float64)
    for number in np.flatnonzero(np.diff(arrivals) < 0)[:1]:
        raise ConfigError(
            f"{file}:{numbered[number + 1][0]}: request {number + 2} arrives at "
            f"{arrivals[number + 1]:g}, before request {number + 1} at {arrivals[number]:g}; "
            "sort the list by arrival"
        )
    holding = np.array([row[3] for row in rows], np.float64)
    ticks, until_next, tick = exact_ticks(arrivals, holding)
    pairs = np.array([row[0] for row in rows], np.int32)
    bitrates = np.array([row[1] for row in rows], np.float32)
    return RequestList(pairs, bitrates, ticks, until_next, tick, arrivals, holding)


def _parse_row(
    file: str, line: int, row: list[str], topology: Topology
) -> tuple[int, float, float, float]:
    if len(row) != len(HEADER):
        columns = counted(len(row), "column")
        raise ConfigError(f"{file}:{line}: {columns}; expected: {','.join(HEADER)}")
    positions = {str(node): number for number, node in enumerate(topology.node_ids)}
    ends = [text.strip() for text in row[:2]]
    for name, node in zip(HEADER, ends, strict=False):
        if node not in positions:
            raise ConfigError(
                f"{file}:{line}: {name} {node!r} is not a node of {topology.name}; its nodes are "
                f"{', '.join(list(positions)[:30])}"
            )
    if ends[0] == ends[1]:
        raise ConfigError(f"{file}:{line}: source and destination are both {ends[0]!r}")
    try:
        bitrate, arrival, holding = (float(text) for text in row[2:])
    except ValueError:
        raise ConfigError(f"{file}:{line}: bitrate, arrival and holding must be numbers") from None
    if not (all(map(math.isfinite, (bitrate, arrival, holding))) and bitrate > 0 and holding >= 0):
        raise ConfigError(
            f"{file}:{line}: bitrate ({bitrate:g}) must be above 0, holding ({holding:g}) 0 or "
            f"more, and arrival ({arrival:g}) finite"
        )
    source, destination = (positions[node] for node in ends)
    pair = pair_index(source, destination, topology.num_nodes, topology.directed)
    return pair, bitrate, arrival, holding


def exact_ticks(arrivals: np.ndarray, holding: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Return holding times and waits in ticks, preserving `end <= arrival`, and the tick size."""
    count, ends = len(arrivals), arrivals + holding
    tick = float(holding.max()) / LONGEST_TICKS or 1.0
    # A strictly later arrival is at least one tick later, even if the difference is less than a
    # tick; a wait longer than every service needs no exact length.
    gaps = np.floor(np.minimum(np.diff(arrivals), tick * LONGEST_WAIT) / tick)
    gaps = np.where(np.diff(arrivals) > 0, np.clip(gaps, 1.0, LONGEST_WAIT), 0.0)
    starts = np.concatenate([[0.0], np.cumsum(gaps)])
    # The first request that sees the slots free again bounds the end from above, the one before
    # it from below.
    release = np.maximum(np.searchsorted(arrivals, ends, side="left"), np.arange(1, count + 1))
    upper = np.append(starts, np.inf)[release]
    before = release - 1
    lower = np.where(before > np.arange(count), starts[before] + 1, starts)
    finish = np.clip(starts + np.floor(holding / tick), lower, upper)
    return (finish - starts).astype(np.int32), np.append(gaps, 0.0).astype(np.int32), tick


def read_traffic_matrix(name: str, topology: Topology) -> np.ndarray | None:
    size = topology.num_nodes
    if name == "random":
        return None
    if name == "uniform":
        return (1 - np.eye(size)) / (size * (size - 1))
    if Path(name).suffix.lower() != ".csv":
        raise UnknownNameError("traffic_matrix", name, ("uniform", "random", "FILE.csv"))
    with reading(name, "traffic matrix"), open(name, newline="", encoding="utf-8") as file:
        rows = [row for row in csv.reader(file) if row]
    widths = set(map(len, rows))
    if len(rows) != size or widths != {size}:
        lengths = " or ".join(map(str, sorted(widths)))
        raise ConfigError(
            f"{name}: {topology.name} needs {size} rows of {size} numbers (row: source, column: "
            f"destination), found {counted(len(rows), 'row')}{clause(' of length {}', lengths)}"
        )
    try:
        matrix = np.array([list(map(float, row)) for row in rows])
    except ValueError as error:
        raise ConfigError(f"{name}: every cell must be a number ({error})") from None
    np.fill_diagonal(matrix, 0.0)
    if not np.isfinite(matrix).all() or (matrix < 0).any() or matrix.sum() <= 0:
        raise ConfigError(f"{name}: cells must be finite, 0 or more, and not all 0")
    return matrix / matrix.sum()


def pair_weights(matrix: np.ndarray, topology: Topology) -> np.ndarray:
    """Return each pair's share of the traffic, in the order of `pair_index`."""
    low, high = np.triu_indices(topology.num_nodes, 1)
    there, back = matrix[low, high], matrix[high, low]
    if topology.directed:
        return np.concatenate([there, back])
    return there + back
