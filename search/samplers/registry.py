"""Samplers: their interface, and the registry that builds the one named by a study.

The table of methods is in `studies/search_methods.py`; a method's module is imported on use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pkgutil import resolve_name
from typing import Any, Literal, Protocol

from ...errors import ConfigError, install_command
from ...spaces.space import Space
from ...store.rows import LIVE, TrialState
from ...studies.field import Field
from ...studies.field import option as option
from ...studies.search_methods import Dealt, Method, add_method, method_row
from ...studies.sections import checked_options
from ...studies.spec import Study


@dataclass(frozen=True)
class PriorTrial:
    """An earlier trial in the form given to a sampler; a running one has no loss and no reports.

    Paused trials are `stopped` here, and may have more reports or a different end in a later
    history.
    """

    trial: int  # its number; negative for a trial of an earlier study
    params: Mapping[str, Any]  # active searched hyperparameters
    attributes: Mapping[str, Any] = field(default_factory=dict)  # attached by its sampler
    state: TrialState = TrialState.RUNNING
    loss: float | None = None  # of a finished trial; lower is better whatever the goal
    reports: tuple[float, ...] = ()  # loss at each rung
    proposed_by: str = ""  # a method, or `default`, `enqueue`, `portfolio` or `warm_start`
    more: tuple[float, ...] = ()  # losses of the second and further objectives
    more_reports: tuple[tuple[float, ...], ...] = ()  # the same at each rung
    # one per constraint, above 0 if it is violated; for stopped trials, at their last rung
    violations: tuple[float, ...] = ()
    seeds: tuple[float, ...] = ()  # last loss of each seed, once the trial has ended

    @property
    def losses(self) -> tuple[float, ...] | None:
        if self.loss is None:
            return None
        return (self.loss, *self.more)

    def losses_at(self, rung: int) -> tuple[float, ...]:
        if not self.more_reports:
            return (self.reports[rung],)
        return (self.reports[rung], *self.more_reports[rung])

    @property
    def is_live(self) -> bool:
        return self.state in LIVE


@dataclass(frozen=True)
class Draw:
    """One configuration: active searched hyperparameters, and attributes to store (JSON)."""

    params: Mapping[str, Any]
    attributes: Mapping[str, Any] = field(default_factory=dict)


class ProposalBatch(Protocol):
    """Draws configurations one by one, given those already kept in the same batch."""

    def draw(self, trial: int, attempt: int) -> Draw | None:
        """Propose a configuration for a trial; `attempt` is the number of draws rejected so far.

        Returns:
            None if nothing is left to propose, now or later.
        """
        ...

    def keep(self, trial: int, params: Mapping[str, Any]) -> None:
        """Record that this trial will run with `params`, which may differ from the last draw."""
        ...


class Sampler(Protocol):
    """A method that proposes configurations."""

    def begin(self, batch: int, history: Sequence[PriorTrial]) -> ProposalBatch:
        """Start a batch.

        Args:
            batch: number of the batch, which together with the seed and the trial numbers
                determines all random numbers.
            history: every trial proposed so far, by number, including running ones.
        """
        ...


@dataclass(frozen=True)
class SamplerSpec:
    """The inputs for building a sampler."""

    space: Space
    seed: int  # the study's seed
    options: Mapping[str, Any]  # `search: {options: ...}`; omitted options have their defaults
    objectives: int = 1  # losses per trial
    constraints: int = 0  # violations per trial


def options_of(method: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Check a method's options, and add the defaults."""
    return checked_options(f"search method {method!r}", method_row(method).options, given)


def register_sampler(
    name: str,
    build: Callable[[SamplerSpec], Sampler],
    options: Sequence[Field] = (),
    *,
    learns_from: str = "results",
    ahead: bool = True,
    ends: bool = False,
    objectives: Literal["one", "several"] = "several",
    conditional: Dealt = "modelled",
    choices: Dealt = "modelled",
) -> None:
    """Register a method as `search: {method: name}`; called by a file in `imports`.

    Args:
        name: name of the method.
        build: creates the sampler, which `testing/search.py` can test; `spec.options` has a value
            for every option.
        options: each created by `option(name, default, meaning, low=..., high=...)`.
        learns_from: a phrase for the results on which its proposals depend; "" for none.
        ahead: whether proposals are drawn while lanes run; advisable if one takes more than a
        millisecond.
        ends: whether it may run out of proposals.
        objectives: the number of objectives that it supports.
        conditional: how it models parameters that are not always active.
        choices: how it models unordered values.

    Raises:
        ConfigError: the name is taken, or an option is invalid.
    """
    add_method(
        Method(
            name,
            build,
            tuple(options),
            learns_from=learns_from,
            ahead=ahead,
            ends=ends,
            objectives=objectives,
            conditional=conditional,
            choices=choices,
        )
    )


def draws_ahead(study: Study) -> bool:
    """Return whether proposals are drawn while lanes run, without the results of these lanes."""
    if study.search.ahead == "auto":
        return method_row(study.search.method).ahead
    return study.search.ahead == "always"


def missing_package(row: Method) -> str:
    """Return how to install the package of a search method; "" if it is installed."""
    if not row.package or find_spec(row.package) is not None:
        return ""
    return (
        f"search method {row.name!r} needs the package {row.package}, which is not installed; "
        f"run: {install_command(row.extra)}, or use method: tpe"
    )


def make_sampler(study: Study) -> Sampler:
    """Build the sampler named by a study; ConfigError if it cannot work here."""
    row, objectives = method_row(study.search.method), max(1, len(study.objectives))
    what = f"search method {row.name!r}"
    options = checked_options(what, row.options, study.search.options)
    if lacking := missing_package(row):
        raise ConfigError(lacking)
    if row.objectives == "one" and objectives > 1:
        raise ConfigError(
            f"{what} supports only one objective (here: {objectives}); use method: tpe"
        )
    build = row.build
    if isinstance(build, str):
        build = resolve_name(f"{__package__}.{build}")
    return build(SamplerSpec(study.space, study.seed, options, objectives, len(study.constraints)))
