"""The traced part of a configuration: arrays, one per hyperparameter, that may differ per lane.

Values that shape a program are in `plan.Plan`; no field is in both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..errors import ConfigError
from ..knobs import KNOBS, SCHEDULE_KNOBS, SCHEDULES, allow_choice, complete
from .pytree import Leaf, Pytree, pytree

KINDS = {name: index for index, name in enumerate(SCHEDULES)}
Scalar = Float[Array, ""]
Factor = Callable[[Array, Array], Array]
_OWN: list[Factor] = []


def register(name: str, factor: Factor) -> None:
    """Add a schedule: `factor(p, end_fraction)` gives the value over the initial one.

    p is the share of the horizon that is done, float32 in 0 .. 1. Every `..._schedule`
    hyperparameter then takes the name. Programs compiled before do not know it.

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
    initial: Scalar,
    kind: Int[Array, ""],
    progress: Scalar,
    *,
    end_fraction: Scalar,
    multiplier: Scalar,
    exponent: Scalar,
    warmup_fraction: Scalar,
    peak_multiplier: Scalar,
    start_fraction: Scalar,
) -> Scalar:
    """Return the scheduled value at `progress` (updates done over updates of the full run).

    With p = min(1, progress / multiplier), v0 the initial value, e the end fraction, and c(x) =
    (0.5 (1 + cos(pi x)))^exponent:

    - constant: v0
    - linear: v0 (1 + (e - 1) p)
    - cosine: v0 (e + (1 - e) c(p))
    - warmup_cosine: from v0 * start to v0 * peak over the share w of the horizon, then
      v0 (e + (peak - e) c((p - w) / (1 - w))), which ends at v0 * e.
    - a registered one: v0 factor(p, e)
    """
    p = jnp.minimum(1.0, progress / multiplier)

    def cosine(x: Scalar) -> Scalar:
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
    progress: Scalar,
    initial: Scalar,
    kind: Int[Array, ""],
    end_fraction: Scalar,
    multiplier: Scalar,
    **warmup: Scalar,
) -> Scalar:
    """Return `scheduled`; `warmup` replaces the warm-up and the exponent of the learning rate."""
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
    initial: Scalar, final: Scalar, progress: Scalar, multiplier: Scalar
) -> Scalar:
    """Return lambda(p) = l0 + (l1 - l0)(1 - sech(3 p)) with p = progress / multiplier.

    At multiplier 1 it ends 90.07 % of the way, as published. No horizon ends it: below 1 it comes
    nearer to l1 until the run ends. Above 1, progress past the run's length counts as before.
    """
    p = jnp.minimum(jnp.maximum(1.0, 1.0 / multiplier), progress / multiplier)
    return initial + (final - initial) * (1.0 - 1.0 / jnp.cosh(3.0 * p))


OFF = math.inf  # a clip or limit that is off

SAME = -1.0  # `value_clip_eps: same`


@pytree
class Hypers(Pytree):
    """The traced part of a configuration: leaves are float32 or int32, [] or [L].

    Switches are float32 0 or 1, schedules are int32 indices into `SCHEDULES`, limits that are off
    are infinite.
    """

    learning_rate: Float[Leaf, "..."]
    lr_schedule: Int[Leaf, "..."]
    lr_end_fraction: Float[Leaf, "..."]
    lr_warmup_fraction: Float[Leaf, "..."]
    lr_warmup_multiplier: Float[Leaf, "..."]
    lr_warmup_start_fraction: Float[Leaf, "..."]
    lr_schedule_multiplier: Float[Leaf, "..."]
    lr_decay_exponent: Float[Leaf, "..."]
    gamma: Float[Leaf, "..."]
    gae_lambda: Float[Leaf, "..."]
    vf_gae_lambda: Float[Leaf, "..."]
    gae_lambda_initial: Float[Leaf, "..."]
    gae_lambda_final: Float[Leaf, "..."]
    gae_lambda_schedule_multiplier: Float[Leaf, "..."]
    clip_eps: Float[Leaf, "..."]
    clip_eps_schedule: Int[Leaf, "..."]
    clip_eps_end_fraction: Float[Leaf, "..."]
    value_clip_eps: Float[Leaf, "..."]
    vf_coef: Float[Leaf, "..."]
    ent_coef: Float[Leaf, "..."]
    ent_schedule: Int[Leaf, "..."]
    ent_end_fraction: Float[Leaf, "..."]
    ent_schedule_multiplier: Float[Leaf, "..."]
    max_grad_norm: Float[Leaf, "..."]
    adam_eps: Float[Leaf, "..."]
    adam_beta1: Float[Leaf, "..."]
    adam_beta2: Float[Leaf, "..."]
    weight_decay: Float[Leaf, "..."]
    sgd_momentum: Float[Leaf, "..."]
    muon_momentum: Float[Leaf, "..."]
    separate_vf_optimiser: Float[Leaf, "..."]
    vf_learning_rate: Float[Leaf, "..."]
    vf_lr_schedule: Int[Leaf, "..."]
    vf_lr_end_fraction: Float[Leaf, "..."]
    vf_warmup_fraction: Float[Leaf, "..."]
    vf_warmup_multiplier: Float[Leaf, "..."]
    vf_warmup_start_fraction: Float[Leaf, "..."]
    vf_schedule_multiplier: Float[Leaf, "..."]
    vf_adam_eps: Float[Leaf, "..."]
    vf_adam_beta1: Float[Leaf, "..."]
    vf_adam_beta2: Float[Leaf, "..."]
    vf_max_grad_norm: Float[Leaf, "..."]
    vf_weight_decay: Float[Leaf, "..."]
    shadow_weight: Float[Leaf, "..."]
    reward_scale: Float[Leaf, "..."]
    reward_clip: Float[Leaf, "..."]
    reward_centering: Float[Leaf, "..."]
    average_reward_initial: Float[Leaf, "..."]
    average_reward_step: Float[Leaf, "..."]
    normalise_observations: Float[Leaf, "..."]
    observation_clip: Float[Leaf, "..."]
    normalise_rewards: Float[Leaf, "..."]
    raw_reward_deviation: Float[Leaf, "..."]
    normalise_advantages: Float[Leaf, "..."]
    logr_clip: Float[Leaf, "..."]
    adv_clip: Float[Leaf, "..."]
    target_kl: Float[Leaf, "..."]
    priority_alpha: Float[Leaf, "..."]
    priority_beta0: Float[Leaf, "..."]
    anneal_priority_beta: Float[Leaf, "..."]
    rho_clip: Float[Leaf, "..."]
    c_clip: Float[Leaf, "..."]
    log_std_init: Float[Leaf, "..."]
    log_std_min: Float[Leaf, "..."]
    log_std_max: Float[Leaf, "..."]
    update_epochs: Int[Leaf, "..."]
    action_masking: Float[Leaf, "..."]
    off_policy_masking: Float[Leaf, "..."]
    masking_gate_min_actions: Int[Leaf, "..."]
    masking_gating: Float[Leaf, "..."]
    masking_damping: Float[Leaf, "..."]
    valid_mass_target: Float[Leaf, "..."]
    valid_mass_coef: Float[Leaf, "..."]
    valid_mass_schedule: Int[Leaf, "..."]
    valid_mass_end_fraction: Float[Leaf, "..."]
    valid_mass_schedule_multiplier: Float[Leaf, "..."]
    schedule_on_gradient_steps: Float[Leaf, "..."]
    env_params: Any  # parameters of the environment, a pytree of float32
    eval_params: Any  # those of the evaluation environment


def make_hypers(config: Mapping[str, Any], env_params: Any, eval_params: Any) -> Hypers:
    return hypers_of(complete(config), env_params, eval_params)


def hypers_of(full: Mapping[str, Any], env_params: Any, eval_params: Any) -> Hypers:
    if full["gae_lambda_initial"] is None:  # no annealing is annealing between equals
        same = dict.fromkeys(("gae_lambda_initial", "gae_lambda_final"), full["gae_lambda"])
        full = {**full, **same}
    leaves = {name: _encode(name, full[name]) for name, knob in KNOBS.items() if knob.traced}
    return Hypers(**leaves, env_params=_floats(env_params), eval_params=_floats(eval_params))


def _encode(name: str, value: Any) -> np.ndarray:
    if KNOBS[name].type == "int":
        return np.asarray(value, np.int32)
    if isinstance(value, str):
        same = value == "same"
        return np.asarray(SAME, np.float32) if same else np.asarray(KINDS[value], np.int32)
    return np.asarray(OFF if value is None else value, np.float32)


def _floats(params: Any) -> Any:
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), params)
