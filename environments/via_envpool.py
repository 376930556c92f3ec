"""EnvPool: C++ environments; one call steps many of them in a thread pool."""

from __future__ import annotations

import os
import warnings
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ..errors import UnknownNameError, blamed, extra_module
from .hosted import ENVPOOL, Answers
from .table import EnvEntry, EnvKey, type_of

# Arguments that every pool has, which do not belong to the environment
_OF_POOLS = ("base_path", "batch_size", "env_seed", "gym_reset_return_info", "max_num_players",
             "num_envs", "num_threads", "reward_threshold", "seed", "task", "task_name",
             "thread_affinity_offset")  # fmt: skip
_LIVES, _CLIPS = "episodic_life", "reward_clip"


@dataclass(frozen=True)
class EnvPoolBackend:
    together: Literal["call", "lane", "slot"] = "call"
    reseeds: bool = False  # a pool takes its seeds only when it is created

    def entry(self, id_: str) -> EnvEntry:
        """Return the entry for an id such as `envpool:CartPole-v1`; all arguments are keys."""
        keys: dict[str, EnvKey] = {}
        for name, default in _make_spec(id_, {}).config._asdict().items():
            if name not in _OF_POOLS:
                keys[name] = EnvKey(type_of(default, False), default)
        if "max_episode_steps" in keys:
            limit = keys["max_episode_steps"].default
            keys["max_episode_steps"] = EnvKey(
                "int", limit, meaning="env steps until truncation", low=1
            )
        judged = {name: False for name in (_LIVES, _CLIPS) if name in keys}
        meaning = f"EnvPool's {_bare_id(id_)}"
        return EnvEntry(id_, "envpool", "any", keys=keys, meaning=meaning, eval_keys=judged)

    def spaces(self, id_: str, values: Mapping[str, Any]) -> Any:
        with _no_word_of_bounds():
            spec = _make_spec(id_, values)
            return _EnvpoolSpaces(spec.observation_space, spec.action_space)

    def make(self, id_: str, values: Mapping[str, Any], rows: int) -> EnvPoolSimulator:
        return EnvPoolSimulator(id_, values, rows)


@dataclass(frozen=True)
class _EnvpoolSpaces:
    observation_space: Any
    action_space: Any


class EnvPoolSimulator:
    """One EnvPool; `restart` runs its automatic reset, which would replace the next step.

    Calling `reset` instead would start a new game even if only a lost life ended the episode.
    """

    def __init__(self, id_: str, values: Mapping[str, Any], rows: int):
        self._id, self._values, self._rows = id_, dict(values), rows
        self._pool: Any = None
        self._sent = np.zeros(0, np.int32)
        self._action = np.zeros(0)  # [1, ...], any legal action

    def start(self, seeds: np.ndarray) -> np.ndarray:
        threads = min(self._rows, _core_count())
        with blamed(self._id, self._values), _no_word_of_bounds():
            self._pool = _import_envpool(self._id).make_gymnasium(
                _bare_id(self._id),
                num_envs=self._rows,
                env_seed=seeds.tolist(),
                num_threads=threads,
                **self._values,
            )
            observation, info = self._pool.reset()
        return observation[_row_order(info["env_id"], np.arange(self._rows))]

    def send(self, rows: np.ndarray, actions: np.ndarray) -> None:
        self._sent, self._action = rows.astype(np.int32), actions[:1]
        self._pool.send(actions, self._sent)

    def receive(self) -> Answers:
        observation, reward, terminated, truncated, info = self._pool.recv()
        order = _row_order(info["env_id"], self._sent)
        said = {name: rows[order] for name, rows in info.items() if _is_column(rows, order)}
        ended = terminated[order]
        game_continues = None
        if "lives" in said:
            game_continues = ended & (said["lives"] > 0)
        return Answers(
            observation[order],
            reward[order],
            ended,
            truncated[order],
            game_continues=game_continues,
            info=said,
        )

    def restart(self, rows: np.ndarray) -> np.ndarray:
        ignored = np.repeat(self._action, len(rows), axis=0)
        observation, *_, info = self._pool.step(ignored, rows.astype(np.int32))
        return observation[_row_order(info["env_id"], rows)]

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()
        self._pool = None


@contextmanager
def _no_word_of_bounds() -> Generator[None, None, None]:
    """Hide Gymnasium's warnings about float32 rounding of a space's bounds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


def _core_count() -> int:
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _row_order(given: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return the position in `given` of each `wanted` row; `wanted` is in ascending order."""
    order = np.argsort(given, kind="stable")
    if not np.array_equal(given[order], wanted):
        raise RuntimeError(f"EnvPool returned rows {given} instead of {wanted}")
    return order


def _is_column(rows: Any, order: np.ndarray) -> bool:
    return isinstance(rows, np.ndarray) and rows.shape == order.shape


def _bare_id(id_: str) -> str:
    return id_.removeprefix(ENVPOOL)


def _import_envpool(id_: str) -> Any:
    return extra_module("envpool", "envpool", f"env {id_}")


def _make_spec(id_: str, values: Mapping[str, Any]) -> Any:
    library = _import_envpool(id_)
    if _bare_id(id_) not in library.list_all_envs():
        known = (f"{ENVPOOL}{name}" for name in library.list_all_envs())
        raise UnknownNameError("environment", id_, known)
    with blamed(id_, values):
        return library.make_spec(_bare_id(id_), **values)
