"""Lanes whose states are moved in memory alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...errors import ConfigError

__all__ = ["NotWritten"]


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


_WHY = "states of these lanes are not written; leave out early_terminate.pause"
