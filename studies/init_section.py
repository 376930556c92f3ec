"""Reads `init:`, the saved policy that lanes start from, as far as files can show a mistake."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .notes import Notes
from .reader import Node
from .spec import Init

__all__ = ["read_init"]


def read_init(
    notes: Notes, node: Node | None, values: Mapping[str, Any], source: Path | None
) -> Init | None:
    """Return where lanes start, or None where they start fresh or the section has mistakes.

    Args:
        notes: where mistakes go.
        node: the section; None or `null` when lanes start fresh.
        values: its fields, read.
        source: the study file's folder; None does not look for the policy.
    """
    if node is None or not node.is_map or "folder" not in values:
        return None
    init = Init(**values)
    if source is None:
        return init
    folder = source / init.folder
    if not (folder / "policy.json").is_file():
        text = f"init.from: {folder} is not a policy folder, such as .../policies/trial_N"
        notes.add(text, node, "from")
    elif init.optimiser == "restored" and init.keep != "all":
        text = f"init.optimiser is restored, which needs keep: all; here keep is {init.keep}"
        notes.add(text, node, "optimiser")
    elif init.optimiser == "restored" and not (folder / "parts" / "optimiser.npz").is_file():
        text = (
            f"init.optimiser is restored, but {folder} holds no state of the optimiser; make the "
            "policy with checkpoint: {parts: [optimiser]}, or start it fresh"
        )
        notes.add(text, node, "optimiser")
    return init
