"""Who talks to whom: traffic matrices and their form as weights of node pairs.

Entry [s, d] is the share of requests from s to d; an undirected pair has the sum of both ways.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from ....errors import ConfigError, UnknownNameError
from ....user_files import reading
from .candidate_paths import pair_index
from .topology import Topology

__all__ = ["pair_weights", "read_traffic_matrix"]


def read_traffic_matrix(name: str, topology: Topology) -> np.ndarray | None:
    """Return float64 [N, N] with zero diagonal and sum 1, or None for `random`.

    Raises:
        UnknownNameError: neither `uniform`, `random` nor a `.csv` file.
        ConfigError: the file is missing or is no such matrix.
    """
    size = topology.num_nodes
    if name == "random":
        return None
    if name == "uniform":
        return (1 - np.eye(size)) / (size * (size - 1))
    if Path(name).suffix.lower() != ".csv":
        raise UnknownNameError("traffic_matrix", name, ("uniform", "random", "FILE.csv"))
    with reading(name, "traffic matrix"), open(name, newline="", encoding="utf-8") as file:
        rows = [row for row in csv.reader(file) if row]
    if len(rows) != size or any(len(row) != size for row in rows):
        raise ConfigError(
            f"{name}: {topology.name} needs {size} rows of {size} numbers (row: source, column: "
            f"destination), found {len(rows)} rows of {sorted({len(row) for row in rows})}"
        )
    try:
        matrix = np.array([[float(cell) for cell in row] for row in rows])
    except ValueError as error:
        raise ConfigError(f"{name}: every cell must be a number ({error})") from None
    np.fill_diagonal(matrix, 0.0)
    if not np.isfinite(matrix).all() or (matrix < 0).any() or matrix.sum() <= 0:
        raise ConfigError(f"{name}: cells must be finite, 0 or more, and not all 0")
    return matrix / matrix.sum()


def pair_weights(matrix: np.ndarray, topology: Topology) -> np.ndarray:
    """Weights of the path table's pairs, float64 [R], summing to 1."""
    size = topology.num_nodes
    rows = size * (size - 1) // (1 if topology.directed else 2)
    weights = np.zeros(rows)
    for source in range(size):
        for destination in range(size):
            if source != destination:
                row = pair_index(source, destination, size, topology.directed)
                weights[row] += matrix[source, destination]
    return weights
