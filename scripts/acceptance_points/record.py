"""docs/reference/acceptance.md: one row per point, rewritten whenever the point is checked."""

from __future__ import annotations

import datetime
import subprocess
from dataclasses import dataclass

from .common import ROOT

PAGE = ROOT / "docs" / "reference" / "acceptance.md"
_HEAD = """\
# Acceptance

This page lists what the project promises and the last result of each check.
`scripts/acceptance AREA POINT` runs a check and rewrites its row; `--small` runs a short form and
rewrites nothing. A `+` after the commit means that files had changed since that commit.

| area | point | promise | seen | numbers | seconds | date | commit |
|---|---|---|---|---|---|---|---|
"""


@dataclass(frozen=True)
class Row:
    """The observations for one point."""

    area: str
    number: int
    promise: str
    passed: bool
    numbers: str
    seconds: float

    def text(self, date: str, commit: str) -> str:
        """Return the row of the table."""
        word = "PASS" if self.passed else "**FAIL**"
        numbers = self.numbers.replace("|", "/").replace("\n", " ")
        cells = (self.area, self.number, self.promise, word, numbers, f"{self.seconds:.0f}")
        return "| " + " | ".join(map(str, (*cells, date, commit))) + " |"


def record(row: Row) -> None:
    """Write a row in place of the previous one."""
    text = PAGE.read_text(encoding="utf-8") if PAGE.exists() else _HEAD
    PAGE.write_text(
        updated(text, row, datetime.date.today().isoformat(), _commit()), encoding="utf-8"
    )


def updated(page: str, row: Row, date: str, commit: str) -> str:
    """Return the page with this row; rows are ordered by area and number."""
    lines = page.splitlines()
    keys = {i: key for i, line in enumerate(lines) if (key := _key(line)) is not None}
    rows = {key: lines[i] for i, key in keys.items()}
    rows[row.area, row.number] = row.text(date, commit)
    rule = next(i for i, line in enumerate(lines) if line.startswith("|---"))
    first = min(keys, default=rule + 1)
    kept = [line for i, line in enumerate(lines) if i not in keys]
    kept[first:first] = [rows[key] for key in sorted(rows)]
    return "\n".join(kept) + "\n"


def _key(line: str) -> tuple[str, int] | None:
    cells = [cell.strip() for cell in line.split("|")]
    if len(cells) < 9 or not cells[2].isdigit():
        return None
    return cells[1], int(cells[2])


def _commit() -> str:
    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", *words], cwd=ROOT, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    changed = git(
        "status", "--porcelain", "--untracked-files=no", "--", ":!docs/reference/acceptance.md"
    )
    return git("rev-parse", "--short", "HEAD") + ("+" if changed else "")
