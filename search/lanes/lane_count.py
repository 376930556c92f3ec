"""How many lanes a program gets when the study leaves it open: a rule, never a timing.

The rule is a pure function of the machine, the size of the network and the study, so that the
same file makes the same program every time.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...core.memory import MEMORY_SHARE
from ...studies.chunk_sizes import rung_steps
from ...studies.spec import Seeds, Study

_ENOUGH = {"cpu": 64, "gpu": 4096}
# Lanes that one device of a CPU works on at a time: the temporaries of a tile should stay in
# cache, so a tile shrinks as networks grow. A GPU takes what its memory holds (`memory.gpu_tile`).
_CPU_TILES = ((20_000, 4), (200_000, 2))


@dataclass(frozen=True)
class Machine:
    """What a population runs on.

    Attributes:
        backend: `cpu` or `gpu`.
        devices: of that backend that lanes are spread over.
        memory_bytes: of all of them together.
    """

    backend: str
    devices: int
    memory_bytes: int


def device_count(backend: str, cores: int, accelerators: int) -> int:
    """Return the number of devices lanes are spread over; on a CPU at least two host devices.

    A program on one host device gives other bits than on two or more, hence never one.
    """
    return max(2, cores) if backend == "cpu" else max(1, accelerators)


def tile_of(backend: str, parameter_count: int) -> int:
    """Return the lanes that one device runs at a time, from the number of weights of one lane.

    Raises:
        ValueError: the backend is no CPU; `core.memory.gpu_tile` knows.
    """
    if backend != "cpu":
        raise ValueError("of other backends core.memory.gpu_tile knows the tile")
    return next((tile for most, tile in _CPU_TILES if parameter_count <= most), 1)


def wanted_lanes(backend: str, replicates: int, needed: int = 1) -> int:
    """Return the lanes that a study could use, before devices and memory have their say.

    Args:
        backend: `cpu` or `gpu`.
        replicates: that the study can start, see `startable_replicates`.
        needed: replicates that must run side by side, whatever is enough otherwise.

    >>> wanted_lanes("cpu", 192), wanted_lanes("gpu", 192), wanted_lanes("gpu", 192, 300)
    (64, 192, 300)
    """
    enough = _ENOUGH["cpu" if backend == "cpu" else "gpu"]
    return max(min(enough, max(1, replicates)), needed)


def auto_lanes(
    machine: Machine,
    tile: int,
    replicates: int,
    bytes_per_lane: int,
    needed: int = 1,
    shared_bytes: int = 0,
) -> int:
    """Return the number of lanes.

    The smallest multiple of devices x tile that reaches what is enough for the backend, or what
    the study can start if that is less, and then as few multiples less as memory demands.

    Args:
        machine: where it runs.
        tile: lanes a device runs at a time.
        replicates: that the study can start, see `startable_replicates`.
        bytes_per_lane: estimate of state and temporaries of one lane.
        needed: replicates that must run side by side, whatever is enough otherwise.
        shared_bytes: that all lanes take together, however many there are.

    >>> auto_lanes(Machine("cpu", 2, 10**10), 4, 192, 10**6)
    64
    >>> auto_lanes(Machine("cpu", 2, 10**10), 4, 12, 10**6)
    16
    """
    block = machine.devices * tile
    blocks = -(-wanted_lanes(machine.backend, replicates, needed) // block)
    memory = int(MEMORY_SHARE * machine.memory_bytes) - shared_bytes
    fitting = memory // max(1, bytes_per_lane * block)
    return block * max(1, min(blocks, fitting))


def fitting_lanes(most: int, block: int, replicates: int) -> int:
    """Return the lanes that a bucket keeps of those that the rule gives.

    Args:
        most: that the rule gives; a multiple of the block.
        block: lanes of one tile on every device.
        replicates: that the bucket can have, or is expected to.

    >>> fitting_lanes(64, 8, 12), fitting_lanes(64, 8, 100), fitting_lanes(64, 8, 0)
    (16, 64, 8)
    """
    return min(most, block * -(-max(1, replicates) // block))


def population_replicates(study: Study) -> int:
    """Return how many replicates must run side by side: all of an evolving population, else 1."""
    early, trials = study.early_terminate, study.budget.trials
    if early is None or not early.evolves or trials is None:
        return 1
    return trials * study.seeds.per_config


def startable_replicates(study: Study) -> int:
    """Return how many replicates the study can have in lanes at once, at most.

    Trials are bounded by `budget.trials` and by env steps, of which each takes at least those to
    its first rung; there is one where nothing is searched. The confirm stage runs the replicates
    of all its candidates side by side, and then those of the winner and the default.
    """
    bounds = []
    if not study.space.parameters:
        bounds.append(study.seeds.per_config)
    if study.budget.trials is not None:
        bounds.append(study.budget.trials * _at_once(study.seeds))
    if study.budget.env_steps is not None:
        bounds.append(study.budget.env_steps // max(1, min([*rung_steps(study), study.env_steps])))
    search = min(bounds, default=max(_ENOUGH.values()))
    if study.confirm is None:
        return search
    report = study.confirm.reports(len(study.objectives))
    choose = study.confirm.runs(len(study.objectives)) - report
    if not study.space.parameters:  # the winner is the default
        report = min(report, study.confirm.report)
    return max(search, choose, report)


def _at_once(seeds: Seeds) -> int:
    """Return the replicates of a trial that may run side by side: racing adds as many as ran."""
    done = most = seeds.first
    while done < seeds.per_config:
        more = min(done, seeds.per_config - done)
        done, most = done + more, max(most, more)
    return most
