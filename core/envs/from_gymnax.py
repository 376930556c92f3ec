"""gymnax environments behind the core's contract.

gymnax code fails under strict promotion, so that it runs inside `relaxed`; what leaves this module
is float32, int32 or bool. gymnax makes arrays when it is imported, which starts jax's backend, so
that it is imported only when an environment is made.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import packages_distributions
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from ...environments.registry import gymnax_class
from ...environments.table import INT32, EnvEntry
from ...environments.via_gymnasium import draw_unheard
from ...errors import (
    ConfigError,
    MissingExtraError,
    UnimportedModuleError,
    UnknownNameError,
    listed,
    suggestion,
)
from .contract import Box, Step
from .foreign import ForeignEnvironment, action_space_of, canonical, made_params, relaxed
from .traced_once import calling


def drawn(env: Any, params: Any, states: Sequence[Any], id_: str) -> Iterator[np.ndarray]:
    """Yield a picture, uint8 [height, width, 3], of each state.

    Args:
        env: of gymnax.
        params: all of its parameters.
        states: its states, host arrays.
        id_: what it is called in messages.

    Raises:
        ConfigError: gymnax has no picture of this environment.
        MissingExtraError: what it draws with is not installed.
    """
    purpose = f"a picture of {id_}"
    try:
        visualizer = _visualizer(env, params, states)
        with relaxed():
            visualizer.init()
        if not hasattr(visualizer, "im"):
            raise ConfigError(f"gymnax draws no pictures of {id_}")
        for at in range(len(states)):
            with relaxed():
                visualizer.update(at)
            yield _pixels(visualizer.fig)
    except ModuleNotFoundError as error:
        raise MissingExtraError(error.name or "matplotlib", "gym", purpose) from error
    except Exception as error:  # Gymnasium's own error, whose class needs Gymnasium
        if type(error).__name__ != "DependencyNotInstalled":
            raise
        raise MissingExtraError("pygame", "gym", purpose) from error
    finally:
        _close()


def _visualizer(env: Any, params: Any, states: Sequence[Any]) -> Any:
    import matplotlib

    draw_unheard()
    matplotlib.use("agg")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of seaborn's and pygame's imports
        from gymnax.visualize.visualizer import Visualizer

    return Visualizer(env, params, list(states))


def _pixels(figure: Any) -> np.ndarray:
    figure.canvas.draw()
    return np.ascontiguousarray(np.asarray(figure.canvas.buffer_rgba())[..., :3])


def _close() -> None:
    """Close the visualizer's figure, which pyplot would keep."""
    import sys

    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None:
        pyplot.close("all")


class _Later(ModuleType):
    """A module that is imported when something of it is asked for."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what the import system and `inspect` look at
            raise AttributeError(name)
        return getattr(importlib.import_module(self.__name__), name)


def import_gymnax() -> Any:
    """Import gymnax; whoever imports seaborn afterwards gets seaborn.

    >>> import_gymnax().__name__
    'gymnax'
    """
    if "seaborn" in sys.modules or "gymnax" in sys.modules:
        return importlib.import_module("gymnax")
    sys.modules["seaborn"] = later = _Later("seaborn")
    try:
        return importlib.import_module("gymnax")
    finally:
        if sys.modules.get("seaborn") is later:
            del sys.modules["seaborn"]


_CONTROL = ("CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCar-v0",
            "MountainCarContinuous-v0")  # fmt: skip


class GymnaxLike(ForeignEnvironment):
    """What has gymnax's API, with fixed keys; float parameters stay traced.

    A subclass sets what `__init__` of `GymnaxEnvironment` sets.
    """

    _env: Any
    _params: Any
    _floats: tuple[str, ...]

    def _settle(self, params: Any, floats: Mapping[str, float]) -> None:
        """Take what is fixed, what is traced, and look at what it shows.

        Args:
            params: gymnax's, whose other fields stay as they are.
            floats: fields that may differ per lane, with their defaults.
        """
        self._params, self._floats = params, tuple(floats)
        with relaxed():
            self.action_space = action_space_of(self._env.action_space(params), self.id)
        self.default_params = made_params(floats)
        probe = jax.eval_shape(self.reset, jax.random.key(0), self.default_params)
        self.observation_struct = probe[1]

    def _full(self, params: Any) -> Any:
        values = {name: getattr(params, name) for name in self._floats}
        return dataclasses.replace(self._params, **values)

    def _ended(self, state: Any, done: Any, params: Any) -> tuple[Any, Any]:
        """Return whether an episode terminated, and whether it was truncated.

        Args:
            state: after the step.
            done: as the step said.
            params: gymnax's.
        """
        return done, self._env.is_truncated(state, params)

    def reset(self, key: PRNGKeyArray, params: Any) -> tuple[Any, Any]:
        """Return a fresh (state, observation)."""
        with relaxed():
            observation, state = self._env.reset_env(key, self._full(params))
            return jax.tree.map(canonical, (state, observation))

    def step(self, key: PRNGKeyArray, state: Any, action: Array, params: Any) -> Step:
        """Advance one step; real-valued actions are clipped to the action box first."""
        with relaxed():
            full = self._full(params)
            if isinstance(self.action_space, Box):
                box = self._env.action_space(full)  # of these parameters: max_torque may vary
                action = jnp.clip(action, box.low, box.high)
            observation, after, reward, done, _ = self._env.step_env(key, state, action, full)
            terminated, truncated = self._ended(after, done, full)
            after, observation = jax.tree.map(canonical, (after, observation))
            # Some gymnax rewards are of shape [1] or integers; a reward is one float32.
            reward = jnp.asarray(reward).astype(jnp.float32).reshape(())
        return Step(
            state=after,
            observation=observation,
            reward=reward,
            terminated=jnp.asarray(terminated, bool).reshape(()),
            truncated=jnp.asarray(truncated, bool).reshape(()),
            info={},
        )


class GymnaxEnvironment(GymnaxLike):
    """One environment that gymnax has by name."""

    def __init__(self, entry: EnvEntry, keys: Mapping[str, Any]):
        """Make the environment of an entry.

        Args:
            entry: from `environments.ENVIRONMENTS`, with source `gymnax`.
            keys: fixed parameters that differ from gymnax's.
        """
        gymnax = import_gymnax()
        self.id = entry.id
        with relaxed():
            self._env, params = gymnax.make(entry.id)
            params = params.replace(**keys)
        self._keys = tuple(sorted(keys.items()))
        self._settle(params, entry.params)

    @property
    def pictures_a_second(self) -> float:
        """Twenty of the classic control problems, ten of all others, as gymnax shows them."""
        return 20.0 if self.id in _CONTROL else 10.0

    def pictures(self, states: Sequence[Any], params: Any) -> Iterator[np.ndarray]:
        """Return a picture of each state, by gymnax's own visualizer.

        Raises:
            ConfigError: gymnax has no picture of this environment.
            MissingExtraError: what it draws with is not installed.
        """
        return drawn(self._env, self._full(params), states, self.id)


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
