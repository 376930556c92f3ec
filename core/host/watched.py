"""Episodes of an evaluation that somebody looks at: as rows, and as pictures.

They are those of `evaluate.evaluate_here` with the same key, stepped in this process.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import jax
import numpy as np

from ...errors import ConfigError
from ...via_gymnasium import draw_unheard, render_facts
from ..evaluation import Policies, Seen
from ..plan import Plan
from ..trace import columns_of
from .batch import LocalBatch
from .evaluate import act_function, begin, hosted, play
from .steady import Steady

__all__ = ["film_here", "trace_here"]


def trace_here(
    plan: Plan, policies: Policies, episodes: int, greedy: bool, steps: int | None = None
) -> dict[str, np.ndarray]:
    """Return columns with one row an env step, as `core.trace.trace` does.

    Of `info` the numbers are kept, one column a name; where an environment does not say one in
    every step, it is nan in the others.
    """
    env = hosted(plan)
    code, board_rows, infos = env.code, [], []
    with closing(LocalBatch(env.id, code, episodes)) as batch:
        board, act = batch.board, jax.jit(act_function(plan, greedy))
        steady, running = Steady(batch, episodes, keeps=False), np.ones(episodes, bool)
        begin(plan, policies, steady, running)
        for turn in play(plan, act, policies, steady, running, steps):
            taken = np.asarray(code.actions(board.action))
            ends = (board.terminated.copy(), board.truncated.copy())
            board_rows.append((turn.running, turn.observation, taken, board.reward.copy(), *ends))
            infos.append([_numbers(batch.slots.info.get(slot, {})) for slot in range(episodes)])
    # [steps][episodes, ...] -> [episodes, steps, ...]
    counted, observation, action, reward, terminated, truncated = (
        np.moveaxis(np.stack(rows), 0, 1) for rows in zip(*board_rows, strict=True)
    )
    seen = Seen(counted, observation, action, reward, terminated, truncated, _info(infos, counted))
    return columns_of(seen)


def _info(infos: list[list[Mapping[str, float]]], counted: np.ndarray) -> dict[str, np.ndarray]:
    """Return what environments said, [episodes, steps] by name."""
    found: dict[str, np.ndarray] = {}
    for step, said in enumerate(infos):
        for episode in np.flatnonzero(counted[:, step]).tolist():
            for name, number in said[episode].items():
                column = found.setdefault(name, np.full(counted.shape, math.nan))
                column[episode, step] = number
    return dict(sorted(found.items()))


def _numbers(said: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers that are said now: the next step may write over them."""
    numbers = {str(name): _number(value) for name, value in said.items()}
    return {name: number for name, number in numbers.items() if number is not None}


def _number(value: Any) -> float | None:
    """Return a value that is one real number, or a flag, as a number; None for all others."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    real = isinstance(value, bool | int | float | np.bool_ | np.integer | np.floating)
    return float(value) if real else None


def film_here(
    plan: Plan, policies: Policies, episodes: int, greedy: bool
) -> tuple[float, Iterator[np.ndarray]]:
    """Return pictures a second, and the pictures uint8 [H, W, 3] of one episode after the other.

    Raises:
        ConfigError: the environment cannot draw itself.
    """
    env = hosted(plan)
    modes, rate = render_facts(env.id, env.keys)
    if "rgb_array" not in modes:
        said = f"; it can: {', '.join(modes)}" if modes else ""
        raise ConfigError(f"{env.id} cannot draw itself as pictures (rgb_array){said}")
    return rate, _pictures(plan, policies, episodes, greedy)


def _pictures(plan: Plan, policies: Policies, episodes: int, greedy: bool) -> Iterator[np.ndarray]:
    draw_unheard()
    env = hosted(plan)
    act = jax.jit(act_function(plan, greedy))
    for episode in range(episodes):
        running = np.arange(episodes) == episode
        with closing(
            LocalBatch(env.id, env.code, episodes, {"render_mode": "rgb_array"})
        ) as batch:
            steady = Steady(batch, episodes, keeps=False)
            begin(plan, policies, steady, running)
            yield _picture(env.id, batch, episode)
            for turn in play(plan, act, policies, steady, running, None):
                if turn.running.any():  # else the environment has failed, which is told at the end
                    yield _picture(env.id, batch, episode)


def _picture(id_: str, batch: LocalBatch, slot: int) -> np.ndarray:
    drawn = np.asarray(batch.slots.drawn(slot))
    if drawn.dtype != np.uint8 or drawn.ndim != 3 or drawn.shape[2] != 3:
        raise ConfigError(
            f"{id_} draws {drawn.dtype} {list(drawn.shape)}; a picture is uint8 [height, width, 3]"
        )
    return drawn
