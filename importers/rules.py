"""What hangs together in Stable-Baselines3, JaxDEM and the single-file PyTorch PPO.

Rules of a system change its source before names are translated, and the draft after. XLRON's are
in `xlron_rules.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Protocol

from ..errors import ConfigError
from ..knobs import KNOBS
from ..studies.amounts import count_of
from .draft import Draft, Source
from .formats import read_word
from .transforms import NoCounterpart, mapping_of
from .xlron_rules import XlronRules

__all__ = ["RULES", "Rules"]


class Rules(Protocol):
    """What follows from several names of one system together."""

    def before(self, draft: Draft, source: Source) -> None:
        """Change the source where names hang together, before any is translated."""

    def after(self, draft: Draft, source: Source) -> None:
        """Add to the draft what follows from all names."""


class _Sb3Rules:
    def before(self, draft: Draft, source: Source) -> None:
        """Put the policy before its arguments; drop what belongs to noise left out."""
        policy = source.constants.pop("policy", None)
        if policy is not None:
            source.constants = {"policy": policy, **source.constants}
        for name in ("n_steps", "batch_size") if "Lstm" in str(policy) else ():
            if name not in source.names():
                source.constants[name] = 128
                draft.note(f"{name}: 128, the default of the recurrent PPO")
        _rollouts(draft, source, "log_interval", ("n_steps", 2048), ("n_envs", 1))
        if source.calls and isinstance(source.find("save_freq"), int):
            calls, envs = source.find("save_freq"), source.values("n_envs", 1)[0]
            source.constants["save_freq"] = calls * int(envs)
            draft.note(f"save_freq: {calls} calls of {envs} environments there")
        if read_word(source.constants.get("use_sde")) is True and "use_sde" in draft.without:
            _without_sde(draft, source)

    def after(self, draft: Draft, source: Source) -> None:
        """Note how memory differs, and cut minibatches into whole segments."""
        _torch_decay(draft)
        if draft.fixed.get("network") in ("lstm", "gru"):
            draft.note(
                "network: hidden_sizes stand before the memory here, net_arch behind it there"
            )
            if not {"minibatch_size", "num_envs", "rollout_length"} & set(draft.space):
                _whole_segments(draft)


class _TorchRules:
    def before(self, draft: Draft, source: Source) -> None:
        """Turn intervals of updates into env steps; a helper is a call with some names set."""
        for name in ("log_interval", "save_interval"):
            _rollouts(draft, source, name, ("rollout_steps", 2048), ("num_envs", 4))
        helper = next((call for call in source.calls if call.startswith("train_")), "")
        if helper == "train_with_transformer_backbone":
            source.constants.setdefault("backbone_cls", "TransformerPolicyBackbone")
        if helper:
            draft.note(f"{helper}: what it sets besides its arguments is taken from PPOConfig")

    def after(self, draft: Draft, source: Source) -> None:
        """Let Adam decay as it does there."""
        _torch_decay(draft)


def _rollouts(
    draft: Draft, source: Source, name: str, steps: tuple[str, int], envs: tuple[str, int]
) -> None:
    """Turn a number of rollouts into env steps; -1 leaves it to the program."""
    if name not in source.constants:
        return
    rollouts = max(0, count_of(read_word(source.constants[name])) or 0)
    lengths, widths = source.values(*steps), source.values(*envs)
    if not rollouts:
        source.drop(name)
        draft.idle.append(f"{name} (off)")
    elif len(lengths) > 1 or len(widths) > 1:
        source.drop(name)
        key = "log_every" if "log" in name else "checkpoint.policies_every"
        draft.leave_out(name, f"{steps[0]} is searched, so it is no one number of env steps; "
                              f"give {key}")  # fmt: skip
    else:
        source.constants[name] = rollouts * int(lengths[0]) * int(widths[0])


def _torch_decay(draft: Draft) -> None:
    """Turn adam into adam_l2 where weights decay: torch.optim.Adam adds decay to the gradient."""
    if not (draft.fixed.get("weight_decay") or "weight_decay" in draft.space):
        return
    searched = draft.space.get("optimiser", {}).get("values", ())
    optimiser = draft.fixed.get("optimiser", "adam")
    if "sgd" in (optimiser, *searched):
        draft.note(
            "weight_decay: PyTorch's SGD adds it before the momentum, which makes it about "
            "1/(1 - momentum) times as strong as here, where it is decoupled"
        )
    if "adam" in searched:
        values = ["adam_l2" if word == "adam" else word for word in searched]
        draft.space["optimiser"] = {**draft.space["optimiser"], "values": values}
    elif optimiser == "adam" and not searched:
        draft.fixed["optimiser"] = "adam_l2"
    else:
        return
    draft.note("weight_decay: PyTorch's Adam adds it to the gradient, so the optimiser is adam_l2")


def _without_sde(draft: Draft, source: Source) -> None:
    name = "log_std_init"
    because = "with use_sde it is of a matrix of noise, not of the actions' deviation"
    try:
        arguments = mapping_of(source.constants.get("policy_kwargs"))
    except NoCounterpart as reason:
        raise ConfigError(f"policy_kwargs: {reason}") from None
    if name in arguments:
        value = arguments.pop(name)
        source.constants["policy_kwargs"] = arguments
        draft.leave_out(f"{name} {value}", because)


def _whole_segments(draft: Draft) -> None:
    """Choose minibatches of whole segments for a recurrent network, as near as can be."""

    def known(knob: str) -> int:
        return int(draft.fixed.get(knob, KNOBS[knob].default))

    envs, steps = known("num_envs"), known("rollout_length")
    rows = int(draft.fixed.pop("minibatch_size", None) or 64)
    wanted = max(1, math.ceil(envs * steps / rows))
    parts = max(part for part in range(1, envs + 1) if part <= wanted and envs % part == 0)
    draft.fixed["num_minibatches"] = parts
    if parts != wanted:
        draft.note(
            f"batch_size: {rows} would make {wanted} minibatches of {envs * steps} rows; networks "
            f"with a memory learn from whole rollouts of {envs} environments here, so there are "
            f"{parts}"
        )


class _JaxdemRules:
    def before(self, draft: Draft, source: Source) -> None:
        """Turn the number of updates into env steps, and minibatches into passes."""
        defaults = {**draft.system.defaults, "num_epochs": 1000}

        def one(name: str) -> int:
            return count_of(source.values(name, defaults[name])[0]) or 0

        envs, steps, parts = one("num_envs"), one("num_steps_epoch"), one("num_minibatches")
        if "total_timesteps" in source.names() or "env_steps" in source.names():
            source.drop("num_epochs")
        elif one("num_epochs") and envs and steps:
            updates = one("num_epochs")
            source.drop("num_epochs")
            source.constants["env_steps"] = updates * envs * steps
            draft.note(
                f"num_epochs: {updates:,} updates of {envs} x {steps} env steps are "
                f"{updates * envs * steps:,} env steps"
            )
        old = draft.system.name == "jaxdem_2025_09"
        size = count_of(source.find("minibatch_size")) or 0
        if not size and old and parts and envs % parts:
            size = envs // parts
            draft.defaults.append(f"minibatch_size {size}")
        if not size or not envs or not steps:
            return
        if 0 not in source.values("importance_sampling_alpha", 1.0):
            source.put("minibatch_size", size * steps if old else size)
            source.constants.setdefault("num_minibatches", parts)
            if old:
                draft.note(f"minibatch_size: {size} segments of {steps} env steps there")
        else:
            _passes(draft, source, envs * (1 if old else steps), parts, old)

    def after(self, draft: Draft, source: Source) -> None:
        """Let the cosine end where it does there: after as many minibatches as updates."""
        parts = draft.fixed.get("num_minibatches", KNOBS["num_minibatches"].default)
        parts = parts * draft.fixed.get("update_epochs", 1) if isinstance(parts, int) else None
        together = draft.fixed.get("accumulate_minibatches", 1)
        if draft.fixed.get("lr_schedule") == "cosine" and parts and parts > 1:
            draft.fixed["lr_schedule_multiplier"] = 1.0 / parts
            draft.note(
                f"lr_schedule_multiplier: 1/{parts}, as the cosine counts minibatches there "
                "and is over after as many of them as there are updates; 1 for the whole run"
            )
        rate = draft.fixed.get("learning_rate", KNOBS["learning_rate"].default)
        if together > 1 and "learning_rate" not in draft.space:
            draft.fixed["learning_rate"] = float(f"{rate * together:.12g}")
            draft.note(
                f"accumulate_n_gradients: the steps of {together} minibatches are added there; "
                f"here one step goes along their mean gradient, so learning_rate is {together} "
                "times as large"
            )


def _passes(draft: Draft, source: Source, total: int, parts: int, segments: bool) -> None:
    """Turn so many minibatches of some size into passes over the rollout."""
    size = count_of(source.find("minibatch_size")) or 0
    unit = "segments" if segments else "env steps"
    if not size or not total or (size * parts) % total or total % size:
        passes = max(1, round(size * parts / total)) if total else 1
        raise ConfigError(
            f"{draft.source}: {parts} minibatches of {size} {unit} are "
            f"{size * parts / max(1, total):.3g} passes over {total}; here there are whole passes "
            "in equal parts",
            flags={
                "without": "minibatch_size",
                "num_minibatches": max(1, round(total / max(1, size))),
                "update_epochs": passes,
            },
        )
    source.drop("minibatch_size")
    source.put("num_minibatches", total // size)
    source.constants["update_epochs"] = size * parts // total
    draft.note(
        f"minibatch_size: {parts} minibatches of {size} {unit} are {size * parts // total} "
        f"pass(es) of {total // size} minibatches over {total}"
    )


class _ArlbenchRules:
    def before(self, draft: Draft, source: Source) -> None:
        """Name an environment of Brax as one: its framework stands under a name of its own."""
        frameworks = [source.find(name) for name in source.names() if name.endswith("framework")]
        for name in ("environment.name", "autorl.env_name", "env_name"):
            env = str(source.find(name))
            if "brax" in frameworks and name in source.constants and ":" not in env:
                source.constants[name] = f"brax:{env}"

    def after(self, draft: Draft, source: Source) -> None:
        """Add nothing."""


RULES: Mapping[str, Rules] = {
    "xlron": XlronRules(), "sb3": _Sb3Rules(), "jaxdem": _JaxdemRules(),
    "torch_ppo": _TorchRules(), "arlbench": _ArlbenchRules(),
}  # fmt: skip
"""By a system's family."""
