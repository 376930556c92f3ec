"""`hpo`: sweeps and hyperparameter optimisation of PPO, many trials as lanes of one program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .search.api import run
    from .search.autorl import AutoRLEnv

__version__ = "0.1.0"
__all__ = ["AutoRLEnv", "__version__", "run"]


def __getattr__(name: str) -> Any:
    """Give what is asked for on first use: `import hpo` by itself loads nothing."""
    if name == "run":
        from .search.api import run

        return run
    if name == "AutoRLEnv":
        from .search.autorl import AutoRLEnv

        return AutoRLEnv
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
