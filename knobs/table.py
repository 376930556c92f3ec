"""The one table of hyperparameters, and what can be asked of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .knob import SCHEDULES, Knob
from .static import STATIC
from .traced import TRACED

__all__ = [
    "DEFAULTS_OF_OLD",
    "KNOBS",
    "REGISTRABLE",
    "SCHEDULE_KNOBS",
    "allow_choice",
    "known_choices",
    "matters",
]

KNOBS: Mapping[str, Knob] = {knob.name: knob for knob in TRACED + STATIC}


SCHEDULE_KNOBS = tuple(name for name, knob in KNOBS.items() if knob.choices == SCHEDULES)
"""Knobs that say how another one changes over the run."""
REGISTRABLE = ("network", "optimiser", "distribution", *SCHEDULE_KNOBS)
"""Choices that user code can add to."""
_REGISTERED: dict[str, list[str]] = {name: [] for name in REGISTRABLE}


DEFAULTS_OF_OLD: Mapping[str, Any] = {"learning_rate": 3e-4, "normalise_rewards": False}
"""Knobs whose defaults have changed, with what they were in studies whose record says nothing."""


def allow_choice(name: str, choice: str) -> None:
    """Make a word that user code registers legal for a knob."""
    if choice not in known_choices(name):
        _REGISTERED[name].append(choice)


def known_choices(name: str) -> tuple[str, ...]:
    """Return the legal words of a knob, registered ones last."""
    return (*KNOBS[name].choices, *_REGISTERED.get(name, ()))


def matters(name: str, network: str) -> bool:
    """Return whether a knob can matter to a network; to a registered one every knob may.

    >>> matters("gnn_edge_mlp_layers", "mlp"), matters("learning_rate", "mlp")
    (False, True)
    """
    knob = KNOBS[name]
    own = network not in KNOBS["network"].choices
    return own or not knob.networks or network in knob.networks
