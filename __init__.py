"""`hpo`: sweeps and hyperparameter optimisation of PPO, many trials as lanes of one program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .version import __version__

if TYPE_CHECKING:
    from .core.saved_policy import SavedPolicy
    from .core.training import Training, environment, fixed, traced
    from .errors import HpoError
    from .search.engine.callbacks import (
        Callback,
        ChunkEvent,
        ChunkStartEvent,
        EvaluationEvent,
        EvaluationStartEvent,
        RunEndEvent,
        RunStartEvent,
        StopStudy,
        TrialEndEvent,
        TrialStartEvent,
    )
    from .studies.load import yaml
    from .views.python.calls import Results, check, learn, run, train
    from .views.python.open_study import open_study as open
    from .views.python.open_study import report
    from .views.python.policies import load_policy, load_training

__all__ = [
    "Callback",
    "ChunkEvent",
    "ChunkStartEvent",
    "EvaluationEvent",
    "EvaluationStartEvent",
    "HpoError",
    "Results",
    "RunEndEvent",
    "RunStartEvent",
    "SavedPolicy",
    "StopStudy",
    "Training",
    "TrialEndEvent",
    "TrialStartEvent",
    "__version__",
    "check",
    "environment",
    "fixed",
    "learn",
    "load_policy",
    "load_training",
    "open",
    "report",
    "run",
    "traced",
    "train",
    "yaml",
]

_CALLS, _CALLBACKS = "views.python.calls", "search.engine.callbacks"
_HOMES = {
    "HpoError": "errors",
    "Results": _CALLS,
    "SavedPolicy": "core.saved_policy",
    "Training": "core.training",
    "check": _CALLS,
    "environment": "core.training",
    "fixed": "core.training",
    "learn": _CALLS,
    "load_policy": "views.python.policies",
    "load_training": "views.python.policies",
    "open": "views.python.open_study",
    "report": "views.python.open_study",
    "run": _CALLS,
    "traced": "core.training",
    "train": _CALLS,
    "yaml": "studies.load",
}
_NAMES = {"open": "open_study"}  # in its home, where Python's own `open` stays what it is


def __getattr__(name: str) -> Any:
    """Import on first use: `import hpo` loads nothing."""
    if name in __all__:
        from importlib import import_module

        from .errors import check_platform

        if name != "HpoError":
            check_platform()
        home = import_module(f".{_HOMES.get(name, _CALLBACKS)}", __name__)
        return getattr(home, _NAMES.get(name, name))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__} - {"Any", "TYPE_CHECKING", "annotations"})
