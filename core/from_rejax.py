"""rejax algorithms as custom training classes (`algorithm: rejax:SAC`) for a study's environment.

A lane's results equal those of rejax's `train`. rejax itself is imported only when a program is
built, so its hyperparameters can be listed without it.
"""

from __future__ import annotations

import importlib
import math
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..errors import ConfigError, MissingExtraError, UnknownNameError
from .envs import registry as environments
from .envs.contract import Box, Discrete, Environment, as_array
from .envs.foreign import relaxed
from .envs.from_gymnax import import_gymnax
from .pytree import Pytree, pytree, where
from .training import Declared, Training, environment, fixed, traced

_STEPS = 256  # approximate env steps per update; one iteration of rejax may have only a few
_RATE = {"min": 1e-5, "max": 1e-2, "distribution": "log_uniform"}
_NEAR_1 = {"min": 0.9, "max": 0.999, "distribution": "one_minus_log"}
_SMALL = {"min": 0.005, "max": 0.2, "distribution": "log_uniform"}
_ENTROPY = {"min": 1e-4, "max": 0.1, "distribution": "log_uniform"}
_ACTIVATIONS = ("elu", "gelu", "leaky_relu", "relu", "silu", "swish", "tanh")
_FRACTION: dict[str, Any] = {"low": 0, "high": 1}
_POSITIVE: dict[str, Any] = {"low": 0, "low_open": True}


def algorithm(name: str) -> type[Rejax]:
    """Return the class of a rejax algorithm.

    Raises:
        UnknownNameError: rejax has no such algorithm.
    """
    if name not in ALGORITHMS:
        raise UnknownNameError("algorithm of rejax", name, ALGORITHMS)
    return ALGORITHMS[name]


def _import_rejax(label: str) -> Any:
    import_gymnax()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # TensorFlow Probability warns about jax
            return importlib.import_module("rejax")
    except ModuleNotFoundError as error:
        missing = error.name or "rejax"
        raise ConfigError(str(MissingExtraError(missing, "rejax", label))) from error


def _declare_integer(default: int, meaning: str, low: int) -> Any:
    """Declare an integer hyperparameter that may differ between the lanes of one program."""
    return Declared(default, True, meaning, low=low)


@pytree
class Playing(Pytree):
    """A training environment's state, its running episode, and sums over finished episodes."""

    inner: Any
    so_far: Float[Array, "..."]  # return of the current episode
    steps: Int[Array, "..."]  # its length so far
    episodes: Int[Array, "..."]
    returns: Float[Array, "..."]
    lengths: Int[Array, "..."]

    @classmethod
    def initial(cls, inner: Any) -> Playing:
        zero, none = jnp.zeros((), jnp.float32), jnp.zeros((), jnp.int32)
        return cls(inner, zero, none, none, zero, none)

    def after(self, inner: Any, reward: Array, done: Array) -> Playing:
        total, steps = self.so_far + reward, self.steps + 1
        return Playing(
            inner=inner,
            so_far=jnp.where(done, 0.0, total),
            steps=jnp.where(done, 0, steps),
            episodes=self.episodes + done.astype(jnp.int32),
            returns=self.returns + jnp.where(done, total, 0.0),
            lengths=self.lengths + jnp.where(done, steps, 0),
        )

    def counted(self) -> Playing:
        """Return a copy with all sums set to 0, for the next update."""
        empty = jax.tree.map(jnp.zeros_like, (self.episodes, self.returns, self.lengths))
        return self.replace(episodes=empty[0], returns=empty[1], lengths=empty[2])


class GymnaxView:
    """An environment as rejax expects it: the API of gymnax 0.0.9, with automatic resets."""

    def __init__(self, env: Environment, params: Any):
        self._env, self.default_params = env, params

    def __deepcopy__(self, memo: Any) -> GymnaxView:
        return self  # it has no state

    def reset(self, key: PRNGKeyArray, params: Any) -> tuple[Any, Any]:
        state, observation = self._env.reset(key, params)
        return as_array(observation), Playing.initial(state)

    def step(self, key: PRNGKeyArray, state: Playing, action: Array, params: Any) -> Any:
        """Return observation, state, reward, done, info; keys are used as in gymnax."""
        of_step, of_reset = jax.random.split(key)
        after = self._env.step(of_step, state.inner, action, params)
        done = jnp.logical_or(after.terminated, after.truncated)
        fresh, first = self._env.reset(of_reset, params)
        inner = where(done, fresh, after.state)
        observation = where(done, as_array(first), as_array(after.observation))
        return observation, state.after(inner, after.reward, done), after.reward, done, {}

    def action_space(self, params: Any) -> Any:
        from gymnax.environments import spaces

        space = self._env.action_space
        if isinstance(space, Discrete):
            return spaces.Discrete(space.n)
        assert isinstance(space, Box)
        return spaces.Box(_box_bound(space.low), _box_bound(space.high), space.shape)

    def observation_space(self, params: Any) -> Any:
        from gymnax.environments import spaces

        struct = jax.eval_shape(as_array, self._env.observation_struct)
        return spaces.Box(-math.inf, math.inf, struct.shape, struct.dtype)


def _box_bound(values: tuple[float, ...]) -> Any:
    if len(set(values)) == 1:
        return values[0]
    return np.asarray(values, np.float32)


class Rejax(Training):
    """A rejax algorithm; each subclass declares its hyperparameters by their rejax names."""

    takes: ClassVar[tuple[type, ...]] = (Discrete, Box)  # action spaces
    networks: ClassVar[tuple[str, ...]] = ("actor", "critic")  # fields that contain a network
    env = environment()
    hidden_layer_sizes = fixed((64, 64), "widths of the hidden layers")
    activation = fixed("swish", "non-linearity of the hidden layers", choices=_ACTIVATIONS)
    num_envs = fixed(1, "parallel environments per lane", low=1)
    normalize_observations = fixed(False, "normalise observations by running statistics")
    normalize_rewards = fixed(False, "normalise rewards by running statistics of returns")
    reward_normalization_discount = traced(
        0.99, "discount of the returns for normalize_rewards", **_FRACTION
    )
    learning_rate = traced(3e-4, "step size of Adam", **_POSITIVE, search=_RATE)
    gamma = traced(0.99, "discount", **_FRACTION, search=_NEAR_1)
    max_grad_norm = Declared(
        "inf",
        True,
        "largest magnitude of a gradient component",
        type="float",
        choices=("inf",),
        **_POSITIVE,
    )

    def setup(self) -> None:
        label = f"rejax:{type(self).__name__}"
        for problem in _environment_misfits(self, label):
            raise ConfigError(problem)
        knobs = self.declared()
        self.whole = tuple(name for name, knob in knobs.items() if knob.type == "int")
        assert self.given is not None
        params = environments.params_of(self.env, self.given.params)
        own = ("hidden_layer_sizes", "activation")
        config = {name: value for name, value in self.fixed_values.items() if name not in own}
        with relaxed():
            made = getattr(_import_rejax(label), type(self).__name__).create(
                env=GymnaxView(self.env, params),
                env_params=params,
                skip_initial_evaluation=True,
                total_timesteps=self.length,
                **config,
            )
            self.base = made.replace(
                **{name: self._resized_network(made, name) for name in self.networks}
            )
        each = self.steps_of_iteration()
        self.iterations = max(1, _STEPS // each)
        self.steps_per_update = self.iterations * each

    def _resized_network(self, made: Any, name: str) -> Any:
        """Return a network with the requested widths; rejax's `create` may not accept them."""
        from flax import linen

        given = {"hidden_layer_sizes": self.hidden_layer_sizes}
        if "activation" in self.fixed_values:
            given["activation"] = getattr(linen, self.activation)
        return getattr(made, name).clone(**given)

    def steps_of_iteration(self) -> int:
        """Return the number of env steps per call to rejax's `train_iteration`."""
        return self.num_envs

    def mistakes(self) -> Iterator[str]:
        """Yield a sentence for each conflict between fixed hyperparameters."""
        yield from ()

    def _algorithm_of_hypers(self, h: Any) -> Any:
        values = dict(vars(h))
        for name in self.whole:
            if name in values:
                values[name] = values[name].astype(jnp.int32)
        if "ddqn" in values:
            values["ddqn"] = values["ddqn"] > 0
        return self.base.replace(**values)

    def init(self, key: PRNGKeyArray, h: Any) -> Any:
        with relaxed():
            state = self._algorithm_of_hypers(h).init_state(key)
            # rejax starts these with the integers 0 and 1, and then adds floats
            rewards = jax.tree.map(jnp.float32, state.rew_rms_state)
            return state.replace(rew_rms_state=rewards)

    def update(self, state: Any, h: Any) -> tuple[Any, Mapping[str, Any]]:
        with relaxed():
            base = self._algorithm_of_hypers(h)
            after = jax.lax.fori_loop(
                0, self.iterations, lambda _, one: base.train_iteration(one), state
            )
            played = after.env_state
            metrics = {
                "episodes": jnp.sum(played.episodes),
                "episode_return": jnp.sum(played.returns),
                "episode_length": jnp.sum(played.lengths),
                "param_norm": _param_norm(after),
            }
            return after.replace(env_state=played.counted()), metrics

    def act(self, state: Any, h: Any, observation: Any, mask: Any, key: jax.Array) -> Any:
        space = self.env.action_space
        with relaxed():
            action = self._algorithm_of_hypers(h).make_act(state)(as_array(observation), key)
            if isinstance(space, Discrete):
                return action.astype(jnp.int32)
            assert isinstance(space, Box)
            return action.astype(jnp.float32).reshape(space.shape)


def _param_norm(state: Any) -> Array:
    """Return the norm of all parameters, which shows whether a lane has diverged."""
    params = [value.params for value in vars(state).values() if hasattr(value, "params")]
    return jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(params)))


def _environment_misfits(training: Rejax, label: str) -> Iterator[str]:
    """Yield a sentence for each reason why an algorithm cannot run in the study's environment."""
    env, other = training.env, "use algorithm: ppo"
    if not isinstance(env.action_space, training.takes):
        yield f"{label} {_other_actions(training)}"
    if env.has_mask:
        yield f"{label} ignores the action mask of {env.id}; {other}"
    if not hasattr(jax.eval_shape(as_array, env.observation_struct), "shape"):
        yield f"{label} needs array observations, but those of {env.id} are a pytree; {other}"
    yield from training.mistakes()


def _other_actions(training: Rejax) -> str:
    space = training.env.action_space
    able = [f"rejax:{name}" for name, one in ALGORITHMS.items() if isinstance(space, one.takes)]
    needed = " or ".join(one.__name__ for one in training.takes)
    given = f"{training.env.id} has {type(space).__name__} actions"
    return f"needs {needed} actions, but {given}; use {' or '.join(able) or 'ppo'}"


class _Replay(Rejax):
    learns_after = "fill_buffer"
    buffer_size = fixed(131_072, "transitions in the replay buffer", low=1)
    batch_size = fixed(256, "transitions per gradient step", low=1)
    fill_buffer = _declare_integer(2_048, "env steps before the first gradient step", low=0)
    target_update_freq = _declare_integer(
        1, "env steps between updates of the target network", low=1
    )
    polyak = traced(
        0.99, "fraction of the target network kept per update", **_FRACTION, search=_NEAR_1
    )

    def mistakes(self) -> Iterator[str]:
        yield from super().mistakes()
        for name in ("batch_size", "num_envs"):
            value = getattr(self, name)
            if value > self.buffer_size:
                yield f"{name} is {value:,}, above buffer_size {self.buffer_size:,}"


class _Rollouts(Rejax):
    num_envs = fixed(64, "parallel environments per lane", low=1)
    num_steps = fixed(64, "env steps per environment in each rollout", low=1)
    num_minibatches = fixed(16, "minibatches per epoch", low=1)

    def steps_of_iteration(self) -> int:
        return self.num_envs * self.num_steps

    def mistakes(self) -> Iterator[str]:
        yield from super().mistakes()
        steps = self.num_envs * self.num_steps
        if steps % self.num_minibatches:
            yield (
                f"num_envs * num_steps is {steps:,}, not a multiple of num_minibatches "
                f"{self.num_minibatches}"
            )


class _EpsilonGreedy(Rejax):
    takes: ClassVar[tuple[type, ...]] = (Discrete,)
    networks: ClassVar[tuple[str, ...]] = ("agent",)
    eps_start = traced(1.0, "probability of a random action at the start", **_FRACTION)
    eps_end = traced(
        0.05, "probability of a random action after exploration", **_FRACTION, search=_SMALL
    )
    exploration_fraction = fixed(
        0.1, "fraction of the run after which eps_end is reached", **_FRACTION
    )


class SAC(_Replay):
    activation = fixed("relu", "non-linearity of the hidden layers", choices=_ACTIVATIONS)
    num_critics = fixed(2, "number of critics; the lowest value is used", low=1)
    num_epochs = _declare_integer(1, "gradient steps per iteration", low=1)
    target_entropy_ratio = traced(
        0.98, "target entropy as a fraction of the maximum entropy (discrete actions)", **_FRACTION
    )


class TD3(_Replay):
    takes = (Box,)
    num_critics = fixed(2, "number of critics; the lowest value is used", low=2, high=2)
    num_epochs = fixed(1, "gradient steps per iteration", low=1)
    policy_delay = fixed(2, "critic iterations per policy iteration", low=1)
    exploration_noise = traced(
        0.3, "standard deviation of the action noise", low=0, search={"min": 0.05, "max": 0.5}
    )
    target_noise = traced(0.2, "standard deviation of the target noise", low=0)
    target_noise_clip = traced(0.5, "largest magnitude of the target noise", low=0)

    def steps_of_iteration(self) -> int:
        return self.num_envs * self.policy_delay


class DQN(_EpsilonGreedy, _Replay):
    agent = fixed("QNetwork", "kind of network", choices=("QNetwork", "DuelingQNetwork"))
    num_epochs = _declare_integer(1, "gradient steps per iteration", low=1)
    ddqn = Declared(True, True, "double Q-learning")


class IQN(_EpsilonGreedy, _Replay):
    num_epochs = _declare_integer(1, "gradient steps per iteration", low=1)
    num_tau_samples = fixed(64, "quantiles in the prediction", low=1)
    num_tau_prime_samples = fixed(64, "quantiles in the target", low=1)
    kappa = traced(1.0, "threshold of the Huber loss", **_POSITIVE)


class PQN(_Rollouts, _EpsilonGreedy):
    activation = None  # a ReLU after a layer norm
    num_epochs = fixed(1, "passes over a rollout", low=1)
    td_lambda = traced(0.9, "lambda of the returns", **_FRACTION, search={"min": 0.0, "max": 1.0})


class PPO(_Rollouts):
    num_epochs = fixed(8, "passes over a rollout", low=1)
    gae_lambda = traced(0.95, "lambda of the advantages", **_FRACTION, search=_NEAR_1)
    clip_eps = traced(
        0.2, "clip range of the probability ratio", **_POSITIVE, search={"min": 0.1, "max": 0.4}
    )
    vf_coef = traced(0.5, "weight of the value loss", low=0)
    ent_coef = traced(0.01, "weight of the entropy", low=0, search=_ENTROPY)


ALGORITHMS: Mapping[str, type[Rejax]] = {
    one.__name__: one for one in (DQN, IQN, PPO, PQN, SAC, TD3)
}
