"""An environment of two bodies with actions of several components, masks, endings and cuts.

Loaded by its path. Each body turns a dial of three positions and may press a button; what a body
sees, may do and is paid differs from the other's. After an end it gives NaN, which nobody must
look at.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from hpo.core.envs import registry
from hpo.core.envs.contract import MultiDiscrete, Step
from hpo.core.plan import EnvPlan

LIMIT, SIZES, BODIES = 5, (3, 2), 2
ID = "test-dials"


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Params:
    bonus: float = 0.5


class Dials:
    id = ID
    agents = BODIES
    action_space = MultiDiscrete(SIZES)
    observation_struct = jax.ShapeDtypeStruct((3,), jnp.float32)
    has_mask = True
    never_ends = False
    warmup_steps = 0
    default_params = Params()

    def _observe(self, state):
        rows = [state["level"], state["level"][::-1]]
        rows.append(jnp.full(BODIES, 1.0, jnp.float32) * state["time"].astype(jnp.float32))
        return jnp.stack(rows, axis=-1)

    def reset(self, key, params):
        left = jax.random.randint(key, (), 3, 8, jnp.int32)
        level = jax.random.uniform(jax.random.fold_in(key, 1), (BODIES,), jnp.float32)
        state = {"left": left, "time": jnp.int32(0), "level": level}
        return state, self._observe(state)

    def step(self, key, state, action, params):
        over = (state["left"] <= 0) | (state["time"] >= LIMIT)
        turned = action.astype(jnp.float32)
        paid = params.bonus * (turned[:, 0] + 3.0 * turned[:, 1]) + state["level"]
        mask = self.action_mask(state, params)
        dial = jnp.take_along_axis(mask[:, :3], action[:, :1], axis=1)[:, 0]
        button = jnp.take_along_axis(mask[:, 3:], action[:, 1:], axis=1)[:, 0]
        noise = jax.random.uniform(key, (BODIES,), jnp.float32)
        after = {
            "left": state["left"] - 1,
            "time": state["time"] + 1,
            "level": 0.5 * state["level"] + 0.5 * noise,
        }
        return Step(
            state=after,
            observation=self._observe(after),
            reward=jnp.where(over, jnp.nan, paid),
            terminated=after["left"] <= 0,
            truncated=after["time"] >= LIMIT,
            info={"invalid": jnp.mean(1.0 - (dial & button).astype(jnp.float32))},
        )

    def action_mask(self, state, params):
        """The first body may not do what the second may; position `time` is never allowed."""
        place = jnp.arange(3, dtype=jnp.int32)
        turn = (place != state["time"]) & (place < 2)
        other = place != state["time"]
        button = jnp.stack([state["level"] > 0.4, jnp.ones(BODIES, bool)], axis=-1)
        return jnp.concatenate([jnp.stack([turn, other]), button], axis=-1)

    def summarise(self, sums, steps):
        return {"invalid_share": sums["invalid"] / steps}


def plan_of():
    """Give its EnvPlan; registers it once a process."""
    if ID not in registry.known():
        registry.register(ID, Dials)
    return EnvPlan(ID)
