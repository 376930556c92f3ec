"""The environment contract: pure functions on the arrays of one environment, without auto-reset.

The core maps these functions over environments [E] and lanes [L], resets ended episodes and
bootstraps truncated ones from the final observation, which is always `Step.observation`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int8, Key, PRNGKeyArray

from ...errors import ConfigError
from ..pytree import Pytree, pytree


@dataclass(frozen=True)
class Discrete:
    """Actions 0 .. n-1, int32 of shape []."""

    n: int


@dataclass(frozen=True)
class MultiDiscrete:
    """One integer per component, int32 [len(nvec)]; component i is in 0 .. nvec[i]-1."""

    nvec: tuple[int, ...]


@dataclass(frozen=True, init=False)
class Box:
    """Real actions, float32 of shape `shape`, between `low` and `high`.

    A bound is one number for all components or an array of that shape. It is stored per component,
    so that a box can be hashed and compared.

    >>> Box(low=-1, high=1, shape=(2,))
    Box(low=(-1.0, -1.0), high=(1.0, 1.0), shape=(2,))

    Raises:
        ConfigError: the bounds do not fit the shape.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]
    shape: tuple[int, ...]

    def __init__(self, low: Any, high: Any, shape: int | Sequence[int]) -> None:
        if not isinstance(shape, Sequence):
            shape = (shape,)
        sizes = tuple(map(int, shape))
        object.__setattr__(self, "low", _broadcast_bounds("low", low, sizes))
        object.__setattr__(self, "high", _broadcast_bounds("high", high, sizes))
        object.__setattr__(self, "shape", sizes)


def _broadcast_bounds(name: str, given: Any, shape: tuple[int, ...]) -> tuple[float, ...]:
    bound, size = np.asarray(given, np.float64).reshape(-1), math.prod(shape)
    if len(bound) not in (1, size):
        raise ConfigError(
            f"Box: {name} has {len(bound)} numbers, but shape {shape} needs {size}; give one "
            "number for all, or one per component"
        )
    return tuple(map(float, np.broadcast_to(bound, (size,))))


ActionSpace = Discrete | MultiDiscrete | Box


@pytree
class Step(Pytree):
    """The result of one step of one environment."""

    state: Any  # after the step; any pytree
    observation: Any  # of that state; the final observation where the episode ended
    reward: Float[Array, "..."]  # float32 []; [agents] where `Environment.agents` is above 1
    terminated: Bool[Array, "..."]  # the task ended the episode: no bootstrap
    truncated: Bool[Array, "..."]  # a time limit cut the episode: bootstrap
    info: dict[str, Array]  # float32 [] by name, summed over steps for `Environment.summarise`


@runtime_checkable
class Environment(Protocol):
    """The protocol of environments; instances are hashable and static.

    An environment may also have an attribute `agents`, the number of agents that one policy
    controls, each with a separate observation. With several agents, `observation_struct`,
    `action_space` and the mask's A describe one agent. Observations, rewards and actions have a
    leading axis [agents], the mask is [agents, A], and an episode ends for all agents at once.
    """

    id: str
    action_space: ActionSpace
    # A tree of `jax.ShapeDtypeStruct`. Networks that take one array read a tree by its
    # `as_vector()`, float32 [..., n] for any leading axes.
    observation_struct: Any
    has_mask: bool  # whether `action_mask` may be called
    never_ends: bool  # no episode ever ends, so no reset is compiled in
    warmup_steps: int  # per environment, before learning and metrics start
    # A pytree of float32 leaves that may differ per lane; studies sweep them as `env.<name>`.
    default_params: Any

    def reset(self, key: PRNGKeyArray, params: Any) -> tuple[Any, Any]:
        """Return the state and observation at the start of a new episode."""
        ...

    def step(self, key: PRNGKeyArray, state: Any, action: Array, params: Any) -> Step:
        """Advance one step, without resetting."""
        ...

    def action_mask(self, state: Any, params: Any) -> Bool[Array, " A"]:
        """Return the mask of valid actions; A is n, or sum(nvec) with the components in order."""
        ...

    def summarise(self, sums: Mapping[str, Array], steps: Array) -> dict[str, Array]:
        """Return metrics (names without prefix) from sums of `Step.info` over `steps` steps."""
        ...


@runtime_checkable
class HostedEnvironment(Protocol):
    """An environment outside compiled programs, stepped by `core.host`."""

    def values(self, params: Any) -> dict[str, Any]:
        """Return the constructor's arguments for one lane's parameters."""
        ...

    def observed(self, raw: Any) -> Any:
        """Convert raw observations (any leading axes) to the form that the policy sees."""
        ...

    def taken(self, action: Any) -> Any:
        """Convert the policy's actions (any leading axes) to the environment's form."""
        ...


@runtime_checkable
class DrawingEnvironment(Protocol):
    """An environment that can be rendered, for videos of policies."""

    id: str
    pictures_a_second: float

    def pictures(self, states: Sequence[Any], params: Any) -> Iterator[np.ndarray]:
        """Return a rendered frame of each state (host arrays), uint8 [height, width, 3]."""
        ...


@dataclass(frozen=True, eq=False)
class Routes:
    """The fixed network that requests are routed over, as used by gnn, transformer and path_mlp.

    Action path * outputs + o is option o on a candidate path; any actions after these have no
    path.
    """

    num_nodes: int  # N
    # int32 [links], the node each link leaves, in the order links are observed
    senders: np.ndarray
    receivers: np.ndarray  # int32 [links], the node it enters
    pairs: np.ndarray  # int32 [R, 2], source and destination of each pair
    # int32 [R, K, H], links of the candidate paths; only the first `hop_counts` are read
    hops: np.ndarray
    hop_counts: np.ndarray  # int32 [R, K], 0 where a path is missing
    km: np.ndarray  # float64 [links]
    coordinates: np.ndarray  # float32 [links, P], similar for links near each other
    outputs: int  # options of a path


@runtime_checkable
class RoutedEnvironment(Protocol):
    """An environment whose actions are paths through a fixed network.

    The observation is either a graph of nodes and links, or a pytree with a field `pair`, which
    indexes the rows of `Routes.pairs`. In a graph, the last two node columns mark the request's
    source (above 0) and destination (below 0).
    """

    routes: Routes


@runtime_checkable
class ShadowedEnvironment(Environment, Protocol):
    """An environment whose inputs do not depend on actions, with a heuristic for the same inputs.

    Given the same state and key, `shadow_step` and `step` draw the same inputs. Their episodes end
    at the same steps, because only the time limit ends them.
    """

    has_shadow: bool  # whether a heuristic is set

    def shadow_step(self, key: PRNGKeyArray, state: Any, params: Any) -> Step:
        """Advance one step with the heuristic's action, without resetting."""
        ...


def same_observations(one: Environment, other: Environment) -> bool:
    leaves, structure = jax.tree.flatten(one.observation_struct)
    return (leaves, structure) == jax.tree.flatten(other.observation_struct)


def differing(one: Environment, other: Environment) -> Iterator[tuple[str, Any, Any]]:
    """Yield ("actions", one, other) and ("observations", one, other), each only if they differ."""
    if one.action_space != other.action_space:
        yield "actions", one.action_space, other.action_space
    if not same_observations(one, other):
        yield "observations", one.observation_struct, other.observation_struct


def agents_of(env: Environment) -> int:
    return getattr(env, "agents", 1)


def reset_all(env: Environment, keys: Key[Array, " E"], params: Any) -> tuple[Any, Any]:
    state, observation = jax.vmap(env.reset, in_axes=(0, None))(keys, params)
    return state, _merge_agents(env, observation)


def step_all(
    env: Environment, keys: Key[Array, " E"], state: Any, action: Array, params: Any
) -> Step:
    agents = agents_of(env)
    if agents > 1:
        action = action.reshape((-1, agents, *action.shape[1:]))
    after = jax.vmap(env.step, in_axes=(0, 0, 0, None))(keys, state, action, params)
    if agents == 1:
        return after
    return after.replace(
        observation=_merge_agents(env, after.observation), reward=_merge_agents(env, after.reward)
    )


def mask_all(env: Environment, state: Any, params: Any) -> Array | None:
    if not env.has_mask:
        return None
    return _merge_agents(env, jax.vmap(lambda one: env.action_mask(one, params))(state))


def per_body(env: Environment, flags: Array) -> Array:
    agents = agents_of(env)
    if agents == 1:
        return flags
    return jnp.repeat(flags, agents, axis=-1)


def mean_over_bodies(env: Environment, values: Array) -> Array:
    agents = agents_of(env)
    if agents == 1:
        return values
    return jnp.mean(values.reshape((*values.shape[:-1], -1, agents)), axis=-1)


def _merge_agents(env: Environment, tree: Any) -> Any:
    if agents_of(env) == 1:
        return tree
    return jax.tree.map(lambda x: x.reshape((-1, *x.shape[2:])), tree)


@pytree
class Remembering(Pytree):
    inner: Any  # state of the inner environment
    seen: Array  # the last observations, oldest first, [length, ...]


class StackedEnvironment:
    def __init__(self, env: Environment, length: int):
        if agents_of(env) > 1:
            raise ConfigError(
                f"history is {length}, but {env.id} has several agents, whose observations "
                "cannot be stacked; remove history"
            )
        struct = env.observation_struct
        if not hasattr(struct, "shape"):
            raise ConfigError(
                f"history is {length}, but the observations of {env.id} are a pytree, which "
                "cannot be stacked; remove history or choose a different `observation`"
            )
        self.inner, self.length = env, length
        self.id, self.action_space = env.id, env.action_space
        self.has_mask, self.never_ends = env.has_mask, env.never_ends
        self.warmup_steps, self.default_params = env.warmup_steps, env.default_params
        self.observation_struct = jax.ShapeDtypeStruct((length, *struct.shape), struct.dtype)

    def reset(self, key: PRNGKeyArray, params: Any) -> tuple[Remembering, Array]:
        state, observation = self.inner.reset(key, params)
        struct = self.observation_struct
        observations = pushed(jnp.zeros(struct.shape, struct.dtype), observation)
        return Remembering(state, observations), observations

    def step(self, key: PRNGKeyArray, state: Remembering, action: Array, params: Any) -> Step:
        return _stacked_step(state, self.inner.step(key, state.inner, action, params))

    @property
    def has_shadow(self) -> bool:
        return isinstance(self.inner, ShadowedEnvironment) and self.inner.has_shadow

    def shadow_step(self, key: PRNGKeyArray, state: Remembering, params: Any) -> Step:
        assert isinstance(self.inner, ShadowedEnvironment)
        return _stacked_step(state, self.inner.shadow_step(key, state.inner, params))

    def action_mask(self, state: Remembering, params: Any) -> Array:
        return self.inner.action_mask(state.inner, params)

    def summarise(self, sums: Mapping[str, Array], steps: Array) -> dict[str, Array]:
        return self.inner.summarise(sums, steps)


def _stacked_step(before: Remembering, after: Step) -> Step:
    observations = pushed(before.seen, after.observation)
    return after.replace(state=Remembering(after.state, observations), observation=observations)


def pushed(observations: Array, observation: Array) -> Array:
    return jnp.concatenate([observations[1:], observation[None]])


def unwrapped(env: Environment) -> Environment:
    """Return the innermost wrapped environment, which has attributes such as `env.routes`."""
    while isinstance(env, StackedEnvironment):
        env = env.inner
    return env


@pytree
class Flagged(Pytree):
    """Rows of m + n numbers; all except the first m are 0 or 1."""

    numbers: Float[Array, "... m"]  # the first m
    flags: Int8[Array, "... n"]  # the others


def as_array(observation: Any) -> Any:
    if hasattr(observation, "as_vector"):
        return observation.as_vector()
    return observation
