"""The table of search methods; files in `imports` add rows with `register_sampler`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from ..errors import ConfigError, UnknownNameError
from .field import Field, count, flag

Dealt = Literal["modelled", "at random", "yes"]
"""`modelled`: in the model; `at random`: drawn at random; `yes`: the method has no model."""


@dataclass(frozen=True)
class Method:
    name: str  # value of `search.method`
    # SamplerSpec -> sampler; for a built-in one, `module:class` below `search/samplers/`
    build: str | Callable[..., Any]
    options: tuple[Field, ...] = ()  # keys of `search.options`
    learns_from: str = "results"  # "": independent of results
    # the meaning of `search.ahead: auto`; True for methods that take more than a millisecond
    ahead: bool = True
    ends: bool = False  # whether it can run out of proposals
    objectives: Literal["one", "several", "any number"] = "several"
    constraints: str = "its own way"
    conditional: Dealt = "modelled"  # parameters under a `when`
    choices: Dealt = "modelled"  # values without an order
    package: str = ""  # the package that it needs
    extra: str = ""  # the extra of hpo that installs the package
    rests_on: tuple[str, ...] = ()  # packages whose versions affect its proposals

    @property
    def learns_from_results(self) -> bool:
        return bool(self.learns_from)


MOST_POINTS = 1000  # largest number of values per range in a grid
_STARTUP = count("n_startup_trials", 10, "random trials before the model is used", high=100_000)
_BLIND: dict[str, Any] = {
    "learns_from": "", "ahead": False, "objectives": "any number", "constraints": "no need",
    "conditional": "yes", "choices": "yes",
}  # fmt: skip

METHODS: dict[str, Method] = {
    row.name: row
    for row in (
        Method("random", "without_model:RandomSearch", **_BLIND),
        Method(
            "grid",
            "without_model:GridSearch",
            (
                Field(
                    "points",
                    "points",
                    5,
                    "number of values per range, or a mapping of knob to number; `*`: the rest",
                    low=1,
                    high=MOST_POINTS,
                ),
            ),
            ends=True,
            **_BLIND,
        ),
        Method("sobol", "without_model:SobolSearch", **_BLIND),
        Method(
            "tpe",
            "via_optuna:Tpe",
            (
                _STARTUP,
                count("n_ei_candidates", 24, "candidates compared per proposal", 1, high=10_000),
                flag("multivariate", True, "model parameters jointly"),
                flag("group", True, "one joint model for each set of active parameters"),
                flag(
                    "constant_liar", True, "running trials count as bad, so proposals spread out"
                ),
            ),
            learns_from="values and rungs",
            constraints="modelled",
        ),
        Method(
            "thompson",
            "thompson:Thompson",
            (
                count("candidates", 60, "configurations compared per proposal", 1, high=1_000),
                Field(
                    "width",
                    "number",
                    0.9,
                    "distance from the default at which candidates are 0.6 times as likely",
                    low=0.05,
                    high=10,
                ),
                Field(
                    "floor",
                    "number",
                    0.02,
                    "smallest likelihood of a candidate, at any distance",
                    low=0,
                    high=1,
                ),
            ),
            learns_from="values and rungs",
            constraints="as losses",
        ),
        Method(
            "gp",
            "via_optuna:Gp",
            (_STARTUP, flag("deterministic_objective", False, "treat values as noise-free")),
            learns_from="values and estimates",
            constraints="modelled",
            conditional="at random",
            package="torch",
            extra="gp",
        ),
        Method(
            "cmaes",
            "via_cmaes:CmaEs",
            (
                count(
                    "popsize",
                    0,
                    "population size; 0: 4 + 3 ln(number of knobs), more with many lanes",
                    high=10_000,
                ),
                Field(
                    "sigma",
                    "number",
                    1 / 6,
                    "initial standard deviation, as a share of the ranges",
                    low=0,
                    low_open=True,
                    high=1,
                ),
                flag(
                    "lr_adapt",
                    False,
                    "adapt the learning rate of CMA-ES, for noisy or multimodal objectives",
                ),
            ),
            learns_from="ranks within a generation",
            ahead=False,
            objectives="one",
            constraints="as losses",
            conditional="at random",
            choices="at random",
            package="cmaes",
            extra="cmaes",
        ),
        Method(
            "nsga2",
            "via_optuna:Nsga2",
            (
                count("population_size", 50, "trials per generation", 2, high=10_000),
                Field(
                    "crossover_prob",
                    "number",
                    0.9,
                    "probability that two parents are recombined",
                    low=0,
                    high=1,
                ),
                Field(
                    "swapping_prob",
                    "number",
                    0.5,
                    "probability that a knob comes from the second parent",
                    low=0,
                    high=1,
                ),
            ),
            learns_from="ranks within a generation",
            ahead=False,
            constraints="domination",
            conditional="at random",
            choices="yes",
        ),
        Method(
            "smac",
            "via_smac:Smac",
            (_STARTUP, count("n_trees", 10, "trees in the random forest", 1, high=1_000)),
            learns_from="values and estimates",
            constraints="as losses",
            package="smac",
            extra="smac",
            rests_on=("ConfigSpace", "scikit-learn"),
        ),
    )
}
"""Name -> method, including registered ones."""


def add_method(row: Method) -> None:
    if row.name in METHODS:
        text = f"a method named {row.name!r} is already registered"
        raise ConfigError(f"{text}; choose another name")
    check_options(f"search method {row.name!r}", row.options)
    METHODS[row.name] = row


def method_row(name: str) -> Method:
    if name not in METHODS:
        raise UnknownNameError("search method", name, METHODS)
    return METHODS[name]


def check_options(what: str, options: Iterable[object], taken: Iterable[str] = ()) -> None:
    """Raise ConfigError for options that no study file could set."""
    names = set(taken)
    for given in options:
        if not isinstance(given, Field):
            text = f"{what}: an option is {given!r}, but must be created with "
            raise ConfigError(f"{text}option(name, default, meaning)")
        if given.key in names:
            raise ConfigError(f"{what}: an option named {given.key!r} already exists")
        names.add(given.key)
