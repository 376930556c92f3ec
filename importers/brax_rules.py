"""Import rules for brax arguments that are objects, or whose defaults have no counterpart."""

from __future__ import annotations

from ..foreign_names.plain_values import Unread
from .converted_study import ConvertedStudy, ImportSource


def refuse_default_layers(draft: ConvertedStudy, source: ImportSource) -> None:
    if {"network_factory", "hidden_sizes"} & set(source.names()):
        return
    raise draft.fault(
        "it uses brax's default layers (4 x 32 for the policy, 5 x 256 for the value), but "
        "hpo uses the same layers for both; set hidden_sizes",
        flags={"hidden_sizes": "[256,256]"},
    )


def leave_out_length(draft: ConvertedStudy, source: ImportSource) -> None:
    """Omit the episode length if it is an object that cannot be read."""
    length = source.constants.get("episode_length")
    if isinstance(length, Unread):
        source.drop("episode_length")
        draft.leave_out("episode_length", f"{length}; the environment's episode length is used")
