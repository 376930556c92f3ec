"""`hpo importance` and `hpo compare`: which knobs decided, and which of two is better."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ConfigError, StoreError
from ..store.comparison import FEWEST_SEEDS, Comparison, compare
from ..store.journal import Journal
from ..store.leaderboard import Entry, leaderboard_of
from ..store.rows import Stream, StudyMeta, TrialRow
from ..store.study_folder import StudyFolder, find_study
from ..studies.load import recorded
from .documents import print_json
from .terminal import fitted, knows_blocks
from .visible import echo
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

    if args.over_progress and args.at is not None:
        raise ConfigError("--over-progress is about every point of the runs; leave --at out")
    points = read_points(find_study(args.study, Path(args.out)).path)
    method = args.method or "ped-anova"
    if args.over_progress:
        found = importance_over_progress(points, args.all, method)
    else:
        found = [importance_at(points, args.at, args.all, method)]
    if args.json:
        print_json([_data(item) for item in found])
    else:
        for item in found:
            echo(fitted(_text(item, knows_blocks(sys.stdout)), sys.stdout, 2))
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
    if numbers == [None, None] and args.study is not None:
        raise ConfigError(
            f"--study {args.study} goes with two trials of it; {args.a} and {args.b} are studies"
        )
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
    shared = _shared_seeds(*sides)
    values = [[side[seed] for seed in shared or side] for side in sides]
    result = compare(values[0], values[1], meta.goal, paired=bool(shared))
    caution = _flattered(shared, sides, names)
    if args.json:
        data = {"a": names[0], "b": names[1], "metric": meta.metric, "caution": caution}
        print_json({**data, **result.as_json()})
    else:
        echo(_comparison_text(result, names, meta, caution))
    return 0


_Seed = tuple[str, str, int]
"""(study, stream, replicate); replicates of a study share their seeds."""
_Side = dict[_Seed, float]
"""One side of a comparison: a value a seed."""


def _shared_seeds(a: _Side, b: _Side) -> list[_Seed]:
    """Give the seeds that both ran on, if the comparison is to be made on these alone.

    It is where nobody ran on others, and else where they are enough for an interval.
    """
    shared = [seed for seed in a if seed in b]
    return shared if a.keys() == b.keys() or len(shared) >= FEWEST_SEEDS else []


def _flattered(shared: Sequence[_Seed], sides: Sequence[_Side], names: Sequence[str]) -> str:
    """Say that shared seeds chose the winner; only it ran on others, which chose nothing."""
    chose = any(stream == Stream.CHOOSE for _, stream, _ in shared)
    winners = [
        name
        for name, side in zip(names, sides, strict=True)
        if any(stream == Stream.REPORT for _, stream, _ in side)
    ]
    if not chose or len(winners) != 1:
        return ""
    return f"{winners[0]} was chosen as the winner on these seeds, which flatters it a little"


def _number(word: str) -> int | None:
    return int(word) if word.isascii() and word.isdigit() else None


def _trials(folder: StudyFolder, numbers: tuple[int, int]) -> tuple[StudyMeta, list[_Side]]:
    meta, rows, entries = _board(folder)
    sides: list[_Side] = []
    for number in numbers:
        if number not in rows:
            raise StoreError(f"study {folder.name!r} has no trial {number}; see: hpo top")
        sides.append(_side(folder, meta, rows[number], entries[number]))
    return meta, sides


def _studies(a: str, b: str, root: Path) -> tuple[StudyMeta, list[_Side]]:
    sides, metas = [], []
    for name in (a, b):
        folder = find_study(name, root)
        meta, rows, entries = _board(folder)
        first = min(entries.values(), key=lambda entry: entry.rank, default=None)
        if first is None:
            raise StoreError(f"study {name!r} has no trial yet")
        sides.append(_side(folder, meta, rows[first.trial], first))
        metas.append(meta)
    if (metas[0].metric, metas[0].goal) != (metas[1].metric, metas[1].goal):
        raise ConfigError(
            f"{a} is about {metas[0].metric} and {b} about {metas[1].metric}; "
            "only values of one metric can be compared"
        )
    return metas[0], sides


def _side(folder: StudyFolder, meta: StudyMeta, row: TrialRow, entry: Entry) -> _Side:
    """Give the values of a trial by their seeds."""
    if entry.value is None or not entry.values:  # its last values come from an earlier point
        raise StoreError(
            f"trial {row.trial} of {folder.name!r} is {entry.state.value} and has no value of a "
            "full run; compare trials that ran to their end"
        )
    streams: dict[str, Sequence[float]] = {Stream.SEARCH: entry.values}
    if entry.confirmed:
        streams = {Stream.CHOOSE: row.choose_values, Stream.REPORT: row.report_values}
    seeds = recorded(meta.study_text).seeds
    if not entry.confirmed and seeds.tolerate and len(entry.values) < seeds.per_config:
        # Some replicates diverged, and nobody wrote down which.
        streams = {f"search of trial {row.trial}": entry.values}
    study = str(folder.path.resolve())
    return {
        (study, str(stream), index): value
        for stream, values in streams.items()
        for index, value in enumerate(values)
    }


def _board(folder: StudyFolder) -> tuple[StudyMeta, dict[int, TrialRow], dict[int, Entry]]:
    with Journal(folder.path) as journal:
        rows = {row.trial: row for row in journal.trials()}
        meta = journal.meta
    return meta, rows, {e.trial: e for e in leaderboard_of(meta, list(rows.values()))}


def _comparison_text(
    result: Comparison, names: tuple[str, str], meta: StudyMeta, caution: str
) -> str:
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
    lines += [f"  {caution}"] if caution else []
    lines.append(result.verdict)
    return "\n".join(lines)


def _shown(spread: object) -> str:
    low, high = getattr(spread, "low", None), getattr(spread, "high", None)
    return "" if low is None or high is None else f" [{low:.4g}, {high:.4g}]"
