"""`hpo importance` and `hpo compare`: which knobs decided, and which of two is better."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ConfigError, StoreError
from ..store.comparison import Comparison, compare
from ..store.journal import Journal
from ..store.leaderboard import Entry, leaderboard_of
from ..store.rows import StudyMeta, TrialRow
from ..store.study_folder import StudyFolder, find_study
from .documents import print_json
from .terminal import knows_blocks
from .words import steps

if TYPE_CHECKING:
    from ..search.looking_back import Importance

__all__ = ["do_compare", "do_importance"]

_BAR = 30


def do_importance(args: Namespace) -> int:
    """Print which knobs decided, at one point of the runs or over all of them.

    Raises:
        ConfigError: too few trials, or no such point.
    """
    from ..search.looking_back import importance_at, importance_over_progress, read_points

    points = read_points(find_study(args.study, Path(args.out)).path)
    if args.over_progress:
        found = importance_over_progress(points, args.all, args.method)
    else:
        found = [importance_at(points, args.at, args.all, args.method)]
    if args.json:
        print_json([_data(item) for item in found])
    else:
        for item in found:
            print(_text(item, knows_blocks(sys.stdout)))
    return 0


def _data(item: Importance) -> dict[str, object]:
    return {
        "at": item.at,
        "trials": item.trials,
        "random_only": item.random_only,
        "random_trials": item.random_trials,
        "method": item.method,
        "shares": dict(item.shares),
    }


def _text(item: Importance, blocks: bool) -> str:
    which = " that no result had led to"
    if not item.random_only:
        which = ", a model's proposals included (biased towards where the model looked)"
    lines = [f"{item.method} at {steps(item.at)} env steps, {item.trials} trials{which}"]
    if item.caution:
        lines.append(f"  {item.caution}")
    width = max(map(len, item.shares), default=0)
    most = max(item.shares.values(), default=0.0)
    for name, share in item.shares.items():
        bar = ("█" if blocks else "#") * round(_BAR * share / most) if most > 0 else ""
        lines.append(f"  {name.ljust(width)}  {share:6.1%}  {bar}".rstrip())
    return "\n".join(lines)


def do_compare(args: Namespace) -> int:
    """Compare two trials of a study, or the best of two studies.

    Raises:
        ConfigError: a trial is compared with a study.
        StoreError: no such trial or study, or one without values.
    """
    root = Path(args.out)
    numbers = [_number(word) for word in (args.a, args.b)]
    if None in numbers and numbers != [None, None]:
        raise ConfigError(
            "compare two trials of one study, or two studies; not one with the other"
        )
    if numbers[0] is not None and numbers[1] is not None:
        folder = find_study(args.study, root)
        meta, sides = _trials(folder, (numbers[0], numbers[1]))
        names = (f"trial {args.a}", f"trial {args.b}")
    else:
        meta, sides = _studies(args.a, args.b, root)
        names = (args.a, args.b)
    result = compare(sides[0].values, sides[1].values, meta.goal, _same_seeds(*sides))
    if args.json:
        print_json({"a": names[0], "b": names[1], "metric": meta.metric, **result.as_json()})
    else:
        print(_comparison_text(result, names, meta))
    return 0


class _Side:
    """One side of a comparison: its values, and the seeds they come from."""

    def __init__(self, row: TrialRow, entry: Entry, study: str):
        fresh = entry.confirmed
        self.values = [*row.choose_values, *row.report_values] if fresh else list(entry.values)
        self.seeds = ("fresh" if fresh else "search", len(self.values), study)


def _same_seeds(a: _Side, b: _Side) -> bool:
    """Whether value i of both comes from the same seed: replicates share them within a study."""
    return a.seeds == b.seeds


def _number(word: str) -> int | None:
    return int(word) if word.isascii() and word.isdigit() else None


def _trials(folder: StudyFolder, numbers: tuple[int, int]) -> tuple[StudyMeta, list[_Side]]:
    meta, rows, entries = _board(folder)
    sides = []
    for number in numbers:
        if number not in rows:
            raise StoreError(f"study {folder.name!r} has no trial {number}; see: hpo top")
        sides.append(_side(folder, rows[number], entries[number]))
    return meta, sides


def _studies(a: str, b: str, root: Path) -> tuple[StudyMeta, list[_Side]]:
    sides, metas = [], []
    for name in (a, b):
        folder = find_study(name, root)
        meta, rows, entries = _board(folder)
        first = min(entries.values(), key=lambda entry: entry.rank, default=None)
        if first is None:
            raise StoreError(f"study {name!r} has no trial yet")
        sides.append(_side(folder, rows[first.trial], first))
        metas.append(meta)
    if (metas[0].metric, metas[0].goal) != (metas[1].metric, metas[1].goal):
        raise ConfigError(
            f"{a} is about {metas[0].metric} and {b} about {metas[1].metric}; "
            "only values of one metric can be compared"
        )
    return metas[0], sides


def _side(folder: StudyFolder, row: TrialRow, entry: Entry) -> _Side:
    side = _Side(row, entry, str(folder.path.resolve()))
    if entry.value is None or not side.values:  # its last values come from an earlier point
        raise StoreError(
            f"trial {row.trial} of {folder.name!r} is {entry.state.value} and has no value of a "
            "full run; compare trials that ran to their end"
        )
    return side


def _board(folder: StudyFolder) -> tuple[StudyMeta, dict[int, TrialRow], dict[int, Entry]]:
    with Journal(folder.path) as journal:
        rows = {row.trial: row for row in journal.trials()}
        meta = journal.meta
    return meta, rows, {e.trial: e for e in leaderboard_of(meta, list(rows.values()))}


def _comparison_text(result: Comparison, names: tuple[str, str], meta: StudyMeta) -> str:
    lines = [f"{meta.metric}, {meta.goal}"]
    for letter, name, mean, iqm, count in zip(
        "AB", names, result.means, result.iqms, result.seeds, strict=True
    ):
        middle = "" if iqm is None else f", IQM {iqm:.4g}"
        lines.append(f"  {letter}  {name}: mean {mean:.4g}{middle} over {count} seeds")
    how = "the same seeds, one by one" if result.paired else "unlike seeds"
    lines.append(
        f"  better by {result.difference:+.4g}{_shown(result.difference_interval)}, {how}"
    )
    lines.append(
        f"  a run of A beats one of B with probability {result.probability:.2f}"
        f"{_shown(result.probability_interval)}"
    )
    lines.append(result.verdict)
    return "\n".join(lines)


def _shown(spread: object) -> str:
    low, high = getattr(spread, "low", None), getattr(spread, "high", None)
    return "" if low is None or high is None else f" [{low:.4g}, {high:.4g}]"
