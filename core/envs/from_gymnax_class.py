"""Any class with gymnax's API behind the core's contract: `gymnax:package.module:Class`.

Nothing is rewritten: the fields of its `default_params` that are real numbers are parameters, all
others, and the arguments of its constructor, are keys. Classes of before gymnax 1.0, which tell a
time limit from an ending nowhere, are asked once more whether they ended without their limit.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import packages_distributions
from types import ModuleType
from typing import Any

import jax.numpy as jnp
import numpy as np

from ...env_entry import INT32
from ...environments import gymnax_class
from ...errors import (
    ConfigError,
    UnimportedModuleError,
    UnknownNameError,
    listed,
    suggestion,
)
from .foreign import relaxed
from .from_gymnax import GymnaxLike
from .traced_once import calling

__all__ = ["GymnaxClass"]

_API = ("reset_env", "step_env", "action_space", "default_params")
_LIMITS = ("max_steps_in_episode", "max_timesteps")


class GymnaxClass(GymnaxLike):
    """One environment of a class that some package, or imported user code, defines."""

    def __init__(self, id_: str, keys: Mapping[str, Any]):
        """Make the environment.

        Args:
            id_: `gymnax:package.module:Class`.
            keys: arguments of its constructor, and fields of its parameters that are no real
                numbers.

        Raises:
            UnimportedModuleError: its module is neither imported nor of an installed package.
            ConfigError: there is no such class, it lacks gymnax's API, or raises.
        """
        self.id = id_
        cls = _class_of(id_)
        arguments = _arguments(cls)
        own = {name: value for name, value in keys.items() if name in arguments}
        with calling(f"environment {id_}"), relaxed():
            self._env = cls(**own)
            params = self._env.default_params
        if not dataclasses.is_dataclass(params) or isinstance(params, type):
            raise ConfigError(f"{id_}: its default_params are no dataclass of fields")
        fields = {field.name: getattr(params, field.name) for field in dataclasses.fields(params)}
        floats = {name: float(value) for name, value in fields.items() if _is_real(value)}
        rest = {name: value for name, value in keys.items() if name not in own}
        for name in rest:
            if name not in fields:
                raise UnknownNameError(f"key of {id_}", name, (*arguments, *fields))
        with calling(f"environment {id_}"):
            self._settle(dataclasses.replace(params, **rest), floats)

    def _ended(self, state: Any, done: Any, params: Any) -> tuple[Any, Any]:
        if hasattr(self._env, "is_truncated"):
            return super()._ended(state, done, params)
        limits = {name: INT32 for name in _LIMITS if hasattr(params, name)}
        if not limits or not hasattr(self._env, "is_terminal"):
            return done, jnp.zeros_like(jnp.asarray(done, bool))
        natural = self._env.is_terminal(state, dataclasses.replace(params, **limits))
        natural = jnp.asarray(natural, bool).reshape(())
        done = jnp.asarray(done, bool).reshape(())
        return done & natural, done & ~natural


def _class_of(id_: str) -> Any:
    """Return the class that an id names; nothing of it is called.

    Raises:
        UnimportedModuleError: its module is neither imported nor of an installed package.
        ConfigError: the module cannot be imported, or the class is not there or none of gymnax's.
    """
    module, name = gymnax_class(id_) or ("", "")
    if module not in sys.modules and not _is_installed(module):
        raise UnimportedModuleError(id_, module)
    try:
        with calling(f"environment {id_}"):
            theirs = importlib.import_module(module)
    except ConfigError as error:
        if isinstance(error.__cause__, ModuleNotFoundError):
            raise ConfigError(f"{id_}: {error.__cause__}") from error
        raise
    found = getattr(theirs, name, None)
    if not isinstance(found, type):
        known = _classes(theirs)
        told = f"{suggestion(name, known)} {listed(name, known)}"
        told = told if known else " nor any other with gymnax's API"
        raise ConfigError(f"{id_}: the module {module} has no class {name!r};{told}")
    missing = [part for part in _API if not hasattr(found, part)]
    if missing:
        raise ConfigError(
            f"{id_}: {name} has no {', '.join(missing)}; a class with gymnax's API has "
            f"{', '.join(_API)}"
        )
    return found


def _classes(module: ModuleType) -> list[str]:
    """Return the names of a module's classes that have gymnax's API, sorted."""
    return sorted(
        name
        for name, value in vars(module).items()
        if isinstance(value, type) and all(hasattr(value, part) for part in _API)
    )


@cache
def _is_installed(module: str) -> bool:
    """Return whether a module is of an installed package, and none that runs a program."""
    words = module.split(".")
    return "__main__" not in words and words[0] in packages_distributions()


def _arguments(cls: type) -> tuple[str, ...]:
    """Return the names of the arguments of a constructor."""
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    given = inspect.signature(cls).parameters.values()
    return tuple(parameter.name for parameter in given if parameter.kind not in several)


def _is_real(value: Any) -> bool:
    """Return whether a field is one real number."""
    if isinstance(value, float):
        return True
    is_array = hasattr(value, "dtype") and np.ndim(value) == 0
    return is_array and np.issubdtype(np.dtype(value.dtype), np.floating)
