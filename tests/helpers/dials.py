"""An environment of two bodies with actions of several components, masks, endings and cuts.

Each body turns a dial of three positions and may press a button; what a body
sees, may do and is paid differs from the other's. After an end it gives NaN, which nobody must
look at.
"""

from __future__ import annotations

import jax.numpy as jnp

from helpers import countdown
from hpo.core.envs.contract import MultiDiscrete

SIZES, BODIES = (3, 2), 2
ID = "test-dials"


class Dials(countdown.Falling):
    id = ID
    agents = BODIES
    action_space = MultiDiscrete(SIZES)
    highest, shape = 7, (BODIES,)

    def _observe(self, state):
        rows = [state["level"], state["level"][::-1]]
        rows.append(jnp.full(BODIES, 1.0, jnp.float32) * state["time"].astype(jnp.float32))
        return jnp.stack(rows, axis=-1)

    def step(self, key, state, action, params):
        turned = action.astype(jnp.float32)
        paid = params.bonus * (turned[:, 0] + 3.0 * turned[:, 1]) + state["level"]
        mask = self.action_mask(state, params)
        dial = jnp.take_along_axis(mask[:, :3], action[:, :1], axis=1)[:, 0]
        button = jnp.take_along_axis(mask[:, 3:], action[:, 1:], axis=1)[:, 0]
        invalid = jnp.mean(1.0 - (dial & button).astype(jnp.float32))
        return self.moved(key, state, paid, invalid)

    def action_mask(self, state, params):
        """The first body may not do what the second may; position `time` is never allowed."""
        place = jnp.arange(3, dtype=jnp.int32)
        turn = (place != state["time"]) & (place < 2)
        other = place != state["time"]
        button = jnp.stack([state["level"] > 0.4, jnp.ones(BODIES, bool)], axis=-1)
        return jnp.concatenate([jnp.stack([turn, other]), button], axis=-1)


def plan_of():
    """Return its EnvPlan; registers it once a process."""
    return countdown.known_as(ID, Dials)
