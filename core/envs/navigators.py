"""Navigators: agents that steer to separate goals and avoid each other.

In a square of side 2 each agent has a position p, a velocity v and a goal g. Its action a in
[-1, 1]^2 is a thrust:

    v' = (1 - drag dt) v + thrust a dt

    p' = p + v' dt, clipped to the square; a component of v' that hits a wall becomes 0

Agents touch if they are closer than two radii. They pass through each other, at a cost:

    reward = |g - p| - |g - p'| - collision_cost (if it touches another agent after the step)

An episode terminates when all agents are within goal_radius of their goals, and is truncated after
max_steps_in_episode. Agents and goals start in different cells of a grid, so that none touch.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ...errors import ConfigError
from ..pytree import Pytree, pytree
from .contract import ActionSpace, Box, Step
from .foreign import EpisodicEnvironment


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class NavigatorsParams:
    """Parameters that may differ per lane; lengths are in units of half the side."""

    thrust: Any = 2.0  # largest acceleration of each component, per second squared
    drag: Any = 0.5  # share of the velocity lost per second
    dt: Any = 0.1  # seconds per step
    radius: Any = 0.08  # of an agent
    goal_radius: Any = 0.1  # distance at which a goal is reached
    collision_cost: Any = 0.1  # subtracted from the reward of each step in contact


@pytree
class State(Pytree):
    position: Float[Array, "N 2"]
    velocity: Float[Array, "N 2"]
    goal: Float[Array, "N 2"]
    time: Int[Array, ""]


class Navigators(EpisodicEnvironment):
    """The environment described in the module docstring.

    An agent observes float32 [4 + 4 neighbours]: its velocity, the vector to its goal, and the
    relative positions and velocities of its nearest neighbours, nearest first.
    """

    action_space: ActionSpace = Box((-1.0, -1.0), (1.0, 1.0), (2,))
    default_params = NavigatorsParams()

    def __init__(
        self,
        agents: int = 4,
        neighbours: int = 3,
        max_steps_in_episode: int = 100,
        id: str = "navigators",
    ):
        if agents < 2:
            raise ConfigError(f"{id} has agents: {agents}; allowed: 2 or more")
        self.id = id
        self.agents = agents
        self._neighbours = min(neighbours, agents - 1)
        self._limit = max_steps_in_episode
        self.observation_struct = jax.ShapeDtypeStruct((4 + 4 * self._neighbours,), np.float32)

    def reset(self, key: PRNGKeyArray, params: NavigatorsParams) -> tuple[State, Array]:
        bodies, goals = jax.random.split(key)
        position, goal = (_spaced_points(k, self.agents, params.radius) for k in (bodies, goals))
        state = State(position, jnp.zeros_like(position), goal, jnp.int32(0))
        return state, self._observe(state)

    def step(
        self, key: PRNGKeyArray, state: State, action: Array, params: NavigatorsParams
    ) -> Step:
        action = jnp.clip(action, -1.0, 1.0)
        velocity = (1.0 - params.drag * params.dt) * state.velocity
        velocity = velocity + params.thrust * params.dt * action
        free = state.position + velocity * params.dt
        position = jnp.clip(free, -1.0, 1.0)
        velocity = jnp.where(free == position, velocity, 0.0)
        after = State(position, velocity, state.goal, state.time + 1)
        touching = jnp.min(_pairwise_distances(position), axis=-1) < 2.0 * params.radius
        left = _vector_length(state.goal - position)
        arrived = left < params.goal_radius
        closer = _vector_length(state.goal - state.position) - left
        return Step(
            state=after,
            observation=self._observe(after),
            reward=closer - jnp.where(touching, params.collision_cost, 0.0),
            terminated=jnp.all(arrived),
            truncated=after.time >= self._limit,
            info={"touching": _share_of_agents(touching), "arrived": _share_of_agents(arrived)},
        )

    def _observe(self, state: State) -> Float[Array, "N D"]:
        alone = jnp.concatenate([state.velocity, state.goal - state.position], axis=-1)
        if self._neighbours == 0:
            return alone
        nearest = jax.lax.top_k(-_pairwise_distances(state.position), self._neighbours)[1]
        both = jnp.concatenate([state.position, state.velocity], axis=-1)
        relative = both[nearest] - both[:, None, :]
        return jnp.concatenate([alone, relative.reshape((self.agents, -1))], axis=-1)

    def summarise(self, sums: Mapping[str, Array], steps: Array) -> dict[str, Array]:
        return {
            "collision_share": sums["touching"] / steps,
            "arrived_share": sums["arrived"] / steps,
        }


def _spaced_points(key: PRNGKeyArray, count: int, radius: Any) -> Float[Array, "N 2"]:
    side = math.ceil(math.sqrt(count))
    cell, inner = jax.random.split(key)
    order = jnp.argsort(jax.random.uniform(cell, (side * side,), jnp.float32))[:count]
    corner = jnp.stack([order // side, order % side], axis=-1).astype(jnp.float32)
    half = jnp.float32(1.0 / side)
    centre = (2.0 * corner + 1.0) * half - 1.0
    reach = jnp.maximum(half - radius, 0.0)
    return centre + reach * jax.random.uniform(inner, (count, 2), jnp.float32, -1.0, 1.0)


def _vector_length(vectors: Float[Array, "... 2"]) -> Float[Array, "..."]:
    return jnp.sqrt(jnp.sum(jnp.square(vectors), axis=-1))


def _pairwise_distances(position: Float[Array, "N 2"]) -> Float[Array, "N N"]:
    between = _vector_length(position[:, None, :] - position[None, :, :])
    return jnp.where(jnp.eye(position.shape[0], dtype=bool), jnp.inf, between)


def _share_of_agents(flags: Bool[Array, " N"]) -> Float[Array, ""]:
    return jnp.mean(flags.astype(jnp.float32))
