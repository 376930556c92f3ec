"""How a value of another system becomes a value of ours."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .plain_python import NotPlain, value_of

__all__ = [
    "ACTIVATIONS",
    "ANNEAL",
    "ENV_KEYS",
    "LINEAR",
    "NORMALISED",
    "PLAIN_PPO",
    "SAME",
    "STATISTICS",
    "TORCH_INIT",
    "VALUE_CLIP",
    "NoCounterpart",
    "Settings",
    "Values",
    "env_keys",
    "in_words",
    "is_number",
    "mapping_of",
    "off",
    "one_minus",
    "orthogonal",
    "parsed",
    "power_of_two",
    "scheduled",
    "times",
    "widths_of",
    "words",
]


class NoCounterpart(Exception):
    """A value that a study cannot say; the message is the reason."""


class Settings(dict[str, Any]):
    """Several of our settings at once: target -> value, as targets are written in `rows.Row`."""


def _itself(value: Any) -> Any:
    return value


def _no_range(number: float) -> float:
    raise NoCounterpart("list the values that matter; a range of it has no counterpart")


@dataclass(frozen=True)
class Values:
    """One transform; this one returns values as they are.

    Attributes:
        of: value -> ours, or `Settings`; raises `NoCounterpart`.
        bound: the end of a range -> ours; raises `NoCounterpart`.
        scaled: a width, such as a deviation or a step -> ours.
        kind: a distribution of theirs -> ours; ends of ranges may change places.
        meaning: one line for the documents; empty where values stay as they are.
        table: where it is a table, theirs -> ours.
    """

    of: Callable[[Any], Any] = _itself
    bound: Callable[[float], float] = _itself
    scaled: Callable[[float], float] = _itself
    kind: Callable[[str], str] = _itself
    meaning: str = ""
    table: Mapping[Any, Any] | None = None


SAME = Values()


def times(factor: float) -> Values:
    """Return a number's scaling, in twelve digits; anything else stays as it is.

    >>> times(2.0).of(0.5), times(2.0).of(None)
    (1.0, None)
    """

    def scaled(value: Any) -> Any:
        return float(f"{value * factor:.12g}") if is_number(value) else value

    return Values(scaled, scaled, lambda width: abs(scaled(width)), meaning=f"times {factor:g}")


def one_minus() -> Values:
    """Return one minus a number.

    >>> one_minus().of(0.01), one_minus().kind("log_uniform")
    (0.99, 'one_minus_log')
    """

    def of(value: Any) -> float:
        return float(f"{1.0 - _number(value):.12g}")

    kinds = {"log_uniform": "one_minus_log"}
    return Values(of, of, _no_range, lambda kind: kinds.get(kind, kind), "one minus it")


def power_of_two() -> Values:
    """Return two to the power of a whole number.

    >>> power_of_two().of(7), power_of_two().kind("int_uniform")
    (128, 'pow2')
    """

    def of(value: Any) -> int:
        if not float(_number(value)).is_integer() or not 0 <= value < 64:
            raise NoCounterpart(f"{value!r} is not an exponent of two")
        return 2 ** int(value)

    return Values(of, of, _no_range, lambda _: "pow2", "two to the power of it")


def off(up_to: float = 0.0) -> Values:
    """Return a number that switches the thing off up to a limit.

    >>> off(0.0).of(-1.0), off(0.0).of(0.3)
    (None, 0.3)
    """

    def of(value: Any) -> Any:
        if isinstance(value, str):
            raise NoCounterpart(f"{value!r}: it has no schedule here; give a number")
        return None if is_number(value) and value <= up_to else value

    def bound(number: float) -> float:
        if number < up_to:
            raise NoCounterpart(f"it is off at {up_to:g} and below; begin the range above")
        return number if number > up_to else up_to + 1e-6

    return Values(of, bound, meaning=f"off at {up_to:g} and below")


def words(table: Mapping[Any, Any], others: Any = SAME) -> Values:
    """Return a table of values.

    >>> words({"swish": "silu", True: 1.0}).of("Swish"), words({True: 1.0}).of(2)
    ('silu', 2)
    """

    def of(value: Any) -> Any:
        ours = next((one for theirs, one in table.items() if _equal(theirs, value)), others)
        if isinstance(ours, NoCounterpart):
            raise ours
        return ours.of(value) if isinstance(ours, Values) else ours

    meaning = "; ".join(f"{in_words(theirs)}: {in_words(one)}" for theirs, one in table.items())
    return Values(of, _no_range, _no_range, meaning=meaning, table=table)


def parsed(read: Callable[[Any], Any], says: str) -> Values:
    """Return a transform of single values by a function, with its meaning for the documents."""
    return Values(read, _no_range, _no_range, meaning=says)


def scheduled(knob: str, schedule: str, end: str) -> Values:
    """Return a number, or `lin_0.001`: from there to 0, linearly."""

    def of(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        word, _, number = value.partition("_")
        try:
            initial = float(number)
        except ValueError:
            initial = math.nan
        if word not in ("lin", "linear") or not math.isfinite(initial):
            raise NoCounterpart(f"{value!r} is not a schedule such as lin_0.001")
        return Settings({knob: initial, schedule: "linear", end: 0.0})

    return Values(of, meaning="lin_X falls linearly from X to 0")


def is_number(value: Any) -> bool:
    """Return whether a value is a number, and not a switch."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def in_words(value: Any) -> str:
    """Return a value of ours for the documents."""
    if isinstance(value, Settings):
        return ", ".join(f"{name} {in_words(one)}" for name, one in value.items()) or "nothing"
    if isinstance(value, NoCounterpart):
        return "refused"
    if value is None:
        return "off"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _number(value: Any) -> float:
    if not is_number(value):
        raise NoCounterpart(f"{value!r} is not a number")
    return value


def _equal(theirs: Any, value: Any) -> bool:
    if isinstance(theirs, str) and isinstance(value, str):
        return theirs.lower() == value.lower()
    return isinstance(theirs, bool) == isinstance(value, bool) and theirs == value


# ------------------------------------------------------ values that several systems share

_TORCH_GAIN = round(1.0 / math.sqrt(3.0), 6)  # uniform within 1/sqrt(inputs): 1/(3 inputs)

LINEAR = Settings(lr_schedule="linear", lr_end_fraction=0.0)
ANNEAL = words({True: LINEAR, False: "constant"})
VALUE_CLIP = words({True: "same", False: None})
TORCH_INIT = Settings(
    initialisation="lecun", hidden_gain=_TORCH_GAIN, policy_gain=_TORCH_GAIN,
    value_gain=_TORCH_GAIN,
)  # fmt: skip
"""The variance of PyTorch's own initialisation of linear layers (and of Equinox's)."""

PLAIN_PPO: Mapping[str, Any] = {
    "logr_clip": None, "adv_clip": None, "lr_schedule": "constant",
    "normalise_observations": False, "normalise_rewards": False, "log_std_init": 0.0,
    "value_clip_eps": None, "target_kl": None,
}  # fmt: skip
"""What most implementations have in common that ours has otherwise, or may have one day."""

NORMALISED = Settings(
    normalise_observations=True, observation_clip=10.0, normalise_rewards=True, reward_clip=10.0
)
"""Both normalised and clipped at 10, as VecNormalize and Gymnasium's wrappers are used."""

STATISTICS = "running statistics change once a rollout here, with every env step there"

ACTIVATIONS = words(
    {"nn.Tanh": "tanh", "nn.ReLU": "relu", "nn.ELU": "elu", "nn.GELU": "gelu",
     "nn.LeakyReLU": "leaky_relu", "nn.SiLU": "silu", "th.nn.Tanh": "tanh",
     "th.nn.ReLU": "relu", "torch.nn.Tanh": "tanh", "torch.nn.ReLU": "relu",
     "LeakyReLU": "leaky_relu", "swish": "silu", "Tanh": "tanh", "ReLU": "relu", "ELU": "elu",
     "GELU": "gelu", "SiLU": "silu"}
)  # fmt: skip


def orthogonal(value: Any) -> Settings:
    """Read a switch of orthogonal initialisation; off is PyTorch's own."""
    return Settings() if value not in (False, "False", "false") else Settings(TORCH_INIT)


def _read(value: Any) -> Any:
    try:
        return value_of(value) if isinstance(value, str) else value
    except NotPlain as error:
        raise NoCounterpart(f"it cannot be read: {error}") from None


def mapping_of(value: Any) -> dict[str, Any]:
    """Return a mapping that may be written as Python, such as `dict(a=1)`; None is empty.

    >>> mapping_of("dict(norm_obs=False)")
    {'norm_obs': False}
    """
    value = _read(value)
    if not isinstance(value, dict | None):
        raise NoCounterpart(f"{value!r} is not a mapping")
    return dict(value or {})


def env_keys(value: Any) -> Settings:
    """Read a mapping of an environment's keys."""
    return Settings({f"env.{key}": one for key, one in mapping_of(value).items()})


ENV_KEYS = parsed(env_keys, "keys of the environment")


def widths_of(value: Any) -> list[int]:
    """Return one list of widths: both towers have the same here.

    >>> widths_of({"pi": [64, 64], "vf": [64, 64]}), widths_of("[256, 256]")
    ([64, 64], [256, 256])
    """
    value = _read(value)
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict):
        value = value[0]  # how it was written before 1.8
    if isinstance(value, dict):
        if set(value) - {"pi", "vf", "qf"}:
            raise NoCounterpart(f"{value!r} is not a pair of towers pi and vf")
        policy, critic = value.get("pi", []), value.get("vf", [])
        if policy != critic:
            raise NoCounterpart(
                f"policy {policy} and critic {critic} differ, but both have the same widths "
                "here; give hidden_sizes"
            )
        value = policy
    if not isinstance(value, list) or any(isinstance(x, dict) for x in value):
        raise NoCounterpart(
            f"{value!r} has shared layers before separate ones; either all are shared here "
            "(shared_encoder), or none"
        )
    return value
