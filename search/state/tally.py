"""Counts of trials by state, and the best trials, updated on every change.

A study needs both after every chunk. If all trials were read each time, the cost per chunk would
grow with the number of trials.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...store.pareto import places
from ...store.rows import TrialRow, TrialState
from .objective import Objective, Objectives


@dataclass(frozen=True)
class _Result:
    losses: tuple[float, ...]
    violation: float

    def dominates(self, other: _Result) -> bool:
        pairs = list(zip(self.losses, other.losses, strict=True))
        no_worse = all(own <= its for own, its in pairs)
        return no_worse and any(own < its for own, its in pairs)


class Tally:
    """Counts trials by state, and finds the best trial with a value.

    `note` marks a row that may have changed; the row is read when a count is needed. `competes`
    selects the rows with a value that are eligible as the best.
    """

    def __init__(
        self,
        rows: Mapping[int, TrialRow],
        objective: Objective,
        objectives: Objectives,
        competes: Callable[[TrialRow], bool] = lambda row: True,
    ):
        self._rows, self._competes = rows, competes
        self._objective, self._objectives = objective, objectives
        self._changed: set[int] = set(rows)
        self._state_of: dict[int, TrialState] = {}
        self._states: Counter[TrialState] = Counter()
        self._results: dict[int, _Result] = {}
        # candidates for the best trial; only one if there is one objective
        self._leading: set[int] = set()

    def note(self, number: int) -> None:
        """Mark a row that may have changed."""
        self._changed.add(number)

    def states(self) -> dict[TrialState, int]:
        self._read_changes()
        return {state: count for state, count in self._states.items() if count}

    def best(self) -> int | None:
        """Return the best trial's number, the smallest among equals; None if there is none."""
        self._read_changes()
        if len(self._leading) < 2:
            return next(iter(self._leading), None)
        numbers = sorted(self._leading)
        found = places([self._results[number].losses for number in numbers])
        at = min(range(len(numbers)), key=lambda index: found[index].key)
        return numbers[at]

    def _read_changes(self) -> None:
        changed, self._changed = self._changed, set()
        entering: list[int] = []
        for number in sorted(changed):
            if number >= 0 and self._read_row(number, self._rows[number]):
                entering.append(number)
        if not self._leading.isdisjoint(entering):  # any of the other trials may lead now
            self._leading, entering = set(), list(self._results)
        for number in entering:
            if number in self._results:
                self._try_to_lead(number)

    def _read_row(self, number: int, row: TrialRow) -> bool:
        """Count a row; return whether its result has changed."""
        state, before = TrialState(row.state), self._state_of.get(number)
        if before is not None:
            self._states[before] -= 1
        self._state_of[number] = state
        self._states[state] += 1
        now = self._result_of(row)
        if now == self._results.get(number):
            return False
        if now is None:
            del self._results[number]
        else:
            self._results[number] = now
        return True

    def _result_of(self, row: TrialRow) -> _Result | None:
        if row.value is None or not self._competes(row):
            return None
        others = self._objectives.losses(row.objectives[1:])
        violation = self._objectives.violation(row.constraints)
        return _Result((self._objective.loss(row.value), *others), violation)

    def _try_to_lead(self, number: int) -> None:
        """Make a trial a leader unless a leader is better; drop leaders that it beats."""
        if any(self._is_better(other, number) for other in self._leading):
            return
        beaten = {other for other in self._leading if self._is_better(number, other)}
        self._leading = (self._leading - beaten) | {number}

    def _is_better(self, number: int, other: int) -> bool:
        """Return whether a trial rules out another as the best (`store.pareto.places`)."""
        own, its = self._results[number], self._results[other]
        if own.violation != its.violation:
            return own.violation < its.violation
        if own.violation == 0.0 and own.losses != its.losses:
            return own.dominates(its)
        if own.violation == 0.0 and len(own.losses) > 1:
            return False  # equal points share a rank
        return number < other
