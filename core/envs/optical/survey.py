"""Many heuristics under many path orders in one compiled program, for the strongest baseline.

The path tables and the number of the heuristic are traced, so that eleven rules and five orders
cost one compile; each pair of them is a group of lanes that takes a real branch.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Float, Int

from ...pytree import Pytree, pytree
from .heuristic_evaluation import Evaluation, run_tiles, seed_streams
from .heuristics import Choice, Heuristic, make_heuristic
from .network_state import OpticalState
from .optical_environment import OpticalEnvironment
from .resources import FlexibleGrid, Offers, SharedLightpaths
from .traffic import OpticalParams

__all__ = ["Surveyed", "survey"]


@dataclass(frozen=True, eq=False)
class Surveyed:
    """One heuristic in one environment.

    Attributes:
        environment: that served.
        rule: name of the heuristic.
        evaluation: what it blocked, at the environment's load.
    """

    environment: OpticalEnvironment
    rule: str
    evaluation: Evaluation


@pytree
class _Paths(Pytree):
    """The arrays of `NetworkTables` that depend on the order of paths, [R, K, ...] or [O, ...]."""

    hops: Int[Array | np.ndarray, "... R K H"]
    hop_counts: Int[Array | np.ndarray, "... R K"]
    width: Float[Array | np.ndarray, "... R K"]
    capacity: Float[Array | np.ndarray, "... R K"]


def survey(
    environments: Sequence[OpticalEnvironment],
    rules: Sequence[str],
    *,
    seeds: int = 10,
    steps: int = 20_000,
    seed: int = 0,
) -> list[Surveyed]:
    """Evaluate every rule in every environment, as `evaluate_heuristic` would, in one program.

    Args:
        environments: equal in all but `path_order`.
        rules: names of heuristics.
        seeds: independent streams, those of `evaluate_heuristic`.
        steps: requests counted per seed.
        seed: root of the streams.

    Raises:
        UnknownNameError: no such heuristic.
    """
    for rule in rules:
        make_heuristic(rule, environments[0])  # refuses an unknown name
    pairs = [(env, rule) for env in range(len(environments)) for rule in range(len(rules))]
    devices = min(len(jax.local_devices()), len(pairs))
    padded = pairs + pairs[-1:] * (-len(pairs) % devices)
    # Device d takes every D-th pair, since neighbours in the list cost about the same.
    order = np.arange(len(padded)).reshape(-1, devices).T.reshape(-1)
    chosen = np.array(padded, np.int32)[order]
    base = _with_capacity_of_all(environments)
    program = _program(base, tuple(rules), steps, devices)
    loads = jnp.full(seeds, base.settings.load, jnp.float32)
    sums = jax.device_get(
        program(chosen, _stacked(environments), seed_streams(seed, seeds), loads)
    )
    found = {name: np.empty_like(value) for name, value in sums.items()}
    for name, value in sums.items():
        found[name][order] = value
    return [
        Surveyed(environments[env], rules[rule], _evaluation(base, found, at, steps))
        for at, (env, rule) in enumerate(pairs)
    ]


def _evaluation(
    environment: OpticalEnvironment, found: dict[str, np.ndarray], at: int, steps: int
) -> Evaluation:
    rows = {name: np.asarray(value[at], np.float64)[None] for name, value in found.items()}
    return Evaluation(
        loads=np.array([environment.settings.load]),
        requests=steps,
        blocked=rows["blocked"],
        bitrate=rows["bitrate"],
        bitrate_blocked=rows["bitrate_blocked"],
        utilisation=rows["utilisation"] / steps,
    )


@functools.lru_cache(maxsize=16)
def _program(environment: OpticalEnvironment, rules: tuple[str, ...], steps: int, devices: int):
    """The compiled survey: (pairs [C, 2], tables [O], keys [seeds], loads) -> sums [C, seeds]."""

    def run(pairs: Array, tables: _Paths, keys: Array, loads: Array) -> dict[str, Array]:
        def one(pair: Int[Array, "2"]) -> dict[str, Array]:
            mine = _with_tables(environment, jax.tree.map(lambda table: table[pair[0]], tables))
            rule = _switched(mine, rules, pair[1])
            return run_tiles(mine, rule, steps, True, keys, loads)

        return lax.map(one, pairs)

    mesh = Mesh(np.array(jax.local_devices()[:devices]), ("devices",))
    split, whole = PartitionSpec("devices"), PartitionSpec()
    specs = (split, whole, whole, whole)
    # check_vma is off for the reason given in `evaluate._program`.
    return jax.jit(jax.shard_map(run, mesh=mesh, in_specs=specs, out_specs=split, check_vma=False))


def _switched(
    environment: OpticalEnvironment, rules: Sequence[str], number: Int[Array, ""]
) -> Heuristic:
    """Return the rule of a traced number."""
    branches = [make_heuristic(name, environment) for name in rules]

    def choose(state: OpticalState, offers: Offers, params: OpticalParams) -> Choice:
        return lax.switch(number, branches, state, offers, params)

    return choose


def _with_tables(environment: OpticalEnvironment, paths: _Paths) -> OpticalEnvironment:
    """The environment with traced path tables; only what serves requests may be asked of it."""
    mine = copy.copy(environment)
    values = {field.name: getattr(paths, field.name) for field in dataclasses.fields(paths)}
    mine.tables = dataclasses.replace(environment.tables, **values)
    resources = environment.resources
    assert isinstance(resources, FlexibleGrid | SharedLightpaths)
    mine.resources = dataclasses.replace(resources, tables=mine.tables)
    return mine


def _with_capacity_of_all(environments: Sequence[OpticalEnvironment]) -> OpticalEnvironment:
    """Return the first environment, with room for as many services on a lightpath as any needs."""
    base = environments[0]
    resources = base.resources
    if not isinstance(resources, SharedLightpaths):
        return base
    most = max(
        env.resources.most_services
        for env in environments
        if isinstance(env.resources, SharedLightpaths)
    )
    base = copy.copy(base)
    base.resources = dataclasses.replace(resources, most_services=most)
    return base


def _stacked(environments: Sequence[OpticalEnvironment]) -> _Paths:
    """Return all tables, their hops padded to one length by repeating each path's first link."""
    tables = [env.tables for env in environments]
    longest = max(table.hops.shape[-1] for table in tables)

    def padded(hops: np.ndarray | Array) -> np.ndarray:
        missing = longest - hops.shape[-1]
        return np.concatenate([hops, np.repeat(hops[..., :1], missing, -1)], -1)

    return _Paths(
        hops=np.stack([padded(table.hops) for table in tables]),
        hop_counts=np.stack([table.hop_counts for table in tables]),
        width=np.stack([table.width for table in tables]),
        capacity=np.stack([table.capacity for table in tables]),
    )
