"""`hpo what-if`: a study replayed with other rules of early stopping."""

from __future__ import annotations

import sys
from argparse import Namespace

from ...errors import counted
from ...search.what_if import WhatIf, what_if
from ...store.codec import finite_json
from ..arguments import study_of
from ..formatting import aligned, in_unit, narrow, steps, unit_in
from ..output import print_answer
from ..terminal.console import console, in_columns

_HEADER = ("rule", "stopped", "saved", "lost", "exact")
_RIGHT = (False, True, True, True, False)
_WHY = {
    "asks": "asks: under this rule {method} would propose different trials",
    "order": "order: trials may reach rungs in a different order than recorded",
    "lost": "lost seeds: which seed of a trial was lost is not recorded",
    "more": "more: what it saves would pay for further trials, which did not run",
    "between": "between: values at some rungs are those of the evaluation before",
    "unseen": "unseen: it continues runs past their last evaluation, whose value they keep",
}


def do_what_if(args: Namespace) -> int:
    folder = study_of(args)
    found = what_if(folder.path, args.early_terminate, args.seeds)
    told = in_unit(what_if_text(found, console(sys.stdout).width), unit_in(folder.path))
    text = in_columns(told, sys.stdout, 2)
    print_answer(args.json, finite_json(found.as_json()), text)
    return 0


def what_if_text(found: WhatIf, width: int | None = None) -> str:
    rows = [
        [row.rule, f"{row.stopped}/{row.trials}", f"{row.saved:.0%}",
         "-" if row.lost is None else f"{row.lost:.3g}", row.why or "yes"]
        for row in found.rows
    ]  # fmt: skip
    table = narrow(_HEADER, rows, _RIGHT, width) if width else [aligned(_HEADER, rows, _RIGHT)]
    head = [_own_rule(found)]
    if found.asked_env_steps is not None:
        here, whole = steps(found.env_steps), steps(found.asked_env_steps)
        said = f"No trial has finished its run, so runs end at {here} of {whole} env steps here"
        head.insert(0, f"{said}, the latest that two trials reached.")
    return "\n".join([*head, "", *table, "", *_notes(found)])


def _own_rule(found: WhatIf) -> str:
    own = next((row for row in found.rows if row.own), None)
    trials, seeds = counted(found.trials, "trial"), counted(found.seeds, "seed")
    if own is None:
        ran = found.recorded_rule or "no stopping rule"
        return f"{found.study} ran {ran}; these rules replay its {trials} on {seeds} each."
    if own.rule == "none":
        return f"{found.study} ran no stopping rule: {trials} on {seeds} each."
    lost = "" if own.lost is None else f" and lost {own.lost:.3g}"
    return f"{found.study} ran {own.rule}: it saved {own.saved:.0%} of env steps{lost}."


def _notes(found: WhatIf) -> list[str]:
    if found.best is None:
        notes = ["lost: not known without a finished trial, or with several objectives."]
    else:
        notes = [f"lost: {found.metric} of the winner against trial {found.best}, the best."]
    for why in dict.fromkeys(row.why for row in found.rows if row.why):
        notes.append(_WHY[why].format(method=found.method) + ".")
    if found.matched < found.judgements:
        same = f"{found.matched} of {found.judgements} recorded decisions"
        notes.append(f"Replaying the study's own rule gave {same}.")
    return notes
