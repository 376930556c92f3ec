"""Environments by id: `make` creates one for an `EnvPlan`, `register` adds custom ones."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp

from ...environments.hosted import is_hosted
from ...environments.registry import entry, files_of, find, gymnax_class, rooted
from ...environments.table import ENVIRONMENTS, EnvEntry, EnvKey
from ...errors import ConfigError, UnknownNameError
from ...files.plain_data import freeze
from ..plan import EnvPlan
from .contract import Box, Environment, HostedEnvironment, StackedEnvironment
from .navigators import Navigators
from .traced_once import calling, trace_once

EnvironmentFactory = Callable[..., Environment]
_REGISTERED: dict[str, EnvironmentFactory] = {}
_ADAPTERS = {  # of libraries that may be absent: module and class
    "gymnax": ("from_gymnax", "GymnaxEnvironment"),
    "brax": ("physics", "BraxEnvironment"),
    "playground": ("physics", "PlaygroundEnvironment"),
    "jaxmarl": ("from_jaxmarl", "JaxMarlEnvironment"),
}


def register(id_: str, factory: EnvironmentFactory) -> None:
    """Add an environment: `factory(**keys)` returns an `Environment`.

    If the same class is defined again in the same module, as in a notebook, the new version
    replaces the old one, and programs compiled with the old one are discarded.

    Raises:
        ConfigError: the id is taken, or an environment was given in place of its class.
    """
    if not callable(factory):
        made = type(factory).__name__
        raise ConfigError(
            f"environment {id_!r} is registered with an instance of {made}; register the "
            f"class, or a function that returns an instance: register({id_!r}, {made})"
        )
    before = _REGISTERED.get(id_)
    changed = before is not None and before is not factory
    if changed and _defining_name(before) == _defining_name(factory):
        make.cache_clear()
        jax.clear_caches()
    elif id_ in known():
        raise ConfigError(f"environment {id_!r} is already registered; choose a different id")
    _REGISTERED[id_] = factory


def _defining_name(factory: object) -> tuple[object, object]:
    return getattr(factory, "__module__", None), getattr(factory, "__qualname__", factory)


def known() -> tuple[str, ...]:
    return tuple(sorted({*ENVIRONMENTS, *_REGISTERED}))


@lru_cache(maxsize=256)
def make(plan: EnvPlan) -> Environment:
    """Make the environment of a plan; equal plans return the same object.

    Raises:
        UnknownNameError: no environment has this id; the nearest ids are suggested. ConfigError: a
            key or value is wrong, or the observations cannot be stacked.
    """
    plain = _make_plain(plan)
    if plan.history == 1 or isinstance(plain, HostedEnvironment):  # it stacks by itself
        return plain
    return StackedEnvironment(plain, plan.history)


def _make_plain(plan: EnvPlan) -> Environment:
    keys = dict(plan.keys)
    if plan.id in _REGISTERED:
        factory = _REGISTERED[plan.id]
        _check_keys(plan.id, factory, keys)
        with calling(f"environment {plan.id}"):
            return factory(**keys)
    if is_hosted(plan.id):
        from .from_gymnasium import GymnasiumEnvironment

        return GymnasiumEnvironment(plan.id, keys, plan.history)
    if gymnax_class(plan.id) is not None:
        from .from_gymnax import GymnaxClass

        return GymnaxClass(plan.id, keys)
    if plan.id not in ENVIRONMENTS:
        raise UnknownNameError("environment", plan.id, known())
    known_as = entry(plan.id)
    if known_as.source == "optical":
        from .optical.optical_environment import make_from_keys

        return make_from_keys(plan.unrolled, id=plan.id, **rooted(plan.id, keys, plan.folder))
    if known_as.source == "navigators":
        return Navigators(**keys)
    module, adapter = _ADAPTERS[known_as.source]
    return getattr(import_module(f".{module}", __package__), adapter)(known_as, keys)


def _check_keys(id_: str, factory: EnvironmentFactory, keys: Mapping[str, Any]) -> None:
    taken = inspect.signature(factory).parameters.values()
    if any(one.kind is one.VAR_KEYWORD for one in taken):
        return
    named = [
        one.name for one in taken if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
    ]
    params = getattr(type(getattr(factory, "default_params", None)), "__dataclass_fields__", ())
    for name in keys:
        if name not in named:
            kind = f"parameter or key of environment {id_}"
            raise UnknownNameError(kind, name, [*params, *named])


def custom_entry(id_: str) -> EnvEntry | None:
    """Describe a registered environment or a class with gymnax's API; None for other ids.

    Raises:
        ConfigError: the environment cannot be made without keys, or cannot be compiled.
    """
    if id_ not in _REGISTERED and gymnax_class(id_) is None:
        return None
    env = make(EnvPlan(id_))
    trace_once(env)
    params = {
        field.name: float(getattr(env.default_params, field.name))
        for field in dataclasses.fields(env.default_params)
    }
    keys = {
        name: EnvKey(type="any", default=value) for name, value in _default_keys(id_, env).items()
    }
    actions = "discrete"
    if isinstance(env.action_space, Box):
        actions = "continuous"
    return EnvEntry(id_, "custom", actions, params, keys)


def _default_keys(id_: str, env: Environment) -> dict[str, Any]:
    """Return the constructor's defaults by name, if they are numbers, booleans or strings."""
    made = getattr(env, "user_class", None) or _REGISTERED[id_]
    given = {one.name: one.default for one in inspect.signature(made).parameters.values()}
    return {name: value for name, value in given.items() if type(value) in (int, float, bool, str)}


def float_params(id_: str) -> frozenset[str]:
    known = find(id_)
    if known is not None:
        return frozenset(known.params)
    return frozenset(type(make(EnvPlan(id_)).default_params).__dataclass_fields__)


def plan_of_env(
    id_: str, given: Mapping[str, Any], folder: str
) -> tuple[EnvPlan, dict[str, float]]:
    """Split the given keys into the environment's static part and its parameters."""
    floats = float_params(id_)
    keys = {name: freeze(value) for name, value in given.items() if name not in floats}
    if not files_of(id_, keys):
        folder = ""
    plan = EnvPlan(id_, tuple(sorted(keys.items())), folder)
    return plan, {name: value for name, value in given.items() if name in floats}


def episode_limit(id_: str, given: Mapping[str, Any], folder: str) -> int | None:
    """Return the episode limit in env steps of a class with gymnax's API; None if unknown."""
    if gymnax_class(id_) is None:
        return None
    return getattr(make(plan_of_env(id_, given, folder)[0]), "episode_limit", None)


def params_of(env: Environment, values: Mapping[str, Any]) -> Any:
    names = [field.name for field in dataclasses.fields(env.default_params)]
    for name in values:
        if name not in names:
            raise UnknownNameError(f"parameter of {env.id}", name, names)
    with jax.ensure_compile_time_eval():  # concrete numbers, even while a program is traced
        given = {name: jnp.asarray(value, jnp.float32) for name, value in values.items()}
    return dataclasses.replace(env.default_params, **given)
