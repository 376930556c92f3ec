"""Ray Tune's schedulers and searchers by name, with what they need to know of a study.

A study file names classes, and a file may come from anywhere: only classes of Ray Tune and of the
study's `imports` are looked up, and only schedulers and searchers are ever called.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Container, Mapping
from importlib import import_module
from typing import Any

from ...errors import ConfigError
from ...studies.spec import Study
from ...studies.user_code import user_module
from ..book.schedule import Schedule

__all__ = ["copies_states", "scheduler_of", "searcher_of"]

_LIBRARY = "ray.tune"

_SCHEDULERS = {
    "asha": "ray.tune.schedulers.ASHAScheduler",
    "pbt": "ray.tune.schedulers.PopulationBasedTraining",
}
_SEARCHERS = {"optuna": "ray.tune.search.optuna.OptunaSearch"}
_EXAMPLES = {
    "scheduler": "ray.tune.schedulers.MedianStoppingRule",
    "searcher": "ray.tune.search.optuna.OptunaSearch",
}
TIME = "env_steps"
"""What schedulers measure time by: training env steps of one replicate."""
_COUNT = "training_iteration"  # Tune's own count of a trial's evaluations


def copies_states(study: Study) -> bool:
    """Return whether a study's scheduler lets trials go on from each other's states."""
    from ray.tune.schedulers import PopulationBasedTraining  # pyright: ignore[reportMissingImports]

    return issubclass(_scheduler_class(study.search.scheduler), PopulationBasedTraining)


def scheduler_of(
    study: Study, schedule: Schedule, explore: Callable[[dict[str, Any]], dict[str, Any]]
) -> Any:
    """Build the scheduler of a study.

    One that derives its brackets from the length of a run alone (`HyperBandScheduler`) counts
    evaluations: in env steps it would plan brackets that end after one of them.

    Args:
        study: names it.
        schedule: of the default configuration's runs.
        explore: gives a copy its knobs, where states are copied.

    Raises:
        ConfigError: there is none of this name, or it does not take its options.
    """
    first = min(schedule.evaluations) * schedule.quantum
    known = {
        "time_attr": TIME,
        "max_t": schedule.env_steps,
        "grace_period": first,
        "perturbation_interval": first,
        "custom_explore_fn": explore,
        "log_config": False,
        "synch": True,
    }
    if copies_states(study) and study.search.scheduler_options.get("synch") is False:
        raise ConfigError(
            "search.scheduler_options: with synch false a copy would train env steps again that "
            "it has trained already; leave it out, lanes step together anyhow"
        )
    cls = _scheduler_class(study.search.scheduler)
    takes = _arguments_of(cls)
    if "max_t" in takes and "grace_period" not in takes:
        known |= {"time_attr": _COUNT, "max_t": len(schedule.evaluations)}
    return _built("scheduler", cls, known, study.search.scheduler_options)


def searcher_of(study: Study) -> Any:
    """Build the searcher of a study, None where trials are drawn at random.

    Raises:
        ConfigError: as of `scheduler_of`.
    """
    name = study.search.searcher
    if name == "random":
        return None
    from ray.tune.search import Searcher  # pyright: ignore[reportMissingImports]

    cls = _class_named("searcher", name, _SEARCHERS, Searcher)
    if name == "optuna":
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
    return _built("searcher", cls, {"seed": study.seed}, study.search.searcher_options)


def _scheduler_class(name: str) -> type:
    from ray.tune.schedulers import TrialScheduler  # pyright: ignore[reportMissingImports]

    return _class_named("scheduler", name, _SCHEDULERS, TrialScheduler)


def _class_named(what: str, name: str, known: Mapping[str, str], base: type) -> type:
    """Return a class by one of our words or by its dotted name; nothing is called.

    Raises:
        ConfigError: there is none, it is not of Ray Tune or of `imports`, or no kind of `base`.
    """
    module, _, attribute = known.get(name, name).rpartition(".")
    words = ", ".join([*known, *(["random"] if what == "searcher" else [])])
    try:
        found = getattr(_module_named(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"search.{what} {name!r} cannot be imported: {error}; known words: {words}, or a "
            f"dotted name such as {_EXAMPLES[what]}"
        ) from error
    if not (isinstance(found, type) and issubclass(found, base)):
        raise ConfigError(
            f"search.{what} {name!r} is no {base.__name__} of Ray Tune; known words: {words}, or "
            f"a class such as {_EXAMPLES[what]}"
        )
    return found


def _module_named(name: str) -> Any:
    """Return a module of Ray Tune, or one that the study's `imports` ran."""
    if name == _LIBRARY or name.startswith(f"{_LIBRARY}."):
        return import_module(name)
    own = user_module(name)
    if own is None:
        raise ImportError(
            f"{name} is neither of {_LIBRARY} nor a file of `imports`; for a class of your own "
            "type imports: [my_file.py] and my_file.MyClass"
        )
    return own


def _built(what: str, cls: Any, known: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
    """Call a class with its options, and with those of the known arguments that it takes."""
    takes = _arguments_of(cls)
    given = {key: value for key, value in known.items() if key in takes}
    try:
        return cls(**{**given, **options})
    except (TypeError, ValueError, AssertionError, ImportError) as error:
        text = " ".join(str(error).split())[:300]
        raise ConfigError(f"search.{what}_options: {cls.__name__} refuses them: {text}") from error


def _arguments_of(cls: Any) -> Container[str]:
    """Return the names of the arguments of a class; none if Python cannot tell."""
    try:
        return inspect.signature(cls).parameters
    except (TypeError, ValueError):
        return ()
