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
from jaxtyping import Array, Bool, Float, UInt32

from .. import policy
from ..acting import act_to_learn, value_of
from ..envs import registry as environments
from ..hypers import Hypers
from ..lane_state import LaneState
from ..metrics import Metrics
from ..plan import Plan
from ..pytree import Leaf, Pytree, over_lanes, pytree
from ..refill import Lanes, refill_lanes
from ..rollout import draw
from ..trajectory import EpisodeSums, Rollout, Trajectory, count_step, forget
from ..update import inspect_rollout, learn

_LANES, _TIME_FIRST, _EVERYWHERE = (
    PartitionSpec("lanes"),
    PartitionSpec(None, "lanes"),
    PartitionSpec(),
)


@pytree
class HostActions(Pytree):
    """What the policy did, [T, L, E, ...]; of one step without the first axis.

    Attributes:
        observation: acted on (with words for dropout, where that is on).
        action: of the policy.
        log_prob: of the action.
        value: V(s).
    """

    observation: Any
    action: Array
    log_prob: Float[Array, "..."]
    value: Float[Array, "..."]


@pytree
class HostRollout(Pytree):
    """What a rollout has on the devices so far, [T, L, E, ...].

    Attributes:
        noise: of the actions, drawn for the whole rollout.
        words: likewise; for what else is random in acting.
        done: what the policy did.
        bootstrap: V of the final observation where an episode was cut, else 0.
    """

    noise: Array
    words: UInt32[Array, "T L E 2"]
    done: HostActions
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
    words: Array
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
        """`act(lanes, memory, rollout, step, observation, ended) -> (memory, rollout, action)`.

        Takes one step's actions, as the environments take them. `memory` is that of recurrent
        networks, `ended` [L, E] says where an episode ended in the step before; the rollout is
        donated.
        """
        plan = self.plan

        def local(
            lanes: Lanes, memory: Any, rollout: HostRollout,
            step: Array, observation: Array, ended: Array,
        ) -> tuple[Any, HostRollout, Array]:  # fmt: skip
            actor = _actor(lanes, forget(plan, ended, memory), rollout, step, observation)
            row, memory, taken = self._in_tiles(_act, actor)
            done = jax.tree.map(lambda all_, one: _put(all_, one, step), rollout.done, row)
            return memory, rollout.replace(done=done), taken

        into = (_LANES, _LANES, _TIME_FIRST, _EVERYWHERE, _LANES, _LANES)
        return self._spread(local, into, (_LANES, _TIME_FIRST, _LANES), 2)

    @cached_property
    def cut(self) -> Any:
        """`cut(lanes, memory, rollout, step, final, mask) -> rollout`: bootstrap what was cut.

        `final` [L, E, ...] are last observations where `mask` [L, E]; the rollout is donated.
        """

        def local(
            lanes: Lanes, memory: Any, rollout: HostRollout,
            step: Array, final: Array, mask: Array,
        ) -> HostRollout:  # fmt: skip
            value = self._in_tiles(_value, _actor(lanes, memory, rollout, step, final))
            known = jnp.where(mask, value, 0.0)
            return rollout.replace(bootstrap=_put(rollout.bootstrap, known, step))

        into = (_LANES, _LANES, _TIME_FIRST, _EVERYWHERE, _LANES, _LANES)
        return self._spread(local, into, _TIME_FIRST, 2)

    @cached_property
    def learn(self) -> Any:
        """`learn(lanes, busy, refused, memory, after, rollout, steps) -> (lanes, metrics [L])`.

        `memory` and the observations `after` [L, E, ...] are those that follow the rollout. Tiles
        without a busy lane rest, `refused` lanes count as diverged; lanes are donated.
        """
        plan, tile = self.plan, self.tile

        def one(
            lanes: Lanes, busy: Array, memory: Any, after: Array,
            rollout: HostRollout, steps: HostSteps,
        ) -> tuple[LaneState, Metrics]:  # fmt: skip
            def run() -> tuple[LaneState, Metrics]:
                played = _played(plan, lanes, memory, after, rollout, steps)
                return learn(plan, lanes.hypers, played)

            def rest() -> tuple[LaneState, Metrics]:
                shapes = jax.eval_shape(run)[1]
                return lanes.state, jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)

            return jax.lax.cond(jnp.any(busy), run, rest)

        def local(
            lanes: Lanes, busy: Array, refused: Array, memory: Any, after: Array,
            rollout: HostRollout, steps: HostSteps,
        ) -> tuple[Lanes, Metrics]:  # fmt: skip
            count = busy.shape[0] // tile  # tiles

            def lanes_first(x: Array) -> Array:
                return x.reshape((count, tile, *x.shape[1:]))

            def time_first(x: Array) -> Array:
                return jnp.moveaxis(x.reshape((x.shape[0], count, tile, *x.shape[2:])), 1, 0)

            def joined(tree: Any) -> Any:
                return jax.tree.map(lambda x: x.reshape((count * tile, *x.shape[2:])), tree)

            by_lane = jax.tree.map(lanes_first, (lanes, busy, memory, after))
            by_time = jax.tree.map(time_first, (rollout, steps))
            states, metrics = jax.lax.map(lambda tiles: one(*tiles), (*by_lane, *by_time))
            rows: Metrics = joined(metrics)
            rows = rows.replace(diverged=rows.diverged | refused)
            return Lanes(lanes.hypers, joined(states)), rows

        into = (_LANES, _LANES, _LANES, _LANES, _LANES, _TIME_FIRST, _TIME_FIRST)
        return self._spread(local, into, (_LANES, _LANES), 0)

    def _in_tiles(self, function: Callable[[Plan, _Actor], Any], actor: _Actor) -> Any:
        """Map a function of one lane over all lanes of a device, tile by tile."""
        tile, count = self.tile, actor.observation.shape[0] // self.tile
        tiled = jax.tree.map(lambda x: x.reshape((count, tile, *x.shape[1:])), actor)
        found = jax.lax.map(over_lanes(lambda lane: function(self.plan, lane)), tiled)
        return jax.tree.map(lambda x: x.reshape((count * tile, *x.shape[2:])), found)


def _actor(
    lanes: Lanes, memory: Any, rollout: HostRollout, step: Array, observation: Array
) -> _Actor:
    """Leave out what acting does not need, which would be copied tile by tile."""
    noise, words = (
        jax.lax.dynamic_index_in_dim(rows, step, keepdims=False)
        for rows in (rollout.noise, rollout.words)
    )
    state = lanes.state.replace(moments=(), carry=memory)
    return _Actor(lanes.hypers, state, noise, words, observation)


def _put(rows: Array, row: Array, step: Array) -> Array:
    return jax.lax.dynamic_update_index_in_dim(rows, row.astype(rows.dtype), step, 0)


def _begin(plan: Plan, lanes: Lanes) -> HostRollout:
    """Draw the random numbers of a rollout, and make room for what happens in it."""
    env = environments.make(plan.env)
    noise, words = over_lanes(lambda state: draw(plan, env, state), out_axes=1)(lanes.state)
    actor = _Actor(lanes.hypers, lanes.state, noise[0], words[0], lanes.state.observation)
    shapes, _, _ = jax.eval_shape(over_lanes(lambda lane: _act(plan, lane)), actor)

    def room(row: Any) -> Array:
        return jnp.zeros((plan.rollout_length, *row.shape), row.dtype)

    done = jax.tree.map(room, shapes)
    return HostRollout(noise=noise, words=words, done=done, bootstrap=room(shapes.value))


def _act(plan: Plan, actor: _Actor) -> tuple[HostActions, Any, Array]:
    """Return one lane's rows [E, ...], its memory, and its environments' actions."""
    env = environments.make(plan.env)
    shown = policy.keyed(plan, actor.observation, actor.words)
    acted = act_to_learn(plan, env, actor.hypers, actor.state, shown, None, actor.noise)
    row = HostActions(shown, acted.action, acted.log_prob, acted.value)
    return row, acted.memory, acted.taken


def _value(plan: Plan, actor: _Actor) -> Float[Array, " E"]:
    return value_of(plan, actor.hypers, actor.state, actor.observation)


def look_function(plan: Plan) -> Callable[..., dict[str, Any]]:
    """Return the function, to be compiled, by which a rollout of one lane is looked at.

    `look(hypers, lanes, memory, after, rollout, steps)`: hypers are scalars, all others as for
    `Functions.learn`, with the one lane.
    """

    def look(hypers: Hypers, lanes: Lanes, *played: Any) -> dict[str, Any]:
        return inspect_rollout(plan, hypers, _played(plan, lanes, *played))

    return look


def _played(
    plan: Plan, lanes: Lanes, memory: Any, after: Array, rollout: HostRollout, steps: HostSteps
) -> Rollout:
    """Return what `core.rollout.rollout` does, of a rollout of a tile of lanes."""
    before = jax.tree.map(lambda x: x[None], lanes.state.carry)
    state, sums = _counted(lanes.state, steps)
    ended = jnp.asarray(steps.terminated[-1] | steps.truncated[-1])
    state = state.replace(observation=after, carry=forget(plan, ended, memory))

    def value(hypers: Hypers, state: LaneState) -> Array:
        return value_of(plan, hypers, state, state.observation)

    last = over_lanes(value)(lanes.hypers, state)
    trajectory = Trajectory(
        observation=rollout.done.observation,
        action=rollout.done.action,
        mask=None,
        log_prob=rollout.done.log_prob,
        value=rollout.done.value,
        reward=steps.reward,
        terminated=steps.terminated,
        truncated=steps.truncated,
        bootstrap=rollout.bootstrap,
        carry=before,
    )
    return Rollout(state, trajectory, sums, last)


def _counted(state: LaneState, steps: HostSteps) -> tuple[LaneState, EpisodeSums]:
    """Count the episodes that ended in a rollout [T, L, E]."""

    def step(carry: tuple[LaneState, EpisodeSums], seen: Any) -> Any:
        return count_step(*carry, *seen), None

    start = (state, EpisodeSums.of_none(state.updates.shape[0]))
    ended = steps.terminated | steps.truncated
    (state, sums), _ = jax.lax.scan(step, start, (steps.reward, ended))
    return state, sums
