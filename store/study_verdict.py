"""Collects the evidence from a study's rows, and derives the study's verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from .against import ConstraintSamples, Sample
from .chance_of_best import ChosenTrial, chance_of_best
from .constraint_tests import Limit
from .front_verdict import FrontConclusion
from .interim_analyses import Look, begins_interim, winners_looks
from .leaderboard import Entry, default_of
from .rows import BaselineRow, Stream, StudyMeta, TrialRow, TrialState
from .statistics import sign_of
from .value_bounds import value_bounds
from .verdict import Conclusion, Evidence, WithoutCopying, conclude
from .verdict_text import sentences


@dataclass(frozen=True, kw_only=True)
class Circumstances:
    """Facts about a finished study that are in neither its rows nor its leaderboard."""

    ceiling: float | None = None  # the best possible value
    why: Sequence[str] = ()  # sentences on why there is no verdict
    why_alone: str = ""  # a sentence if the default has no test seeds
    apart: str = ""  # a sentence if the winner's values cannot be compared
    front: FrontConclusion | None = None
    alone: WithoutCopying | None = None
    tells: str = ""  # a sentence on how to get `alone`
    lone: bool = False  # there is only one trial, so its search seeds did not select it
    looks: Sequence[Look] = ()
    constraints: ConstraintSamples | None = None  # their results on test seeds


@dataclass(frozen=True, eq=False)
class _Sides:
    """The first entry of the leaderboard, and the default."""

    meta: StudyMeta
    rows: Sequence[TrialRow]
    entries: Sequence[Entry]
    first: Entry
    winner: TrialRow
    default: TrialRow | None

    @property
    def are_tested(self) -> bool:
        """Whether the winner ran on test seeds, even if it diverged on all of them."""
        lost = self.first.confirmed and bool(self.winner.report_diverged)
        return self.first.value_from == Stream.REPORT or lost

    @property
    def others(self) -> list[Entry]:
        """All entries except the winner's and the default's."""
        own = [self.winner.trial]
        if self.default is not None:
            own.append(self.default.trial)
        return [entry for entry in self.entries if entry.trial not in own]


def concluded(
    meta: StudyMeta,
    rows: Sequence[TrialRow],
    entries: Sequence[Entry],
    baselines: Sequence[BaselineRow] = (),
    given: Circumstances | None = None,
) -> Conclusion:
    """Return a study's verdict, based on test seeds or, with several objectives, on the front."""
    given = given or Circumstances()
    if not entries:
        return _no_verdict(given.why, given.front)
    by_number = {row.trial: row for row in rows}
    first = entries[0]
    sides = _Sides(meta, rows, entries, first, by_number[first.trial], default_of(rows))
    if copied := _copies_sentences(sides):
        return _no_verdict(copied, None)
    if given.lone and not meta.objectives:
        return _of_lone_trial(sides, baselines)
    if meta.objectives or not sides.are_tested:
        return _no_verdict(given.why, given.front)
    found = conclude(_collect_evidence(sides, baselines, given))
    tells = given.tells
    if found.copying is not None:
        tells = ""
    found = replace(found, tells=tells, chosen=_among_chosen(sides), failed=_failed_sides(sides))
    return _with_sentences(found)


def _failed_sides(sides: _Sides) -> tuple[str, ...]:
    """Return the winner and the default, each if a run of it on a test seed has failed."""
    named = {f"trial {sides.winner.trial}": sides.winner}
    if sides.default is not None and sides.default.trial != sides.winner.trial:
        named["the default"] = sides.default
    return tuple(name for name, row in named.items() if row.has_failed_test_run)


def _no_verdict(why: Sequence[str], front: FrontConclusion | None) -> Conclusion:
    none = conclude(Evidence(None))
    return _with_sentences(replace(none, why=tuple(why), front=front))


def _of_lone_trial(sides: _Sides, baselines: Sequence[BaselineRow]) -> Conclusion:
    own = dict(enumerate(sides.winner.seed_values))
    named = _by_baseline(baselines, Stream.SEARCH)
    evidence = Evidence(
        own,
        goal=sides.meta.goal,
        name=f"trial {sides.winner.trial}",
        # A diverged seed has no value, and its number is unknown here.
        baselines={name: one for name, one in named.items() if one.keys() == own.keys()},
        bounds=value_bounds(sides.meta),
        feasible=sides.first.feasible,
    )
    return _with_sentences(replace(conclude(evidence), lone=True))


def _collect_evidence(
    sides: _Sides, baselines: Sequence[BaselineRow], given: Circumstances
) -> Evidence:
    meta, winner, default = sides.meta, sides.winner, sides.default
    default_values, by_baseline = None, {}
    if default is not None and not given.apart:
        default_values = default.by_report_seed
    if not given.apart:
        by_baseline = _by_baseline(baselines, Stream.REPORT)
    return Evidence(
        winner.by_report_seed,
        default_values,
        goal=meta.goal,
        name=f"trial {winner.trial}",
        is_default=default is not None and default.trial == winner.trial,
        beaten=_compared_trials(sides),
        of_search=not winner.choose_values,
        baselines=by_baseline,
        ceiling=given.ceiling,
        bounds=value_bounds(meta),
        sharing=_same_valued_trials(sides),
        shown=_all_values(sides.rows, sides.entries),
        feasible=sides.first.feasible,
        constraints=_constraint_samples(meta, given),
        why=given.apart or given.why_alone,
        alone=given.alone,
        earlier=_earlier_looks(sides, given.looks),
        interim=begins_interim(given.looks),
    )


def _compared_trials(sides: _Sides) -> int:
    """Return the number of other trials that the winner was compared with."""
    of_search = not sides.winner.choose_values
    return sum(
        entry.confirmed or (of_search and entry.state is TrialState.FINISHED)
        for entry in sides.others
    )


def _same_valued_trials(sides: _Sides) -> int:
    """Return the number of other trials with the same values as the winner."""
    own = set(sides.winner.report_values)
    return sum(
        set(entry.values) == own
        for entry in sides.others
        if entry.value is not None and entry.values and entry.state is not TrialState.REFERENCE
    )


def _constraint_samples(meta: StudyMeta, given: Circumstances) -> ConstraintSamples | None:
    if given.constraints is None and meta.constraints:
        return ConstraintSamples(tuple(map(Limit.of, meta.constraints)), None, None)
    return given.constraints


def _earlier_looks(sides: _Sides, looks: Sequence[Look]) -> tuple[int, ...]:
    winner, default = sides.winner, sides.default
    if default is None:
        return ()
    both = winner.by_report_seed.keys() & default.by_report_seed.keys()
    return winners_looks(looks, winner.trial, default.trial, len(both))


def _copies_sentences(sides: _Sides) -> list[str]:
    """Return sentences if two seeds of the winner or the default trained identically."""
    winner, default, stream = sides.winner, sides.default, sides.first.value_from
    if sides.first.value is None:
        return []
    named = {"the default" if winner is default else f"trial {winner.trial}": winner}
    if default is not None:
        named["the default"] = default
    alike = [name for name, row in named.items() if stream in row.copies]
    if not alike:
        return []
    return [copies_sentence(" and ".join(alike), stream), COPIES_REMEDY]


def copies_sentence(names: str, stream: str) -> str:
    kind = {"report": "test seeds", "choose": "selection seeds"}.get(stream, "search seeds")
    return f"No verdict: {kind} of {names} trained identically, bit for bit."


COPIES_REMEDY = (
    "Identical runs count as one. The training or the environment ignores the random key, "
    "for example because of a fixed key in `init`."
)


def _among_chosen(sides: _Sides) -> ChosenTrial | None:
    """Return the probability that the winner is the best of the finalists."""
    meta, winner = sides.meta, sides.winner
    if meta.constraints or meta.aggregate != "mean":
        return None
    stream = Stream.SEARCH
    if winner.choose_values:
        stream = Stream.CHOOSE
    seeds = len(_values_of(winner, stream))
    finished = [row for row in sides.rows if row.state is TrialState.FINISHED]
    those = [row for row in finished if len(_values_of(row, stream)) == seeds]
    if winner not in those or any(stream in row.copies for row in those):
        return None
    sign = sign_of(meta.goal)
    values = [_signed_values(_values_of(row, stream), sign) for row in those]
    return chance_of_best(values, those.index(winner))


def _signed_values(values: Sequence[float], sign: float) -> list[float]:
    return [sign * value for value in values]


def _values_of(row: TrialRow, stream: Stream) -> Sequence[float]:
    if stream is Stream.CHOOSE:
        return row.choose_values
    return row.seed_values


def _with_sentences(conclusion: Conclusion) -> Conclusion:
    return replace(conclusion, said=tuple(sentences(conclusion)))


def _by_baseline(rows: Sequence[BaselineRow], stream: Stream) -> dict[str, Sample]:
    return {
        row.baseline: dict(enumerate(values)) for row in rows if (values := row.values.get(stream))
    }


def _all_values(rows: Sequence[TrialRow], entries: Sequence[Entry]) -> list[float]:
    seeds = [value for row in rows for value in (*row.seed_values, *row.report_values)]
    means = [
        value
        for entry in entries
        for value in (entry.search_value, entry.choose_value, entry.rung_value)
    ]
    return seeds + [value for value in means if value is not None]
