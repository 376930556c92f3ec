"""Gymnasium's vector entry points (`gymnasium.make_vec`), for ids `gym-vec:...` and for Atari.

A simulator's `autoreset_mode` determines how ended rows are reset:

- SAME_STEP: ended rows are already reset when the step returns; their last observations are in
  `final_obs`.
- DISABLED: rows are reset by `reset` with a `reset_mask`.
- NEXT_STEP: rows would be reset instead of taking their next step, which ignores the action and
  returns reward 0. They are therefore reset earlier with a `reset_mask`, as in DISABLED, so that
  training never sees such a step.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from ..errors import ConfigError, blamed
from ..files.working_folder import same_working_folder
from .hosted import ALE, VECTOR, Answers
from .table import EnvEntry, EnvKey, type_of
from .via_gymnasium import PREFIX, first_sentence, imported, spec_of

# Arguments that control how a simulator runs, or that the id fixes
_OF_VECTORS = ("autoreset_mode", "batch_size", "game", "num_envs", "num_threads", "render_mode",
               "self", "thread_affinity_offset")  # fmt: skip
_LIVES, _CLIPS = "episodic_life", "reward_clipping"
_LIFE_ENDS = "life_loss_info"
_ATARI_MEANINGS = {
    "continuous": "actions are a joystick's radius, angle and button",
    "episodic_life": "a lost life ends the episode in training, while the game continues",
    "frameskip": "emulator frames per action",
    "full_action_space": "all 18 actions, including those without effect in this game",
    "grayscale": "grayscale instead of colour frames",
    "img_height": "image height in pixels",
    "img_width": "image width in pixels",
    "max_num_frames_per_episode": "emulator frames until truncation",
    "maxpool": "each pixel is the maximum of the last two frames",
    "noop_max": "maximum number of no-ops at the start of a game",
    "repeat_action_probability": "probability per frame that the last action is repeated (sticky)",
    "reward_clipping": "rewards are -1, 0 or 1 in training",
    "stack_num": "stacked frames per observation",
    "use_fire_reset": "press fire at the start of a game that waits for it",
}
_FROM_0_TO_1 = ("continuous_action_threshold", "repeat_action_probability")
_AT_LEAST_0 = ("noop_max",)


@dataclass(frozen=True)
class VectorEntryBackend:
    together: Literal["call", "lane", "slot"] = "lane"  # what shares one random number generator
    reseeds: bool = False

    def entry(self, id_: str) -> EnvEntry:
        """Return the entry for an id; all arguments of its vector constructor are keys."""
        spec, creator = _spec_and_constructor(id_)
        keys: dict[str, EnvKey] = {}
        given = dict(spec.kwargs)
        if spec.max_episode_steps is not None:
            given["max_episode_steps"] = spec.max_episode_steps
        for name, parameter in inspect.signature(creator).parameters.items():
            named = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
            if named and name not in _OF_VECTORS:
                default = given.get(name, parameter.default)
                if default is parameter.empty:
                    default = None
                keys[name] = _env_key(name, default)
        meaning = first_sentence(inspect.getdoc(creator) or "")
        judged = {name: False for name in (_LIVES, _CLIPS) if name in keys}
        return EnvEntry(id_, "gymnasium", "any", keys=keys, meaning=meaning, eval_keys=judged)

    def spaces(self, id_: str, values: Mapping[str, Any]) -> Any:
        """Return the spaces of one row.

        Raises:
            ConfigError: the simulator cannot reset some rows before the next step.
        """
        env = _make_vec(id_, values, 2)
        try:
            if not _resets_rows(env):
                raise ConfigError(
                    f"the vector environment of {id_} resets finished environments "
                    "instead of stepping them, and has no reset_mask, so it cannot be used for "
                    "training; use "
                    f"{_gymnasium_id(id_)}"
                )
            return _Spaces(env.single_observation_space, env.single_action_space)
        finally:
            env.close()

    def make(self, id_: str, values: Mapping[str, Any], rows: int) -> VectorEntrySimulator:
        return VectorEntrySimulator(_make_vec(id_, values, rows))


@dataclass(frozen=True)
class AtariBackend(VectorEntryBackend):
    """One ALE vector environment per game, because a pool would also step ended games."""

    together: Literal["call", "lane", "slot"] = "slot"
    reseeds: bool = True

    def entry(self, id_: str) -> EnvEntry:
        found = super().entry(id_)
        keys = {name: key for name, key in found.keys.items() if name != _LIFE_ENDS}
        return replace(found, keys=keys, meaning=f"the Atari game {id_.removeprefix(ALE)}")

    def spaces(self, id_: str, values: Mapping[str, Any]) -> Any:
        env = _make_game(id_, values)
        env.close()
        return _Spaces(env.single_observation_space, env.single_action_space)

    def make(self, id_: str, values: Mapping[str, Any], rows: int) -> AtariSimulator:
        return AtariSimulator(_make_game(id_, values))


@dataclass(frozen=True)
class _Spaces:
    observation_space: Any
    action_space: Any


class VectorEntrySimulator:
    def __init__(self, env: Any):
        self._env, self._count = env, int(env.num_envs)
        self._mode = _mode_of(env)
        self._dtype = env.single_action_space.dtype
        self._ended = np.zeros(self._count, bool)  # ended and not reset since
        self._rows = np.arange(self._count)
        self._stepped: Any = None

    def start(self, seeds: np.ndarray) -> np.ndarray:
        observation, _ = self._env.reset(seed=int(seeds[0]))  # observations of all rows
        self._ended[:] = False
        return np.array(observation)

    def send(self, rows: np.ndarray, actions: np.ndarray) -> None:
        whole = np.repeat(actions[:1], self._count, axis=0).astype(self._dtype)
        whole[rows] = actions
        forgotten = self._ended.copy()
        forgotten[rows] = False
        if self._mode == "Disabled" and forgotten.any():  # otherwise it refuses to step
            self.restart(np.flatnonzero(forgotten))
        self._rows = rows
        if hasattr(self._env, "send"):
            self._env.send(whole)
        else:
            self._stepped = self._env.step(whole)

    def receive(self) -> Answers:
        stepped = self._stepped
        if stepped is None:
            stepped = self._env.recv()
        self._stepped, rows = None, self._rows
        observation, reward, terminated, truncated, info = stepped
        ended = terminated | truncated
        self._ended = ended & (self._mode != "SameStep")
        observations, next_observation = np.array(observation[rows]), None
        if self._mode == "SameStep":
            next_observation = observations.copy()
            for place in np.flatnonzero(ended[rows]).tolist():
                observations[place] = info["final_obs"][rows[place]]
        said = {
            name: values[rows]
            for name, values in info.items()
            if isinstance(values, np.ndarray) and values.shape == (self._count,)
        }
        return Answers(
            observations,
            np.array(reward[rows]),
            np.asarray(terminated[rows], bool),
            np.asarray(truncated[rows], bool),
            next_observation,
            info=said,
        )

    def restart(self, rows: np.ndarray) -> np.ndarray:
        mask = np.zeros(self._count, bool)
        mask[rows] = True
        options = None
        if not mask.all():
            options = {"reset_mask": mask}
        observation, _ = self._env.reset(options=options)
        self._ended[rows] = False
        return np.array(observation[rows])

    def close(self) -> None:
        self._env.close()


class AtariSimulator(VectorEntrySimulator):
    """A single game; it continues if a lost life ends the episode (EpisodicLife in Baselines)."""

    def receive(self) -> Answers:
        answers = super().receive()
        game_continues = answers.terminated & (answers.info["lives"] > 0)
        self._last, self._game_continues = answers.observation, bool(game_continues[0])
        return replace(answers, game_continues=game_continues)

    def restart(self, rows: np.ndarray) -> np.ndarray:
        if self._game_continues:
            return self._last.copy()
        return super().restart(rows)


def _gymnasium_id(id_: str) -> str:
    return f"{PREFIX}{id_.removeprefix(VECTOR).removeprefix(PREFIX)}"


def _mode_of(env: Any) -> str:
    mode = env.metadata.get("autoreset_mode")
    if mode is None:
        return "NextStep"
    return getattr(mode, "value", str(mode))


def _resets_rows(env: Any) -> bool:
    """Test, with two rows, whether a single row can be reset before the next step."""
    if _mode_of(env) == "SameStep":
        return True
    env.reset(seed=0)
    observation, *_ = env.step(np.stack([env.single_action_space.sample()] * 2))
    before = np.array(observation[1])
    try:
        after, _ = env.reset(options={"reset_mask": np.array([True, False])})
    except Exception:  # any error about an option unknown to the environment
        return False
    return np.array_equal(before, after[1])


def _env_key(name: str, default: Any) -> EnvKey:
    type_, meaning = type_of(default, False), _ATARI_MEANINGS.get(name, "")
    if name in _FROM_0_TO_1:
        return EnvKey("float", default, meaning=meaning, low=0.0, high=1.0)
    if type_ != "int":
        return EnvKey(type_, default, meaning=meaning)
    low = 1
    if name in _AT_LEAST_0:
        low = 0
    return EnvKey("int", default, meaning=meaning, low=low)


def _spec_and_constructor(id_: str) -> tuple[Any, Any]:
    spec = spec_of(_gymnasium_id(id_), id_)
    if spec.vector_entry_point is None:
        raise ConfigError(
            f"{id_}: Gymnasium has no vector entry point for {spec.id}; use {_gymnasium_id(id_)}"
        )
    if callable(spec.vector_entry_point):
        return spec, spec.vector_entry_point
    return spec, imported(id_, spec.vector_entry_point)


def _make_vec(id_: str, values: Mapping[str, Any], rows: int) -> Any:
    import gymnasium

    spec, _ = _spec_and_constructor(id_)
    with blamed(id_, values), same_working_folder():
        return gymnasium.make_vec(spec, rows, vectorization_mode="vector_entry_point", **values)


def _make_game(id_: str, values: Mapping[str, Any]) -> Any:
    # ale-py's `episodic_life` starts a new game after a lost life; `life_loss_info` does not
    given = {"num_threads": 1, **values}
    if _LIVES in given:
        given[_LIFE_ENDS] = given.pop(_LIVES)
    return _make_vec(id_, given, 1)
