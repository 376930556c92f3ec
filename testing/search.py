"""Tests for any sampler or rule: subclass a contract and define the object to test.

The tests need pytest to run, but not to be imported:

    class TestMine(SamplerContract):
        def make(self, space, seed):
            return Mine(space, seed)

A registered sampler or rule is tested by name, with its options: see `RegisteredSamplerContract`.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import ConfigError
from ..search.rules.pbt_perturb import Explorer, Gain, Situation
from ..search.rules.registry import Pruner, TrialAtRung, Verdict, make_explorer, make_pruner
from ..search.samplers.registry import PriorTrial, Sampler, make_sampler
from ..spaces.make import make_distribution
from ..spaces.space import Condition, Parameter, Space
from ..store.rows import TrialState
from ..studies.env_spec import EnvSpec
from ..studies.field import Field
from ..studies.search_methods import Method, method_row
from ..studies.search_spec import EarlyTerminate, SearchSpec
from ..studies.sections import defaults
from ..studies.spec import Study
from ..studies.stopping_rules import StoppingRule, rule_row


def contract_space() -> Space:
    """Return a space with real, integer, categorical and conditional parameters."""

    def parameter(name: str, when: tuple[Condition, ...] = (), **fields: object) -> Parameter:
        distribution = make_distribution(fields)
        return Parameter(name, distribution, distribution.middle(), when)

    chosen = (Condition("network", ("transformer",)),)
    parameters = (
        parameter("learning_rate", min=1e-5, max=1e-2, distribution="log_uniform"),
        parameter("gamma", min=0.9, max=0.999, distribution="one_minus_log"),
        parameter("network", values=["mlp", "transformer"]),
        parameter("transformer_heads", chosen, values=[1, 2, 4]),
        parameter("update_epochs", min=1, max=8, distribution="int_uniform"),
    )
    return Space(parameters)


def finished(trial: int, params: dict[str, object], loss: float) -> PriorTrial:
    """Return a trial that has finished its run."""
    return PriorTrial(trial, params, state=TrialState.FINISHED, loss=loss)


class SamplerContract:
    """Tests the properties that the search loop relies on; see `samplers.registry.Sampler`."""

    batches, size = 4, 8  # of the history behind the proposals; fewer for a slow sampler
    count = 5  # number of proposals compared

    def make(self, space: Space, seed: int) -> Sampler:
        """Return the sampler to test."""
        raise NotImplementedError

    def propose(
        self, sampler: Sampler, batch: int, count: int, history: list[PriorTrial]
    ) -> list[PriorTrial]:
        """Draw a batch of trials as the search loop does, and return them as running."""
        opened = sampler.begin(batch, history)
        first = len(history)
        found: list[PriorTrial] = []
        for trial in range(first, first + count):
            draw = opened.draw(trial, 0)
            if draw is None:
                break
            opened.keep(trial, draw.params)
            found.append(PriorTrial(trial, draw.params, draw.attributes, TrialState.RUNNING))
        return found

    def history(self, sampler: Sampler) -> list[PriorTrial]:
        """Return a history of the sampler's trials; all but the last batch have ended."""
        history: list[PriorTrial] = []
        for batch in range(self.batches):
            history += self.propose(sampler, batch, self.size, history)
            history = [
                self.ended(past) if past.trial < self.size * batch else past for past in history
            ]
        return history

    @staticmethod
    def ended(past: PriorTrial) -> PriorTrial:
        """Return the trial with an outcome that depends on its number."""
        states = ("FINISHED", "STOPPED", "DIVERGED", "FAILED", "UNFINISHED")
        state = TrialState[states[past.trial % len(states)]]
        value = random.Random(past.trial).random()
        loss, reports = None, ()
        if state is TrialState.FINISHED:
            loss = value
        elif state in (TrialState.STOPPED, TrialState.UNFINISHED):
            reports = (value + 1.0,)
        return PriorTrial(past.trial, past.params, past.attributes, state, loss, reports)

    def test_proposals_lie_in_the_space(self):
        space = contract_space()
        for past in self.history(self.make(space, 0)):
            assert space.contains(past.params), past.params

    def test_attributes_are_json(self):
        for past in self.history(self.make(contract_space(), 0)):
            assert json.loads(json.dumps(past.attributes)) == past.attributes

    def test_a_new_object_continues_where_the_old_one_was(self):
        space = contract_space()
        old = self.make(space, 3)
        history = self.history(old)
        found = self.propose(old, 9, self.count, history)
        assert found == self.propose(self.make(space, 3), 9, self.count, history)

    def test_a_batch_drawn_twice_is_the_same(self):
        sampler = self.make(contract_space(), 1)
        history = self.history(sampler)
        found = self.propose(sampler, 7, self.count, history)
        assert found == self.propose(sampler, 7, self.count, history)

    def test_a_batch_holds_no_configuration_twice(self):
        space = contract_space()
        sampler = self.make(space, 2)
        found = self.propose(sampler, 0, 30, [])
        assert len({space.canonical(past.params) for past in found}) == len(found)

    def test_trials_of_an_earlier_study_are_understood(self):
        space = contract_space()
        rng = random.Random(0)
        earlier: list[PriorTrial] = []
        for number in range(-12, 0):
            params, state, loss = space.sample(rng), TrialState.DIVERGED, None
            if number % 4 != 0:
                state, loss = TrialState.FINISHED, rng.random()
            earlier.append(
                PriorTrial(number, params, state=state, loss=loss, proposed_by="warm_start")
            )
        opened = self.make(space, 5).begin(0, earlier)
        for trial in range(4):
            draw = opened.draw(trial, 0)
            assert draw is not None and space.contains(draw.params)
            opened.keep(trial, draw.params)

    def test_a_refused_draw_leaves_no_trace_but_the_next_one(self):
        sampler = self.make(contract_space(), 4)
        history = self.history(sampler)
        opened = sampler.begin(5, history)
        draws = [opened.draw(len(history), attempt) for attempt in range(3)]
        given = [draw for draw in draws if draw is not None]
        keys = {contract_space().canonical(draw.params) for draw in given}
        assert given and len(keys) == len(given)


class PrunerContract:
    """Tests the properties that rung decisions rely on; see `rules.registry.Pruner`."""

    rung = 0

    def make(self) -> Pruner:
        """Return the rule to test."""
        raise NotImplementedError

    def numbers(self, count: int) -> list[int]:
        """Return the numbers of `count` trials that the rule compares with each other."""
        return list(range(count))

    def judged(self, earlier: list[float], arriving: list[float]) -> list[Verdict]:
        """Return the rule's verdicts on arriving trials, given the losses of earlier ones."""
        return self.verdicts(self.make(), earlier, arriving)

    def verdicts(
        self, rule: Pruner, earlier: Sequence[float], arriving: Sequence[float]
    ) -> list[Verdict]:
        """Return a given rule's verdicts on arriving trials."""
        losses = [*earlier, *arriving]
        numbers = self.numbers(len(losses))
        curves = [(loss,) * (self.rung + 1) for loss in losses]
        all_ = [TrialAtRung(*entry) for entry in zip(numbers, losses, curves, strict=True)]
        return rule.judge(self.rung, all_[: len(earlier)], all_[len(earlier) :])

    def test_the_best_trial_always_goes_on(self):
        rng = random.Random(0)
        for size in range(1, 40):
            losses = [rng.random() for _ in range(size)]
            cut = rng.randrange(size)
            earlier, arriving = losses[:cut], losses[cut:]
            for loss, verdict in zip(arriving, self.judged(earlier, arriving), strict=True):
                assert not (verdict.stop and loss == min(losses))

    def test_the_order_of_arrival_at_one_boundary_does_not_matter(self):
        rng = random.Random(1)
        for _ in range(50):
            earlier = [rng.randrange(10) / 1.0 for _ in range(rng.randrange(12))]
            arriving = [rng.randrange(10) / 1.0 for _ in range(1 + rng.randrange(8))]
            order = rng.sample(range(len(arriving)), len(arriving))
            plain = self.judged(earlier, arriving)
            mixed = self.judged(earlier[::-1], [arriving[index] for index in order])
            assert mixed == [plain[index] for index in order]

    def test_equal_losses_get_equal_verdicts(self):
        verdicts = self.judged([1.0, 2.0, 3.0, 4.0, 5.0], [2.5, 2.5, 9.0, 9.0])
        assert verdicts[0] == verdicts[1] and verdicts[2] == verdicts[3]

    def test_a_worse_trial_never_outlives_a_better_one(self):
        rng = random.Random(2)
        losses = [rng.random() for _ in range(20)]
        verdicts = self.judged(losses[:10], losses[10:])
        alive = [loss for loss, v in zip(losses[10:], verdicts, strict=True) if not v.stop]
        dead = [loss for loss, v in zip(losses[10:], verdicts, strict=True) if v.stop]
        assert not alive or not dead or max(alive) < min(dead)

    def test_verdicts_say_their_rule(self):
        assert all(verdict.rule for verdict in self.judged([], [1.0]))

    def test_a_new_object_judges_as_one_that_has_judged_before(self):
        rng, old = random.Random(4), self.make()
        for size in range(1, 20):
            losses = [rng.random() for _ in range(size)]
            cut = rng.randrange(size)
            found = self.verdicts(old, losses[:cut], losses[cut:])
            assert found == self.judged(losses[:cut], losses[cut:])


class ExplorerContract:
    """Tests the properties that an evolving population relies on; see `pbt_perturb.Explorer`."""

    def make(self, space: Space) -> Explorer:
        """Return the explorer to test."""
        raise NotImplementedError

    def explored(self, explorer: Explorer, count: int = 12) -> list[dict[str, Any]]:
        """Return the hyperparameters of `count` copies that are made after four rungs."""
        space, rng = contract_space(), random.Random(6)
        configs = [space.sample(rng) for _ in range(count)]
        gains = [Gain(n // 4, dict(params), 1.0, rng.random()) for n, params in enumerate(configs)]
        return [
            explorer.explore(params, Situation(4, 0.5, gains), np.random.default_rng(number))
            for number, params in enumerate(configs)
        ]

    def test_copies_lie_in_the_space(self):
        space = contract_space()
        found = self.explored(self.make(space))
        assert all(space.contains(params) for params in found)

    def test_a_new_object_explores_as_one_that_has_explored_before(self):
        old = self.make(contract_space())
        assert self.explored(old) == self.explored(old)
        assert self.explored(old) == self.explored(self.make(contract_space()))


class _Options:
    """Tests of the options of a registered sampler or rule."""

    name = ""
    row: Callable[[str], Method | StoppingRule] = staticmethod(rule_row)

    @property
    def options(self) -> Sequence[Field]:
        return self.row(self.name).options

    def behaviour(self, options: Mapping[str, Any]) -> object:
        """Return the behaviour of the sampler or rule with these options, for comparison."""
        raise NotImplementedError

    def test_options_left_out_have_their_defaults(self):
        assert self.behaviour({}) == self.behaviour(defaults(self.options))

    def test_every_option_works_at_the_ends_of_its_range(self):
        for field in self.options:
            for value in _extreme_values(field):
                assert self.behaviour({field.key: value}) is not None, (field.key, value)

    def test_what_an_option_cannot_be_is_refused(self):
        assert self.is_refused({"no_such_option": 1})
        for field in self.options:
            for value in _illegal_values(field):
                assert self.is_refused({field.key: value}), (field.key, value)

    def is_refused(self, options: Mapping[str, Any]) -> bool:
        """Return whether these options are rejected."""
        try:
            self.behaviour(options)
        except ConfigError:
            return True
        return False


class RegisteredSamplerContract(_Options, SamplerContract):
    """Also tests the options and properties that `register_sampler` recorded for the sampler."""

    row = staticmethod(method_row)

    def make(self, space: Space, seed: int, options: Mapping[str, Any] | None = None) -> Sampler:
        """Build the sampler as a study does."""
        search = SearchSpec(self.name, options=options or {})
        return make_sampler(_contract_study(space, seed=seed, search=search))

    def behaviour(self, options: Mapping[str, Any]) -> object:
        """Return proposals without and with a history."""
        sampler, history = self.make(contract_space(), 0, options), self.seen()
        found = [*self.propose(sampler, 0, 3, []), *self.propose(sampler, 1, 3, history)]
        assert all(contract_space().contains(past.params) for past in found)
        return found

    def seen(self, shift: float = 0.0) -> list[PriorTrial]:
        """Return finished trials; `shift` changes the order of their losses."""
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
        assert method_row(self.name).learns_from_results or found[0] == found[1]


class RegisteredRuleContract(_Options, PrunerContract):
    """Also tests the options and properties that `register_rule` recorded for the rule."""

    def make(self, options: Mapping[str, Any] | None = None) -> Pruner:
        """Build the rule as a study does."""
        early = EarlyTerminate(self.name, 2_000, options=options or {})
        rule = make_pruner(_contract_study(early_terminate=early))
        assert rule is not None, "a rule of a population: subclass RegisteredExplorerContract"
        return rule

    def behaviour(self, options: Mapping[str, Any]) -> object:
        """Return the rule's decisions on two groups of trials."""
        rng = random.Random(5)
        losses = [rng.random() for _ in range(24)]
        rule = self.make(options)
        return [self.verdicts(rule, losses[:cut], losses[cut:]) for cut in (0, 18)]

    def test_only_a_rule_that_says_so_ends_trials_with_their_value(self):
        verdicts = self.judged([float(n) for n in range(12)], [float(n) for n in range(12)])
        assert rule_row(self.name).finishes or not any(verdict.finish for verdict in verdicts)


class RegisteredExplorerContract(_Options, ExplorerContract):
    """Also tests an explorer's row in the table; see `register_rule`."""

    def make(self, space: Space, options: Mapping[str, Any] | None = None) -> Explorer:
        """Build the explorer as a study does."""
        early = EarlyTerminate(self.name, every=2_000, options=options or {})
        explorer = make_explorer(_contract_study(space, early_terminate=early))
        assert explorer is not None, "it stops trials: subclass RegisteredRuleContract"
        return explorer

    def behaviour(self, options: Mapping[str, Any]) -> object:
        """Return the hyperparameters of copies."""
        found = self.explored(self.make(contract_space(), options))
        assert all(contract_space().contains(params) for params in found)
        return found


def _contract_study(space: Space | None = None, **parts: Any) -> Study:
    env, space = EnvSpec("CartPole-v1"), space or contract_space()
    return Study(name="contract", env=env, env_steps=16_000, space=space, **parts)


def _extreme_values(field: Field) -> Iterator[Any]:
    """Yield an option's extreme values: both values of a switch, all words, or finite bounds."""
    if field.type == "flag":
        yield from (True, False)
    yield from field.words
    if field.type in ("count", "number"):
        small = 1e-3 * min(1.0, field.high)
        if field.type == "count":
            small = 1
        if math.isfinite(field.low):
            yield field.low + small * field.low_open
        else:
            yield field.default
        if field.high < 1e6:
            yield field.high
        else:
            yield max(field.low, field.default)


def _illegal_values(field: Field) -> Iterator[Any]:
    """Yield values that an option does not accept."""
    yield [[]]
    if field.type in ("count", "number"):
        yield "x"
        if math.isfinite(field.low):
            yield field.low - int(not field.low_open)
        if math.isfinite(field.high):
            yield field.high + 1
    elif field.type == "word":
        yield "-".join(field.words) + "-"
    elif field.type == "flag":
        yield "maybe"
