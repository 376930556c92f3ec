"""`hpo importance` (which hyperparameters matter) and `hpo what-if` (other stopping rules)."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...errors import ConfigError, counted
from ...store.codec import finite_json
from ...studies.algorithm import ENV_STEPS
from ..arguments import path_or_none, study_of
from ..formatting import aligned, between, narrow, number, steps, unit_in
from ..output import echo, note, print_answer, print_json
from ..terminal.console import console, in_columns

if TYPE_CHECKING:
    from ...search.analysis.knob_significance import SignificantKnobs
    from ...search.what_if import WhatIf

_HEADER = ("rule", "stopped", "saved", "lost", "exact")
_RIGHT = (False, True, True, True, False)
_WHY = {
    "asks": "asks: under this rule {method} would propose different trials",
    "order": "order: trials may reach rungs in a different order than recorded",
    "lost": "lost seeds: it is not recorded which seed of a trial was lost",
    "more": "more: the savings would pay for more trials, which did not run",
    "between": "between: values at some rungs are those of the previous evaluation",
    "unseen": "unseen: runs would continue past their last evaluation, whose value is used, so "
    "what is lost is unknown",
}


def do_importance(args: Namespace) -> int:
    from ...search.analysis.checkpoint_values import all_points, point_at, read_points
    from ...search.analysis.knob_significance import answer_at

    if args.over_progress and args.at is not None:
        raise ConfigError("--over-progress covers every point of the runs; remove --at")
    points = read_points(study_of(args).path)
    found = all_points(points) if args.over_progress else [point_at(points, args.at)]
    answers = [answer_at(points, at) for at in found]
    if args.json:
        print_json([{"at": one.at, "answer": one.as_json()} for one in answers])
        return 0
    unit = points.study.algorithm.unit
    if args.over_progress:
        lines = [_over_progress(answers, unit)]
    else:
        lines = [_importance_text(answers[0], unit)]
    left_out = sorted(set(points.values) - set(found))
    if args.over_progress and left_out:
        some = ", ".join(map(steps, left_out))
        lines.append(f"Fewer than ten trials have a value at {some} {unit}.")
    echo(in_columns("\n".join(lines), sys.stdout, 2))
    return 0


def _importance_text(answer: SignificantKnobs, unit: str) -> str:
    rows: list[list[str]] = []
    for knob in answer.decided.knobs:
        cells = ["-", "-", "-", "too few trials have it"]
        if knob.floor < 1.0:
            spread = between(knob.low, knob.high, ".0%")
            verdict = "not shown"
            if knob.decided:
                verdict = "matters"
            cells = [f"{knob.share:.0%}", spread, f"{knob.floor:.0%}", verdict]
        rows.append([knob.name, *cells])
    header = ("hyperparameter", "explains", "95% interval", "needed", "verdict")
    first, *rest = (text for text in answer.sentences if text != answer.decided.unseen)
    table = ""
    if rows:
        table = aligned(header, rows, (False, True, False, True, False))
    point = f"Trials are compared at {steps(answer.at)} {unit}."
    return "\n".join([first, "", table, "", point, *rest])


def _share_of(name: str, answer: SignificantKnobs) -> str:
    """Return a hyperparameter's share of the rank variance, with an asterisk if significant."""
    knob = next((knob for knob in answer.decided.knobs if knob.name == name), None)
    if knob is None:
        return "-"
    return f"{knob.share:.0%}{'*' * knob.decided}"


def _share_row(name: str, answers: Sequence[SignificantKnobs]) -> list[str]:
    return [name, *(_share_of(name, answer) for answer in answers)]


def _over_progress(answers: Sequence[SignificantKnobs], unit: str) -> str:
    names = [knob.name for knob in answers[-1].decided.knobs]
    rows = [_share_row(name, answers) for name in names]
    header = ["hyperparameter", *(steps(answer.at) for answer in answers)]
    lines = narrow(header, rows, [False, *[True] * len(answers)])
    head = f"At {steps(answers[-1].at)} {unit}: {answers[-1].decided.sentence}"
    last = f"Share of the ranking explained at each point ({unit}). "
    last += "* marks hyperparameters that matter."
    return "\n".join([head, "", *lines, "", last])


def do_what_if(args: Namespace) -> int:
    from ...search.what_if import what_if

    folder = study_of(args)
    source = path_or_none(args.source)
    shows_progress = sys.stderr.isatty()

    def report(at: int, total: int, rule: str) -> None:
        if shows_progress:
            note(f"replaying {at} of {total}: {rule}")

    found = what_if(folder.path, args.early_terminate, args.seeds, source=source, report=report)
    words = what_if_text(found, console(sys.stdout).width, unit_in(folder.path))
    text = in_columns(words, sys.stdout, 2)
    print_answer(args.json, finite_json(found.as_json()), text)
    return 0


def what_if_text(found: WhatIf, width: int | None = None, unit: str = ENV_STEPS) -> str:
    rows: list[list[str]] = []
    for row in found.rows:
        stopped, saved = "-", "-"
        if row.stopped is not None:
            stopped = f"{row.stopped}/{row.trials}"
        if row.saved is not None:
            saved = f"{row.saved:.0%}"
        rows.append([row.rule, stopped, saved, number(row.lost), row.why or "yes"])
    table = [aligned(_HEADER, rows, _RIGHT)]
    if width:
        table = narrow(_HEADER, rows, _RIGHT, width)
    head = [_own_rule(found, unit)]
    if found.asked_env_steps is not None:
        here, whole = steps(found.env_steps), steps(found.asked_env_steps)
        said = (
            f"No trial has finished its run, so the replay ends runs at {here} of {whole} {unit}"
        )
        head.insert(0, f"{said}, the latest point that at least two trials reached.")
    return "\n".join([*head, "", *table, "", *_whatif_notes(found)])


def _own_rule(found: WhatIf, unit: str) -> str:
    own = next((row for row in found.rows if row.own), None)
    trials, seeds = counted(found.trials, "trial"), counted(found.seeds, "seed")
    if own is None:
        ran = found.recorded_rule or "no stopping rule"
        return f"{found.study} ran {ran}; the rules are replayed on its {trials}, {seeds} each."
    if own.rule == "none":
        return f"{found.study} ran {trials} on {seeds} each, without a stopping rule."
    saved, lost = "savings unknown", ""
    if own.saved is not None:
        saved = f"saved {own.saved:.0%} of {unit}"
    if own.lost is not None:
        lost = f" and lost {number(own.lost)}"
    return f"{found.study} ran {own.rule}: {saved}{lost}."


def _whatif_notes(found: WhatIf) -> list[str]:
    if found.best is None:
        notes = ["lost: unknown without a finished trial, or with several objectives."]
    else:
        metric, best = found.metric, f"trial {found.best}, the best"
        notes = [f"lost: how much worse the winner's {metric} is than that of {best}."]
    if found.seeds < found.most_seeds:
        which = f"{'other ' * any(row.own for row in found.rows)}rules"
        text = f"saved: compared with runs on all {found.most_seeds} seeds"
        notes.append(f"{text}; the {which} are replayed on {found.seeds}.")
    if idle := [row.rule for row in found.rows if row.saved is None]:
        text = "stopped and saved are unknown, because no recorded trial would be stopped"
        notes.append(f"{', '.join(idle)}: {text}.")
    for why in dict.fromkeys(row.why for row in found.rows if row.why):
        notes.append(_WHY[why].format(method=found.method) + ".")
    if found.matched < found.judgements:
        same = f"{found.matched} of {found.judgements} recorded decisions"
        notes.append(f"Replaying the study's own rule reproduced {same}.")
    return notes
