"""Where on a path a service may start: the fits among which deeprmsa's actions choose."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Int

from .bits import NONE, ZERO, first_set, last_set, shift_up, starts_of_free_runs
from .heuristics import surplus
from .network_state import Network, OpticalState
from .network_tables import take
from .resources import Offers

__all__ = ["FITS", "start_of"]

Fit = Callable[[Network, OpticalState, Offers, Int[Array, ""]], Int[Array, ""]]
"""(env, state, its offers, path) -> start slot, `NONE` or -1 where the path has no room."""


def start_of(
    env: Network, state: OpticalState, offers: Offers, path: Int[Array, ""], fit: Int[Array, ""]
) -> Int[Array, ""]:
    """Return the start slot on a path by a fit, its number in `env.settings.fits`; 0 without room.

    Args:
        env: the network.
        state: of it.
        offers: of the candidate paths.
        path: rank of one of them.
        fit: number of a fit.
    """
    starts = jnp.stack([FITS[name](env, state, offers, path) for name in env.settings.fits])
    start = take(starts, fit)
    return jnp.where((start == NONE) | (start < 0), 0, start)


def _first(
    env: Network, state: OpticalState, offers: Offers, path: Int[Array, ""]
) -> Int[Array, ""]:
    """Return the lowest start."""
    return first_set(take(offers.starts, path))


def _last(
    env: Network, state: OpticalState, offers: Offers, path: Int[Array, ""]
) -> Int[Array, ""]:
    """Return the highest start."""
    return last_set(take(offers.starts, path))


def _best(
    env: Network, state: OpticalState, offers: Offers, path: Int[Array, ""]
) -> Int[Array, ""]:
    """Return the start of the tightest free block, by the mean over the path's links: ksp_bf's."""
    hops = take(offers.hops, path)
    words = take(env.resources.occupancy(state.held), hops)
    count = take(take(env.tables.hop_counts, state.request.pair), path)
    real = jnp.arange(hops.shape[0], dtype=jnp.int32) < count
    starts = take(offers.starts, path)
    cost = surplus(words[None], real[None], starts[None], take(offers.need, path)[None], env.slots)
    start = jnp.argmin(cost[0]).astype(jnp.int32)
    return jnp.where((starts != ZERO).any(), start, NONE)


def _exact(
    env: Network, state: OpticalState, offers: Offers, path: Int[Array, ""]
) -> Int[Array, ""]:
    """Return the lowest block free on the whole path that it fills; else the lowest start."""
    free, starts = take(offers.free, path), take(offers.starts, path)
    wider = starts_of_free_runs(free[None], take(offers.need, path)[None] + 1, env.slots)[0]
    begins = free & ~shift_up(free)
    filled = first_set(starts & begins & ~wider)
    return jnp.where(filled == NONE, first_set(starts), filled)


FITS: dict[str, Fit] = {"first": _first, "best": _best, "last": _last, "exact": _exact}
"""By the names of `optical_settings.FIT_NAMES`."""
