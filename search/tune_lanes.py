"""How many lanes this machine likes best for a study: measured, never used by itself.

A study's own rule (`search.lanes`) is a function of machine and file, so that results do not
depend on a timing; the number measured here is to be written into the file.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import ConfigError
from ..machine.software import enable_compilation_cache
from ..studies.several_environments import only_one_environment, only_ppo
from ..studies.spec import Study
from ..studies.user_code import run_own_code
from .forecast.program_timing import Chunks
from .lanes.contract import Resolved
from .lanes.lane_count import startable_replicates

_GOOD_ENOUGH = 0.95
_GPU_BLOCK = 64  # lanes a GPU that are tried first
_FEWEST_CHUNKS = 3


@dataclass(frozen=True)
class Measured:
    lanes: int  # of the program
    tile: int  # lanes that one device works on at a time
    env_steps_per_second: float  # training, all lanes busy; the median chunk counts
    refill_seconds: float  # that starting all lanes anew adds to a chunk
    rollout_seconds: float  # of a chunk's rollouts alone, in a program of their own
    update_seconds: float  # what a chunk takes beyond them: advantages and epochs
    compile_seconds: float  # of the training program, with whatever the cache holds
    memory_bytes: int  # the estimate that `hpo check` shows


def measure_lanes(
    study: Study,
    lanes: Sequence[int] | None = None,
    seconds: float = 3.0,
    told: Callable[[int], None] = lambda lanes: None,
) -> Iterator[Measured]:
    """Time the default configuration's program with several numbers of lanes.

    Lanes train configurations drawn from the traced part of the space, as a study's would.
    """
    only_ppo(study, "timing numbers of lanes")
    only_one_environment(study, "timing numbers of lanes")
    run_own_code(study)
    enable_compilation_cache()
    from .lanes.local import LocalFactory

    factory = LocalFactory(study)
    default = factory.resolve(study.default())
    whole = factory.program_of(default)
    # On a GPU a tile is as wide as the lanes that are tried, if memory allows.
    least = whole.tile if factory.backend == "cpu" else min(_GPU_BLOCK, whole.tile)
    block = least * len(whole.devices)
    tried = candidates(block, whole.lanes, startable_replicates(study)) if lanes is None else lanes
    for count in tried:
        _check_divides(count, len(whole.devices))
        told(count)
        yield _measure(factory, default, count, seconds)


def candidates(block: int, ruled: int, replicates: int) -> list[int]:
    """Return numbers of lanes: doubling from one block to four times the rule's, and the rule's.

    >>> candidates(8, 64, 1000), candidates(8, 64, 20)
    ([8, 16, 32, 64, 128, 256], [8, 16, 24, 64])
    """
    most = max(block, -(-min(4 * ruled, replicates) // block) * block)
    found, count = {ruled, most}, block
    while count < most:
        found.add(count)
        count *= 2
    return sorted(found)


def best_lanes(measured: Sequence[Measured]) -> Measured:
    """Return the fewest lanes that are nearly as fast as the fastest: they judge sooner."""
    fastest = max(entry.env_steps_per_second for entry in measured)
    good = [e for e in measured if e.env_steps_per_second >= _GOOD_ENOUGH * fastest]
    return min(good, key=lambda entry: entry.lanes)


def _check_divides(lanes: int, devices: int) -> None:
    if lanes % devices:
        raise ConfigError(
            f"{lanes} lanes do not divide into {devices} devices; the next number that does is "
            f"{-(-lanes // devices) * devices}"
        )


def _measure(factory: Any, default: Resolved, lanes: int, seconds: float) -> Measured:
    population = factory.make(default, lanes)
    program = population.program
    started = time.perf_counter()
    program.compile()
    compiled = time.perf_counter()
    chunks, everyone = Chunks(factory, default, population), range(lanes)
    chunks.run(everyone, begun=False)
    usual = _usual_seconds(lambda: chunks.run(everyone), seconds)
    refill = max(0.0, chunks.run(everyone, begun=False, replicate=1) - usual)
    population.roll_out()
    rollout = min(usual, _usual_seconds(population.roll_out, seconds))
    return Measured(
        lanes=lanes,
        tile=program.tile,
        env_steps_per_second=lanes * population.steps_per_chunk / usual,
        refill_seconds=refill,
        rollout_seconds=rollout,
        update_seconds=usual - rollout,
        compile_seconds=compiled - started,
        memory_bytes=program.memory_bytes(),
    )


def _usual_seconds(run: Callable[[], float], seconds: float) -> float:
    """Return the median of what `run` says it took, over that time and three runs at least."""
    found: list[float] = []
    while len(found) < _FEWEST_CHUNKS or sum(found) < seconds:
        found.append(run())
    return statistics.median(found)
