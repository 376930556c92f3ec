"""The tables of a report: leaderboard, baselines, decisions at rungs, and the audit."""

from __future__ import annotations

import json
from collections import Counter
from html import escape
from typing import Any

from ...store.audits import Audit, AuditedRung
from ...store.environment_columns import environment_names
from ..charts.snapshot import Snapshot
from ..formatting import between, number, param, steps
from ..leaderboard_text import (
    EXPLAINED,
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
        scores = [e.scores[at] if e.scores else None for e in entries]
        cells = [Cell("" if v is None else number(v), _sortable(v)) for v in scores]
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
    notes: list[str] = []
    if snapshot.meta.environments:
        notes.append("Under an environment: its score; 0 random actions, 1 the reference.")
    if knobs.same:
        notes.append(escape(knobs.same_words))
    if len(entries) < len(snapshot.entries):
        notes.append(
            f"The first {len(entries)} of {len(snapshot.entries):,} trials; for all: "
            "<code>hpo top -n 1000000</code>, or <code>trials.parquet</code>."
        )
    explained = "" if names else (
        "<details><summary>What the columns mean</summary>"
        f"<pre>{escape(EXPLAINED)}</pre></details>"
    )  # fmt: skip
    return text + "".join(f'<p class="note">{note}</p>' for note in notes) + explained


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
    listing = baselines_listing(snapshot.baselines)
    sorts = [(None, e.value, None, None, e.difference, None) for e in snapshot.baselines]
    rows = [list(map(Cell, texts, by)) for texts, by in zip(listing.rows, sorts, strict=True)]
    return table("Baselines", listing.header, rows, right=listing.right)


def rungs_table(snapshot: Snapshot) -> str:
    counts: dict[int, Counter[str]] = {}
    at: dict[int, int] = {}
    for row in snapshot.decisions:
        counts.setdefault(row.rung, Counter())[row.action] += 1
        at[row.rung] = min(row.env_steps, at.get(row.rung, row.env_steps))
    actions = [a for a in _ACTIONS if any(count[a] for count in counts.values())]
    rows = [
        [Cell(steps(at[rung]), at[rung]), *map(_count, [counts[rung].total(),
                                                        *(counts[rung][a] for a in actions)])]
        for rung in sorted(counts)
    ]  # fmt: skip
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
    rows = [_audited(rung, str(rung.rung)) for rung in audit.rungs]
    if len(rows) > 1:
        rows.append(_audited(audit.whole, "all"))
    header = ("rung", "env steps", "stopped", "audited", "wrong", "share", "95% interval",
              "tied", "better than all", "tau with final values")  # fmt: skip
    right = (False, True, True, True, True, True, False, True, True, True)
    return table("Audit of early stopping", header, rows, right=right)


def _audited(rung: AuditedRung, name: str) -> list[Cell]:
    share, tau = rung.share, rung.correlation
    return [
        Cell(name),
        Cell("" if rung.env_steps is None else steps(rung.env_steps), rung.env_steps),
        *map(_count, (rung.stopped, rung.audited, rung.wrong)),
        Cell("" if share is None else f"{share:.0%}", share),
        Cell(between(rung.low, rung.high, ".0%")),
        *map(_count, (rung.level, rung.winners)),
        Cell("" if tau is None else f"{tau:.2f}", tau),
    ]


def _count(count: int) -> Cell:
    return Cell(str(count), count)
