"""Overrides `a.b=c`: change the nodes of a study before it is checked, as if the file said so."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import StudyError
from .notes import Notes
from .reader import Node, read_text

__all__ = ["SET", "apply_overrides"]

SET = "override "
"""Begins the origin of every node that an override set."""


def apply_overrides(notes: Notes, root: Node, overrides: Sequence[str]) -> None:
    """Change `root` in place; what cannot be applied is noted.

    Args:
        notes: where mistakes go.
        root: the study.
        overrides: each `path=value`; the path's keys are joined by dots (`env.x` of a space
            counts as one key), numbers pick entries of lists, the value is YAML.
    """
    for given in overrides:
        path, equals, text = given.partition("=")
        keys = _keys(path.strip())
        if not equals or not all(keys):
            notes.add(f"{SET}{given!r}; allowed: key.key=value, such as budget.trials=10")
            continue
        origin = f"{SET}{given}: " if len(given) <= 80 else f"{SET}{given[:77]}...: "
        try:
            value = read_text(text if text.strip() else "null", "value")
        except StudyError as error:
            for mistake in error.mistakes:
                notes.add(f"{origin}{mistake.text}")
            continue
        _mark(value, origin)
        _put(notes, root, keys, value, origin)


def _keys(path: str) -> list[str]:
    keys: list[str] = []
    for part in path.split("."):
        if keys and keys[-1] == "env" and len(keys) > 1:
            keys[-1] = f"env.{part}"
        else:
            keys.append(part)
    return keys


def _mark(node: Node, origin: str) -> None:
    node.line, node.origin = None, origin
    node.key_lines = dict.fromkeys(node.key_lines)
    for child in node.value.values() if node.is_map else node.value if node.is_list else ():
        _mark(child, origin)


def _put(notes: Notes, root: Node, keys: list[str], value: Node, origin: str) -> None:
    here = root
    for depth, key in enumerate(keys):
        last = depth == len(keys) - 1
        if here.is_list:
            if not key.isdecimal() or len(key) > 6 or int(key) >= len(here.value):
                count = len(here.value)
                notes.add(
                    f"{origin}{key!r} is not an index of that list; allowed: 0 to {count - 1}"
                )
                return
            if last:
                here.value[int(key)] = value
                return
            here = here.value[int(key)]
            continue
        if not here.is_map:
            # `env: CartPole-v1` becomes `env: {id: CartPole-v1}` when one of its keys is set.
            named = depth == 1 and keys[0] == "env"
            inner = {"id": Node(here.line, here.value, origin=here.origin)} if named else {}
            here.value = inner
            here.key_lines = dict.fromkeys(inner, here.line)
        if last:
            here.value[key] = value
            here.key_lines[key] = None
            return
        if key not in here.value or (
            not here.value[key].is_map
            and not here.value[key].is_list
            and here.value[key].value is None
        ):
            here.value[key] = Node(None, {}, origin=origin)
            here.key_lines[key] = None
        here = here.value[key]
