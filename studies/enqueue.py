"""Reads `enqueue`: configurations that are tried first, each completed by the defaults."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import ConfigError
from ..spaces.space import Space
from .notes import Notes
from .reader import Node, plain
from .vocabulary import Vocabulary

__all__ = ["read_enqueue"]

_MOST = 2000


def read_enqueue(
    notes: Notes, vocabulary: Vocabulary, space: Space, nodes: Sequence[Node]
) -> tuple[dict[str, Any], ...]:
    """Read `enqueue`: partial configurations that the space must be able to complete.

    One that is the default configuration, or another entry once more, is left out: it would repeat
    every bit of that one's runs.
    """
    if len(nodes) > _MOST:
        notes.add(f"enqueue has {len(nodes)} entries; allowed: {_MOST}", nodes[0])
        return ()
    read: list[dict[str, Any]] = []
    known = {space.canonical(space.default())}
    for node in nodes:
        if not node.is_map:
            text = f"an entry of enqueue is {node.shown()}; allowed: {{knob: value, ...}}"
            notes.add(text, node)
            continue
        entry = _read_entry(notes, vocabulary, node)
        if entry is None:
            continue
        try:
            key = space.canonical(space.complete(entry))
        except ConfigError as error:
            notes.add(f"enqueue: {error}", node)
            continue
        if key not in known:
            known.add(key)
            read.append(entry)
    return tuple(read)


def _read_entry(notes: Notes, vocabulary: Vocabulary, node: Node) -> dict[str, Any] | None:
    entry: dict[str, Any] = {}
    for given, child in node.value.items():
        try:
            name = vocabulary.name(given)
            entry[name] = vocabulary.value(name, plain(child))
        except ConfigError as error:
            notes.add(f"enqueue: {error}", node, given)
    return entry if len(entry) == len(node.value) else None
