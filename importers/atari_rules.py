"""Atari games with CleanRL's wrappers, expressed as keys of ale-py's environment."""

from __future__ import annotations

import re

from ..environments.via_gymnasium import is_atari
from ..foreign_names.trainer_tables import WRAPPED
from .converted_study import Draft

_GAME = re.compile(r"(?:gym:)?(?:ALE/)?(\w+?)(?:NoFrameskip-v[04]|-v5)")
_HISTORY = "(history 4)"
"""As the list of defaults has it; here the environment stacks its images."""


def preprocessing(draft: Draft) -> None:
    """Train a game with the wrappers' preprocessing, which the script adds itself."""
    id_ = str(draft.env.get("id", ""))
    game = _GAME.fullmatch(id_)
    if game is None or WRAPPED not in draft.system.differs or "imports" in draft.rest:
        return
    ours = f"gym:ALE/{game[1]}-v5"
    if not is_atari(ours):
        return
    draft.env |= {"id": ours, "episodic_life": True, "repeat_action_probability": 0.0}
    draft.fixed.pop("history", None)
    if _HISTORY in draft.defaults:
        draft.defaults.remove(_HISTORY)
    draft.notes.remove(WRAPPED)
    draft.note(
        f"env: {id_} with its wrappers is {ours} (no-ops, frame skip 4, 84x84 in gray, 4 images, "
        "signs of rewards; a lost life ends an episode); evaluation plays whole games"
    )
