"""Converts the Atari wrappers of CleanRL and Stable-Baselines3 to keys of ale-py."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..environments.via_gymnasium import is_atari
from ..files.plain_data import is_dict, is_list
from ..foreign_names.trainer_tables import WRAPPED
from .converted_study import ConvertedStudy, ImportSource

_GAME = re.compile(r"(?:gym:)?(?:ALE/)?(\w+?)(?:NoFrameskip-v[04]|-v5)")
_HISTORY = "(history 4)"
"""An entry of the list of defaults; here the environment stacks its images."""

_WRAPPER = "AtariWrapper"
_SB3_KEYS: Mapping[str, tuple[str, ...]] = {
    "noop_max": ("noop_max",),
    "frame_skip": ("frameskip",),
    "screen_size": ("img_height", "img_width"),
    "terminal_on_life_loss": ("episodic_life",),
    "clip_reward": ("reward_clipping",),
    "action_repeat_probability": ("repeat_action_probability",),
}
"""Argument of Stable-Baselines3's wrapper -> the keys with the same meaning."""
_OF_MAKER = ("env", "env_id", "n_envs", "seed", "start_index", "monitor_dir", "vec_env_cls")
_STICKY = {"v0": 0.25, "v4": 0.0}
"""Version of an id -> the probability that a game repeats the last action."""
_SB3_GAME = re.compile(r"(?:gym:)?(?:(\w+?)NoFrameskip-(v[04])|ALE/\w+-v5)")


def wrapped_game(draft: ConvertedStudy, source: ImportSource) -> None:
    """Turn Stable-Baselines3's `AtariWrapper` and `frame_stack` into keys of ale-py's game."""
    arguments = _arguments_of_wrapper(source.constants.get("env_wrapper"))
    named = [name for name in source.names() if draft.any_target(name) == "env"]
    if arguments is None or not named:
        return
    id_ = str(source.find(named[0]))
    game = _SB3_GAME.fullmatch(id_)
    if game is None:
        return
    if game[1] is None:
        plain = id_.removeprefix("gym:").removeprefix("ALE/").removesuffix("-v5")
        text = f"{id_} skips 4 frames, and {_WRAPPER} skips more; import the NoFrameskip version"
        raise draft.fault(text, env=f"{plain}NoFrameskip-v4")
    unknown = [name for name in arguments if name not in _SB3_KEYS]
    if unknown:
        raise draft.fault(f"{_WRAPPER} has no argument {unknown[0]}")
    images = source.find("frame_stack") or 1
    ours = f"gym:ALE/{game[1]}-v5"
    keys = {"episodic_life": True, "repeat_action_probability": _STICKY[game[2]]}
    for name, value in arguments.items():
        keys |= dict.fromkeys(_SB3_KEYS[name], value)
    if images != 4:
        keys["stack_num"] = images
    source.put(named[0], ours)
    source.drop("env_wrapper", "frame_stack")
    draft.env |= keys
    draft.note(
        f"env: {id_} with {_WRAPPER} becomes {ours} (no-ops, frame skip, small gray images, "
        f"{images} stacked, rewards clipped to signs). A lost life ends a training episode, but "
        "evaluation plays whole games"
    )


def _arguments_of_wrapper(given: Any) -> dict[str, Any] | None:
    """Return the Atari wrapper's arguments if there is no other wrapper, else None."""
    only = given
    if is_list(given) and len(given) == 1:
        only = given[0]
    if only is True:  # a call without arguments
        return {}
    if isinstance(only, str):
        only = {only: None}
    if not is_dict(only):
        return None
    names = [name for name in only if name.rpartition(".")[2] == _WRAPPER]
    if names and len(only) > 1:
        return None
    if names:
        return _arguments_or_none(only[names[0]])
    return _arguments_of_call(only)


def _arguments_of_call(given: dict[str, Any]) -> dict[str, Any] | None:
    """Return the arguments of the wrapper's call, or `wrapper_kwargs` of `make_atari_env`."""
    if set(given) <= set(_SB3_KEYS):
        return given
    rest = {name: value for name, value in given.items() if name not in _OF_MAKER}
    if set(rest) - {"wrapper_kwargs"}:
        return None
    return _arguments_or_none(rest.get("wrapper_kwargs"))


def _arguments_or_none(arguments: Any) -> dict[str, Any] | None:
    if arguments is None:
        return {}
    if not is_dict(arguments):
        return None
    return dict(arguments)


def preprocessing(draft: ConvertedStudy) -> None:
    """Convert the wrappers that a script adds around its game to ale-py's preprocessing keys."""
    id_ = str(draft.env.get("id", ""))
    game = _GAME.fullmatch(id_)
    if game is None or WRAPPED not in draft.system.differs or "imports" in draft.rest:
        return
    ours = f"gym:ALE/{game[1]}-v5"
    if not is_atari(ours):
        return
    draft.env |= {"id": ours, "episodic_life": True, "repeat_action_probability": 0.0}
    draft.fixed.pop("history", None)
    if _HISTORY in draft.defaults:
        draft.defaults.remove(_HISTORY)
    draft.notes.remove(WRAPPED)
    draft.note(
        f"env: {id_} with its wrappers becomes {ours} (no-ops, frame skip 4, 84x84 gray images, 4 "
        "stacked, rewards clipped to signs). A lost life ends a training episode, but evaluation "
        "plays whole games"
    )
