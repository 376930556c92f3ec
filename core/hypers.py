"""The traced part of a configuration: an array per hyperparameter, which may differ per lane.

Static values are in `plan.Plan`; no field is in both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..errors import require_new
from ..knobs import KNOBS, SCHEDULE_KNOBS, SCHEDULES, allow_choice, complete
from ..knobs.knob import Knob
from .pytree import Leaf, Pytree, pytree

KINDS = {name: index for index, name in enumerate(SCHEDULES)}
Scalar = Float[Array, ""]
Factor = Callable[[Array, Array], Array]
_OWN: list[Factor] = []


def register(name: str, factor: Factor) -> None:
    """Add a schedule: `factor(p, end_fraction)` returns the value divided by the initial value.

    p is the completed share of the horizon, float32 in 0 .. 1. Every `..._schedule` hyperparameter
    then accepts the name. Programs that are already compiled do not change.

    Raises:
        ConfigError: the name is taken.
    """
    require_new("schedule", name, KINDS)
    KINDS[name] = len(KINDS)
    _OWN.append(factor)
    for knob in SCHEDULE_KNOBS:
        allow_choice(knob, name)


def scheduled(
    hypers: Any,
    progress: Scalar,
    *,
    initial: Scalar,
    kind: Int[Array, ""],
    end_fraction: Scalar,
    multiplier: Scalar,
    **warmup: Scalar,
) -> Scalar:
    """Return the scheduled value at `progress` (completed updates / updates in a full run).

    With p = min(1, progress / multiplier), v0 the initial value, e the end fraction, and c(x) =
    (0.5 (1 + cos(pi x)))^exponent:

    - constant: v0
    - linear: v0 (1 + (e - 1) p)
    - cosine: v0 (e + (1 - e) c(p))
    - warmup_cosine: from v0 * start to v0 * peak over the share w of the horizon, then
      v0 (e + (peak - e) c((p - w) / (1 - w))), which ends at v0 * e.
    - a registered one: v0 factor(p, e)

    The values in `warmup` replace the learning rate's warm-up settings and exponent.
    """
    shape = {
        "exponent": hypers.lr_decay_exponent,
        "width": hypers.lr_warmup_fraction,
        "peak": jnp.ones_like(progress),
        "start": hypers.lr_warmup_start_fraction,
        **warmup,
    }
    exponent, warm, peak, start = (shape[name] for name in ("exponent", "width", "peak", "start"))
    p = jnp.minimum(1.0, progress / multiplier)

    def cosine(x: Scalar) -> Scalar:
        return jnp.maximum(0.5 * (1.0 + jnp.cos(jnp.pi * x)), 0.0) ** exponent

    linear = 1.0 + (end_fraction - 1.0) * p
    decay = end_fraction + (1.0 - end_fraction) * cosine(p)
    width = jnp.maximum(warm, 1e-12)
    rise = start + (peak - start) * (p / width)
    rest = jnp.clip((p - warm) / (1.0 - warm), 0.0, 1.0)
    fall = end_fraction + (peak - end_fraction) * cosine(rest)
    warmed = jnp.where(p < warm, rise, fall)
    own = [factor(p, end_fraction) for factor in _OWN]
    factors = jnp.stack([jnp.ones_like(p), linear, decay, warmed, *own])
    return initial * factors[kind]


def annealed_lambda(
    initial: Scalar, final: Scalar, progress: Scalar, multiplier: Scalar
) -> Scalar:
    """Return lambda(p) = l0 + (l1 - l0)(1 - sech(3 p)) with p = progress / multiplier.

    At multiplier 1, lambda covers 90.07 % of the way from l0 to l1 by the end of the run, as
    published. With a multiplier below 1, lambda keeps approaching l1 until the run ends. With a
    multiplier above 1, lambda still changes if training continues beyond the run's length.
    """
    p = jnp.minimum(jnp.maximum(1.0, 1.0 / multiplier), progress / multiplier)
    return initial + (final - initial) * (1.0 - 1.0 / jnp.cosh(3.0 * p))


OFF = math.inf  # value of a clip or limit that is switched off

SAME = -1.0  # `value_clip_eps: same`


def _leaf_type(knob: Knob) -> Any:
    if knob.type in ("int", "choice"):
        return Int[Leaf, "..."]
    return Float[Leaf, "..."]


@pytree
class Hypers(Pytree):
    """The traced part of a configuration: an array, [] or [L], for each traced hyperparameter.

    Leaves are float32 or int32. Switches are float32 0 or 1, schedules are int32 indices into
    `SCHEDULES`, and disabled limits are infinite.
    """

    __annotations__ = {name: _leaf_type(knob) for name, knob in KNOBS.items() if knob.traced}
    env_params: Any  # parameters of the training environment, a pytree of float32
    eval_params: Any  # parameters of the evaluation environment

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Array: ...


def make_hypers(config: Mapping[str, Any], env_params: Any, eval_params: Any) -> Hypers:
    return hypers_of(complete(config), env_params, eval_params)


def hypers_of(full: Mapping[str, Any], env_params: Any, eval_params: Any) -> Hypers:
    if full["gae_lambda_initial"] is None:  # without annealing, both ends are equal
        same = dict.fromkeys(("gae_lambda_initial", "gae_lambda_final"), full["gae_lambda"])
        full = {**full, **same}
    leaves = {name: _encode_value(name, full[name]) for name, knob in KNOBS.items() if knob.traced}
    return Hypers(
        **leaves, env_params=_float_leaves(env_params), eval_params=_float_leaves(eval_params)
    )


def _encode_value(name: str, value: Any) -> np.ndarray:
    if KNOBS[name].type == "int":
        return np.asarray(value, np.int32)
    if isinstance(value, str) and value == "same":
        return np.asarray(SAME, np.float32)
    if isinstance(value, str):
        return np.asarray(KINDS[value], np.int32)
    if value is None:
        return np.asarray(OFF, np.float32)
    return np.asarray(value, np.float32)


def _float_leaves(params: Any) -> Any:
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), params)
