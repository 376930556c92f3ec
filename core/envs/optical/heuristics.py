"""Classical heuristics that choose a path and a slot on it.

Each heuristic scores paths or (path, start) pairs; ties go to the first path, then to the lowest
slot. Scores are integers (or quotients of small ones), so ties are the same on every machine. If
nothing fits, heuristics return path 0 and slot 0, which is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, UInt32

from ....errors import UnknownNameError
from ...pytree import Pytree, pytree
from . import spectrum
from .network_state import Network, Offers, OpticalState, take
from .spectrum import NONE, ZERO, first_set, shift_up, unpack, window
from .traffic import OpticalParams

Choice = tuple[Int[Array, ""], Int[Array, ""]]
# (state, its offers, params) -> (path, start slot)
Heuristic = Callable[[OpticalState, Offers, OpticalParams], Choice]

WORST = np.int32(2**31 - 1)
FIXED_POINT = 2**20


def make_heuristic(name: str | Heuristic, environment: Network) -> Heuristic:
    if not isinstance(name, str):
        return name
    if name not in HEURISTICS:
        raise UnknownNameError("heuristic", name, HEURISTICS)
    rule = HEURISTICS[name]

    def choose(state: OpticalState, offers: Offers, params: OpticalParams) -> Choice:
        return rule(environment, state, offers)

    return choose


def _start_on_path(path: Int[Array, ""], starts: Int[Array, " K"]) -> Choice:
    return path, _or_0(take(starts, path))


def _or_0(start: Int[Array, ""]) -> Int[Array, ""]:
    return jnp.where((start == NONE) | (start < 0), 0, start)


def _first_path(starts: Int[Array, " K"]) -> Int[Array, ""]:
    return jnp.argmax((starts >= 0) & (starts < NONE)).astype(jnp.int32)


def _cheapest_path(cost: Int[Array, " K"], first: Int[Array, " K"]) -> Int[Array, ""]:
    return jnp.argmin(jnp.where(first < NONE, cost, WORST)).astype(jnp.int32)


def _ff_ksp(env: Network, state: OpticalState, offers: Offers) -> Choice:
    """Return the path with the lowest start slot, and that slot."""
    first = first_set(offers.starts)
    return _start_on_path(jnp.argmin(first).astype(jnp.int32), first)


def _real_hops(env: Network, state: OpticalState, offers: Offers) -> Bool[Array, "K H"]:
    counts = take(env.tables.hop_counts, state.request.pair)
    return jnp.arange(offers.hops.shape[1], dtype=jnp.int32)[None] < counts[:, None]


def surplus(
    words: UInt32[Array, "K H W"],
    real: Bool[Array, "K H"],
    starts: UInt32[Array, "K W"],
    need: Int[Array, " K"],
    slots: int,
) -> Int[Array, "K S"]:
    """Return the slots left over in the free block at each start, summed over all `real` links."""
    below, above = spectrum.nearest_set(words, slots)
    counted = real[:, :, None] & (below != above)
    over = above - below - 1 - need[:, None, None]
    cost = jnp.where(counted, over, 0).sum(1, dtype=jnp.int32)
    return jnp.where(unpack(starts, slots), cost, WORST)


def _bf_ksp(env: Network, state: OpticalState, offers: Offers) -> Choice:
    """Return the path and start in the tightest free block (mean over the path's links)."""
    words, real = _hop_words(env, state, offers), _real_hops(env, state, offers)
    cost = surplus(words, real, offers.starts, offers.need, env.slots)
    hops = jnp.maximum(take(env.tables.hop_counts, state.request.pair), 1)
    start = jnp.argmin(cost, 1).astype(jnp.int32)
    least = cost.min(1)
    mean = jnp.where(least < WORST, least.astype(jnp.float32) / hops.astype(jnp.float32), jnp.inf)
    return _start_on_path(jnp.argmin(mean).astype(jnp.int32), start)


def _slot_usage(env: Network, state: OpticalState, offers: Offers) -> Int[Array, "K S"]:
    """Return the number of links that use each slot; -1 where the service cannot start."""
    occupied = unpack(env.resources.occupancy(state.held), env.slots)
    usage = occupied.sum(0, dtype=jnp.int32)
    return jnp.where(unpack(offers.starts, env.slots), usage[None], -1)


def _ksp_mu(env: Network, state: OpticalState, offers: Offers) -> Choice:
    """Return the first path with room, at the start slot most used in the whole network."""
    usage = _slot_usage(env, state, offers)
    path = _first_path(first_set(offers.starts))
    return _start_on_path(path, jnp.argmax(usage, 1).astype(jnp.int32))


def _mu_ksp(env: Network, state: OpticalState, offers: Offers) -> Choice:
    """Return the path with the start slot most used in the whole network, and that slot."""
    usage = _slot_usage(env, state, offers)
    path = jnp.argmax(usage.max(1)).astype(jnp.int32)
    return _start_on_path(path, jnp.argmax(usage, 1).astype(jnp.int32))


def _kca_ff(env: Network, state: OpticalState, offers: Offers) -> Choice:
    """Congestion-aware: lowest start on the path with the least sum of km / (1 - taken / (S + 1)).

    Each link's term is rounded down to sixteenths of a km.
    """
    taken = unpack(env.resources.occupancy(state.held), env.slots).sum(1, dtype=jnp.int32)
    sixteenths = jnp.asarray(np.round(env.tables.km * 16), jnp.int32)
    cost = sixteenths * (env.slots + 1) // (env.slots + 1 - taken)
    first = first_set(offers.starts)
    real = _real_hops(env, state, offers)
    total = jnp.where(real, take(cost, offers.hops), 0).sum(1, dtype=jnp.int32)
    return _start_on_path(_cheapest_path(total, first), first)


@pytree
class _FirstFit(Pytree):
    """Each path's lowest start and the free slots next to it per link, for the `k.._ff` rules."""

    first: Int[Array, " K"]  # lowest start or NONE
    counted: Bool[Array, "K H"]  # links where the whole service fits into a free block
    left: Int[Array, "K H"]  # free slots just below the service
    right: Int[Array, "K H"]  # free slots just above it


def _first_fit(env: Network, state: OpticalState, offers: Offers) -> _FirstFit:
    words, first = _hop_words(env, state, offers), first_set(offers.starts)
    start = jnp.where(first == NONE, 0, first)
    end = start + offers.need
    width, none = words.shape[-1], jnp.zeros((), jnp.int32)
    low = jax.vmap(lambda s: window(width, none, s))(start)[:, None]
    high = jax.vmap(lambda e: window(width, e, jnp.asarray(env.slots)))(end)[:, None]
    left = start[:, None] - spectrum.last_set(words & low) - 1
    right = jnp.minimum(first_set(words & high), env.slots) - end[:, None]
    free = ((words & ~low & ~high) == ZERO).all(-1)
    return _FirstFit(first, _real_hops(env, state, offers) & free, left, right)


def _hop_words(env: Network, state: OpticalState, offers: Offers) -> UInt32[Array, "K H W"]:
    return take(env.resources.occupancy(state.held), offers.hops)


def _kmc_ff(env: Network, state: OpticalState, offers: Offers) -> Choice:
    """Minimum cuts: the path whose first fit adds the fewest free blocks (sum over its links)."""
    fit = _first_fit(env, state, offers)
    added = (fit.left > 0).astype(jnp.int32) + (fit.right > 0).astype(jnp.int32) - 1
    cost = jnp.where(fit.counted, added, 0).sum(1, dtype=jnp.int32)
    return _start_on_path(_cheapest_path(cost, fit.first), fit.first)


def _kmf_ff(env: Network, state: OpticalState, offers: Offers) -> Choice:
    """Minimum fragments: the path whose first fit leaves the fewest free slots just below it."""
    fit = _first_fit(env, state, offers)
    cost = jnp.where(fit.counted, fit.left, 0).sum(1, dtype=jnp.int32)
    return _start_on_path(_cheapest_path(cost, fit.first), fit.first)


def _kme_ff(env: Network, state: OpticalState, offers: Offers) -> Choice:
    """Minimum entropy: the path with the least fragmented spectrum after the first fit.

    A link's entropy is the sum of (b / S) ln(S / b) over its free blocks of b slots, each term
    rounded to 2**-20 (Wright et al., "Minimum- and maximum-entropy routing and spectrum assignment
    for flexgrid elastic optical networking", JOCN 7(1), 2015).
    """
    fit = _first_fit(env, state, offers)
    sizes = range(1, env.slots + 1)
    exact = [0.0] + [b / env.slots * math.log(env.slots / b) for b in sizes]
    terms = jnp.asarray(np.round(np.array(exact) * FIXED_POINT).astype(np.int32))
    words = _hop_words(env, state, offers)
    _, above = spectrum.nearest_set(words, env.slots)
    begins = unpack(~words & ~shift_up(~words), env.slots)
    slot = jnp.arange(env.slots, dtype=jnp.int32)[None, None]
    before = take(terms, jnp.where(begins, above - slot, 0)).sum(-1, dtype=jnp.int32)
    # Only the block that is cut changes: its two remainders replace it.
    whole = fit.left + offers.need[:, None] + fit.right
    cut = [jnp.clip(size, 0, env.slots) for size in (fit.left, fit.right, whole)]
    change = take(terms, cut[0]) + take(terms, cut[1]) - take(terms, cut[2])
    after = before + jnp.where(fit.counted, change, 0)
    cost = jnp.where(_real_hops(env, state, offers), after, 0).sum(1, dtype=jnp.int32)
    return _start_on_path(_cheapest_path(cost, fit.first), fit.first)


_Number = Int[Array, ""]
# (env, state, its offers, path) -> start slot, `NONE` or -1 where the path has no room
Fit = Callable[[Network, OpticalState, Offers, _Number], _Number]


def start_of(
    env: Network, state: OpticalState, offers: Offers, path: _Number, fit: _Number
) -> _Number:
    """Return the start slot on a path for entry `fit` of `fits`; 0 if nothing fits."""
    starts = jnp.stack([FITS[name](env, state, offers, path) for name in env.settings.fits])
    return _or_0(take(starts, fit))


def _lowest_start(env: Network, state: OpticalState, offers: Offers, path: _Number) -> _Number:
    return first_set(take(offers.starts, path))


def _highest_start(env: Network, state: OpticalState, offers: Offers, path: _Number) -> _Number:
    return spectrum.last_set(take(offers.starts, path))


def _best_fit_start(env: Network, state: OpticalState, offers: Offers, path: _Number) -> _Number:
    hops = take(offers.hops, path)
    words = take(env.resources.occupancy(state.held), hops)
    count = take(take(env.tables.hop_counts, state.request.pair), path)
    real = jnp.arange(hops.shape[0], dtype=jnp.int32) < count
    starts = take(offers.starts, path)
    cost = surplus(words[None], real[None], starts[None], take(offers.need, path)[None], env.slots)
    start = jnp.argmin(cost[0]).astype(jnp.int32)
    return jnp.where((starts != ZERO).any(), start, NONE)


def _exact_fit_start(env: Network, state: OpticalState, offers: Offers, path: _Number) -> _Number:
    """Return the start of the lowest free block that the service fills exactly.

    Without such a block, return the lowest start.
    """
    free, starts = take(offers.free, path), take(offers.starts, path)
    one = (free[None], take(offers.need, path)[None] + 1)
    wider = spectrum.starts_of_free_runs(*one, env.slots)[0]
    begins = free & ~shift_up(free)
    filled = first_set(starts & begins & ~wider)
    return jnp.where(filled == NONE, first_set(starts), filled)


# Keys are those of `optical_settings.FIT_NAMES`
FITS: dict[str, Fit] = {
    "first": _lowest_start,
    "best": _best_fit_start,
    "last": _highest_start,
    "exact": _exact_fit_start,
}

Rule = Callable[[Network, OpticalState, Offers], Choice]


def _on_first_path(fit: Fit) -> Rule:
    def rule(env: Network, state: OpticalState, offers: Offers) -> Choice:
        path = _first_path(first_set(offers.starts))
        return path, _or_0(fit(env, state, offers, path))

    return rule


HEURISTICS: dict[str, Rule] = {
    "ksp_ff": _on_first_path(_lowest_start),
    "ksp_lf": _on_first_path(_highest_start),
    "ff_ksp": _ff_ksp,
    "ksp_bf": _on_first_path(_best_fit_start),
    "bf_ksp": _bf_ksp,
    "ksp_mu": _ksp_mu,
    "mu_ksp": _mu_ksp,
    "kca_ff": _kca_ff,
    "kmc_ff": _kmc_ff,
    "kmf_ff": _kmf_ff,
    "kme_ff": _kme_ff,
}
