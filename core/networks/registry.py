"""Networks by name: `make` gives the flax module of a plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flax.linen as nn

from ...errors import ConfigError, UnknownNameError
from ..state import Plan
from .mlp import MLP

__all__ = ["known", "make", "register"]

NetworkFactory = Callable[[Plan, int, Any], nn.Module]


def _mlp(plan: Plan, outputs: int, observation_struct: Any) -> nn.Module:
    if not hasattr(observation_struct, "shape"):
        raise ConfigError(
            f"network mlp reads one array, but the observations of {plan.env.id} are a tree; "
            "choose another network or another `observation` of the environment"
        )
    return MLP(plan, outputs, len(observation_struct.shape))


_NETWORKS: dict[str, NetworkFactory] = {"mlp": _mlp}


def register(name: str, factory: NetworkFactory) -> None:
    """Add a network: `factory(plan, outputs, observation_struct)` gives a flax module.

    The module maps observations (leading axes allowed) to `Outputs`; top-level parameter names
    that start with `critic` are the critic's.

    Raises:
        ConfigError: the name is taken.
    """
    if name in _NETWORKS:
        raise ConfigError(f"a network {name!r} exists already; register it under another name")
    _NETWORKS[name] = factory


def known() -> tuple[str, ...]:
    """Give all names."""
    return tuple(sorted(_NETWORKS))


def make(plan: Plan, outputs: int, observation_struct: Any) -> nn.Module:
    """Make the network of a plan.

    Args:
        plan: names the network and its sizes.
        outputs: logits or means the policy head gives.
        observation_struct: shapes and dtypes of one observation.

    Raises:
        UnknownNameError: no such network.
    """
    if plan.network not in _NETWORKS:
        raise UnknownNameError("network", plan.network, known())
    return _NETWORKS[plan.network](plan, outputs, observation_struct)
