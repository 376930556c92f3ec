"""What `hpo tuned` prints: the list, one configuration with its proof, and a verification."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from ..knobs import KNOBS
from ..store.statistics import Interval
from ..studies.tuned.record import DEFAULT, TUNED, Contender, Record
from ..studies.tuned.study_text import former_default, knobs_of, least
from ..studies.tuned.summary import (
    BesideHeuristic,
    Comparison,
    beside_heuristics,
    comparisons,
    summary,
)
from .documents import finite_or_none
from .formatting import (
    aligned,
    between,
    counted,
    duration,
    narrow,
    number,
    param,
    sparkline,
    steps,
)
from .terminal.console import fitted, knows_blocks

if TYPE_CHECKING:
    from ..search.tuned.verify import Verification

__all__ = ["record_data", "record_words", "records_table", "verified_data", "verified_words"]


def records_table(records: Sequence[Record]) -> str:
    """Return one line a record."""
    if not records:
        return "there is no tuned configuration yet; make one with: hpo tuned add STUDY"
    rows = list[list[str]]()
    for record in records:
        found = {
            one.who: summary(one, record.goal, record.estimator).greedy[0]
            for one in record.contenders
        }
        others = [one for one in comparisons(record) if one.who != DEFAULT]
        rules = beside_heuristics(record)
        against = next((one for one in comparisons(record) if one.who == DEFAULT), None)
        rows.append(
            [
                record.name,
                steps(record.env_steps),
                number(found[TUNED]),
                number(found.get(DEFAULT)) + "*" * bool(former_default(record)),
                "-" if against is None else against.verdict,
                _standing([*others, *rules]),
            ]
        )
    header = ("environment", "steps", "tuned", "default", "verdict", "others")
    right = (False, True, True, True, False, False)
    counts = sorted({len(record.tuned.greedy) for record in records})
    seeds = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    words = f"IQM of {seeds} fresh seeds, greedy; the proof of one: hpo tuned ENV"
    if any(record.estimator == "mean" for record in records):
        words += "\noptical networks: the mean"
    if any(row[5] != "-" for row in rows):
        words += "\nothers, published ones and heuristics: +better than, =tied with, -worse than"
    if any(row[3].endswith("*") for row in rows):
        words += "\n*: the default of the day it was made, which was another one"
    return f"{aligned(header, rows, right)}\n\n{words}"


def _standing(others: Sequence[Comparison | BesideHeuristic]) -> str:
    signs = {"better": "+", "tied": "=", "worse": "-"}
    counts = {word: sum(one.verdict == word for one in others) for word in signs}
    return " ".join(f"{signs[word]}{count}" for word, count in counts.items() if count) or "-"


def record_words(record: Record, stream: TextIO) -> str:
    """Return one configuration and its proof, folded to a stream's width."""
    origin, made = record.origin, record.made
    lines = [
        f"{record.name}: {steps(record.env_steps)} env steps a run",
        "",
        *_configuration(record),
        "",
        *_proof(record),
        "",
        *_curves(record, stream),
        "",
        f"study    {origin.file}: {counted(origin.trials, 'trial')}, "
        f"{steps(origin.env_steps)} env steps; the winner is trial {origin.trial}",
        f"         {origin.said}",
        f"cost     {_cost(record)}",
        f"made     {made.on}, commit {_short(made.commit)}, {made.backend}, "
        + ", ".join(f"{name} {version}" for name, version in made.versions.items()),
        f"again    hpo tuned verify {record.name}; hpo train tuned:{record.name}; "
        f"hpo init {record.name}",
    ]
    return "\n".join(fitted(line, stream, 9 if line[:1].strip() else 2) for line in lines)


def _short(commit: str) -> str:
    return f"{commit[:12]}{' with changes' * commit.endswith('+')}" or "unknown"


def _configuration(record: Record) -> list[str]:
    moved = least(knobs_of(record))
    if not moved:
        return ["configuration: the project's default, nothing changed"]
    width = max(map(len, moved))
    return [
        "configuration, where it is not the default",
        *(
            f"  {name.ljust(width)}  {param(value)}".ljust(width + 16)
            + f"  (default {param(KNOBS[name].default)})"
            for name, value in moved.items()
        ),
    ]


def _proof(record: Record) -> list[str]:
    compared = {one.who: one for one in comparisons(record)}
    rows = list[list[str]]()
    for one in record.contenders:
        seen = summary(one, record.goal, record.estimator)
        rows.append(
            [
                one.who,
                _valued(*seen.greedy),
                _known(seen.training[0]),
                number(seen.area[0]),
                "-" if seen.to_threshold is None else steps(int(seen.to_threshold)),
                f"{seen.reached}/{len(one.greedy)}",
            ]
        )
    rules = beside_heuristics(record)
    rows += [[rule.who, _valued(*rule.greedy), *["-"] * 4] for rule in rules]
    header = ("who", "greedy", "training", "area", "steps to it", "reached")
    table = narrow(header, rows, (False, True, True, True, True, True))
    seeds = counted(len(record.tuned.greedy), "fresh seed")
    said = [
        f"{_sentence(one, compared[one.who])}" for one in record.contenders if one.who in compared
    ]
    return [
        f"proof: {record.metric} ({record.goal}) on {seeds} that chose nothing, the same for all",
        *table,
        f"{'IQM' if record.estimator == 'iqm' else 'mean'} over seeds; area: mean height of the "
        f"curve; it: {number(record.threshold)}",
        "",
        *said,
        *(_beside_rule(rule) for rule in rules),
        *_then(record),
    ]


def _beside_rule(rule: BesideHeuristic) -> str:
    words = {"better": "better than", "tied": "tied with", "worse": "WORSE than"}[rule.verdict]
    less = f"ours less theirs, mean of pairs of equal requests, {_valued(*rule.less)}"
    return f"{words} {rule.who}, a heuristic: {less}"


def _then(record: Record) -> list[str]:
    """Return what the default was, where it is another one today."""
    moved = former_default(record)
    if not moved:
        return []
    words = ", ".join(f"{name} {param(value)}" for name, value in moved.items())
    return [f"default: that of {record.made.on}, with {words}; today's was not run"]


def _sentence(one: Contender, beside: Comparison) -> str:
    chance, around = beside.greedy
    words = {
        "better": f"better than {one.who}",
        "tied": f"tied with {one.who}",
        "worse": f"WORSE than {one.who}",
    }[beside.verdict]
    probability = f"a run is better with probability {_valued(chance, around)}"
    ways = [f"by area {number(beside.area[0])}"]
    if math.isfinite(beside.training[0]):
        ways.insert(0, f"while training {number(beside.training[0])}")
    text = f"{words}: {probability}; {', '.join(ways)}"
    theirs = one.source.get("env_steps")
    if theirs:
        text += f" ({one.source['repository']}, there for {steps(int(theirs))} env steps"
        if one.source.get("without"):
            text += f", without {', '.join(one.source['without'])}"
        if one.source.get("written_for"):
            text += f", written for {one.source['written_for']}"
        text += ")"
    return text


def _known(value: float) -> str:
    return number(value) if math.isfinite(value) else "-"


def _valued(value: float, around: Interval) -> str:
    return f"{number(value)} {between(around.low, around.high)}".rstrip()


def _curves(record: Record, stream: TextIO) -> list[str]:
    width = max(len(one.who) for one in record.contenders)
    whole = [value for one in record.contenders for value in one.curve.greedy]
    low, high = min(whole), max(whole)
    plain = not knows_blocks(stream)
    lines = [f"curves, greedy, from {number(low)} to {number(high)}"]
    for one in record.contenders:
        # The ends of the common scale are added and cut off again.
        drawn = sparkline([low, high, *one.curve.greedy], len(one.curve.greedy) + 2, plain)
        lines.append(f"  {one.who.ljust(width)}  {drawn[2:]}")
    return lines


def _cost(record: Record) -> str:
    parts = list[str]()
    for one in record.contenders:
        if one.who in (TUNED, DEFAULT):
            spent = one.cost.cpu_seconds
            taken = "" if spent is None else f" in {duration(spent)} of processor time"
            parts.append(f"{one.who} {steps(one.cost.env_steps)} env steps{taken}")
    return "; ".join(parts)


def record_data(record: Record) -> dict[str, Any]:
    """Return a record as plain data for JSON."""
    compared = {one.who: one for one in comparisons(record)}
    return {
        "name": record.name,
        "env": record.env,
        "env_values": dict(record.env_values),
        "env_steps": record.env_steps,
        "config": least(knobs_of(record)),
        "metric": record.metric,
        "goal": record.goal,
        "threshold": record.threshold,
        "estimator": record.estimator,
        "study": vars(record.origin),
        "made": vars(record.made),
        "results": [_result(record, one, compared.get(one.who)) for one in record.contenders],
        "heuristics": [
            {
                "who": rule.who,
                "verdict": rule.verdict,
                "greedy": _ends(*rule.greedy),
                "less": _ends(*rule.less),
            }
            for rule in beside_heuristics(record)
        ],
    }


def _result(record: Record, one: Contender, beside: Comparison | None) -> dict[str, Any]:
    seen = summary(one, record.goal, record.estimator)
    data: dict[str, Any] = {
        "who": one.who,
        "source": dict(one.source),
        "seeds": len(one.greedy),
        "diverged": seen.diverged,
        **{name: _ends(*getattr(seen, name)) for name in ("greedy", "training", "area")},
        "reached": seen.reached,
        "env_steps_to_threshold": seen.to_threshold,
        "cost": vars(one.cost),
        "curve": vars(one.curve),
    }
    if beside is not None:
        data["verdict"] = beside.verdict
        data["improvement"] = {
            name: _ends(*getattr(beside, name)) for name in ("greedy", "training", "area")
        }
    return data


def _ends(value: float, around: Interval) -> Mapping[str, float | None]:
    return {"value": finite_or_none(value), "low": around.low, "high": around.high}


def verified_words(found: Verification) -> str:
    """Return a verification in words, the verdict first."""
    seen = found.agreement
    versions = "; ".join(f"{k} {then} -> {now}" for k, (then, now) in found.versions.items())
    inside = "within" if seen.within else "OUTSIDE of"
    lines = [
        f"{found.name}: {found.verdict.upper() if found.verdict == 'not' else found.verdict}",
        f"recorded seeds  {found.equal} of {found.recorded} bit-equal in every number",
        f"fresh seeds     {found.seeds}, mean {number(found.means[1])}; recorded "
        f"{number(found.means[0])}",
        f"                the difference {number(seen.difference)} is {inside} "
        f"[{number(seen.low)}, {number(seen.high)}], which holds 99 of 100 that chance deals",
    ]
    if versions:
        lines.append(f"versions        {versions}")
    return "\n".join(lines)


def verified_data(found: Verification) -> dict[str, Any]:
    """Return a verification as plain data."""
    return {
        "name": found.name,
        "verdict": found.verdict,
        "recorded": {"seeds": found.recorded, "bit_equal": found.equal, "mean": found.means[0]},
        "fresh": {"seeds": found.seeds, "mean": found.means[1]},
        **{name: getattr(found.agreement, name) for name in ("difference", "low", "high")},
        "within": found.agreement.within,
        "versions": {name: list(pair) for name, pair in found.versions.items()},
    }
