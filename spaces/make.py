"""Creates distributions from a study file's mappings; every error names its key.

An omitted kind is inferred, as in Weights & Biases: `values` give a categorical, integer bounds an
int_uniform, other bounds a uniform, `mu` and `sigma` a normal. For a real-valued hyperparameter,
integer bounds give a uniform: `ent_coef: {min: 0, max: 1}` includes all real numbers between 0 and
1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import ConfigError, quoted_number, suggestion
from ..files.plain_data import freeze, is_number, is_sequence, same
from .distributions import KINDS, Distribution

_MOST_VALUES = 200
_MOST_STEPS = 10**9
_ELSEWHERE = {
    "constant": "`values` with one value, or move the hyperparameter to `fixed`",
    "log_uniform_values": "'log_uniform' (min and max are values, not exponents)",
    "inv_log_uniform_values": "'one_minus_log' or 'log_uniform'",
    "q_uniform": "'uniform' with `q`", "q_log_uniform_values": "'log_uniform' with `q`",
    "q_log_uniform": "'log_uniform' with `q` (min and max are values, not exponents)",
    "loguniform": "'log_uniform'", "choice": "'categorical'", "randint": "'int_uniform'",
    "int": "'int_uniform'", "float": "'uniform'",
}  # fmt: skip
WHOLE_KINDS = ("int_uniform", "log_int_uniform", "pow2")  # all their values are integers


@dataclass(frozen=True)
class KeyFault:
    """A fault in one key of a distribution, or in the distribution as a whole."""

    key: str | None
    text: str


def make_distribution(fields: Mapping[str, Any]) -> Distribution:
    """Make a distribution from its mapping.

    Raises:
        ConfigError: lists every fault.

    >>> make_distribution({"min": 1, "max": 4}).kind
    'int_uniform'
    """
    distribution, faults = read_distribution(fields)
    if distribution is None:
        raise ConfigError("; ".join(fault.text for fault in faults))
    return distribution


def range_kind(whole: bool, log: bool) -> str:
    """Return the kind of a range that is given by its bounds.

    >>> range_kind(whole=True, log=False), range_kind(whole=False, log=True)
    ('int_uniform', 'log_uniform')
    """
    kinds = {
        (False, False): "uniform",
        (False, True): "log_uniform",
        (True, False): "int_uniform",
        (True, True): "log_int_uniform",
    }
    return kinds[whole, log]


def infer_kind(fields: Mapping[str, Any], real: bool = False) -> str | None:
    """Return the kind implied by the keys, or None.

    For a `real` hyperparameter, integer bounds do not imply integers, but an integer step `q`
    does.

    >>> infer_kind({"min": 0, "max": 1}), infer_kind({"min": 0, "max": 1}, real=True)
    ('int_uniform', 'uniform')
    """
    if "values" in fields or "value" in fields:
        return "categorical"
    if "mu" in fields or "sigma" in fields:
        return "normal"
    if "min" in fields and "max" in fields:
        given = [fields[key] for key in ("min", "max", "q") if fields.get(key) is not None]
        whole = all(type(bound) is int for bound in given)
        return range_kind(whole and (len(given) == 3 or not real), log=False)
    return None


def read_distribution(
    fields: Mapping[str, Any], real: bool = False
) -> tuple[Distribution | None, list[KeyFault]]:
    """Make a distribution, or return every fault in its mapping.

    `fields` excludes `default` and `when`; `real` is explained in `infer_kind`.
    """
    kind = fields.get("distribution") or infer_kind(fields, real)
    if kind is None:
        return None, [KeyFault(None, "give `min` and `max`, or `values`, or `mu` and `sigma`")]
    if not isinstance(kind, str) or kind not in KINDS:
        return None, [KeyFault("distribution", _unknown_kind(kind))]
    given = {key: value for key, value in fields.items() if key != "distribution"}
    if "value" in given and "values" not in given and "values" in KINDS[kind].required:
        given["values"] = [given.pop("value")]
    faults = _check_keys(kind, given)
    if not faults and "values" in given:
        faults = _check_values(given)
    elif not faults:
        faults = _check_numbers(kind, given)
    if faults:
        return None, faults
    return _build_distribution(kind, given), []


def _unknown_kind(kind: Any) -> str:
    if isinstance(kind, str) and kind in _ELSEWHERE:
        return f"unknown distribution {kind!r}; use {_ELSEWHERE[kind]}"
    hint = f"{suggestion(str(kind), KINDS)} Known: {', '.join(KINDS)}"
    return f"unknown distribution {kind!r};{hint}"


def _check_keys(kind: str, given: Mapping[str, Any]) -> list[KeyFault]:
    cls = KINDS[kind]
    allowed = (*cls.required, *cls.optional)
    known = f"Known: {', '.join(allowed)}"
    faults = [
        KeyFault(key, f"{kind} has no {key!r};{suggestion(key, allowed)} {known}")
        for key in given
        if key not in allowed
    ]
    if missing := " and ".join(f"`{key}`" for key in cls.required if key not in given):
        faults.append(KeyFault(None, f"{kind} needs {missing}"))
    return faults


def _check_values(given: Mapping[str, Any]) -> list[KeyFault]:
    values: Any = given["values"]
    if not is_sequence(values) or not values:
        return [KeyFault("values", f"values is {values!r}; allowed: a list of at least one value")]
    if len(values) > _MOST_VALUES:
        return [
            KeyFault(
                "values", f"values has {len(values)} entries; allowed: at most {_MOST_VALUES}"
            )
        ]
    faults: list[KeyFault] = []
    for index, value in enumerate(values):
        if isinstance(value, float) and not math.isfinite(value):
            faults.append(KeyFault("values", f"{value!r} among the values is not finite"))
        if any(same(value, earlier) for earlier in values[:index]):
            faults.append(KeyFault("values", f"{value!r} appears twice among the values"))
    return faults


def _check_numbers(kind: str, given: Mapping[str, Any]) -> list[KeyFault]:
    faults: list[KeyFault] = []
    for key, value in given.items():
        if not is_number(value):
            noun = "number"
            if isinstance(value, float):
                noun = "finite number"
            hint = quoted_number(value)
            faults.append(KeyFault(key, f"{key} is {value!r};{hint} allowed: a {noun}"))
        elif abs(value) > 1e300 or (isinstance(value, int) and abs(value) > 2**53):
            faults.append(KeyFault(key, f"{key} is {value!r}, which is too large"))
        elif kind in WHOLE_KINDS and key != "zero" and value != int(value):
            faults.append(KeyFault(key, f"{key} is {value!r}; {kind} takes integers"))
    if faults:
        return faults
    zero, check = given.get("zero", 0.0), _check_range
    if kind == "normal":
        check = _check_normal
    if not 0.0 <= zero <= 0.9:
        faults.append(KeyFault("zero", f"zero is {zero!r}; allowed: a probability from 0 to 0.9"))
    return [*faults, *(KeyFault(key, text) for wrong, key, text in check(kind, given) if wrong)]


_Checks = list[tuple[bool, str, str]]  # (is wrong, key, words)


def _check_range(kind: str, given: Mapping[str, Any]) -> _Checks:
    low, high, q, zero = given["min"], given["max"], given.get("q"), given.get("zero", 0.0)
    if low > high:
        return [(True, "min", _crossed_text(low, high))]
    step, more = given.get("q", 1), " (`zero: 0.2` adds 0)"
    if zero:
        more = ", such as 1e-6"
    fits = step > 0 and step <= high - low and (high - low) / step <= _MOST_STEPS
    needs = {
        "log_uniform": ("min", low < 1e-100, f"min above 0{more}"),
        "log_int_uniform": ("min", low < 1, "min of at least 1"),
        "one_minus_log": ("max", high > 1.0 - 1e-9, "max below 1, such as 0.9999"),
        "logit": ("min", low < 1e-9, "min above 0"),
        "pow2": ("min", not _is_power(low), "a power of two, such as 64"),
    }
    more_needs = {
        "logit": ("max", high > 1.0 - 1e-9, "max below 1"),
        "pow2": ("max", not _is_power(high), "a power of two, such as 64"),
    }
    checks = [
        (step <= 0, "q", f"q is {q!r}; allowed: a step above 0"),
        (
            q is not None and step > 0 and not fits,
            "q",
            f"q is {q!r}; allowed: 1 to {_MOST_STEPS:,} steps from min to max",
        ),
        (
            zero > 0 and low == high,
            "zero",
            f"min and max are both {low!r}; use values: [0, {low!r}] instead",
        ),
        (
            zero > 0 and low < high and kind in WHOLE_KINDS and low <= 0 <= high,
            "zero",
            "0 is already one of the values; remove `zero`",
        ),
    ]
    for key, wrong, words in (one[kind] for one in (needs, more_needs) if kind in one):
        checks.append((wrong, key, f"{key} is {given[key]!r}; {kind} needs {words}"))
    return checks


def _crossed_text(low: float, high: float) -> str:
    text = f"min {low!r} is above max {high!r}"
    if meant := _lost_minus(low, high):
        return f"{text}; did you mean min: {meant}? Otherwise swap them"
    return f"{text}; swap them"


def _lost_minus(low: float, high: float) -> str:
    """Return the lower bound with the minus that its exponent seems to lack; otherwise "".

    >>> _lost_minus(1e4, 1e-2), _lost_minus(3e5, 0.1), _lost_minus(64.0, 32.0)
    ('1e-4', '3e-5', '')
    """
    if not isinstance(low, float) or low < 10 or high >= 1:
        return ""
    digits, _, exponent = f"{low:e}".partition("e+")
    meant = f"{float(digits):g}e-{int(exponent)}"
    if float(meant) > high:
        return ""
    return meant


def _is_power(bound: float) -> bool:
    return bound >= 1 and not int(bound) & (int(bound) - 1)


def _check_normal(kind: str, given: Mapping[str, Any]) -> _Checks:
    mu, sigma, low, high = given["mu"], given["sigma"], given.get("min"), given.get("max")
    crossed = low is not None and high is not None and low > high
    small = sigma > 0 and (abs(mu) > 1e6 * sigma or sigma < 1e-7)
    cut = (low is not None and low > mu + 3.9 * sigma) or (
        high is not None and high < mu - 3.9 * sigma
    )
    return [
        (crossed, "min", f"min {low!r} is above max {high!r}; swap them"),
        (sigma <= 0, "sigma", f"sigma is {sigma!r}; allowed: a number above 0"),
        (small, "sigma", f"sigma {sigma!r} is too small; rescale the hyperparameter"),
        (
            sigma > 0 and not small and not crossed and cut,
            "min",
            f"no value from min to max is possible: {kind} is truncated at {mu} +- 4 x {sigma}",
        ),
    ]


def _build_distribution(kind: str, given: Mapping[str, Any]) -> Distribution:
    fields = dict(given)
    if "values" in fields:
        fields["values"] = tuple(freeze(value) for value in fields["values"])
        return KINDS[kind](**fields)
    cast = float
    if kind in WHOLE_KINDS:
        cast = int
    for key in ("min", "max", "q", "mu", "sigma"):
        if fields.get(key) is not None:
            fields[key] = cast(fields[key])
    if fields.get("q") is None:
        fields.pop("q", None)
    elif kind in WHOLE_KINDS and fields["q"] == 1:
        fields.pop("q")
    fields["zero"] = float(fields.get("zero", 0.0))
    if "zero" not in KINDS[kind].optional:
        fields.pop("zero")
    return KINDS[kind](**fields)
