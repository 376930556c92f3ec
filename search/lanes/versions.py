"""The packages that decide which bits come out, and their versions."""

from __future__ import annotations

from functools import cache
from importlib import metadata

__all__ = ["versions"]

_PACKAGES = ("hpo-lanes", "jax", "jaxlib", "flax", "optax", "gymnax", "optuna", "numpy")


def versions() -> dict[str, str]:
    """Return the versions of the packages that decide what numbers come out."""
    return {package: _version(package) for package in _PACKAGES}


@cache
def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "absent"
