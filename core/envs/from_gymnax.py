"""gymnax environments, and classes with gymnax's API.

gymnax creates arrays on import, which starts jax's backend. It is therefore imported only when an
environment is made.
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

from ... import errors
from ...environments.registry import gymnax_class
from ...environments.table import INT32, EnvEntry
from ...environments.via_gymnasium import draw_unheard
from ...errors import ConfigError, MissingExtraError, UnknownNameError
from .contract import Box, Step
from .foreign import EpisodicEnvironment, action_space_of, canonical, made_params, relaxed
from .traced_once import calling


def _make_visualizer(env: Any, params: Any, states: Sequence[Any]) -> Any:
    import matplotlib

    draw_unheard()
    matplotlib.use("agg")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # from importing seaborn and pygame
        from gymnax.visualize.visualizer import Visualizer

    return Visualizer(env, params, list(states))


class _Later(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # asked for by the import system and `inspect`
            raise AttributeError(name)
        return getattr(importlib.import_module(self.__name__), name)


def import_gymnax() -> Any:
    """Import gymnax without seaborn, which is slow and only needed for drawing."""
    if "seaborn" in sys.modules or "gymnax" in sys.modules:
        return importlib.import_module("gymnax")
    sys.modules["seaborn"] = later = _Later("seaborn")
    try:
        return importlib.import_module("gymnax")
    finally:
        if sys.modules.get("seaborn") is later:
            del sys.modules["seaborn"]


class GymnaxLike(EpisodicEnvironment):
    """An environment with gymnax's API; its real-valued parameters are traced."""

    _env: Any
    _params: Any
    _floats: tuple[str, ...]

    def _set_params(self, params: Any, floats: Mapping[str, float]) -> None:
        self._params, self._floats = params, tuple(floats)
        with relaxed():
            self.action_space = action_space_of(self._env.action_space(params), self.id)
        self.default_params = made_params(floats)
        probe = jax.eval_shape(self.reset, jax.random.key(0), self.default_params)
        self.observation_struct = probe[1]

    def _all_params(self, params: Any) -> Any:
        values = {name: getattr(params, name) for name in self._floats}
        return dataclasses.replace(self._params, **values)

    def _split_done(self, state: Any, done: Any, params: Any) -> tuple[Any, Any]:
        return done, self._env.is_truncated(state, params)

    def reset(self, key: PRNGKeyArray, params: Any) -> tuple[Any, Any]:
        with relaxed():
            observation, state = self._env.reset_env(key, self._all_params(params))
            return jax.tree.map(canonical, (state, observation))

    def step(self, key: PRNGKeyArray, state: Any, action: Array, params: Any) -> Step:
        with relaxed():
            full = self._all_params(params)
            if isinstance(self.action_space, Box):
                box = self._env.action_space(full)  # with these parameters, such as max_torque
                action = jnp.clip(action, box.low, box.high)
            observation, after, reward, done, _ = self._env.step_env(key, state, action, full)
            terminated, truncated = self._split_done(after, done, full)
            after, observation = jax.tree.map(canonical, (after, observation))
            # Some gymnax rewards have shape [1] or are integers; convert them to one float32.
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
    def __init__(self, entry: EnvEntry, keys: Mapping[str, Any]):
        gymnax = import_gymnax()
        self.id = entry.id
        with relaxed():
            self._env, params = gymnax.make(entry.id)
            params = params.replace(**keys)
        self._set_params(params, entry.params)

    @property
    def pictures_a_second(self) -> float:
        control = ("CartPole", "Pendulum", "Acrobot", "MountainCar")
        return 20.0 if self.id.startswith(control) else 10.0

    def pictures(self, states: Sequence[Any], params: Any) -> Iterator[np.ndarray]:
        purpose = f"rendering {self.id}"
        try:
            visualizer = _make_visualizer(self._env, self._all_params(params), states)
            with relaxed():
                visualizer.init()
            if not hasattr(visualizer, "im"):
                raise ConfigError(f"gymnax cannot render {self.id}")
            for at in range(len(states)):
                with relaxed():
                    visualizer.update(at)
                canvas = visualizer.fig.canvas
                canvas.draw()
                yield np.ascontiguousarray(np.asarray(canvas.buffer_rgba())[..., :3])
        except ModuleNotFoundError as error:
            raise MissingExtraError(error.name or "matplotlib", "gym-all", purpose) from error
        except Exception as error:  # Gymnasium's error class may be missing
            if type(error).__name__ != "DependencyNotInstalled":
                raise
            raise MissingExtraError("pygame", "gym-all", purpose) from error
        finally:
            pyplot = sys.modules.get("matplotlib.pyplot")
            if pyplot is not None:  # pyplot would keep the figure open
                pyplot.close("all")


_API = ("reset_env", "step_env", "action_space", "default_params")
_LIMITS = ("max_steps_in_episode", "max_timesteps")
_BASE, _ENDS = "gymnax.environments.environment", ("truncated", "terminated", "terminal")


class GymnaxClass(GymnaxLike):
    """An environment `gymnax:package.module:Class`, from a package or imported user code."""

    def __init__(self, id_: str, keys: Mapping[str, Any]):
        self.id = id_
        self.user_class = cls = _class_of(id_)
        several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        signature = inspect.signature(cls).parameters.values()
        arguments = tuple(one.name for one in signature if one.kind not in several)
        given = {name: value for name, value in keys.items() if name in arguments}
        with calling(f"environment {id_}"), relaxed():
            self._env = cls(**given)
            params = self._env.default_params
        if not dataclasses.is_dataclass(params) or isinstance(params, type):
            raise ConfigError(f"{id_}: default_params is not a dataclass")
        fields = {field.name: getattr(params, field.name) for field in dataclasses.fields(params)}
        floats = {name: float(value) for name, value in fields.items() if _is_real(value)}
        rest = {name: value for name, value in keys.items() if name not in given}
        for name in rest:
            if name not in fields:
                raise UnknownNameError(f"key of {id_}", name, (*arguments, *fields))
        with calling(f"environment {id_}"):
            self._set_params(dataclasses.replace(params, **rest), floats)

    @property
    def episode_limit(self) -> int | None:
        """Return the episode limit in env steps; None if no parameter sets it."""
        given = [getattr(self._params, name) for name in _LIMITS if hasattr(self._params, name)]
        if not given or not np.isfinite(given[0]):
            return None
        return int(given[0])

    def _split_done(self, state: Any, done: Any, params: Any) -> tuple[Any, Any]:
        if not _has_one_flag(self.user_class):
            return super()._split_done(state, done, params)
        done = jnp.asarray(done, bool).reshape(())
        cut = jnp.zeros_like(done)
        if hasattr(self._env, "is_truncated") and hasattr(state, "time"):
            cut = jnp.asarray(self._env.is_truncated(state, params), bool).reshape(())
        limits = {name: INT32 for name in _LIMITS if hasattr(params, name)}
        if not limits or not hasattr(self._env, "is_terminal"):
            return done, cut
        natural = self._env.is_terminal(state, dataclasses.replace(params, **limits))
        natural = jnp.asarray(natural, bool).reshape(())
        return done & natural, cut | (done & ~natural)


def _has_one_flag(cls: type) -> bool:
    """Return whether a class may report the time limit in the flag that ends episodes.

    A class written for gymnax 0.0.9 has its own `is_terminal`. It inherits `is_truncated` and
    `is_terminated`, if it has them at all.
    """
    truncates, terminates, terminal = (_defining_module(cls, f"is_{end}") for end in _ENDS)
    if not truncates:
        return True
    return truncates == terminates == _BASE and terminal != _BASE


def _defining_module(cls: type, method: str) -> str:
    return next((one.__module__ for one in cls.__mro__ if method in vars(one)), "")


def _is_environment(value: Any) -> bool:
    """Return whether a member of a module is a class with gymnax's API."""
    return isinstance(value, type) and all(hasattr(value, part) for part in _API)


def _class_of(id_: str) -> Any:
    module, name = gymnax_class(id_) or ("", "")
    if module not in sys.modules and not _is_installed(module):
        raise errors.UnimportedModuleError(id_, module)
    try:
        with calling(f"environment {id_}"):
            imported = importlib.import_module(module)
    except ConfigError as error:
        if isinstance(error.__cause__, ModuleNotFoundError):
            raise ConfigError(f"{id_}: {error.__cause__}") from error
        raise
    found = getattr(imported, name, None)
    if not isinstance(found, type):
        known = sorted(name for name, value in vars(imported).items() if _is_environment(value))
        hint = " it has no class with gymnax's API"
        if known:
            hint = f"{errors.suggestion(name, known)} {errors.listed(name, known)}"
        raise ConfigError(f"{id_}: the module {module} has no class {name!r};{hint}")
    missing = [part for part in _API if not hasattr(found, part)]
    if missing:
        raise ConfigError(
            f"{id_}: {name} has no {', '.join(missing)}; a class with gymnax's API needs "
            f"{', '.join(_API)}"
        )
    return found


@cache
def _is_installed(module: str) -> bool:
    words = module.split(".")
    return "__main__" not in words and words[0] in packages_distributions()


def _is_real(value: Any) -> bool:
    is_array = hasattr(value, "dtype") and np.ndim(value) == 0
    return isinstance(value, float) or (is_array and jnp.issubdtype(value.dtype, np.floating))
