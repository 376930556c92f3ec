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
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ...errors import ConfigError
from ..pytree import Pytree, pytree

__all__ = [
    "ActionSpace",
    "Box",
    "Discrete",
    "DrawingEnvironment",
    "Environment",
    "HostedEnvironment",
    "MultiDiscrete",
    "RoutedEnvironment",
    "Routes",
    "ShadowedEnvironment",
    "Step",
    "same_observations",
]


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
