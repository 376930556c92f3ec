"""What another program does under no name, written down where ours would do something else."""

from __future__ import annotations

from collections.abc import Mapping

from ...elsewhere.rows import UNKNOWN
from ...environments import find
from ...errors import HpoError
from ...knobs import KNOBS, check_value
from .draft import Draft

__all__ = ["add_always", "is_idle"]

_NEEDS: Mapping[str, str] = {
    "observation_clip": "normalise_observations",
    "reward_clip": "normalise_rewards",
    "adv_clip": "normalise_advantages",
}
_OF_REAL_ACTIONS = ("log_std_init", "distribution")
_OF_MLP = ("hidden_sizes", "num_layers", "activation")


def add_always(draft: Draft) -> None:
    """Add what the system's program always does, and what differs whatever is set."""
    named = {row.target for row in draft.system.rows if row.default is not UNKNOWN}
    for target, value in draft.system.always.items():
        if target in named or target in _set(draft) or is_idle(draft, target):
            continue
        checked = check_value(target, value)
        if target == "hidden_sizes" and {"hidden_size", "num_layers"} & set(_set(draft)):
            continue
        if checked != KNOBS[target].default or _is_filled(draft, target):
            draft.fixed[target] = checked
    for text in draft.system.differs:
        draft.note(text)


def _set(draft: Draft) -> tuple[str, ...]:
    return (*draft.fixed, *draft.space)


def _is_filled(draft: Draft, target: str) -> bool:
    """Whether ours would not be the default that the table of knobs has."""
    network = draft.fixed.get("network", "mlp")
    if target == "activation":
        return network in ("cnn", "gnn", "transformer")
    return target == "reward_clip"


def is_idle(draft: Draft, target: str) -> bool:
    """Whether a knob changes nothing in this study."""
    switch = _NEEDS.get(target)
    if switch is not None:
        return not draft.fixed.get(switch, KNOBS[switch].default) and switch not in draft.space
    if target in _OF_REAL_ACTIONS:
        return _actions(draft) == "discrete"
    if target in _OF_MLP and draft.fixed.get("network") == "cnn":
        return target != "activation"
    if target == "lr_schedule_multiplier":
        return draft.fixed.get("lr_schedule", "constant") == "constant"
    return False


def _actions(draft: Draft) -> str:
    try:
        entry = find(str(draft.env.get("id", "")))
    except HpoError:
        return "any"
    return "any" if entry is None else entry.actions
