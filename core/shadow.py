"""A shadow: each environment of a rollout once more, served by a heuristic on the same inputs.

Where inputs (requests) do not depend on actions, the luck of a rollout's inputs affects policy and
heuristic alike. The shadow starts in the state of the policy's environment at the start of a
rollout, and its advantages, of its rewards and of V at its observations, are subtracted from the
policy's. The policy's actions in the rollout do not change them, so the expected gradient stays
the same, whatever the critic and lambda are (Mao et al. 2019, "Variance reduction for
reinforcement learning in input-driven environments", theorem 1). A critic of the difference of
rewards would not do: it sees the policy's state alone, and where lambda is below 1 it would credit
actions with mere information about the shadow. So the critic, rewards and scores stay as they are.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .acting import look_ahead
from .advantages import Steps, gae
from .envs.contract import Environment, ShadowedEnvironment
from .hypers import Hypers
from .lane_state import LaneState
from .plan import Plan
from .pytree import Pytree, over_lanes, pytree, where
from .trajectory import ShadowSteps, Trajectory, forget


@pytree
class Shadow(Pytree):
    env_state: Any
    observation: Any
    memory: Any  # of recurrent networks that watch them, else ()

    def restarted(self, plan: Plan, ended: Bool[Array, "L E"], state: LaneState) -> Shadow:
        return Shadow(
            where(ended, state.env_state, self.env_state),
            where(ended, state.observation, self.observation),
            forget(plan, ended, self.memory),
        )


def has_shadow(env: Environment) -> bool:
    return isinstance(env, ShadowedEnvironment) and env.has_shadow


def begin_shadow(env: Environment, state: LaneState) -> Shadow | None:
    if not has_shadow(env):
        return None
    return Shadow(state.env_state, state.observation, state.carry)


def step_shadow(
    plan: Plan, env: Environment, hypers: Hypers, state: LaneState, shadow: Shadow, keys: Array
) -> tuple[Shadow, ShadowSteps]:
    assert isinstance(env, ShadowedEnvironment)
    look = over_lanes(lambda h, s, o, m: look_ahead(plan, h, s, o, m))
    value, memory = look(hypers, state, shadow.observation, shadow.memory)
    serve = jax.vmap(env.shadow_step, in_axes=(0, 0, None))
    after = over_lanes(serve)(keys, shadow.env_state, hypers.env_params)
    cut = after.truncated & ~after.terminated
    nothing = jnp.zeros(after.reward.shape, jnp.float32)

    def final() -> Float[Array, "L E"]:
        return jnp.where(cut, look(hypers, state, after.observation, memory)[0], 0.0)

    bootstrap = nothing
    if not env.never_ends:
        branches = plan.backend.branches
        bootstrap = jax.lax.cond(jnp.any(cut), final, lambda: nothing) if branches else final()
    seen = ShadowSteps(value=value, reward=after.reward, bootstrap=bootstrap)
    return Shadow(after.state, after.observation, memory), seen


def last_value(
    plan: Plan, hypers: Hypers, state: LaneState, shadow: Shadow | None
) -> Float[Array, "L E"] | None:
    if shadow is None:
        return None
    look = over_lanes(lambda h, s, o, m: look_ahead(plan, h, s, o, m)[0])
    return look(hypers, state, shadow.observation, shadow.memory)


def shadow_advantages(
    plan: Plan,
    hypers: Hypers,
    rewards: Float[Array, "T E"],
    seen: Trajectory,
    last: Float[Array, " E"],
    gae_lambda: Float[Array, ""],
) -> Float[Array, "T E"]:
    """Return `shadow_weight` times one lane's advantages along its shadows, `last` their V."""
    shadow = seen.shadow
    assert shadow is not None
    following = jnp.concatenate([shadow.value[1:], last[None]])
    following = jnp.where(seen.truncated, shadow.bootstrap, following)
    steps = Steps(rewards, shadow.value, following, seen.terminated, seen.truncated)
    unroll = plan.backend.advantage_unroll
    return hypers.shadow_weight * gae(steps, hypers.gamma, gae_lambda, unroll)
