"""T steps of E environments in each of L lanes, loops outside and `vmap` inside.

All arrays lead with the lane axis except a rollout's, which lead with time. Where the backend has
branches, real conditionals over the whole tile skip resets and bootstrap values in steps where no
episode ends. A lane's numbers never depend on whether a neighbour took the branch.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from . import policy
from .acting import Acted, act_to_learn, value_of
from .actions import draw_noise
from .envs import registry as environments
from .envs.contract import Environment, Step, agents_of, mask_all, per_body, reset_all, step_all
from .hypers import Hypers
from .lane_state import LaneState, use_key
from .plan import Plan
from .pytree import over_lanes, where
from .shadow import Shadow, begin_shadow, last_value, step_shadow
from .trajectory import (
    EpisodeSums,
    Rollout,
    Trajectory,
    as_record,
    count_step,
    forget,
    from_record,
)


def values_wait(plan: Plan) -> bool:
    """Return whether a plan's values are computed after the rollout.

    Networks with a memory need it as it was then, and where actor and critic share their layers
    acting has the value at hand.
    """
    return plan.backend.values_after and not (policy.is_recurrent(plan) or plan.shared_encoder)


def with_values(
    plan: Plan, hypers: Hypers, state: LaneState, seen: Trajectory, final: Any
) -> Trajectory:
    """Return a trajectory [T, L, ...] with its values and bootstraps, by the state that acted."""
    value, after = _in_parts(plan, hypers, state, (seen.observation, final))
    cut = seen.truncated & ~seen.terminated
    bootstrap = seen.bootstrap if after is None else jnp.where(cut, after, 0.0)
    return seen.replace(value=value, bootstrap=bootstrap)


def _in_parts(plan: Plan, hypers: Hypers, state: LaneState, trees: Any) -> Any:
    def values(observation: Any) -> Float[Array, "t L S"] | None:
        if observation is None:
            return None
        return over_lanes(lambda h, s, o: value_of(plan, h, s, o), in_axes=(0, 0, 1), out_axes=1)(
            hypers, state, observation
        )

    def part(trees: tuple[Any, Any]) -> tuple[Any, Any]:
        return values(trees[0]), values(trees[1])

    steps = plan.rollout_length
    rows = max(1, plan.minibatch_size // plan.gradient_accumulation)
    fits = [n for n in range(1, steps) if steps // n * plan.num_envs <= rows]
    count = next((n for n in fits if steps % n == 0), steps)
    if count == 1:
        return part(trees)
    split = jax.tree.map(lambda x: x.reshape((count, steps // count, *x.shape[1:])), trees)
    with jax.named_scope("values"):
        made = jax.lax.map(part, split)
    return jax.tree.map(lambda x: x.reshape((steps, *x.shape[2:])), made)


ROLLOUT_NOISE, ROLLOUT_STEPS = 1, 2  # uses of a lane's key; see also epochs.py, refill.py
_RESET_WORD = np.uint32(0x9E3779B9)


def rollout(plan: Plan, hypers: Hypers, state: LaneState) -> Rollout:
    env = environments.make(plan.env)
    noise, words = over_lanes(lambda s: draw(plan, env, s), out_axes=1)(state)

    def step(
        carry: tuple[LaneState, EpisodeSums, Shadow | None], random: tuple[Array, Array]
    ) -> Any:
        *after, seen, info, final = _step(plan, env, hypers, *carry, *random)
        record = as_record(seen) if plan.backend.one_record else seen
        return tuple(after), (record, info, final)

    remembered = jax.tree.map(lambda x: x[None], state.carry)
    trained = state.params
    state = state.replace(params=policy.to_act(plan, trained))
    summed = state.episode_return.shape[: 1 + plan.backend.one_record]
    start = (state, EpisodeSums.of_none(*summed), begin_shadow(env, state))
    (state, sums, shadow), (trajectory, info, final) = jax.lax.scan(step, start, (noise, words))
    if plan.backend.one_record:
        trajectory = from_record(*trajectory)
    if values_wait(plan):
        trajectory = with_values(plan, hypers, state, trajectory, final)
    sums = sums.of_lanes(agents_of(env))
    return Rollout(
        state=state.replace(params=trained),
        trajectory=trajectory.replace(carry=remembered),
        sums=sums.replace(info=jax.tree.map(lambda x: jnp.sum(x, axis=(0, 2)), info)),
        last_value=over_lanes(lambda h, s: value_of(plan, h, s, s.observation))(hypers, state),
        info=info,
        shadow_value=last_value(plan, hypers, state, shadow),
    )


def draw(plan: Plan, env: Environment, state: LaneState) -> tuple[Array, Array]:
    steps, envs = plan.rollout_length, plan.num_envs
    key = use_key(state.key, ROLLOUT_NOISE, state.updates)
    noise = draw_noise(plan, env, key, (steps, envs * agents_of(env)))
    words = jax.random.bits(use_key(state.key, ROLLOUT_STEPS, state.updates), (steps, envs, 2))
    return noise, words


def _step(
    plan: Plan,
    env: Environment,
    hypers: Hypers,
    state: LaneState,
    sums: EpisodeSums,
    shadow: Shadow | None,
    noise: Array,
    words: Array,
) -> tuple[LaneState, EpisodeSums, Shadow | None, Trajectory, dict[str, Array], Any]:
    """Return the lanes after one step, and the step's data.

    Where values wait, they and bootstraps are 0 yet, and the last item are the observations they
    need, as the step gave them; else None.
    """
    shown = policy.keyed(plan, state.observation, _words_of_segments(env, words))

    def one(hypers: Hypers, state: LaneState, shown: Any, noise: Array) -> Acted:
        mask = mask_all(env, state.env_state, hypers.env_params)
        return act_to_learn(plan, env, hypers, state, shown, mask, noise)

    acted = over_lanes(one)(hypers, state, shown, noise)
    state = state.replace(carry=acted.memory)
    step_keys = jax.random.wrap_key_data(words, impl="threefry2x32")
    after = over_lanes(lambda *lane: step_all(env, *lane))(
        step_keys, state.env_state, acted.taken, hypers.env_params
    )
    beside = None
    if shadow is not None:
        shadow, beside = step_shadow(plan, env, hypers, state, shadow, step_keys)
    terminated, truncated = per_body(env, after.terminated), per_body(env, after.truncated)
    ended = terminated | truncated
    waits = values_wait(plan)
    nothing = jnp.zeros(after.reward.shape, jnp.float32)
    bootstrap = nothing if waits else _bootstrap(plan, env, hypers, state, after)
    state, sums = count_step(state, sums, after.reward, ended)
    env_state, observation = _reset(plan, env, hypers, words, after)
    state = state.replace(
        env_state=env_state, observation=observation, carry=forget(plan, ended, acted.memory)
    )
    if shadow is not None and not env.never_ends:
        shadow = shadow.restarted(plan, ended, state)
    trajectory = Trajectory(
        observation=shown,
        action=acted.action,
        mask=acted.mask,
        log_prob=acted.log_prob,
        value=nothing if waits else acted.value,
        reward=after.reward,
        terminated=terminated,
        truncated=truncated,
        bootstrap=bootstrap,
        valid_mass=acted.valid_mass,
        shadow=beside,
    )
    final = after.observation if waits and not env.never_ends else None
    return state, sums, shadow, trajectory, after.info, final


def _bootstrap(
    plan: Plan, env: Environment, hypers: Hypers, state: LaneState, after: Step
) -> Float[Array, "L E"]:
    nothing = jnp.zeros(after.reward.shape, jnp.float32)
    if env.never_ends:
        return nothing
    cut = per_body(env, after.truncated & ~after.terminated)

    def values() -> Float[Array, "L E"]:
        final = over_lanes(lambda h, s, o: value_of(plan, h, s, o))(
            hypers, state, after.observation
        )
        return jnp.where(cut, final, 0.0)

    if not plan.backend.branches:
        return values()
    return jax.lax.cond(jnp.any(cut), values, lambda: nothing)


def _reset(
    plan: Plan, env: Environment, hypers: Hypers, words: Array, after: Step
) -> tuple[Any, Any]:
    """Replace ended episodes by fresh ones; keys are the step's with one word changed."""
    ended = after.terminated | after.truncated
    going = (after.state, after.observation)
    if env.never_ends:
        return going

    def fresh() -> tuple[Any, Any]:
        reset_words = words.at[..., 1].set(words[..., 1] ^ _RESET_WORD)
        keys = jax.random.wrap_key_data(reset_words, impl="threefry2x32")
        made = over_lanes(lambda *lane: reset_all(env, *lane))(keys, hypers.env_params)
        state, observation = made
        return (
            where(ended, state, after.state),
            where(per_body(env, ended), observation, after.observation),
        )

    if not plan.backend.branches:
        return fresh()
    return jax.lax.cond(jnp.any(ended), fresh, lambda: going)


def _words_of_segments(env: Environment, words: Array) -> Array:
    agents = agents_of(env)
    if agents == 1:
        return words
    bodies = jnp.tile(jnp.arange(agents, dtype=jnp.uint32), words.shape[1])
    return jnp.repeat(words, agents, axis=1) ^ jnp.stack([bodies, bodies], -1)[None]
