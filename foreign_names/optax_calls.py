"""Optimisers and learning-rate schedules of optax, read from the calls that create them.

An optax schedule counts optimiser steps. In a study, progress is the completed share of the run,
so a schedule is converted to settings only once the number of gradient steps is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..files.plain_data import is_number
from .name_mapping import NoCounterpart, SettingsRow, rounded
from .plain_values import Called, Unread

# ---------------------------------------------------------------------------- optimisers

_ADAM = {"b1": "adam_beta1", "b2": "adam_beta2", "eps": "adam_eps"}
_DECAYS = {**_ADAM, "weight_decay": "weight_decay"}
OPTIMISERS: Mapping[str, Mapping[str, str]] = {
    "adam": _ADAM,
    "adamw": _DECAYS,
    "sgd": {"momentum": "sgd_momentum"},
    "muon": {**_DECAYS, "beta": "muon_momentum", "adam_b1": "adam_beta1", "adam_b2": "adam_beta2"},
}
"""optax optimiser -> its arguments and ours; our optimiser has the same name."""
_DEFAULTS: Mapping[str, SettingsRow] = {
    "adamw": SettingsRow(weight_decay=1e-4),
    "sgd": SettingsRow(sgd_momentum=0.0),
}
"""Defaults of an optimiser that differ from those of ours."""
_HARMLESS: Mapping[str, tuple[Any, ...]] = {
    "eps_root": (0, 0.0),
    "mu_dtype": (None,),
    "accumulator_dtype": (None,),
    "mask": (None,),
    "adaptive": (False,),
    "ns_steps": (5,),
    "adam_eps_root": (0, 0.0),
}
"""Argument -> the values with which it has no effect."""


def _call_in(value: Any) -> Called | None:
    if isinstance(value, Unread):
        return value.call
    return None


def optimiser_settings(value: Any) -> Any:
    """Read `adam`, `optax.adam`, `optax.adamw(1e-3, b1=0.8)`, `partial(optax.adam, b2=0.99)`.

    Raises:
        NoCounterpart: the optimiser, or one of its arguments, is unknown here.
    """
    call = _call_in(value)
    if call is None:
        return _optimiser_named(str(value))
    words = dict(call.words)
    if call.name == "partial" and call.args and isinstance(call.args[0], Unread):
        called, positions = str(call.args[0]), call.args[1:]
        if call.args[0].call:
            called = call.args[0].call.name
        name = _optimiser_named(called)
    else:
        name, positions = _optimiser_named(call.name), call.args or ()
    if len(positions) > 1:
        raise NoCounterpart(f"pass all arguments of {name} except the learning rate by name")
    settings = SettingsRow({"optimiser": name}) | _DEFAULTS.get(name, {})
    for word, one in words.items():
        settings |= _optimiser_argument(name, word, one)
    return SettingsRow(settings)


def _optimiser_named(word: str) -> str:
    name = word.rpartition(".")[2].lower()
    if name not in OPTIMISERS:
        known = ", ".join(sorted(OPTIMISERS))
        raise NoCounterpart(f"unknown optimiser {word}; known: {known}")
    return name


def _optimiser_argument(name: str, word: str, value: Any) -> SettingsRow:
    ours = OPTIMISERS[name].get(word)
    nesterov = word == "nesterov" and value is (name == "muon")  # the same in our implementation
    if word == "learning_rate" or nesterov or value in _HARMLESS.get(word, ()):
        return SettingsRow()
    if ours is None or not is_number(value):
        raise NoCounterpart(f"{word}={value!r} of {name} has no counterpart")
    return SettingsRow({ours: float(value)})


# ----------------------------------------------------------------------------- schedules

_ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "constant_schedule": ("value",),
    "linear_schedule": ("init_value", "end_value", "transition_steps", "transition_begin"),
    "polynomial_schedule": (
        "init_value",
        "end_value",
        "power",
        "transition_steps",
        "transition_begin",
    ),
    "cosine_decay_schedule": ("init_value", "decay_steps", "alpha", "exponent"),
    "warmup_cosine_decay_schedule": (
        "init_value",
        "peak_value",
        "warmup_steps",
        "decay_steps",
        "end_value",
        "exponent",
    ),
    "warmup_constant_schedule": ("init_value", "peak_value", "warmup_steps"),
}
"""optax schedule -> its arguments, in order."""
_UNUSED: Mapping[str, float] = {
    "transition_begin": 0,
    "alpha": 0.0,
    "end_value": 0.0,
    "exponent": 1.0,
}
_OTHERS = (
    "join_schedules",
    "exponential_decay",
    "piecewise_constant_schedule",
    "piecewise_interpolate_schedule",
    "sgdr_schedule",
    "cosine_onecycle_schedule",
    "linear_onecycle_schedule",
    "warmup_exponential_decay_schedule",
    "inject_hyperparams",
)
_WIDEST_WARM_UP = 0.99  # upper limit of `lr_warmup_fraction`, as a share of the horizon


@dataclass(frozen=True)
class OptaxSchedule:
    """An optax schedule in our terms, except for its horizon."""

    learning_rate: float
    kind: str  # value of `lr_schedule`
    steps: float = 0.0  # optimiser steps until it ends; 0 means the whole run
    end_fraction: float = 0.0
    warmup_steps: float = 0.0
    start_fraction: float = 0.0
    exponent: float = 1.0

    def settings(self, total: int) -> dict[str, Any]:
        """Return our settings for a run of `total` gradient steps."""
        if self.kind == "constant":
            return {"lr_schedule": "constant"}
        warm = self.kind == "warmup_cosine"
        steps = self.steps or max(float(total), self.warmup_steps / _WIDEST_WARM_UP)
        found: dict[str, Any] = {
            "lr_schedule": self.kind,
            "schedule_on_gradient_steps": True,
            "lr_end_fraction": rounded(self.end_fraction),
            "lr_schedule_multiplier": rounded(steps / total),
        }
        if warm:
            found["lr_warmup_fraction"] = rounded(self.warmup_steps / steps)
            found["lr_warmup_start_fraction"] = rounded(self.start_fraction)
            found["lr_warmup_multiplier"] = 1.0
        if self.kind != "linear":
            found["lr_decay_exponent"] = float(self.exponent)
        return found


def schedule_of(value: Any) -> OptaxSchedule | None:
    """Return the schedule that a value describes; None if it is not an optax schedule.

    Raises:
        NoCounterpart: no equivalent schedule exists, or an argument cannot be read.
    """
    call = _call_in(value)
    if call is None or call.args is None:
        return None
    if call.name in _OTHERS:
        known = ", ".join(sorted(_ARGUMENTS))
        raise NoCounterpart(f"{call.name} has no counterpart; known: {known}")
    if call.name not in _ARGUMENTS:
        return None
    given = _schedule_arguments(call)
    if given.get("transition_begin", 0):
        raise NoCounterpart(
            f"{call.name} starts after {given['transition_begin']:g} steps, which has no "
            "counterpart"
        )
    if call.name == "polynomial_schedule" and given["power"] != 1:
        raise NoCounterpart(f"a polynomial of power {given['power']:g} has no counterpart")
    return _READERS[call.name](given)


def _schedule_arguments(call: Called) -> dict[str, float]:
    """Return the numeric arguments of a schedule, by name."""
    names = _ARGUMENTS[call.name]
    given = {**dict(zip(names, call.args or (), strict=False)), **call.words}
    for name, value in given.items():
        if not is_number(value):
            raise NoCounterpart(f"its {name} is {value}, which cannot be read; give a number")
    missing = [name for name in names if name not in given and name not in _UNUSED]
    if missing or len(call.args or ()) > len(names) or given.keys() - set(names):
        raise NoCounterpart(f"{call.name} takes {', '.join(names)}")
    return {name: float(given.get(name, _UNUSED.get(name, 0.0))) for name in names}


def _constant_schedule(given: Mapping[str, float]) -> OptaxSchedule:
    return OptaxSchedule(given["value"], "constant")


def _linear_schedule(given: Mapping[str, float]) -> OptaxSchedule:
    first, last, steps = (given[name] for name in ("init_value", "end_value", "transition_steps"))
    if steps <= 0 or first == last:
        return OptaxSchedule(first, "constant")
    if first < last:  # a warm-up, then a constant
        return OptaxSchedule(last, "warmup_cosine", 0.0, 1.0, steps, first / last)
    return OptaxSchedule(first, "linear", steps, last / first)


def _cosine_schedule(given: Mapping[str, float]) -> OptaxSchedule:
    return OptaxSchedule(
        given["init_value"],
        "cosine",
        _positive_argument(given, "decay_steps"),
        given["alpha"],
        exponent=given["exponent"],
    )


def _warmup_cosine_schedule(given: Mapping[str, float]) -> OptaxSchedule:
    first, peak, warm = (given[name] for name in ("init_value", "peak_value", "warmup_steps"))
    steps = _positive_argument(given, "decay_steps")
    if peak <= 0:
        raise NoCounterpart(f"its peak_value is {peak:g}; allowed: above 0")
    if not 0 <= warm <= _WIDEST_WARM_UP * steps:
        raise NoCounterpart(
            f"its warmup_steps are {warm:g} of {steps:g} steps; allowed: at most 99 %"
        )
    return OptaxSchedule(
        peak,
        "warmup_cosine",
        steps,
        given["end_value"] / peak,
        warm,
        first / peak,
        given["exponent"],
    )


def _warmup_constant_schedule(given: Mapping[str, float]) -> OptaxSchedule:
    names = {"end_value": "peak_value", "transition_steps": "warmup_steps"}
    return _linear_schedule(
        {"init_value": given["init_value"], **{k: given[n] for k, n in names.items()}}
    )


def _positive_argument(given: Mapping[str, float], name: str) -> float:
    if given[name] <= 0:
        raise NoCounterpart(f"its {name} is {given[name]:g}; allowed: above 0")
    return given[name]


_READERS = {
    "constant_schedule": _constant_schedule,
    "linear_schedule": _linear_schedule,
    "polynomial_schedule": _linear_schedule,
    "cosine_decay_schedule": _cosine_schedule,
    "warmup_cosine_decay_schedule": _warmup_cosine_schedule,
    "warmup_constant_schedule": _warmup_constant_schedule,
}
