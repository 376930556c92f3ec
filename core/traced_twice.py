"""Traces a function twice, to find numbers that Python draws while tracing.

A compiled program is traced once. A number that Python draws at that time, from `numpy.random`,
the clock or a changing global, is then the same in every update of every lane. A second trace
reveals this, because it contains a different number.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, Generic, TypeVar

import jax
import numpy as np
from jax.core import Tracer

from ..errors import own_place
from .pytree import is_key

LEAKED = (
    "an array from an earlier trace was kept in a global variable or an object; keep it in the "
    "state"
)
_T = TypeVar("_T")
_LATER = 1_000_003.0  # seconds; a float32 time would hide a smaller shift for the first 2 minutes


@dataclass(frozen=True)
class Traced:
    """A traced function: its program, and the shapes of its results."""

    jaxpr: Any  # a ClosedJaxpr
    shapes: Any
    difference: str = ""  # of the second trace, as text with file and line; "" if equal


def trace_twice(call: Callable[..., Any], *given: Any) -> Traced:
    """Trace `call` with arrays or their shapes, twice.

    Functions under `jax.jit` inside `call` are also traced again: the context set here is part of
    jax's cache key, so jax does not reuse the first trace.
    """
    drawn = _generator_states()
    jaxpr, shapes = jax.make_jaxpr(call, return_shape=True)(*given)
    drew = _moved_generators(drawn, _generator_states())
    with _NEW_TRACES("again"), _later_clock():
        again = jax.make_jaxpr(call)(*given)
    found = _find_leak(jaxpr) or _first_difference(jaxpr, again)
    if found is None:
        return Traced(jaxpr, shapes)
    if not drew:
        return Traced(jaxpr, shapes, found.words())
    line = line_of_change(_generator_states, _moved_generators, call, *given) or found.place
    return Traced(jaxpr, shapes, _WORDS_OF_GENERATOR.format(_place_prefix(line), drew[0]))


_WORDS_OF_GENERATOR = (
    "{}{} draws only once, while the program is traced, so every update of every lane gets the "
    "same numbers; draw with jax.random, with a key kept in the state"
)


def _moved_generators(before: dict[str, str], after: dict[str, str]) -> list[str]:
    return [name for name, state in after.items() if state != before[name]]


def line_of_change(
    look: Callable[[], _T],
    changed: Callable[[_T, _T], list[str]],
    call: Callable[..., Any],
    *given: Any,
) -> str:
    """Trace `call` again; return `file:line` of the user code that changes the value of `look()`.

    Returns "" if nothing changes this time.
    """
    watch = _TraceWatch(look, changed)
    before = sys.gettrace()
    sys.settrace(watch)
    try:
        with _NEW_TRACES("watched"):
            jax.make_jaxpr(call)(*given)
    except Exception:  # the first trace succeeded, so the change causes this
        return watch.found
    finally:
        sys.settrace(before)
    watch.look()
    return watch.found


class _TraceWatch(Generic[_T]):
    """A Python trace function that checks for a change before every line of user code."""

    def __init__(self, look: Callable[[], _T], changed: Callable[[_T, _T], list[str]]):
        self._look, self._changed, self._before = look, changed, look()
        self._last = self.found = ""
        self._own: dict[str, bool] = {}

    def look(self) -> None:
        if not self.found and self._changed(self._before, self._look()):
            self.found = self._last

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        path = frame.f_code.co_filename
        if path not in self._own:
            self._own[path] = bool(own_place([(path, frame.f_lineno)]))
        if not self._own[path]:
            return None
        self.look()
        self._last = own_place([(path, frame.f_lineno)])
        return self


def constants(jaxpr: Any) -> Iterator[Any]:
    """Yield the constants captured by a closed jaxpr, including those in its equations."""
    yield from _consts(jaxpr)
    for equation in _open_jaxpr(jaxpr).eqns:
        for inner in _inner_jaxprs(equation):
            yield from constants(inner)


_NEW_TRACES = jax.make_user_context(default_value=None)


def _generator_states() -> dict[str, str]:
    return {"numpy.random": repr(np.random.get_state()), "random": repr(random.getstate())}


def _place_prefix(place: str) -> str:
    if not place:
        return ""
    return f"{place}: "


@contextmanager
def _later_clock() -> Generator[None]:
    """Set Python's clock some days ahead, in this thread only."""
    clock, nanoseconds, here = time.time, time.time_ns, threading.get_ident()

    def ahead() -> float:
        return _LATER if threading.get_ident() == here else 0.0

    time.time = lambda: clock() + ahead()
    time.time_ns = lambda: nanoseconds() + int(ahead() * 1e9)
    try:
        yield
    finally:
        time.time, time.time_ns = clock, nanoseconds


@dataclass(frozen=True)
class _Difference:
    place: str  # file:line of the user's code
    before: float | None = None  # the number before, if it is one
    after: float | None = None
    leaked: bool = False  # an input is an array from a finished trace

    def words(self) -> str:
        where = _place_prefix(self.place)
        if self.leaked:
            return f"{where}{LEAKED}"
        numbers = ""
        if self.before is not None and self.after is not None:
            numbers = f" ({self.before:g}, then {self.after:g})"
        return (
            f"{where}this Python code returns a different value each time{numbers}, but it runs "
            "only once, while the program is traced; keep counters and running values in the "
            "state, and draw random numbers with jax.random"
        )


def _first_difference(one: Any, other: Any) -> _Difference | None:
    """Describe the first difference between two jaxprs, closed or not."""
    consts = zip(_consts(one), _consts(other), strict=False)
    one, other = _open_jaxpr(one), _open_jaxpr(other)
    same = [_is_equal(*pair) for pair in consts]
    moved = {var for var, equal in zip(one.constvars, same, strict=False) if not equal}
    if len(one.constvars) != len(other.constvars):
        moved = set(one.constvars)
    numbers = _number_variables(one), _number_variables(other)
    for left, right in zip(one.eqns, other.eqns, strict=False):
        found = _of_equation(left, right, moved, numbers)
        if found is not None:
            return found
    if len(one.eqns) != len(other.eqns):
        longer = max(one.eqns, other.eqns, key=len)
        return _Difference(_user_place(longer[min(len(one.eqns), len(other.eqns))]))
    ends = zip(one.outvars, other.outvars, strict=False)
    if moved or any(not _same_input(left, right, numbers) for left, right in ends):
        return _Difference(_place_of_first(reversed(one.eqns)))
    return None


def _find_leak(jaxpr: Any) -> _Difference | None:
    """Return where an array from a finished trace is used; None if no such array is captured."""
    pairs = zip(_open_jaxpr(jaxpr).constvars, _consts(jaxpr), strict=False)
    leaks = {var for var, const in pairs if isinstance(const, Tracer)}
    if not leaks:
        return None
    users = (one for one in _open_jaxpr(jaxpr).eqns if _reads_any(one, leaks))
    return _Difference(_place_of_first(users), leaked=True)


def _place_of_first(equations: Iterable[Any]) -> str:
    return next(map(_user_place, equations), "")


def _reads_any(equation: Any, variables: set[Any]) -> bool:
    return any(not _is_literal(one) and one in variables for one in equation.invars)


def _of_equation(
    left: Any, right: Any, moved: set[Any], numbers: tuple[dict[Any, int], dict[Any, int]]
) -> _Difference | None:
    if left.primitive.name != right.primitive.name or len(left.invars) != len(right.invars):
        return _Difference(_user_place(left))
    for one, other in zip(left.invars, right.invars, strict=True):
        if _is_literal(one) and _is_literal(other):
            if not _is_equal(one.val, other.val):
                return _Difference(
                    _user_place(left), _real_number(one.val), _real_number(other.val)
                )
        elif not _same_input(one, other, numbers) or one in moved:
            return _Difference(_user_place(left))
    for name, value in left.params.items():
        if not _same_parameter(value, right.params.get(name)):
            return _Difference(_user_place(left))
    inner = zip(_inner_jaxprs(left), _inner_jaxprs(right), strict=False)
    return next(filter(None, (_first_difference(*pair) for pair in inner)), None)


def _inner_jaxprs(equation: Any) -> list[Any]:
    """Return the jaxprs in an equation's parameters; closed ones include their constants."""
    leaves = jax.tree.leaves(list(equation.params.values()))
    return [leaf for leaf in leaves if hasattr(leaf, "jaxpr") or hasattr(leaf, "eqns")]


def _open_jaxpr(jaxpr: Any) -> Any:
    return getattr(jaxpr, "jaxpr", jaxpr)


def _consts(jaxpr: Any) -> list[Any]:
    return list(getattr(jaxpr, "consts", ()))


def _is_literal(atom: Any) -> bool:
    return hasattr(atom, "val")


def _number_variables(jaxpr: Any) -> dict[Any, int]:
    """Number variables in the order in which they are bound."""
    bound = [*jaxpr.constvars, *jaxpr.invars]
    for equation in jaxpr.eqns:
        bound += equation.outvars
    return {var: number for number, var in enumerate(bound)}


def _same_input(one: Any, other: Any, numbers: tuple[dict[Any, int], dict[Any, int]]) -> bool:
    if _is_literal(one) or _is_literal(other):
        return _is_literal(one) and _is_literal(other) and _is_equal(one.val, other.val)
    return numbers[0].get(one) == numbers[1].get(other) and one.aval == other.aval


def _same_parameter(one: Any, other: Any) -> bool:
    """Compare plain values only, because functions and similar objects are new in each trace."""
    if isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):
        return all(_same_parameter(*pair) for pair in zip(one, other, strict=True))
    plain = isinstance(one, int | float | np.ndarray) and isinstance(
        other, int | float | np.ndarray
    )
    return not plain or _is_equal(one, other)


def _is_equal(one: Any, other: Any) -> bool:
    """Compare constants bit by bit; NaN equals NaN."""
    if one is other or any(isinstance(value, Tracer) for value in (one, other)):
        return True  # an inner array of the enclosing trace; its wiring is compared there
    left, right = _numpy_array(one), _numpy_array(other)
    if (left.shape, left.dtype) != (right.shape, right.dtype):
        return False
    return left.tobytes() == right.tobytes()


def _numpy_array(value: Any) -> np.ndarray:
    if isinstance(value, jax.Array) and is_key(value):
        value = jax.random.key_data(value)
    return np.asarray(value)


def _real_number(value: Any) -> float | None:
    found = _numpy_array(value)
    if found.ndim > 0 or np.iscomplexobj(found) or not np.issubdtype(found.dtype, np.number):
        return None
    return float(found)


def _user_place(equation: Any) -> str:
    """Return `file:line` of the user's code that an equation comes from, or ""."""
    frames = getattr(equation.source_info.traceback, "frames", ())
    return own_place((frame.file_name, frame.line_num) for frame in frames)
