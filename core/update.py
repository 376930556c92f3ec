"""One PPO update of a tile of lanes (Schulman et al. 2017), in the order of the algorithm.

1. `rollout`: T steps of E environments with the current policy (rollout.py).
2. `prepare`: rewards r_t, advantages A_t and value targets R_t = A_t + V(s_t) of that rollout,
   arranged as rows; updates running statistics.
3. `run_epochs`: gradient steps over shuffled minibatches of the rows (epochs.py, losses.py).
4. `_measure`: the metrics shown in curves.

Rollout and learning are separate functions, so that rollouts can come from host environments.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Shaped

from . import optimisers, policy
from .advantages import Steps, gae, temporal_differences, v_trace
from .envs import registry as environments
from .envs.contract import as_array
from .epochs import Learning, minibatch_shape, run_epochs
from .hypers import Hypers
from .lane_state import LaneState, use_key
from .losses import Losses, ppo_loss
from .masking import row_weights
from .metrics import Metrics, mask_metrics
from .minibatches import Samples, Segments, importance_weights, priorities, probabilities
from .optimisers import Scheduled, progress_of, scheduled_values
from .plan import Plan
from .policy import component_sizes, draw_entropy_noise
from .pytree import Pytree, over_lanes, pytree
from .rollout import EpisodeSums, Rollout, Trajectory, rollout, shadow_advantages

ENTROPY_NOISE = 6  # use of a lane's key; see also rollout.py, epochs.py, population.py
_WEIGHT_LIMIT = 100.0  # root mean square of a parameter; trained networks stay below 1
_KL_LIMIT = 1e3


def update(plan: Plan, hypers: Hypers, state: LaneState) -> tuple[LaneState, Metrics]:
    """Run one update; return the lanes [L] and metrics. Warm-up updates do not learn."""
    with jax.named_scope("rollout"):
        played = rollout(plan, hypers, state)
    return learn(plan, hypers, played)


@pytree
class _Played(Pytree):
    """A rollout of T steps, time first in each lane, and the other inputs of its update."""

    hypers: Hypers
    values: Scheduled  # scheduled hyperparameters at this update
    state: LaneState
    trajectory: Trajectory
    last_value: Float[Array, "*lanes E"]  # V of the observation after the last step
    shadow_value: Float[Array, "*lanes E"] | None  # V of the shadow, a baseline policy


@pytree
class _Learnt(Pytree):
    """The intermediate results of an update that its metrics need."""

    hypers: Hypers
    values: Scheduled
    state: LaneState
    learning: Learning
    samples: Samples
    trajectory: Trajectory
    sums: EpisodeSums


def learn(plan: Plan, hypers: Hypers, played: Rollout) -> tuple[LaneState, Metrics]:
    """Return the lanes [L] after learning from a rollout, and their metrics."""
    with jax.named_scope("advantages"):
        values, state, samples = prepare(plan, hypers, played)
    in_lanes = _by_lane(played.trajectory)
    with jax.named_scope("epochs"):
        learning = run_epochs(plan, hypers, values, state, samples)
    learnt = _Learnt(hypers, values, state, learning, samples, in_lanes, played.sums)
    with jax.named_scope("metrics"):
        metrics = over_lanes(lambda lane: _measure_update(plan, lane))(learnt)
    state = state.replace(
        params=learning.params,
        moments=learning.moments,
        gradient_steps=state.gradient_steps + learning.taken.astype(jnp.int32),
        updates=state.updates + 1,
    )
    return state, metrics


def prepare(plan: Plan, hypers: Hypers, played: Rollout) -> tuple[Scheduled, LaneState, Samples]:
    """Return scheduled values, states with this rollout's statistics, and training rows."""
    state, trajectory = played.state, played.trajectory
    bodies = trajectory.reward.shape[2]
    rows = bodies
    if not plan.by_segments:
        rows *= trajectory.reward.shape[0]
    count, _ = minibatch_shape(plan, rows)

    def schedule(hypers: Hypers, state: LaneState) -> Scheduled:
        progress = progress_of(plan, hypers, state, count, jnp.float32(0.0))
        return scheduled_values(hypers, progress)

    values = over_lanes(schedule)(hypers, state)
    in_lanes = _by_lane(trajectory)
    lanes = _Played(hypers, values, state, in_lanes, played.last_value, played.shadow_value)
    state, samples = over_lanes(lambda lane: _prepare_samples(plan, lane))(lanes)
    return values, state, samples


def _by_lane(trajectory: Trajectory) -> Trajectory:
    """Return a time-first trajectory [T, L, ...] as [L, T, ...]."""
    return jax.tree.map(lambda x: jnp.moveaxis(x, 1, 0), trajectory)


def _prepare_samples(plan: Plan, lane: _Played) -> tuple[LaneState, Samples]:
    """Return one lane's state with the rollout's statistics, and its training rows."""
    hypers, state, trajectory = lane.hypers, lane.state, lane.trajectory
    is_learning = state.updates >= 0  # warm-up updates only act
    # r_t: scaled, divided by the deviation of returns, clipped
    rewards, state = _shape_rewards(plan, hypers, state, trajectory, is_learning)
    # V(s'_t): the next step's; for a truncated step, V of the observation at which it was cut
    next_step_values = jnp.concatenate([trajectory.value[1:], lane.last_value[None]])
    next_values = jnp.where(trajectory.truncated, trajectory.bootstrap, next_step_values)
    steps = Steps(
        rewards, trajectory.value, next_values, trajectory.terminated, trajectory.truncated
    )
    average = _average_reward(plan, hypers, state)  # the average before this rollout
    if "reward_centering" in plan.features:
        steps, state = _centre_rewards(hypers, state, steps, is_learning)
    # A_t, by GAE at lambda
    advantages = target_advantages = _advantages_on_policy(
        plan, hypers, steps, lane.values.coefficients.gae_lambda
    )
    shadow = _shadow_advantages(plan, lane, state, average)
    if shadow is not None:
        advantages = advantages - shadow  # the critic's targets do not change
    observation, state = _seen_observations(plan, lane, state, is_learning)
    # R_t - V(s_t): the same advantages, or those at the critic's own lambda
    if "vf_gae_lambda" in plan.features:
        target_advantages = _advantages_on_policy(
            plan, hypers, steps, lane.values.coefficients.vf_gae_lambda
        )
    in_time = Samples(
        observation=observation,
        action=trajectory.action,
        mask=trajectory.mask,
        log_prob=trajectory.log_prob,  # log pi_old(a_t | s_t)
        value=trajectory.value,  # V_old(s_t)
        advantage=advantages,
        target=target_advantages,
        shadow=shadow,
    )
    samples: Samples = jax.tree.map(lambda x: _as_rows(plan, x), in_time)
    env = environments.make(plan.env)
    samples = samples.replace(
        target=samples.target + samples.value,  # R_t = A_t + V(s_t)
        noise=draw_entropy_noise(
            plan, env, use_key(state.key, ENTROPY_NOISE, state.updates), samples.advantage.shape
        ),
    )
    if policy.is_recurrent(plan):
        samples = _with_memory(plan, trajectory, samples)
    return state, _with_features(plan, lane, steps.reward, samples)


def _shadow_advantages(
    plan: Plan, lane: _Played, state: LaneState, average: Float[Array, ""]
) -> Float[Array, "T E"] | None:
    """Return the advantages of the lane's shadows, or None if it has none."""
    trajectory = lane.trajectory
    if trajectory.shadow is None or lane.shadow_value is None:
        return None
    rewards = _in_units(plan, lane.hypers, state, trajectory.shadow.reward) - average
    decay = lane.values.coefficients.gae_lambda
    last = lane.shadow_value
    return shadow_advantages(plan, lane.hypers, rewards, trajectory, last=last, gae_lambda=decay)


def _seen_observations(
    plan: Plan, lane: _Played, state: LaneState, is_learning: Bool[Array, ""]
) -> tuple[Any, LaneState]:
    """Return the observations that the policy saw, and statistics updated with this rollout.

    V-trace runs the network again, so its observations include the one after the last step.
    """
    hypers, trajectory = lane.hypers, lane.trajectory
    observation = policy.normalised(
        plan, hypers, state.observation_statistics, trajectory.observation
    )
    if "v_trace" in plan.features:
        last = policy.shown_like(trajectory.observation, state.observation)
        last = policy.normalised(plan, hypers, state.observation_statistics, last)
        observation = jax.tree.map(lambda x, y: jnp.concatenate([x, y]), observation, last)
    if "normalise_observations" in plan.features:
        raw = as_array(policy.plain(trajectory.observation)).astype(jnp.float32)
        raw = raw.reshape((-1, *raw.shape[2:]))
        merged = state.observation_statistics.merge(raw)
        state = state.replace(
            observation_statistics=_where_tree(is_learning, merged, state.observation_statistics)
        )
    return observation, state


def _with_memory(plan: Plan, trajectory: Trajectory, samples: Samples) -> Samples:
    """Add episode starts, and the recurrent state before the first step."""
    ended = trajectory.terminated | trajectory.truncated
    first = jnp.concatenate([jnp.zeros_like(ended[:1]), ended])
    if "v_trace" not in plan.features:
        first = first[:-1]
    first, carry = jax.tree.map(lambda x: _as_rows(plan, x), (first, trajectory.carry))
    return samples.replace(first=first, carry=carry)


def _advantages_on_policy(
    plan: Plan, hypers: Hypers, steps: Steps, decay: Float[Array, ""]
) -> Float[Array, "T E"]:
    """Return one lane's advantages under the policy that acted, so every ratio is 1.

    V-trace's clips still apply if they are below 1, because priorities and metrics must use the
    same advantages as the losses. In lanes without V-trace, both clips are infinite, so the result
    is bitwise equal to GAE.
    """
    if "v_trace" not in plan.features:
        return gae(steps, hypers.gamma, decay, plan.backend.advantage_unroll)
    ratio = jnp.ones_like(steps.reward)
    return v_trace(
        steps,
        hypers.gamma,
        decay,
        ratio,
        rho_clip=hypers.rho_clip,
        c_clip=hypers.c_clip,
        unroll=plan.backend.advantage_unroll,
    )


def _with_features(
    plan: Plan, lane: _Played, rewards: Float[Array, "T E"], samples: Samples
) -> Samples:
    """Add inputs that only some plans need: mask weights, priorities, V-trace segments."""
    hypers, trajectory = lane.hypers, lane.trajectory
    if trajectory.mask is not None and trajectory.valid_mass is not None:
        sizes = component_sizes(environments.make(plan.env))
        weights = row_weights(hypers, trajectory.mask, trajectory.valid_mass, sizes)
        samples = samples.replace(weights=jax.tree.map(lambda x: _as_rows(plan, x), weights))
    if "priority" in plan.features:
        # P(i) and (N P(i))^-beta of prioritised replay (Schaul et al. 2016); 1 in lanes without it
        probability = probabilities(samples.advantage, hypers.priority_alpha)
        weight = importance_weights(probability, lane.values.priority_beta)
        weight = jnp.where(hypers.priority_alpha > 0.0, weight, 1.0)
        samples = samples.replace(importance=weight)
    if "v_trace" in plan.features:
        parts = (rewards, trajectory.terminated, trajectory.truncated, trajectory.bootstrap)
        samples = samples.replace(segments=Segments(*(_as_rows(plan, x) for x in parts)))
    return samples


def _as_rows(plan: Plan, x: Shaped[Array, "T E ..."]) -> Shaped[Array, "N ..."]:
    """Return one row per step, or per segment (the whole rollout of an environment)."""
    if plan.by_segments:
        return jnp.moveaxis(x, 1, 0)
    return x.reshape((-1, *x.shape[2:]))


def _where_tree(condition: Bool[Array, ""], new: Any, old: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)


def _shape_rewards(
    plan: Plan,
    hypers: Hypers,
    state: LaneState,
    trajectory: Trajectory,
    is_learning: Bool[Array, ""],
) -> tuple[Float[Array, "T E"], LaneState]:
    """Return the learner's rewards: scaled, divided by the std of the return, and clipped.

    The std is that of R_t = gamma R_{t-1} (1 - done_{t-1}) + r_t over all steps so far, including
    this rollout (Engstrom et al. 2020, section 3), or of r_t with `raw_reward_deviation`.
    """
    if "normalise_rewards" in plan.features:
        rewards = trajectory.reward * hypers.reward_scale
        ended = trajectory.terminated | trajectory.truncated

        def forward(running: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
            reward, end = step
            running = hypers.gamma * running + reward
            return jnp.where(end, 0.0, running), running

        carried, returns = jax.lax.scan(forward, state.discounted_return, (rewards, ended))
        if "raw_reward_deviation" in plan.features:
            returns = jnp.where(hypers.raw_reward_deviation > 0.0, rewards, returns)
        merged = state.return_statistics.merge(returns.reshape(-1))
        statistics = _where_tree(is_learning, merged, state.return_statistics)
        state = state.replace(return_statistics=statistics, discounted_return=carried)
    return _in_units(plan, hypers, state, trajectory.reward), state


def _in_units(
    plan: Plan, hypers: Hypers, state: LaneState, reward: Float[Array, "T E"]
) -> Float[Array, "T E"]:
    rewards = reward * hypers.reward_scale
    if "normalise_rewards" in plan.features:
        on = hypers.normalise_rewards > 0.0
        rewards = jnp.where(on, rewards / state.return_statistics.std(), rewards)
    return jnp.clip(rewards, -hypers.reward_clip, hypers.reward_clip)


def _average_reward(plan: Plan, hypers: Hypers, state: LaneState) -> Float[Array, ""]:
    if "reward_centering" not in plan.features:
        return jnp.zeros((), jnp.float32)
    return jnp.where(hypers.reward_centering > 0.0, state.average_reward, 0.0)


def _centre_rewards(
    hypers: Hypers, state: LaneState, steps: Steps, is_learning: Bool[Array, ""]
) -> tuple[Steps, LaneState]:
    """Subtract the running average from rewards, then update the average (Naik et al. 2024).

    o <- o + a (1 - o) and rbar <- rbar + (a / o) mean(delta), where delta is the temporal
    difference of the centred rewards. Without an initial average, o starts at 0, so the first step
    size is 1 and later ones decrease to a. With an initial average (even 0), o starts at 1, and
    every step size is a.
    """
    on = hypers.reward_centering > 0.0
    centred = jnp.where(on, steps.reward - state.average_reward, steps.reward)
    steps = steps.replace(reward=centred)
    deltas = temporal_differences(steps, hypers.gamma)
    trace = state.average_trace
    trace = trace + hypers.average_reward_step * (1.0 - trace)
    average = state.average_reward + hypers.average_reward_step / trace * jnp.mean(deltas)
    moves = is_learning & on
    return steps, state.replace(
        average_reward=jnp.where(moves, average, state.average_reward),
        average_trace=jnp.where(moves, trace, state.average_trace),
    )


_MEANS = ("loss", "policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction",
          "ratio_mean", "ratio_std", "log_prob", "normalised_advantage_mean")  # fmt: skip
_SCHEDULED = ("clip_eps", "ent_coef", "gae_lambda")


def _measure_update(plan: Plan, lane: _Learnt) -> Metrics:
    """Return one lane's metrics: episodes, losses, gradients and schedules."""
    learning, samples, trajectory, values = (
        lane.learning,
        lane.samples,
        lane.trajectory,
        lane.values,
    )
    taken = jnp.maximum(learning.taken, 1.0)
    learnt = jnp.maximum(learning.minibatches, 1.0)
    means = jax.tree.map(lambda x: x / learnt, learning.sums)
    some = learning.minibatches > 0.0
    # explained variance: 1 - Var(R - V) / Var(R)
    variance = jnp.var(samples.target)
    residual = jnp.var(samples.target - samples.value)
    norm = optimisers.tree_norm(learning.params)
    count = sum(leaf.size for leaf in jax.tree.leaves(learning.params))
    sane = (
        jnp.isfinite(means.loss)
        & jnp.isfinite(norm)
        & (norm <= _WEIGHT_LIMIT * np.sqrt(count))
        & (means.approx_kl <= _KL_LIMIT)
    )
    std = jnp.zeros((), jnp.float32)
    if "log_std" in learning.params:
        bounded = jnp.clip(
            learning.params["log_std"], lane.hypers.log_std_min, lane.hypers.log_std_max
        )
        std = jnp.mean(jnp.exp(bounded))
    env = environments.make(plan.env)
    steps = jnp.float32(plan.steps_per_update)
    return Metrics(
        episodes=lane.sums.episodes,
        episode_return=lane.sums.returns,
        episode_length=lane.sums.lengths,
        reward_mean=jnp.mean(trajectory.reward),
        **{name: getattr(means, name) for name in _MEANS},
        ratio_min=jnp.where(some, learning.sums.ratio_min, 1.0),
        ratio_max=jnp.where(some, learning.sums.ratio_max, 1.0),
        ratio_start_error=learning.start_error,
        early_stopped=learning.skipped / jnp.maximum(learning.minibatches + learning.skipped, 1.0),
        explained_variance=1.0 - residual / jnp.maximum(variance, 1e-12),
        value_target_mean=jnp.mean(samples.target),
        advantage_mean=jnp.mean(samples.advantage),
        advantage_std=jnp.std(samples.advantage),
        grad_norm=learning.grad_norm / taken,
        grad_variance=learning.grad_spread / taken,
        param_norm=norm,
        policy_std=std,
        learning_rate=values.sizes.policy,
        vf_learning_rate=values.sizes.critic,
        **{name: getattr(values.coefficients, name) for name in _SCHEDULED},
        log_prob_min=jnp.where(
            learning.sums.log_prob_min < jnp.inf, learning.sums.log_prob_min, 0.0
        ),
        value_mean=jnp.mean(trajectory.value),
        diverged=~sane,
        features=_feature_metrics(plan, lane, means),
        env=env.summarise(lane.sums.info, steps),
    )


def _feature_metrics(plan: Plan, lane: _Learnt, means: Losses) -> dict[str, Array]:
    """Return the metrics that only some plans have."""
    trajectory, samples, values = lane.trajectory, lane.samples, lane.values
    found: dict[str, Array] = {}
    if trajectory.mask is not None and trajectory.valid_mass is not None:
        sizes = component_sizes(environments.make(plan.env))
        found |= mask_metrics(trajectory.mask, trajectory.valid_mass, trajectory.action, sizes)
        found["choice_log_prob"] = means.choice_log_prob
        found["choice_entropy"] = means.choice_entropy
    if samples.weights is not None:
        found["policy_weight_mean"] = jnp.mean(samples.weights.policy)
        found["choice_fraction"] = jnp.mean(samples.weights.choice)
    if "valid_mass_loss" in plan.features:
        found["valid_mass_loss"] = means.valid_mass_loss
        found["valid_mass_coef"] = values.coefficients.valid_mass_coef
    if "reward_centering" in plan.features:
        found["average_reward"] = lane.state.average_reward
    if "priority" in plan.features:
        found["priority_beta"] = values.priority_beta
        priority = priorities(samples.advantage, lane.hypers.priority_alpha)
        found["priority_mean"] = jnp.mean(priority)
        found["priority_std"] = jnp.std(priority)
    if "schedule_on_gradient_steps" in plan.features:
        found["progress"] = values.progress
    if samples.shadow is not None:
        alone = jnp.var(samples.advantage + samples.shadow)
        found["shadow_removed"] = 1.0 - jnp.var(samples.advantage) / jnp.maximum(alone, 1e-12)
    return found


def inspect_lane(plan: Plan, hypers: Hypers, state: LaneState) -> dict[str, Any]:
    """Return one lane's `trajectories`, `advantages`, `losses` and `gradients`, by name.

    Trajectories and advantages are time first, [T, E, ...], or [T, S, ...] with several agents.
    Losses and gradients are computed before the first gradient step, with the whole rollout as one
    minibatch: every row once, without importance weights.
    """
    one = jax.tree.map(lambda x: jnp.asarray(x)[None], state)
    all_hypers = jax.tree.map(lambda x: jnp.asarray(x)[None], hypers)
    played = rollout(plan, all_hypers, one)
    found = inspect_rollout(plan, hypers, played)
    info = jax.tree.map(lambda x: x[:, 0], played.info)
    return {**found, "trajectories": found["trajectories"].replace(info=info)}


def inspect_rollout(plan: Plan, hypers: Hypers, played: Rollout) -> dict[str, Any]:
    all_hypers = jax.tree.map(lambda x: jnp.asarray(x)[None], hypers)
    values, _, samples = prepare(plan, all_hypers, played)
    trajectory = played.trajectory
    shape = trajectory.reward.shape  # [T, 1, rows]

    def by_time(x: jax.Array) -> jax.Array:
        if plan.by_segments:
            return x[0].T
        return x[0].reshape((shape[0], shape[2]))

    coefficients, rows, params, alone = jax.tree.map(
        lambda x: x[0], (values.coefficients, samples, played.state.params, all_hypers)
    )
    gradient = jax.grad(ppo_loss, has_aux=True)
    unweighted = rows.replace(importance=None)
    gradients, losses = gradient(params, plan, alone, coefficients, unweighted, weight=None)
    return {
        "trajectories": jax.tree.map(lambda x: x[:, 0], trajectory),
        "advantages": {"advantage": by_time(samples.advantage), "target": by_time(samples.target)},
        "losses": losses,
        "gradients": gradients,
    }
