"""`hpo`: sweeps and hyperparameter optimisation of PPO, many trials as lanes of one program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .search.api import run

__version__ = "0.1.0"
__all__ = ["__version__", "run"]


def __getattr__(name: str) -> Any:
    """Give `run` on first use: `import hpo` by itself loads nothing."""
    if name == "run":
        from .search.api import run

        return run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
