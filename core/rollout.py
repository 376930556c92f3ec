"""T steps of E environments in each of L lanes, loops outside and `vmap` inside.

All arrays lead with the lane axis except a rollout's, which lead with time. Real conditionals over
the whole tile skip resets and bootstrap values in steps where no episode ends; what a lane gets
never depends on whether a neighbour took the branch.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from . import policy
from .envs import registry as environments
from .envs.bodies import agents_of, mask_all, per_body, reset_all, step_all
from .envs.contract import Environment, Step
from .hypers import Hypers
from .masking import valid_mass_of
from .over_lanes import over_lanes
from .plan import Plan
from .pytree import Pytree, pytree
from .state import LaneState, use_key

__all__ = ["EpisodeSums", "Trajectory", "forget", "rollout", "rollout_told"]

ROLLOUT_NOISE, ROLLOUT_STEPS = 1, 2  # uses of a lane's key; see also epochs.py, population.py
_RESET_WORD = np.uint32(0x9E3779B9)


@pytree
class Trajectory(Pytree):
    """One rollout, [T, L, E, ...]; with several bodies an environment E counts segments.

    Attributes:
        observation: raw, as the environment gave it (with words for dropout, where that is on).
        action: taken.
        mask: valid actions, or None.
        log_prob: of the action.
        value: V(s).
        reward: as the environment gave it.
        terminated: the episode ended by its rules.
        truncated: it was cut.
        bootstrap: V of the final observation where it was cut, else 0.
        carry: memory of recurrent networks before the first step, [1, L, E, ...]; else ().
        valid_mass: probability that the raw policy gives to valid actions (0 where there are
            none), or None without masks.
        info: what the environment said besides, by name [T, L, E]; only where somebody looks.
    """

    observation: Any
    action: Array
    mask: Bool[Array, "... L E A"] | None
    log_prob: Float[Array, "... L E"]
    value: Float[Array, "... L E"]
    reward: Float[Array, "... L E"]
    terminated: Bool[Array, "... L E"]
    truncated: Bool[Array, "... L E"]
    bootstrap: Float[Array, "... L E"]
    carry: Any = ()
    valid_mass: Float[Array, "... L E"] | None = None
    info: Any = ()


@pytree
class EpisodeSums(Pytree):
    """Sums over the episodes that ended, and over all steps for `info`, [L]."""

    episodes: Float[Array, " L"]
    returns: Float[Array, " L"]
    lengths: Float[Array, " L"]
    info: dict[str, Float[Array, " L"]]


def rollout(
    plan: Plan, hypers: Hypers, state: LaneState
) -> tuple[LaneState, Trajectory, EpisodeSums, Float[Array, "L E"]]:
    """Return the lanes after T steps, the trajectory, sums, and V of the observation after it.

    With dropout, acting drops what learning will; bootstrap values drop nothing.
    """
    return rollout_told(plan, hypers, state)[:4]


def rollout_told(
    plan: Plan, hypers: Hypers, state: LaneState
) -> tuple[LaneState, Trajectory, EpisodeSums, Float[Array, "L E"], dict[str, Array]]:
    """Return what `rollout` does, and the environments' `info` of each step, [T, L, E]."""
    env = environments.make(plan.env)
    noise, words = over_lanes(lambda s: _draw(plan, env, s), out_axes=1)(state)
    zero = jnp.zeros(state.updates.shape, jnp.float32)

    def step(carry: tuple[LaneState, EpisodeSums], random: tuple[Array, Array]) -> Any:
        lanes, sums = carry
        lanes, sums, seen, info = _step(plan, env, hypers, lanes, sums, *random)
        return (lanes, sums), (seen, info)

    remembered = jax.tree.map(lambda x: x[None], state.carry)
    start = (state, EpisodeSums(zero, zero, zero, {}))
    (state, sums), (trajectory, info) = jax.lax.scan(step, start, (noise, words))
    sums = _per_episode(env, sums)
    trajectory = trajectory.replace(carry=remembered)
    sums = sums.replace(info=jax.tree.map(lambda x: jnp.sum(x, axis=(0, 2)), info))
    last = over_lanes(lambda h, s: _value(plan, h, s, s.observation))(hypers, state)
    return state, trajectory, sums, last, info


def _per_episode(env: Environment, sums: EpisodeSums) -> EpisodeSums:
    """Count an episode once, however many bodies saw it end; its return is their mean."""
    agents = agents_of(env)
    if agents == 1:
        return sums
    return sums.replace(
        episodes=sums.episodes / agents,
        returns=sums.returns / agents,
        lengths=sums.lengths / agents,
    )


def _draw(plan: Plan, env: Environment, state: LaneState) -> tuple[Array, Array]:
    """Draw one lane's random numbers of a rollout: action noise and raw step keys, time first."""
    batch = (plan.rollout_length, plan.num_envs)
    noise = policy.draw_noise(
        plan,
        env,
        use_key(state.key, ROLLOUT_NOISE, state.updates),
        (plan.rollout_length, plan.num_envs * agents_of(env)),
    )
    words = jax.random.bits(use_key(state.key, ROLLOUT_STEPS, state.updates), (*batch, 2))
    return noise, words


def _value(plan: Plan, hypers: Hypers, state: LaneState, observation: Any) -> Float[Array, " E"]:
    seen = policy.normalised(plan, hypers, state.observation_statistics, observation)
    return policy.step(plan, state.params, seen, state.carry)[0].value


def _step(
    plan: Plan,
    env: Environment,
    hypers: Hypers,
    state: LaneState,
    sums: EpisodeSums,
    noise: Array,
    words: Array,
) -> tuple[LaneState, EpisodeSums, Trajectory, dict[str, Array]]:
    shown = policy.keyed(plan, state.observation, _words_of_segments(env, words))

    def act(hypers: Hypers, state: LaneState, shown: Any, noise: Array) -> tuple[Any, ...]:
        valid_mass = None
        seen = policy.normalised(plan, hypers, state.observation_statistics, shown)
        mask = mask_all(env, state.env_state, hypers.env_params)
        outputs, carry = policy.step(plan, state.params, seen, state.carry)
        distribution = policy.distribution_of(plan, hypers, state.params, outputs, mask)
        action = distribution.sample(noise)
        if mask is not None:
            logits = policy.raw_logits(plan, env, outputs.policy)
            valid_mass = valid_mass_of(logits, mask, policy.component_sizes(env))
        return action, mask, distribution.log_prob(action), outputs.value, carry, valid_mass

    acted = over_lanes(act)(hypers, state, shown, noise)
    action, mask, log_prob, value, carry, valid_mass = acted
    state = state.replace(carry=carry)
    step_keys = jax.random.wrap_key_data(words, impl="threefry2x32")
    taken = policy.environment_action(plan, env, action)
    after = over_lanes(lambda *lane: step_all(env, *lane))(
        step_keys, state.env_state, taken, hypers.env_params
    )
    terminated, truncated = per_body(env, after.terminated), per_body(env, after.truncated)
    ended = terminated | truncated
    bootstrap = _bootstrap(plan, env, hypers, state, after)
    episode_return = state.episode_return + after.reward
    episode_length = state.episode_length + 1
    gone = ended.astype(jnp.float32)
    sums = sums.replace(
        episodes=sums.episodes + jnp.sum(gone, axis=-1),
        returns=sums.returns + jnp.sum(gone * episode_return, axis=-1),
        lengths=sums.lengths + jnp.sum(gone * episode_length.astype(jnp.float32), axis=-1),
    )
    env_state, observation = _reset(env, hypers, words, after)
    new = state.replace(
        env_state=env_state,
        observation=observation,
        carry=forget(plan, ended, carry),
        episode_return=jnp.where(ended, 0.0, episode_return),
        episode_length=jnp.where(ended, 0, episode_length),
    )
    trajectory = Trajectory(
        observation=shown,
        action=action,
        mask=mask,
        log_prob=log_prob,
        value=value,
        reward=after.reward,
        terminated=terminated,
        truncated=truncated,
        bootstrap=bootstrap,
        valid_mass=valid_mass,
    )
    return new, sums, trajectory, after.info


def _bootstrap(
    plan: Plan, env: Environment, hypers: Hypers, state: LaneState, after: Step
) -> Float[Array, "L E"]:
    """Return V of the final observation where an episode was cut (and did not end), else 0."""
    nothing = jnp.zeros(after.reward.shape, jnp.float32)
    if env.never_ends:
        return nothing
    cut = per_body(env, after.truncated & ~after.terminated)

    def values() -> Float[Array, "L E"]:
        final = over_lanes(lambda h, s, o: _value(plan, h, s, o))(hypers, state, after.observation)
        return jnp.where(cut, final, 0.0)

    return jax.lax.cond(jnp.any(cut), values, lambda: nothing)


def _reset(env: Environment, hypers: Hypers, words: Array, after: Step) -> tuple[Any, Any]:
    """Replace ended episodes by fresh ones; keys are the step's with one word changed."""
    ended = after.terminated | after.truncated
    going = (after.state, after.observation)
    if env.never_ends:
        return going

    def fresh() -> tuple[Any, Any]:
        reset_words = words.at[..., 1].set(words[..., 1] ^ _RESET_WORD)
        keys = jax.random.wrap_key_data(reset_words, impl="threefry2x32")
        made = over_lanes(lambda *lane: reset_all(env, *lane))(keys, hypers.env_params)
        state = _pick(ended, made[0], going[0])
        return state, _pick(per_body(env, ended), made[1], going[1])

    return jax.lax.cond(jnp.any(ended), fresh, lambda: going)


def _pick(ended: Bool[Array, "L E"], new: Any, old: Any) -> Any:
    def one(a: Array, b: Array) -> Array:
        return jnp.where(ended.reshape(ended.shape + (1,) * (a.ndim - 2)), a, b)

    return jax.tree.map(one, new, old)


def _words_of_segments(env: Environment, words: Array) -> Array:
    """Return words [L, S, 2] of each body from those of environments [L, E, 2]."""
    agents = agents_of(env)
    if agents == 1:
        return words
    bodies = jnp.tile(jnp.arange(agents, dtype=jnp.uint32), words.shape[1])
    return jnp.repeat(words, agents, axis=1) ^ jnp.stack([bodies, bodies], -1)[None]


def forget(plan: Plan, ended: Bool[Array, "L E"], carry: Any) -> Any:
    """Empty the memory where an episode ended."""
    return _pick(ended, policy.initial_carry(plan, ended.shape), carry)
