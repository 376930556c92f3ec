"""Reads `loggers:`, and the options of one logger as words of the command line."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import suggestion
from .fields import LOGGERS
from .notes import Notes
from .overrides import apply_overrides
from .reader import Node
from .sections import read_section
from .spec import Logger

__all__ = ["logger_of", "read_loggers"]


def read_loggers(notes: Notes, items: Sequence[Node]) -> tuple[Logger, ...]:
    """Return the loggers of a list, each a word or a mapping with `type`."""
    found = [_logger(notes, item) for item in items]
    return tuple(logger for logger in found if logger is not None)


def _logger(notes: Notes, item: Node) -> Logger | None:
    kind = item.value.get("type") if item.is_map else item
    if kind is None or not isinstance(kind.value, str):
        notes.add(f"a logger is {item.shown()}; allowed: {{type: csv}}", item)
        return None
    if kind.value not in LOGGERS:
        text = (
            f"unknown logger {kind.value!r};{suggestion(kind.value, LOGGERS)} "
            f"Known: {', '.join(LOGGERS)}"
        )
        notes.add(text, kind)
        return None
    rest = Node(item.line, {}, item.key_lines, item.origin, item.outer)
    if item.is_map:
        rest.value = {key: node for key, node in item.value.items() if key != "type"}
    options = read_section(notes, f"loggers: {kind.value}", rest, LOGGERS[kind.value])
    return Logger(kind.value, options)


def logger_of(kind: str, overrides: Sequence[str]) -> Logger:
    """Return one logger with options written as `key=value`.

    Raises:
        StudyError: an option is not known, or not with this value.
    """
    notes, node = Notes(kind), Node(None, {}, {})
    apply_overrides(notes, node, overrides)
    options = read_section(notes, kind, node, LOGGERS[kind])
    if notes:
        raise notes.error()
    return Logger(kind, options)
