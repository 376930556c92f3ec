"""Estimates a program's device memory from shapes alone, before compilation.

The estimate determines how many lanes fit.
"""

from __future__ import annotations

import dataclasses
import math
from functools import lru_cache, partial
from typing import Any

import jax
import numpy as np

from . import policy
from .envs import registry as environments
from .envs.contract import as_array
from .hypers import Hypers, make_hypers
from .lane_state import LaneState
from .networks.mlp import takes_flags
from .plan import AUTOMATIC, CPU, Plan, backend_of, for_backend
from .population import lane_shapes
from .pytree import equations, inner_jaxprs
from .rollout import values_wait


def computed_numbers(plan: Plan, params: Any, rows: int) -> int:
    struct = environments.make(plan.env).observation_struct
    batch = jax.tree.map(lambda s: jax.ShapeDtypeStruct((rows, *s.shape), s.dtype), struct)
    made = jax.make_jaxpr(partial(policy.apply, plan))(params, batch).jaxpr
    innermost = (equation for equation in equations(made) if not inner_jaxprs(equation))
    return sum(math.prod(out.aval.shape) for equation in innermost for out in equation.outvars)


MEMORY_SHARE = 0.6  # of a device's memory, available to a program

# Share of a forward pass's values that learning keeps at a time; the rest never leaves the chip.
_KEPT_ON_GPUS = {"cnn": 0.5, "gnn": 0.2, "gru": 0.75, "lstm": 0.75, "transformer": 0.2}
_RECORD_BYTES = 32  # bytes of the scalars recorded per step
_RUNGS = (4096, 1024, 256, 64, 16, 4)
_WIDE = 64
_LEAST_STEP = 8  # a tile of all lanes is rounded up to a multiple of this


def parameter_count(plan: Plan, example: Hypers) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(lane_shapes(plan, example).params))


def estimate_memory(plan: Plan, example: Hypers, lanes: int, tile: int, devices: int) -> int:
    """Estimate the bytes that a program needs: for all lanes, and temporarily for running tiles.

    A lane's state is counted twice, or once if a GPU runs a single tile, which is updated in
    place. A running lane adds its trajectory (in both layouts, and shuffled), its gradients and
    steps, and the activations of one minibatch part (with packed observations expanded).
    `benchmarks/gpu_compiled.py` compares the estimate with the compiler's numbers.
    """
    shapes = lane_shapes(plan, example)
    lane = _tree_bytes(shapes) + _tree_bytes(example)
    if plan.backend != CPU:
        return _on_gpus(plan, shapes, lane, lanes, tile * devices)
    observation = _tree_bytes(shapes.observation)
    segments = shapes.episode_return.shape[0]  # environments times agents
    trajectory = plan.rollout_length * (observation + 32 * segments)
    rows = math.ceil(plan.minibatch_size * segments // plan.num_envs / plan.gradient_parts)
    if plan.network == "mlp":
        row = 4 * (sum(plan.hidden_sizes) * 2 + 16)  # four times the widths
    else:  # compilers keep about half of these and add as many in the backward pass
        row = computed_numbers(plan, shapes.params, 1)
    activations = 4 * rows * (row + _expanded_size(plan))
    running = 3 * trajectory + 4 * _tree_bytes(shapes.params) + activations
    return 2 * lanes * lane + min(lanes, tile * devices) * running


def _on_gpus(plan: Plan, shapes: LaneState, lane: int, lanes: int, block: int) -> int:
    segments = shapes.episode_return.shape[0]
    steps = plan.rollout_length * segments
    observation_bytes = plan.rollout_length * _tree_bytes(shapes.observation)
    trajectory = 2 * (observation_bytes + _RECORD_BYTES * steps)
    if values_wait(plan) and not environments.make(plan.env).never_ends:
        trajectory += observation_bytes  # final observations
    rows = math.ceil(plan.minibatch_size * segments // plan.num_envs / plan.gradient_accumulation)
    row = 4 * _row_numbers_on_gpus(plan, shapes.params) + _expanded_bytes(plan, rows)
    running = trajectory + 2 * _tree_bytes(shapes.params) + rows * row
    if lanes > block:  # tiles are read from one copy of all lanes and written to another
        return 2 * lanes * lane + block * (lane + running)
    return lanes * (lane + running)


def _row_numbers_on_gpus(plan: Plan, params: Any) -> int:
    """Return the number of values per sample that learning keeps at the same time.

    For an MLP these are the layers of both towers, the two widest arrays of the backward pass, and
    three and a half times the outputs. For other networks it is a fixed share of the values in one
    forward pass.
    """
    if plan.network != "mlp":
        share = _KEPT_ON_GPUS.get(plan.network, 1.0)
        return math.ceil(share * computed_numbers(plan, params, 1))
    outputs = params["actor_head"]["kernel"].shape[0]
    return 2 * (sum(plan.hidden_sizes) + max(plan.hidden_sizes, default=1)) + 7 * outputs // 2 + 8


def gpu_tile(plan: Plan, example: Hypers, lanes: int, memory_bytes: int) -> int:
    """Return the tile width: the number of lanes that one GPU runs in parallel.

    Tiles run one after the other, and a kernel takes as long for few lanes as for many. So all
    lanes run at once if memory allows; otherwise the tile has the largest of a few fixed widths
    that fits. If all lanes would fit only in narrow tiles, the result is the widest tile that fits
    alone, and the number of lanes is reduced to it.
    """
    whole = min(_RUNGS[0], math.ceil(lanes / _LEAST_STEP) * _LEAST_STEP)
    ladder = (whole, *(rung for rung in _RUNGS if rung < whole))

    def fits(lanes: int, tile: int) -> bool:
        needed = estimate_memory(plan, example, lanes, tile, 1)
        return needed <= MEMORY_SHARE * memory_bytes

    for tile in ladder:
        if (tile >= _WIDE or tile == whole) and fits(math.ceil(lanes / tile) * tile, tile):
            return tile
    return next((tile for tile in ladder if fits(tile, tile)), _RUNGS[-1])


def _expanded_size(plan: Plan) -> int:
    stored = environments.make(plan.env).observation_struct
    if not hasattr(stored, "as_vector"):
        return 0
    return jax.eval_shape(as_array, stored).size


def _expanded_bytes(plan: Plan, rows: int) -> int:
    stored = environments.make(plan.env).observation_struct
    normalised = "normalise_observations" in plan.features
    if hasattr(stored, "as_flags") and takes_flags(plan, rows) and not normalised:
        return _expanded_size(plan)
    return 4 * _expanded_size(plan)


def _tree_bytes(tree: Any) -> int:
    leaves = (np.asarray(leaf) if np.isscalar(leaf) else leaf for leaf in jax.tree.leaves(tree))
    return sum(math.prod(leaf.shape) * np.dtype(leaf.dtype).itemsize for leaf in leaves)


# Bytes of all values of one forward pass, most of which no compiler keeps. On cores with 1 MiB of
# cache, a sample's gradient was cheapest at 10 to 60 MB, and cost 1.4 to 1.9 times as much at 180
# MB and more.
_CACHE_BYTES = 16 * 2**20
_FEWEST_ROWS = 16


def for_platform(plan: Plan, platform: str) -> Plan:
    """Return the plan with every device-dependent setting chosen for a platform.

    The plan gets that platform's backend, and its optical environments get the observation format
    that suits it. The number of gradient parts per minibatch is kept if set; otherwise it is 1 on
    a GPU and `fitting_parts` on a CPU.
    """
    backend = backend_of(platform)
    env, eval_env = (for_backend(env, backend) for env in (plan.env, plan.eval_env))
    plan = dataclasses.replace(plan, env=env, eval_env=eval_env, backend=backend)
    if plan.gradient_accumulation != AUTOMATIC:
        return plan
    parts = 1
    if platform == "cpu":
        parts = _parts_on_cpu(plan)
    return dataclasses.replace(plan, gradient_accumulation=parts)


def fitting_parts(rows: int, row_bytes: int, least: int = _FEWEST_ROWS) -> int:
    """Return the smallest number of equal parts such that a part's activations fit into cache.

    A part has at least `least` rows, because smaller matrix products are slow. If no number of
    parts below twice this minimum divides the rows evenly, the last part is padded.

    >>> fitting_parts(1600, 10_000), fitting_parts(1600, 200_000), fitting_parts(1600, 10**7)
    (1, 20, 100)
    """
    fitting = max(least, _CACHE_BYTES // max(1, row_bytes))
    fewest = math.ceil(rows / fitting)
    return next((parts for parts in range(fewest, 2 * fewest) if rows % parts == 0), fewest)


@lru_cache(maxsize=256)
def _parts_on_cpu(plan: Plan) -> int:
    rows, steps = plan.minibatch_size, 1
    if plan.by_segments:
        steps = plan.rollout_length
        rows = math.ceil(rows / steps)
    return fitting_parts(rows, steps * _row_bytes(plan), math.ceil(_FEWEST_ROWS / steps))


def _row_bytes(plan: Plan) -> int:
    hypers = make_hypers({}, {}, {})  # shapes do not depend on their values
    key = jax.ShapeDtypeStruct((), jax.random.key(0, impl="threefry2x32").dtype)
    params = jax.eval_shape(lambda key: policy.init_params(plan, hypers, key), key)
    one, two = (computed_numbers(plan, params, rows) for rows in (1, 2))
    return 4 * (two - one)
