"""Coordinates of nodes and links from Laplacian eigenvectors, computed once on the host.

Eigenvectors of the smallest eigenvalues vary slowly over the network, so near nodes get near
coordinates. Signs are fixed (the entry of largest size is positive); missing columns are 0.
"""

from __future__ import annotations

import numpy as np

from .topology import Topology

__all__ = ["laplacian_features", "line_graph_features"]


def laplacian_features(topology: Topology, count: int) -> np.ndarray:
    """Return float32 [N, count] from the graph of the nodes, links taken as undirected."""
    adjacency = np.zeros((topology.num_nodes, topology.num_nodes))
    for source, destination, _ in topology.links:
        adjacency[source, destination] = adjacency[destination, source] = 1.0
    return _smallest_eigenvectors(adjacency, count)


def line_graph_features(topology: Topology, count: int) -> np.ndarray:
    """float32 [links, count] from the line graph, where links that share a node are neighbours."""
    ends = np.array([link[:2] for link in topology.links])
    shared = (ends[:, None, :, None] == ends[None, :, None, :]).any((-1, -2))
    np.fill_diagonal(shared, False)
    return _smallest_eigenvectors(shared.astype(float), count)


def _smallest_eigenvectors(adjacency: np.ndarray, count: int) -> np.ndarray:
    laplacian = np.diag(adjacency.sum(1)) - adjacency
    _, vectors = np.linalg.eigh(laplacian)
    vectors = vectors[:, :count]
    largest = vectors[np.abs(vectors).round(6).argmax(0), np.arange(vectors.shape[1])]
    vectors = vectors * np.where(largest < 0, -1.0, 1.0)
    missing = count - vectors.shape[1]
    return np.pad(vectors, ((0, 0), (0, missing))).astype(np.float32)
