"""The bits of one lane: alone, among others, in a different lane, and in a smaller program.

According to docs/concepts.md, a curve depends only on its configuration and seed. Within one
program this must hold on a GPU without further settings. Between two programs with the same tile
it must hold with `deterministic`; without, the result is only reported, because kernels are then
selected by timing.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from .common import Report, cores

CHUNKS, UPDATES = 2, 2
LEARNING_RATES = (1e-4, 3e-4, 1e-3)


class Widths(NamedTuple):
    """Lanes of the large program, its tile, and the narrower tile that a small one also has."""

    lanes: int
    tile: int
    narrow: int


class Seen(NamedTuple):
    """The outcome of one replicate: the hash of all its bits, and its parameters."""

    bits: str
    params: Any


def run(report: Report, devices: tuple[Any, ...], small: bool, deterministic: bool) -> None:
    """Compare the bits of three replicates in several populations."""
    devices = devices[:2] if small else devices[:1]
    widths = Widths(16, 4, 2) if small else Widths(512, 512, 64)
    shapes = {
        "all": (widths.lanes, widths.tile),
        "narrow": (widths.lanes, widths.narrow),
        "few": (widths.narrow * len(devices), widths.narrow),
    }
    programs = {name: _program(devices, small, *shape) for name, shape in shapes.items()}
    with ThreadPoolExecutor(cores()) as pool:
        list(pool.map(lambda program: program.compile(), programs.values()))
    rows = report.document["comparisons"] = []
    for row in _comparisons(programs, deterministic):
        rows.append(row)
        if row["must_be_equal"] and not row["equal"]:
            report.fail(f"{row['what']}: replicates {row['differing']} have other bits")
        report.write()
    held = sum(row["equal"] for row in rows if row["must_be_equal"])
    needed = sum(row["must_be_equal"] for row in rows)
    others = "; ".join(
        f"{row['what']}: {'equal' if row['equal'] else format(row['distance'], '.1g') + ' apart'}"
        for row in rows
        if not row["must_be_equal"]
    )
    report.finish(f"{held} of {needed} comparisons equal bit for bit; not promised: {others}")


def _comparisons(programs: Mapping[str, Any], deterministic: bool) -> Iterator[dict[str, Any]]:
    few = programs["few"].lanes
    chosen = (0, few // 2, few - 1)
    everywhere = range(programs["all"].lanes)
    among = _seen(programs["all"], {lane: lane for lane in everywhere}, chosen)
    alone: dict[int, Seen] = {}
    for one in chosen:
        alone |= _seen(programs["all"], {one: one}, [one])
    yield _compared("alone and among all", among, alone, True)
    moved = _seen(programs["all"], {lane: lane for lane in reversed(everywhere)}, chosen, True)
    yield _compared("at another place", among, moved, True)
    narrow = _seen(programs["narrow"], {lane: lane for lane in everywhere}, chosen)
    fewer = _seen(programs["few"], {lane: lane for lane in range(few)}, chosen)
    yield _compared("fewer lanes, same tile", narrow, fewer, deterministic)
    yield _compared("another tile", among, narrow, False)


def _program(devices: tuple[Any, ...], small: bool, lanes: int, tile: int) -> Any:
    from gpu_cases import PPO, Case, plan_of

    from hpo.core.program import EvaluationPlan, Program

    knobs = {**PPO, "num_envs": 2, "rollout_length": 16, "hidden_sizes": (16,)} if small else PPO
    plan, example = plan_of(Case("CartPole-v1", lanes, knobs), devices[0].platform)
    return Program(plan, lanes, UPDATES, tile, EvaluationPlan(), devices, example)


def _seen(
    program: Any, placed: Mapping[int, int], chosen: Any, reverse: bool = False
) -> dict[int, Seen]:
    """Run {lane: replicate} and return the outcomes of the chosen replicates.

    Args:
        program: the program that runs them.
        placed: busy lanes; all others are idle.
        chosen: replicates.
        reverse: whether lanes are counted from the last one.
    """
    import jax
    import numpy as np

    refills = program.no_refills()
    refills.busy[:] = False
    where = {}
    for lane, replicate in placed.items():
        at = program.lanes - 1 - lane if reverse else lane
        where[replicate] = at
        refills.mask[at] = refills.busy[at] = True
        refills.replicate[at] = replicate
        refills.total_updates[at] = 1_000
        refills.hypers.learning_rate[at] = LEARNING_RATES[replicate % len(LEARNING_RATES)]
    lanes, curves = program.empty(), []
    again = dataclasses.replace(refills, mask=np.zeros_like(refills.mask))
    for chunk in range(CHUNKS):
        lanes, metrics = program.advance(0, lanes, again if chunk else refills)
        curves.append(jax.device_get(metrics))
    found = {}
    for replicate in chosen:
        at = where[replicate]
        state = program.lane_state(lanes, at)
        columns = [leaf[:, at] for curve in curves for leaf in jax.tree.leaves(curve)]
        whole = hashlib.sha256()
        for leaf in (*jax.tree.leaves(state), *columns):
            whole.update(np.ascontiguousarray(leaf).tobytes())
        params = [np.ravel(leaf) for leaf in jax.tree.leaves(state.params)]
        found[replicate] = Seen(whole.hexdigest(), np.concatenate(params))
    return found


def _compared(
    what: str, ones: Mapping[int, Seen], others: Mapping[int, Seen], must: bool
) -> dict[str, Any]:
    import numpy as np

    differing = [name for name, one in ones.items() if one.bits != others[name].bits]
    scale = max(float(np.linalg.norm(one.params)) for one in ones.values())
    apart = max(
        float(np.linalg.norm(one.params - others[name].params)) for name, one in ones.items()
    )
    return {
        "what": what,
        "must_be_equal": must,
        "equal": not differing,
        "differing": differing,
        "distance": apart / scale,
    }
