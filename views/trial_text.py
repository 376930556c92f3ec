"""The output of `hpo show` for a trial: `trial_text` formats a `TrialPage`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

from ..errors import clause, counted
from ..store.rows import HALTED, TrialRow, TrialState
from .formatting import (
    duration,
    folded,
    moment,
    number,
    param,
    seeds_text,
    sparkline,
    steps,
    with_interval,
)
from .output import finite_or_none
from .time_spent import time_text
from .trial_page import ReturnPoint, TrialAudit, TrialPage
from .trial_stages import evaluations_table, stages_table

_WIDTH, _LABEL = 80, 11


def trial_text(page: TrialPage, blocks: bool = True, verbose: bool = False) -> str:
    """Return the page as text, 80 columns wide, with the answer first."""
    parts = ["\n".join(_head_lines(page, verbose)), _params_text(page.view.params)]
    if page.scores is not None:
        from .environment_text import each_text

        parts.append(each_text(page.scores))
    if page.row.schedule:
        parts.append(lineage_text(page.row.schedule))
    parts.append(stages_table(page, verbose))
    parts += [_measurements_text(page, name, blocks, verbose) for name in page.environments]
    if verbose:
        lines = (folded(line, _WIDTH, _LABEL * (line[0] != " ")) for line in _detail_lines(page))
        parts.append("\n".join(lines))
    return "\n\n".join(part for part in parts if part)


def _head_lines(page: TrialPage, verbose: bool) -> list[str]:
    view, row = page.view, page.row
    said = f"Trial {view.trial} {_outcome_text(page)}{_value_text(page)}"
    rank = f" (rank {page.place} of {page.trials})"
    if page.place is None or (view.is_default and page.is_lost):
        rank = ""
    lines = [f"{said}{rank}."]
    if len(lines[0]) > _WIDTH:
        lines = [folded(f"{said}.", _WIDTH)]
    if view.stop and row.audited:
        lines.append(f"{view.stop} would have stopped the trial, which ran on to check the rule.")
    elif view.stop and (view.is_default or view.is_confirmed):
        lines.append(f"In the search, it was stopped by {view.stop}{_last_rung_text(page)}.")
    if page.verdict is not None:
        shown = page.verdict.sentences
        if not verbose:
            shown = shown[:1]
        lines += [folded(text, _WIDTH) for text in shown]
    if page.audit is not None:
        lines.append(folded(_audit_text(page.audit), _WIDTH))
    if row.error:
        lines.append(folded(f"error      {row.error}", _WIDTH, _LABEL))
    return lines


def _outcome_text(page: TrialPage) -> str:
    """Return the outcome of a trial, to be printed after the trial number."""
    view = page.view
    if view.is_default:
        said = "is the default"
        if view.is_winner:
            said += " and the winner"
        if page.is_lost:
            said += f", which {view.state} in the search"
        return said
    if view.is_confirmed and view.is_winner:
        return "is the winner"
    if view.is_confirmed:
        return "was confirmed"
    if view.state is TrialState.FINISHED or page.is_lost:
        return str(view.state)
    if view.state not in HALTED:
        return f"is {view.state}"
    verb = {TrialState.STOPPED: "was", TrialState.PAUSED: "is"}[view.state]
    return f"{verb} {view.state}{clause(' by {}', page.stopped_by)}{_last_rung_text(page)}"


def _last_rung_text(page: TrialPage) -> str:
    """Return the rung at which a trial was last compared, or ""."""
    if not page.decisions:
        return ""
    return f" at {steps(page.decisions[-1].env_steps)} {page.unit}"


def _value_text(page: TrialPage) -> str:
    """Return a trial's value (final, or at the last rung) and its seeds; "" if it has none."""
    entry, row = page.entry, page.row
    value, tested, at_rung = map(
        finite_or_none, (entry.value, entry.report_value, entry.rung_value)
    )
    is_tested = value is None or entry.value_from == "report"
    if tested is not None and is_tested:
        shown = with_interval(tested, page.tested.low, page.tested.high)
        return f": {shown} on {seeds_text(len(row.report_values), 'report')}"
    if value is not None:
        low, high = finite_or_none(entry.ci_low), finite_or_none(entry.ci_high)
        shown = with_interval(value, low, high)
        return f": {shown} on {seeds_text(entry.seeds, entry.value_from)}"
    if at_rung is None or page.is_lost:
        return ""
    return f": {number(at_rung)} on {counted(entry.search_seeds, 'search seed')}"


def _audit_text(found: TrialAudit) -> str:
    whole = found.audit.whole
    bar = f"the median of the unstopped trials ({number(found.audit.bar)})"
    if found.ended is not None:
        return f"Audit: this trial finished {found.ended} {bar}."
    audited = counted(whole.audited, "audited trial")
    return f"Audit: {whole.wrong} of {audited} finished better than {bar}."


def _params_text(params: Mapping[str, Any]) -> str:
    if not params:
        return "  nothing was searched: all values are in study.resolved.yaml"
    lines = [""]
    for name, value in params.items():
        pair = f"{name} {param(value)}"
        if lines[-1] and len(lines[-1]) + len(pair) + 4 > _WIDTH:
            lines.append("")
        lines[-1] += ("    " if lines[-1] else "  ") + pair
    return "\n".join(lines)


def lineage_text(schedule: Sequence[Mapping[str, Any]]) -> str:
    """Return one line per lineage segment: first env step, trial and changed hyperparameters.

    >>> parts = [{"env_steps": 0, "trial": 3, "params": {"gamma": 0.9, "ent_coef": 0.01}},
    ...          {"env_steps": 8000, "trial": 5, "params": {"gamma": 0.95, "ent_coef": 0.01}}]
    >>> print(lineage_text(parts))
    lineage
      from     0  in trial 3  gamma 0.9, ent_coef 0.01
      from    8k  in trial 5  gamma 0.95
    """
    lines: list[str] = []
    before: Mapping[str, Any] = {}
    for part in schedule:
        now = part["params"]
        words = [
            f"{name} {param(value)}"
            for name, value in now.items()
            if name not in before or before[name] != value
        ]
        changes = ", ".join([*words, *(f"without {name}" for name in before if name not in now)])
        start = f"  from {steps(part['env_steps']):>5}  in trial {part['trial']}"
        lines += wrap(f"{start}  {changes}", 80, subsequent_indent=" " * 14)
        before = now
    return "\n".join(["lineage", *lines])


def _measurements_text(
    page: TrialPage, environment: str | None, blocks: bool, verbose: bool
) -> str:
    """Return the evaluations and the curve on one environment."""
    several = environment is not None
    found, gap = list[str](), "\n\n"
    if several:
        found, gap = [f"on {environment}"], "\n"
    evaluations = [row for row in page.evaluations if row.environment == environment]
    if evaluations and (verbose or several):
        found.append(evaluations_table(evaluations, page.unit))
    curve = [point for point in page.curve if point.environment == environment]
    if line := curve_line(curve, 40, blocks):
        found.append(f"  training return  {line}")
    return gap.join(found)


def curve_line(curve: Sequence[ReturnPoint], width: int, blocks: bool) -> str:
    points = [point.value for point in curve]
    finite = [point for point in points if point is not None]
    if not finite:
        return ""
    return f"{number(finite[0])} {sparkline(points, width, not blocks)} {number(finite[-1])}"


def _detail_lines(page: TrialPage) -> list[str]:
    row = page.row
    lines: list[str] = []
    kinds = {"search": row.seed_values, "select": row.choose_values, "test": row.report_values}
    for label, values in kinds.items():
        if values:
            seeds = counted(len(values), "seed")
            lines.append(f"{label:<10} {seeds}: {' '.join(map(number, values))}")
    if page.verdict is not None:
        labels = ("verdict", *[""] * len(page.verdict.details))
        said = zip(labels, page.verdict.details, strict=False)
        lines += [f"{label:<10} {text}" for label, text in said]
    lines.append(f"proposed   by {row.proposed_by} in batch {row.batch}; bucket {row.bucket}")
    if page.start_up:
        lines.append(f"           {page.start_up}")
    trained = f"{steps(row.env_steps)} in the search over all seeds"
    lines.append(f"{page.unit:<10} {trained}{_other_steps_text(row)}")
    if row.started_at is not None and row.ended_at is not None:
        began = moment(row.started_at)
        lines.append(f"time       {began}, {duration(row.ended_at - row.started_at)}")
    if page.study_seconds:
        lines.append(f"study time {time_text(page.study_seconds).removeprefix('time: ')}")
    return lines


def _other_steps_text(row: TrialRow) -> str:
    """Return text with the env steps of evaluation and warm-up, to follow those of training."""
    more = {"evaluation": row.eval_env_steps, "warm-up": row.warmup_env_steps}
    return "".join(f", {steps(count)} for {kind}" for kind, count in more.items() if count)
