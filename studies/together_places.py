"""Where a mistake is told of: at a key of a section, at the section, or at the file."""

from __future__ import annotations

from .reader import Node

__all__ = ["place_of"]


def place_of(root: Node, section: str, key: str | None = None) -> tuple[Node, str | None]:
    """Return the arguments of `Notes.add` behind its text."""
    node = root.value.get(section)
    if node is None:
        return root, None
    if key is not None and node.is_map and key in node.value:
        return node, key
    return root, section
