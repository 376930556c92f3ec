"""Reports errors in the methods of a training class with the user's file and line, and the fix.

Each kind of tracing mistake has a separate message. A traced value is unknown during tracing, and
the fix depends on the code that reads it.
"""

from __future__ import annotations

import inspect
import linecache
import re
import sys
import threading
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ..errors import (
    ConfigError,
    foreign_of,
    format_error_if_own,
    is_interrupt,
    named,
    place_of,
    shown_path,
    user_streams,
)
from .traced_twice import LEAKED

_LONG = 15.0  # seconds
_OWN_MODULE = f"{__package__}.training"


class SetOutsideSetup(AttributeError):
    """Raised if an attribute of a training instance is set after `setup`."""

    def __init__(self, name: str):
        self.attribute = name
        super().__init__(f"{name} is set outside setup")


def method_of(cls: type, method: str) -> str:
    """Return `Class.method:`, followed by `file:line:` of the user's method."""
    function = inspect.unwrap(getattr(cls, method))
    name, code = f"{cls.__name__}.{method}:", getattr(function, "__code__", None)
    if code is None or getattr(function, "__module__", "") == _OWN_MODULE:
        return name
    return f"{name} {shown_path(code.co_filename)}:{code.co_firstlineno}:"


@dataclass(frozen=True)
class _Mistake:
    """A kind of tracing error, identified by its class and a phrase in its message."""

    kind: str  # the name of the error's class
    phrase: str
    advice: str


_FIXED = "declare it with hpo.fixed and read it from self"

_MISTAKES = (
    _Mistake(
        "TracerBoolConversionError",
        "",
        (
            "a traced value is used as a condition (if, while, and, not, max, assert), "
            "but it is not known yet; use jnp.where or jax.lax.cond, and jnp.maximum "
            "instead of max"
        ),
    ),
    _Mistake(
        "ConcretizationTypeError",
        "`float` function",
        (
            "float() does not work on a traced value; remove it (a metric may be a one-element "
            "array), and use jnp instead of math"
        ),
    ),
    _Mistake(
        "ConcretizationTypeError",
        "`int` function",
        "int() does not work on a traced value; to truncate it, use .astype(jnp.int32); for a "
        "size or a count, @KNOB",
    ),
    _Mistake(
        "ConcretizationTypeError",
        "item() method",
        ".item() does not work on a traced value; remove it (one-element arrays are fine)",
    ),
    _Mistake(
        "ConcretizationTypeError",
        "tolist() method",
        ".tolist() does not work on a traced value; keep it as an array",
    ),
    _Mistake(
        "ConcretizationTypeError",
        "must be statically specified",
        "the number of elements depends on traced values; pass size= and fill_value=",
    ),
    _Mistake(
        "ConcretizationTypeError",
        "",
        "a length or static argument of this function cannot be a traced value; @KNOB",
    ),
    _Mistake(
        "TracerIntegerConversionError",
        "",
        "a traced value is an argument of range() or a list index; use jax.lax.fori_loop for "
        "a loop, jnp.stack(list)[i] for an index, or @KNOB",
    ),
    _Mistake(
        "TracerArrayConversionError",
        "",
        "NumPy needs concrete numbers, but this value is traced; use jax.numpy (jnp) here",
    ),
    _Mistake(
        "NonConcreteBooleanIndexError",
        "",
        "the size of x[mask] depends on the mask; use jnp.where(mask, x, 0)",
    ),
    _Mistake(
        "UnexpectedTracerError",
        "",
        LEAKED,
    ),
    _Mistake(
        "TypeError",
        "Shapes must be 1D sequences of concrete values",
        "a shape cannot be a traced value; @KNOB",
    ),
    _Mistake(
        "TypeError",
        "was not hashable",
        "this argument must be static, so it cannot be a traced value; @KNOB",
    ),
    _Mistake(
        "IndexError",
        "must be static integers",
        "the length of a slice cannot be a traced value; use jax.lax.dynamic_slice",
    ),
    _Mistake(
        "TypeError",
        "unhashable type: 'DynamicJaxprTracer'",
        "a traced value is a dict key or an element of a set; use jnp.where or an array",
    ),
    _Mistake(
        "TypeError",
        "to DynamicJaxprTracer.__format__",
        "a traced value cannot be formatted, because it is not known yet; return it as a metric",
    ),
)


def _known_mistake(error: BaseException) -> _Mistake | None:
    kinds = [cls.__name__ for cls in type(error).__mro__]
    for mistake in _MISTAKES:
        if mistake.kind in kinds and mistake.phrase in str(error):
            return mistake
    return None


def _traced_knob(cls: type, place: str) -> str:
    """Return the name of the only traced hyperparameter in a line of code, or ""."""
    path, _, line = place.rpartition(":")
    if not line.isdigit():
        return ""
    text = linecache.getline(path, int(line))
    declared: Callable[[], Any] = getattr(cls, "declared", dict)
    traced = [name for name, knob in declared().items() if knob.traced]
    found = [name for name in traced if re.search(rf"\bh\.{name}\b", text)]
    if len(found) != 1:
        return ""
    return found[0]


def _advice_with_knob(cls: type, mistake: _Mistake, place: str) -> str:
    knob = _traced_knob(cls, place)
    declare = f"if it comes from a hyperparameter, {_FIXED}"
    if knob:
        declare = f"declare {knob} with hpo.fixed and read self.{knob}"
    return mistake.advice.replace("@KNOB", declare)


@contextmanager
def _warn_if_slow(cls: type, method: str) -> Generator[None]:
    """Warn if a method takes long, because an endless Python loop prints nothing."""
    text = f"{method_of(cls, method)} has been running for {_LONG:.0f} s, and no program is "
    text += "compiled yet; press Ctrl-C to stop"
    said = UserWarning(text)
    timer = threading.Timer(_LONG, lambda: warnings.showwarning(said, UserWarning, __file__, 1))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def in_user_words(cls: type, method: str) -> Generator[None]:
    """Turn any error in a method, even `sys.exit`, into a ConfigError with file and line."""
    try:
        with user_streams(), _warn_if_slow(cls, method):
            yield
    except (ConfigError, GeneratorExit):
        raise
    except BaseException as error:
        if is_interrupt(error):
            raise
        raise ConfigError(_error_text(cls, method, error)) from error


def _error_text(cls: type, method: str, error: BaseException) -> str:
    place = place_of(error)
    at = f"{cls.__name__}.{method}: {place}:"
    if isinstance(error, SetOutsideSetup):
        return (
            f"{at} self.{error.attribute} is set outside setup, but all lanes share this "
            "object; keep the value in the state, which init returns and update passes on, or "
            "set it in setup"
        )
    if isinstance(error, SystemExit):
        return f"{at} the code calls sys.exit({error.code}); raise an error instead"
    if place and (mistake := _known_mistake(error)) is not None:
        return f"{at} {_advice_with_knob(cls, mistake, place)}{foreign_of(error)}"
    text, where = format_error_if_own(error), f"{cls.__name__}.{method}:"
    if text == named(error):
        where = method_of(cls, method)
    return f"{where} {text}{_gymnax_hint(error)}"


def _gymnax_hint(error: BaseException) -> str:
    """Return a hint if a library expects five values from `step` (as in gymnax 0.0.9), else ""."""
    unpacked = "too many values to unpack (expected 5)" in str(error)
    if not unpacked or "gymnax" not in sys.modules:
        return ""
    return "; for a library that expects gymnax 0.0.9, wrap the environment: hpo.old_gymnax(env)"
