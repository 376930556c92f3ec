"""What `hpo` needs of the system that it runs on: Unix, as Linux and macOS are."""

from __future__ import annotations

import sys
from importlib import import_module

from .errors import ConfigError

__all__ = ["check_platform"]

_UNIX = {"fcntl": "lock studies", "termios": "show them while they run"}


def check_platform() -> None:
    """Refuse a system without what studies are locked and shown by.

    Raises:
        ConfigError: this is Windows, or a Python made without these modules.
    """
    for module, purpose in _UNIX.items():
        try:
            import_module(module)
        except ImportError:
            raise ConfigError(
                f"hpo runs on Linux and macOS; Python on {sys.platform} has no module {module}, "
                f"which it needs to {purpose}; on Windows use WSL 2, which is Linux"
            ) from None
