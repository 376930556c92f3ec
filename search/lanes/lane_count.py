"""The default number of lanes, and their division into shares for workers.

Both are pure functions of machine, network size and study. They never depend on timing, so the
same file always gives the same program.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...errors import ConfigError, counted
from ...studies.chunk_sizes import rung_steps
from ...studies.search_spec import Seeds
from ...studies.spec import Study
from .contract import Resolved

_ENOUGH = {"cpu": 64, "gpu": 4096}
# Lanes that a CPU device computes together: a tile's temporaries should stay in cache, so tiles
# shrink as networks grow. A GPU uses as many as fit into its memory (`memory.gpu_tile`).
_CPU_TILES = ((20_000, 4), (200_000, 2))


def device_count(backend: str, cores: int, accelerators: int) -> int:
    """Return the number of devices that lanes are spread over.

    On a CPU there are at least two host devices, because results with one differ bitwise.
    """
    if backend == "cpu":
        return max(2, cores)
    return max(1, accelerators)


def tile_of(backend: str, parameter_count: int) -> int:
    """Return how many lanes a CPU device computes together, given the parameters of one lane."""
    if backend != "cpu":
        raise ValueError("for other backends, use core.memory.gpu_tile")
    return next((tile for most, tile in _CPU_TILES if parameter_count <= most), 1)


def wanted_lanes(backend: str, replicates: int, needed: int = 1) -> int:
    """Return the number of lanes that a study could use, before the limits of devices and memory.

    `replicates` is the number that it can start; `needed` of them must run at the same time.

    >>> wanted_lanes("cpu", 192), wanted_lanes("gpu", 192), wanted_lanes("gpu", 192, 300)
    (64, 192, 300)
    """
    enough = _ENOUGH.get(backend, _ENOUGH["gpu"])
    return max(min(enough, max(1, replicates)), needed)


@dataclass(frozen=True)
class Devices:
    """The devices that lanes are spread over."""

    backend: str
    devices: int
    memory_bytes: int


def auto_lanes(
    machine: Devices,
    tile: int,
    replicates: int,
    bytes_per_lane: int,
    *,
    needed: int = 1,
    shared_bytes: int = 0,
) -> int:
    """Return the default number of lanes.

    This is the smallest multiple of devices x tile that is at least `wanted_lanes`, reduced in
    steps of devices x tile until it fits into memory. `shared_bytes` is the memory that does not
    depend on the number of lanes.
    """
    from ...core.memory import MEMORY_SHARE  # imported on use: processes need no jax

    block = machine.devices * tile
    blocks = -(-wanted_lanes(machine.backend, replicates, needed) // block)
    memory = int(MEMORY_SHARE * machine.memory_bytes) - shared_bytes
    fitting = memory // max(1, bytes_per_lane * block)
    return block * max(1, min(blocks, fitting))


def lanes_of_share(lanes: int | None, shares: int) -> int | None:
    """Return the number of lanes in the largest share; None if the total is unknown."""
    if lanes is None:
        return None
    return -(-lanes // shares)


def fitting_lanes(most: int, block: int, replicates: int) -> int:
    """Return how many lanes a bucket needs for its replicates: whole blocks, at most `most`.

    >>> fitting_lanes(64, 8, 12), fitting_lanes(64, 8, 100), fitting_lanes(64, 8, 0)
    (16, 64, 8)
    """
    return min(most, block * -(-max(1, replicates) // block))


def population_replicates(study: Study) -> int:
    """Return how many replicates must run at the same time: a PBT population, otherwise 1."""
    early, trials = study.early_terminate, study.budget.trials
    if early is None or not early.evolves or trials is None:
        return 1
    return trials * study.seeds.per_config


def startable_replicates(study: Study) -> int:
    """Return the maximum number of replicates that a study can have in lanes at the same time.

    Trials are limited by `budget.trials` and by env steps, because each trial runs at least to its
    first rung. Without a search there is one trial. The confirm stage runs all replicates on
    selection seeds at the same time, and then those on test seeds.
    """
    bounds = []
    if not study.space.parameters:
        bounds.append(study.seeds.per_config)
    if study.budget.trials is not None:
        bounds.append(study.budget.trials * _at_once(study.seeds))
    if study.budget.env_steps is not None:
        bounds.append(study.budget.env_steps // max(1, min([*rung_steps(study), study.env_steps])))
    search = min(bounds, default=max(_ENOUGH.values()))
    return max(search, study.confirming - study.tested, study.tested)


def _at_once(seeds: Seeds) -> int:
    """Return how many of a trial's replicates may run at once; racing starts them in stages."""
    done = most = seeds.first
    while done < seeds.per_config:
        more = min(done, seeds.per_config - done)
        done, most = done + more, max(most, more)
    return most


@dataclass(frozen=True)
class Division:
    """The division of a population's lanes into equal shares."""

    total: int  # lanes of the population
    tile: int  # lanes that a device computes together
    unit: int  # consecutive lanes that are assigned to a share together
    own: int  # lanes in each share's program; surplus ones stay idle

    @classmethod
    def of(cls, total: int, shares: int, tile: int, devices: int) -> Division:
        """Divide lanes in units of one tile per device, or of one tile if shares would be unequal.

        >>> Division.of(16, 2, 4, 2)
        Division(total=16, tile=4, unit=8, own=8)
        >>> Division.of(4, 2, 2, 2)
        Division(total=4, tile=2, unit=2, own=4)
        """
        unit = block = tile * devices
        if total % (shares * block):
            unit = tile
        units = -(-total // (unit * shares))
        return cls(total, tile, unit, -(-units * unit // block) * block)


def check_divides(factory: Any, resolved: Resolved, shares: int) -> None:
    """Raise ConfigError if a study has too few lanes for its number of workers."""
    division: Division = factory.divide(resolved, None, shares)
    tiles = division.total // division.tile
    if tiles < shares:
        raise ConfigError(
            f"population.lanes is {factory.study.population.lanes}, which is only "
            f"{counted(tiles, 'tile')} of {counted(division.tile, 'lane')} for {shares} workers; "
            f"use executor.workers: {tiles}, more lanes, or executor: {{type: local}}"
        )
