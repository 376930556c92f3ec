"""Writes the Python line that wraps Gymnasium observations which networks cannot read."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

from . import via_gymnasium
from .hosted import is_simulated, probe

_LARGE = 84
"""Side length in pixels from which a wrapper that shrinks images pays off; Atari's usual size."""
_FLATTEN = "gymnasium.wrappers.FlattenObservation.wrapper_spec()"
_SMALLER = (
    "gymnasium.wrappers.GrayscaleObservation.wrapper_spec(keep_dim=True)",
    f"gymnasium.wrappers.ResizeObservation.wrapper_spec(shape=({_LARGE}, {_LARGE}))",
)


@dataclass(frozen=True)
class Observation:
    """An environment's observation, and the line of Python that makes it readable to networks."""

    space: str  # `Dict`, or `image of 96x96x3`
    is_image: bool = False
    wrapped_id: str = ""  # in the form used in studies; empty if no wrapper is needed
    line: str = ""  # imports Gymnasium and registers `wrapped_id`
    is_registered: bool = False  # whether a file that ran contains the line


def observation_of(id_: str) -> Observation | None:
    """Return a hosted environment's observation if it needs a wrapper or a `cnn`, else None.

    Libraries that step many environments per call do not accept wrappers. Their keys offer the
    same settings.

    Returns:
        None for a vector or a number, which any network reads.

    Raises:
        HpoError: the environment cannot be made here; `UnsupportedActionsError`: or not trained.
    """
    if is_simulated(id_):
        made = probe(id_, {})
        via_gymnasium.check_actions(id_, made.action_space)
        observation_space = made.observation_space
        if str(observation_space.dtype) != "uint8" or len(observation_space.shape) not in (2, 3):
            return None
        return Observation(_image_words(observation_space.shape), True)
    env = via_gymnasium.make(id_, {})
    space, spec = env.observation_space, env.spec
    env.close()
    via_gymnasium.check_actions(id_, env.action_space)
    spaces = via_gymnasium.space_kinds(id_)
    if isinstance(space, spaces.Box) and str(space.dtype) == "uint8":
        return _image_observation(space.shape, spec)
    if isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiBinary):
        return None
    kind = type(space).__name__
    if not space.is_np_flattenable:
        return Observation(kind)
    new = f"Flat/{_bare_id(spec)}"
    return _wrapped_observation(kind, False, new, _register_line(new, spec, (_FLATTEN,)))


def _image_observation(shape: tuple[int, ...], spec: Any) -> Observation | None:
    if len(shape) not in (2, 3):
        return None
    words = _image_words(shape)
    if min(shape[:2]) <= _LARGE or len(shape) == 2:
        return Observation(words, True)
    new = f"Small/{_bare_id(spec)}"
    return _wrapped_observation(words, True, new, _register_line(new, spec, _SMALLER))


def _wrapped_observation(words: str, is_image: bool, new: str, line: str) -> Observation:
    id_ = f"{via_gymnasium.PREFIX}{new}"
    return Observation(words, is_image, id_, line, id_ in via_gymnasium.registered())


def _image_words(shape: tuple[int, ...]) -> str:
    return f"image of {'x'.join(map(str, shape))}"


def _bare_id(spec: Any) -> str:
    """Return an id without its namespace."""
    return str(spec.id).rpartition("/")[2]


def _register_line(new: str, spec: Any, wrappers: tuple[str, ...]) -> str:
    """Return the call that registers a wrapped environment."""
    made = spec.entry_point
    if not isinstance(made, str):
        made = f"{made.__module__}:{made.__qualname__}"
    if spec.additional_wrappers or "<" in made or not _is_literal(spec.kwargs):
        return _line_over_spec(new, spec, wrappers)
    given = [repr(new), repr(made)]
    if spec.max_episode_steps is not None:
        given.append(f"max_episode_steps={spec.max_episode_steps}")
    if spec.kwargs:
        given.append(f"kwargs={spec.kwargs!r}")
    given.append(f"additional_wrappers=({', '.join(wrappers)},)")
    return f"import gymnasium; gymnasium.register({', '.join(given)})".replace("'", '"')


def _is_literal(kwargs: Any) -> bool:
    """Return whether arguments can be written with double quotes."""
    try:
        return bool(ast.literal_eval(repr(kwargs).replace("'", '"')) == kwargs)
    except (SyntaxError, TypeError, ValueError):
        return False


def _line_over_spec(new: str, spec: Any, wrappers: tuple[str, ...]) -> str:
    """Return the line of an environment whose class, arguments or wrappers cannot be written."""
    own = (
        f'"{new}", spec.entry_point, max_episode_steps=spec.max_episode_steps, kwargs=spec.kwargs'
    )
    added = f"additional_wrappers=(*spec.additional_wrappers, {', '.join(wrappers)})"
    return (
        f'import gymnasium; spec = gymnasium.spec("{spec.id}"); gymnasium.register({own}, {added})'
    )
