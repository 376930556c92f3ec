"""What a study leaves to the devices: its backend, and in how many parts gradients are summed.

Networks over links hold tens of kilobytes a sample and layer. On a CPU a large minibatch of them
runs out of cache, so that its gradient is taken part by part; what is learned is the same.
"""

from __future__ import annotations

import dataclasses
import math
from functools import lru_cache

import jax

from . import policy
from .activations import computed_numbers
from .backend import backend_of
from .hypers import make_hypers
from .plan import AUTOMATIC, Plan, with_packed_spectra, with_unrolled_steps

__all__ = ["fitting_parts", "for_platform"]

# Counted is all that one forward pass computes, most of which no compiler keeps. On cores with
# 1 MiB of cache a sample's gradient cost least at 10 to 60 MB, 1.4 to 1.9 times as much at 180 and
# more.
_CACHE_BYTES = 16 * 2**20
_FEWEST_ROWS = 16


def for_platform(plan: Plan, platform: str) -> Plan:
    """Return a plan with nothing left to the devices.

    It is written for their backend, its optical environments observe what fits that, and it says
    in how many parts the gradient of every minibatch is summed: as many as it says already; where
    it leaves that open 1 on a GPU, on a CPU `fitting_parts`.

    Args:
        plan: of a study.
        platform: of the devices that it is compiled for.
    """
    backend = backend_of(platform)
    if plan.backend != backend:
        plan = dataclasses.replace(plan, backend=backend)
    if backend.packs_observations:
        env, eval_env = with_packed_spectra(plan.env), with_packed_spectra(plan.eval_env)
        plan = dataclasses.replace(plan, env=env, eval_env=eval_env)
    if backend.unrolls_steps:
        env, eval_env = with_unrolled_steps(plan.env), with_unrolled_steps(plan.eval_env)
        plan = dataclasses.replace(plan, env=env, eval_env=eval_env)
    if plan.gradient_accumulation != AUTOMATIC:
        return plan
    parts = _parts_on_cpu(plan) if platform == "cpu" else 1
    return dataclasses.replace(plan, gradient_accumulation=parts)


def fitting_parts(rows: int, row_bytes: int, least: int = _FEWEST_ROWS) -> int:
    """Return the fewest parts of equal size whose activations stay in cache.

    Where no number of parts below twice the fewest divides the rows, the last part is filled up.

    Args:
        rows: of a minibatch.
        row_bytes: that one forward pass computes of a row.
        least: rows that a part has at least, or matrix products would be slow.

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
    """Return the bytes that one forward pass computes of each further row."""
    hypers = make_hypers({}, {}, {})  # of which shapes do not depend
    key = jax.ShapeDtypeStruct((), jax.random.key(0, impl="threefry2x32").dtype)
    params = jax.eval_shape(lambda key: policy.init_params(plan, hypers, key), key)
    one, two = (computed_numbers(plan, params, rows) for rows in (1, 2))
    return 4 * (two - one)
