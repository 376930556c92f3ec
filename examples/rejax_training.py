"""rejax's algorithms as trainings: SAC, DQN, PQN and TD3 on gymnax environments.

Needs the extra `rejax`. Its authors wrote it for gymnax 0.0.9; `hpo.old_gymnax` gives it the
five values of a step that it expects.
"""

import gymnax
import jax
import rejax
from rejax.evaluate import evaluate_single

import hpo


class Rejax(hpo.Training):
    """Any of rejax's algorithms; a subclass names it and declares its hyperparameters."""

    kind, iterations = None, 1
    env = hpo.fixed(
        "Pendulum-v1", "id of a gymnax environment", choices=tuple(gymnax.registered_envs)
    )

    def setup(self):
        env, params = gymnax.make(self.env)
        fixed = {name: value for name, value in self.fixed_values.items() if name != "env"}
        self.base = self.kind.create(
            env=hpo.old_gymnax(env),
            env_params=params,
            skip_initial_evaluation=True,
            total_timesteps=self.length,
            **fixed,
        )
        steps = self.base.num_envs * getattr(self.base, "num_steps", 1)
        self.steps_per_update = self.iterations * steps

    def init(self, key, h):
        return self.base.replace(**vars(h)).init_state(key)

    def update(self, state, h):
        base = self.base.replace(**vars(h))
        state = jax.lax.fori_loop(
            0, self.iterations, lambda _, one: base.train_iteration(one), state
        )
        params = [value.params for value in vars(state).values() if hasattr(value, "params")]
        squares = sum(jax.numpy.sum(leaf**2) for leaf in jax.tree.leaves(params))
        return state, {"param_norm": jax.numpy.sqrt(squares)}

    def evaluate(self, state, h, key):
        base = self.base.replace(**vars(h))
        act, most = base.make_act(state), base.env_params.max_steps_in_episode
        length, total = evaluate_single(act, base.env, base.env_params, key, most)
        return {"return": total, "length": length}


RATE = {"min": 1e-5, "max": 1e-2, "distribution": "log_uniform"}
GAMMA = {"min": 0.9, "max": 0.999, "distribution": "one_minus_log"}


class Replay(Rejax):
    """What the algorithms with a replay buffer share."""

    iterations = 256
    num_envs = hpo.fixed(1, "environments", low=1)
    buffer_size = hpo.fixed(10_000, "transitions", low=256)
    fill_buffer = hpo.fixed(500, "env steps before the first update", low=1)
    batch_size = hpo.fixed(64, "transitions", low=1)
    learning_rate = hpo.traced(3e-4, "step size of Adam", low=0, low_open=True, search=RATE)
    gamma = hpo.traced(0.99, "discount", low=0, high=1, search=GAMMA)
    polyak = hpo.traced(
        0.99,
        "share of a target network that stays",
        low=0,
        high=1,
        search={"min": 0.9, "max": 0.999},
    )


class SAC(Replay):
    kind = rejax.SAC
    target_entropy_ratio = hpo.traced(
        0.98, "of the largest entropy (discrete actions)", low=0, high=1
    )


class TD3(Replay):
    kind = rejax.TD3
    exploration_noise = hpo.traced(
        0.3, "of the actions taken", low=0, search={"min": 0.05, "max": 0.5}
    )
    target_noise = hpo.traced(0.2, "of the target's actions", low=0)


class DQN(Replay):
    kind = rejax.DQN
    env = hpo.fixed(
        "CartPole-v1", "id of a gymnax environment", choices=tuple(gymnax.registered_envs)
    )
    exploration_fraction = hpo.fixed(0.1, "of the run, over which epsilon falls")
    eps_start = hpo.traced(1.0, "epsilon at the start", low=0, high=1)
    eps_end = hpo.traced(
        0.05,
        "epsilon from then on",
        low=0,
        high=1,
        search={"min": 0.005, "max": 0.2, "distribution": "log_uniform"},
    )


class PQN(Rejax):
    kind, iterations = rejax.PQN, 4
    env = hpo.fixed(
        "CartPole-v1", "id of a gymnax environment", choices=tuple(gymnax.registered_envs)
    )
    num_envs = hpo.fixed(8, "environments", low=1)
    num_steps = hpo.fixed(32, "env steps of a rollout", low=1)
    num_epochs = hpo.fixed(2, "passes over a rollout", low=1)
    num_minibatches = hpo.fixed(4, "of an epoch", low=1)
    exploration_fraction = hpo.fixed(0.1, "of the run, over which epsilon falls")
    learning_rate = hpo.traced(3e-4, "step size", low=0, low_open=True, search=RATE)
    gamma = hpo.traced(0.99, "discount", low=0, high=1, search=GAMMA)
    td_lambda = hpo.traced(0.9, "of the returns", low=0, high=1, search={"min": 0.0, "max": 1.0})
    eps_start = hpo.traced(1.0, "epsilon at the start", low=0, high=1)
    eps_end = hpo.traced(
        0.05,
        "epsilon from then on",
        low=0,
        high=1,
        search={"min": 0.005, "max": 0.2, "distribution": "log_uniform"},
    )
    max_grad_norm = hpo.traced(
        10.0,
        "of the gradient",
        low=0,
        low_open=True,
        search={"min": 0.1, "max": 10, "distribution": "log_uniform"},
    )
