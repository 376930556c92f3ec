"""A search space: ordered parameters, conditions between them, and rules that forbid combinations.

`Space` is plain frozen data, with methods that draw, complete, check and enumerate configurations.
It does not depend on PPO hyperparameters, files or search libraries.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import Any

from ..errors import ConfigError, suggestion
from ..files.plain_data import freeze, same
from .distributions import Distribution, Random
from .forbid import Rule

DRAWS = 100  # attempts at a configuration that no rule forbids


@dataclass(frozen=True)
class Condition:
    """A condition, true if the hyperparameter `name` is active and has one of `values`."""

    name: str
    values: tuple[Any, ...]

    def holds(self, known: Mapping[str, Any]) -> bool:
        """Return whether the condition is true, given the values known so far."""
        return self.name in known and any(same(known[self.name], v) for v in self.values)


@dataclass(frozen=True)
class Parameter:
    """One searched hyperparameter.

    Two parameters may share a name if their conditions exclude each other (one hyperparameter with
    two distributions).
    """

    name: str
    distribution: Distribution
    default: Any
    # conditions that must all be true; otherwise the parameter is inactive and has no value
    when: tuple[Condition, ...] = ()

    def active(self, known: Mapping[str, Any]) -> bool:
        return all(condition.holds(known) for condition in self.when)


@dataclass(frozen=True)
class Space:
    """A search space.

    Attributes:
        parameters: the searched hyperparameters, in file order, which is the order of every
            configuration.
        forbid: rules; a configuration that makes one of them true never runs.
        constants: values that are not searched, but that occur in a condition or a rule.

    Raises:
        ConfigError: conditions form a cycle or name an unknown hyperparameter, or two parameters
            with the same name can be active together.
    """

    parameters: tuple[Parameter, ...] = ()
    forbid: tuple[Rule, ...] = ()
    constants: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        faults = structure_faults(self.parameters, self.constants)
        if faults:
            raise ConfigError("; ".join(text for _, text in faults))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The searched hyperparameters, each once, in order."""
        return tuple(dict.fromkeys(parameter.name for parameter in self.parameters))

    @cached_property
    def keyed(self) -> tuple[tuple[str, Parameter], ...]:
        """(key, parameter) pairs, parents first; the key is the name, or name#i if names repeat.

        The keys are parameter names for other libraries, which allow one distribution per name.
        """
        by_name: dict[str, list[Parameter]] = {}
        for parameter in self.parameters:
            by_name.setdefault(parameter.name, []).append(parameter)
        found = list[tuple[str, Parameter]]()
        for name in _parents_first(self.parameters):
            first, *more = by_name[name]
            if not more:
                found.append((name, first))
                continue
            found += [(f"{name}#{index}", branch) for index, branch in enumerate(by_name[name])]
        return tuple(found)

    def resolve(self, choose: Callable[[str, Parameter], Any]) -> dict[str, Any]:
        """Call `choose(key, parameter)` for the value of each active parameter, parents first."""
        known = dict(self.constants)
        chosen: dict[str, Any] = {}
        for key, parameter in self.keyed:
            if parameter.active(known):
                chosen[parameter.name] = known[parameter.name] = choose(key, parameter)
        return {name: chosen[name] for name in self.names if name in chosen}

    def active(self, params: Mapping[str, Any]) -> list[tuple[str, Parameter, Any]]:
        """Return (key, parameter, value) of each active parameter in a complete configuration."""
        known = {**self.constants, **params}
        return [(key, one, params[one.name]) for key, one in self.keyed if one.active(known)]

    def sample(self, rng: Random) -> dict[str, Any]:
        """Draw a configuration (active parameters only), redrawing forbidden ones.

        Raises:
            ConfigError: the rules forbade 100 draws in a row.
        """
        rule = None
        for _ in range(DRAWS):
            params = self.draw(rng)
            rule = self.forbidden(params)
            if rule is None:
                return params
        raise ConfigError(f"`forbid` rejected {DRAWS} configurations in a row, the last by {rule}")

    def draw(self, rng: Random) -> dict[str, Any]:
        """Draw a configuration without checking the rules."""
        return self.resolve(lambda _, parameter: parameter.distribution.sample(rng))

    def default(self) -> dict[str, Any]:
        """Return the default configuration."""
        return self.resolve(lambda _, parameter: parameter.default)

    def forbidden(self, params: Mapping[str, Any]) -> Rule | None:
        """Return the first rule that forbids a configuration, or None."""
        known = {**self.constants, **params}
        return next((rule for rule in self.forbid if rule.holds(known)), None)

    def why_not(self, params: Mapping[str, Any]) -> list[str]:
        """Return all reasons why a complete configuration is not in this space; empty if it is."""
        others = [name for name in params if name not in self.names]
        reasons = [f"{name!r} is not searched;{suggestion(name, self.names)}" for name in others]
        known = dict(self.constants)
        active: dict[str, Parameter] = {}
        for _, parameter in self.keyed:  # parents first: only what is active can make others so
            if parameter.active(known):
                active[parameter.name] = parameter
                if parameter.name in params:
                    known[parameter.name] = params[parameter.name]
        for name in self.names:
            if name in active and name not in params:
                reasons.append(f"{name} has no value")
            elif name in active:
                if reason := active[name].distribution.why_not(params[name]):
                    reasons.append(f"{name}: {reason}")
            elif name in params:
                reasons.append(f"{name} has a value, but it is not active here")
        if not reasons and (rule := self.forbidden(params)):
            reasons.append(f"forbidden by {rule}")
        return reasons

    def contains(self, params: Mapping[str, Any]) -> bool:
        """Return whether a complete configuration is in this space and allowed by its rules."""
        return not self.why_not(params)

    def complete(self, partial: Mapping[str, Any]) -> dict[str, Any]:
        """Complete a partial configuration with defaults, making every value canonical.

        Raises:
            ConfigError: the result is not in the space; the error gives every reason.
        """

        def choose(_: str, parameter: Parameter) -> Any:
            value, own = partial.get(parameter.name, parameter.default), parameter.distribution
            if own.why_not(value):
                return value  # refused below
            return own.canonical(value)

        params = self.resolve(choose)
        left_over = {name: value for name, value in partial.items() if name not in params}
        reasons = self.why_not({**params, **left_over})
        if reasons:
            raise ConfigError("; ".join(reasons))
        return params

    def canonical(self, params: Mapping[str, Any]) -> Hashable:
        """Return a key that is equal for equal configurations, for deduplication."""
        given = [(name, params[name]) for name in self.names if name in params]
        return tuple((name, isinstance(value, bool), freeze(value)) for name, value in given)

    def grid(self, points: int | Mapping[str, int]) -> Iterator[dict[str, Any]]:
        """Enumerate allowed configurations; the last parameter varies fastest.

        `points` is the number of values per range, or a mapping from names to such numbers, with
        `*` for the remaining names. Choices are always enumerated in full.
        """
        if isinstance(points, int):
            points = {"*": points}
        for chosen in self._grid_configurations(points, 0, dict(self.constants)):
            params = {name: chosen[name] for name in self.names if name in chosen}
            if self.forbidden(params) is None:
                yield params

    def grid_keys(self, points: int | Mapping[str, int], most: int) -> frozenset[Hashable]:
        """Return the keys of the first `most` configurations of the grid; enumerated once."""
        if isinstance(points, int):
            points = {"*": points}
        asked = tuple(points.items()), most
        if asked not in self._known_grids:
            some = itertools.islice(self.grid(points), most)
            self._known_grids[asked] = frozenset(map(self.canonical, some))
        return self._known_grids[asked]

    @cached_property
    def _known_grids(self) -> dict[Hashable, frozenset[Hashable]]:
        return {}

    def _grid_configurations(
        self, points: Mapping[str, int], index: int, known: dict[str, Any]
    ) -> Iterator[dict[str, Any]]:
        if index == len(self.keyed):
            yield {name: known[name] for name in self.names if name in known}
            return
        _, parameter = self.keyed[index]
        if not parameter.active(known):
            yield from self._grid_configurations(points, index + 1, known)
            return
        count = points.get(parameter.name, points.get("*", 5))
        for value in parameter.distribution.grid(count):
            yield from self._grid_configurations(
                points, index + 1, {**known, parameter.name: value}
            )


def structure_faults(
    parameters: Sequence[Parameter], constants: Mapping[str, Any]
) -> list[tuple[int, str]]:
    """Return inconsistencies between parameters, as (parameter index, message)."""
    names = {parameter.name for parameter in parameters}
    faults: list[tuple[int, str]] = []
    for index, parameter in enumerate(parameters):
        for condition in parameter.when:
            if condition.name not in names and condition.name not in constants:
                hint = suggestion(condition.name, [*names, *constants])
                text = f"{parameter.name}: `when` names the unknown parameter {condition.name!r};"
                faults.append((index, f"{text}{hint}"))
        same_name = [one for one in parameters[:index] if one.name == parameter.name]
        if not all(_is_exclusive(one, parameter) for one in same_name):
            text = (
                f"{parameter.name} is given twice, and both entries can be active; their `when` "
            )
            faults.append((index, f"{text}must name the same parent with different values"))
    faults.extend(_circular_conditions(parameters))
    return faults


def _is_exclusive(one: Parameter, other: Parameter) -> bool:
    pairs = [(a, b) for a in one.when for b in other.when if a.name == b.name]
    return any(not _share_a_value(a, b) for a, b in pairs)


def _share_a_value(one: Condition, other: Condition) -> bool:
    return any(same(x, y) for x in one.values for y in other.values)


def _parents_by_name(parameters: Sequence[Parameter]) -> dict[str, set[str]]:
    parents: dict[str, set[str]] = {parameter.name: set() for parameter in parameters}
    for parameter in parameters:
        parents[parameter.name].update(c.name for c in parameter.when if c.name in parents)
    return parents


def _parents_first(parameters: Sequence[Parameter]) -> list[str]:
    """Order names so that parents come first, but otherwise keep their order; cycles come last."""
    waiting = _parents_by_name(parameters)
    ordered: list[str] = []
    while waiting:
        ready = [name for name, parents in waiting.items() if parents <= set(ordered)]
        if not ready:
            break
        ordered.append(ready[0])
        del waiting[ready[0]]
    return ordered + list(waiting)


def _circular_conditions(parameters: Sequence[Parameter]) -> list[tuple[int, str]]:
    """Return conditions that form a cycle, each cycle once."""
    left, faults = _parents_by_name(parameters), list[tuple[int, str]]()
    order = list(left)
    while True:
        try:
            TopologicalSorter(left).prepare()
        except CycleError as error:
            circle: list[str] = error.args[1][:0:-1]  # children before their parents
            at = min(range(len(circle)), key=lambda place: order.index(circle[place]))
            path = " -> ".join([*circle[at:], *circle[: at + 1]])
            index = [parameter.name for parameter in parameters].index(circle[at])
            faults.append((index, f"`when` conditions form a cycle: {path}"))
            left = {name: left[name] - {*circle} for name in left if name not in circle}
        else:
            return sorted(faults)
