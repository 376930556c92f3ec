"""Builds the method of search that a study names, and registers more of them.

`studies/search_methods.py` has the table; what builds a method is imported only when a study asks
for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal, Protocol

from ...errors import ConfigError
from ...spaces.space import Space
from ...store.rows import TrialState
from ...studies.field import Field
from ...studies.field import option as option
from ...studies.search_methods import Dealt, Method, add_method, method_row
from ...studies.sections import checked_options
from ...studies.sections import checked_options as checked
from ...studies.spec import Study


@dataclass(frozen=True)
class Past:
    """A trial proposed before, as a sampler sees it.

    Attributes:
        trial: its number.
        params: active searched knobs.
        attributes: what the sampler that drew it attached.
        state: `running` for all that have not ended, which have no loss and no reports yet.
        loss: of a finished trial; lower is better whatever the goal.
        reports: loss at each rung judged, of trials that have ended, or were paused: those are
            `stopped`, and may have more reports, or end otherwise, in a later history.
        proposed_by: the method, `default`, `enqueue`, or `warm_start` for a trial of an earlier
            study, whose number is negative.
        more: losses of further objectives, beside `loss`.
        more_reports: likewise at each rung, beside `reports`.
        violations: one a constraint, above 0 by how much it is violated; of finished trials at
            their end, of stopped ones at their last rung.
    """

    trial: int
    params: Mapping[str, Any]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    state: TrialState = TrialState.RUNNING
    loss: float | None = None
    reports: tuple[float, ...] = ()
    proposed_by: str = ""
    more: tuple[float, ...] = ()
    more_reports: tuple[tuple[float, ...], ...] = ()
    violations: tuple[float, ...] = ()

    @property
    def losses(self) -> tuple[float, ...] | None:
        """One loss an objective, of a finished trial."""
        return None if self.loss is None else (self.loss, *self.more)

    def losses_at(self, rung: int) -> tuple[float, ...]:
        """One loss an objective at a rung that it was judged at."""
        return (self.reports[rung], *(self.more_reports[rung] if self.more_reports else ()))

    @property
    def is_live(self) -> bool:
        """Whether it has not ended."""
        return self.state in (TrialState.WAITING, TrialState.RUNNING)


@dataclass(frozen=True)
class Draw:
    """One configuration drawn: active searched knobs, and what to remember with it (JSON)."""

    params: Mapping[str, Any]
    attributes: Mapping[str, Any] = field(default_factory=dict)


class Batch(Protocol):
    """Draws configurations one after another, knowing those kept before in the same batch."""

    def draw(self, trial: int, attempt: int) -> Draw | None:
        """Propose for one trial; `attempt` counts from 0 and grows when a draw was refused.

        Returns:
            None when there is nothing left to propose, ever.
        """
        ...

    def keep(self, trial: int, params: Mapping[str, Any]) -> None:
        """Take note that this trial will run: the last draw, or one of another source."""
        ...


class Sampler(Protocol):
    """A method of proposing configurations."""

    def begin(self, batch: int, history: Sequence[Past]) -> Batch:
        """Open a batch.

        Args:
            batch: its number; the only source of randomness beside the seed and trial numbers.
            history: every trial proposed so far, by number, running ones included.
        """
        ...


@dataclass(frozen=True)
class SamplerSpec:
    """What a method is built from.

    Attributes:
        space: what may be proposed.
        seed: of the study.
        options: of the method, from `search: {options: ...}`; those left out have their defaults.
        objectives: how many losses a trial has.
        constraints: how many violations.
    """

    space: Space
    seed: int
    options: Mapping[str, Any]
    objectives: int = 1
    constraints: int = 0


def options_of(method: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Fill in the options of a method, by the table of methods.

    Raises:
        ConfigError: an option that the method does not have, or a value that is not legal.
    """
    return checked(f"search method {method!r}", method_row(method).options, given)


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
    """Make a method known under `search: {method: name}`; a file of `imports` calls this.

    Args:
        name: of the method.
        build: makes the sampler, which `testing/search.py` tests; `spec.options` has a value for
            every option.
        options: each made by `option(name, default, meaning, low=..., high=...)`.
        learns_from: what its proposals depend on, in words; "" on no result.
        ahead: proposals are drawn while lanes run; right if a proposal takes over a millisecond.
        ends: it runs out of proposals by itself.
        objectives: how many it takes.
        conditional: how it deals with parameters that are active only at times.
        choices: how it deals with values without an order.

    Raises:
        ConfigError: the name is taken, or an option is not in order.
    """
    add_method(
        Method(name, build, tuple(options), learns_from=learns_from, ahead=ahead, ends=ends,
               objectives=objectives, conditional=conditional, choices=choices)
    )  # fmt: skip


def draws_ahead(study: Study) -> bool:
    """Return whether proposals are drawn while lanes run, before these have shown anything."""
    if study.search.ahead == "auto":
        return method_row(study.search.method).ahead
    return study.search.ahead == "always"


def make_sampler(study: Study) -> Sampler:
    """Build the method that a study names.

    Raises:
        UnknownNameError: no method has this name.
        ConfigError: an option is unknown or out of range, a package is not installed, or the
            method does not take several objectives.
    """
    row, objectives = method_row(study.search.method), max(1, len(study.objectives))
    what = f"search method {row.name!r}"
    options = checked_options(what, row.options, study.search.options)
    if row.package and find_spec(row.package) is None:
        raise ConfigError(
            f"{what} needs the package {row.package}, which is not installed; "
            f"type: pip install 'hpo-lanes[{row.extra}]', or method: tpe"
        )
    if row.objectives == "one" and objectives > 1:
        raise ConfigError(f"{what} takes one objective, here are {objectives}; type method: tpe")
    build = row.build
    if isinstance(build, str):
        build = getattr(
            import_module(f".{build.partition(':')[0]}", __package__), build.partition(":")[2]
        )
    return build(SamplerSpec(study.space, study.seed, options, objectives, len(study.constraints)))
