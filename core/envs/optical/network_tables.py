"""The static arrays of one environment: path tables laid out for compiled look-ups.

Missing hops repeat the path's first link, so that an OR over hops needs no padding link.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from .candidate_paths import PathTable, make_path_table
from .lightpaths import lightpath_capacity
from .modulation import make_modulation
from .optical_settings import OpticalSettings
from .topologies import make_topology
from .topology import Topology

__all__ = ["NetworkTables", "make_tables", "take"]


@dataclass(frozen=True, eq=False)
class NetworkTables:
    """Arrays over R pairs, K paths and H hops, of the host unless `survey` traces them.

    Attributes:
        topology: the network.
        paths: the path table they come from.
        hops: int32 [R, K, H], link numbers, padded with the path's first link (link 0 if missing).
        hop_counts: int32 [R, K]; 0 where the path is missing.
        width: float32 [R, K], Gb/s in one slot: spectral efficiency times slot width.
        capacity: float32 [R, K], Gb/s of a lightpath; 0 without lightpath reuse.
        km: float64 [links].
    """

    topology: Topology
    paths: PathTable
    hops: np.ndarray | Array
    hop_counts: np.ndarray | Array
    width: np.ndarray | Array
    capacity: np.ndarray | Array
    km: np.ndarray


def make_tables(settings: OpticalSettings) -> NetworkTables:
    """Search the paths of an environment's network and lay them out.

    Raises:
        ConfigError: the topology or modulation is unknown or unusable.
    """
    topology = make_topology(settings.topology, settings.directed)
    paths = make_path_table(
        topology,
        settings.k,
        settings.path_order,
        settings.disjoint_paths,
        make_modulation(settings.modulation) if settings.modulated else None,
        _capacity(settings) if settings.reuses_lightpaths else None,
    )
    links = topology.num_links
    first = np.where(paths.hops[..., :1] == links, 0, paths.hops[..., :1])
    return NetworkTables(
        topology=topology,
        paths=paths,
        hops=np.where(paths.hops == links, first, paths.hops),
        hop_counts=paths.hop_counts,
        width=(paths.efficiency * settings.width).astype(np.float32),
        capacity=paths.capacity.astype(np.float32),
        km=np.array([km for _, _, km in topology.links]),
    )


def _capacity(settings: OpticalSettings) -> functools.partial[float]:
    smallest = min(settings.bitrate_list)
    band = settings.width * settings.slots
    return functools.partial(
        lightpath_capacity,
        bandwidth_ghz=band,
        scale_factor=settings.scale_factor,
        granularity=smallest,
    )


def take(table: np.ndarray | Array, index: Int[Array, "*batch"]) -> Array:
    """Rows of a table, without a bounds check: the caller guarantees 0 <= index < rows."""
    return jnp.asarray(table).at[index].get(mode="promise_in_bounds", wrap_negative_indices=False)
