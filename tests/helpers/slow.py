"""Slow references of the numeric core: float64 NumPy, written from the formulas, no jax.

`params` are the trees of the MLP with leaves as NumPy
arrays, so that they can be changed one number at a time for finite differences.
"""

from __future__ import annotations

import math

import numpy as np


def schedule(
    kind, initial, progress, *, end, multiplier=1.0, exponent=1.0, warmup=0.2, peak=1.0, start=0.0
):
    """Return the scheduled value, case by case."""
    p = min(1.0, progress / multiplier)

    def cosine(x):
        return max(0.5 * (1.0 + math.cos(math.pi * x)), 0.0) ** exponent

    if kind == "constant":
        return initial
    if kind == "linear":
        return initial * (1.0 + (end - 1.0) * p)
    if kind == "cosine":
        return initial * (end + (1.0 - end) * cosine(p))
    if p < warmup:
        return initial * (start + (peak - start) * p / warmup)
    return initial * (end + (peak - end) * cosine((p - warmup) / (1.0 - warmup)))


def annealed_lambda(initial, final, progress, multiplier=1.0):
    """Return lambda; progress counts up to the run's length, or up to a longer horizon's end."""
    p = min(progress, max(multiplier, 1.0)) / multiplier
    return initial + (final - initial) * (1.0 - 1.0 / math.cosh(3.0 * p))


def gae(rewards, values, next_values, terminated, truncated, gamma, lam):
    """Return advantages [T, E] as the sum over k of (gamma lambda)^k delta within each episode."""
    steps, envs = rewards.shape
    advantages = np.zeros((steps, envs))
    for e in range(envs):
        for t in range(steps):
            factor = 1.0
            for k in range(t, steps):
                alive = 0.0 if terminated[k, e] else 1.0
                delta = rewards[k, e] + gamma * alive * next_values[k, e] - values[k, e]
                advantages[t, e] += factor * delta
                if terminated[k, e] or truncated[k, e]:
                    break
                factor *= gamma * lam
    return advantages


def v_trace(
    rewards, values, next_values, terminated, truncated, gamma, lam, ratio, rho_clip, c_clip
):
    """Return advantages [T, E] as the sum over k of (prod gamma lambda c_i) rho_k delta_k."""
    steps, envs = rewards.shape
    advantages = np.zeros((steps, envs))
    for e in range(envs):
        for t in range(steps):
            factor = 1.0
            for k in range(t, steps):
                alive = 0.0 if terminated[k, e] else 1.0
                delta = rewards[k, e] + gamma * alive * next_values[k, e] - values[k, e]
                advantages[t, e] += factor * min(ratio[k, e], rho_clip) * delta
                if terminated[k, e] or truncated[k, e]:
                    break
                factor *= gamma * lam * min(ratio[k, e], c_clip)
    return advantages


def valid_mass(logits, mask):
    """Return the probability of valid actions, row by row."""
    found = []
    for row, allowed in zip(
        logits.reshape(-1, logits.shape[-1]), mask.reshape(-1, mask.shape[-1]), strict=True
    ):
        chances = np.exp(row - row.max())
        found.append(chances[allowed].sum() / chances.sum())
    return np.reshape(found, mask.shape[:-1])


def joint(parts, sizes, combine):
    """Return [B, all combinations] from numbers of each component [B, sum(sizes)].

    First slowest.
    """
    found = []
    for row in parts:
        at, combined = 0, np.array([row.dtype.type(combine is np.logical_and)])
        for size in sizes:
            combined = combine.outer(combined, row[at : at + size]).ravel()
            at += size
        found.append(combined)
    return np.array(found)


def row_weights(mask, mass, *, gate=2, gating=True, damping=True, target=0.05, masking=True):
    """Return each row's weight in the losses of policy, value and valid mass, and as a choice."""
    weights = {"policy": [], "value": [], "mass": [], "choice": []}
    for allowed, v in zip(mask, mass, strict=True):
        count = int(allowed.sum())
        policy = min(1.0, v / target) if damping and masking else 1.0
        if gating and masking and count < gate:
            policy = 0.0
        weights["policy"].append(policy)
        weights["value"].append(0.0 if gating and masking and count == 0 else 1.0)
        weights["mass"].append(0.0 if count == 0 else 1.0)
        weights["choice"].append(1.0 if count >= 2 else 0.0)
    return {name: np.array(values) for name, values in weights.items()}


def as_float64(tree):
    return {
        k: as_float64(v) if isinstance(v, dict) else np.array(v, np.float64)
        for k, v in tree.items()
    }


def network(params, observation, activation=np.tanh):
    """Return (policy outputs [B, A], values [B]) of the MLP.

    Separate towers or a shared encoder.
    """

    def tower(name, x):
        layer = 0
        while f"dense_{layer}" in params[name]:
            dense = params[name][f"dense_{layer}"]
            x = x @ dense["kernel"] + dense["bias"]
            norm = params[name].get(f"norm_{layer}")
            if norm is not None:
                mean = x.mean(axis=-1, keepdims=True)
                variance = ((x - mean) ** 2).mean(axis=-1, keepdims=True)
                x = (x - mean) / np.sqrt(variance + 1e-6) * norm["scale"] + norm["bias"]
            x = activation(x)
            layer += 1
        return x

    x = np.asarray(observation, np.float64)
    shared = "encoder" in params
    actor = tower("encoder" if shared else "actor", x)
    critic = tower("encoder" if shared else "critic", x)
    heads = [
        h @ params[n]["kernel"].T + params[n]["bias"]
        for h, n in ((actor, "actor_head"), (critic, "critic_head"))
    ]
    return heads[0], heads[1][..., 0]


def outputs(params, rows):
    """Return (policy outputs, values) of rows; those of several components as of one choice.

    Independent components are one categorical over all combinations, with the sums of logits.
    """
    policy, value = network(params, rows["observation"])
    return (joint(policy, rows["sizes"], np.add) if "sizes" in rows else policy), value


def log_softmax(logits, mask=None):
    logits = np.array(logits, np.float64)
    if mask is not None:
        for row, allowed in zip(logits, mask, strict=True):
            if allowed.any():
                row[~allowed] = -np.inf
    top = logits.max(axis=-1, keepdims=True)
    return logits - top - np.log(np.exp(logits - top).sum(axis=-1, keepdims=True))


def policy_terms(params, rows, bounds=(-20.0, 2.0)):
    """Return (log pi(a|s), entropy, value) of rows with keys observation, action and mask."""
    policy, value = outputs(params, rows)
    if "log_std" not in params:
        log_probs = log_softmax(policy, rows.get("mask"))
        taken = np.array([row[a] for row, a in zip(log_probs, rows["action"], strict=True)])
        finite = np.where(np.isfinite(log_probs), log_probs, 0.0)
        return taken, -(np.exp(log_probs) * finite).sum(axis=-1), value
    log_std = np.clip(params["log_std"], *bounds)
    z = (rows["action"] - policy) / np.exp(log_std)
    taken = (-0.5 * z**2 - log_std - 0.5 * math.log(2 * math.pi)).sum(axis=-1)
    entropy = (log_std + 0.5 * math.log(2 * math.pi * math.e)).sum() * np.ones(len(taken))
    return taken, entropy, value


def ppo_loss(
    params,
    rows,
    *,
    clip_eps=0.2,
    value_clip=None,
    vf_coef=0.5,
    ent_coef=0.0,
    normalise=True,
    adv_clip=10.0,
    logr_clip=10.0,
    off_policy=False,
    mass_coef=0.0,
):
    """Return (loss, parts) of rows, one row after the other.

    `rows` may hold `weights` (as `row_weights` gives them) and `importance`.
    """
    log_prob, entropies, values = policy_terms(params, rows)
    advantage = np.asarray(rows["advantage"], np.float64)
    ones = np.ones(len(advantage))
    weights = rows.get("weights") or {"policy": ones, "value": ones, "mass": ones}
    importance = rows.get("importance", ones)

    def mean(numbers, kind):
        return float((np.asarray(numbers) * weights[kind]).sum() / max(weights[kind].sum(), 1e-8))

    if normalise and sum(weights["policy"] > 0) != 1:
        centre = mean(advantage, "policy")
        deviation = math.sqrt(mean((advantage - centre) ** 2, "policy"))
        advantage = np.clip((advantage - centre) / (deviation + 1e-8), -adv_clip, adv_clip)
    log_mass = np.zeros(len(advantage))
    if rows.get("mask") is not None:
        mass = valid_mass(outputs(params, rows)[0], rows["mask"])
        log_mass = np.array([math.log(v) if v > 0 else 0.0 for v in mass])
    policy, value, kl, clipped, ratios, spoken, taken = [], [], [], [], [], [], []
    for i, a in enumerate(advantage):
        log_ratio = min(max(log_prob[i] - rows["log_prob"][i], -logr_clip), logr_clip)
        kl.append((math.exp(log_ratio) - 1.0) - log_ratio)
        if off_policy:
            change = log_prob[i] + log_mass[i] - rows["log_prob"][i]
            log_ratio = min(max(change, -logr_clip), logr_clip)
        ratio = math.exp(log_ratio)
        held = min(max(ratio, 1.0 - clip_eps), 1.0 + clip_eps)
        policy.append(-min(ratio * a * importance[i], held * a * importance[i]))
        error = (values[i] - rows["target"][i]) ** 2
        if value_clip is not None:
            change = min(max(values[i] - rows["value"][i], -value_clip), value_clip)
            error = max(error, (rows["value"][i] + change - rows["target"][i]) ** 2)
        value.append(0.5 * error)
        spoken.append(log_prob[i] + (log_mass[i] if off_policy else 0.0))
        taken.append(a * importance[i])
        clipped.append(float(abs(ratio - 1.0) > clip_eps))
        ratios.append(ratio)
    ratios = np.array(ratios)
    counted = np.where(weights["value"] > 0, ratios, 1.0)
    parts = {
        "policy_loss": mean(policy, "policy"),
        "value_loss": mean(value, "value"),
        "entropy": mean(entropies, "policy"),
        "approx_kl": mean(kl, "value"),
        "clip_fraction": mean(clipped, "value"),
        "ratio_mean": mean(ratios, "value"),
        "ratio_std": math.sqrt(mean((ratios - mean(ratios, "value")) ** 2, "value")),
        "ratio_min": np.min(counted),
        "ratio_max": np.max(counted),
        "log_prob": mean(spoken, "value"),
        "log_prob_min": min(np.array(spoken)[weights["value"] > 0], default=np.inf),
        "normalised_advantage_mean": mean(taken, "value"),
    }
    if rows.get("weights"):
        parts["choice_log_prob"] = mean(spoken, "choice")
        parts["choice_entropy"] = mean(entropies, "choice")
    loss = parts["policy_loss"] + vf_coef * parts["value_loss"] - ent_coef * parts["entropy"]
    if mass_coef:
        parts["valid_mass_loss"] = -mean(log_mass, "mass")
        loss += mass_coef * parts["valid_mass_loss"]
    return loss, {"loss": loss, **parts}


def leaves(tree):
    """Return the leaves in a fixed order."""
    found = []
    for name in sorted(tree):
        found += leaves(tree[name]) if isinstance(tree[name], dict) else [tree[name]]
    return found


def gradient(function, params, step=1e-6):
    """Return the gradient of `function(params)` by central differences, a tree like `params`."""

    def walk(tree):
        made = {}
        for name, leaf in tree.items():
            if isinstance(leaf, dict):
                made[name] = walk(leaf)
                continue
            made[name] = np.zeros_like(leaf)
            for at in np.ndindex(*leaf.shape):
                kept = leaf[at]
                leaf[at] = kept + step
                above = function(params)
                leaf[at] = kept - step
                below = function(params)
                leaf[at] = kept
                made[name][at] = (above - below) / (2.0 * step)
        return made

    return walk(params)


class Adam:
    """Adam with a global-norm clip before it, in place, on trees of float64 arrays."""

    def __init__(self, params, *, clip=0.5, beta1=0.9, beta2=0.999, eps=1e-5, decay=0.0):
        self.settings = clip, beta1, beta2, eps, decay
        self.first = [np.zeros_like(leaf) for leaf in leaves(params)]
        self.second = [np.zeros_like(leaf) for leaf in leaves(params)]
        self.count = 0

    def step(self, params, gradients, size):
        """Change the parameters; give the gradient norm before clipping."""
        clip, beta1, beta2, eps, decay = self.settings
        self.count += 1
        norm = math.sqrt(sum(float((g**2).sum()) for g in leaves(gradients)))
        scale = 1.0 if norm < clip else clip / norm
        for i, (p, g) in enumerate(zip(leaves(params), leaves(gradients), strict=True)):
            self.first[i] = beta1 * self.first[i] + (1 - beta1) * g * scale
            self.second[i] = beta2 * self.second[i] + (1 - beta2) * (g * scale) ** 2
            first = self.first[i] / (1 - beta1**self.count)
            second = self.second[i] / (1 - beta2**self.count)
            p -= size * (first / (np.sqrt(second) + eps) + decay * p)
        return norm
