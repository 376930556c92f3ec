"""The code of a custom environment with gymnax's API, as a user has it in a file."""

CHAIN = '''
import jax
import jax.numpy as jnp
from flax import struct
from gymnax.environments import environment, spaces


@struct.dataclass
class State(environment.EnvState):
    place: jax.Array
    time: int


@struct.dataclass
class Params(environment.EnvParams):
    slip: float = 0.2
    max_steps_in_episode: int = 40


class Chain(environment.Environment[State, Params]):
    """Walk to the right end of five places."""

    def __init__(self, length=5):
        super().__init__()
        self.length = length

    @property
    def default_params(self):
        return Params()

    def step_env(self, key, state, action, params):
        slips = jax.random.uniform(key) < params.slip
        right = jnp.where(slips, 1 - action, action) == 1
        place = jnp.where(right, jnp.minimum(state.place + 1, self.length - 1), 0)
        reward = jnp.where(right & (state.place == self.length - 1), 1.0, 0.0)
        state = State(place=place, time=state.time + 1)
        done = self.is_terminal(state, params)
        return self.get_obs(state), state, reward, done, {"discount": 1.0}

    def reset_env(self, key, params):
        state = State(place=jnp.int32(0), time=0)
        return self.get_obs(state), state

    def get_obs(self, state, params=None, key=None):
        return jax.nn.one_hot(jnp.int32(state.place), self.length)

    def is_terminal(self, state, params):
        return state.time >= params.max_steps_in_episode

    def action_space(self, params=None):
        return spaces.Discrete(2)

    def observation_space(self, params):
        return spaces.Box(0, 1, (self.length,), jnp.float32)
'''
