"""An environment of a third party, loaded by its path: masks, endings, cuts, both, information.

An episode counts down from 3 to 6 and ends at 0; it is cut after 5 steps, at times in the same
step. What it gives after an end is NaN, which nobody must look at.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from hpo.core.envs import registry
from hpo.core.envs.contract import Discrete, Step
from hpo.core.plan import EnvPlan

LIMIT, ACTIONS = 5, 4
ID = "test-countdown"


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Params:
    bonus: float = 0.5


class Countdown:
    id = ID
    action_space = Discrete(ACTIONS)
    observation_struct = jax.ShapeDtypeStruct((3,), jnp.float32)
    has_mask = True
    never_ends = False
    warmup_steps = 0
    default_params = Params()

    def __init__(self, lowest: int = 3):
        self.lowest = lowest

    def _observe(self, state):
        return jnp.stack([state["left"].astype(jnp.float32), state["time"].astype(jnp.float32),
                          state["level"]])  # fmt: skip

    def reset(self, key, params):
        left = jax.random.randint(key, (), self.lowest, 7, jnp.int32)
        level = jax.random.uniform(jax.random.fold_in(key, 1), (), jnp.float32)
        state = {"left": left, "time": jnp.int32(0), "level": level}
        return state, self._observe(state)

    def step(self, key, state, action, params):
        over = (state["left"] <= 0) | (state["time"] >= LIMIT)
        valid = self.action_mask(state, params)[action]
        noise = jax.random.uniform(key, (), jnp.float32)
        reward = params.bonus * (action + 1).astype(jnp.float32) + state["level"]
        after = {
            "left": state["left"] - 1,
            "time": state["time"] + 1,
            "level": 0.5 * state["level"] + 0.5 * noise,
        }
        return Step(
            state=after,
            observation=self._observe(after),
            reward=jnp.where(over, jnp.nan, reward),
            terminated=after["left"] <= 0,
            truncated=after["time"] >= LIMIT,
            info={"invalid": jnp.where(valid, 0.0, 1.0).astype(jnp.float32)},
        )

    def action_mask(self, state, params):
        """All but one action are valid, or none at all in the fourth step."""
        places = jnp.arange(ACTIONS, dtype=jnp.int32)
        return (places != state["time"]) & (state["time"] != 3)

    def summarise(self, sums, steps):
        return {"invalid_share": sums["invalid"] / steps}


def plan_of(**keys):
    """Give its EnvPlan; registers it once a process."""
    if ID not in registry.known():
        registry.register(ID, Countdown)
    return EnvPlan(ID, tuple(sorted(keys.items())))
