"""The only module that calls Gymnasium, to read its registry and create environments.

This module does not import jax, because study checks and worker processes use it without jax.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Mapping
from typing import Any

from .. import errors
from ..errors import ConfigError, MissingExtraError, UnknownNameError, blamed, extra_module
from ..files.working_folder import same_working_folder
from .table import EnvEntry, EnvKey, KeyType, type_of

PREFIX = "gym:"

_EXTRA, _FULL = "gym", "gym-all"  # the second builds simulators, which takes minutes
_OF_FULL = ("Box2D", "imageio", "mujoco", "pygame", "swig")
_LACKING = re.compile(r"No module named '([\w.]+)'|^(\w+) is not installed")
# (prefix of ids, module that registers them when imported, its package)
_ELSEWHERE = (
    (re.compile(r"MiniGrid-|BabyAI-"), "minigrid", "minigrid"),
    (re.compile(r"MiniWorld-"), "miniworld", "miniworld"),
    (re.compile(r"dm_control/"), "shimmy", "'shimmy[dm-control]'"),
    (
        re.compile(r"Fetch|HandManipulate|HandReach|PointMaze|AntMaze|AdroitHand|FrankaKitchen"),
        "gymnasium_robotics",
        "gymnasium-robotics",
    ),
)
_ATARI = re.compile(r"ALE/|\w+NoFrameskip-v\d")  # prefixes of ids that ale-py registers
_LONGEST_MEANING = 100
_SAID: set[str] = set()
_PICTURES_A_SECOND = 30.0
_NOT_OURS = ("render_mode", "default_camera_config", "max_episode_steps")


def is_gymnasium(id_: str) -> bool:
    return id_.startswith(PREFIX)


def is_atari(id_: str) -> bool:
    """Return whether an id belongs to ale-py, with or without the prefix.

    >>> is_atari("gym:ALE/Pong-v5"), is_atari("Pong-misc")
    (True, False)
    """
    return _ATARI.match(id_.removeprefix(PREFIX)) is not None


def registered() -> tuple[str, ...]:
    try:
        gymnasium = importlib.import_module("gymnasium")
    except ImportError:
        return ()
    return tuple(f"{PREFIX}{name}" for name in gymnasium.registry)


def entry_of(id_: str) -> EnvEntry:
    """Return the entry for an id such as `gym:CartPole-v1` or `gym:module:Env-v0`.

    Real-valued constructor arguments become parameters, and all others become keys. The module in
    an id is never imported here: an id from a file must not run arbitrary code.
    """
    from inspect import getdoc

    spec = spec_of(id_)
    creator = _constructor_of(id_, spec)
    limit = EnvKey("int", spec.max_episode_steps, meaning="env steps until truncation", low=1)
    params, keys = {}, {"max_episode_steps": limit}
    for name, (type_, default) in _constructor_arguments(creator, spec.kwargs).items():
        if type_ == "float":
            params[name] = float(default)
        else:
            keys[name] = EnvKey(type_, default)
    meaning = ""
    if creator.__doc__:  # itself: getdoc takes the base class's otherwise
        meaning = first_sentence(getdoc(creator) or "")
    is_open = _takes_any(creator)
    return EnvEntry(id_, "gymnasium", "any", params, keys, meaning, is_open=is_open)


def module_of(id_: str) -> str:
    return _constructor_of(id_, spec_of(id_)).__module__


def first_sentence(text: str) -> str:
    from textwrap import shorten

    kept = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    first = " ".join(kept.strip().partition("\n\n")[0].split())
    return shorten(first.partition(". ")[0].rstrip("."), _LONGEST_MEANING, placeholder=" ...")


def _constructor_arguments(
    creator: Any, given: Mapping[str, Any]
) -> dict[str, tuple[KeyType, Any]]:
    """Return the constructor's arguments that studies can set: name -> (type, default)."""
    import inspect

    found: dict[str, tuple[KeyType, Any]] = {}
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    for name, parameter in inspect.signature(creator).parameters.items():
        default = given.get(name, parameter.default)
        if default is inspect.Parameter.empty:
            default = None
        if parameter.kind not in kinds and name not in _NOT_OURS and not isinstance(default, dict):
            real = parameter.annotation in (float, "float")
            found[name] = (type_of(default, real), default)
    for name, default in given.items():
        if name not in found and name not in _NOT_OURS and not isinstance(default, dict):
            found[name] = (type_of(default, False), default)
    return found


def _takes_any(creator: Any) -> bool:
    """Return whether a constructor accepts arguments that its signature does not name."""
    import inspect

    parameters = inspect.signature(creator).parameters.values()
    return any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters)


def make(id_: str, values: Mapping[str, Any]) -> Any:
    gymnasium = _import_gymnasium(id_)
    spec = spec_of(id_)
    _constructor_of(id_, spec)
    _hear_mujoco()
    with blamed(id_, values), same_working_folder():
        try:
            return gymnasium.make(spec, disable_env_checker=True, **values)
        except gymnasium.error.DependencyNotInstalled as error:
            lacking = _missing_error(id_, error)
            cause = error
    raise lacking from cause


def render_facts(id_: str, values: Mapping[str, Any]) -> tuple[tuple[str, ...], float]:
    env = make(id_, values)
    metadata = getattr(env, "metadata", None) or {}
    env.close()
    modes = tuple(str(mode) for mode in metadata.get("render_modes", ()) if mode)
    return modes, float(metadata.get("render_fps") or _PICTURES_A_SECOND)


def drawn_by(id_: str, env: Any) -> Any:
    gymnasium = _import_gymnasium(id_)
    try:
        return env.render()
    except gymnasium.error.DependencyNotInstalled as error:
        raise _missing_error(id_, error) from error
    except Exception as error:  # a missing OpenGL, for example
        text = next(iter(str(error).strip().splitlines()), "")
        text = f"{type(error).__name__}: {text}"
        if "mujoco" in type(env.unwrapped).__module__:
            text += (
                "; MuJoCo needs OpenGL: try MUJOCO_GL=egl or MUJOCO_GL=osmesa before the command"
            )
        raise ConfigError(f"{id_} cannot be rendered here: {text}") from error


def draw_unheard() -> None:
    """Let pygame and MuJoCo render without a display or a sound card."""
    for name in ("SDL_AUDIODRIVER", "SDL_VIDEODRIVER"):
        os.environ.setdefault(name, "dummy")
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")  # a greeting on stdout
    if sys.platform == "linux" and "DISPLAY" not in os.environ:
        os.environ.setdefault("MUJOCO_GL", "egl")


def _hear_mujoco() -> None:
    """Show each MuJoCo warning once, instead of every time on stderr and in a file."""
    mujoco = sys.modules.get("mujoco")
    if mujoco is not None and mujoco.get_mju_user_warning() is None:
        mujoco.set_mju_user_warning(_say_once)


def _say_once(text: str) -> None:
    from warnings import warn

    kind = text[:30]  # the rest may be a time or a number
    if kind not in _SAID:
        _SAID.add(kind)
        warn(f"MuJoCo: {text}", stacklevel=2)


def engine_of(id_: str) -> str:
    """Return the Gymnasium group that an id belongs to, such as `box2d`; "" if there is none.

    >>> engine_of("gym:CartPole-v1")
    'classic_control'
    """
    try:
        creator = spec_of(id_).entry_point
    except errors.HpoError:
        return ""
    module = creator
    if not isinstance(module, str):
        module = getattr(creator, "__module__", "")
    words = module.partition(":")[0].split(".")
    if words[:2] != ["gymnasium", "envs"] or len(words) < 3:
        return ""
    return words[2]


def lacking_package(id_: str) -> str:
    """Return a sentence that names an environment's missing package, or "".

    Raises:
        HpoError: no such environment, or it cannot be made for another reason.
    """
    if not is_gymnasium(id_):
        return ""
    try:
        make(id_, {}).close()
    except MissingExtraError as error:
        return str(error).partition(";")[0].removeprefix("env ")
    return ""


def space_kinds(id_: str) -> Any:
    return _import_gymnasium(id_).spaces


class UnsupportedActionsError(ConfigError):
    """No policy can act in an environment, whatever wraps its observations."""


def check_actions(id_: str, space: Any) -> None:
    """Raise if no policy of ours can act in a Gymnasium action space."""
    spaces = space_kinds(id_)
    if isinstance(space, spaces.Discrete):
        return
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary) and len(space.shape) == 1:
        return
    if isinstance(space, spaces.Box) and space.dtype.kind == "f":
        return
    shown = " ".join(str(space).split())
    raise UnsupportedActionsError(
        f"{id_} has the action space {shown}; allowed: Discrete, one-dimensional MultiDiscrete "
        "and MultiBinary, and Box of real numbers"
    )


def _import_gymnasium(id_: str) -> Any:
    return extra_module("gymnasium", _EXTRA, f"env {id_}")


def spec_of(id_: str, said: str = "") -> Any:
    """Return Gymnasium's specification for an id; error messages quote `said`, if given."""
    said = said or id_
    gymnasium = _import_gymnasium(said)
    if is_atari(id_):
        _register_atari(said)
    module, _, name = id_.removeprefix(PREFIX).rpartition(":")
    if module and module not in sys.modules:
        raise errors.UnimportedModuleError(said, module)
    if name not in gymnasium.registry:
        _refuse_elsewhere(said, name)
        lead = said.removesuffix(name)
        raise UnknownNameError("environment", said, (lead + known for known in gymnasium.registry))
    return gymnasium.registry[name]


def _register_atari(id_: str) -> None:
    """Import ale-py, which registers its games; an id never imports any other module."""
    ale = extra_module("ale_py", "atari", f"env {id_}")
    ale.ALEInterface.setLoggerMode(ale.LoggerMode.Error)  # else it prints a banner


def _refuse_elsewhere(id_: str, name: str) -> None:
    """Raise an error that names the package registering an id, unless it is imported already."""
    for pattern, module, package in _ELSEWHERE:
        if pattern.match(name) and module not in sys.modules:
            raise errors.UnimportedModuleError(id_, module, package)


def refuse_elsewhere(id_: str) -> None:
    """Apply `_refuse_elsewhere` to an id without `gym:`, the form that packages document."""
    _refuse_elsewhere(f"{PREFIX}{id_}", id_)


def _constructor_of(id_: str, spec: Any) -> Any:
    if spec.entry_point is None:
        raise ConfigError(f"{id_} is registered without an entry point, so it cannot be created")
    if callable(spec.entry_point):
        return spec.entry_point
    return imported(id_, spec.entry_point)


def imported(id_: str, entry_point: str) -> Any:
    """Return the target of a registered id's entry point, such as `package.module:Class`."""
    module, _, name = entry_point.partition(":")
    gymnasium = _import_gymnasium(id_)
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
        raise _missing_error(id_, error) from error


def _missing_error(id_: str, error: Exception) -> Exception:
    text = str(error).strip().splitlines()[0]
    package = ""
    if lacking := _LACKING.search(text):
        package = next(filter(None, lacking.groups())).partition(".")[0]
    if package in _OF_FULL:
        return MissingExtraError(package, _FULL, f"env {id_}")
    return ConfigError(f"{id_} cannot be imported: {text}")
