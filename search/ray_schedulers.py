"""Ray Tune's schedulers and searchers by name, with what they need to know of a study."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Container, Mapping
from importlib import import_module
from typing import Any

from ..errors import ConfigError
from ..studies.spec import Study
from .schedule import Schedule

__all__ = ["class_named", "copies_states", "scheduler_of", "searcher_of"]

_SCHEDULERS = {
    "asha": "ray.tune.schedulers.ASHAScheduler",
    "pbt": "ray.tune.schedulers.PopulationBasedTraining",
}
_SEARCHERS = {"optuna": "ray.tune.search.optuna.OptunaSearch"}
TIME = "env_steps"
"""What schedulers measure time by: training env steps of one replicate."""
_COUNT = "training_iteration"  # Tune's own count of a trial's evaluations


def copies_states(study: Study) -> bool:
    """Say whether a study's scheduler lets trials go on from each other's states."""
    from ray.tune.schedulers import PopulationBasedTraining  # pyright: ignore[reportMissingImports]

    cls = class_named("scheduler", study.search.scheduler, _SCHEDULERS)
    return isinstance(cls, type) and issubclass(cls, PopulationBasedTraining)


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
    from ray.tune.schedulers import TrialScheduler  # pyright: ignore[reportMissingImports]

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
    name = study.search.scheduler
    if copies_states(study) and study.search.scheduler_options.get("synch") is False:
        raise ConfigError(
            "search.scheduler_options: with synch false a copy would train env steps again that "
            "it has trained already; leave it out, lanes step together anyhow"
        )
    cls = class_named("scheduler", name, _SCHEDULERS)
    takes = _arguments_of(cls)
    if "max_t" in takes and "grace_period" not in takes:
        known |= {"time_attr": _COUNT, "max_t": len(schedule.evaluations)}
    made = _built("scheduler", cls, known, study.search.scheduler_options)
    if not isinstance(made, TrialScheduler):
        raise ConfigError(
            f"search.scheduler {name!r} is no scheduler of Ray Tune, but {type(made).__name__}; "
            "take asha, pbt, or a class such as ray.tune.schedulers.MedianStoppingRule"
        )
    return made


def searcher_of(study: Study) -> Any:
    """Build the searcher of a study, None where trials are drawn at random.

    Raises:
        ConfigError: as of `scheduler_of`.
    """
    name = study.search.searcher
    if name == "random":
        return None
    from ray.tune.search import Searcher  # pyright: ignore[reportMissingImports]

    cls = class_named("searcher", name, _SEARCHERS)
    if name == "optuna":
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
    made = _built("searcher", cls, {"seed": study.seed}, study.search.searcher_options)
    if not isinstance(made, Searcher):
        raise ConfigError(
            f"search.searcher {name!r} is no Searcher of Ray Tune, but {type(made).__name__}; "
            "take optuna, or leave it out for random trials"
        )
    return made


def class_named(what: str, name: str, known: Mapping[str, str]) -> Any:
    """Import a class by one of our words or by its dotted name.

    Raises:
        ConfigError: there is none.
    """
    module, _, attribute = known.get(name, name).rpartition(".")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        words = ", ".join([*known, *(["random"] if what == "searcher" else [])])
        raise ConfigError(
            f"search.{what} {name!r} cannot be imported: {error}; known words: {words}, or a "
            "dotted name such as ray.tune.schedulers.MedianStoppingRule"
        ) from error


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
    """Give the names of the arguments of a class; none if Python cannot tell."""
    try:
        return inspect.signature(cls).parameters
    except (TypeError, ValueError):
        return ()
