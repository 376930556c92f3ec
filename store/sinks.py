"""Copies of the results for other tools; none of them can stop a study.

A sink is told whenever the tables were published and reads them; what it raises is said once,
and from then on the sink is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

__all__ = ["Sink", "Sinks"]


class Sink(Protocol):
    """A copy of the results, made from the published tables."""

    name: str

    def published(self, directory: Path) -> None:
        """The tables in this study's folder are new."""
        ...

    def close(self) -> None:
        """The study's process ends."""
        ...


class Sinks:
    """Several sinks, each shut off after its first failure.

    Args:
        sinks: to feed.
        warn: takes one line of text about a sink that failed.
    """

    def __init__(self, sinks: Sequence[Sink], warn: Callable[[str], None] = lambda text: None):
        self._sinks, self._warn = list(sinks), warn

    def published(self, directory: Path) -> None:
        """Feed all sinks."""
        self._each(lambda sink: sink.published(directory))

    def close(self) -> None:
        """Close all sinks; a second call does nothing."""
        self._each(lambda sink: sink.close())
        self._sinks = []

    def _each(self, act: Callable[[Sink], None]) -> None:
        for sink in list(self._sinks):
            try:
                act(sink)
            except Exception as error:  # a logger is never worth a study
                self._sinks.remove(sink)
                self._warn(
                    f"the {sink.name} logger failed and is off from here on; the study and its "
                    f"tables are unharmed: {type(error).__name__}: {error}"
                )
