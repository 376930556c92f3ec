"""Episodes of an evaluation that somebody looks at: as rows, and as pictures.

They are those of `evaluate.evaluate_here` with the same key, stepped in this process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing

import jax
import numpy as np

from ...errors import ConfigError
from ...via_gymnasium import draw_unheard, render_facts
from ..evaluation import Policies, Seen
from ..plan import Plan
from ..trace import columns_of
from .batch import LocalBatch
from .host_evaluation import act_function, begin, hosted, play
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
    code = env.code
    steps_seen: list[Seen] = []
    infos: list[Mapping[int, Mapping[str, float]]] = []
    with closing(LocalBatch(env.id, code, episodes)) as batch:
        arrays, act = batch.arrays, jax.jit(act_function(plan, greedy))
        steady, running = Steady(batch, episodes, keeps=False), np.ones(episodes, bool)
        begin(plan, policies, steady, running)
        for turn in play(plan, act, policies, steady, running, steps):
            seen = Seen(
                counted=turn.running[None],
                observation=turn.observation[None],
                action=np.asarray(code.actions(arrays.action))[None],
                reward=arrays.reward[None].copy(),
                terminated=arrays.terminated[None].copy(),
                truncated=arrays.truncated[None].copy(),
                info={},
            )
            steps_seen.append(seen)
            infos.append(batch.said)
    # [steps][1, episodes, ...] -> [episodes, steps, ...]
    whole: Seen = jax.tree.map(lambda *rows: np.moveaxis(np.concatenate(rows), 0, 1), *steps_seen)
    return columns_of(whole.replace(info=columns(infos, np.asarray(whole.counted))))


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
