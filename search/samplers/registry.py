"""The methods of search by name; each is imported only when a study asks for it."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from ...errors import ConfigError, UnknownNameError
from ...studies.spec import Study
from .contract import Sampler, SamplerSpec

__all__ = ["METHODS", "draws_ahead", "make_sampler", "register_sampler"]


def _in(module: str, function: str = "build") -> Callable[[SamplerSpec], Sampler]:
    """Return the function of a module of this package that builds a method."""

    def build(spec: SamplerSpec) -> Sampler:
        return getattr(import_module(f".{module}", __package__), function)(spec)

    return build


METHODS: dict[str, Callable[[SamplerSpec], Sampler]] = {
    "random": _in("random"),
    "grid": _in("grid"),
    "sobol": _in("sobol"),
    "tpe": _in("optuna_tpe"),
    "gp": _in("optuna_gp"),
    "cmaes": _in("via_cmaes"),
    "nsga2": _in("optuna_nsga2"),
    "smac": _in("via_smac"),
}


def register_sampler(name: str, build: Callable[[SamplerSpec], Sampler]) -> None:
    """Make a method known under `search: {method: name}`.

    Raises:
        ConfigError: the name is taken.
    """
    if name in METHODS:
        raise ConfigError(f"a method called {name!r} is registered already; choose another name")
    METHODS[name] = build


def draws_ahead(study: Study) -> bool:
    """Return whether proposals are drawn while lanes run, before these have shown anything.

    Left open, methods that take a millisecond or less wait for what the lanes show.
    """
    if study.search.ahead == "auto":
        return study.search.method not in ("random", "grid", "sobol", "cmaes", "nsga2")
    return study.search.ahead == "always"


def make_sampler(study: Study) -> Sampler:
    """Build the method that a study names.

    Raises:
        UnknownNameError: no method has this name.
        ConfigError: an option is unknown or out of range.
    """
    method = study.search.method
    if method not in METHODS:
        raise UnknownNameError("search method", method, METHODS)
    return METHODS[method](
        SamplerSpec(
            study.space,
            study.seed,
            study.search.options,
            objectives=max(1, len(study.objectives)),
            constraints=len(study.constraints),
        )
    )
