"""What `hpo tuned` prints: the list, one configuration with its proof, and a verification."""

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
    beside_heuristics,
    comparisons,
    summary,
)
from .formatting import aligned, between, duration, narrow, number, param, sparkline, steps
from .json_output import finite_or_none
from .terminal.console import in_columns, knows_blocks

if TYPE_CHECKING:
    from ..search.tuned_runs import Verification


def records_table(records: Sequence[Record]) -> str:
    """Return one line per configuration."""
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
                "-" if against is None else against.verdict.replace("_", " "),
                _standing([*others, *rules]),
            ]
        )
    header = ("environment", "steps", "tuned", "default", "tuned is", "others")
    right = (False, True, True, True, False, False)
    counts = sorted({len(record.tuned.greedy) for record in records})
    seeds = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    words = f"IQM over {seeds} test seeds. One of them: hpo tuned ENV"
    if any(record.estimator == "mean" for record in records):
        words += "\noptical networks: mean over seeds"
    if any(row[5] != "-" for row in rows):
        words += "\nothers (published, heuristics): + better, = no difference, - worse"
    if any(row[3].endswith("*") for row in rows):
        words += "\n*: an earlier default, of the day when this was tuned"
    return f"{aligned(header, rows, right)}\n\n{words}"


def _standing(others: Sequence[Comparison | BesideHeuristic]) -> str:
    signs = [{"better": "+", "worse": "-"}.get(one.verdict, "=") for one in others]
    return " ".join(f"{sign}{signs.count(sign)}" for sign in "+=-" if sign in signs) or "-"


def record_words(record: Record, stream: TextIO, verbose: bool = False) -> str:
    """Return one configuration and how it was tested, folded to a stream's width.

    Args:
        record: the configuration.
        stream: it is folded to this stream's width.
        verbose: add curves, sources, costs and versions.
    """
    origin, made = record.origin, record.made
    lines = [
        *_verdict(record), "", *_configuration(record), "", *_proof(record, verbose), "",
        f"Found by {origin.file}: {counted(origin.trials, 'trial')}, "
        f"{steps(origin.env_steps)} env steps.",
    ]  # fmt: skip
    if verbose:
        lines += ["", *_curves(record, stream), "", *_sources(record)]
        lines += [
            f"study    trial {origin.trial} won: {origin.said}",
            f"cost     {_cost(record)}",
            f"made     {made.on}, commit {_short(made.commit)}, {made.backend}, "
            + ", ".join(f"{name} {version}" for name, version in made.versions.items()),
        ]
    name = record.name
    lines += [
        "",
        f"Next: hpo init {name}   (a study around it), or hpo train tuned:{name}",
        f"Details: hpo tuned {name} -v",
    ]
    return "\n".join(in_columns(line, stream, 9 if verbose else 2) for line in lines)


def _short(commit: str) -> str:
    return f"{commit[:12]}{' with changes' * commit.endswith('+')}" or "unknown"


def _verdict(record: Record) -> list[str]:
    """Return the tuned value beside the default's."""
    found = {one.who: summary(one, record.goal, record.estimator) for one in record.contenders}
    verdicts = {one.who: one.verdict for one in comparisons(record)}
    tuned = _valued(*found[TUNED].greedy)
    said = f"{record.name}: {tuned}"
    if DEFAULT in found:
        words = {"better": "better than", "worse": "worse than"}
        how = words.get(verdicts[DEFAULT], "no significant difference from")
        said = f"{said}, {how} the default, {_valued(*found[DEFAULT].greedy)}"
    return [
        f"{said}.",
        f"{record.metric} ({record.goal}): {'IQM' if record.estimator == 'iqm' else 'mean'} over "
        f"{len(record.tuned.greedy)} test seeds; "
        f"{steps(record.env_steps)} env steps per run",
        *_earlier_default(record),
    ]


def _configuration(record: Record) -> list[str]:
    """Return what differs from the default, as YAML that a study's `fixed:` takes."""
    moved = least(knobs_of(record))
    if not moved:
        return ["The configuration is the default."]
    lines = [f"  {name}: {param(value)}" for name, value in moved.items()]
    width = max(map(len, lines))
    defaults = [param(KNOBS[name].default) for name in moved]
    return [
        "fixed:",
        *(
            f"{line.ljust(width)}  # default {default}"
            for line, default in zip(lines, defaults, strict=True)
        ),
    ]


def _proof(record: Record, verbose: bool) -> list[str]:
    """Return a row per configuration, and a sentence per heuristic."""
    compared = {one.who: one for one in comparisons(record)}
    to = f"to {number(record.threshold)}"
    header = ["", "value", "P(tuned better)", "AUC", to]
    header += ["training", "reached"] if verbose else []
    rows = list[list[str]]()
    for one in record.contenders:
        seen = summary(one, record.goal, record.estimator)
        beside = compared.get(one.who)
        row = [
            one.who,
            _valued(*seen.greedy),
            "" if beside is None else _likely(*beside.greedy),
            number(seen.area[0]),
            "-" if seen.to_threshold is None else steps(int(seen.to_threshold)),
        ]
        row += [_known(seen.training[0]), f"{seen.reached}/{len(one.greedy)}"] if verbose else []
        rows.append(row)
    rules = beside_heuristics(record)
    rows += [[rule.who, _valued(*rule.greedy), *[""] * (len(header) - 2)] for rule in rules]
    table = narrow(header, rows, (False, True, True, *[True] * (len(header) - 3)))
    notes = [f"AUC: mean of the evaluation curve. {to}: env steps (median over seeds)."]
    if verbose:
        notes.append("training: return while training. reached: seeds that got there.")
    return [*table, *notes, *(_beside_rule(rule) for rule in rules)]


def _beside_rule(rule: BesideHeuristic) -> str:
    words = {"better": "better than", "worse": "worse than"}
    how = words.get(rule.verdict, "no significant difference from")
    less = _valued(*rule.less)
    return f"{how} the heuristic {rule.who}: tuned minus heuristic {less}, on equal requests"


def _likely(chance: float, around: Interval) -> str:
    return f"{chance:.2f} {between(around.low, around.high, '.2f')}".rstrip()


def _earlier_default(record: Record) -> list[str]:
    """Return what the default was, where it is another one today."""
    moved = former_default(record)
    if not moved:
        return []
    words = ", ".join(f"{name} {param(value)}" for name, value in moved.items())
    return [f"The default is that of {record.made.on}, with {words}; today's was not run."]


def _sources(record: Record) -> list[str]:
    """Return where published configurations come from, and how far they were made for this."""
    compared = {one.who: one for one in comparisons(record)}
    lines = list[str]()
    for one in record.contenders:
        beside = compared.get(one.who)
        if beside is None:
            continue
        text = f"{one.who}: P(tuned better) by AUC {number(beside.area[0])}"
        if math.isfinite(beside.training[0]):
            text += f", while training {number(beside.training[0])}"
        theirs = one.source.get("env_steps")
        if theirs:
            text += f"; {one.source['repository']}, there for {steps(int(theirs))} env steps"
            if one.source.get("without"):
                text += f", without {', '.join(one.source['without'])}"
            if one.source.get("written_for"):
                text += f", written for {one.source['written_for']}"
        lines.append(text)
    return lines


def _known(value: float) -> str:
    return number(value) if math.isfinite(value) else "-"


def _valued(value: float, around: Interval) -> str:
    return f"{number(value)} {between(around.low, around.high)}".rstrip()


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
        f"recorded seeds  {found.equal} of {found.recorded} equal bit for bit",
        f"new seeds       {found.seeds}, mean {number(found.means[1])}; recorded "
        f"{number(found.means[0])}",
        f"                the difference {number(seen.difference)} is {inside} "
        f"[{number(seen.low)}, {number(seen.high)}] (99% permutation interval)",
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
