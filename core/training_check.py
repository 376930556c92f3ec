"""Checks that a training class has pure methods and constant shapes, without compiling.

Each method is traced twice. The training object must not change, and both programs must be equal.
"""

from __future__ import annotations

import math
import re
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from ..errors import ConfigError
from .envs.traced_once import differences
from .pytree import equations, is_key, named_leaves
from .traced_twice import constants, line_of_change, trace_twice
from .training import Lane, Training, words_of
from .training_errors import in_user_words, method_of

_CALLBACKS = ("io_callback", "pure_callback", "debug_callback", "debug_print")
_LARGE, _SHOWN = 64 * 2**20, 2**20  # bytes of all constants, and of one that is listed


@dataclass(frozen=True)
class Shapes:
    """The names and shapes in the state and results of a training class."""

    state: dict[str, jax.ShapeDtypeStruct]  # leaves by path
    metrics: tuple[str, ...]
    values: tuple[str, ...]  # names of an evaluation's values
    note: str = ""  # a warning about constants of the program that are too large

    @property
    def state_bytes(self) -> int:
        return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in self.state.values())


def shapes_of(training: Training, traced_names: tuple[str, ...]) -> Shapes:
    """Check a custom training class from array shapes, without compiling.

    Raises:
        ConfigError: names the user's file and line, or the leaf or metric.
    """
    lane = Lane(training, traced_names)
    tracer = _Tracer(training)
    hypers = {name: jax.ShapeDtypeStruct((), np.float32) for name in traced_names}
    shared = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), lane.shared)
    key = jax.eval_shape(lambda: jax.random.key(0))

    def h(values: Any, shared: Any) -> Any:
        return lane.reading(shared).hypers(values)

    def init(key: Any, values: Any, shared: Any) -> Any:
        return training.init(key, h(values, shared))

    def update(leaves: Any, values: Any, shared: Any) -> Any:
        state = lane.reading(shared).state(leaves, values)
        found: Any = training.update(state, h(values, shared))
        if not isinstance(found, tuple) or len(found) != 2:
            raise ConfigError(f"{tracer.at('update')} must return (state, metrics by name)")
        return found[0], tracer.numbers("update", found[1])

    def evaluate(leaves: Any, values: Any, shared: Any, key: Any) -> Any:
        state = lane.reading(shared).state(leaves, values)
        found = training.evaluate(state, h(values, shared), key)
        return tracer.numbers(evaluates, found)

    evaluates = "evaluate"
    if type(training).acts():
        evaluates = "act"
    state = tracer.shapes("init", init, key, hypers, shared)
    _check_state(tracer, state)
    words = jax.eval_shape(lambda tree: words_of(jax.tree.leaves(tree)), state)
    after, metrics = tracer.shapes("update", update, words, hypers, shared)
    _check_same_state(tracer, state, after)
    values = tracer.shapes(evaluates, evaluate, words, hypers, shared, key)
    if not values:
        raise ConfigError(f"{tracer.at('evaluate')} returns nothing; return a value")
    leaves = dict(zip(named_leaves(state), words, strict=True))
    return Shapes(leaves, tuple(metrics), tuple(values), tracer.note())


def _check_state(tracer: _Tracer, state: Any) -> None:
    for name, leaf in named_leaves(state).items():
        if 0 in leaf.shape:
            raise ConfigError(f"{tracer.at('init')} {name} is empty (shape {leaf.shape})")


def _check_same_state(tracer: _Tracer, state: Any, after: Any) -> None:
    for line in differences(
        {"state": after}, {"state": state}, {"state": ", as returned by init"}
    ):
        raise ConfigError(f"{tracer.at('update')} {line}")
    if [*named_leaves(after)] != [*named_leaves(state)]:  # lanes store leaves by position
        updated, initial = jax.tree.structure(after), jax.tree.structure(state)
        raise ConfigError(
            f"{tracer.at('update')} the state is {updated}, but init returned {initial}"
        )


class _Tracer:
    """Traces the methods of one training class and records their programs' constants."""

    def __init__(self, training: Training):
        self.training, self.cls = training, type(training)
        self._constants: dict[int, Any] = {}

    def at(self, method: str) -> str:
        return method_of(self.cls, method)

    def shapes(self, method: str, call: Callable[..., Any], *given: Any) -> Any:
        """Return the shapes of a method's results; the method must be pure."""
        before = contents_of(self.training)
        with in_user_words(self.cls, method):
            found = trace_twice(call, *given)
        self._refuse_changes(method, before, call, *given)
        if found.difference:
            raise ConfigError(f"{self.cls.__name__}.{method}: {found.difference}")
        called = {str(one.primitive) for one in equations(found.jaxpr.jaxpr)} & set(_CALLBACKS)
        if called:
            raise ConfigError(
                f"{self.at(method)} calls back into Python ({', '.join(sorted(called))}); lanes "
                "must be pure functions, so return a value instead"
            )
        self._constants |= {id(one): one for one in constants(found.jaxpr)}
        return found.shapes

    def _refuse_changes(
        self, method: str, before: Any, call: Callable[..., Any], *given: Any
    ) -> None:
        names = changed(before, contents_of(self.training))
        names += _cached_tracers(self.training)
        if names:
            root = re.split(r"[.\[]", names[0])[0]
            shown = next((name for name in reversed(names) if name in before), root)
            where = self.at(method)
            line = line_of_change(partial(contents_of, self.training, root), changed, call, *given)
            if line:
                where = f"{self.cls.__name__}.{method}: {line}:"
            raise ConfigError(
                f"{where} self.{shown} changes outside setup, but all lanes share this object; "
                "keep values that change in the state, which init returns and update passes on"
            )

    def numbers(self, method: str, found: Any) -> dict[str, Any]:
        """Return metrics or values by name; each must be one number."""
        noun, example = "value", '{"return": total}'
        if method == "update":
            noun, example = "metric", '(state, {"loss": loss})'
        if not isinstance(found, Mapping):
            raise ConfigError(
                f"{self.at(method)} returns {_kind_text(found)} instead of a dict of {noun}s; "
                f"return {example}"
            )
        for name, value in found.items():
            if not isinstance(name, str):
                raise ConfigError(
                    f"{self.at(method)} a {noun} is named {name!r}; names must be strings"
                )
            problem = _not_a_number(name, value)
            if problem:
                raise ConfigError(f"{self.at(method)} {name} {problem}; a {noun} is one number")
        return dict(found)

    def note(self) -> str:
        """Return a warning if the programs' constants are large, otherwise ""."""
        total = sum(one.nbytes for one in self._constants.values())
        if total <= _LARGE:
            return ""
        large = [one for one in self._constants.values() if one.nbytes > _SHOWN]
        kinds = {(one.shape, one.dtype) for one in large}
        owned = [
            f"self.{name}"
            for name, value in vars(self.training).items()
            if (getattr(value, "shape", None), getattr(value, "dtype", None)) in kinds
        ]
        names = ""
        if owned:
            names = f" ({', '.join(owned)})"
        return (
            f"{self.cls.__name__} compiles {total / 2**20:.0f} MB of data into its programs"
            f"{names}, which takes time and memory; return it from a shared() method and read "
            "h.shared"
        )


def _kind_text(value: Any) -> str:
    if value is None:
        return "None"
    return f"a {type(value).__name__}"


def _not_a_number(name: str, value: Any) -> str:
    """Describe the problem with a metric or value, or return ""."""
    if isinstance(value, Mapping):
        first = next(iter(value), "x")
        return f'is a dict; return its entries separately, such as "{name}_{first}"'
    if isinstance(value, bool | int | float):
        return ""
    if not hasattr(value, "dtype") or not hasattr(value, "shape"):
        return f"is {_kind_text(value)}"
    if is_key(value) or jnp.issubdtype(value.dtype, jnp.complexfloating):
        return f"is of {value.dtype}"
    if value.shape:
        return f"has shape {value.shape}"
    return ""


_OURS = ("_is_set_up", "_shared")


def contents_of(training: Training, only: str = "") -> dict[str, Any]:
    """Map paths in the attributes of a training instance to values, for later comparison."""
    own = {
        name: value
        for name, value in vars(training).items()
        if name not in _OURS and not _is_cached_property(type(training), name)
    }
    if only:
        own = {name: value for name, value in own.items() if name == only}
    return dict(_marks_by_path(own, "", type(training).__module__, 4))


def _is_cached_property(cls: type, name: str) -> bool:
    return isinstance(getattr(cls, name, None), cached_property)


def _cached_tracers(training: Training) -> list[str]:
    """Return the names of cached properties that contain traced arrays."""
    cls, found = type(training), []
    for name, value in vars(training).items():
        if not _is_cached_property(cls, name):
            continue
        if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(value)):
            found.append(name)
    return found


def _marks_by_path(held: Mapping[str, Any], prefix: str, module: str, depth: int) -> Iterator[Any]:
    for name, value in held.items():
        path = f"{prefix}{name}"
        yield path, _change_mark(value)
        if depth:
            yield from _marks_by_path(_held_parts(value, module), path, module, depth - 1)


def _change_mark(value: Any) -> Any:
    """Return a value, and a fingerprint that reveals changes in place, such as a checksum."""
    if isinstance(value, np.ndarray) and value.dtype != object:
        return value, zlib.crc32(value.tobytes())
    if isinstance(value, bool | int | float | str):
        return None, repr(value)
    if isinstance(value, set):
        return value, frozenset(value)
    return value, ""


def _held_parts(value: Any, module: str) -> dict[str, Any]:
    """Map positions to values inside a container, or in an object defined in the user's file."""
    if isinstance(value, dict):
        return {f"[{key!r}]": one for key, one in value.items()}
    if isinstance(value, list | tuple | deque):
        return {f"[{at}]": one for at, one in enumerate(value)}
    if type(value).__module__ == module and hasattr(value, "__dict__"):
        return {f".{name}": one for name, one in vars(value).items()}
    return {}


def changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return the paths of changed, added or removed values."""
    found: list[str] = []
    for path in dict.fromkeys([*before, *after]):
        one, other = before.get(path), after.get(path)
        if one is None or other is None or one[0] is not other[0] or one[1] != other[1]:
            found.append(path)
    return found
