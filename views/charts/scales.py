"""Scales and round ticks: of values, of env steps, and along the axis of a hyperparameter."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from ...spaces.base import Distribution
from ..formatting import number, param, steps
from .model import Scale

_MANY_DECADES, _MARGIN = 100.0, 0.05
_APART, _FEW = 0.19, 6


def round_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Return round numbers between two, both ends included; at least two if the ends differ.

    >>> round_ticks(0.0, 1.0), round_ticks(3.0, 480.0)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [100.0, 200.0, 300.0, 400.0])
    """
    if not high > low:
        return [low]
    for step in _round_steps((high - low) / max(1, most)):
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last - first + 1 <= most:
            return [float(f"{index * step:.12g}") for index in range(first, last + 1)]
    return [low, high]


def _round_steps(least: float) -> Iterable[float]:
    """Yield 1, 2, 5, 10, 20, ... times a power of ten, from the first that is at least `least`."""
    power = 10.0 ** math.floor(math.log10(least))
    for _ in range(3):
        for factor in (1.0, 2.0, 5.0):
            if factor * power >= least * (1 - 1e-9):
                yield factor * power
        power *= 10.0


def decades(low: float, high: float) -> list[float]:
    """Return the powers of ten between two positive numbers; if they are few, also steps between.

    >>> decades(1e-4, 1e-2), decades(0.2, 5.0)
    ([0.0001, 0.001, 0.01], [0.3, 1.0, 3.0])
    """
    exponents = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    inside = 1e-9 + 1.0
    for factors in ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0)):
        found = [float(f"{f}e{e}") for e in exponents for f in factors]
        found = [value for value in found if low / inside <= value <= high * inside]
        if len(found) >= 3:
            break
    return found


def value_scale(values: Iterable[float], label: str, may_be_log: bool = True) -> Scale:
    """Return a scale over all finite values, logarithmic if positive ones span decades."""
    finite = [value for value in values if math.isfinite(value)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    if may_be_log and low > 0.0 and high / low > _MANY_DECADES:
        low, high = low / 1.2, high * 1.2
        return Scale(low, high, _ticks(decades(low, high), number), label, log=True)
    if not high > low:
        reach = abs(low) * 0.1 or 1.0
        low, high = low - reach, high + reach
    margin = _MARGIN * (high - low)
    low, high = low - margin, high + margin
    return Scale(low, high, _ticks(round_ticks(low, high), number), label)


def leaders_scale(
    values: Iterable[float], label: str, sign: float, kept: Iterable[float] = ()
) -> Scale:
    """Return a scale on which the better half of `values` gets at least half of the height.

    Worse values may be cut off (`cut`); those in `kept` never are. `sign` is 1 where larger is
    better, else -1.
    """
    finite = sorted((value for value in values if math.isfinite(value)), key=lambda v: -sign * v)
    if not finite:
        return value_scale(kept, label)
    best, whole = finite[0], len(finite)
    apart = (abs(best - finite[min(whole - 1, whole * k // 20)]) for k in (10, 15, 18))
    reach = next((distance for distance in apart if distance > 0.0), math.inf)
    inside = [value for value in finite if abs(best - value) <= 2.0 * reach]
    scale = value_scale([*inside, *(v for v in kept if math.isfinite(v))], label)
    return replace(scale, cut=not all(map(scale.holds, finite)))


def steps_scale(high: float, label: str = "env steps of one seed") -> Scale:
    high = max(1.0, high)
    return Scale(0.0, high, _ticks(round_ticks(0.0, high), lambda at: steps(round(at))), label)


def _ticks(values: Sequence[float], say: Callable[[float], str]) -> tuple[tuple[float, str], ...]:
    return tuple((value, say(value)) for value in values)


def knob_share(distribution: Distribution, value: Any) -> float:
    """Return the place of a value, 0 to 1, on the axis that samplers see, small values first."""
    share = distribution.share(value)
    return 1.0 - share if distribution.kind == "one_minus_log" else share


def knob_ticks(distribution: Distribution, apart: float = _APART) -> tuple[tuple[float, str], ...]:
    """Return (share, text) of ticks along a distribution, none closer than `apart`."""
    axis = distribution.axis
    few = axis.kind != "real" and axis.high - axis.low + 1 <= _FEW
    if few or axis.kind == "choice":
        values = list(distribution.grid(int(axis.high - axis.low) + 1))
        every = 1 if few else math.ceil(len(values) / _FEW)
        return tuple((knob_share(distribution, value), param(value)) for value in values[::every])
    chosen: list[tuple[float, str]] = []
    ends = distribution.ends()
    for value in (*ends, *_inner(distribution, ends)):
        share = knob_share(distribution, value)
        if all(abs(share - other) >= apart for other, _ in chosen):
            chosen.append((share, param(value)))
    return tuple(sorted(chosen))


def _inner(distribution: Distribution, ends: Sequence[float]) -> list[float]:
    """Return round values inside a range, on the scale of the distribution."""
    low, high = min(ends), max(ends)
    positive = [value for value in ends if value > 0]
    if "log" in distribution.kind and positive:
        if distribution.kind == "one_minus_log":
            found = [1.0 - value for value in decades(1.0 - high, 1.0 - low)]
        else:
            found = decades(min(positive), high)
    else:
        found = round_ticks(low, high)
    whole = all(isinstance(value, int) for value in ends)
    rounded = [int(value) if whole else float(f"{value:.9g}") for value in found]
    return [value for value in rounded if distribution.why_not(value) is None]
