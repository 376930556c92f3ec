"""Import rules for interdependent settings: CleanRL, Stable-Baselines3 and the single-file PPO."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ..errors import counted
from ..foreign_names.name_mapping import NoCounterpart, mapping_of
from ..knobs import KNOBS
from .converted_study import ConvertedStudy, ImportSource

# ------------------------------------------------------------------------------- CleanRL

_ROLLOUT = ("num_envs", "rollout_length", "num_minibatches")


def floored_minibatches(draft: ConvertedStudy) -> None:
    """Keep CleanRL's size of a minibatch, which is rounded down and may leave a small last one."""
    if draft.system.name == "cleanrl_envpool_scan" or "minibatch_size" in draft.fixed:
        return  # this script refuses such sizes
    cases = itertools.product(*(_listed_numbers(draft, name) for name in _ROLLOUT))
    batches = [(envs * steps, parts) for envs, steps, parts in cases]
    uneven = [(batch, parts) for batch, parts in batches if parts < batch and batch % parts]
    if not uneven:
        return
    if draft.space.keys() & {*_ROLLOUT}:
        draft.note(
            "num_minibatches: where it does not divide num_envs * num_steps, CleanRL rounds the "
            "size down and makes more minibatches; hpo makes that many, as equal as possible"
        )
        return
    batch, parts = uneven[0]
    size = batch // parts
    steps, last = math.ceil(batch / size), batch % size or size
    draft.fixed.pop("num_minibatches", None)
    draft.fixed["minibatch_size"] = size
    names = [name for name, targets in draft.taken.items() if targets == ["num_minibatches"]]
    draft.taken |= {name: ["minibatch_size"] for name in names}
    draft.ruled |= {*names}
    draft.note(
        f"num_minibatches: {parts} is minibatch_size {size} here, because CleanRL rounds down; an "
        f"epoch has {steps} gradient steps, the last with {counted(last, 'row')}"
    )


def _listed_numbers(draft: ConvertedStudy, name: str) -> list[int]:
    values = draft.space.get(name, {}).get("values")
    if values is None:
        values = [draft.fixed.get(name, KNOBS[name].default)]
    return values


# --------------------------------------------------------------------- Stable-Baselines3


def policy_first(draft: ConvertedStudy, source: ImportSource) -> None:
    """Read the policy before its arguments, because recurrent policies have different defaults."""
    policy = source.constants.pop("policy", None)
    if policy is None:
        return
    source.constants = {"policy": policy, **source.constants}
    if "Lstm" not in str(policy):
        return
    for name in ("n_steps", "batch_size"):
        if name not in source.names():
            source.constants[name] = 128
            draft.note(f"{name}: 128, the default of RecurrentPPO")


def refuse_settings_elsewhere(draft: ConvertedStudy, source: ImportSource) -> None:
    """Reject an rl-zoo3 command whose settings are in rl-zoo3's files."""
    algorithm = source.find("algo")
    if source.family != "sb3" or algorithm not in ("ppo", "ppo_lstm") or not source.words[1:]:
        return
    if not {"n_steps", "learning_rate", "gamma"} & source.constants.keys():
        text = f"its settings are in rl-zoo3's hyperparams/; import {algorithm}.yml as rlzoo"
        raise draft.fault(text, env=source.find("env") or "ID")


def gamma_of_rewards(draft: ConvertedStudy, source: ImportSource) -> None:
    """Note a VecNormalize gamma that differs from the study's."""
    normalise = source.find("normalize")
    if normalise is True:
        normalise = {}
    if not isinstance(normalise, dict) or not normalise.get("norm_reward", True):
        return
    reward_gamma = normalise.get("gamma")
    if source.calls:  # rl-zoo3 gives it the study's own
        reward_gamma = normalise.get("gamma", 0.99)
    if reward_gamma is not None and source.values("gamma", 0.99) != [reward_gamma]:
        draft.note(
            f"normalize: gamma was {reward_gamma}; rewards are normalised with the study's gamma "
            "here"
        )


def leave_out_noise(draft: ConvertedStudy, source: ImportSource) -> None:
    """Omit gSDE's noise scale together with gSDE itself."""
    if source.find("use_sde") is not True or "use_sde" not in draft.without:
        return
    with suppress(NoCounterpart):  # an error when it is taken
        arguments = mapping_of(source.constants.get("policy_kwargs"))
        if "log_std_init" in arguments:
            value = arguments.pop("log_std_init")
            source.constants["policy_kwargs"] = arguments
            draft.leave_out(
                f"log_std_init {value}", "it scales gSDE's noise matrix, and use_sde is left out"
            )


def recurrent_minibatches(draft: ConvertedStudy) -> None:
    """Convert minibatch rows to groups of environments, which recurrent networks require."""
    if draft.fixed.get("network") not in ("lstm", "gru"):
        return
    draft.note(
        "network: hidden_sizes come before the recurrent layer here, but net_arch comes "
        "after it in Stable-Baselines3"
    )
    if {"minibatch_size", "num_envs", "rollout_length"} & set(draft.space):
        return
    envs, steps = (
        int(draft.fixed.get(name, KNOBS[name].default)) for name in ("num_envs", "rollout_length")
    )
    rows = int(draft.fixed.pop("minibatch_size", None) or 64)
    wanted = max(1, math.ceil(envs * steps / rows))
    parts = max(part for part in range(1, envs + 1) if part <= wanted and envs % part == 0)
    draft.fixed["num_minibatches"] = parts
    if parts != wanted:
        draft.note(
            f"batch_size: {rows} rows would make {wanted} minibatches, but hpo uses {parts}, "
            f"because recurrent minibatches contain whole rollouts (here of {envs} environments)"
        )


def decay_as_torch(draft: ConvertedStudy) -> None:
    """Use adam_l2 for adam with weight decay: torch.optim.Adam adds the decay to the gradient."""
    if not (draft.fixed.get("weight_decay") or "weight_decay" in draft.space):
        return
    searched = draft.space.get("optimiser", {}).get("values", ())
    optimiser = draft.fixed.get("optimiser", "adam")
    if "sgd" in (optimiser, *searched):
        draft.note(
            "weight_decay: decoupled here. PyTorch's SGD adds it before the momentum, which "
            "makes it about 1/(1 - momentum) times as strong"
        )
    if "adam" in searched:
        values = ["adam_l2" if word == "adam" else word for word in searched]
        draft.space["optimiser"] = {**draft.space["optimiser"], "values": values}
    elif optimiser == "adam" and not searched:
        draft.fixed["optimiser"] = "adam_l2"
    else:
        return
    draft.note("weight_decay: PyTorch's Adam adds it to the gradient, so the optimiser is adam_l2")


# ----------------------------------------------------------------- the single-file PPO

_HELPERS: Mapping[str, Mapping[str, Any]] = {
    "train_discrete": {"env_id": "CartPole-v1", "total_timesteps": 500_000},
    "train_continuous": {"env_id": "HalfCheetah-v4", "total_timesteps": 1_000_000,
                         "hidden_sizes": [256, 256], "action_space_type": "continuous"},
    "train_with_transformer_backbone": {
        "env_id": "CartPole-v1", "total_timesteps": 500_000,
        "backbone_cls": "TransformerPolicyBackbone"},
}  # fmt: skip
"""Helper of the single-file PPO -> its defaults that differ from PPOConfig's."""
_RANGES = {"tanh_gaussian": (-1.0, 1.0), "beta": (0.0, 1.0)}
"""Distribution -> the range of its actions before they are scaled to the environment's range."""


def defaults_of_helper(draft: ConvertedStudy, source: ImportSource) -> None:
    """Fill in the defaults of a helper function, if it is the only one that a file calls."""
    helpers = list(dict.fromkeys(call for call in source.calls if call in _HELPERS))
    if not helpers:
        return
    if len(helpers) > 1:
        text = f"it calls {' and '.join(helpers)}, which train with different defaults; keep one"
        raise draft.fault(text)
    helper = helpers[0]
    given = {*source.names(), *filter(None, map(draft.any_target, source.names()))}
    for name, value in _HELPERS[helper].items():
        if not {name, draft.any_target(name)} & given:
            source.constants[name] = value
            draft.defaults.append(f"{name} {value}")
    draft.note(f"{helper}: its other settings are taken from PPOConfig")


def unscaled_actions(draft: ConvertedStudy) -> None:
    """Leave actions unscaled, in the range that the single-file PPO passes to the environment."""
    kind = draft.fixed.get("distribution")
    discrete = draft.entry is not None and draft.entry.actions == "discrete"
    named = {"action_low", "action_high"} & {*draft.fixed, *draft.space}
    if kind not in _RANGES or discrete or named:
        return
    low, high = _RANGES[kind]
    draft.fixed |= {"action_low": low, "action_high": high}
    draft.note(
        f"action_low, action_high: {low:g} and {high:g}, because the source does not scale "
        f"{kind} actions; set both to off to scale to the environment's range"
    )
