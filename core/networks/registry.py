"""Networks by name: `make` returns the flax module of a plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import flax.linen as nn
from jaxtyping import Array, Bool

from ...errors import ConfigError, UnknownNameError, require_new
from ...knobs import allow_choice
from ..envs import registry as environments
from ..envs.contract import Routes, unwrapped
from ..plan import RECURRENT, Plan
from .cnn import CNN, convolutions_of, is_stacked
from .gnn import GNN
from .layers import Outputs
from .mlp import MLP, SLOT, PathMLP, observed_size
from .path_pooling import SHARES, routes_of
from .recurrent import Recurrent
from .transformer import LinkTransformer, SequenceTransformer

NetworkFactory = Callable[[Plan, int, Any], nn.Module]  # see `register`


@runtime_checkable
class RecurrentNetwork(Protocol):
    """The methods that a recurrent module has in addition to `__call__`.

    Minibatches for such a module consist of whole sequences. `step` and `unroll` are called with
    bound parameters; unrolling must give the same results as stepping.
    """

    def initial_carry(self, lead: tuple[int, ...]) -> Any:
        """Return the initial carry, [lead, ...]; it does not depend on network parameters."""
        ...

    def step(self, observation: Any, carry: Any) -> tuple[Outputs, Any]:
        """Return outputs [...] and the memory after one step with observations [...]."""
        ...

    def unroll(self, observation: Any, first: Bool[Array, "T *S"], carry: Any) -> Outputs:
        """Return outputs [T, S] for observations [T, S]; the memory is cleared where `first`."""
        ...


def _array_shape(name: str, plan: Plan, struct: Any) -> tuple[int, ...]:
    if not hasattr(struct, "shape"):
        raise ConfigError(
            f"network {name} reads a single array, but the observations of {plan.env.id} are "
            "a pytree; choose a different network or `observation`"
        )
    return tuple(struct.shape)


def _make_mlp(plan: Plan, outputs: int, struct: Any) -> nn.Module:
    return MLP(plan, outputs, len(_array_shape("mlp", plan, struct)))


def _make_cnn(plan: Plan, outputs: int, struct: Any) -> nn.Module:
    shape = _array_shape("cnn", plan, struct)
    if len(shape) not in (2, 3, 4):
        raise ConfigError(
            f"network cnn reads images, but the observations of {plan.env.id} have the "
            f"shape {list(shape)}; use mlp"
        )
    sides = shape[:2]
    if is_stacked(shape, plan.env.history > 1):
        sides = shape[1:3]
    convolutions_of(plan, *sides)
    return CNN(plan, outputs, shape)


def _make_recurrent(plan: Plan, outputs: int, struct: Any) -> nn.Module:
    return Recurrent(plan, outputs, _array_shape(plan.network, plan, struct))


def _routes_of_plan(plan: Plan) -> Routes | None:
    return routes_of(environments.make(plan.env), environments.make(plan.eval_env))


def _make_gnn(plan: Plan, outputs: int, struct: Any) -> nn.Module:
    if not all(hasattr(struct, name) for name in ("nodes", "edges", "globals", "senders")):
        raise ConfigError(
            f"network gnn reads graphs, which {plan.env.id} does not provide; optical "
            "environments provide them with `observation: graph`"
        )
    routes = _routes_of_plan(plan)
    if routes is None:
        _check_no_shares(plan)
    return GNN(plan, outputs, routes)


def _make_transformer(plan: Plan, outputs: int, struct: Any) -> nn.Module:
    if hasattr(struct, "shape"):
        _check_no_shares(plan)
        shape = tuple(struct.shape)
        return SequenceTransformer(plan, outputs, shape, plan.env.history)
    routes = _routes_of_plan(plan)
    if routes is None or not hasattr(struct, "slots"):
        raise ConfigError(
            "network transformer reads link tokens or a single array (with `history`), but the "
            f"observations of {plan.env.id} are neither; optical environments "
            "provide tokens with `observation: link_departure`"
        )
    if plan.link_critic_sees == SHARES and "link_capacity" in _observation_kinds(plan):
        raise ConfigError(
            "link_critic_sees is 'shares', but link_capacity does not distinguish full and unused "
            "slots; set transformer_obs_type to departure or occupancy, or use 'slots'"
        )
    return LinkTransformer(plan, outputs, routes)


def _path_mlp(plan: Plan, outputs: int, struct: Any) -> nn.Module:
    routes = _routes_of_plan(plan)
    shown = plan.env.history == 1 and dict(plan.env.keys).get("observation") == "paths"
    if routes is None or not shown or tuple(struct.shape) != (observed_size(routes),):
        raise ConfigError(
            "network path_mlp reads the candidate paths of an optical environment, which "
            f"{plan.env.id} does not provide; use `observation: paths` without `history`"
        )
    if plan.shared_encoder:
        raise ConfigError(
            "network path_mlp has no layers that actor and critic could share; remove "
            "shared_encoder"
        )
    if not plan.hidden_sizes:
        raise ConfigError(
            "network path_mlp needs a hidden layer; set hidden_sizes, such as [32, 32]"
        )
    rounds = plan.dtype != "float32" or "normalise_observations" in plan.features
    if plan.path_mlp_begins == SLOT and rounds:
        raise ConfigError(
            "path_mlp_begins is 'slot', which needs unscaled start slots; remove "
            "normalise_observations and dtype, or use 'path'"
        )
    slots = getattr(unwrapped(environments.make(plan.env)), "slots", 100)
    return PathMLP(plan, outputs, routes, slots)


def _observation_kinds(plan: Plan) -> set[Any]:
    return {dict(env.keys).get("observation") for env in (plan.env, plan.eval_env)}


def _check_no_shares(plan: Plan) -> None:
    if plan.link_critic_sees == SHARES:
        raise ConfigError(
            f"link_critic_sees is 'shares', but the observations of {plan.env.id} have no "
            "links with slots; use 'slots' or remove it"
        )


_NETWORKS: dict[str, NetworkFactory] = {
    "mlp": _make_mlp,
    "cnn": _make_cnn,
    "gnn": _make_gnn,
    "transformer": _make_transformer,
    "path_mlp": _path_mlp,
    "lstm": _make_recurrent,
    "gru": _make_recurrent,
}


def register(name: str, factory: NetworkFactory, recurrent: bool = False) -> None:
    """Add a network, so that studies can select it by `network: name`.

    `factory(plan, outputs, observation_struct)` returns a flax module that maps observations
    (leading axes allowed) to `Outputs`. Top-level parameters whose names start with `critic`
    belong to the critic. If `recurrent` is true, the module must also be a `RecurrentNetwork`.
    `testing.NetworkContract` checks all requirements.

    Raises:
        ConfigError: the name is taken.
    """
    require_new("network", name, _NETWORKS)
    _NETWORKS[name] = factory
    if recurrent:
        RECURRENT.add(name)
    allow_choice("network", name)


def known() -> tuple[str, ...]:
    return tuple(sorted(_NETWORKS))


def make(plan: Plan, outputs: int, observation_struct: Any) -> nn.Module:
    """Make the network of a plan, with `outputs` numbers in its policy head."""
    if plan.network not in _NETWORKS:
        raise UnknownNameError("network", plan.network, known())
    return _NETWORKS[plan.network](plan, outputs, observation_struct)
