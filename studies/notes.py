"""Collects every mistake of a study file, each at the line where it stands."""

from __future__ import annotations

from ..errors import Mistake, StudyError
from .reader import Node

__all__ = ["Notes"]

_MOST = 100


class Notes:
    """Mistakes found so far in one file."""

    def __init__(self, shown: str):
        self.shown = shown
        self._mistakes: list[Mistake] = []

    def __bool__(self) -> bool:
        return bool(self._mistakes)

    def add(self, text: str, node: Node | None = None, key: str | None = None) -> None:
        """Note a mistake at a node, or at one key of it; without a node it has no line."""
        if node is None:
            self._mistakes.append(Mistake(None, text))
            return
        line, origin, outer = node.line, node.origin, node.outer
        if key is not None and key in node.key_lines:
            line = node.key_lines[key]
            if node.value[key].origin:
                origin, outer = node.value[key].origin, node.value[key].outer
        if outer is not None:
            self._mistakes.append(Mistake(outer, f"{origin}:{line}: {text}"))
        else:
            self._mistakes.append(Mistake(line, f"{origin}{text}"))

    def error(self) -> StudyError:
        """Give the error with all mistakes, each once, in the order of the file."""
        unique = list(dict.fromkeys(self._mistakes))
        unique.sort(key=lambda mistake: (mistake.line is None, mistake.line or 0))
        if len(unique) > _MOST:
            more = Mistake(None, f"and {len(unique) - _MOST} more mistakes")
            unique = [*unique[:_MOST], more]
        return StudyError(self.shown, unique)
