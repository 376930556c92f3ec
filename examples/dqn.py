"""Double DQN in any environment of a study with discrete actions: gymnax, optical networks."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

import hpo


def flat(observation):
    return jnp.concatenate([jnp.float32(leaf).ravel() for leaf in jax.tree.leaves(observation)])


RATE = {"min": 1e-4, "max": 1e-2, "distribution": "log_uniform"}
NEAR_1 = {"min": 0.9, "max": 0.999, "distribution": "one_minus_log"}


class DQN(hpo.Training):
    env = hpo.environment()
    width = hpo.fixed(64, "of both layers", low=1)
    num_envs = hpo.fixed(8, "environments of a lane", low=1)
    buffer_size = hpo.fixed(10_000, "transitions", low=64)
    batch_size = hpo.fixed(64, "transitions", low=1)
    learning_rate = hpo.traced(1e-3, "step size of Adam", low=0, search=RATE)
    gamma = hpo.traced(0.99, "discount", low=0, high=1, search=NEAR_1)
    polyak = hpo.traced(0.98, "share of the target that stays", low=0, high=1, search=NEAR_1)
    epsilon = hpo.traced(0.05, "share of random actions at the end", low=0, high=1)
    exploration = hpo.traced(
        0.3,
        "of the run, over which epsilon falls from 1",
        low=0,
        high=1,
        search={"min": 0.05, "max": 0.8},
    )

    def setup(self):
        self.net = nn.Sequential(
            [
                nn.Dense(self.width),
                nn.relu,
                nn.Dense(self.width),
                nn.relu,
                nn.Dense(self.env.action_space.n),
            ]
        )
        self.size = sum(leaf.size for leaf in jax.tree.leaves(self.env.observation_struct))
        self.rows = self.buffer_size // self.num_envs
        self.steps_per_update = 64 * self.num_envs

    def init(self, key, h):
        key, first, weights = jax.random.split(key, 3)
        keys = jax.random.split(first, self.num_envs)
        states, seen = jax.vmap(self.env.reset, (0, None))(keys, h.env_params)
        params = self.net.init(weights, jnp.zeros(self.size))
        space, actions = (self.rows, self.num_envs), self.env.action_space.n
        buffer = {
            "seen": jnp.zeros((*space, self.size)),
            "next": jnp.zeros((*space, self.size)),
            "action": jnp.zeros(space, jnp.int32),
            "reward": jnp.zeros(space),
            "ended": jnp.zeros(space, bool),
            "mask": jnp.ones((*space, actions), bool),
        }
        return {
            "key": key,
            "env": states,
            "seen": seen,
            "params": params,
            "target": params,
            "adam": optax.adam(h.learning_rate).init(params),
            "buffer": buffer,
            "step": jnp.int32(0),
            "return": jnp.zeros(self.num_envs),
        }

    def values(self, params, observation, mask):
        values = self.net.apply(params, observation)
        return values if mask is None else jnp.where(mask, values, -jnp.inf)

    def masks(self, states, h):
        if not self.env.has_mask:
            return jnp.ones((self.num_envs, self.env.action_space.n), bool)
        return jax.vmap(self.env.action_mask, (0, None))(states, h.env_params)

    def explore(self, state, h, key):
        """Step all environments once; return the state and their transitions."""
        which, other, step, again = jax.random.split(key, 4)
        seen, mask = jax.vmap(flat)(state["seen"]), self.masks(state["env"], h)
        done = state["step"] * self.num_envs / (h.exploration * self.length + 1)
        epsilon = jnp.maximum(h.epsilon, 1 - (1 - h.epsilon) * done)
        greedy = self.values(state["params"], seen, mask).argmax(-1)
        drawn = jax.random.categorical(other, jnp.where(mask, 0.0, -jnp.inf))
        random = jax.random.uniform(which, drawn.shape) < epsilon
        action = jnp.where(random, drawn, greedy).astype(jnp.int32)
        after = jax.vmap(self.env.step, (0, 0, 0, None))(
            jax.random.split(step, self.num_envs), state["env"], action, h.env_params
        )
        fresh = jax.vmap(self.env.reset, (0, None))(
            jax.random.split(again, self.num_envs), h.env_params
        )
        over = after.terminated | after.truncated

        def restarted(new, old):
            return jnp.where(over.reshape(-1, *[1] * (old.ndim - 1)), new, old)

        states, shown = jax.tree.map(restarted, fresh, (after.state, after.observation))
        row = {
            "seen": seen,
            "next": jax.vmap(flat)(after.observation),
            "action": action,
            "reward": after.reward,
            "ended": after.terminated,
            "mask": self.masks(after.state, h),
        }
        at = state["step"] % self.rows
        buffer = {name: state["buffer"][name].at[at].set(row[name]) for name in row}
        total = state["return"] + after.reward
        episodes = {"episodes": over.sum(), "episode_return": jnp.where(over, total, 0).sum()}
        moved = {
            "env": states,
            "seen": shown,
            "buffer": buffer,
            "step": state["step"] + 1,
            "return": jnp.where(over, 0, total),
        }
        return state | moved, episodes

    def learn(self, state, h, key):
        """Take one gradient step on a batch of the buffer."""
        row, env = jax.random.split(key)
        filled = jnp.minimum(state["step"], self.rows)
        rows = jax.random.randint(row, (self.batch_size,), 0, filled)
        envs = jax.random.randint(env, (self.batch_size,), 0, self.num_envs)
        batch = {name: part[rows, envs] for name, part in state["buffer"].items()}
        best = self.values(state["params"], batch["next"], batch["mask"]).argmax(-1)
        ahead = jnp.take_along_axis(
            self.net.apply(state["target"], batch["next"]), best[:, None], 1
        )
        wanted = batch["reward"] + h.gamma * jnp.where(batch["ended"], 0, ahead[:, 0])

        def loss(params):
            values = self.net.apply(params, batch["seen"])
            chosen = jnp.take_along_axis(values, batch["action"][:, None], 1)[:, 0]
            return optax.huber_loss(chosen, wanted).mean()

        value, grads = jax.value_and_grad(loss)(state["params"])
        moves, adam = optax.adam(h.learning_rate).update(grads, state["adam"])
        params = optax.apply_updates(state["params"], moves)
        target = optax.incremental_update(params, state["target"], 1 - h.polyak)
        return state | {"params": params, "adam": adam, "target": target}, value

    def update(self, state, h):
        def step(state, _):
            key, explore, learn = jax.random.split(state["key"], 3)
            state, episodes = self.explore(state | {"key": key}, h, explore)
            state, loss = self.learn(state, h, learn)
            return state, {"loss": loss, **episodes}

        state, found = jax.lax.scan(step, state, None, 64)
        return state, {
            "loss": found["loss"].mean(),
            "episodes": found["episodes"].sum(),
            "episode_return": found["episode_return"].sum(),
        }

    def act(self, state, h, observation, mask, key):
        return self.values(state["params"], flat(observation), mask).argmax(-1).astype(jnp.int32)
