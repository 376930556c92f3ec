"""Everything about one trial: `trial_data` collects it, `trial_text` formats it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from statistics import fmean
from textwrap import wrap
from typing import Any

from ..errors import StoreError, counted
from ..search.analysis.verdict import conclusion_of
from ..store.audits import Audit, audit_of
from ..store.codec import finite_json
from ..store.environment_columns import ENVIRONMENT, environment_names
from ..store.journal import Journal
from ..store.leaderboard import default_of, leaderboard_of
from ..store.query import has_column, query
from ..store.rows import (
    AskRow,
    EvaluationRow,
    StudyMeta,
    TrialRow,
    TrialState,
    counts_evaluations_alone,
)
from ..store.study_folder import StudyFolder, trials_seen
from ..store.unobserved import bounded_interval
from ..store.value_bounds import value_bounds
from ..store.verdict import Conclusion
from ..store.verdict_text import as_json
from ..studies.algorithm import ENV_STEPS
from ..studies.search_methods import METHODS
from ..studies.stopping_rules import finishing_rules
from ..studies.yaml_io import plain, read_text
from .formatting import (
    aligned,
    duration,
    folded,
    in_unit,
    moment,
    number,
    param,
    seeds_text,
    sparkline,
    steps,
    with_interval,
)
from .output import finite_or_none
from .time_spent import time_text, usage_at

_CURVE = "episode_return"
_WIDTH, _LABEL = 80, 11
_OF_ROW = (
    "proposed_by", "batch", "bucket", "seed_values", "choose_values", "report_values", "audited",
    "eval_env_steps", "warmup_env_steps", "error", "started_at", "ended_at", "bits", "schedule",
)  # fmt: skip
_STAGE = {"search": "search", "choose": "select", "report": "test"}
_DONE = {"continue": "continued", "stop": "stopped", "finish": "finished", "pause": "paused",
         "promote": "paused, then continued", "audit": "continued for the audit"}  # fmt: skip


def start_up_words(
    search: Mapping[str, Any], asks: Sequence[AskRow], rows: Sequence[TrialRow]
) -> dict[int, str]:
    if search.get("warm_start") is not None:
        return {}  # trials of the earlier study are not in these batches
    by_number = {row.trial: row for row in rows}
    found: dict[int, str] = {}
    known: set[int] = set()  # a paused trial is reported again when it ends
    for ask in asks:
        rows_of = [by_number[trial] for trial in ask.told if trial in by_number]
        known |= {row.trial for row in rows_of if row.state is not TrialState.FAILED}
        if words := _words(search, ask.method, len(known)):
            proposed = [by_number[trial] for trial in ask.trials if trial in by_number]
            found |= {row.trial: words for row in proposed if row.proposed_by == ask.method}
    return found


def _words(search: Mapping[str, Any], method: str, known: int) -> str:
    row = METHODS.get(method)
    if row is None or not row.learns:
        return ""
    options: Mapping[str, object] = {field.key: field.default for field in row.options}
    fewest = {**options, **(search.get("options") or {})}.get("n_startup_trials")
    if isinstance(fewest, int) and known < fewest:
        return f"random draw: the model needs {fewest} results and had {known}"
    return "" if known else "before any result was known"


def lineage_text(schedule: Sequence[Mapping[str, Any]]) -> str:
    """Return one line per segment: its first env step, its trial, and the changes.

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


def trial_data(folder: StudyFolder, number_: int) -> dict[str, Any]:
    with Journal(folder.path) as journal, journal.at_one_commit():
        meta = journal.meta
        rows = trials_seen(journal)
        entries = leaderboard_of(meta, rows)
        entry = next((entry for entry in entries if entry.trial == number_), None)
        row = next((row for row in rows if row.trial == number_), None)
        if entry is None or row is None:
            last = max((entry.trial for entry in entries), default=None)
            known = "it has none yet" if last is None else f"its trials are 0 to {last}"
            raise StoreError(f"study {folder.name!r} has no trial {number_}; {known}")
        names = environment_names(meta.environments)
        found = journal.evaluations(number_)
        evaluations = [one for row in found for one in _summaries(row, names)]
        decisions = [asdict(decision) for decision in journal.decisions(number_)]
        audit = _audit_of(journal, rows, decisions)
        spent = usage_at(journal.head()).seconds_by_part
        conclusion = conclusion_of(journal, rows, entries)
        alone = counts_evaluations_alone(journal.attributes())
        study = plain(read_text(meta.study_text, "study.resolved.yaml"))
        start_up = start_up_words(study["search"], journal.asks(), rows)
        scores = None
        if names:  # loaded on use: it brings numpy, which no other view of a table needs
            from ..search.analysis.across_environments import environment_scores
            from .environment_text import each_data

            of_all = environment_scores(journal, rows)
            scores = each_data(meta, of_all, entry.trial, entry.value_from)
        around = bounded_interval(row.report_values, value_bounds(meta))
    return {
        "study": folder.name,
        "metric": meta.metric,
        "training_weight": 0.0 if alone else _weight(study),
        "goal": meta.goal,
        "trials": len(entries),
        "study_seconds_by_part": spent,
        **entry.as_json(),
        **{name: finite_json(getattr(row, name)) for name in _OF_ROW},
        "report_ci_low": around.low,
        "report_ci_high": around.high,
        "start_up": start_up.get(number_),
        "decisions": finite_json(decisions),
        "audit": None if audit is None else finite_json(_audit_data(audit, row, meta)),
        **({"over_environments": finite_json(scores)} if scores is not None else {}),
        "evaluations": evaluations,
        "curve": _curve(folder, number_, bool(names)),
        "conclusion": as_json(conclusion) if _is_of(conclusion, row, rows) else None,
    }


def _audit_of(
    journal: Journal, rows: Sequence[TrialRow], decisions: Sequence[Mapping[str, Any]]
) -> Audit | None:
    """Return a study's audit, for a trial that a rule would have stopped."""
    stopped = any(decision["action"] in ("stop", "audit") for decision in decisions)
    if not stopped or not any(row.audited for row in rows):
        return None
    return audit_of(journal.meta, rows, journal.decisions(), finishing_rules())


def _is_of(conclusion: Conclusion, row: TrialRow, rows: Sequence[TrialRow]) -> bool:
    default = default_of(rows)
    is_default = default is not None and default.trial == row.trial
    if conclusion.front is not None:
        return is_default or conclusion.front.trial == row.trial
    known = conclusion.winner is not None
    return known and (is_default or conclusion.winner == f"trial {row.trial}")


def _audit_data(audit: Audit, row: TrialRow, meta: StudyMeta) -> dict[str, Any]:
    than = None
    if row.audited and row.value is not None:
        ahead = (row.value - audit.bar) * (1.0 if meta.goal == "maximize" else -1.0)
        than = "tied with"
        if ahead != 0.0:
            than = "better than" if ahead > 0.0 else "worse than"
    return {"ended": than, **asdict(audit)}


def _summaries(row: EvaluationRow, environments: Sequence[str]) -> list[dict[str, Any]]:
    if not environments:
        return [_evaluation(row, slice(None))]
    each = len(row.returns) // len(environments)
    return [
        {ENVIRONMENT: name, **_evaluation(row, slice(at * each, (at + 1) * each))}
        for at, name in enumerate(environments)
    ]


def _evaluation(row: EvaluationRow, own: slice) -> dict[str, Any]:
    returns = row.returns[own].tolist()
    return {
        "stream": str(row.stream),
        "replicate": row.replicate,
        "env_steps": row.env_steps,
        "episodes": len(returns),
        "return_mean": _mean(returns),
        "return_min": finite_or_none(min(returns)),
        "return_max": finite_or_none(max(returns)),
        "length_mean": _mean(row.lengths[own].tolist()),
        "metrics": {name: _mean(values[own].tolist()) for name, values in row.metrics.items()},
    }


def _curve(folder: StudyFolder, trial: int, several: bool) -> list[dict[str, Any]]:
    if not has_column(folder.path, "curves", _CURVE):
        return []
    keys = f"{ENVIRONMENT}, env_steps" if several else "env_steps"
    _, rows = query(
        folder.path,
        f"SELECT {keys}, avg({_CURVE}) FILTER (isfinite({_CURVE})) FROM curves "
        f"WHERE trial = {int(trial)} AND stream = 'search' GROUP BY {keys} ORDER BY {keys}",
    )
    return [
        {**dict(zip(keys.split(", "), key, strict=True)), _CURVE: finite_or_none(value)}
        for *key, value in rows
    ]


def _mean(values: Sequence[float]) -> float | None:
    return finite_or_none(math.fsum(values) / len(values)) if values else None


def trial_text(
    data: Mapping[str, Any], blocks: bool = True, verbose: bool = False, unit: str = ENV_STEPS
) -> str:
    """Return the data as text of 80 columns, the answer first; `unit` of the run length."""
    parts = [in_unit("\n".join(_head(data, verbose)), unit), _params(data["params"])]
    several = data.get("over_environments") is not None
    if several:
        from .environment_text import each_text

        parts.append(each_text(data["over_environments"]))
    if data["schedule"]:
        parts.append(lineage_text(data["schedule"]))
    parts.append(_stages(data, verbose, several, unit))
    rows = [*data["evaluations"], *data["curve"]]
    for name in dict.fromkeys(row.get(ENVIRONMENT) for row in rows):
        found = [f"on {name}"] if name is not None else []
        evaluations = [row for row in data["evaluations"] if row.get(ENVIRONMENT) == name]
        if evaluations and (verbose or name is not None):
            found.append(_evaluations(evaluations, unit))
        curve = [point for point in data["curve"] if point.get(ENVIRONMENT) == name]
        if line := curve_line(curve, 40, blocks):
            found.append(f"  training return  {line}")
        parts.append(("\n" if name is not None else "\n\n").join(found))
    if verbose:
        lines = (folded(line, _WIDTH, _LABEL * (line[0] != " ")) for line in _details(data, unit))
        parts.append("\n".join(lines))
    return "\n\n".join(part for part in parts if part)


def curve_line(curve: Sequence[Mapping[str, Any]], width: int, blocks: bool) -> str:
    points = [point[_CURVE] for point in curve]
    finite = [point for point in points if point is not None]
    if not finite:
        return ""
    return f"{number(finite[0])} {sparkline(points, width, not blocks)} {number(finite[-1])}"


def _head(data: Mapping[str, Any], verbose: bool) -> list[str]:
    lost = data["state"] in ("diverged", "failed")
    is_default, confirmed = data.get("is_default"), data.get("confirmed")
    said = f"Trial {data['trial']} {_what(data, lost)}{_value_of(data, lost)}"
    rank = "" if is_default and lost else f" (rank {data['rank']} of {data['trials']})"
    fits = len(said) + len(rank) < _WIDTH
    lines = [f"{said}{rank}." if fits else folded(f"{said}.", _WIDTH)]
    if data["stop_rule"] and data["audited"]:
        lines.append(f"{data['stop_rule']} would have stopped it; it ran on to check the rule.")
    elif data["stop_rule"] and (is_default or confirmed):
        lines.append(f"In the search it was stopped by {data['stop_rule']}{_last_rung(data)}.")
    if data.get("conclusion"):
        sentences = data["conclusion"]["sentences"]
        shown = sentences if verbose else sentences[:1]
        lines += [folded(text, _WIDTH) for text in shown]
    if data.get("audit") is not None:
        lines.append(folded(_audit(data["audit"]), _WIDTH))
    if data["error"]:
        lines.append(folded(f"error      {data['error']}", _WIDTH, _LABEL))
    return lines


def _what(data: Mapping[str, Any], lost: bool) -> str:
    """Return a trial's outcome, to follow its number."""
    confirmed = data.get("confirmed")
    won = confirmed and data["rank"] == 1 and not data.get("objectives")
    if data.get("is_default"):
        winner = " and the winner" if won else ""
        ended = f", which {data['state']} in the search" if lost else ""
        return f"is the default{winner}{ended}"
    if confirmed:
        return "is the winner" if won else "was confirmed"
    state = data["state"]
    if state in ("finished", "diverged", "failed"):
        return state
    if state not in ("stopped", "paused"):
        return f"is {state}"
    by_rule = data["stop_rule"] and not data["audited"]
    rule = f" by {data['stop_rule']}" if by_rule else ""
    verb = "was" if state == "stopped" else "is"
    return f"{verb} {state}{rule}{_last_rung(data)}"


def _last_rung(data: Mapping[str, Any]) -> str:
    """Return where a trial was last judged, or ""."""
    if not data["decisions"]:
        return ""
    at = data["decisions"][-1]["env_steps"]
    return "" if at is None else f" at {steps(at)} env steps"


def _value_of(data: Mapping[str, Any], lost: bool) -> str:
    """Return a trial's value and seeds; without a value the one at its last rung; or ""."""
    value, source = data["value"], data.get("value_from", "")
    test = data.get("report_values") or []
    if value is None and test and data.get("report_value") is not None:
        value, source = data["report_value"], "report"
    if value is not None:
        of_test = source == "report"
        seeds, kind = (len(test), "report_ci") if of_test else (data["seeds"], "ci")
        shown = with_interval(value, data[f"{kind}_low"], data[f"{kind}_high"])
        return f": {shown} on {seeds_text(seeds, source)}"
    if data.get("rung_value") is not None and not lost:
        seeds = counted(data.get("search_seeds") or len(data["seed_values"]), "search seed")
        return f": {number(data['rung_value'])} on {seeds}"
    return ""


def _details(data: Mapping[str, Any], unit: str) -> list[str]:
    lines: list[str] = []
    for name, label in (("seed", "search"), ("choose", "select"), ("report", "test")):
        if values := data[f"{name}_values"]:
            seeds = counted(len(values), "seed")
            lines.append(f"{label:<10} {seeds}: {' '.join(map(_number, values))}")
    for place, text in enumerate((data.get("conclusion") or {}).get("details", [])):
        lines.append(f"{'' if place else 'verdict':<10} {text}")
    batch = f"in batch {data['batch']}; bucket {data['bucket']}"
    lines.append(f"proposed   by {data['proposed_by']} {batch}")
    if data.get("start_up"):
        lines.append(f"           {data['start_up']}")
    more = "".join(
        f", {steps(data[f'{kind}_env_steps'])} of {word}"
        for kind, word in (("eval", "evaluation"), ("warmup", "warm-up"))
        if data[f"{kind}_env_steps"]
    )
    lines.append(f"{unit:<10} {steps(data['env_steps'])} in the search over all seeds{more}")
    if data["started_at"] is not None and data["ended_at"] is not None:
        began = moment(data["started_at"])
        lines.append(f"time       {began}, {duration(data['ended_at'] - data['started_at'])}")
    if spent := data.get("study_seconds_by_part"):
        lines.append(f"study time {time_text(spent).removeprefix('time: ')}")
    return lines


def _audit(data: Mapping[str, Any]) -> str:
    whole = data["whole"]
    bar = f"the median of trials never stopped ({_number(data['bar'])})"
    if data["ended"] is not None:
        return f"Audit: it finished {data['ended']} {bar}."
    audited = counted(whole["audited"], "audited trial")
    return f"Audit: {whole['wrong']} of {audited} finished better than {bar}."


def _number(value: Any) -> str:
    """Format a value, which JSON stores as text if it is not finite."""
    return value if isinstance(value, str) else number(value)


def _params(params: Mapping[str, Any]) -> str:
    if not params:
        return "  nothing was searched: all values are in study.resolved.yaml"
    lines = [""]
    for name, value in params.items():
        pair = f"{name} {param(value)}"
        if lines[-1] and len(lines[-1]) + len(pair) + 4 > _WIDTH:
            lines.append("")
        lines[-1] += ("    " if lines[-1] else "  ") + pair
    return "\n".join(lines)


def _weight(study: Mapping[str, Any]) -> float:
    return (study.get("metric") or {}).get("training_weight", 0.0)


Measured = Mapping[tuple[str, int], list[float | None]]
"""(stream, env steps) -> values of the seeds."""


def _stages(data: Mapping[str, Any], verbose: bool, several: bool, unit: str) -> str:
    measured, is_mixed = ({}, False) if several else _measured(data)
    decided = {row["env_steps"]: row for row in data["decisions"]}
    ends = {stream: max(at for name, at in measured if name == stream) for stream, _ in measured}
    keys = {("search", at) for at in decided}
    keys |= {(name, at) for name, at in measured if verbose or at == ends[name]}
    rows = [
        _stage_row(
            data,
            measured,
            stream,
            at,
            decided=decided,
            is_end=at == ends.get(stream),
            verbose=verbose,
        )
        for stream, at in sorted(keys, key=_by_stage)
    ]
    if not rows:
        return ""
    header = ("stage", unit, "seeds", "mean", "worst", "best", "decision")
    table = aligned(header, rows, (False, True, True, True, True, True, False))
    weight = data.get("training_weight", 0.0)
    note = f"\nTraining returns count {weight:g} in search and select."
    return table + note if is_mixed else table


def _measured(data: Mapping[str, Any]) -> tuple[Measured, bool]:
    """Return the values at each point, and whether any includes training returns."""
    metric = data.get("metric", "").split(",")[0].split(" ")[0].removeprefix("eval/")
    weight, counts = data.get("training_weight", 0.0), False
    lacking = {
        (row["stream"], row["env_steps"])
        for row in data["evaluations"]
        if row["metrics"].get("training_return") is None  # no episode of training had ended
    }
    found: dict[tuple[str, int], list[float | None]] = {}
    for row in data["evaluations"]:
        place = (row["stream"], row["env_steps"])
        value = row[metric] if metric in row else row["metrics"].get(metric, row["return_mean"])
        is_mixed = weight and row["stream"] != "report" and value is not None
        if is_mixed and place not in lacking:
            trained = row["metrics"]["training_return"]
            value, counts = (1.0 - weight) * value + weight * trained, True
        found.setdefault(place, []).append(value)
    return found, counts


def _stage_row(
    data: Mapping[str, Any],
    measured: Measured,
    stream: str,
    at: int,
    *,
    decided: Mapping[int, Mapping[str, Any]],
    is_end: bool,
    verbose: bool,
) -> list[str]:
    sign = 1.0 if data.get("goal", "maximize") == "maximize" else -1.0
    values = [value for value in measured.get((stream, at), []) if value is not None]
    values.sort(key=lambda value: sign * value)
    judged = decided.get(at) if stream == "search" else None
    mean, worst, best = None, None, None
    if values:
        mean, worst, best = fmean(values), values[0], values[-1]
    elif judged is not None:
        mean = judged["value"]
    return [
        _STAGE[stream],
        steps(at),
        str(len(values) or ""),
        _number(mean),
        number(worst),
        number(best),
        _decision(data, stream, is_end, judged, verbose),
    ]


def _by_stage(key: tuple[str, int]) -> tuple[int, int]:
    return list(_STAGE).index(key[0]), key[1]


def _decision(
    data: Mapping[str, Any],
    stream: str,
    last: bool,
    judged: Mapping[str, Any] | None,
    verbose: bool,
) -> str:
    if judged is not None:
        copied = judged.get("source")
        done = f"copied trial {copied}" if copied is not None else _DONE[judged["action"]]
        text = f"{done}, {_ordinal(judged['rank'])} of {judged['judged']}"
        shows_cut = verbose and judged["cutoff"] is not None
        return f"{text}, cut-off {_number(judged['cutoff'])}" if shows_cut else text
    if stream == "choose":
        won = data["rank"] == 1 and not data["objectives"]
        return "chosen" if won and data.get("confirmed") else ""
    ended = stream == "search" and last and data["state"] in ("finished", "confirmed")
    return "finished" if ended else ""


def _ordinal(count: int) -> str:
    endings = {} if count % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}
    return f"{count}{endings.get(count % 10, 'th')}"


def _evaluations(evaluations: Sequence[Mapping[str, Any]], unit: str) -> str:
    groups: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    for row in evaluations:
        groups.setdefault((row["stream"], row["env_steps"]), []).append(row)
    rows = [
        [_STAGE[stream], steps(at), *_summed(groups[stream, at])]
        for stream, at in sorted(groups, key=_by_stage)
    ]
    header = ("evaluated", unit, "seeds", "episodes", "return", "min", "max", "length")
    return aligned(header, rows, (False, *[True] * 7))


def _summed(group: Sequence[Mapping[str, Any]]) -> list[str]:
    def over(name: str, how: Callable[[list[float]], float]) -> str:
        values = [row[name] for row in group]
        return number(None if None in values else how(values))

    how = {"return_mean": fmean, "return_min": min, "return_max": max, "length_mean": fmean}
    episodes = sum(row["episodes"] for row in group)
    return [str(len(group)), str(episodes), *(over(name, each) for name, each in how.items())]
