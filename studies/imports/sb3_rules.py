"""What hangs together in configurations of Stable-Baselines3, and of its recurrent PPO."""

from __future__ import annotations

import math

from ...elsewhere.builtin import mapping_of
from ...elsewhere.values import NoCounterpart
from ...errors import ConfigError
from ...knobs import KNOBS
from ..amounts import count_of
from .draft import Draft
from .take import Source
from .torch_rules import decay_in_the_gradient
from .words import read_word

__all__ = ["Sb3Rules"]

_RECURRENT = ("lstm", "gru")
_RECURRENT_DEFAULTS = {"n_steps": 128, "batch_size": 128}


class Sb3Rules:
    """Rules for `elsewhere.SYSTEMS["sb3"]`."""

    def before(self, draft: Draft, source: Source) -> None:
        """Put the policy before its arguments; drop what belongs to noise left out."""
        policy = source.constants.pop("policy", None)
        if policy is not None:
            source.constants = {"policy": policy, **source.constants}
        if "Lstm" in str(policy):
            for name, default in _RECURRENT_DEFAULTS.items():
                if name not in source.names():
                    source.constants[name] = default
                    draft.note(f"{name}: {default}, the default of the recurrent PPO")
        _log_interval(draft, source)
        if read_word(source.constants.get("use_sde")) is True and "use_sde" in draft.without:
            _without_sde(draft, source)

    def after(self, draft: Draft, source: Source) -> None:
        """Note how memory differs, and cut minibatches into whole segments."""
        decay_in_the_gradient(draft)
        if draft.fixed.get("network") in _RECURRENT:
            draft.note(
                "network: hidden_sizes stand before the memory here, net_arch behind it there"
            )
            if {"minibatch_size", "num_envs", "rollout_length"} & set(draft.space):
                return
            _whole_segments(draft)


def _log_interval(draft: Draft, source: Source) -> None:
    """Turn rollouts between two logs into env steps; zoo's -1 leaves it to the program."""
    rollouts = max(0, count_of(read_word(source.constants.get("log_interval"))) or 0)
    steps, envs = source.values("n_steps", 2048), source.values("n_envs", 1)
    if "log_interval" in source.names() and (not rollouts or len(steps) > 1 or len(envs) > 1):
        source.drop("log_interval")
        why = "n_steps is searched, so it is no one number of env steps; give log_every"
        draft.leave_out("log_interval", why if rollouts else "it is off")
    elif rollouts:
        source.constants["log_interval"] = rollouts * int(steps[0]) * int(envs[0])


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
