"""Checks hyperparameter values and completes configurations."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import ConfigError, counted, quoted_number, suggestion
from ..files.plain_data import is_number
from .knob import Knob
from .static_knobs import RECURRENT_NETWORKS
from .table import KNOBS, REGISTRABLE, check_name, choices_of


def allowed(knob: Knob) -> str:
    """Describe a hyperparameter's legal values in words.

    >>> allowed(KNOBS["rho_clip"])
    'a number above 0 or off'
    """
    words: list[str] = []
    if knob.type == "bool":
        words.append("true or false")
    elif knob.type == "choice":
        words.append("one of " + ", ".join(choices_of(knob)))
    elif knob.type == "widths":
        words.append("a list of integers of at least 1, such as [64, 64]")
    else:
        noun = "a number"
        if knob.type == "int":
            noun = "an integer"
        words.append(knob.in_words(noun))
        words.extend(repr(choice) for choice in knob.choices)
    if knob.off:
        words.append("off")
    return " or ".join(words)


def check_value(name: str, value: Any) -> Any:
    """Return a canonical value: float, int, bool, str, tuple of int, or None for off.

    Raises:
        ConfigError: the value is not legal; the error lists the legal ones.
    """
    return canonical_value(KNOBS[name], value)


def canonical_value(knob: Knob, value: Any) -> Any:
    """Return the canonical value, like `check_value`, for a hyperparameter in any table."""
    if knob.off and (value is None or value is False or value == "off"):
        return None
    checked = _canonical_value(knob, value)
    if checked is _ILLEGAL:
        hint = ""
        if isinstance(value, str):
            hint = suggestion(value, choices_of(knob))
        if not hint and knob.type in ("float", "int"):
            hint = quoted_number(value)
        raise ConfigError(f"{knob.name} is {value!r};{hint} allowed: {allowed(knob)}")
    return checked


_ILLEGAL = object()
# float32 range: smaller ones are flushed to 0
_LEAST, _MOST = 2.0**-126, (2.0 - 2.0**-23) * 2.0**127


def _canonical_value(knob: Knob, value: Any) -> Any:
    """Return a value in canonical form, or `_ILLEGAL` if it is out of range."""
    return _BY_TYPE.get(knob.type, _number_of)(knob, value)


def _bool_of(knob: Knob, value: Any) -> Any:
    if isinstance(value, bool):
        return value
    return _ILLEGAL


def _choice_of(knob: Knob, value: Any) -> Any:
    if isinstance(value, str) and value in choices_of(knob):
        return value
    return _ILLEGAL


def _widths_of(knob: Knob, value: Any) -> Any:
    if not isinstance(value, (list, tuple)) or len(value) > 64:
        return _ILLEGAL
    if not all(map(_is_width, value)):
        return _ILLEGAL
    return tuple(value)


def _is_width(width: Any) -> bool:
    whole = isinstance(width, int) and not isinstance(width, bool)
    return whole and 1 <= width <= 16384


def _number_of(knob: Knob, value: Any) -> Any:
    if isinstance(value, str) and value in knob.choices:
        return value
    if not is_number(value) or not knob.contains(value):
        return _ILLEGAL
    if knob.type == "int":
        if value != int(value):
            return _ILLEGAL
        return int(value)
    if knob.type == "float" and value != 0 and not _LEAST <= abs(value) <= _MOST:
        text = (
            f"{knob.name} is {value!r}, which float32 cannot represent; allowed: 0, if in range, "
        )
        raise ConfigError(f"{text}or a magnitude from {_LEAST:.4g} to {_MOST:.4g}")
    return float(value)


_BY_TYPE: Mapping[str, Callable[[Knob, Any], Any]] = {
    "bool": _bool_of,
    "choice": _choice_of,
    "widths": _widths_of,
}
"""Type of a hyperparameter -> the function that reads its values; all other types are numbers."""


_RECTIFIED = ("cnn", "gnn", "transformer", "path_mlp")
_DEFAULTS: Mapping[str, Any] = {name: knob.default for name, knob in KNOBS.items()}


def complete(given: Mapping[str, Any], own_words: bool = False) -> dict[str, Any]:
    """Return a complete configuration, with defaults and rules applied and `env.*` unchanged.

    The rules: an unset `activation` follows `network`; an unset `reward_clip` is 10 with
    `normalise_rewards`; an unset `vf_*` equals the policy's value (`vf_learning_rate` is a third
    of it); `num_layers` with `hidden_size` gives `hidden_sizes`. `minibatch_size` and
    `num_minibatches` are derived from each other, with any remainder as a smaller last minibatch,
    unless both are given with prioritised sampling. Completing a complete configuration changes
    nothing. With `own_words`, words that user code may register later are accepted.

    Raises:
        ConfigError: an unknown hyperparameter, an illegal value, or values that contradict each
            other.
    """
    config = dict(_DEFAULTS)
    for name, value in given.items():
        if name.startswith("env."):
            config[name] = value
        else:
            name = check_name(name)
            if not (own_words and name in REGISTRABLE and isinstance(value, str)):
                value = check_value(name, value)
            config[name] = value
    if config["normalise_rewards"] and "reward_clip" not in given:
        config["reward_clip"] = 10.0
    _fill_hidden_sizes(config, given)
    if config["network"] in _RECTIFIED and "activation" not in given:
        config["activation"] = "relu"
    _fill_critic(config)
    _fill_minibatches(config, given)
    _check_together(config)
    return config


def _fill_hidden_sizes(config: dict[str, Any], given: Mapping[str, Any]) -> None:
    layers, width = config["num_layers"], config["hidden_size"]
    if layers is None and width is None:
        return
    if layers is None or width is None:
        raise ConfigError("num_layers and hidden_size go together; give both, or hidden_sizes")
    if "hidden_sizes" in given and config["hidden_sizes"] != (width,) * layers:
        raise ConfigError("give hidden_sizes, or num_layers with hidden_size, not all three")
    config["hidden_sizes"] = (width,) * layers
    config["num_layers"] = config["hidden_size"] = None


def _fill_critic(config: dict[str, Any]) -> None:
    if config["vf_learning_rate"] is None:
        config["vf_learning_rate"] = config["learning_rate"] / 3.0
    for name, source in _CRITIC_SOURCE.items():
        if config[name] == KNOBS[name].default:
            config[name] = config[source]


_CRITIC_SOURCE = {
    "vf_lr_schedule": "lr_schedule", "vf_lr_end_fraction": "lr_end_fraction",
    "vf_warmup_fraction": "lr_warmup_fraction", "vf_warmup_multiplier": "lr_warmup_multiplier",
    "vf_warmup_start_fraction": "lr_warmup_start_fraction",
    "vf_schedule_multiplier": "lr_schedule_multiplier", "vf_adam_eps": "adam_eps",
    "vf_adam_beta1": "adam_beta1", "vf_adam_beta2": "adam_beta2",
    "vf_max_grad_norm": "max_grad_norm", "vf_weight_decay": "weight_decay",
}  # fmt: skip


def _check_together(config: dict[str, Any]) -> None:
    _check_decay(config)
    _check_pairs(config)
    _check_accumulation(config)
    _check_segments(config)
    _check_steps_of_epoch(config)
    _check_bounds(config)
    _check_convolutions(config)
    _check_heads(config)


def _check_decay(config: dict[str, Any]) -> None:
    decays = config["weight_decay"] > 0 or (config["vf_weight_decay"] or 0) > 0
    if decays and config["optimiser"] == "adam":
        text = "weight_decay above 0 needs `optimiser: adamw`, adam_l2 (adds it to the "
        raise ConfigError(f"{text}gradient, as PyTorch's Adam does), sgd or muon")


def _check_pairs(config: dict[str, Any]) -> None:
    for one, other in (("rho_clip", "c_clip"), ("gae_lambda_initial", "gae_lambda_final")):
        if (config[one] is None) != (config[other] is None):
            raise ConfigError(f"{one} and {other} go together; give both or neither")


def _check_accumulation(config: dict[str, Any]) -> None:
    rows, parts = config["minibatch_size"], config["gradient_accumulation"]
    if parts != "auto" and parts > rows:
        text = f"gradient_accumulation is {parts}, but a minibatch has only {counted(rows, 'row')}"
        raise ConfigError(f"{text}; allowed: at most {rows}")


def _check_steps_of_epoch(config: dict[str, Any]) -> None:
    many, count = config["accumulate_minibatches"], config["num_minibatches"]
    if many > count:
        text = f"accumulate_minibatches is {many}, but num_minibatches is only {count}"
        raise ConfigError(f"{text}; allowed: at most {count}")


def _check_bounds(config: dict[str, Any]) -> None:
    low, high = config["action_low"], config["action_high"]
    if low is not None and high is not None and low >= high:
        raise ConfigError(f"action_low ({low:g}) must be below action_high ({high:g})")
    if config["log_std_min"] > config["log_std_max"]:
        raise ConfigError("log_std_min is above log_std_max")


def _check_convolutions(config: dict[str, Any]) -> None:
    lists = [config[f"cnn_{name}"] for name in ("channels", "kernels", "strides")]
    given = [len(one) for one in lists if one is not None]
    if config["network"] != "cnn" or not given:
        return
    if len(given) < len(lists) or len(set(given)) > 1:
        text = "cnn_channels, cnn_kernels and cnn_strides go together, one number per convolution"
        raise ConfigError(f"{text}; give all three with equal lengths, or none")


def _check_heads(config: dict[str, Any]) -> None:
    width, heads = config["transformer_embedding_size"], config["transformer_heads"]
    if config["network"] == "transformer" and width % (2 * heads):
        text = f"transformer_embedding_size is {width}, but transformer_heads: {heads} needs a "
        near = max(1, round(width / (2 * heads))) * 2 * heads
        raise ConfigError(f"{text}multiple of {2 * heads} (an even width per head); use {near}")


def _cuts_segments(config: Mapping[str, Any]) -> bool:
    """Return whether an epoch divides whole segments, instead of env steps, into minibatches."""
    drawn = config["priority_alpha"] > 0 and config["priority_over"] == "segments"
    whole = drawn or config["rho_clip"] is not None or config["network"] in RECURRENT_NETWORKS
    samples = config["num_envs"] * config["rollout_length"]
    fills = config["num_minibatches"] == math.ceil(samples / config["minibatch_size"])
    return whole and fills


def minibatches_per_epoch(config: Mapping[str, Any]) -> int:
    """Return the number of minibatches per epoch; some settings require whole segments."""
    envs, parts = config["num_envs"], config["num_minibatches"]
    if not _cuts_segments(config):
        return parts
    return math.ceil(envs / math.ceil(envs / parts))


def _check_segments(config: dict[str, Any]) -> None:
    """Reject more minibatches than segments if minibatches are whole segments."""
    parts, envs = config["num_minibatches"], config["num_envs"]
    if _cuts_segments(config) and parts > envs:
        text = f"num_minibatches is {parts}, but here minibatches consist of whole segments, one "
        raise ConfigError(f"{text}per environment; allowed: at most num_envs, which is {envs}")


def _fill_minibatches(config: dict[str, Any], given: Mapping[str, Any]) -> None:
    samples = config["num_envs"] * config["rollout_length"]
    rows = config["minibatch_size"]
    drawn = config["priority_alpha"] > 0 or config["priority_over"] is not None
    if drawn and rows is not None and "num_minibatches" in given:
        return
    if rows is None:
        if config["num_minibatches"] > samples:
            text = f"num_minibatches is {config['num_minibatches']}, but a rollout has {samples} "
            raise ConfigError(f"{text}samples (num_envs x rollout_length)")
        rows = math.ceil(samples / config["num_minibatches"])
    elif "num_minibatches" in given and config["num_minibatches"] != math.ceil(samples / rows):
        text = "give num_minibatches or minibatch_size, not both; together they need prioritised "
        raise ConfigError(f"{text}sampling (priority_alpha above 0, or priority_over)")
    config["minibatch_size"] = min(rows, samples)
    config["num_minibatches"] = math.ceil(samples / rows)
