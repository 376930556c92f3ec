"""Every env step of an evaluation as one row: what the policy saw, did and got.

The episodes are those of `evaluation.evaluate` with the same key, step by step; a block of steps
is compiled once and run until the last episode has ended.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from .evaluation import Policies, Seen, advance, begin, last_step
from .plan import Plan

__all__ = ["columns_of", "trace"]

_BLOCK = 256
_MOST_COMPONENTS = 256  # of an observation, beyond which it is left out


def trace(
    plan: Plan, lanes: Policies, episodes: int, greedy: bool, steps: int | None = None
) -> dict[str, np.ndarray]:
    """Return columns with one row an env step, episode by episode.

    Columns are `episode`, `step`, `reward`, `return` so far, `terminated`, `truncated`, `action`
    (or `action_0`, ...), `observation_0`, ... (before the step; of up to 256 components) and the
    environment's own numbers as `info_<name>`.

    Args:
        plan: the static part; its `eval_env` is the environment.
        lanes: one policy, [1, ...].
        episodes: how many.
        greedy: the mode of the distribution instead of a sample.
        steps: of continuous operation; see `evaluation.evaluate`.
    """
    last = last_step(plan, steps)

    @jax.jit
    def block(lanes: Policies, carry: Any) -> tuple[Any, Seen]:
        return jax.lax.scan(
            lambda c, _: advance(plan, lanes, c, greedy, steps), carry, None, length=_BLOCK
        )

    carry = jax.jit(lambda lanes: begin(plan, lanes, episodes, greedy, steps))(lanes)
    blocks: list[Seen] = []
    while len(blocks) * _BLOCK < last and bool(np.any(jax.device_get(carry.running))):
        carry, seen = block(lanes, carry)
        blocks.append(jax.device_get(seen))
    # [blocks][steps, 1, episodes, ...] -> [episodes, steps, ...]
    whole: Seen = jax.tree.map(
        lambda *parts: np.moveaxis(np.concatenate(parts)[:last, 0], 0, 1), *blocks
    )
    return columns_of(whole)


def columns_of(seen: Seen) -> dict[str, np.ndarray]:
    """Return the steps that count as rows; arrays come as [episodes, steps, ...]."""
    rows = np.asarray(seen.counted)
    episode, at = np.nonzero(rows)
    reward = np.where(rows, seen.reward, 0.0).astype(np.float64)
    columns = {
        "episode": episode,
        "step": at - np.argmax(rows, axis=1)[episode],
        "reward": reward[rows],
        "return": np.cumsum(reward, axis=1)[rows],
        "terminated": np.asarray(seen.terminated)[rows],
        "truncated": np.asarray(seen.truncated)[rows],
        **_components("action", seen.action, rows),
    }
    if hasattr(seen.observation, "shape"):  # a tree has no columns of its own
        columns |= _components("observation", seen.observation, rows)
    return columns | {f"info_{name}": np.asarray(x)[rows] for name, x in seen.info.items()}


def _components(name: str, values: Any, rows: np.ndarray) -> dict[str, np.ndarray]:
    flat = np.asarray(values)[rows]
    if flat.ndim == 1:
        return {name: flat}
    flat = flat.reshape(len(flat), -1)
    if flat.shape[1] > _MOST_COMPONENTS:
        return {}
    return {f"{name}_{index}": flat[:, index] for index in range(flat.shape[1])}
