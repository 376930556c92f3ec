"""Early stopping rules compared over many studies: what each would have saved and lost.

Each study's recorded curves are judged again (`hpo what-if`); studies without early stopping and
with `evaluation: {every: ...}`, or with audits, are the most informative.

    python benchmarks/rules_table.py results/one results/two --out rules.json
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import re
import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from hpo.errors import HpoError
from hpo.search.what_if import WhatIf, WhatIfRow, what_if
from hpo.version import __version__

HEADER = ("rule", "studies", "exact", "stopped", "saved", "best kept")


@dataclass(frozen=True)
class Rule:
    """One rule over all studies.

    Attributes:
        rule: the rule as text, without the first rung, which differs between studies.
        studies, exact: number judged by it, and number of these without any assumption.
        stopped: the median share of trials that it stops.
        saved: the median share of env steps saved.
        kept: the share of studies whose best trial wins, among those where this is known.
    """

    rule: str
    studies: int
    exact: int
    stopped: float
    saved: float
    kept: float


def summary(found: Sequence[WhatIf]) -> list[Rule]:
    """Return the rules over some studies, in the order of their first occurrence."""
    rows: dict[str, list[WhatIfRow]] = {}
    for study in found:
        for row in study.rows:
            rows.setdefault(re.sub(r" min=\d+", "", row.rule), []).append(row)
    return [_rule(name, here) for name, here in rows.items()]


def _rule(name: str, rows: Sequence[WhatIfRow]) -> Rule:
    kept = [row.kept for row in rows if row.kept is not None]
    return Rule(
        rule=name,
        studies=len(rows),
        exact=sum(row.exact for row in rows),
        stopped=_median(
            row.stopped / max(1, row.trials) for row in rows if row.stopped is not None
        ),
        saved=_median(row.saved for row in rows if row.saved is not None),
        kept=statistics.fmean(kept) if kept else 0.0,
    )


def _median(shares: Iterable[float]) -> float:
    """Return the median; NaN if the number is unknown in all studies."""
    known = list(shares)
    return statistics.median(known) if known else math.nan


def table(rules: Sequence[Rule]) -> str:
    """Return the rules as a Markdown table."""
    lines = [f"| {' | '.join(HEADER)} |", f"|{'---|' * len(HEADER)}"]
    for rule in rules:
        cells = (
            rule.rule,
            f"{rule.studies}",
            f"{rule.exact}",
            f"{rule.stopped:.0%}",
            f"{rule.saved:.0%}",
            f"{rule.kept:.0%}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    """Print the table for the given studies; return 2 if one cannot be judged."""
    parser = argparse.ArgumentParser(description="Put rules of early stopping side by side.")
    parser.add_argument("studies", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--early-terminate", action="append", default=[], metavar="RULE")
    parser.add_argument("--out", type=Path, metavar="FILE")
    args = parser.parse_args()
    try:
        found = [what_if(folder, args.early_terminate) for folder in args.studies]
    except HpoError as error:
        print(error, file=sys.stderr)
        return 2
    rules = summary(found)
    print(table(rules))
    if args.out is not None:
        about = {"hpo": __version__, "python": platform.python_version()}
        data = {
            "about": about,
            "rules": [asdict(rule) for rule in rules],
            "studies": [study.as_json() for study in found],
        }
        args.out.write_text(json.dumps(data, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
