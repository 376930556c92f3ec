"""The compiled halves of an update whose environments the host steps: act, and learn.

What the policy did stays on the devices, time first; per step an observation goes in and an action
comes out. As in `population`, lanes are spread over devices and run there in tiles of a fixed
number of lanes, so that a lane's bits depend on nothing beside it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, Float

from .. import policy
from ..distributions import draw_noise
from ..envs import registry as environments
from ..metrics import Metrics
from ..population import Lanes, refill_lanes
from ..pytree import Pytree, pytree
from ..rollout import ROLLOUT_NOISE, EpisodeSums, Trajectory
from ..state import Hypers, LaneState, Leaf, Plan, use_key
from ..update import learn

__all__ = ["Functions", "HostRollout", "HostSteps"]

_LANES, _TIME_FIRST, _EVERYWHERE = (
    PartitionSpec("lanes"),
    PartitionSpec(None, "lanes"),
    PartitionSpec(),
)


@pytree
class HostRollout(Pytree):
    """What the policy did so far, [T, L, E, ...].

    Attributes:
        noise: of the actions, drawn for the whole rollout.
        observation: acted on.
        action: of the policy.
        log_prob: of the action.
        value: V(s).
        bootstrap: V of the final observation where an episode was cut, else 0.
    """

    noise: Array
    observation: Array
    action: Array
    log_prob: Float[Array, "T L E"]
    value: Float[Array, "T L E"]
    bootstrap: Float[Array, "T L E"]


@pytree
class HostSteps(Pytree):
    """What the environments answered, [T, L, E]."""

    reward: Float[Leaf, "T L E"]
    terminated: Bool[Leaf, "T L E"]
    truncated: Bool[Leaf, "T L E"]


@pytree
class _Actor(Pytree):
    """What acting needs of lanes, [L, ...]."""

    hypers: Hypers
    state: LaneState
    noise: Array
    observation: Array


@dataclasses.dataclass(frozen=True, eq=False)
class Functions:
    """The jitted functions of a plan.

    Attributes:
        plan: the static part.
        mesh: that lanes are spread over.
        tile: lanes a tile.
    """

    plan: Plan
    mesh: Mesh
    tile: int

    def _spread(self, function: Callable[..., Any], into: Any, out: Any, donate: Any = ()) -> Any:
        mapped = jax.shard_map(
            function, mesh=self.mesh, in_specs=into, out_specs=out, check_vma=False
        )
        given = jax.tree.map(lambda spec: NamedSharding(self.mesh, spec), into)
        return jax.jit(mapped, in_shardings=given, donate_argnums=donate)

    @cached_property
    def start(self) -> Any:
        """`start(seed, lanes, refills) -> lanes`: begin replicates where the mask says so."""
        return self._spread(
            lambda *args: refill_lanes(self.plan, *args),
            (_EVERYWHERE, _LANES, _LANES, _EVERYWHERE),
            _LANES,
            1,
        )

    @cached_property
    def begin(self) -> Any:
        """`begin(lanes) -> rollout`: draw the noise of a rollout, and make room for the rest."""
        return self._spread(lambda lanes: _begin(self.plan, lanes), (_LANES,), _TIME_FIRST)

    @cached_property
    def act(self) -> Any:
        """`act(lanes, rollout, step, observation) -> (rollout, action)`: take one step's actions.

        The action is the environment's; the rollout is donated.
        """

        def local(lanes: Lanes, rollout: HostRollout, step: Array, observation: Array) -> Any:
            noise = jax.lax.dynamic_index_in_dim(rollout.noise, step, keepdims=False)
            actor = _actor(lanes, noise, observation)
            action, log_prob, value, taken = self._in_tiles(_act, actor)
            rows = rollout.replace(
                observation=_put(rollout.observation, observation, step),
                action=_put(rollout.action, action, step),
                log_prob=_put(rollout.log_prob, log_prob, step),
                value=_put(rollout.value, value, step),
            )
            return rows, taken

        into = (_LANES, _TIME_FIRST, _EVERYWHERE, _LANES)
        return self._spread(local, into, (_TIME_FIRST, _LANES), 1)

    @cached_property
    def cut(self) -> Any:
        """`cut(lanes, rollout, step, final, mask) -> rollout`: bootstrap episodes cut in a step.

        `final` [L, E, ...] are last observations where `mask` [L, E]; the rollout is donated.
        """

        def local(
            lanes: Lanes, rollout: HostRollout, step: Array, final: Array, mask: Array
        ) -> HostRollout:
            noise = jax.lax.dynamic_index_in_dim(rollout.noise, step, keepdims=False)
            value = self._in_tiles(_value, _actor(lanes, noise, final))
            known = jnp.where(mask, value, 0.0)
            return rollout.replace(bootstrap=_put(rollout.bootstrap, known, step))

        into = (_LANES, _TIME_FIRST, _EVERYWHERE, _LANES, _LANES)
        return self._spread(local, into, _TIME_FIRST, 1)

    @cached_property
    def learn(self) -> Any:
        """`learn(lanes, busy, refused, rollout, steps, after) -> (lanes, metrics [L])`.

        `after` [L, E, ...] are the observations that follow the rollout. Tiles without a busy lane
        rest, `refused` lanes count as diverged; lanes are donated.
        """
        plan, tile = self.plan, self.tile

        def one(
            lanes: Lanes, busy: Array, after: Array, rollout: HostRollout, steps: HostSteps
        ) -> tuple[LaneState, Metrics]:
            def run() -> tuple[LaneState, Metrics]:
                return _learn(plan, lanes, rollout, steps, after)

            def rest() -> tuple[LaneState, Metrics]:
                shapes = jax.eval_shape(run)[1]
                return lanes.state, jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)

            return jax.lax.cond(jnp.any(busy), run, rest)

        def local(
            lanes: Lanes, busy: Array, refused: Array,
            rollout: HostRollout, steps: HostSteps, after: Array,
        ) -> tuple[Lanes, Metrics]:  # fmt: skip
            count = busy.shape[0] // tile

            def lanes_first(x: Array) -> Array:
                return x.reshape((count, tile, *x.shape[1:]))

            def time_first(x: Array) -> Array:
                return jnp.moveaxis(x.reshape((x.shape[0], count, tile, *x.shape[2:])), 1, 0)

            def split(tree: Any, how: Callable[[Array], Array]) -> Any:
                return jax.tree.map(how, tree)

            tiled = split((lanes, busy, after), lanes_first), split((rollout, steps), time_first)
            states, metrics = jax.lax.map(lambda args: one(*args[0], *args[1]), tiled)

            def joined(tree: Any) -> Any:
                return jax.tree.map(lambda x: x.reshape((count * tile, *x.shape[2:])), tree)

            rows: Metrics = joined(metrics)
            rows = rows.replace(diverged=rows.diverged | refused)
            return Lanes(lanes.hypers, joined(states)), rows

        into = (_LANES, _LANES, _LANES, _TIME_FIRST, _TIME_FIRST, _LANES)
        return self._spread(local, into, (_LANES, _LANES), 0)

    def _in_tiles(self, function: Callable[[Plan, _Actor], Any], actor: _Actor) -> Any:
        """Map a function of one lane over all lanes of a device, tile by tile."""
        tile, count = self.tile, actor.observation.shape[0] // self.tile
        tiled = jax.tree.map(lambda x: x.reshape((count, tile, *x.shape[1:])), actor)
        found = jax.lax.map(jax.vmap(lambda lane: function(self.plan, lane)), tiled)
        return jax.tree.map(lambda x: x.reshape((count * tile, *x.shape[2:])), found)


def _actor(lanes: Lanes, noise: Array, observation: Array) -> _Actor:
    """Leave out what acting does not need, which would be copied tile by tile."""
    return _Actor(lanes.hypers, lanes.state.replace(moments=()), noise, observation)


def _put(rows: Array, row: Array, step: Array) -> Array:
    return jax.lax.dynamic_update_index_in_dim(rows, row.astype(rows.dtype), step, 0)


def _begin(plan: Plan, lanes: Lanes) -> HostRollout:
    env = environments.make(plan.env)
    batch = (plan.rollout_length, plan.num_envs)
    kind, shape = policy.distribution_kind(plan, env), policy.action_shape(env)

    def draw(state: LaneState) -> Array:
        return draw_noise(kind, use_key(state.key, ROLLOUT_NOISE, state.updates), batch, shape)

    noise = jax.vmap(draw, out_axes=1)(lanes.state)
    actor = _actor(lanes, noise[0], lanes.state.observation)
    action, log_prob, value, _ = jax.eval_shape(jax.vmap(lambda lane: _act(plan, lane)), actor)

    def room(row: Any) -> Array:
        return jnp.zeros((plan.rollout_length, *row.shape), row.dtype)

    return HostRollout(
        noise=noise,
        observation=room(lanes.state.observation),
        action=room(action),
        log_prob=room(log_prob),
        value=room(value),
        bootstrap=room(value),
    )


def _act(plan: Plan, actor: _Actor) -> tuple[Array, Array, Array, Array]:
    """Give one lane's actions [E], log probabilities, values, and what the environments take."""
    hypers, state = actor.hypers, actor.state
    seen = policy.normalised(plan, hypers, state.observation_statistics, actor.observation)
    outputs = policy.apply(plan, state.params, seen)
    distribution = policy.distribution_of(plan, hypers, state.params, outputs, None)
    action = distribution.sample(actor.noise)
    taken = policy.environment_action(plan, environments.make(plan.env), action)
    return action, distribution.log_prob(action), outputs.value, taken


def _value(plan: Plan, actor: _Actor) -> Float[Array, " E"]:
    hypers, state = actor.hypers, actor.state
    seen = policy.normalised(plan, hypers, state.observation_statistics, actor.observation)
    return policy.apply(plan, state.params, seen).value


def _learn(
    plan: Plan, lanes: Lanes, rollout: HostRollout, steps: HostSteps, after: Array
) -> tuple[LaneState, Metrics]:
    """Learn from one rollout of a tile of lanes."""
    state, sums = _account(lanes.state, steps)
    state = state.replace(observation=after)
    last = jax.vmap(lambda h, s: _value(plan, _Actor(h, s, s.key, s.observation)))(
        lanes.hypers, state
    )
    trajectory = Trajectory(
        observation=rollout.observation,
        action=rollout.action,
        mask=None,
        log_prob=rollout.log_prob,
        value=rollout.value,
        reward=steps.reward,
        terminated=steps.terminated,
        truncated=steps.truncated,
        bootstrap=rollout.bootstrap,
    )
    return learn(plan, lanes.hypers, state, trajectory, sums, last)


def _account(state: LaneState, steps: HostSteps) -> tuple[LaneState, EpisodeSums]:
    """Count the episodes that ended in a rollout [T, L, E]."""
    zero = jnp.zeros(state.updates.shape, jnp.float32)

    def step(carry: tuple[LaneState, EpisodeSums], seen: Any) -> Any:
        state, sums = carry
        reward, ended = seen
        episode_return = state.episode_return + reward
        episode_length = state.episode_length + 1
        gone = ended.astype(jnp.float32)
        sums = sums.replace(
            episodes=sums.episodes + jnp.sum(gone, axis=-1),
            returns=sums.returns + jnp.sum(gone * episode_return, axis=-1),
            lengths=sums.lengths + jnp.sum(gone * episode_length.astype(jnp.float32), axis=-1),
        )
        state = state.replace(
            episode_return=jnp.where(ended, 0.0, episode_return),
            episode_length=jnp.where(ended, 0, episode_length),
        )
        return (state, sums), None

    ended = steps.terminated | steps.truncated
    start = (state, EpisodeSums(zero, zero, zero, {}))
    (state, sums), _ = jax.lax.scan(step, start, (steps.reward, ended))
    return state, sums
