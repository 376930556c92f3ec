"""The text of `hpo tuned`: the list, one configuration with its tests, and a verification."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from ..errors import counted
from ..knobs import KNOBS
from ..store.statistics import Interval
from ..studies.tuned.record import DEFAULT, TUNED, Contender, Record
from ..studies.tuned.study_text import former_default, knobs_of, least
from ..studies.tuned.summary import (
    BesideHeuristic,
    Comparison,
    Summary,
    beside_heuristics,
    comparisons,
    summary,
)
from .formatting import aligned, around, duration, narrow, number, param, sparkline, steps
from .json_output import finite_or_none
from .terminal.console import in_columns, knows_blocks

if TYPE_CHECKING:
    from ..search.tuned_runs import Verification


def records_table(records: Sequence[Record]) -> str:
    if not records:
        return "no tuned configuration yet; make one with: scripts/tuned add STUDY"
    rows = list[list[str]]()
    for record in records:
        found = {who: seen.greedy[0] for who, seen in _summaries(record).items()}
        compared = {one.who: one for one in comparisons(record)}
        against = compared.pop(DEFAULT, None)
        rows.append([
            record.name,
            steps(record.env_steps),
            number(found[TUNED]),
            number(found.get(DEFAULT)) + "*" * bool(former_default(record)),
            "-" if against is None else against.verdict.replace("_", " "),
            _signs([*compared.values(), *beside_heuristics(record)]),
        ])  # fmt: skip
    header = ("environment", "steps", "tuned", "default", "tuned is", "others")
    right = (False, True, True, True, False, False)
    counts = sorted({len(record.tuned.greedy) for record in records})
    seeds = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
    words = f"IQM over {seeds} test seeds. One of them: hpo tuned ENV"
    if any(record.estimator == "mean" for record in records):
        words += "\noptical networks: mean over seeds"
    if any(row[5] != "-" for row in rows):
        words += "\nothers (published, heuristics): + better, = no difference, - worse"
    if any(row[3].endswith("*") for row in rows):
        words += "\n*: the default on the day of tuning, which has changed since"
    return f"{aligned(header, rows, right)}\n\n{words}"


def _summaries(record: Record) -> dict[str, Summary]:
    return {one.who: summary(one, record.goal, record.estimator) for one in record.contenders}


def _signs(others: Sequence[Comparison | BesideHeuristic]) -> str:
    signs = [{"better": "+", "worse": "-"}.get(one.verdict, "=") for one in others]
    return " ".join(f"{sign}{signs.count(sign)}" for sign in "+=-" if sign in signs) or "-"


def record_words(record: Record, stream: TextIO, verbose: bool = False) -> str:
    origin, made, name = record.origin, record.made, record.name
    spent = f"{counted(origin.trials, 'trial')}, {steps(origin.env_steps)} env steps"
    lines = [*_verdict(record), "", *_configuration(record), "", *_proof(record, verbose), "",
             f"Found by {origin.file}: {spent}."]  # fmt: skip
    if verbose:
        commit = f"{made.commit[:12]}{' with changes' * made.commit.endswith('+')}" or "unknown"
        versions = ", ".join(f"{name} {version}" for name, version in made.versions.items())
        lines += ["", *_curves(record, stream), "", *_sources(record)]
        lines += [f"study    trial {origin.trial} won: {origin.said}",
                  f"cost     {_cost(record)}",
                  f"made     {made.on}, commit {commit}, {made.backend}, {versions}"]  # fmt: skip
    lines += ["", f"Next: hpo init {name}   (a study around it), or hpo train tuned:{name}",
              f"Details: hpo tuned {name} -v"]  # fmt: skip
    return "\n".join(in_columns(line, stream, 9 if verbose else 2) for line in lines)


def _verdict(record: Record) -> list[str]:
    found = _summaries(record)
    verdicts = {one.who: one.verdict for one in comparisons(record)}
    said = f"{record.name}: {around(*found[TUNED].greedy)}"
    if DEFAULT in found:
        how = _HOW.get(verdicts[DEFAULT], _NO_DIFFERENCE)
        said = f"{said}, {how} the default, {around(*found[DEFAULT].greedy)}"
    estimator = "IQM" if record.estimator == "iqm" else "mean"
    over = f"{estimator} over {len(record.tuned.greedy)} test seeds"
    run = f"{steps(record.env_steps)} env steps per run"
    lines = [f"{said}.", f"{record.metric} ({record.goal}): {over}; {run}"]
    if moved := former_default(record):
        words = ", ".join(f"{name} {param(value)}" for name, value in moved.items())
        lines += [f"The default is that of {record.made.on}, with {words}; today's was not run."]
    return lines


_HOW = {"better": "better than", "worse": "worse than"}
_NO_DIFFERENCE = "no significant difference from"


def _configuration(record: Record) -> list[str]:
    """Return what differs from the default, as YAML that a study's `fixed:` takes."""
    moved = least(knobs_of(record))
    if not moved:
        return ["The configuration is the default."]
    lines = {name: f"  {name}: {param(value)}" for name, value in moved.items()}
    width = max(map(len, lines.values()))
    return ["fixed:", *(f"{line.ljust(width)}  # default {param(KNOBS[name].default)}"
                        for name, line in lines.items())]  # fmt: skip


def _proof(record: Record, verbose: bool) -> list[str]:
    compared = {one.who: one for one in comparisons(record)}
    to = f"to {number(record.threshold)}"
    header = ["", "value", "P(tuned better)", "AUC", to]
    header += ["training", "reached"] if verbose else []
    rows = list[list[str]]()
    for one in record.contenders:
        seen = summary(one, record.goal, record.estimator)
        beside, training = compared.get(one.who), seen.training[0]
        row = [
            one.who, around(*seen.greedy),
            "" if beside is None else around(*beside.greedy, ".2f"), number(seen.area[0]),
            "-" if seen.to_threshold is None else steps(int(seen.to_threshold)),
            number(training) if math.isfinite(training) else "-",
            f"{seen.reached}/{len(one.greedy)}",
        ]  # fmt: skip
        rows.append(row[: len(header)])
    rules = beside_heuristics(record)
    rows += [[rule.who, around(*rule.greedy), *[""] * (len(header) - 2)] for rule in rules]
    table = narrow(header, rows, (False, True, True, *[True] * (len(header) - 3)))
    notes = [f"AUC: mean of the evaluation curve. {to}: env steps (median over seeds)."]
    if verbose:
        notes.append("training: return while training. reached: seeds that got there.")
    for rule in rules:
        how = _HOW.get(rule.verdict, _NO_DIFFERENCE)
        notes.append(f"{how} the heuristic {rule.who}: tuned minus heuristic "
                     f"{around(*rule.less)}, on equal requests")  # fmt: skip
    return [*table, *notes]


def _sources(record: Record) -> list[str]:
    compared = {one.who: one for one in comparisons(record)}
    lines = list[str]()
    for one in record.contenders:
        if (beside := compared.get(one.who)) is None:
            continue
        text = f"{one.who}: P(tuned better) by AUC {number(beside.area[0])}"
        if math.isfinite(beside.training[0]):
            text += f", while training {number(beside.training[0])}"
        theirs = one.source.get("env_steps")
        if theirs:
            without, meant = one.source.get("without"), one.source.get("written_for")
            text += f"; {one.source['repository']}, there for {steps(int(theirs))} env steps"
            text += f", without {', '.join(without)}" if without else ""
            text += f", written for {meant}" if meant else ""
        lines.append(text)
    return lines


def _curves(record: Record, stream: TextIO) -> list[str]:
    width = max(len(one.who) for one in record.contenders)
    whole = [value for one in record.contenders for value in one.curve.greedy]
    low, high = min(whole), max(whole)
    plain = not knows_blocks(stream)
    lines = [f"evaluation over the run, from {number(low)} to {number(high)}"]
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
    compared = {one.who: one for one in comparisons(record)}
    return {
        "name": record.name, "env": record.env, "env_values": dict(record.env_values),
        "env_steps": record.env_steps, "config": least(knobs_of(record)), "metric": record.metric,
        "goal": record.goal, "threshold": record.threshold, "estimator": record.estimator,
        "study": vars(record.origin),
        "made": vars(record.made),
        "results": [_result(record, one, compared.get(one.who)) for one in record.contenders],
        "heuristics": [
            {"who": rule.who, "verdict": rule.verdict, "greedy": _ends(*rule.greedy),
             "less": _ends(*rule.less)}
            for rule in beside_heuristics(record)
        ],
    }  # fmt: skip


def _result(record: Record, one: Contender, beside: Comparison | None) -> dict[str, Any]:
    seen = summary(one, record.goal, record.estimator)

    def each(found: Summary | Comparison) -> dict[str, Any]:
        return {name: _ends(*getattr(found, name)) for name in ("greedy", "training", "area")}

    told = {} if beside is None else {"verdict": beside.verdict, "improvement": each(beside)}
    return {
        "who": one.who, "source": dict(one.source), "seeds": len(one.greedy),
        "diverged": seen.diverged, **each(seen), "reached": seen.reached,
        "env_steps_to_threshold": seen.to_threshold, "cost": vars(one.cost),
        "curve": vars(one.curve), **told,
    }  # fmt: skip


def _ends(value: float, found: Interval) -> Mapping[str, float | None]:
    return {"value": finite_or_none(value), "low": found.low, "high": found.high}


def verified_words(found: Verification) -> str:
    seen, (then, now) = found.agreement, map(number, found.means)
    versions = "; ".join(f"{k} {was} -> {is_}" for k, (was, is_) in found.versions.items())
    inside = "within" if seen.within else "OUTSIDE of"
    interval = f"[{number(seen.low)}, {number(seen.high)}] (99% permutation interval)"
    lines = [
        f"{found.name}: {found.verdict.upper() if found.verdict == 'not' else found.verdict}",
        f"recorded seeds  {found.equal} of {found.recorded} equal bit for bit",
        f"new seeds       {found.seeds}, mean {now}; recorded {then}",
        f"                the difference {number(seen.difference)} is {inside} {interval}",
    ]
    return "\n".join([*lines, f"versions        {versions}"] if versions else lines)


def verified_data(found: Verification) -> dict[str, Any]:
    return {
        "name": found.name,
        "verdict": found.verdict,
        "recorded": {"seeds": found.recorded, "bit_equal": found.equal, "mean": found.means[0]},
        "fresh": {"seeds": found.seeds, "mean": found.means[1]},
        **{name: getattr(found.agreement, name) for name in ("difference", "low", "high")},
        "within": found.agreement.within,
        "versions": {name: list(pair) for name, pair in found.versions.items()},
    }
