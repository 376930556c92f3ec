"""A trial in the form that all screens use, and a study's trials in ranking order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ..store.environment_columns import environment_names
from ..store.leaderboard import Entry
from ..store.rows import StudyMeta, TrialState
from .formatting import steps

_SHOWN_WITH_RUNG = (
    TrialState.STOPPED,
    TrialState.PAUSED,
    TrialState.INTERRUPTED,
    TrialState.UNFINISHED,
)
_PLAIN_DEFAULT = (TrialState.FINISHED, TrialState.CONFIRMED, TrialState.REFERENCE)


@dataclass(frozen=True)
class SeedMean:
    """A mean over one kind of seeds; `value` is None if nothing was measured."""

    value: float | None = None
    seeds: int = 0


@dataclass(frozen=True)
class TrialView:
    """A trial in the form that every screen uses."""

    place: int  # 1 is best
    trial: int
    state: TrialState
    note: str  # its state in tables: `winner`, `default, 8.19k`, `stopped 8.19k`
    is_default: bool
    is_confirmed: bool
    is_winner: bool  # first and confirmed; several objectives have a front instead of a winner
    has_value: bool  # whether it has a value for a full run
    search: SeedMean  # for the full run; for a stopped trial, at its last rung
    select: SeedMean
    test: SeedMean
    seeds: int  # number of seeds behind the value by which it is ranked
    stop: str  # the rule that stopped it or would have; "" without one
    stopped_at: int | None  # env steps of each seed at its last rung
    params: Mapping[str, Any]
    scores: tuple[float, ...] = ()  # one per environment
    objectives: tuple[float, ...] = ()
    front: int | None = None
    feasible: bool | None = None
    low: float | None = None  # lower end of the 95 % interval of the value by which it is ranked
    high: float | None = None

    @classmethod
    def of(cls, entry: Entry) -> TrialView:
        first = entry.rank == 1 and entry.confirmed
        searched = entry.rung_value if entry.search_value is None else entry.search_value
        made = cls(
            place=entry.rank,
            trial=entry.trial,
            state=entry.state,
            note="",
            is_default=entry.is_default,
            is_confirmed=entry.confirmed,
            is_winner=first and not entry.objectives,
            has_value=entry.value is not None,
            search=SeedMean(searched, entry.search_seeds),
            select=SeedMean(entry.choose_value, entry.choose_seeds),
            test=SeedMean(entry.report_value, entry.report_seeds),
            seeds=entry.seeds,
            stop=entry.stop_rule,
            stopped_at=entry.rung_env_steps,
            params=entry.params,
            scores=entry.scores,
            objectives=entry.objectives,
            front=entry.front,
            feasible=entry.feasible,
            low=entry.ci_low,
            high=entry.ci_high,
        )
        return replace(made, note=_state_note(made))


def _state_note(one: TrialView) -> str:
    state = _state_words(one)
    if not one.is_default:
        return state
    if state in _PLAIN_DEFAULT:
        return "default"
    return f"default, {state.removeprefix('stopped ')}"


def _state_words(one: TrialView) -> str:
    if one.is_winner and one.has_value:
        return "winner"
    if one.state in _SHOWN_WITH_RUNG and one.stopped_at is not None:
        return f"{one.state} {steps(one.stopped_at)}"
    return str(one.state)


@dataclass(frozen=True)
class Board:
    """A study's trials, best first, and the names of their columns."""

    entries: Sequence[Entry]
    objectives: tuple[str, ...] = ()  # if there are several
    environments: tuple[str, ...] = ()  # if there are several

    @classmethod
    def of(
        cls,
        entries: Iterable[Entry],
        objectives: Sequence[str] = (),
        environments: Sequence[str] = (),
    ) -> Board:
        return cls(tuple(entries), tuple(objectives), tuple(environments))

    @cached_property
    def trials(self) -> tuple[TrialView, ...]:
        """The trials on the board; only the first ones if the board was shortened by `first`."""
        return tuple(map(TrialView.of, self.entries))

    @classmethod
    def of_study(cls, meta: StudyMeta, entries: Iterable[Entry]) -> Board:
        return cls.of(entries, meta.objective_names, environment_names(meta.environments))

    def first(self, most: int | None) -> Board:
        """Return a board with only the first trials, and the default regardless of its rank."""
        if most is None:
            return self
        default = [one for one in self.entries[most:] if one.is_default]
        return replace(self, entries=(*self.entries[:most], *default))
