"""`hpo what-if`: what another rule of early stopping would have done to a study."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

from ...errors import counted
from ...search.what_if.what_if import Span, WhatIf, WhatIfRow, what_if
from ...store.codec import finite_json
from ...store.study_folder import find_study
from ..escape_control import note
from ..formatting import aligned, narrow, steps
from ..json_output import print_answer
from ..terminal.console import console, in_columns

_HEADER = ("rule", "stopped", "saved", "lost", "risk", "exact")
_RIGHT = (False, True, True, True, False, False)
_WHY = {
    "asks": "asks: under this rule {method} would propose different trials",
    "order": "order: trials may reach rungs in a different order than recorded",
    "lost": "lost seeds: which seed of a trial was lost is not recorded",
    "more": "more: what it saves would pay for further trials, which did not run",
    "between": "between: values at some rungs are interpolated between evaluations",
    "unseen": "unseen: it continues trials that were stopped; {drawn}",
}


def do_what_if(args: Namespace) -> int:
    """Print what rules would have stopped, saved and lost.

    Raises:
        ConfigError: a rule is not known, or the record has nothing to judge by.
        StoreError: there is no such study.
    """
    folder = find_study(args.study, Path(args.out), note)
    found = what_if(folder.path, args.early_terminate, args.seeds, args.resamples)
    text = in_columns(what_if_text(found, console(sys.stdout).width), sys.stdout, 2)
    print_answer(args.json, finite_json(found.as_json()), text)
    return 0


def what_if_text(found: WhatIf, width: int | None = None) -> str:
    """Return what the study's own rule did, all rules side by side, and what limits the answer.

    Args:
        found: what they would have done.
        width: columns of the terminal; a wider table is split. None: one table.
    """
    rows = [_cells(row) for row in found.rows]
    table = narrow(_HEADER, rows, _RIGHT, width) if width else [aligned(_HEADER, rows, _RIGHT)]
    return "\n".join([*_cut_words(found), _own(found), "", *table, "", *_notes(found)])


def _cut_words(found: WhatIf) -> list[str]:
    """Return at which point runs are taken to end, where no trial came to its end."""
    if found.asked_env_steps is None:
        return []
    whole = steps(found.asked_env_steps)
    return [
        f"No trial has finished its run, so runs end at {steps(found.env_steps)} of {whole} env "
        "steps here, the latest that two trials reached."
    ]


def _own(found: WhatIf) -> str:
    """Return what the rule that the study ran with did."""
    own = next((row for row in found.rows if row.own), None)
    trials, seeds = counted(found.trials, "trial"), counted(found.seeds, "seed")
    if own is None:
        ran = found.recorded_rule or "no stopping rule"
        return f"{found.study} ran {ran}; these rules replay its {trials} on {seeds} each."
    if own.rule == "none":
        return f"{found.study} ran no stopping rule: {trials} on {seeds} each."
    lost = "" if own.lost is None else f" and lost {_lost(own.lost)}"
    return (
        f"{found.study} ran {own.rule}: it saved {own.saved.value:.0%} of the env steps of "
        f"{trials} on {seeds} each{lost}."
    )


def _cells(row: WhatIfRow) -> list[str]:
    luck = "-" if row.luck is None else f"[{_short(row.luck.low)}, {_short(row.luck.high)}]"
    return [
        row.rule,
        f"{_span(row.stopped, '.0f')}/{row.trials}",
        f"{row.saved.value:.0%}",
        "-" if row.lost is None else _lost(row.lost),
        luck,
        row.why or "yes",
    ]


def _short(value: float) -> str:
    return f"{value:.3g}"


def _lost(lost: Span) -> str:
    if lost.certain:
        return _short(lost.value)
    return f"{_short(lost.value)} [{_short(lost.low)}, {_short(lost.high)}]"


def _span(span: Span, form: str) -> str:
    if span.certain:
        return format(span.value, form)
    return f"{span.low:{form}}-{span.high:{form}}"


def _notes(found: WhatIf) -> list[str]:
    told = [row.luck for row in found.rows if row.luck is not None]
    if found.best is None:
        notes = ["With several objectives or constraints there is no one winner, so no loss."]
    else:
        notes = [f"lost: {found.metric} of the winner against trial {found.best}, the best."]
    if told:
        notes.append(f"risk: 95% interval of the loss over {told[0].resamples} resampled orders.")
    drawn = "their ends are taken from trials that ran on (optimistic)"
    if found.audited:
        drawn = "their ends are taken from audited trials"
    for why in dict.fromkeys(row.why for row in found.rows if row.why):
        notes.append(_WHY[why].format(drawn=drawn, method=found.method) + ".")
    if found.matched < found.judgements:
        notes.append(
            f"Replaying the study's own rule gave {found.matched} of {found.judgements} recorded "
            "decisions."
        )
    return notes
