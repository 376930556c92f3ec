"""What the core asks of an environment: pure functions of one environment's arrays, no auto-reset.

The core maps these functions over environments [E] and lanes [L], resets ended episodes itself and
bootstraps truncated ones from the final observation, which `Step.observation` always is.
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
    """One integer a component, int32 of shape [len(nvec)]; component i is in 0 .. nvec[i]-1."""

    nvec: tuple[int, ...]


@dataclass(frozen=True, init=False)
class Box:
    """Real actions, float32 of shape `shape`, between `low` and `high`.

    Bounds may be given as one number for all components, or as an array of that shape; kept are
    a pair a component, so that a box can be hashed and compared.

    >>> Box(low=-1, high=1, shape=(2,))
    Box(low=(-1.0, -1.0), high=(1.0, 1.0), shape=(2,))

    Raises:
        ConfigError: the bounds do not fit the shape.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]
    shape: tuple[int, ...]

    def __init__(self, low: Any, high: Any, shape: int | Sequence[int]) -> None:
        sizes = tuple(map(int, shape)) if isinstance(shape, Sequence) else (int(shape),)
        object.__setattr__(self, "low", _bounds("low", low, sizes))
        object.__setattr__(self, "high", _bounds("high", high, sizes))
        object.__setattr__(self, "shape", sizes)


def _bounds(name: str, given: Any, shape: tuple[int, ...]) -> tuple[float, ...]:
    """Return one bound a component."""
    bound, size = np.asarray(given, np.float64).reshape(-1), math.prod(shape)
    if len(bound) not in (1, size):
        raise ConfigError(
            f"Box: {name} has {len(bound)} numbers, but shape {shape} has {size}; give one number "
            "for all, or one a component"
        )
    return tuple(map(float, np.broadcast_to(bound, (size,))))


ActionSpace = Discrete | MultiDiscrete | Box


@pytree
class Step(Pytree):
    """What one step of one environment gives.

    Attributes:
        state: the environment's state after the step (any pytree).
        observation: of that state; the final observation where the episode ended.
        reward: float32 []; [agents] where `Environment.agents` is above 1.
        terminated: the episode ended by its own rules; nothing is bootstrapped.
        truncated: the episode was cut (time limit); its final observation is bootstrapped.
        info: float32 [] by name; the core sums them over steps for `Environment.summarise`.
    """

    state: Any
    observation: Any
    reward: Float[Array, "..."]
    terminated: Bool[Array, "..."]  # [] of one environment; mapped over many, [E]
    truncated: Bool[Array, "..."]
    info: dict[str, Array]


@runtime_checkable
class Environment(Protocol):
    """One kind of environment; hashable, static, without arrays of its own that lanes could vary.

    Attributes:
        id: the name it is registered under.
        action_space: Discrete, MultiDiscrete or Box.
        observation_struct: a tree of `jax.ShapeDtypeStruct`, one environment's observation. A tree
            with a method `as_vector`, which gives float32 [..., n] for any leading axes, can be
            read by networks of one array; it is expanded where a network reads it.
        has_mask: whether `action_mask` gives an array.
        never_ends: no episode ever ends, so no reset is compiled in.
        warmup_steps: steps per environment before learning and metrics begin.
        default_params: a pytree of float32 leaves, each of which may differ per lane; its field
            names are what a study sweeps as `env.<name>`.

    An environment may also say `agents`, a number of bodies that one policy moves, each by its
    own observation. If it is above 1, `observation_struct`, `action_space` and the mask's A are
    one body's; `reset` and `step` give observations and rewards, and take actions, with a leading
    [agents]; `action_mask` gives [agents, A]; an episode ends for all bodies at once.
    """

    id: str
    action_space: ActionSpace
    observation_struct: Any
    has_mask: bool
    never_ends: bool
    warmup_steps: int
    default_params: Any

    def reset(self, key: PRNGKeyArray, params: Any) -> tuple[Any, Any]:
        """Return a fresh (state, observation)."""
        ...

    def step(self, key: PRNGKeyArray, state: Any, action: Array, params: Any) -> Step:
        """Advance one step, without resetting."""
        ...

    def action_mask(self, state: Any, params: Any) -> Bool[Array, " A"]:
        """Return the valid actions of this state; called only if `has_mask`.

        A is n of `Discrete`; for `MultiDiscrete` sum(nvec), component after component.
        """
        ...

    def summarise(self, sums: Mapping[str, Array], steps: Array) -> dict[str, Array]:
        """Turn sums of `Step.info` over `steps` steps into metrics, named without prefix."""
        ...


@runtime_checkable
class HostedEnvironment(Protocol):
    """An environment outside of compiled programs, which `core.host` steps."""

    def values(self, params: Any) -> dict[str, Any]:
        """Return the arguments of its constructor for one lane's parameters."""
        ...

    def observed(self, raw: Any) -> Any:
        """Return observations as the policy sees them; leading axes are allowed."""
        ...

    def taken(self, action: Any) -> Any:
        """Return actions of the policy as it takes them; leading axes are allowed."""
        ...


@runtime_checkable
class DrawingEnvironment(Protocol):
    """An environment that can draw itself, for films of policies at work.

    Attributes:
        id: the name it is registered under.
        pictures_a_second: at which a film of it looks right.
    """

    id: str
    pictures_a_second: float

    def pictures(self, states: Sequence[Any], params: Any) -> Iterator[np.ndarray]:
        """Return a picture, uint8 [height, width, 3], of each state of an episode.

        Args:
            states: from the first to the one in which it ended, as host arrays.
            params: of the environment.
        """
        ...


@dataclass(frozen=True, eq=False)
class Routes:
    """The fixed network that requests are routed over: gnn, transformer and path_mlp build on it.

    Action path * outputs + o is option o of a candidate path; further actions belong to no path.

    Attributes:
        num_nodes: N.
        senders: int32 [links], the node each link leaves, in the order links are observed.
        receivers: int32 [links], the node it enters.
        pairs: int32 [R, 2], source and destination of each pair.
        hops: int32 [R, K, H], links of the candidate paths; only the first `hop_counts` are read.
        hop_counts: int32 [R, K], 0 where a path is missing.
        km: float64 [links].
        coordinates: float32 [links, P], what links that lie near each other have alike.
        outputs: options of a path.
    """

    num_nodes: int
    senders: np.ndarray
    receivers: np.ndarray
    pairs: np.ndarray
    hops: np.ndarray
    hop_counts: np.ndarray
    km: np.ndarray
    coordinates: np.ndarray
    outputs: int


@runtime_checkable
class RoutedEnvironment(Protocol):
    """An environment whose actions are paths through a fixed network.

    Its observation is a graph of its nodes and links, whose last two node columns mark the source
    (above 0) and the destination (below 0) of the request, or a tree with `pair`, the row of
    `Routes.pairs`.
    """

    routes: Routes


@runtime_checkable
class ShadowedEnvironment(Environment, Protocol):
    """An environment whose inputs do not depend on actions, and a rule that can serve them too.

    From one state and key, `shadow_step` draws what `step` draws, and it ends episodes (by time
    alone) where that does.

    Attributes:
        has_shadow: whether such a rule is chosen.
    """

    has_shadow: bool

    def shadow_step(self, key: PRNGKeyArray, state: Any, params: Any) -> Step:
        """Advance one step by the rule, without resetting."""
        ...


def same_observations(one: Environment, other: Environment) -> bool:
    """Return whether two environments' observations have the same structure, shapes and dtypes."""
    leaves, structure = jax.tree.flatten(one.observation_struct)
    return (leaves, structure) == jax.tree.flatten(other.observation_struct)


def agents_of(env: Environment) -> int:
    """Return the bodies of one environment: its `agents`, 1 where it has none to say."""
    return getattr(env, "agents", 1)


def reset_all(env: Environment, keys: Key[Array, " E"], params: Any) -> tuple[Any, Any]:
    """Return fresh (states [E, ...], observations [S, ...]) from keys [E]."""
    state, observation = jax.vmap(env.reset, in_axes=(0, None))(keys, params)
    return state, _joined(env, observation)


def step_all(
    env: Environment, keys: Key[Array, " E"], state: Any, action: Array, params: Any
) -> Step:
    """Advance all one step.

    Args:
        env: the environment.
        keys: [E].
        state: [E, ...].
        action: [S, ...], as the environment takes them.
        params: of the environment, shared.

    Returns:
        A step whose observation and reward are [S, ...], and all else [E, ...].
    """
    agents = agents_of(env)
    if agents > 1:
        action = action.reshape((-1, agents, *action.shape[1:]))
    after = jax.vmap(env.step, in_axes=(0, 0, 0, None))(keys, state, action, params)
    if agents == 1:
        return after
    return after.replace(
        observation=_joined(env, after.observation), reward=_joined(env, after.reward)
    )


def mask_all(env: Environment, state: Any, params: Any) -> Array | None:
    """Return the valid actions [S, A] of states [E, ...], or None where there are no masks."""
    if not env.has_mask:
        return None
    return _joined(env, jax.vmap(lambda one: env.action_mask(one, params))(state))


def per_body(env: Environment, flags: Array) -> Array:
    """Return [..., S] from what all bodies of an environment share, [..., E]."""
    agents = agents_of(env)
    return flags if agents == 1 else jnp.repeat(flags, agents, axis=-1)


def mean_over_bodies(env: Environment, values: Array) -> Array:
    """Return the mean [..., E] over the bodies of each environment of [..., S]."""
    agents = agents_of(env)
    if agents == 1:
        return values
    return jnp.mean(values.reshape((*values.shape[:-1], -1, agents)), axis=-1)


def _joined(env: Environment, tree: Any) -> Any:
    if agents_of(env) == 1:
        return tree
    return jax.tree.map(lambda x: x.reshape((-1, *x.shape[2:])), tree)


@pytree
class Remembering(Pytree):
    """State of an environment whose observations are stacked.

    Attributes:
        inner: the environment's own.
        seen: the last observations, oldest first, [length, ...].
    """

    inner: Any
    seen: Array


class StackedEnvironment:
    """An environment that shows its last `length` observations as [length, ...]."""

    def __init__(self, env: Environment, length: int):
        """Wrap an environment.

        Raises:
            ConfigError: its observations are a tree, or it has several bodies.
        """
        if agents_of(env) > 1:
            raise ConfigError(
                f"history is {length}, but {env.id} has several bodies, whose observations are "
                "not stacked; leave history out"
            )
        struct = env.observation_struct
        if not hasattr(struct, "shape"):
            raise ConfigError(
                f"history is {length}, but the observations of {env.id} are a tree, which cannot "
                "be stacked; leave history out or choose another `observation`"
            )
        self.inner, self.length = env, length
        self.id, self.action_space = env.id, env.action_space
        self.has_mask, self.never_ends = env.has_mask, env.never_ends
        self.warmup_steps, self.default_params = env.warmup_steps, env.default_params
        self.observation_struct = jax.ShapeDtypeStruct((length, *struct.shape), struct.dtype)

    def reset(self, key: PRNGKeyArray, params: Any) -> tuple[Remembering, Array]:
        """Return a fresh state and its first observation, behind zeros."""
        state, observation = self.inner.reset(key, params)
        struct = self.observation_struct
        seen = pushed(jnp.zeros(struct.shape, struct.dtype), observation)
        return Remembering(state, seen), seen

    def step(self, key: PRNGKeyArray, state: Remembering, action: Array, params: Any) -> Step:
        """Advance one step; the oldest observation makes room for the newest."""
        return _seen(state, self.inner.step(key, state.inner, action, params))

    @property
    def has_shadow(self) -> bool:
        """Whether the environment has one."""
        return isinstance(self.inner, ShadowedEnvironment) and self.inner.has_shadow

    def shadow_step(self, key: PRNGKeyArray, state: Remembering, params: Any) -> Step:
        """Advance one step by the environment's own rule."""
        assert isinstance(self.inner, ShadowedEnvironment)
        return _seen(state, self.inner.shadow_step(key, state.inner, params))

    def action_mask(self, state: Remembering, params: Any) -> Array:
        """Return the valid actions of this state."""
        return self.inner.action_mask(state.inner, params)

    def summarise(self, sums: Mapping[str, Array], steps: Array) -> dict[str, Array]:
        """Return the environment's own metrics."""
        return self.inner.summarise(sums, steps)


def _seen(before: Remembering, after: Step) -> Step:
    """Return a step of the inner environment as the stack shows it."""
    seen = pushed(before.seen, after.observation)
    return after.replace(state=Remembering(after.state, seen), observation=seen)


def pushed(seen: Array, observation: Array) -> Array:
    """Return stacked observations [length, ...] with one more in the place of the oldest."""
    return jnp.concatenate([seen[1:], observation[None]])


def unwrapped(env: Environment) -> Environment:
    """Return the environment that an id names, without what the engine puts around it.

    Whoever asks for more than the contract (`isinstance(env, OpticalEnvironment)`, `env.routes`)
    asks the unwrapped one.
    """
    while isinstance(env, StackedEnvironment):
        env = env.inner
    return env


@pytree
class Flagged(Pytree):
    """Rows of an array of m + n numbers of which all but the first m are 0 or 1.

    Attributes:
        numbers: the first m; float32 [..., m].
        flags: the others; int8 [..., n].
    """

    numbers: Float[Array, "... m"]
    flags: Int8[Array, "... n"]


def as_array(observation: Any) -> Any:
    """Return the array of an observation; one without `as_vector` is returned as it is."""
    return observation.as_vector() if hasattr(observation, "as_vector") else observation
