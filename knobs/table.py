"""All hyperparameters by name, their names in other systems, and choices of user code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import ConfigError, listed, suggestion
from ..foreign_names.name_mapping import NameRow
from ..foreign_names.tables import hints
from .knob import SCHEDULES, Knob
from .static_knobs import STATIC
from .traced_knobs import TRACED

KNOBS: Mapping[str, Knob] = {knob.name: knob for knob in TRACED + STATIC}
SCHEDULE_KNOBS = tuple(name for name, knob in KNOBS.items() if knob.choices == SCHEDULES)
# hyperparameters to which user code can add choices
REGISTRABLE = ("network", "optimiser", "distribution", *SCHEDULE_KNOBS)
_REGISTERED: dict[str, list[str]] = {name: [] for name in REGISTRABLE}

# Former defaults, for studies whose record lacks these hyperparameters.
AVERAGE_REWARD = "average_reward_initial"  # its default was 0, which meant what `off` means now
DEFAULTS_OF_OLD: Mapping[str, Any] = {"learning_rate": 3e-4, "normalise_rewards": False}

_AMERICAN = {
    "normalize": "normalise",
    "optimizer": "optimiser",
    "initialization": "initialisation",
}


def allow_choice(name: str, choice: str) -> None:
    """Add a word registered by user code to a hyperparameter's legal words."""
    if choice not in known_choices(name):
        _REGISTERED[name].append(choice)


def known_choices(name: str) -> tuple[str, ...]:
    """Return a hyperparameter's legal words, registered ones last."""
    return (*KNOBS[name].choices, *_REGISTERED.get(name, ()))


def choices_of(knob: Knob) -> tuple[str, ...]:
    """Return the legal words of a hyperparameter in any table."""
    if KNOBS.get(knob.name) is knob:
        return known_choices(knob.name)
    return knob.choices


def matters(name: str, network: str) -> bool:
    """Return whether a hyperparameter can affect a network; any may affect a registered network.

    >>> matters("gnn_edge_mlp_layers", "mlp"), matters("learning_rate", "mlp")
    (False, True)
    """
    knob = KNOBS[name]
    own = network not in KNOBS["network"].choices
    return own or not knob.networks or network in knob.networks


def canonical_name(name: str) -> str | None:
    """Return the canonical name of a hyperparameter, given any system's name; None if unknown.

    >>> canonical_name("n_steps"), canonical_name("normalize_advantages"), canonical_name("x")
    ('rollout_length', 'normalise_advantages', None)
    """
    if name in KNOBS:
        return name
    british = _british_name(name)
    if british in KNOBS:
        return british
    row = _row_of(name)
    if row is not None:
        return row.target
    plain = _british_name(name.lower().replace("-", "_"))
    if plain not in KNOBS:
        return None
    return plain


def check_name(name: str) -> str:
    """Return `name` in its canonical spelling; American spellings are accepted.

    Raises:
        ConfigError: the name is unknown; the error gives our name for it, or the nearest one.
    """
    if name in KNOBS:
        return name
    ours = canonical_name(name)
    if ours is not None and ours.replace("s", "z") == name.replace("s", "z"):
        return ours
    if ours is not None:
        text, row = f"unknown hyperparameter {name!r}; here it is called {ours!r}", _row_of(name)
        if row is not None and row.values.meaning:
            text += f" ({row.values.meaning})"
        raise ConfigError(text)
    hint = hint_of(name) or f"{suggestion(name, KNOBS)} {listed(name, list(KNOBS))}"
    raise ConfigError(f"unknown hyperparameter {name!r};{hint}", knobs=True)


def hint_of(name: str) -> str:
    """Return a phrase with our key for another system's name; "" if the name is unknown.

    >>> hint_of("num_seeds"), hint_of("learning_rates")
    (' in a study it is `seeds.per_config`', '')
    """
    for row in hints(name):
        if row.fate == "taken":
            where = f"{'the hyperparameter ' * (row.target in KNOBS)}`{row.target}`"
            if row.target.startswith("loggers."):
                _, kind, *option = row.target.split(".")
                words = ", ".join((kind, *(f"{one}: ..." for one in option)))
                where = f"`loggers: [{{type: {words}}}]`"
            return f" in a study it is {where}"
        return f" it has no counterpart: {row.because}"
    return ""


def _row_of(name: str) -> NameRow | None:
    american = name
    for american_word, british_word in _AMERICAN.items():
        american = american.replace(british_word, american_word)
    rows = (*hints(name), *hints(american), *hints(_british_name(name)))
    return next((row for row in rows if row.target in KNOBS), None)


def _british_name(name: str) -> str:
    for american, ours in _AMERICAN.items():
        name = name.replace(american, ours)
    return name
