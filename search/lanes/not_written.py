"""Lanes whose states are moved in memory alone, and lanes that nothing is computed for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import ConfigError
from .contract import Resolved

__all__ = ["Imagined", "NotWritten"]


class NotWritten:
    """The part of a `Population` that writes single states, where there is none."""

    def save_state(self, state: Any, directory: Path) -> None:
        """See `Population`.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(f"{directory}: {_WHY}")

    def restore_state(self, directory: Path) -> Any:
        """See `Population`.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(f"{directory}: {_WHY}")


class Imagined(NotWritten):
    """The part of a `Population` that compiles and writes, where lanes only stand for others.

    A rehearsal and a replay of a record ask for none of what raises `NotImplementedError`.
    """

    compiles = 0

    def compile(self) -> None:
        """See `Population`; there is nothing to compile."""

    def compile_ahead(self) -> None:
        """See `Population`; there is nothing to compile."""

    def compile_evaluation(self) -> None:
        """See `Population`; there is nothing to compile."""

    def save(self, directory: Path) -> None:
        """See `Population`; there is nothing to write."""
        raise NotImplementedError

    def restore(self, directory: Path) -> None:
        """See `Population`; nothing was written."""
        raise NotImplementedError

    def export_policy(
        self, lane: int, resolved: Resolved, directory: Path, about: Mapping[str, Any] = {}
    ) -> None:
        """See `Population`; there is no policy."""
        raise NotImplementedError


_WHY = "states of these lanes are not written; leave out early_terminate.pause"
