"""`hpo what-if`: what another rule of early stopping would have done to a study."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from ...search.what_if.what_if import Span, WhatIf, WhatIfRow, what_if
from ...store.codec import finite_json
from ...store.study_folder import find_study
from ..documents import print_answer
from ..formatting import aligned, counted, steps
from ..terminal.console import console, fitted
from ..visible import note

__all__ = ["do_what_if", "what_if_text"]

_HEADER = ("rule", "stopped", "env steps", "saved", "won", "lost", "95 %", "exact")
_RIGHT = (False, True, True, True, True, True, False, False)
_TWO_TABLES = ((0, 1, 2, 3, 7), (0, 4, 5, 6))  # what it did, and what came of it
_WHY = {
    "asks": "asks: the method learns, so a study with this rule asks for other trials; this is "
    "its verdict on the trials that were asked for",
    "order": "order: replaying the study's own rule did not give every recorded judgement, or "
    "not every trial's env steps, so trials may meet at rungs in another order",
    "lost": "lost: trials lost more seeds than they may, and which of them was lost where is not "
    "recorded",
    "more": "more: what is saved would have paid for further trials, which nobody ran",
    "between": "between: some rungs lie between recorded evaluations; values there are "
    "interpolated",
    "unseen": "unseen: it lets trials go on that nobody saw further; {drawn}, and [low, high] is "
    "the range of that",
}


def do_what_if(args: Namespace) -> int:
    """Print what rules would have stopped, saved and lost.

    Raises:
        ConfigError: a rule is not known, or the record has nothing to judge by.
        StoreError: there is no such study.
    """
    folder = find_study(args.study, Path(args.out), note)
    found = what_if(folder.path, args.early_terminate, args.seeds, args.resamples)
    width = console(sys.stdout).width if sys.stdout.isatty() else None
    text = fitted(what_if_text(found, width), sys.stdout, 2)
    print_answer(args.json, finite_json(found.as_json()), text)
    return 0


def what_if_text(found: WhatIf, width: int | None = None) -> str:
    """Return rules side by side, and what the words in the last column mean.

    Args:
        found: what they would have done.
        width: columns of the terminal; what is wider stands in two tables. None: in one.
    """
    head = (
        f"{found.study}: {counted(found.trials, 'trial')} judged again on "
        f"{counted(found.seeds, 'seed')} each; ran with {found.recorded_rule or 'no rule'}\n"
        f"replayed as recorded: {found.matched} of {found.judgements} judgements and batches"
    )
    rows = [_cells(row) for row in found.rows]
    tables = [_table(rows, range(len(_HEADER)))]
    if width is not None and len(tables[0].partition("\n")[0]) > width:
        tables = [_table(rows, columns) for columns in _TWO_TABLES]
    return "\n".join([head, "", "\n\n".join(tables), "", *_notes(found)])


def _table(rows: Sequence[Sequence[str]], columns: Sequence[int]) -> str:
    header, right = [_HEADER[n] for n in columns], [_RIGHT[n] for n in columns]
    return aligned(header, [[row[n] for n in columns] for row in rows], right)


def _cells(row: WhatIfRow) -> list[str]:
    winner = "-" if row.winner is None else f"{row.winner}"
    luck = "" if row.luck is None else f"[{_short(row.luck.low)}, {_short(row.luck.high)}]"
    return [
        row.rule,
        f"{_span(row.stopped, '.0f')} of {row.trials}",
        steps(round(row.env_steps.value)),
        f"{row.saved.value:.0%}",
        winner,
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
    notes = ["saved: of the env steps of these trials run to their ends on all seeds."]
    if found.best is None:
        notes.append("several objectives or constraints: no one winner, so nothing to lose.")
    else:
        notes.append(
            f"lost: {found.metric} of trial {found.best}, the best of the record over all its "
            "seeds, less the winner's."
        )
    if told:
        pauses = any(row.luck is None and row.lost is not None for row in found.rows)
        notes.append(
            f"95 %: what is lost in {told[0].resamples} resamples of the trials in random order "
            f"(bootstrap){'; none where trials wait at rungs' * pauses}."
        )
    drawn = "their ends are drawn from trials that ran on, which flatters them"
    if found.audited:
        drawn = "their ends are drawn from audited trials"
    for why in dict.fromkeys(row.why for row in found.rows if row.why):
        notes.append(_WHY[why].format(drawn=drawn) + ".")
    if any(row.exact for row in found.rows):
        notes.append("yes: a study with this rule and these seeds does exactly this.")
    return notes
