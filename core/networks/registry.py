"""Networks by name: `make` gives the flax module of a plan."""

from __future__ import annotations

from collections.abc import Callable

import flax.linen as nn

from ...errors import ConfigError, UnknownNameError
from ..state import Plan
from .mlp import MLP

__all__ = ["known", "make", "register"]

NetworkFactory = Callable[[Plan, int], nn.Module]
_NETWORKS: dict[str, NetworkFactory] = {"mlp": lambda plan, outputs: MLP(plan, outputs)}


def register(name: str, factory: NetworkFactory) -> None:
    """Add a network: `factory(plan, outputs)` gives a flax module that returns `Outputs`.

    Raises:
        ConfigError: the name is taken.
    """
    if name in _NETWORKS:
        raise ConfigError(f"a network {name!r} exists already; register it under another name")
    _NETWORKS[name] = factory


def known() -> tuple[str, ...]:
    """Give all names."""
    return tuple(sorted(_NETWORKS))


def make(plan: Plan, outputs: int) -> nn.Module:
    """Make the network of a plan with `outputs` policy outputs.

    Raises:
        UnknownNameError: no such network.
    """
    if plan.network not in _NETWORKS:
        raise UnknownNameError("network", plan.network, known())
    return _NETWORKS[plan.network](plan, outputs)
