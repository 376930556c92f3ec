"""The compiled halves of an update with host environments: acting and learning.

The policy's outputs stay on the devices, with time as the first axis. Each step only copies
observations to the devices and actions back. As in `population`, lanes are spread over devices and
run in tiles of a fixed number of lanes, so a lane's results are bitwise independent of other
lanes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jaxtyping import Array, Bool, Float, UInt32

from .. import policy, population
from ..envs import registry as environments
from ..hypers import Hypers
from ..lane_state import LaneState
from ..metrics import Metrics
from ..plan import Plan
from ..policy import act_to_learn, value_of
from ..population import EVERYWHERE, LANES, TIME_FIRST, Lanes, in_tiles, refill_lanes, untiled
from ..pytree import Leaf, Pytree, over_lanes, pytree
from ..rollout import EpisodeSums, Rollout, Trajectory, count_step, draw, forget
from ..update import inspect_rollout, learn


@pytree
class HostActions(Pytree):
    observation: Any  # acted on (with words for dropout)
    action: Array
    log_prob: Float[Array, "..."]  # of the action
    value: Float[Array, "..."]  # V(s)


@pytree
class HostRollout(Pytree):
    noise: Array  # of the actions
    words: UInt32[Array, "T L E 2"]  # for other random choices in acting
    done: HostActions
    bootstrap: Float[Array, "T L E"]  # V of the final observation where an episode was cut, else 0


@pytree
class HostSteps(Pytree):
    reward: Float[Leaf, "T L E"]
    terminated: Bool[Leaf, "T L E"]
    truncated: Bool[Leaf, "T L E"]


@pytree
class _Actor(Pytree):
    hypers: Hypers
    state: LaneState
    noise: Array
    words: Array
    observation: Array


def to_act(lanes: Lanes) -> Lanes:
    """Return lanes without the fields that acting ignores, because each array slows down calls."""
    return lanes.replace(state=lanes.state.replace(moments=(), carry=()))


@dataclasses.dataclass(frozen=True, eq=False)
class _MappedCall:
    """A function of pytrees, compiled to take flat lists of their leaves."""

    function: Callable[..., Any]  # its third argument is donated
    shardings: list[NamedSharding]  # of each argument

    def compile(self, given: Sequence[Any], options: Any) -> jax.stages.Compiled:
        """Compile for the `given` arrays or shapes; the compiled call returns a list of leaves."""
        forms = [jax.tree.structure(tree) for tree in given]
        lists = [jax.tree.leaves(tree) for tree in given]

        def on_lists(*lists: list[Array]) -> list[Array]:
            trees = [
                jax.tree.unflatten(form, list_) for form, list_ in zip(forms, lists, strict=True)
            ]
            return jax.tree.leaves(self.function(*trees))

        pairs = zip(self.shardings, lists, strict=True)
        shardings = tuple([sharding] * len(list_) for sharding, list_ in pairs)
        call = jax.jit(on_lists, in_shardings=shardings, donate_argnums=2)
        return call.lower(*lists).compile(compiler_options=options)


class ActingCalls:
    """The compiled functions `act` and `cut` of a rollout, on one or all devices of a program.

    They take lists, because flattening pytrees takes longer than calling a small policy.
    """

    def __init__(self, functions: Functions, given: Sequence[Any], options: Any, moves: bool):
        """`given`: arguments of `Functions.act`; `moves`: whether lanes are on other devices."""
        self.mesh, self.moves = functions.mesh, moves
        self.act = functions.act.compile(given, options)
        self.cut = functions.cut.compile(given, options)
        by_act, by_cut = (call.input_shardings[0][0] for call in (self.act, self.cut))
        pairs = zip(by_act, by_cut, strict=True)  # None: an input that the call does not read
        self.read = [act is not None or cut is not None for act, cut in pairs]

    def start(self, lanes: Lanes, rollout: HostRollout) -> ActingRollout:
        return ActingRollout(self, lanes, rollout)

    def place(self, tree: Any, spec: Any) -> Any:
        if not self.moves:
            return tree
        return jax.device_put(jax.device_get(tree), NamedSharding(self.mesh, spec))


class ActingRollout:
    """A rollout in progress: it acts on observations and records the policy's outputs."""

    def __init__(self, calls: ActingCalls, lanes: Lanes, rollout: HostRollout):
        self._calls = calls
        self._memory, self._memory_form = jax.tree.flatten(lanes.state.carry)
        self._rollout, self._form = jax.tree.flatten(rollout)
        self._memory = calls.place(self._memory, LANES)
        self._rollout = calls.place(self._rollout, TIME_FIRST)
        # moving all arrays would take as long as ten calls
        self._lanes = [
            calls.place(array, LANES) if read else array
            for array, read in zip(jax.tree.leaves(to_act(lanes)), calls.read, strict=True)
        ]

    def act(self, step: jax.Array, observation: np.ndarray, ended: np.ndarray) -> np.ndarray:
        given = (self._lanes, self._memory, self._rollout, [step], [observation], [ended])
        *arrays, action = self._calls.act(*given)
        self._memory = arrays[: len(self._memory)]
        self._rollout = arrays[len(self._memory) :]
        return np.asarray(action)

    def cut(self, step: jax.Array, final: np.ndarray, mask: np.ndarray) -> None:
        given = (self._lanes, self._memory, self._rollout, [step], [final], [mask])
        self._rollout = self._calls.cut(*given)

    def finish(self) -> tuple[Any, HostRollout]:
        """Return the memory and the rollout in a form that the learning devices accept."""
        memory, rollout = self._memory, self._rollout
        if self._calls.moves:
            memory, rollout = jax.device_get((memory, rollout))
        return self._memory_form.unflatten(memory), self._form.unflatten(rollout)


@dataclasses.dataclass(frozen=True, eq=False)
class Functions:
    plan: Plan
    mesh: Mesh
    tile: int  # lanes per tile

    def _jit_over_devices(
        self, function: Callable[..., Any], into: Any, out: Any, donate: Any = ()
    ) -> Any:
        mapped = population.over_devices(function, self.mesh, into, out)
        given = jax.tree.map(lambda spec: NamedSharding(self.mesh, spec), into)
        return jax.jit(mapped, in_shardings=given, donate_argnums=donate)

    @cached_property
    def start(self) -> Any:
        """`start(seed, lanes, refills) -> lanes`: start replicates where the mask is set."""
        into = (EVERYWHERE, LANES, LANES, EVERYWHERE)
        return self._jit_over_devices(lambda *args: refill_lanes(self.plan, *args), into, LANES, 1)

    @cached_property
    def begin(self) -> Any:
        """`begin(lanes) -> rollout`: draw the rollout's noise and allocate the other arrays."""
        return self._jit_over_devices(
            lambda lanes: _begin_rollout(self.plan, lanes), (LANES,), TIME_FIRST
        )

    @cached_property
    def act(self) -> _MappedCall:
        """`act(lanes, memory, rollout, step, observation, ended) -> (memory, rollout, action)`.

        `lanes` come from `to_act`. The action is in the environment's form. `memory` belongs to
        recurrent networks; `ended` [L, E] marks episodes that ended in the previous step. The
        rollout is donated.
        """
        plan = self.plan

        def local(
            lanes: Lanes,
            memory: Any,
            rollout: HostRollout,
            step: Array,
            observation: Array,
            ended: Array,
        ) -> tuple[Any, HostRollout, Array]:
            actor = _acting_inputs(lanes, forget(plan, ended, memory), rollout, step, observation)
            row, memory, taken = self._in_tiles(_actions_of_lane, actor)
            done = jax.tree.map(lambda all_, one: _put_row(all_, one, step), rollout.done, row)
            return memory, rollout.replace(done=done), taken

        return self._mapped_call(local, (LANES, TIME_FIRST, LANES))

    @cached_property
    def cut(self) -> _MappedCall:
        """`cut(lanes, memory, rollout, step, final, mask) -> rollout`: bootstrap truncations."""

        def local(
            lanes: Lanes,
            memory: Any,
            rollout: HostRollout,
            step: Array,
            final: Array,
            mask: Array,
        ) -> HostRollout:
            actor = _acting_inputs(lanes, memory, rollout, step, final)
            value = self._in_tiles(
                lambda plan, one: value_of(plan, one.hypers, one.state, one.observation), actor
            )
            known = jnp.where(mask, value, 0.0)
            return rollout.replace(bootstrap=_put_row(rollout.bootstrap, known, step))

        return self._mapped_call(local, TIME_FIRST)

    def _mapped_call(self, function: Callable[..., Any], out: Any) -> _MappedCall:
        into = (LANES, LANES, TIME_FIRST, EVERYWHERE, LANES, LANES)
        mapped = population.over_devices(function, self.mesh, into, out)
        return _MappedCall(mapped, [NamedSharding(self.mesh, spec) for spec in into])

    @cached_property
    def learn(self) -> Any:
        """`learn(lanes, busy, refused, memory, after, rollout, steps) -> (lanes, metrics [L])`.

        `memory` and the observations `after` [L, E, ...] are those after the rollout. Tiles
        without a busy lane are skipped, and `refused` lanes count as diverged; lanes are donated.
        """
        plan, tile = self.plan, self.tile

        def one(
            lanes: Lanes,
            busy: Array,
            memory: Any,
            after: Array,
            rollout: HostRollout,
            steps: HostSteps,
        ) -> tuple[LaneState, Metrics]:
            def run() -> tuple[LaneState, Metrics]:
                played = _whole_rollout(plan, lanes, memory, after, rollout, steps=steps)
                return learn(plan, lanes.hypers, played)

            return population.unless_idle(busy, run, lanes.state)

        def local(
            lanes: Lanes,
            busy: Array,
            refused: Array,
            memory: Any,
            after: Array,
            rollout: HostRollout,
            steps: HostSteps,
        ) -> tuple[Lanes, Metrics]:
            def time_first(x: Array) -> Array:
                return jnp.moveaxis(x.reshape((x.shape[0], -1, tile, *x.shape[2:])), 1, 0)

            by_lane = in_tiles((lanes, busy, memory, after), tile)
            by_time = jax.tree.map(time_first, (rollout, steps))
            states, metrics = jax.lax.map(lambda tiles: one(*tiles), (*by_lane, *by_time))
            rows: Metrics = untiled(metrics)
            rows = rows.replace(diverged=rows.diverged | refused)
            return Lanes(lanes.hypers, untiled(states)), rows

        into = (LANES, LANES, LANES, LANES, LANES, TIME_FIRST, TIME_FIRST)
        return self._jit_over_devices(local, into, (LANES, LANES), 0)

    def _in_tiles(self, function: Callable[[Plan, _Actor], Any], actor: _Actor) -> Any:
        tiles = in_tiles(actor, self.tile)
        return untiled(jax.lax.map(over_lanes(lambda lane: function(self.plan, lane)), tiles))


def _acting_inputs(
    lanes: Lanes, memory: Any, rollout: HostRollout, step: Array, observation: Array
) -> _Actor:
    """Return only the inputs that acting needs; all others would be copied for each tile."""
    noise, words = (
        jax.lax.dynamic_index_in_dim(rows, step, keepdims=False)
        for rows in (rollout.noise, rollout.words)
    )
    state = lanes.state.replace(carry=memory)
    return _Actor(lanes.hypers, state, noise, words, observation)


def _put_row(rows: Array, row: Array, step: Array) -> Array:
    return jax.lax.dynamic_update_index_in_dim(rows, row.astype(rows.dtype), step, 0)


def _begin_rollout(plan: Plan, lanes: Lanes) -> HostRollout:
    env = environments.make(plan.env)
    noise, words = over_lanes(lambda state: draw(plan, env, state), out_axes=1)(lanes.state)
    actor = _Actor(lanes.hypers, lanes.state, noise[0], words[0], lanes.state.observation)
    shapes, _, _ = jax.eval_shape(over_lanes(lambda lane: _actions_of_lane(plan, lane)), actor)

    def room(row: Any) -> Array:
        return jnp.zeros((plan.rollout_length, *row.shape), row.dtype)

    done = jax.tree.map(room, shapes)
    return HostRollout(noise=noise, words=words, done=done, bootstrap=room(shapes.value))


def _actions_of_lane(plan: Plan, actor: _Actor) -> tuple[HostActions, Any, Array]:
    env = environments.make(plan.env)
    shown = policy.keyed(plan, actor.observation, actor.words)
    acted = act_to_learn(plan, env, actor.hypers, actor.state, shown, mask=None, noise=actor.noise)
    row = HostActions(shown, acted.action, acted.log_prob, acted.value)
    return row, acted.memory, acted.taken


def look_function(plan: Plan) -> Callable[..., dict[str, Any]]:
    """Return the function `look(hypers, lanes, memory, after, rollout, steps)` for one lane."""

    def look(
        hypers: Hypers,
        lanes: Lanes,
        memory: Any,
        after: Array,
        rollout: HostRollout,
        steps: HostSteps,
    ) -> dict[str, Any]:
        played = _whole_rollout(plan, lanes, memory, after, rollout, steps=steps)
        return inspect_rollout(plan, hypers, played)

    return look


def _whole_rollout(
    plan: Plan, lanes: Lanes, memory: Any, after: Array, rollout: HostRollout, *, steps: HostSteps
) -> Rollout:
    before = jax.tree.map(lambda x: x[None], lanes.state.carry)
    ended = steps.terminated | steps.truncated

    def count(carry: Any, step: Any) -> Any:
        return count_step(*carry, *step), None

    start = (lanes.state, EpisodeSums.of_none(lanes.state.updates.shape[0]))
    (state, sums), _ = jax.lax.scan(count, start, (steps.reward, ended))
    state = state.replace(observation=after, carry=forget(plan, jnp.asarray(ended[-1]), memory))

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
