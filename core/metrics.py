"""Metrics of one update of one lane, and their aggregation into curve rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .masking import are_valid, valid_actions, valid_fraction
from .pytree import Pytree, pytree


@pytree
class Metrics(Pytree):
    """The metrics of one update, [L] (or [K, L] for a chunk); all float32 except `diverged`.

    Fields without a comment are means over the gradient steps taken in the update.

    `features` contains metrics that only some plans have. Masks add `valid_actions` (mean count
    per step), `valid_actions_min`, `_max`, and `valid_fraction` (mean share of valid actions).
    They also add `valid_mass_mean`, `_std`, `_min` and `_max`, the raw policy's probability of
    valid actions. `invalid_actions` is the share of steps with an invalid action, and
    `all_actions_valid` is 1 if that share is 0. `policy_weight_mean` is the mean weight of a step
    in the policy loss. `choice_fraction` is the share of steps with at least two valid actions;
    `choice_log_prob` and `choice_entropy` are `log_prob` and the entropy over those steps. The
    features with the same names add `average_reward`, `priority_beta`, `priority_mean`,
    `priority_std`, `valid_mass_loss`, `valid_mass_coef` and `progress` (which drives the
    schedules). Shadows add `shadow_removed`, the share of the advantages' variance that they
    removed.
    """

    episodes: Float[Array, "..."]  # number of finished episodes
    episode_return: Float[Array, "..."]  # sum over them
    episode_length: Float[Array, "..."]  # sum over them, env steps
    reward_mean: Float[Array, "..."]  # per env step, unscaled
    loss: Float[Array, "..."]
    policy_loss: Float[Array, "..."]
    value_loss: Float[Array, "..."]
    entropy: Float[Array, "..."]
    approx_kl: Float[Array, "..."]
    clip_fraction: Float[Array, "..."]
    ratio_mean: Float[Array, "..."]
    ratio_std: Float[Array, "..."]
    ratio_min: Float[Array, "..."]  # extreme over the gradient steps, like ratio_max
    ratio_max: Float[Array, "..."]
    # largest |ratio - 1| before the first gradient step; nonzero only through rounding
    ratio_start_error: Float[Array, "..."]
    early_stopped: Float[Array, "..."]  # share of gradient steps that target_kl skipped
    explained_variance: Float[Array, "..."]  # 1 - var(R - V) / var(R)
    value_target_mean: Float[Array, "..."]  # mean of R
    advantage_mean: Float[Array, "..."]  # before normalisation, like advantage_std
    advantage_std: Float[Array, "..."]
    grad_norm: Float[Array, "..."]  # global, before clipping
    # variance of the gradients over the steps, summed over parameters: mean(|g - mean(g)|^2)
    grad_variance: Float[Array, "..."]
    param_norm: Float[Array, "..."]  # after the update
    policy_std: Float[Array, "..."]  # mean standard deviation of a Gaussian policy, else 0
    learning_rate: Float[Array, "..."]  # scheduled values of this update, up to gae_lambda
    vf_learning_rate: Float[Array, "..."]  # differs only with a separate critic optimiser
    clip_eps: Float[Array, "..."]
    ent_coef: Float[Array, "..."]
    gae_lambda: Float[Array, "..."]
    log_prob: Float[Array, "..."]  # of the actions taken
    log_prob_min: Float[Array, "..."]  # the smallest over the gradient steps
    # as the policy loss uses them: clipped, with importance weights
    normalised_advantage_mean: Float[Array, "..."]
    value_mean: Float[Array, "..."]  # mean of V over the rollout
    diverged: Bool[Array, "..."]  # the lane's numbers are meaningless from here on
    features: dict[str, Float[Array, "..."]]
    env: dict[str, Float[Array, "..."]]  # metrics of the environment


_LAST = ("param_norm", "policy_std", "learning_rate", "vf_learning_rate", "clip_eps", "ent_coef",
         "gae_lambda", "explained_variance", "average_reward", "priority_beta", "valid_mass_coef",
         "progress", "episode_return_100", "episode_length_100")  # fmt: skip
_LEAST = ("ratio_min", "valid_mass_min", "valid_actions_min", "log_prob_min", "all_actions_valid")
_MOST = ("ratio_max", "ratio_start_error", "valid_mass_max", "valid_actions_max")


def mask_metrics(
    mask: Bool[Array, "*batch A"],
    valid_mass: Float[Array, "*batch"],
    action: Int[Array, "..."],
    sizes: tuple[int, ...] | None = None,
) -> dict[str, Float[Array, ""]]:
    taken = are_valid(mask, action, sizes)
    count = valid_actions(mask, sizes).astype(jnp.float32)
    return {
        "valid_actions": jnp.mean(count),
        "valid_actions_min": jnp.min(count),
        "valid_actions_max": jnp.max(count),
        "valid_fraction": jnp.mean(valid_fraction(mask, sizes)),
        "valid_mass_mean": jnp.mean(valid_mass),
        "valid_mass_std": jnp.std(valid_mass),
        "valid_mass_min": jnp.min(valid_mass),
        "valid_mass_max": jnp.max(valid_mass),
        "invalid_actions": 1.0 - jnp.mean(taken.astype(jnp.float32)),
        "all_actions_valid": jnp.min(taken.astype(jnp.float32)),
    }


_SUMS = ("episodes", "rollout_seconds", "update_seconds")
_WEIGHTED = ("episode_return", "episode_length")


def split_rows(
    metrics: Metrics, ends: Sequence[int]
) -> tuple[list[Mapping[str, np.ndarray]], np.ndarray]:
    """Split a chunk's metrics [K, L]; return its row, a row per part, and the diverged lanes.

    A row has one value per lane and metric. Episodes are counted; their returns and lengths are
    means (NaN if there are none). The smallest minimum and the largest maximum are kept. Scheduled
    values, norms, the explained variance and the average reward are from the last update.
    Everything else is a mean. `ends` contains the number of updates at the end of each part,
    increasing up to K.
    """
    host: Metrics = jax.device_get(metrics)
    own = [name for name in Metrics.__dataclass_fields__ if name not in ("features", "env")]
    flat = {name: getattr(host, name) for name in own} | dict(host.features)
    diverged = np.any(flat.pop("diverged"), axis=0)
    flat |= {f"env/{name}": value for name, value in host.env.items()}
    return rows_of_chunk(flat, ends), diverged


def rows_of_chunk(
    metrics: Mapping[str, Any], ends: Sequence[int]
) -> list[Mapping[str, np.ndarray]]:
    wide = {name: np.asarray(value, np.float64) for name, value in metrics.items()}
    parts = [slice(first, end) for first, end in zip((0, *ends), ends, strict=False)]
    return [_curve_row(wide, part) for part in (slice(None), *parts)]


def _curve_row(wide: Mapping[str, np.ndarray], part: slice) -> dict[str, np.ndarray]:
    episodes = None
    if "episodes" in wide:
        episodes = np.sum(wide["episodes"][part], axis=0)
    rows: dict[str, np.ndarray] = {}
    for name, whole in wide.items():
        value = whole[part]
        if name == "episodes":
            rows[name] = np.sum(value, axis=0)
        elif episodes is not None and name in _WEIGHTED:
            total = np.sum(value, axis=0)
            rows[name] = np.where(episodes > 0, total / np.maximum(episodes, 1.0), np.nan)
        elif name in _LEAST:
            rows[name] = np.min(value, axis=0)
        elif name in _MOST:
            rows[name] = np.max(value, axis=0)
        elif name in _LAST:
            rows[name] = value[-1]
        else:
            rows[name] = np.mean(value, axis=0)
    return rows


def joined(
    earlier: Mapping[str, float], later: Mapping[str, float], weight: float
) -> dict[str, float]:
    """Merge two neighbouring rows of one lane by the same rules as `split_rows`.

    `weight` is the number of updates in `earlier` divided by the number in `later`.

    >>> joined({"loss": 1.0, "ratio_max": 2.0}, {"loss": 4.0, "ratio_max": 1.5}, 2.0)
    {'loss': 2.0, 'ratio_max': 2.0}
    """
    ended = earlier.get("episodes", 0.0), later.get("episodes", 0.0)
    return {
        name: _join_metric(name, earlier.get(name, math.nan), value, weight, ended)
        for name, value in later.items()
    }


def _join_metric(
    name: str, one: float, other: float, weight: float, episodes: tuple[float, float]
) -> float:
    if name in _SUMS:
        return one + other
    if name in _WEIGHTED:
        if 0.0 in episodes:  # NaN if no episode ended
            return one if episodes[0] else other
        return (one * episodes[0] + other * episodes[1]) / sum(episodes)
    if name in _LEAST:
        return min(one, other)
    if name in _MOST:
        return max(one, other)
    if name in _LAST:
        return other
    return (one * weight + other) / (weight + 1.0)
