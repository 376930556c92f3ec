"""Rollouts: T steps of E environments in each of L lanes, with loops outside and `vmap` inside.

All arrays start with the lane axis, except those of a rollout, which start with time. If the
backend supports branches, a whole tile skips resets and bootstrapping in steps where no episode
ends. A lane's numbers never depend on whether a neighbour took the branch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from . import policy
from .advantages import Steps, gae
from .envs import contract
from .envs import registry as environments
from .envs.contract import Environment, ShadowedEnvironment, Step, agents_of, per_body
from .hypers import Hypers
from .lane_state import LaneState, use_key
from .plan import Plan
from .policy import Acted, act_to_learn, draw_noise, look_ahead, value_of
from .pytree import Pytree, over_lanes, pytree, where


@pytree
class ShadowSteps(Pytree):
    value: Float[Array, "... L E"]
    reward: Float[Array, "... L E"]
    bootstrap: Float[Array, "... L E"]  # as in `Trajectory`


@pytree
class Trajectory(Pytree):
    """One rollout, [T, L, E, ...]; if there are several agents, E counts segments."""

    observation: Any  # raw (with words for dropout, if that is on)
    action: Array
    mask: Bool[Array, "... L E A"] | None  # valid actions
    log_prob: Float[Array, "... L E"]
    value: Float[Array, "... L E"]
    reward: Float[Array, "... L E"]  # raw
    terminated: Bool[Array, "... L E"]  # the episode ended by its rules
    truncated: Bool[Array, "... L E"]  # a limit cut the episode
    bootstrap: Float[Array, "... L E"]  # V of the final observation of a cut episode, else 0
    carry: Any = ()  # memory of recurrent networks before the first step, [1, L, E, ...]
    # the raw policy's probability of valid actions, 0 if there are none
    valid_mass: Float[Array, "... L E"] | None = None
    info: Any = ()  # other numbers of the environment, by name [T, L, E]; only for inspection
    shadow: ShadowSteps | None = None


@pytree
class EpisodeSums(Pytree):
    """Sums over finished episodes (`info`: over all steps), [L]; [L, E] during a rollout."""

    episodes: Float[Array, "L *E"]
    returns: Float[Array, "L *E"]
    lengths: Float[Array, "L *E"]
    info: dict[str, Float[Array, " L"]]

    @classmethod
    def of_none(cls, *shape: int) -> EpisodeSums:
        zero = jnp.zeros(shape, jnp.float32)
        return cls(zero, zero, zero, {})

    def of_lanes(self, agents: int) -> EpisodeSums:
        """Return one sum per lane, [L]; an episode counts once, with the mean over its agents."""
        sums = [self.episodes, self.returns, self.lengths]
        if self.episodes.ndim == 2:
            sums = [jnp.sum(x, axis=-1) for x in sums]
        if agents > 1:
            sums = [x / agents for x in sums]
        return EpisodeSums(*sums, self.info)


@pytree
class Rollout(Pytree):
    state: LaneState  # after the rollout, but with the `updates` from before it
    trajectory: Trajectory
    sums: EpisodeSums
    last_value: Float[Array, "L E"]  # V of the observation after the rollout
    # numbers of the environment at each step, by name [T, L, E]
    info: dict[str, Array] = dataclasses.field(default_factory=dict)
    shadow_value: Float[Array, "L E"] | None = None


def count_step(
    state: LaneState, sums: EpisodeSums, reward: Float[Array, "L E"], ended: Bool[Array, "L E"]
) -> tuple[LaneState, EpisodeSums]:
    episode_return = state.episode_return + reward
    episode_length = state.episode_length + 1
    gone = ended.astype(jnp.float32)

    def added(total: Array, part: Float[Array, "L E"]) -> Array:
        if total.ndim == 2:
            return total + part
        return total + jnp.sum(part, axis=-1)

    sums = sums.replace(
        episodes=added(sums.episodes, gone),
        returns=added(sums.returns, gone * episode_return),
        lengths=added(sums.lengths, gone * episode_length.astype(jnp.float32)),
    )
    state = state.replace(
        episode_return=jnp.where(ended, 0.0, episode_return),
        episode_length=jnp.where(ended, 0, episode_length),
    )
    return state, sums


def forget(plan: Plan, ended: Bool[Array, "L E"], memory: Any) -> Any:
    return where(ended, policy.initial_carry(plan, ended.shape), memory)


def as_record(step: Trajectory) -> tuple[Trajectory, Int[Array, "W L E"]]:
    """Split a step into its arrays and its [L, E] scalars, packed as words with flags last."""
    leaves, structure = jax.tree.flatten(step)
    small = [leaf for leaf in leaves if _is_number(leaf)]
    flags = [leaf for leaf in small if leaf.dtype == jnp.bool_]
    rows = [jax.lax.bitcast_convert_type(x, jnp.int32) for x in small if x.dtype != jnp.bool_]
    bits = [flag.astype(jnp.int32) << place for place, flag in enumerate(flags)]
    rest = [jnp.zeros((0,), leaf.dtype) if _is_number(leaf) else leaf for leaf in leaves]
    return structure.unflatten(rest), jnp.stack([*rows, sum(bits[1:], bits[0])])


def from_record(rest: Trajectory, words: Int[Array, "T W L E"]) -> Trajectory:
    leaves, structure = jax.tree.flatten(rest)
    row, place = 0, 0
    for i, leaf in enumerate(leaves):
        if leaf.shape[1:] != (0,):
            continue
        if leaf.dtype == jnp.bool_:
            leaves[i] = (words[:, -1] >> place) & 1 == 1
            place += 1
        else:
            leaves[i] = jax.lax.bitcast_convert_type(words[:, row], leaf.dtype)
            row += 1
    return structure.unflatten(leaves)


def _is_number(leaf: Array) -> bool:
    return leaf.ndim == 2 and (leaf.dtype == jnp.bool_ or leaf.dtype.itemsize == 4)


@pytree
class Shadow(Pytree):
    """Copies of the rollout environments in which a heuristic acts on the same inputs.

    If inputs (requests) do not depend on actions, chance affects the policy and the heuristic
    alike. The shadow starts in the state of the policy's environment. Its advantages, computed
    from its rewards and V at its observations, are subtracted from the policy's. They do not
    depend on the policy's actions, so the expected gradient stays the same for any critic and
    lambda (Mao et al. 2019, "Variance reduction for reinforcement learning in input-driven
    environments", theorem 1). Shadows do not affect the critic, rewards or scores.
    """

    env_state: Any
    observation: Any
    memory: Any  # memory of recurrent networks that observe the shadows, else ()

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
    plan: Plan, env: Environment, hypers: Hypers, state: LaneState, shadow: Shadow, *, keys: Array
) -> tuple[Shadow, ShadowSteps]:
    assert isinstance(env, ShadowedEnvironment)
    look = over_lanes(partial(look_ahead, plan))
    value, memory = look(hypers, state, shadow.observation, shadow.memory)
    serve = jax.vmap(env.shadow_step, in_axes=(0, 0, None))
    after = over_lanes(serve)(keys, shadow.env_state, hypers.env_params)
    bootstrap = _bootstrap_values(
        plan, env, after, lambda: look(hypers, state, after.observation, memory)[0]
    )
    shadow_steps = ShadowSteps(value=value, reward=after.reward, bootstrap=bootstrap)
    return Shadow(after.state, after.observation, memory), shadow_steps


def shadow_advantages(
    plan: Plan,
    hypers: Hypers,
    rewards: Float[Array, "T E"],
    trajectory: Trajectory,
    *,
    last: Float[Array, " E"],
    gae_lambda: Float[Array, ""],
) -> Float[Array, "T E"]:
    """Return the advantages of a lane's shadows times `shadow_weight`; `last` is their final V."""
    shadow = trajectory.shadow
    assert shadow is not None
    next_values = jnp.concatenate([shadow.value[1:], last[None]])
    next_values = jnp.where(trajectory.truncated, shadow.bootstrap, next_values)
    steps = Steps(rewards, shadow.value, next_values, trajectory.terminated, trajectory.truncated)
    unroll = plan.backend.advantage_unroll
    return hypers.shadow_weight * gae(steps, hypers.gamma, gae_lambda, unroll)


def values_wait(plan: Plan) -> bool:
    """Return whether a plan computes values only after the rollout."""
    return plan.backend.values_after and not (policy.is_recurrent(plan) or plan.shared_encoder)


def with_values(
    plan: Plan, hypers: Hypers, state: LaneState, trajectory: Trajectory, final: Any
) -> Trajectory:
    """Return a trajectory [T, L, ...] with values and bootstraps of the lane state that acted."""
    value, after = _in_parts(plan, hypers, state, (trajectory.observation, final))
    if after is None:
        return trajectory.replace(value=value)
    cut = trajectory.truncated & ~trajectory.terminated
    return trajectory.replace(value=value, bootstrap=jnp.where(cut, after, 0.0))


def _in_parts(plan: Plan, hypers: Hypers, state: LaneState, trees: Any) -> Any:
    def values(observation: Any) -> Float[Array, "t L S"] | None:
        if observation is None:
            return None
        look = over_lanes(partial(value_of, plan), in_axes=(0, 0, 1), out_axes=1)
        return look(hypers, state, observation)

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


ROLLOUT_NOISE, ROLLOUT_STEPS = 1, 2  # uses of a lane's key; see also epochs.py, population.py
_RESET_WORD = np.uint32(0x9E3779B9)


def rollout(plan: Plan, hypers: Hypers, state: LaneState) -> Rollout:
    env = environments.make(plan.env)
    noise, words = over_lanes(lambda s: draw(plan, env, s), out_axes=1)(state)

    def step(
        carry: tuple[LaneState, EpisodeSums, Shadow | None], random: tuple[Array, Array]
    ) -> Any:
        (state, sums, shadow), (noise, words) = carry, random
        *after, transition, info, final = _step_lanes(
            plan, env, hypers, state, sums, shadow=shadow, noise=noise, words=words
        )
        record = as_record(transition) if plan.backend.one_record else transition
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
    sums, shadow_value = sums.of_lanes(agents_of(env)), None
    if shadow is not None:
        look = over_lanes(lambda *lane: look_ahead(plan, *lane)[0])
        shadow_value = look(hypers, state, shadow.observation, shadow.memory)
    return Rollout(
        state=state.replace(params=trained),
        trajectory=trajectory.replace(carry=remembered),
        sums=sums.replace(info=jax.tree.map(lambda x: jnp.sum(x, axis=(0, 2)), info)),
        last_value=over_lanes(lambda h, s: value_of(plan, h, s, s.observation))(hypers, state),
        info=info,
        shadow_value=shadow_value,
    )


def draw(plan: Plan, env: Environment, state: LaneState) -> tuple[Array, Array]:
    steps, envs = plan.rollout_length, plan.num_envs
    key = use_key(state.key, ROLLOUT_NOISE, state.updates)
    noise = draw_noise(plan, env, key, (steps, envs * agents_of(env)))
    words = jax.random.bits(use_key(state.key, ROLLOUT_STEPS, state.updates), (steps, envs, 2))
    return noise, words


def _step_lanes(
    plan: Plan,
    env: Environment,
    hypers: Hypers,
    state: LaneState,
    sums: EpisodeSums,
    *,
    shadow: Shadow | None,
    noise: Array,
    words: Array,
) -> tuple[LaneState, EpisodeSums, Shadow | None, Trajectory, dict[str, Array], Any]:
    """Return the lanes after one step, and the step's data."""
    shown = policy.keyed(plan, state.observation, _words_of_segments(env, words))

    def one(hypers: Hypers, state: LaneState, shown: Any, noise: Array) -> Acted:
        mask = contract.mask_all(env, state.env_state, hypers.env_params)
        return act_to_learn(plan, env, hypers, state, shown, mask=mask, noise=noise)

    acted = over_lanes(one)(hypers, state, shown, noise)
    state = state.replace(carry=acted.memory)
    step_keys = jax.random.wrap_key_data(words, impl="threefry2x32")
    after = over_lanes(partial(contract.step_all, env))(
        step_keys, state.env_state, acted.taken, hypers.env_params
    )
    beside = None
    if shadow is not None:
        shadow, beside = step_shadow(plan, env, hypers, state, shadow, keys=step_keys)
    terminated, truncated = per_body(env, after.terminated), per_body(env, after.truncated)
    ended = terminated | truncated
    waits = values_wait(plan)
    acting_value = bootstrap = jnp.zeros(after.reward.shape, jnp.float32)
    if not waits:
        acting_value = acted.value
        value = over_lanes(partial(value_of, plan))
        bootstrap = _bootstrap_values(
            plan, env, after, lambda: value(hypers, state, after.observation)
        )
    state, sums = count_step(state, sums, after.reward, ended)
    env_state, observation = _reset_ended(plan, env, hypers, words, after)
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
        value=acting_value,
        reward=after.reward,
        terminated=terminated,
        truncated=truncated,
        bootstrap=bootstrap,
        valid_mass=acted.valid_mass,
        shadow=beside,
    )
    final = None
    if waits and not env.never_ends:
        final = after.observation
    return state, sums, shadow, trajectory, after.info, final


def _bootstrap_values(
    plan: Plan, env: Environment, after: Step, value: Callable[[], Float[Array, "L E"]]
) -> Float[Array, "L E"]:
    """Return V of the final observations of truncated episodes, and 0 elsewhere."""
    nothing = jnp.zeros(after.reward.shape, jnp.float32)
    if env.never_ends:
        return nothing
    cut = per_body(env, after.truncated & ~after.terminated)
    return _where_any(plan, cut, lambda: jnp.where(cut, value(), 0.0), nothing)


def _where_any(plan: Plan, flags: Array, made: Callable[[], Any], otherwise: Any) -> Any:
    """Return `made()`, or `otherwise` if no flag is set; both must then be equal."""
    if not plan.backend.branches:
        return made()
    return jax.lax.cond(jnp.any(flags), made, lambda: otherwise)


def _reset_ended(
    plan: Plan, env: Environment, hypers: Hypers, words: Array, after: Step
) -> tuple[Any, Any]:
    """Replace ended episodes with new ones, using the step's keys with one word changed."""
    ended = after.terminated | after.truncated
    going = (after.state, after.observation)
    if env.never_ends:
        return going

    def fresh() -> tuple[Any, Any]:
        reset_words = words.at[..., 1].set(words[..., 1] ^ _RESET_WORD)
        keys = jax.random.wrap_key_data(reset_words, impl="threefry2x32")
        state, observation = over_lanes(partial(contract.reset_all, env))(keys, hypers.env_params)
        return (
            where(ended, state, after.state),
            where(per_body(env, ended), observation, after.observation),
        )

    return _where_any(plan, ended, fresh, going)


def _words_of_segments(env: Environment, words: Array) -> Array:
    agents = agents_of(env)
    if agents == 1:
        return words
    bodies = jnp.tile(jnp.arange(agents, dtype=jnp.uint32), words.shape[1])
    return jnp.repeat(words, agents, axis=1) ^ jnp.stack([bodies, bodies], -1)[None]
