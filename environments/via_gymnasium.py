"""Gymnasium's environments: what its registry knows of them, and environments made from it.

The one door to that library. No jax here: studies are checked with it, and worker processes that
step environments import nothing heavier.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..errors import (
    ConfigError,
    HpoError,
    MissingExtraError,
    UnimportedModuleError,
    UnknownNameError,
    is_interrupt,
    named,
)

PREFIX = "gym:"
"""How the ids of Gymnasium's environments begin in a study."""

_EXTRA = "gym"
_OF_THE_EXTRA = ("Box2D", "imageio", "mujoco", "pygame", "swig")
_LACKING = re.compile(r"No module named '([\w.]+)'|^(\w+) is not installed")
_LONGEST_MEANING = 100
_SAID: set[str] = set()
_PICTURES_A_SECOND = 30.0
_NOT_OURS = ("render_mode", "default_camera_config", "max_episode_steps")
KeyType = Literal["int", "bool", "float", "str", "any"]


def is_gymnasium(id_: str) -> bool:
    """Return whether an id names an environment of Gymnasium.

    >>> is_gymnasium("gym:CartPole-v1"), is_gymnasium("CartPole-v1")
    (True, False)
    """
    return id_.startswith(PREFIX)


def registered() -> tuple[str, ...]:
    """Return the ids that Gymnasium's registry has, as a study names them; none without it."""
    try:
        gymnasium = importlib.import_module("gymnasium")
    except ImportError:
        return ()
    return tuple(f"{PREFIX}{name}" for name in gymnasium.registry)


@dataclass(frozen=True)
class Facts:
    """What is known of an environment without making it.

    Attributes:
        params: arguments of its constructor that are real numbers -> default.
        keys: its other arguments, and `max_episode_steps` -> (type, default).
        meaning: the first line of its documentation.
        module: that defines it.
    """

    params: Mapping[str, float]
    keys: Mapping[str, tuple[KeyType, Any]]
    meaning: str
    module: str


def facts_of(id_: str) -> Facts:
    """Return what Gymnasium knows of an id; the module that its registry names is imported.

    Args:
        id_: such as `gym:CartPole-v1`, or `gym:module:Env-v0` for one that a module registers.
            The module is never imported here: an id, which may come with a file from anywhere,
            must not run just any code.

    Raises:
        MissingExtraError: Gymnasium, or what this environment needs, is not installed.
        UnimportedModuleError: the id names a module that nobody has imported.
        UnknownNameError: its registry has no such id; says what it has.
        ConfigError: the module that defines it cannot be imported.
    """
    from inspect import getdoc

    spec = _spec(id_)
    creator = _creator(id_, spec)
    params: dict[str, float] = {}
    keys: dict[str, tuple[KeyType, Any]] = {"max_episode_steps": ("int", spec.max_episode_steps)}
    for name, given in _arguments(creator, spec.kwargs).items():
        type_, default = given
        if type_ == "float":
            params[name] = float(default)
        else:
            keys[name] = (type_, default)
    return Facts(params, keys, _first_sentence(getdoc(creator) or ""), creator.__module__)


def _first_sentence(text: str) -> str:
    """Return the first sentence of a documentation without its headings, on one line."""
    from textwrap import shorten

    kept = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    first = " ".join(kept.strip().partition("\n\n")[0].split())
    return shorten(first.partition(". ")[0].rstrip("."), _LONGEST_MEANING, placeholder=" ...")


def _arguments(creator: Any, given: Mapping[str, Any]) -> dict[str, tuple[KeyType, Any]]:
    """Return the constructor's arguments that a study may set: name -> (type, default)."""
    import inspect

    found: dict[str, tuple[KeyType, Any]] = {}
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    for name, parameter in inspect.signature(creator).parameters.items():
        default = None if parameter.default is inspect.Parameter.empty else parameter.default
        default = given.get(name, default)
        if parameter.kind not in kinds and name not in _NOT_OURS and not isinstance(default, dict):
            real = parameter.annotation in (float, "float")
            found[name] = (_type_of(default, real), default)
    for name, default in given.items():
        if name not in found and name not in _NOT_OURS and not isinstance(default, dict):
            found[name] = (_type_of(default, False), default)
    return found


def _type_of(default: Any, real: bool) -> KeyType:
    if isinstance(default, bool):
        return "bool"
    if isinstance(default, float) or (real and isinstance(default, int)):
        return "float"
    if isinstance(default, int):
        return "int"
    return "str" if isinstance(default, str) else "any"


def make(id_: str, values: Mapping[str, Any]) -> Any:
    """Make one `gymnasium.Env`.

    Args:
        id_: as for `facts_of`.
        values: arguments of the constructor, and `max_episode_steps`.

    Raises:
        MissingExtraError, UnknownNameError, ConfigError: as `facts_of`; also where the
            environment refuses the values.
    """
    gymnasium = _gymnasium(id_)
    spec = _spec(id_)
    _creator(id_, spec)
    _hear_mujoco()
    try:
        return gymnasium.make(spec, disable_env_checker=True, **values)
    except gymnasium.error.DependencyNotInstalled as error:
        raise _missing(id_, error) from error
    except BaseException as error:  # whatever a constructor may raise is the given values' fault
        if is_interrupt(error):
            raise
        shown = ", ".join(f"{name}={value!r}" for name, value in values.items()) or "its defaults"
        raise ConfigError(f"{id_} cannot be made with {shown}: {named(error)}") from error


def render_facts(id_: str, values: Mapping[str, Any]) -> tuple[tuple[str, ...], float]:
    """Return in which ways an environment draws itself, and how many pictures a second it means.

    Args:
        id_: as for `facts_of`.
        values: as for `make`, which this calls.
    """
    env = make(id_, values)
    metadata = getattr(env, "metadata", None) or {}
    env.close()
    modes = tuple(str(mode) for mode in metadata.get("render_modes", ()) if mode)
    return modes, float(metadata.get("render_fps") or _PICTURES_A_SECOND)


def drawn_by(id_: str, env: Any) -> Any:
    """Return what a made environment draws of itself now.

    Raises:
        MissingExtraError: what it draws with is not installed.
        ConfigError: it cannot draw here.
    """
    gymnasium = _gymnasium(id_)
    try:
        return env.render()
    except gymnasium.error.DependencyNotInstalled as error:
        raise _missing(id_, error) from error
    except Exception as error:  # an OpenGL that is not there, and whatever else may be wrong
        text = str(error).strip().splitlines()[0] if str(error).strip() else ""
        hint = ""
        if "mujoco" in type(env.unwrapped).__module__:
            hint = (
                "; MuJoCo needs OpenGL: try MUJOCO_GL=egl or MUJOCO_GL=osmesa before the command"
            )
        raise ConfigError(
            f"{id_} cannot draw itself here: {type(error).__name__}: {text}{hint}"
        ) from error


def draw_unheard() -> None:
    """Let what environments draw with look for neither a screen nor a sound card.

    Both pygame and MuJoCo read these variables when they are first asked to draw.
    """
    for name in ("SDL_AUDIODRIVER", "SDL_VIDEODRIVER"):
        os.environ.setdefault(name, "dummy")
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")  # a greeting on stdout
    if sys.platform == "linux" and "DISPLAY" not in os.environ:
        os.environ.setdefault("MUJOCO_GL", "egl")


def _hear_mujoco() -> None:
    """Show each of MuJoCo's warnings once.

    By itself it writes all of them, for every environment, to stderr and to a file in the working
    folder.
    """
    mujoco = sys.modules.get("mujoco")
    if mujoco is not None and mujoco.get_mju_user_warning() is None:
        mujoco.set_mju_user_warning(_say_once)


def _say_once(text: str) -> None:
    from warnings import warn

    kind = text[:30]  # what follows may be a time or a number
    if kind not in _SAID:
        _SAID.add(kind)
        warn(f"MuJoCo: {text}", stacklevel=2)


def engine_of(id_: str) -> str:
    """Return which of Gymnasium's own groups an id is in, such as `box2d`; "" where none is known.

    >>> engine_of("gym:CartPole-v1")
    'classic_control'
    """
    try:
        creator = _spec(id_).entry_point
    except HpoError:
        return ""
    module = creator if isinstance(creator, str) else getattr(creator, "__module__", "")
    words = module.partition(":")[0].split(".")
    return words[2] if words[:2] == ["gymnasium", "envs"] and len(words) > 2 else ""


def space_kinds(id_: str) -> Any:
    """Return the module with the classes of spaces."""
    return _gymnasium(id_).spaces


def _gymnasium(id_: str) -> Any:
    try:
        return importlib.import_module("gymnasium")
    except ModuleNotFoundError as error:
        if error.name != "gymnasium":
            raise
        raise MissingExtraError("gymnasium", _EXTRA, f"env {id_}") from error


def _spec(id_: str) -> Any:
    """Return the registry's entry of an id."""
    gymnasium = _gymnasium(id_)
    module, _, name = id_.removeprefix(PREFIX).rpartition(":")
    if module and module not in sys.modules:
        raise UnimportedModuleError(id_, module)
    if name not in gymnasium.registry:
        lead = f"{PREFIX}{module}:" if module else PREFIX
        raise UnknownNameError("environment", id_, (lead + known for known in gymnasium.registry))
    return gymnasium.registry[name]


def _creator(id_: str, spec: Any) -> Any:
    """Return the class or function that makes an environment."""
    if spec.entry_point is None:
        raise ConfigError(f"{id_} is registered without an entry point, so it cannot be made")
    if callable(spec.entry_point):
        return spec.entry_point
    module, _, name = spec.entry_point.partition(":")
    return getattr(_import(id_, module), name)


def _import(id_: str, module: str) -> Any:
    gymnasium = _gymnasium(id_)
    try:
        return importlib.import_module(module)
    except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
        raise _missing(id_, error) from error


def _missing(id_: str, error: Exception) -> Exception:
    """Return what an environment lacks, and what to type."""
    text = str(error).strip().splitlines()[0]
    lacking = _LACKING.search(text)
    package = next(filter(None, lacking.groups())).partition(".")[0] if lacking else ""
    if package in _OF_THE_EXTRA:
        return MissingExtraError(package, _EXTRA, f"env {id_}")
    return ConfigError(f"{id_} cannot be imported: {text}")
