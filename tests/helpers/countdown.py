"""An environment of a third party: masks, endings, cuts, both, information.

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


class Falling:
    """What environments of tests share: a countdown, and a level [*shape] that wanders."""

    observation_struct = jax.ShapeDtypeStruct((3,), jnp.float32)
    has_mask = True
    never_ends = False
    warmup_steps = 0
    default_params = Params()
    lowest, highest, shape = 3, 6, ()

    def reset(self, key, params):
        left = jax.random.randint(key, (), self.lowest, self.highest + 1, jnp.int32)
        level = jax.random.uniform(jax.random.fold_in(key, 1), self.shape, jnp.float32)
        state = {"left": left, "time": jnp.int32(0), "level": level}
        return state, self._observe(state)

    def moved(self, key, state, reward, invalid):
        """Return the step that pays `reward`; NaN after the end."""
        over = (state["left"] <= 0) | (state["time"] >= LIMIT)
        noise = jax.random.uniform(key, self.shape, jnp.float32)
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
            info={"invalid": invalid},
        )

    def summarise(self, sums, steps):
        return {"invalid_share": sums["invalid"] / steps}


class Countdown(Falling):
    id = ID
    action_space = Discrete(ACTIONS)

    def __init__(self, lowest: int = 3):
        self.lowest = lowest

    def _observe(self, state):
        return jnp.stack(
            [state["left"].astype(jnp.float32), state["time"].astype(jnp.float32), state["level"]]
        )

    def step(self, key, state, action, params):
        valid = self.action_mask(state, params)[action]
        reward = params.bonus * (action + 1).astype(jnp.float32) + state["level"]
        return self.moved(key, state, reward, jnp.where(valid, 0.0, 1.0).astype(jnp.float32))

    def action_mask(self, state, params):
        """All but one action are valid, or none at all in the fourth step."""
        places = jnp.arange(ACTIONS, dtype=jnp.int32)
        return (places != state["time"]) & (state["time"] != 3)


def known_as(id_, make, **keys):
    """Return the EnvPlan of an environment; registers it once a process."""
    if id_ not in registry.known():
        registry.register(id_, make)
    return EnvPlan(id_, tuple(sorted(keys.items())))


def plan_of(**keys):
    """Return the EnvPlan of the countdown."""
    return known_as(ID, Countdown, **keys)
