"""Tests of what is registered, made by its name as a study makes it, with all its options.

class TestNear(RegisteredSamplerContract):
name = "near"

class TestSlack(RegisteredRuleContract):
name = "slack"
"""

# The name of a test is its docstring.
# ruff: noqa: D102

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..errors import ConfigError
from ..spaces.space import Space
from ..studies.field import Field
from ..studies.search_methods import method_row
from ..studies.sections import defaults
from ..studies.spec import EarlyTerminate, EnvSpec, SearchSpec, Study
from ..studies.stopping_rules import rule_row
from .contracts import ExplorerContract, PrunerContract, SamplerContract, contract_space, finished
from .rules.explore import Explorer
from .rules.registry import Pruner, make_explorer, make_pruner
from .samplers.contract import Past, Sampler
from .samplers.registry import make_sampler

__all__ = ["RegisteredExplorerContract", "RegisteredRuleContract", "RegisteredSamplerContract"]


class _Options:
    """What holds of the options of everything registered.

    Attributes:
        name: of the method or the rule.
    """

    name = ""

    @property
    def options(self) -> Sequence[Field]:
        """The rows of its table."""
        raise NotImplementedError

    def behaviour(self, options: Mapping[str, Any]) -> object:
        """Return what it does with these options, in a form to compare."""
        raise NotImplementedError

    def test_options_left_out_have_their_defaults(self):
        assert self.behaviour({}) == self.behaviour(defaults(self.options))

    def test_every_option_works_at_the_ends_of_its_range(self):
        for field in self.options:
            for value in _ends(field):
                assert self.behaviour({field.key: value}) is not None, (field.key, value)

    def test_what_an_option_cannot_be_is_refused(self):
        assert self.is_refused({"no_such_option": 1})
        for field in self.options:
            for value in _beyond(field):
                assert self.is_refused({field.key: value}), (field.key, value)

    def is_refused(self, options: Mapping[str, Any]) -> bool:
        """Return whether it cannot be made with these options."""
        try:
            self.behaviour(options)
        except ConfigError:
            return True
        return False


class RegisteredSamplerContract(_Options, SamplerContract):
    """Also what holds of a method by its row of the table; see `register_sampler`."""

    @property
    def options(self) -> Sequence[Field]:
        """See `_Options`."""
        return method_row(self.name).options

    def make(self, space: Space, seed: int, options: Mapping[str, Any] | None = None) -> Sampler:
        """Build it as a study does."""
        search = SearchSpec(self.name, options=options or {})
        return make_sampler(_study(space, seed=seed, search=search))

    def behaviour(self, options: Mapping[str, Any]) -> object:
        """Return proposals without and with a history."""
        sampler, seen = self.make(contract_space(), 0, options), self.seen()
        found = [*self.propose(sampler, 0, 3, []), *self.propose(sampler, 1, 3, seen)]
        assert all(contract_space().contains(past.params) for past in found)
        return found

    def seen(self, shift: float = 0.0) -> list[Past]:
        """Return finished trials whose losses lie in another order after a shift."""
        rng = random.Random(3)
        return [
            finished(trial, contract_space().sample(rng), (rng.random() + shift * trial) % 1.0)
            for trial in range(self.size)
        ]

    def test_a_method_that_learns_from_nothing_proposes_the_same_after_any_result(self):
        found = [
            self.propose(self.make(contract_space(), 0), 1, self.count, self.seen(shift))
            for shift in (0.0, 0.37)
        ]
        assert method_row(self.name).learns or found[0] == found[1]


class RegisteredRuleContract(_Options, PrunerContract):
    """Also what holds of a rule by its row of the table; see `register_rule`."""

    @property
    def options(self) -> Sequence[Field]:
        """See `_Options`."""
        return rule_row(self.name).options

    def make(self, options: Mapping[str, Any] | None = None) -> Pruner:
        """Build it as a study does."""
        early = EarlyTerminate(self.name, 2_000, options=options or {})
        rule = make_pruner(_study(early_terminate=early))
        assert rule is not None, "a rule of a population: subclass RegisteredExplorerContract"
        return rule

    def behaviour(self, options: Mapping[str, Any]) -> object:
        """Return what it says of two groups of trials."""
        rng = random.Random(5)
        losses = [rng.random() for _ in range(24)]
        rule = self.make(options)
        return [self.verdicts(rule, losses[:cut], losses[cut:]) for cut in (0, 18)]

    def test_only_a_rule_that_says_so_ends_trials_with_their_value(self):
        verdicts = self.judged([float(n) for n in range(12)], [float(n) for n in range(12)])
        assert rule_row(self.name).finishes or not any(verdict.finish for verdict in verdicts)


class RegisteredExplorerContract(_Options, ExplorerContract):
    """Also what holds of a rule of a population by its row; see `register_rule`."""

    @property
    def options(self) -> Sequence[Field]:
        """See `_Options`."""
        return rule_row(self.name).options

    def make(self, space: Space, options: Mapping[str, Any] | None = None) -> Explorer:
        """Build it as a study does."""
        early = EarlyTerminate(self.name, every=2_000, options=options or {})
        explorer = make_explorer(_study(space, early_terminate=early))
        assert explorer is not None, "it stops trials: subclass RegisteredRuleContract"
        return explorer

    def behaviour(self, options: Mapping[str, Any]) -> object:
        """Return the knobs of copies."""
        found = self.explored(self.make(contract_space(), options))
        assert all(contract_space().contains(params) for params in found)
        return found


def _study(space: Space | None = None, **parts: Any) -> Study:
    return Study("contract", EnvSpec("CartPole-v1"), 16_000, space or contract_space(), **parts)


def _ends(field: Field) -> Iterator[Any]:
    """Yield the extreme values of an option: both of a switch, every word, the finite bounds."""
    if field.type == "flag":
        yield from (True, False)
    yield from field.words
    if field.type in ("count", "number"):
        small = 1 if field.type == "count" else 1e-3 * min(1.0, field.high)
        yield field.low + small * field.low_open if math.isfinite(field.low) else field.default
        yield field.high if field.high < 1e6 else max(field.low, field.default)


def _beyond(field: Field) -> Iterator[Any]:
    """Yield values that an option cannot have."""
    yield [[]]
    if field.type in ("count", "number"):
        yield "x"
        if math.isfinite(field.low):
            yield field.low - (0 if field.low_open else 1)
        if math.isfinite(field.high):
            yield field.high + 1
    elif field.type == "word":
        yield "-".join(field.words) + "-"
    elif field.type == "flag":
        yield "maybe"
