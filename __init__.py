"""`hpo`: sweeps and hyperparameter optimisation of PPO, many trials as lanes of one program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .version import __version__

if TYPE_CHECKING:
    from .search.api import run, train
    from .search.autorl.environment import AutoRLEnv
    from .search.engine.callbacks import (
        Callback,
        ChunkEvent,
        EvaluationEvent,
        StopStudy,
        TrialEndEvent,
    )
    from .views.report.report import report

__all__ = [
    "AutoRLEnv",
    "Callback",
    "ChunkEvent",
    "EvaluationEvent",
    "StopStudy",
    "TrialEndEvent",
    "__version__",
    "report",
    "run",
    "train",
]

_HOMES = {
    "AutoRLEnv": "search.autorl.environment",
    "report": "views.report.report",
    "run": "search.api",
    "train": "search.api",
}


def __getattr__(name: str) -> Any:
    """Return what is asked for on first use: `import hpo` by itself loads nothing."""
    if name in __all__:
        from importlib import import_module

        home = import_module(f".{_HOMES.get(name, 'search.engine.callbacks')}", __name__)
        return getattr(home, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return what can be asked for, loaded or not."""
    return sorted({*globals(), *__all__} - {"Any", "TYPE_CHECKING", "annotations"})
