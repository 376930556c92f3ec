"""Episodes of an evaluation that somebody looks at: as rows, and as pictures.

They are those of `evaluate.evaluate_here` with the same key, stepped in this process.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import jax
import numpy as np

from ...errors import ConfigError
from ...via_gymnasium import draw_unheard, render_facts
from ..evaluation import Policies, Seen
from ..plan import Plan
from ..trace import columns_of
from .batch import LocalBatch
from .evaluate import act_function, begin, hosted, play
from .said import columns
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
            infos.append(batch.said)
    # [steps][episodes, ...] -> [episodes, steps, ...]
    counted, observation, action, reward, terminated, truncated = (
        np.moveaxis(np.stack(rows), 0, 1) for rows in zip(*board_rows, strict=True)
    )
    seen = Seen(
        counted, observation, action, reward, terminated, truncated, columns(infos, counted)
    )
    return columns_of(seen)


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
