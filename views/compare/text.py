"""The answer of `hpo compare`, as JSON data and as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from ...store.aggregate_environments import (
    Beside,
    BySeed,
    Estimate,
    OnEach,
    OneEnvironment,
    beside,
    of_seeds,
    on_each,
    profiles,
)
from ...store.codec import finite_json
from ...store.comparison import Comparison
from ...store.rows import Stream, StudyMeta
from ...store.statistics import NO_INTERVAL, sign_of
from ...store.study_verdict import COPIES_REMEDY
from ...store.unobserved import bounded_interval
from ...store.verdict_text import upper_first
from ..environment_text import AGGREGATES_NOTE, beside_lines
from ..formatting import aligned, around, between, number
from .deciding_runs import deciding_lines, why_unpaired
from .sides import Side
from .values import ComparedValues
from .verdict import Refusal, allows_verdict, leader_lost_more, lost_words, verdict_sentence

_LISTED = 8  # largest number of values per side that are printed one by one


def data_and_text(
    meta: StudyMeta,
    result: Comparison,
    sides: Sequence[Side],
    chosen: ComparedValues,
    refused: Refusal | None,
) -> tuple[dict[str, Any], str]:
    """Return the answer as JSON data and as text."""
    comparable = refused is None or refused.comparable
    environments, lines = dict[str, Any](), list[str]()
    if comparable:
        environments, lines = _environment_part(sides, chosen, decides=refused is None)
    unpaired = ""
    if not chosen.paired:
        unpaired = why_unpaired(*sides)
    caution = _cautions_text(meta, result, sides, chosen)
    data = {
        "a": sides[0].name,
        "b": sides[1].name,
        "metric": meta.metric,
        **asdict(result),
        **environments,
        **_decision_data(result, refused),
        "caution": caution,
        "unpaired": unpaired,
        "at": chosen.at,
    }
    if not allows_verdict(result, chosen):
        data["probability"] = None
    if refused is None:
        first = verdict_sentence(result, sides, chosen)
    else:
        first = f"No verdict: {refused.why}."
    shown = [first, "", *_values_table(sides, chosen, result)]
    if result.paired and comparable:
        shown.append(_seed_by_seed(result, sides, chosen))
    deciding, more = list[str](), lines[1:]
    if comparable:
        deciding = deciding_lines(result, sides, chosen)
    if unpaired:
        more = [unpaired, *lines]
    return data, _join_lines(shown, caution, more, deciding)


def _decision_data(result: Comparison, refused: Refusal | None) -> dict[str, Any]:
    if refused is not None:
        return {"decision": None, "verdict": f"no verdict: {refused.why}"}
    return {"decision": result.verdict, "verdict": result.sentence()}


def _join_lines(
    lines: Sequence[str], caution: str, more: Sequence[str], deciding: Sequence[str]
) -> str:
    shown = [*lines]
    if caution:
        shown += ["", caution]
    if more:
        shown += ["", *more]
    return "\n".join([*shown, *deciding])


def _cautions_text(
    meta: StudyMeta, result: Comparison, sides: Sequence[Side], chosen: ComparedValues
) -> str:
    cautions: list[str] = []
    if any(chosen.lost) and not leader_lost_more(result, chosen):
        cautions.append(f"{upper_first(lost_words(sides, chosen))}; these have no value.")
    if chosen.copied:
        cautions.append(COPIES_REMEDY)
    if meta.objectives:
        cautions.append(f"Of {len(meta.objectives)} objectives, only {meta.metric} is compared.")
    if unfit := [side.name for side in sides if side.unfit]:
        verb = "violates" if len(unfit) == 1 else "violate"
        where = f"{' and '.join(unfit)} {verb} constraints on the seeds used for ranking"
        cautions.append(f"Only values are compared, although {where}.")
    return " ".join(cautions)


def _values_table(sides: Sequence[Side], chosen: ComparedValues, result: Comparison) -> list[str]:
    rows: list[list[str]] = []
    for side, values, mean in zip(sides, chosen.values, result.means, strict=True):
        spread = bounded_interval(values, chosen.bounds)
        if side.name in chosen.copied:
            spread = NO_INTERVAL
        few = ""
        if len(values) <= _LISTED:
            few = " ".join(map(number, values))
        rows.append([f"  {side.name}", number(mean), between(spread.low, spread.high), few])
    header = ("  ", "mean", "95% interval", "every seed")
    columns = [column for column in zip(header, *rows, strict=True) if any(column[1:])]
    first, *others = zip(*columns, strict=True)
    right = [at == 1 for at in range(len(columns))]
    lines = aligned(first, others, right).split("\n")
    return [lines[0], *lines[2:]]


def _seed_by_seed(result: Comparison, sides: Sequence[Side], chosen: ComparedValues) -> str:
    ahead = int(result.difference < 0.0)
    leading, trailing = chosen.values[ahead], chosen.values[1 - ahead]
    sign = sign_of(chosen.goal)
    apart = [sign * (x - y) for x, y in zip(leading, trailing, strict=True)]
    wins, losses = sum(d > 0 for d in apart), sum(d < 0 for d in apart)
    ties = len(apart) - wins - losses
    counts = f"  Seed by seed, {sides[ahead].name} wins {wins}, ties {ties}, loses {losses}."
    if result.verdict not in ("better", "worse"):
        return counts
    chance, spread = result.probability, result.probability_interval
    if ahead:
        chance, spread = 1.0 - chance, spread.complement()
    return f"{counts} P(win on a new seed): {around(chance, spread, '.2f')}."


def _environment_part(
    sides: Sequence[Side], chosen: ComparedValues, *, decides: bool
) -> tuple[dict[str, Any], list[str]]:
    """Return the scores on each environment (if there are several) as JSON data and as lines."""
    names, bounds = sides[0].scores.names, sides[0].scores.bounds
    scores_a, scores_b = map(_scores_of, sides, chosen.streams)
    if not names or not scores_a or not scores_b:
        return {}, []
    if chosen.paired:
        common = sorted(scores_a.keys() & scores_b.keys())
        scores_a, scores_b = of_seeds(scores_a, common), of_seeds(scores_b, common)
    found = beside(scores_a, scores_b, paired=chosen.paired, bounds=bounds)
    if not decides:
        found = _without_intervals(found)
    summaries = [on_each(side, bounds) for side in (scores_a, scores_b)]
    data = {
        "names": list(names),
        **asdict(found),
        "together": [_over_environments(side) for side in summaries],
        "scores": [list(map(asdict, side.each)) for side in summaries],
        "profiles": [asdict(one) for one in profiles((scores_a, scores_b))],
    }
    labels = [one.name for one in sides]
    lines = beside_lines(names, (scores_a, scores_b), found, labels, bounds)
    return {"environments": finite_json(data)}, ["", *lines, AGGREGATES_NOTE]


def _scores_of(side: Side, stream: Stream) -> BySeed:
    return side.scores.of(side.trial, stream)


def _over_environments(side: OnEach) -> dict[str, Any]:
    return {over: asdict(one) for over, one in side.together.items()}


def _without_intervals(found: Beside) -> Beside:
    """Remove the intervals of differences on seeds that ranked the trials."""
    each = [
        OneEnvironment(Estimate(one.difference.value), Estimate(one.probability.value))
        for one in found.each
    ]
    differences = {over: Estimate(one.value) for over, one in found.differences.items()}
    improvement = Estimate(found.improvement.value)
    return replace(found, each=tuple(each), differences=differences, improvement=improvement)
