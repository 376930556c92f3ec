"""Schedules as traced choices: every lane may follow another one in the same program.

The kind is an int32 leaf, all curves are a handful of scalar operations, and the lane's own is
selected. User code may register more of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ..errors import ConfigError
from ..knobs import SCHEDULE_KNOBS, SCHEDULES, allow_choice

__all__ = ["KINDS", "annealed_lambda", "curve", "register", "scheduled"]

KINDS = {name: index for index, name in enumerate(SCHEDULES)}
Factor = Callable[[Array, Array], Array]
_OWN: list[Factor] = []


def register(name: str, factor: Factor) -> None:
    """Add a schedule: `factor(p, end_fraction)` gives the value over the initial one.

    p is the share of the horizon that is done, float32 in 0 .. 1. Every `..._schedule` knob then
    takes the name. Programs compiled before do not know it.

    Raises:
        ConfigError: the name is taken.
    """
    if name in KINDS:
        raise ConfigError(f"a schedule {name!r} exists already; register it under another name")
    KINDS[name] = len(KINDS)
    _OWN.append(factor)
    for knob in SCHEDULE_KNOBS:
        allow_choice(knob, name)


def scheduled(
    initial: Float[Array, ""],
    kind: Int[Array, ""],
    progress: Float[Array, ""],
    *,
    end_fraction: Float[Array, ""],
    multiplier: Float[Array, ""],
    exponent: Float[Array, ""],
    warmup_fraction: Float[Array, ""],
    peak_multiplier: Float[Array, ""],
    start_fraction: Float[Array, ""],
) -> Float[Array, ""]:
    """Return the scheduled value at `progress` (updates done over updates of the full run).

    With p = min(1, progress / multiplier), v0 the initial value, e the end fraction, and
    c(x) = (0.5 (1 + cos(pi x)))^exponent:

    - constant: v0
    - linear: v0 (1 + (e - 1) p)
    - cosine: v0 (e + (1 - e) c(p))
    - warmup_cosine: from v0 * start to v0 * peak over the share w of the horizon, then
      v0 (e + (peak - e) c((p - w) / (1 - w))), which ends at v0 * e.
    - a registered one: v0 factor(p, e)
    """
    p = jnp.minimum(1.0, progress / multiplier)

    def cosine(x: Float[Array, ""]) -> Float[Array, ""]:
        return jnp.maximum(0.5 * (1.0 + jnp.cos(jnp.pi * x)), 0.0) ** exponent

    linear = 1.0 + (end_fraction - 1.0) * p
    decay = end_fraction + (1.0 - end_fraction) * cosine(p)
    width = jnp.maximum(warmup_fraction, 1e-12)
    rise = start_fraction + (peak_multiplier - start_fraction) * (p / width)
    rest = jnp.clip((p - warmup_fraction) / (1.0 - warmup_fraction), 0.0, 1.0)
    fall = end_fraction + (peak_multiplier - end_fraction) * cosine(rest)
    warmup = jnp.where(p < warmup_fraction, rise, fall)
    own = [factor(p, end_fraction) for factor in _OWN]
    factors = jnp.stack([jnp.ones_like(p), linear, decay, warmup, *own])
    return initial * factors[kind]


def curve(
    hypers: Any,
    progress: Float[Array, ""],
    initial: Float[Array, ""],
    kind: Int[Array, ""],
    end_fraction: Float[Array, ""],
    multiplier: Float[Array, ""],
    **warmup: Float[Array, ""],
) -> Float[Array, ""]:
    """Return `scheduled` with the warm-up and the exponent of the learning rate.

    Args:
        hypers: of one lane (`hypers.Hypers`).
        progress: of its run.
        initial: the value scheduled.
        kind: index into `SCHEDULES`.
        end_fraction: final value over the initial.
        multiplier: horizon over the length of the run.
        **warmup: what is not the learning rate's; the peak is the initial value unless given.
    """
    shape = {
        "exponent": hypers.lr_decay_exponent,
        "warmup_fraction": hypers.lr_warmup_fraction,
        "peak_multiplier": jnp.ones_like(progress),
        "start_fraction": hypers.lr_warmup_start_fraction,
        **warmup,
    }
    return scheduled(
        initial, kind, progress, end_fraction=end_fraction, multiplier=multiplier, **shape
    )


def annealed_lambda(
    initial: Float[Array, ""],
    final: Float[Array, ""],
    progress: Float[Array, ""],
    multiplier: Float[Array, ""],
) -> Float[Array, ""]:
    """Return lambda(p) = l0 + (l1 - l0)(1 - sech(3 p)) with p = progress / multiplier.

    At multiplier 1 it ends 90.07 % of the way, as published. No horizon ends it: below 1 it comes
    nearer to l1 until the run ends. Above 1, progress past the run's length counts as before.
    """
    p = jnp.minimum(jnp.maximum(1.0, 1.0 / multiplier), progress / multiplier)
    return initial + (final - initial) * (1.0 - 1.0 / jnp.cosh(3.0 * p))
