"""`hpo tuned`: shipped configurations, their test results, and their verification."""

from __future__ import annotations

import math
import shutil
import sys
import tempfile
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from ...errors import ConfigError, clause, counted
from ...knobs import KNOBS
from ...store.statistics import Interval
from ...studies.resolved import resolved_yaml
from ...studies.spec import Study
from ...studies.tuned.record import (
    DEFAULT,
    TUNED,
    Contender,
    TunedRecord,
    find_record,
    folders,
    read_record,
    record_files,
)
from ...studies.tuned.study_text import former_default, knobs_of, least
from ...studies.tuned.summary import (
    BesideHeuristic,
    TestSummary,
    TunedComparison,
    beside_heuristics,
    comparisons_by_name,
    summary_in,
)
from ..arguments import path_or_none
from ..formatting import aligned, around, narrow, number, param, params_text, steps, versions_text
from ..output import finite_or_none, print_answer
from ..terminal.console import in_columns

if TYPE_CHECKING:
    from ...search.run import RunResults
    from ...search.tuned_runs import Verification

_HOW = {"better": "better than", "worse": "worse than"}
_NO_DIFFERENCE = "no significant difference from"
INTERRUPTED = 130


def records_table(records: Sequence[TunedRecord]) -> str:
    if not records:
        return "no tuned configuration yet; make one with: scripts/tuned add STUDY"
    rows = list[list[str]]()
    for record in records:
        found = {who: summary.greedy[0] for who, summary in _test_summaries(record).items()}
        compared = comparisons_by_name(record)
        against = compared.pop(DEFAULT, None)
        default_verdict = "-"
        if against is not None:
            default_verdict = against.verdict.replace("_", " ")
        rows.append(
            [
                record.name,
                steps(record.env_steps),
                number(found[TUNED]),
                number(found.get(DEFAULT)) + "*" * bool(former_default(record)),
                default_verdict,
                _verdict_signs([*compared.values(), *beside_heuristics(record)]),
            ]
        )
    header = ("environment", "steps", "tuned", "default", "tuned is", "others")
    right = (False, True, True, True, False, False)
    counts = sorted({len(record.tuned.greedy) for record in records})
    seeds = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
    words = f"IQM over {seeds} test seeds. Details: hpo tuned ENV"
    if any(record.estimator == "mean" for record in records):
        words += "\noptical networks: mean over seeds"
    if any(row[5] != "-" for row in rows):
        words += "\nothers (published, heuristics): + better, = no difference, - worse"
    if any(row[3].endswith("*") for row in rows):
        words += "\n*: the default on the day of tuning; it has changed since"
    return f"{aligned(header, rows, right)}\n\n{words}"


def _test_summaries(record: TunedRecord) -> dict[str, TestSummary]:
    return {one.who: summary_in(record, one) for one in record.contenders}


def _verdict_signs(others: Sequence[TunedComparison | BesideHeuristic]) -> str:
    signs = [{"better": "+", "worse": "-"}.get(one.verdict, "=") for one in others]
    return " ".join(f"{sign}{signs.count(sign)}" for sign in "+=-" if sign in signs) or "-"


def record_words(record: TunedRecord, stream: TextIO, verbose: bool = False) -> str:
    origin, made = record.origin, record.made
    cost = f"{counted(origin.trials, 'trial')}, {steps(origin.env_steps)} env steps"
    lines = [
        *_verdict_lines(record),
        "",
        *_configuration_lines(record),
        "",
        *_benchmark_lines(record, verbose),
        "",
        f"Found by {origin.file}: {cost}.",
    ]
    if verbose:
        commit = f"{made.commit[:12]}{' with changes' * made.commit.endswith('+')}" or "unknown"
        versions = versions_text(made.versions)
        lines += [
            "",
            *_source_lines(record),
            f"study    trial {origin.trial} won: {origin.said}",
            f"made     {made.on}, commit {commit}, {made.backend}, {versions}",
        ]
    name = record.name
    lines += ["", f"Next: hpo init {name}   (as a study), or hpo train tuned:{name}"]
    indent = 9
    if not verbose:
        lines.append(f"Details: hpo tuned {name} -v")
        indent = 2
    return "\n".join(in_columns(line, stream, indent) for line in lines)


def _verdict_lines(record: TunedRecord) -> list[str]:
    found = _test_summaries(record)
    verdicts = {who: one.verdict for who, one in comparisons_by_name(record).items()}
    said = f"{record.name}: {around(*found[TUNED].greedy)}"
    if DEFAULT in found:
        how = _HOW.get(verdicts[DEFAULT], _NO_DIFFERENCE)
        said = f"{said}, {how} the default, {around(*found[DEFAULT].greedy)}"
    what = {"iqm": "IQM", "mean": "mean"}[record.estimator]
    what += f" over {len(record.tuned.greedy)} test seeds; {steps(record.env_steps)} env steps"
    lines = [f"{said}.", f"{record.metric} ({record.goal}): {what} per run"]
    if moved := former_default(record):
        words = params_text(moved)
        day = f"This default is from {record.made.on}"
        lines.append(f"{day}, with {words}; the current default was not run.")
    return lines


def _configuration_lines(record: TunedRecord) -> list[str]:
    moved = least(knobs_of(record))
    if not moved:
        return ["The configuration is the default."]
    lines = {name: f"  {name}: {param(value)}" for name, value in moved.items()}
    width = max(map(len, lines.values()))
    return [
        "fixed:",
        *(
            f"{line.ljust(width)}  # default {param(KNOBS[name].default)}"
            for name, line in lines.items()
        ),
    ]


def _benchmark_lines(record: TunedRecord, verbose: bool) -> list[str]:
    compared = comparisons_by_name(record)
    to = f"to {number(record.threshold)}"
    header = ["", "value", "P(tuned better)", "AUC", to]
    if verbose:
        header += ["training", "reached"]
    rows = list[list[str]]()
    for one in record.contenders:
        summary = summary_in(record, one)
        beside = compared.get(one.who)
        better = ""
        to_threshold = "-"
        if beside is not None:
            better = around(*beside.greedy, ".2f")
        if summary.to_threshold is not None:
            to_threshold = steps(int(summary.to_threshold))
        row = [
            one.who,
            around(*summary.greedy),
            better,
            number(summary.area[0]),
            to_threshold,
            number(finite_or_none(summary.training[0])),
            f"{summary.reached}/{len(one.greedy)}",
        ]
        rows.append(row[: len(header)])
    rules = beside_heuristics(record)
    rows += [[rule.who, around(*rule.greedy), *[""] * (len(header) - 2)] for rule in rules]
    table = narrow(header, rows, (False, True, True, *[True] * (len(header) - 3)))
    notes = [
        f"AUC: mean of the evaluation curve. {to}: env steps to reach it (median over seeds)."
    ]
    if verbose:
        notes.append(
            "training: return during training. reached: seeds that reached the threshold."
        )
    for rule in rules:
        how = _HOW.get(rule.verdict, _NO_DIFFERENCE)
        notes.append(
            f"tuned: {how} the heuristic {rule.who} on the same requests, "
            f"tuned minus heuristic {around(*rule.less)}"
        )
    return [*table, *notes]


def _source_lines(record: TunedRecord) -> list[str]:
    compared = comparisons_by_name(record)
    lines = list[str]()
    for one in record.contenders:
        if (beside := compared.get(one.who)) is None:
            continue
        text, source = f"{one.who}: P(tuned better) by AUC {number(beside.area[0])}", one.source
        if math.isfinite(beside.training[0]):
            text += f", by training return {number(beside.training[0])}"
        if source_steps := source.get("env_steps"):
            text += f"; from {source['repository']}, "
            text += f"which trains it for {steps(int(source_steps))} env steps"
            text += clause(", without {}", ", ".join(source.get("without") or ()))
            text += clause(", written for {}", source.get("written_for"))
        lines.append(text)
    return lines


def record_data(record: TunedRecord) -> dict[str, Any]:
    compared = comparisons_by_name(record)
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
        "results": [
            _contender_data(record, one, compared.get(one.who)) for one in record.contenders
        ],
        "heuristics": [
            {
                "who": rule.who,
                "verdict": rule.verdict,
                "greedy": _interval_data(*rule.greedy),
                "less": _interval_data(*rule.less),
            }
            for rule in beside_heuristics(record)
        ],
    }


def _contender_data(
    record: TunedRecord, one: Contender, beside: TunedComparison | None
) -> dict[str, Any]:
    summary = summary_in(record, one)
    data: dict[str, Any] = {
        "who": one.who,
        "source": dict(one.source),
        "seeds": len(one.greedy),
        "diverged": summary.diverged,
        **_measures_data(summary),
        "reached": summary.reached,
        "env_steps_to_threshold": summary.to_threshold,
        "cost": vars(one.cost),
        "curve": vars(one.curve),
    }
    if beside is not None:
        data |= {"verdict": beside.verdict, "improvement": _measures_data(beside)}
    return data


def _measures_data(found: TestSummary | TunedComparison) -> dict[str, Any]:
    return {name: _interval_data(*getattr(found, name)) for name in ("greedy", "training", "area")}


def _interval_data(value: float, found: Interval) -> Mapping[str, float | None]:
    return {"value": finite_or_none(value), "low": found.low, "high": found.high}


def verified_words(found: Verification) -> str:
    agreement, means = found.agreement, [*map(number, found.means)]
    versions = "; ".join(f"{k} {then} -> {now}" for k, (then, now) in found.versions.items())
    inside, verdict = "OUTSIDE", found.verdict
    if agreement.within:
        inside = "within"
    if verdict == "not":
        verdict = "NOT"
    lines = [
        f"{found.name}: {verdict}",
        f"recorded seeds  {found.equal} of {found.recorded} equal bit for bit",
        f"new seeds       {found.seeds}, mean {means[1]}; recorded {means[0]}",
        f"                the difference {number(agreement.difference)} is {inside} "
        f"[{number(agreement.low)}, {number(agreement.high)}] (99% permutation interval)",
    ]
    if versions:
        lines.append(f"versions        {versions}")
    return "\n".join(lines)


def verified_data(found: Verification) -> dict[str, Any]:
    agreement = found.agreement
    return {
        "name": found.name,
        "verdict": found.verdict,
        "recorded": {"seeds": found.recorded, "bit_equal": found.equal, "mean": found.means[0]},
        "fresh": {"seeds": found.seeds, "mean": found.means[1]},
        "difference": agreement.difference,
        "low": agreement.low,
        "high": agreement.high,
        "within": agreement.within,
        "versions": {name: list(pair) for name, pair in found.versions.items()},
    }


def do_tuned(args: Namespace) -> int:
    first, *rest = args.words or [""]
    if len(rest) != (first == "verify"):
        raise ConfigError(f"run: hpo tuned {'verify ' * (first == 'verify')}ENV")
    for option in ("seeds", "recorded", "seed", "bits"):
        if getattr(args, option) not in (None, False) and first != "verify":
            raise ConfigError(f"--{option} works only with hpo tuned verify")
    place = path_or_none(args.tuned)
    if first == "verify":
        return _verify_record(find_record(rest[0], place), args)
    if first:
        record = find_record(first, place)
        text = record_words(record, sys.stdout, args.verbose)
        print_answer(args.json, record_data(record), text)
        return 0
    records = [read_record(path) for path in record_files(folders(place)).values()]
    print_answer(args.json, [record_data(record) for record in records], records_table(records))
    return 0


def _verify_record(record: TunedRecord, args: Namespace) -> int:
    from ...search.tuned_runs import FRESH, RECORDED, verify

    seeds = args.seeds or FRESH
    if seeds < 5:
        raise ConfigError(f"--seeds {seeds}: at least 5 seeds are needed for an interval")
    folder = Path(tempfile.mkdtemp(prefix="hpo-verify-"))
    try:
        runner = runner_of(args, folder)
        found = verify(
            record, folder, args.recorded or RECORDED, seeds, args.seed or 0, runner=runner
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if found is None:
        return INTERRUPTED
    print_answer(args.json, verified_data(found), verified_words(found))
    return int(found.verdict == "not" or (args.bits and found.verdict != "bit-equal"))


def runner_of(args: Namespace, out: Path) -> Callable[[Study, Path], RunResults]:
    from .watched_run import watch

    defaults = {
        "new": False,
        "set": [],
        "name": None,
        "out": str(out),
        "accept_new_bits": False,
        "accept_changed_files": False,
    }

    def run(study: Study, _: Path) -> RunResults:
        given = Namespace(**{**vars(args), **defaults, "file": study.name})
        return watch(study, resolved_yaml(study), given)

    return run
