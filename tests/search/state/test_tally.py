"""Counts and the best trial, kept as rows change, beside what all rows give."""

from __future__ import annotations

from collections import Counter

import hypothesis.strategies as some
import pytest
from hypothesis import given

from hpo.search.state.objective import Objective, Objectives
from hpo.search.state.tally import Tally
from hpo.store.rows import TrialRow, TrialState
from hpo.studies.search_spec import Constraint, Metric

OBJECTIVE = Objective(Metric())
SPEED = Objective(Metric("eval/speed", "minimize"))
KINDS = {
    "plain": Objectives(),
    "constraint": Objectives((), (Constraint("eval/cost", max=2.0),)),
    "front": Objectives((SPEED,)),
    "front with a constraint": Objectives((SPEED,), (Constraint("eval/cost", max=2.0),)),
}
NUMBERS = some.sampled_from([0.0, 1.0, 2.0, 3.0, 4.0, float("nan"), float("inf")])
CHANGES = some.lists(
    some.tuples(
        some.integers(-1, 9),
        some.sampled_from(list(TrialState)),
        some.none() | NUMBERS,
        NUMBERS,
        NUMBERS,
        some.booleans(),
    ),
    max_size=40,
)


def best_of_all(rows, objectives):
    """Return what the order of all trials has first."""
    found = [row for number, row in sorted(rows.items()) if number >= 0 and row.value is not None]
    losses = [(OBJECTIVE.loss(row.value), *objectives.losses(row.objectives[1:])) for row in found]
    keys = objectives.keys(losses, [objectives.violation(row.constraints) for row in found])
    at = min(range(len(found)), key=keys.__getitem__, default=None)
    return None if at is None else found[at].trial


@pytest.mark.parametrize("kind", KINDS)
@given(changes=CHANGES)
def test_tally_equals_computation_over_all_rows(kind, changes):
    objectives, rows = KINDS[kind], dict[int, TrialRow]()
    tally = Tally(rows, OBJECTIVE, objectives)
    for number, state, value, speed, cost, asks in changes:
        rows[number] = TrialRow(
            *(number, state, "random", 0, "", {}),
            value=value,
            objectives=(value, speed) if objectives.others and value is not None else (),
            constraints=(cost,) if objectives.constraints else (),
        )
        tally.note(number)
        if asks:
            assert tally.best() == best_of_all(rows, objectives)
    assert tally.best() == best_of_all(rows, objectives)
    states = Counter(row.state for number, row in rows.items() if number >= 0)
    assert tally.states() == dict(states)


def test_only_rows_that_compete_may_be_the_best():
    rows = {
        number: TrialRow(number, TrialState.FINISHED, "random", 0, "", {}, value=float(number))
        for number in range(4)
    }
    assert Tally(rows, OBJECTIVE, Objectives()).best() == 3
    assert Tally(rows, OBJECTIVE, Objectives(), lambda row: row.trial < 2).best() == 1


def test_a_row_is_read_again_only_after_it_changed():
    rows = {
        number: TrialRow(number, TrialState.FINISHED, "random", 0, "", {}, value=float(number))
        for number in range(100)
    }
    read = list[int]()

    def competes(row):
        read.append(row.trial)
        return True

    tally = Tally(rows, OBJECTIVE, Objectives(), competes)
    assert tally.best() == 99
    read.clear()
    tally.note(7)
    assert tally.best() == 99 and read == [7]
