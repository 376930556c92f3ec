"""What trainers have built in under no name, and the values that several of them share."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from .python_words import NotPlain, value_of
from .values import NoCounterpart, Settings, Times, Words

__all__ = [
    "ACTIVATIONS",
    "HALF_SQUARE",
    "LINEAR",
    "NORMALISED",
    "PLAIN_PPO",
    "STATISTICS",
    "TORCH_INIT",
    "mapping_of",
    "widths_of",
]

_TORCH_GAIN = round(
    1.0 / math.sqrt(3.0), 6
)  # uniform within 1/sqrt(inputs): variance 1/(3 inputs)

LINEAR = Settings(lr_schedule="linear", lr_end_fraction=0.0)
"""The learning rate falls linearly to 0."""

TORCH_INIT = Settings(
    initialisation="lecun",
    hidden_gain=_TORCH_GAIN,
    policy_gain=_TORCH_GAIN,
    value_gain=_TORCH_GAIN,
)
"""The variance of PyTorch's own initialisation of linear layers (and of Equinox's)."""

PLAIN_PPO: Mapping[str, Any] = {
    "logr_clip": None,
    "adv_clip": None,
    "lr_schedule": "constant",
    "normalise_observations": False,
    "normalise_rewards": False,
    "log_std_init": 0.0,
    "value_clip_eps": None,
    "target_kl": None,
}
"""What most implementations have in common that ours has otherwise, or may have one day."""

NORMALISED = Settings(
    normalise_observations=True, observation_clip=10.0, normalise_rewards=True, reward_clip=10.0
)
"""Both normalised and clipped at 10, as VecNormalize and Gymnasium's wrappers are used."""

HALF_SQUARE = Times(2.0)
"""Of a weight on (V - R)^2, where ours is on half of it."""

STATISTICS = "running statistics change once a rollout here, with every env step there"
"""Of observations and rewards."""

ACTIVATIONS = Words(
    {
        "nn.Tanh": "tanh", "nn.ReLU": "relu", "nn.ELU": "elu", "nn.GELU": "gelu",
        "nn.LeakyReLU": "leaky_relu", "nn.SiLU": "silu", "th.nn.Tanh": "tanh",
        "th.nn.ReLU": "relu", "torch.nn.Tanh": "tanh", "torch.nn.ReLU": "relu",
        "LeakyReLU": "leaky_relu", "swish": "silu", "Tanh": "tanh", "ReLU": "relu", "ELU": "elu",
        "GELU": "gelu", "SiLU": "silu",
    }
)  # fmt: skip


def mapping_of(value: Any) -> dict[str, Any]:
    """Return a mapping that may be written as Python, such as `dict(a=1)`; None is empty.

    Raises:
        NoCounterpart: it is none.

    >>> mapping_of("dict(norm_obs=False)")
    {'norm_obs': False}
    """
    if isinstance(value, str):
        try:
            value = value_of(value)
        except NotPlain as error:
            raise NoCounterpart(f"it cannot be read: {error}") from None
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise NoCounterpart(f"{value!r} is no mapping")
    return value


def widths_of(value: Any) -> list[int]:
    """Return one list of widths: both towers have the same here.

    Raises:
        NoCounterpart: the towers differ, or begin with shared layers.

    >>> widths_of({"pi": [64, 64], "vf": [64, 64]}), widths_of("[256, 256]")
    ([64, 64], [256, 256])
    """
    if isinstance(value, str):
        try:
            value = value_of(value)
        except NotPlain as error:
            raise NoCounterpart(f"it cannot be read: {error}") from None
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict):
        value = value[0]  # how it was written before 1.8
    if isinstance(value, dict):
        if set(value) - {"pi", "vf", "qf"}:
            raise NoCounterpart(f"{value!r} is no pair of towers pi and vf")
        policy, critic = value.get("pi", []), value.get("vf", [])
        if policy != critic:
            raise NoCounterpart(
                f"policy {policy} and critic {critic} differ, but both have the same widths "
                "here; choose one with -- --hidden_sizes"
            )
        value = policy
    if not isinstance(value, list) or any(isinstance(x, dict) for x in value):
        raise NoCounterpart(
            f"{value!r} has shared layers before separate ones; either all are shared here "
            "(shared_encoder), or none"
        )
    return value
