"""`hpo what-if`: a study replayed with other rules of early stopping."""

from __future__ import annotations

import sys
from argparse import Namespace

from ...errors import counted
from ...search.what_if.what_if import Span, WhatIf, WhatIfRow, what_if
from ...store.codec import finite_json
from ..arguments import study_of
from ..formatting import aligned, between, narrow, steps, with_interval
from ..json_output import print_answer
from ..terminal.console import console, in_columns
from ..units import in_unit, unit_in

_HEADER = ("rule", "stopped", "saved", "lost", "risk", "exact")
_RIGHT = (False, True, True, True, False, False)
_WHY = {
    "asks": "asks: under this rule {method} would propose different trials",
    "order": "order: trials may reach rungs in a different order than recorded",
    "lost": "lost seeds: which seed of a trial was lost is not recorded",
    "more": "more: what it saves would pay for further trials, which did not run",
    "between": "between: values at some rungs are interpolated between evaluations",
    "unseen": "unseen: ends of stopped trials are taken from {drawn}",
}


def do_what_if(args: Namespace) -> int:
    folder = study_of(args)
    found = what_if(folder.path, args.early_terminate, args.seeds, args.resamples)
    told = in_unit(what_if_text(found, console(sys.stdout).width), unit_in(folder.path))
    text = in_columns(told, sys.stdout, 2)
    print_answer(args.json, finite_json(found.as_json()), text)
    return 0


def what_if_text(found: WhatIf, width: int | None = None) -> str:
    """Return all rules side by side and their limits; a table wider than `width` is split."""
    rows = [_cells(row) for row in found.rows]
    table = narrow(_HEADER, rows, _RIGHT, width) if width else [aligned(_HEADER, rows, _RIGHT)]
    head = [_own_rule(found)]
    if found.asked_env_steps is not None:
        here, whole = steps(found.env_steps), steps(found.asked_env_steps)
        head.insert(0, f"No trial has finished its run, so runs end at {here} of {whole} "
                    "env steps here, the latest that two trials reached.")  # fmt: skip
    return "\n".join([*head, "", *table, "", *_notes(found)])


def _own_rule(found: WhatIf) -> str:
    own = next((row for row in found.rows if row.own), None)
    trials, seeds = counted(found.trials, "trial"), counted(found.seeds, "seed")
    if own is None:
        ran = found.recorded_rule or "no stopping rule"
        return f"{found.study} ran {ran}; these rules replay its {trials} on {seeds} each."
    if own.rule == "none":
        return f"{found.study} ran no stopping rule: {trials} on {seeds} each."
    lost = "" if own.lost is None else f" and lost {_lost(own.lost)}"
    return f"{found.study} ran {own.rule}: it saved {own.saved.value:.0%} of env steps{lost}."


def _cells(row: WhatIfRow) -> list[str]:
    luck, stopped = row.luck, row.stopped
    count = f"{stopped.value:.0f}"
    if not stopped.certain:
        count = f"{stopped.low:.0f}-{stopped.high:.0f}"
    return [
        row.rule,
        f"{count}/{row.trials}",
        f"{row.saved.value:.0%}",
        "-" if row.lost is None else _lost(row.lost),
        "-" if luck is None else between(luck.low, luck.high, ".3g"),
        row.why or "yes",
    ]


def _lost(lost: Span) -> str:
    ends = (None, None) if lost.certain else (lost.low, lost.high)
    return with_interval(lost.value, *ends, ".3g")


def _notes(found: WhatIf) -> list[str]:
    luck = next((row.luck for row in found.rows if row.luck is not None), None)
    if found.best is None:
        notes = ["With several objectives or constraints no single winner exists, so no loss."]
    else:
        notes = [f"lost: {found.metric} of the winner against trial {found.best}, the best."]
    if luck is not None:
        notes.append(f"risk: 95% interval of the loss over {luck.resamples} resampled orders.")
    drawn = "audited trials" if found.audited else "trials that ran on (optimistic)"
    for why in dict.fromkeys(row.why for row in found.rows if row.why):
        notes.append(_WHY[why].format(drawn=drawn, method=found.method) + ".")
    if found.matched < found.judgements:
        notes.append(
            f"Replaying the study's own rule gave {found.matched} of {found.judgements} recorded "
            "decisions."
        )
    return notes
