"""Compiled pure functions on arrays; this module exposes the functions for trained policies."""

from __future__ import annotations

if __name__ == "core":
    raise ImportError("import hpo.core instead, after `pip install -e .`")

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .saved_policy import SavedPolicy, evaluate, load_policy, predict

__all__ = ["SavedPolicy", "evaluate", "load_policy", "predict"]


def __getattr__(name: str) -> Any:
    """Import an attribute on first use: `import hpo.core` by itself loads nothing."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(".saved_policy", __name__), name)
