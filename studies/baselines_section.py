"""Reads `baselines`: the heuristics that stand beside a study's trials."""

from __future__ import annotations

from collections.abc import Sequence

from ..env_entry import EnvEntry
from ..errors import ConfigError
from .notes import Notes
from .reader import Node

__all__ = ["DEFAULT_BASELINES", "read_baselines"]

DEFAULT_BASELINES = ("ksp_ff", "ff_ksp")
"""Of studies in optical networks that name none."""


def read_baselines(
    notes: Notes, items: Sequence[Node] | None, known: EnvEntry | None
) -> tuple[str, ...]:
    """Read the names; a study in an optical network has some unless it says `baselines: []`.

    Args:
        notes: where mistakes go.
        items: what is listed, None if the key is left out.
        known: the study's environment.
    """
    optical = known is not None and known.source == "optical"
    if items is None:
        return DEFAULT_BASELINES if optical else ()
    if items and not optical:
        text = "baselines are heuristics of optical networks, and env is none; leave them out"
        notes.add(text, items[0])
        return ()
    from ..core.envs.optical.baseline_names import parse_baseline  # no jax

    names: list[str] = []
    for item in items:
        given = item.value
        if not isinstance(given, str):
            notes.add(f"a baseline is {item.shown()}; type a heuristic such as ksp_bf@10", item)
            continue
        try:
            parse_baseline(given)
        except ConfigError as error:
            notes.add(f"baseline {given}: {error}", item)
            continue
        if given in names:
            notes.add(f"baseline {given} is listed twice; keep one", item)
        else:
            names.append(given)
    return tuple(names)
