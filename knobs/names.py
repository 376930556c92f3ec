"""What a knob is called here, whatever it was called elsewhere."""

from __future__ import annotations

from ..errors import ConfigError, listed, suggestion
from ..importers.rows import Row
from ..importers.tables import hints
from .table import KNOBS

__all__ = ["canonical_name", "check_name", "hint_of"]


def canonical_name(name: str) -> str | None:
    """Return our name of a knob known here or elsewhere, or None.

    >>> canonical_name("n_steps"), canonical_name("normalize_advantages"), canonical_name("x")
    ('rollout_length', 'normalise_advantages', None)
    """
    if name in KNOBS:
        return name
    british = _british(name)
    if british in KNOBS:
        return british
    row = _row_of(name)
    if row is not None:
        return row.target
    plain = _british(name.lower().replace("-", "_"))
    return plain if plain in KNOBS else None


def _row_of(name: str) -> Row | None:
    """Return the row of a name that is a knob's elsewhere."""
    rows = (*hints(name), *hints(_american(name)), *hints(_british(name)))
    return next((row for row in rows if row.target in KNOBS), None)


def _british(name: str) -> str:
    for american, ours in _AMERICAN.items():
        name = name.replace(american, ours)
    return name


def _american(name: str) -> str:
    for american, ours in _AMERICAN.items():
        name = name.replace(ours, american)
    return name


_AMERICAN = {
    "normalize": "normalise",
    "optimizer": "optimiser",
    "initialization": "initialisation",
}


def check_name(name: str) -> str:
    """Return `name` if it is a knob; American spellings are accepted.

    Raises:
        ConfigError: with our name for it, or the nearest.
    """
    ours = canonical_name(name)
    if ours is not None and ours.replace("s", "z") == name.replace("s", "z"):
        return ours
    if ours is not None:
        row = _row_of(name)
        means = f" ({row.values.meaning})" if row is not None and row.values.meaning else ""
        raise ConfigError(f"unknown knob {name!r}; here it is called {ours!r}{means}")
    hint = hint_of(name) or f"{suggestion(name, KNOBS)} {listed(name, list(KNOBS))}"
    raise ConfigError(f"unknown knob {name!r};{hint}", knobs=True)


def hint_of(name: str) -> str:
    """Return what a name of another system is in a study, if it is no knob; nothing if unknown.

    >>> hint_of("num_seeds"), hint_of("learning_rates")
    (' in a study it is `seeds.per_config`', '')
    """
    for row in hints(name):
        if row.fate == "taken":
            where = f"`{row.target}`" if row.target not in KNOBS else f"the knob `{row.target}`"
            if row.target.startswith("loggers."):
                _, kind, *option = row.target.split(".")
                where = (
                    f"`loggers: [{{type: {', '.join((kind, *(f'{x}: ...' for x in option)))}}}]`"
                )
            return f" in a study it is {where}"
        return f" it has no counterpart: {row.because}"
    return ""
