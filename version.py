"""The version of this package, which pyproject.toml says too."""

__all__ = ["__version__"]

__version__ = "0.1.0"
