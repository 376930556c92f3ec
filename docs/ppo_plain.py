"""The whole PPO of one lane on a page: read it first, then `core/update.py`.

`python docs/ppo_plain.py` learns CartPole with it. Given the core's first parameters, environments
and random numbers, `update` gives the core's parameters, losses and returns to float32 rounding:
`tests/core/test_ppo_plain.py` compares them. The core does this for hundreds of lanes in one
compiled program, each with knobs of its own, and adds the rest (`docs/ppo.md`): rewards that are
normalised, as they are by default, schedules, masks, V-trace, priorities, target_kl, other
networks, actions, optimisers.

Shapes: T steps of a rollout, E environments, B rows of a minibatch.
"""

from math import ceil, inf
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Knobs(NamedTuple):
    """The core's hyperparameters that matter here, with its defaults; see `hpo knobs`."""

    num_envs: int = 8
    rollout_length: int = 128
    update_epochs: int = 4
    num_minibatches: int = 4
    learning_rate: float = 1e-3
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip_eps: float = 0.2
    value_clip_eps: float = inf
    vf_coef: float = 0.5
    ent_coef: float = 0.0
    adv_clip: float = 10.0
    logr_clip: float = 10.0
    max_grad_norm: float = 0.5
    adam_beta1: float = 0.9
    adam_beta2: float = 0.999
    adam_eps: float = 1e-5


class Lane(NamedTuple):
    """What a lane carries from update to update."""

    params: Any  # {"actor": [(weight, bias) of each layer], "critic": likewise}
    moments: Any  # Adam's: steps taken, first moments, second moments
    env_state: Any  # of the environments [E]
    observation: Any  # [E, D]
    episode_return: Any  # so far, of the episodes that run [E]


class Draws(NamedTuple):
    """The random numbers of one update."""

    noise: Any  # uniform in [0, 1) [T, E], which picks actions
    keys: Any  # of the environments' steps [T, E]
    orders: Any  # a permutation of the T E rows for each epoch


# --- The algorithm ---


@jax.jit
def network(params, observation):
    """Return log pi(. | s) [B, A] and V(s) [B]: two towers of tanh layers with linear heads."""

    def tower(layers, x):
        *hidden, (head, offset) = layers
        for weight, bias in hidden:
            x = jnp.tanh(x @ weight + bias)
        return x @ head + offset

    log_pi = jax.nn.log_softmax(tower(params["actor"], observation))
    return log_pi, tower(params["critic"], observation)[:, 0]


def rollout(lane, env_step, draws):
    """Return the lane T steps later, what it saw [T, E, ...], and returns of ended episodes."""
    seen, returns = [], []
    for noise, keys in zip(draws.noise, draws.keys, strict=True):
        log_pi, value = jax.device_get(network(lane.params, lane.observation))
        cumulative = np.cumsum(np.exp(log_pi), axis=1)
        action = np.sum(cumulative <= noise[:, None] * cumulative[:, -1:], axis=1)
        log_prob = np.take_along_axis(log_pi, action[:, None], axis=1)[:, 0]
        after = env_step(keys, lane.env_state, action)  # as gymnax: an ended episode starts anew
        observation, env_state, reward, terminated, truncated, info = after
        # Where time ran out the future counts still: V of the final observation, not the next one.
        next_value = network(lane.params, info["final_observation"])[1]
        outcome = jax.device_get((reward, next_value, terminated, terminated | truncated))
        seen.append((lane.observation, action, log_prob, value, *outcome))
        total, ended = lane.episode_return + outcome[0], outcome[-1]
        returns.extend(total[ended])
        lane = Lane(lane.params, lane.moments, env_state, observation, total * ~ended)
    return lane, [np.stack(x) for x in zip(*seen, strict=True)], returns


def advantages(knobs, value, reward, next_value, terminated, ended):
    """Return GAE's A_t = delta_t + gamma lambda A_{t+1} within each episode [T, E]."""
    advantage = reward + knobs.gamma * next_value * ~terminated - value  # delta_t
    for t in reversed(range(len(advantage) - 1)):
        advantage[t] += knobs.gamma * knobs.gae_lambda * advantage[t + 1] * ~ended[t]
    return advantage


def loss(params, knobs, rows):
    """Return PPO's loss of a minibatch, and its parts."""
    observation, action, old_log_prob, old_value, advantage, target = rows
    log_pi, value = network(params, observation)
    log_prob = jnp.take_along_axis(log_pi, action[:, None], axis=1)[:, 0]
    ratio = jnp.exp(jnp.clip(log_prob - old_log_prob, -knobs.logr_clip, knobs.logr_clip))
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    advantage = jnp.clip(advantage, -knobs.adv_clip, knobs.adv_clip)
    clipped = jnp.clip(ratio, 1.0 - knobs.clip_eps, 1.0 + knobs.clip_eps)
    policy_loss = -jnp.minimum(ratio * advantage, clipped * advantage).mean()
    near = old_value + jnp.clip(value - old_value, -knobs.value_clip_eps, knobs.value_clip_eps)
    value_loss = 0.5 * jnp.maximum((value - target) ** 2, (near - target) ** 2).mean()
    entropy = -jnp.sum(jnp.exp(log_pi) * log_pi, axis=1).mean()
    total = policy_loss + knobs.vf_coef * value_loss - knobs.ent_coef * entropy
    return total, dict(loss=total, policy_loss=policy_loss, value_loss=value_loss, entropy=entropy)


@jax.jit
def gradient_step(knobs, params, moments, rows):
    """Return parameters and moments after a step of Adam on the clipped gradient, and losses."""
    (_, shown), grads = jax.value_and_grad(loss, has_aux=True)(params, knobs, rows)
    norm = jnp.sqrt(sum(jnp.sum(g**2) for g in jax.tree.leaves(grads)))
    grads = jax.tree.map(lambda g: g * jnp.minimum(1.0, knobs.max_grad_norm / norm), grads)
    b1, b2, (count, first, second) = knobs.adam_beta1, knobs.adam_beta2, moments
    count = count + 1
    first = jax.tree.map(lambda m, g: b1 * m + (1.0 - b1) * g, first, grads)
    second = jax.tree.map(lambda v, g: b2 * v + (1.0 - b2) * g**2, second, grads)

    def moved(p, m, v):
        m, v = m / (1.0 - b1**count), v / (1.0 - b2**count)
        return p - knobs.learning_rate * m / (jnp.sqrt(v) + knobs.adam_eps)

    return jax.tree.map(moved, params, first, second), (count, first, second), shown


def update(knobs, lane, env_step, draws):
    """Return the lane after one update, mean losses, and returns of the episodes that ended."""
    lane, seen, returns = rollout(lane, env_step, draws)
    observation, action, log_prob, value, *outcome = seen
    advantage = advantages(knobs, value, *outcome)
    columns = (observation, action, log_prob, value, advantage, advantage + value)
    columns = [x.reshape(-1, *x.shape[2:]) for x in columns]  # [T E, ...]
    params, moments, losses = lane.params, lane.moments, []
    for order in draws.orders:
        size = ceil(len(order) / knobs.num_minibatches)  # of all but the last, which may be less
        for start in range(0, len(order), size):
            rows = [x[order[start : start + size]] for x in columns]
            params, moments, shown = gradient_step(knobs, params, moments, rows)
            losses.append(shown)
    losses = jax.tree.map(lambda *x: float(np.mean(x)), *losses)
    return lane._replace(params=params, moments=moments), losses, returns


# --- Running it alone, on gymnax's CartPole ---


def make_lane(rng, observation, env_state, actions, width):
    """Return a lane with the core's initialisation: orthogonal weights, a gain for each layer."""

    def layer(inputs, outputs, gain):
        q, r = np.linalg.qr(rng.normal(size=(max(inputs, outputs), min(inputs, outputs))))
        q = q * np.sign(np.diag(r))  # else not all rotations would be equally likely
        weight = gain * (q if inputs >= outputs else q.T)
        return weight.astype(np.float32), np.zeros(outputs, np.float32)

    def tower(outputs, gain):
        first = layer(observation.shape[1], width, 2**0.5)
        return [first, layer(width, width, 2**0.5), layer(width, outputs, gain)]

    params = {"actor": tower(actions, 0.01), "critic": tower(1, 1.0)}
    zeros = jax.tree.map(np.zeros_like, params)
    moments = (np.int32(0), zeros, zeros)
    return Lane(params, moments, env_state, observation, np.zeros(len(observation), np.float32))


def draw(knobs, rng, key):
    """Return the random numbers of an update; gymnax wants its own as keys."""
    shape = (knobs.rollout_length, knobs.num_envs)
    orders = [rng.permutation(shape[0] * shape[1]) for _ in range(knobs.update_epochs)]
    return Draws(rng.random(shape, np.float32), jax.random.split(key, shape), orders)


def main(updates=100, seed=0, width=64, **knobs):
    """Learn CartPole; print the mean return of the episodes that ended, every ten updates."""
    import gymnax

    knobs = Knobs(**knobs)
    env, env_params = gymnax.make("CartPole-v1")
    rng, key = np.random.default_rng(seed), jax.random.key(seed)
    keys = jax.random.split(key, knobs.num_envs)
    observation, env_state = jax.vmap(env.reset, (0, None))(keys, env_params)
    step = jax.jit(jax.vmap(lambda *one: env.step(*one, env_params)))
    lane, recent = make_lane(rng, observation, env_state, env.num_actions, width), []
    for i in range(1, updates + 1):
        draws = draw(knobs, rng, jax.random.fold_in(key, i))
        lane, losses, returns = update(knobs, lane, step, draws)
        recent += returns
        if i % 10 == 0:
            print(f"update {i}: return {np.mean(recent):.1f}, loss {losses['loss']:.3f}")
            recent = []


if __name__ == "__main__":
    main()
