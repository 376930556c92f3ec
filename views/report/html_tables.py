"""The tables of a report: leaderboard, baselines, judgements at rungs, and what the audit says."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from html import escape
from typing import Any

from ...store.audits import Audit, AuditedRung
from ...store.environment_columns import environment_names
from ...store.leaderboard import Entry
from ..charts.snapshot import Snapshot
from ..formatting import number, param, steps
from ..leaderboard_text import (
    EXPLAINED,
    KnobColumns,
    baselines_listing,
    board_columns,
    knob_columns,
)
from .page import Cell, table

_ROWS = 200


def leaderboard_table(snapshot: Snapshot) -> str:
    """Return the leaderboard with every hyperparameter, the best rows of a long one."""
    entries = list(snapshot.entries[:_ROWS])
    if not entries:
        return '<p class="nothing">No trial yet.</p>'
    names = [str(objective["name"]) for objective in snapshot.meta.objectives]
    columns = [
        (one.name.replace("\n", ""), one.right,
         [Cell(text, _sortable(by)) for text, by in zip(one.cells, one.sorts, strict=True)])
        for one in board_columns(entries, names)
    ]  # fmt: skip
    for at, name in enumerate(environment_names(snapshot.meta.environments)):
        cells = [_number(e.scores[at] if e.scores else None) for e in entries]
        columns.append((name, True, cells))
    knobs = knob_columns(snapshot.entries, entries)
    for name in knobs.names:
        cells = [_param(entry.params, name) for entry in entries]
        numeric = all(cell.sort is not None or not cell.text for cell in cells)
        columns.append((name, numeric, cells))
    rows = [list(row) for row in zip(*(cells for _, _, cells in columns), strict=True)]
    text = table(
        "Leaderboard", [name for name, _, _ in columns], rows,
        trials=[e.trial for e in entries], right=[right for _, right, _ in columns],
    )  # fmt: skip
    notes = _notes(snapshot, entries, knobs)
    explained = "" if names else (
        "<details><summary>What the columns mean</summary>"
        f"<pre>{escape(EXPLAINED)}</pre></details>"
    )  # fmt: skip
    return text + "".join(f'<p class="note">{note}</p>' for note in notes) + explained


def _notes(snapshot: Snapshot, shown: Sequence[Entry], knobs: KnobColumns) -> list[str]:
    notes: list[str] = []
    if snapshot.meta.environments:
        notes.append("Under an environment: its score; 0 random actions, 1 the reference.")
    if knobs.same:
        notes.append(escape(knobs.same_words))
    if len(shown) < len(snapshot.entries):
        notes.append(
            f"The first {len(shown)} of {len(snapshot.entries):,} trials; for all: "
            "<code>hpo top -n 1000000</code>, or <code>trials.parquet</code>."
        )
    return notes


def _number(value: float | None) -> Cell:
    return Cell("" if value is None else number(value), _sortable(value))


def _sortable(value: Any) -> float | None:
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return value if plain and abs(value) < float("inf") else None


def _param(params: Any, name: str) -> Cell:
    if name not in params:
        return Cell("")
    value = params[name]
    text = value if isinstance(value, str) else param(value)
    return Cell(text if len(text) <= 60 else json.dumps(text[:57] + "..."), _sortable(value))


def baselines_table(snapshot: Snapshot) -> str:
    """Return the values of rules that learn nothing, and how far the best trial is from them."""
    listing = baselines_listing(snapshot.baselines)
    sorts = [(None, e.value, None, None, e.difference, None) for e in snapshot.baselines]
    rows = [list(map(Cell, texts, by)) for texts, by in zip(listing.rows, sorts, strict=True)]
    return table("Baselines", listing.header, rows, right=listing.right)


# ---------------------------------------------------------------------- early stopping


def rungs_table(snapshot: Snapshot) -> str:
    """Return the number of decisions at every rung, by kind."""
    counts: dict[int, Counter[str]] = {}
    at: dict[int, int] = {}
    for row in snapshot.decisions:
        counts.setdefault(row.rung, Counter())[row.action] += 1
        at[row.rung] = min(row.env_steps, at.get(row.rung, row.env_steps))
    actions = [a for a in _ACTIONS if any(count[a] for count in counts.values())]
    rows = [
        [
            Cell(steps(at[rung]), at[rung]),
            Cell(str(sum(counts[rung].values())), sum(counts[rung].values())),
            *(Cell(str(counts[rung][action]), counts[rung][action]) for action in actions),
        ]
        for rung in sorted(counts)
    ]
    header = ("env steps", "compared", *(_ACTIONS[action] for action in actions))
    return table("Decisions at rungs", header, rows, right=[True] * len(header))


_ACTIONS = {
    "continue": "continued",
    "stop": "stopped",
    "audit": "would have stopped (audit)",
    "finish": "finished",
    "pause": "paused",
    "promote": "resumed later",
    "copy": "copied another trial",
}


def audit_table(audit: Audit) -> str:
    """Return the audit rung by rung."""
    rows = [_audited(rung, str(rung.rung)) for rung in audit.rungs]
    if len(rows) > 1:
        rows.append(_audited(audit.whole, "all"))
    header = ("rung", "env steps", "stopped", "audited", "wrong", "share", "95% interval",
              "tied", "better than all", "tau with final values")  # fmt: skip
    right = (False, True, True, True, True, True, False, True, True, True)
    return table("Audit of early stopping", header, rows, right=right)


def _audited(rung: AuditedRung, name: str) -> list[Cell]:
    return [
        Cell(name),
        Cell("" if rung.env_steps is None else steps(rung.env_steps), rung.env_steps),
        Cell(str(rung.stopped), rung.stopped),
        Cell(str(rung.audited), rung.audited),
        Cell(str(rung.wrong), rung.wrong),
        Cell("" if rung.share is None else f"{rung.share:.0%}", rung.share),
        Cell(_percent(rung)),
        Cell(str(rung.level), rung.level),
        Cell(str(rung.winners), rung.winners),
        Cell("" if rung.correlation is None else f"{rung.correlation:.2f}", rung.correlation),
    ]


def _percent(rung: AuditedRung) -> str:
    known = rung.low is not None and rung.high is not None
    return f"[{rung.low:.0%}, {rung.high:.0%}]" if known else ""
