"""Collects every mistake of a study file, each at the line where it stands."""

from __future__ import annotations

from ..errors import Mistake, StudyError
from .reader import MOST_MISTAKES, Node

__all__ = ["Notes"]

_LONGEST = 1200


class Notes:
    """Mistakes found so far in one file."""

    def __init__(self, shown: str):
        self.shown = shown
        self._mistakes: dict[Mistake, None] = {}

    def __bool__(self) -> bool:
        return bool(self._mistakes)

    def add(self, text: str, node: Node | None = None, key: str | None = None) -> None:
        """Note a mistake at a node, or at one key of it; without a node it has no line.

        Raises:
            StudyError: there are so many by now that the rest would only cost time.
        """
        line = None
        if node is not None:
            line, origin, outer = node.line, node.origin, node.outer
            if key is not None and key in node.key_lines:
                line = node.key_lines[key]
                if node.value[key].origin:
                    origin, outer = node.value[key].origin, node.value[key].outer
            text = f"{origin}{text}" if outer is None else f"{origin}:{line}: {text}"
            line = line if outer is None else outer
        self._mistakes.setdefault(Mistake(line, _cut(text)))
        if len(self._mistakes) > MOST_MISTAKES:
            raise self.error()

    def error(self) -> StudyError:
        """Return the error with all mistakes, each once, in the order of the file."""
        ordered = sorted(
            self._mistakes, key=lambda mistake: (mistake.line is None, mistake.line or 0)
        )
        if len(ordered) > MOST_MISTAKES:
            ordered = [*ordered[:MOST_MISTAKES], Mistake(None, "and more mistakes")]
        return StudyError(self.shown, ordered)


def _cut(text: str) -> str:
    """Return a text short enough for a terminal, whatever the file repeats in it."""
    return text if len(text) <= _LONGEST else f"{text[:800]} ... {text[-300:]}"
