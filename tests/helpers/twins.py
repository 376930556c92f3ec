"""One environment twice, compiled and Gymnasium's, and misfits.

An episode ends at 0 from 6, down by 1 or 2 with every step as the action says, or is cut after 4
steps, at times in the same one. Nothing is random, so that both give the same trajectories.
"""

from __future__ import annotations

import dataclasses

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from hpo.core.envs import registry
from hpo.core.envs.contract import Discrete, Step

FROM, LIMIT, ID = 6, 4, "test-twin"


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Params:
    bonus: float = 0.5


class Compiled:
    id = ID
    action_space = Discrete(2)
    observation_struct = jax.ShapeDtypeStruct((3,), jnp.float32)
    has_mask = False
    never_ends = False
    warmup_steps = 0
    default_params = Params()

    def _observe(self, state):
        left, time, level = state
        return jnp.stack([left.astype(jnp.float32), time.astype(jnp.float32), level])

    def reset(self, key, params):
        state = (jnp.int32(FROM), jnp.int32(0), jnp.float32(1.0))
        return state, self._observe(state)

    def step(self, key, state, action, params):
        left, time, level = state
        after = (
            left - 1 - action,
            time + 1,
            jnp.float32(0.5) * level + action.astype(jnp.float32),
        )
        return Step(
            state=after,
            observation=self._observe(after),
            reward=jnp.float32(params.bonus) * action.astype(jnp.float32) + level,
            terminated=after[0] <= 0,
            truncated=after[1] >= LIMIT,
            info={"time": after[1].astype(jnp.float32)},
        )

    def action_mask(self, state, params):
        raise NotImplementedError

    def summarise(self, sums, steps):
        return {}


class Hosted(gymnasium.Env):
    """The same for Gymnasium; its `TimeLimit` is its own."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float64)
    action_space = gymnasium.spaces.Discrete(2, start=5)

    def __init__(self, bonus: float = 0.5):
        if bonus > 100.0:
            raise ValueError("bonus is too large")
        self.bonus = bonus

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left, self.time, self.level = FROM, 0, 1.0
        return np.array([self.left, self.time, self.level]), {}

    def step(self, action):
        assert self.action_space.contains(action)
        action -= 5
        reward = self.bonus * action + self.level
        self.left, self.time = self.left - 1 - action, self.time + 1
        self.level = 0.5 * self.level + action
        seen = np.array([self.left, self.time, self.level])
        info = {"time": self.time, "text": "no number"}
        return seen, reward, self.left <= 0, self.time >= LIMIT, info


class Wayward(Hosted):
    """Never the same twice: it draws from a source that no seed sets."""

    source = np.random.default_rng(3)

    def step(self, action):
        seen, *rest = super().step(action)
        return seen + self.source.normal(size=3), *rest


class Spaces(gymnasium.Env):
    """Never stepped: only looked at."""

    def __init__(self, observation="box", action="discrete"):
        kinds = {
            "box": gymnasium.spaces.Box(-1.0, 1.0, (2, 3), np.float64),
            "image": gymnasium.spaces.Box(0, 255, (4, 4, 3), np.uint8),
            "discrete": gymnasium.spaces.Discrete(4, start=-1),
            "bits": gymnasium.spaces.MultiBinary(3),
            "several": gymnasium.spaces.MultiDiscrete([2, 5]),
            "grid": gymnasium.spaces.MultiDiscrete([[2, 5], [3, 3]]),
            "tree": gymnasium.spaces.Dict({"x": gymnasium.spaces.Discrete(2)}),
            "pair": gymnasium.spaces.Tuple([gymnasium.spaces.Discrete(2)]),
        }
        self.observation_space, self.action_space = kinds[observation], kinds[action]


def register():
    """Register the ids in Gymnasium and in the core, once a process."""
    if ID not in registry.known():
        registry.register(ID, Compiled)
        for made in (Hosted, Wayward, Spaces):
            gymnasium.register(f"hpo-test/{made.__name__}-v0", entry_point=made)
