"""Builds the method of search that a study names, and registers more of them.

`studies/search_methods.py` has the table; what builds a method is imported only when a study asks
for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Literal

from ...errors import ConfigError
from ...studies.field import Field, option
from ...studies.search_methods import Dealt, Method, add_method, method_row
from ...studies.sections import checked_options
from ...studies.spec import Study
from .contract import Sampler, SamplerSpec

__all__ = ["draws_ahead", "make_sampler", "option", "register_sampler"]


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
        build: makes the sampler, which `search/contracts.py` tests; `spec.options` has a value for
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
        build = import_module(f".{build}", __package__).build
    return build(SamplerSpec(study.space, study.seed, options, objectives, len(study.constraints)))
