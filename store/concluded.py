"""What a study has shown, from what its journal holds; `conclusions.py` decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .conclusion_words import sentences
from .conclusions import Conclusion, Sample, WithoutCopying, conclude
from .default_trial import default_of
from .front_conclusion import FrontConclusion
from .leaderboard import Entry
from .looks import Look, winners_looks
from .rows import BaselineRow, Stream, StudyMeta, TrialRow, TrialState

__all__ = ["concluded"]


def concluded(
    meta: StudyMeta,
    rows: Sequence[TrialRow],
    entries: Sequence[Entry],
    baselines: Sequence[BaselineRow] = (),
    *,
    ceiling: float | None = None,
    why: Sequence[str] = (),
    why_alone: str = "",
    apart: str = "",
    front: FrontConclusion | None = None,
    alone: WithoutCopying | None = None,
    tells: str = "",
    lone: bool = False,
    looks: Sequence[Look] = (),
) -> Conclusion:
    """Return what a study has shown on seeds that chose nothing.

    Without these seeds nothing is concluded. With several objectives no value wins: then it is
    where the default stands to the front.

    Args:
        meta: what the journal says of the study.
        rows: its trials.
        entries: its leaderboard.
        baselines: rules that learn nothing.
        ceiling: the best possible value, where it is known.
        why: what is said where nothing is concluded.
        why_alone: what is said where the default has no values on these seeds.
        apart: why the winner's values are of another world than the default's and the baselines',
            as a sentence; then they are not compared.
        front: with several objectives, where the default stands to the front.
        alone: of a population that copies, the best of the same one without copying.
        tells: what to type to know that, as a sentence; said last.
        lone: one trial ran alone and has a value: the seeds of its search chose nothing.
        looks: at how many test seeds trials were seen.
    """
    by_number = {row.trial: row for row in rows}
    first = entries[0] if entries else None
    winner = by_number[first.trial] if first is not None else None
    if lone and first is not None and winner is not None and not meta.objectives:
        return _said(_of_a_lone_trial(meta, winner, first, baselines))
    if first is None or winner is None or meta.objectives or not _has_reported(winner, first):
        return _said(replace(conclude(None, None, goal=meta.goal), why=tuple(why), front=front))
    default = default_of(rows)
    rival = None if default is None or apart else default.by_report_seed
    named = {row.baseline: _sample(row.values.get(Stream.REPORT, ())) for row in baselines}
    own = (winner.trial, None if default is None else default.trial)
    found = conclude(
        winner.by_report_seed,
        rival,
        goal=meta.goal,
        name=f"trial {first.trial}",
        is_default=default is not None and default.trial == first.trial,
        beaten=sum(entry.confirmed and entry.trial not in own for entry in entries),
        baselines={} if apart else {name: sample for name, sample in named.items() if sample},
        ceiling=ceiling,
        sharing=sum(
            _has_all(entry, winner.report_values)
            for entry in entries
            if entry.trial not in own and entry.state is not TrialState.REFERENCE
        ),
        shown=_shown(rows, entries),
        feasible=first.feasible,
        rival_feasible=next((e.feasible for e in entries if e.trial == own[1]), None),
        why=apart or why_alone,
        alone=alone,
        earlier=_earlier(looks, winner, default),
    )
    return _said(replace(found, tells="" if found.copying is not None else tells))


def _earlier(looks: Sequence[Look], winner: TrialRow, default: TrialRow | None) -> tuple[int, ...]:
    """Return the earlier looks at what is concluded now."""
    if default is None:
        return ()
    both = winner.by_report_seed.keys() & default.by_report_seed.keys()
    return winners_looks(looks, winner.trial, default.trial, len(both))


def _of_a_lone_trial(
    meta: StudyMeta, trial: TrialRow, entry: Entry, baselines: Sequence[BaselineRow]
) -> Conclusion:
    """Return one trial beside the baselines, on the seeds of its search."""
    own = _sample(trial.seed_values)
    named = {row.baseline: _sample(row.values.get(Stream.SEARCH, ())) for row in baselines}
    found = conclude(
        own,
        None,
        goal=meta.goal,
        name=f"trial {trial.trial}",
        # A seed that diverged has no value, and which one is not known here.
        baselines={name: one for name, one in named.items() if one.keys() == own.keys()},
        feasible=entry.feasible,
    )
    return replace(found, lone=True)


def _has_reported(winner: TrialRow, first: Entry) -> bool:
    """Return whether the winner ran on the seeds that report, if only to diverge there."""
    return first.value_from == Stream.REPORT or bool(first.confirmed and winner.report_diverged)


def _said(conclusion: Conclusion) -> Conclusion:
    return replace(conclusion, said=tuple(sentences(conclusion)))


def _sample(values: Sequence[float]) -> Sample:
    return dict(enumerate(values))


def _shown(rows: Sequence[TrialRow], entries: Sequence[Entry]) -> list[float]:
    """Return every value that the tables hold of any trial: seed by seed, and means at rungs."""
    seeds = [value for row in rows for value in (*row.seed_values, *row.report_values)]
    means = [value for entry in entries
             for value in (entry.search_value, entry.choose_value, entry.rung_value)]  # fmt: skip
    return seeds + [value for value in means if value is not None]


def _has_all(entry: Entry, values: Sequence[float]) -> bool:
    """Return whether every seed behind an entry has the one value that all of these are."""
    return bool(entry.value is not None and entry.values) and {*entry.values} == {*values}
