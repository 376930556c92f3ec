"""gymnax without seaborn, with which two of its modules colour pictures.

seaborn imports scipy.stats, pandas and matplotlib: more than a CPU-second of every command.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

__all__ = ["import_gymnax"]


class _Later(ModuleType):
    """A module that is imported when something of it is asked for."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what the import system and `inspect` look at
            raise AttributeError(name)
        return getattr(importlib.import_module(self.__name__), name)


def import_gymnax() -> Any:
    """Import gymnax; whoever imports seaborn afterwards gets seaborn.

    >>> import_gymnax().__name__
    'gymnax'
    """
    if "seaborn" in sys.modules or "gymnax" in sys.modules:
        return importlib.import_module("gymnax")
    sys.modules["seaborn"] = later = _Later("seaborn")
    try:
        return importlib.import_module("gymnax")
    finally:
        if sys.modules.get("seaborn") is later:
            del sys.modules["seaborn"]
