"""Pictures of gymnax's environments by gymnax's own visualizer, without a window."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ...errors import ConfigError, MissingExtraError
from ...via_gymnasium import draw_unheard
from .foreign import relaxed

__all__ = ["drawn"]


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
