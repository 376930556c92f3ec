"""Ready-made spaces of PPO's hyperparameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..knobs import KNOBS
from .make import make_distribution
from .space import Parameter, Space

if TYPE_CHECKING:
    from ConfigSpace import ConfigurationSpace

# Hyperparameters of `ppo`: all batched, so the whole space is one compiled program.
PPO = (
    "learning_rate", "lr_schedule", "gamma", "gae_lambda", "clip_eps", "ent_coef", "vf_coef",
    "max_grad_norm", "update_epochs", "normalise_observations", "normalise_rewards",
)  # fmt: skip

# Hyperparameters of `ppo_architecture`, with one program per combination of values.
ARCHITECTURE = (
    "hidden_sizes",
    "activation",
    "layer_norm",
    "shared_encoder",
    "num_minibatches",
)


def knob_space(names: Sequence[str]) -> Space:
    """Return a space of hyperparameters, with the distributions that their table suggests."""
    each = [(KNOBS[name], make_distribution(KNOBS[name].search or {})) for name in names]
    return Space(
        tuple(Parameter(knob.name, own, own.canonical(knob.default)) for knob, own in each)
    )


def ppo(seed: int | None = None) -> ConfigurationSpace:
    """Return PPO's training hyperparameters as a ConfigurationSpace with the core's defaults.

    >>> dict(ppo().get_default_configuration())["learning_rate"]
    0.001
    """
    from .via_configspace import as_configspace

    return as_configspace(knob_space(PPO), seed)


def ppo_architecture(seed: int | None = None) -> ConfigurationSpace:
    """Return network and update sizes as a ConfigurationSpace; lists are JSON strings."""
    from .via_configspace import as_configspace

    return as_configspace(knob_space(ARCHITECTURE), seed)
