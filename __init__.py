"""`hpo`: sweeps and hyperparameter optimisation for PPO, with trials as lanes of one program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .version import __version__

if TYPE_CHECKING:
    from .core.envs.old_gymnax import old_gymnax
    from .core.saved_policy import SavedPolicy
    from .core.training import Training, environment, fixed, traced
    from .errors import HpoError
    from .machine.reported import report
    from .search.autorl.autorl_env import AutoRLEnv
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
    from .views.python.policies import load_policy, load_training

__all__ = [
    "AutoRLEnv",
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
    "old_gymnax",
    "open",
    "report",
    "run",
    "traced",
    "train",
    "yaml",
]

_CALLBACKS = "search.engine.callbacks"
_NAMES_OF = {
    "core.envs.old_gymnax": ("old_gymnax",),
    "errors": ("HpoError",),
    "core.saved_policy": ("SavedPolicy",),
    "machine.reported": ("report",),
    "core.training": ("Training", "environment", "fixed", "traced"),
    "search.autorl.autorl_env": ("AutoRLEnv",),
    "studies.load": ("yaml",),
    "views.python.calls": ("Results", "check", "learn", "run", "train"),
    "views.python.open_study": ("open",),
    "views.python.policies": ("load_policy", "load_training"),
}
_HOMES = {name: home for home, names in _NAMES_OF.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import an attribute on first use: `import hpo` by itself loads nothing."""
    if name in __all__:
        from importlib import import_module

        from .errors import check_platform

        if name != "HpoError":
            check_platform()
        home = import_module(f".{_HOMES.get(name, _CALLBACKS)}", __name__)
        # Inside its module, Python's built-in `open` keeps its name.
        return getattr(home, "open_study" if name == "open" else name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__} - {"Any", "TYPE_CHECKING", "annotations"})
