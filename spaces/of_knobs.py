"""Ready-made spaces of PPO, made of the knob table: what to vary, how, and the core's defaults."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..knobs import KNOBS
from .make import make_distribution
from .space import Parameter, Space

if TYPE_CHECKING:
    from ConfigSpace import ConfigurationSpace

__all__ = ["ARCHITECTURE", "PPO", "knob_space", "ppo", "ppo_architecture"]

PPO = (
    "learning_rate", "lr_schedule", "gamma", "gae_lambda", "clip_eps", "ent_coef", "vf_coef",
    "max_grad_norm", "update_epochs", "normalise_observations", "normalise_rewards",
)  # fmt: skip
"""Knobs of `ppo`: all traced, so that the whole space is one compiled program."""

ARCHITECTURE = (
    "hidden_sizes", "activation", "layer_norm", "shared_encoder", "num_minibatches",
)  # fmt: skip
"""Knobs of `ppo_architecture`: every combination of values is a program of its own."""


def knob_space(names: Sequence[str]) -> Space:
    """Return the space of some knobs, each with the distribution that the knob table suggests."""
    return Space(tuple(_parameter(name) for name in names))


def _parameter(name: str) -> Parameter:
    knob = KNOBS[name]
    assert knob.search is not None  # a test holds both tuples against the table
    distribution = make_distribution(knob.search)
    return Parameter(name, distribution, distribution.canonical(knob.default))


def ppo(seed: int | None = None) -> ConfigurationSpace:
    """Return PPO's own hyperparameters as a ConfigurationSpace; its default is the core's.

    >>> dict(ppo().get_default_configuration())["learning_rate"]
    0.001
    """
    from .as_configspace import as_configspace

    return as_configspace(knob_space(PPO), seed)


def ppo_architecture(seed: int | None = None) -> ConfigurationSpace:
    """Return the shape of network and update as a ConfigurationSpace; lists are JSON texts."""
    from .as_configspace import as_configspace

    return as_configspace(knob_space(ARCHITECTURE), seed)
