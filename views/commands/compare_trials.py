"""`hpo compare`: which of two trials, or of the best of two studies, is better.

`--leave-one-out` asks a study over several environments what its choice is worth elsewhere.

Values are compared on the seeds that both ran on, or else on seeds that selected neither; a note
says where the seeds selected one of them. Studies of one `seed` share the seeds of their
replicates. There is no verdict across different environments.
"""

from __future__ import annotations

import math
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import ConfigError, StoreError
from ...search.after.environment_scores import EnvironmentScores, environment_scores
from ...search.after.evaluated_in import apart, evaluated_in
from ...store.comparison import Comparison, compare
from ...store.journal import Journal
from ...store.leaderboard import Entry, leaderboard_of
from ...store.paired import FEWEST_PAIRS
from ...store.rows import Stream, StudyMeta, TrialRow
from ...store.statistics import Interval
from ...store.study_folder import StudyFolder, find_study
from ...studies.load import recorded
from ...studies.reader import plain, read_text
from ..documents import print_answer
from ..formatting import counted
from ..terminal.console import in_columns
from ..visible import note
from .compare_environments import environment_part, print_left_out

__all__ = ["do_compare"]

_Seeds = Mapping[tuple[str, int], float]
"""(stream, replicate) -> value; replicates of a study share their seeds."""


@dataclass(frozen=True)
class _Side:
    """One side of a comparison.

    Attributes:
        name: of the trial or the study.
        study: its folder.
        seed: that of its study, from which those of its replicates are made.
        trial: its number.
        wins: it is first on the leaderboard of its study.
        values: by stream, the value of each seed.
        world: what it was evaluated in: the environment's id, every key and parameter.
        scores: of several environments, those of its study.
    """

    name: str
    study: str
    seed: int
    trial: int
    wins: bool
    values: Mapping[Stream, _Seeds]
    world: Mapping[str, Any]
    scores: EnvironmentScores


@dataclass(frozen=True)
class _Chosen:
    """Which values are compared.

    Attributes:
        values: of both sides.
        paired: value i of both comes from the same seed.
        caution: that a side is flattered, or "".
        streams: of the values of either side.
    """

    values: list[list[float]]
    paired: bool
    caution: str
    streams: tuple[Stream, Stream]


def do_compare(args: Namespace) -> int:
    """Compare two trials of a study, or the best of two studies.

    Raises:
        ConfigError: a trial against a study, or values of different metrics or environments.
        StoreError: no such trial or study, or one without values.
    """
    root = Path(args.out)
    if args.leave_one_out:
        print_left_out(_one_study(args, root), args.json)
        return 0
    if args.a is None or args.b is None:
        raise ConfigError("compare needs A and B: two trials of one study, or two studies")
    numbers = [_number(word) for word in (args.a, args.b)]
    if numbers == [None, None] and args.study is not None:
        raise ConfigError(
            f"--study {args.study} needs two of its trials; {args.a} and {args.b} are studies"
        )
    if None in numbers and numbers != [None, None]:
        raise ConfigError(
            "compare two trials of one study, or two studies; not a trial with a study"
        )
    if numbers[0] is not None and numbers[1] is not None:
        meta, sides = _trials(find_study(args.study, root, note), (numbers[0], numbers[1]))
    else:
        meta, sides = _studies(args.a, args.b, root)
    chosen = _compared(*sides)
    result = compare(chosen.values[0], chosen.values[1], meta.goal, chosen.paired)
    differs = apart(sides[0].world, sides[1].world)
    verdict = (
        f"no verdict: they were evaluated in different environments ({differs})"
        if differs
        else result.verdict
    )
    seeds = [one.scores.of(one.trial, at) for one, at in zip(sides, chosen.streams, strict=True)]
    names = () if differs else sides[0].scores.names
    on_each, lines = environment_part(names, seeds[0], seeds[1], chosen.paired)
    data = {"a": sides[0].name, "b": sides[1].name, "metric": meta.metric}
    unpaired = "" if chosen.paired else _unpaired(*sides)
    data |= {"caution": chosen.caution, "unpaired": unpaired, "verdict": verdict}
    data |= {**result.as_json(), **on_each}
    more = [f"  {unpaired}", *lines] if unpaired else lines
    text = _text(result, sides, meta, chosen.caution, more, verdict)
    print_answer(args.json, data, in_columns(text, sys.stdout, 2))
    return 0


def _one_study(args: Namespace, root: Path) -> StudyFolder:
    if args.b is not None or (args.a is not None and args.study is not None):
        raise ConfigError("--leave-one-out takes one study: hpo compare STUDY --leave-one-out")
    return find_study(args.a or args.study, root, note)


def _number(word: str) -> int | None:
    return int(word) if word.isascii() and word.removeprefix("-").isdigit() else None


# ---------------------------------------------------------------------- which values


def _compared(a: _Side, b: _Side) -> _Chosen:
    """Return the values of both sides."""
    if a.study != b.study:
        shared = _shared_report(a, b) if a.seed == b.seed else None
        both = (Stream.REPORT, Stream.REPORT)
        return _apart_seeds(a, b) if shared is None else _Chosen(shared, True, "", both)
    for stream in (Stream.REPORT, Stream.CHOOSE, Stream.SEARCH):
        ours, theirs = a.values.get(stream), b.values.get(stream)
        if not ours or not theirs:
            continue
        shared = [seed for seed in ours if seed in theirs]
        paired = ours.keys() == theirs.keys() or len(shared) >= FEWEST_PAIRS
        values = [[side[seed] for seed in shared] if paired else list(side.values())
                  for side in (ours, theirs)]  # fmt: skip
        return _Chosen(values, paired, _flattered(stream, a, b), (stream, stream))
    raise StoreError(
        f"{a.name} and {b.name} have no seeds in common: {a.name} has {_held(a)}, {b.name} "
        f"{_held(b)}; `hpo top` says from which seeds each value is, and the winner and the "
        "default have the report seeds"
    )


def _held(side: _Side) -> str:
    """Return in words which seeds a side has values of."""
    kinds = {
        Stream.SEARCH: "of the search", Stream.CHOOSE: "that chose", Stream.REPORT: "that report"
    }  # fmt: skip
    told = [
        f"{counted(len(side.values[stream]), 'seed')} {words}"
        for stream, words in kinds.items()
        if side.values.get(stream)
    ]
    return " and ".join(told)


def _unpaired(a: _Side, b: _Side) -> str:
    """Return which seeds each side has, and what to type to compare them seed by seed."""
    if a.seed != b.seed:
        return (
            f"A has {_held(a)}, all made from `seed: {a.seed}`, and B {_held(b)}, from `seed: "
            f"{b.seed}`; to compare seed by seed run B's file again with --set seed={a.seed} "
            f"--name {b.name}-seed{a.seed}"
        )
    told = f"A has {_held(a)}, B {_held(b)}"
    if a.study == b.study:
        return f"{told}; not all are the same ones"
    most = max(len(side.values[Stream.REPORT]) for side in (a, b))
    wanted = max(most, FEWEST_PAIRS)
    return (
        f"{told}; only those that report are the same in both: run the files again with --set "
        f"confirm.report={wanted}, which adds what is missing"
    )


def _shared_report(a: _Side, b: _Side) -> list[list[float]] | None:
    """Return the values of the report seeds that both studies ran on; None if they are few."""
    ours, theirs = a.values[Stream.REPORT], b.values[Stream.REPORT]
    both = [seed for seed in ours if seed in theirs]
    if len(both) < min(FEWEST_PAIRS, max(len(ours), len(theirs), 1)):
        return None
    return [[side[seed] for seed in both] for side in (ours, theirs)]


def _apart_seeds(a: _Side, b: _Side) -> _Chosen:
    """Return the best of each study's values, from seeds that did not select it where it can."""
    values: list[list[float]] = []
    cautions: list[str] = []
    streams: list[Stream] = []
    for side in (a, b):
        stream = next(
            s for s in (Stream.REPORT, Stream.CHOOSE, Stream.SEARCH) if side.values.get(s)
        )
        streams.append(stream)
        values.append(list(side.values[stream].values()))
        if stream is not Stream.REPORT:
            seeds = counted(len(values[-1]), "seed")
            cautions.append(f"the {seeds} of {side.name} also selected it, which flatters it")
    return _Chosen(values, False, "; ".join(cautions), (streams[0], streams[1]))


def _flattered(stream: Stream, a: _Side, b: _Side) -> str:
    """Return a note if these seeds selected one of them, else ""."""
    if stream is Stream.REPORT:
        return ""
    winners = [side.name for side in (a, b) if side.wins]
    if len(winners) != 1:
        return ""
    seeds = "these seeds" if stream is Stream.CHOOSE else "these seeds of the search"
    return f"{winners[0]} was selected as the winner on {seeds}, which flatters it a little"


# ---------------------------------------------------------------------- the two sides


def _trials(folder: StudyFolder, numbers: tuple[int, int]) -> tuple[StudyMeta, list[_Side]]:
    meta, rows, entries, scores = _board(folder)
    sides: list[_Side] = []
    for number in numbers:
        if number not in rows:
            raise StoreError(
                f"study {folder.name!r} has no trial {number}; see: hpo top {folder.name}"
            )
        side = _side(folder, meta, rows[number], entries[number], f"trial {number}", scores)
        sides.append(side)
    return meta, sides


def _studies(a: str, b: str, root: Path) -> tuple[StudyMeta, list[_Side]]:
    sides, metas = [], []
    for name in (a, b):
        folder = find_study(name, root, note)
        meta, rows, entries, scores = _board(folder)
        first = min(entries.values(), key=lambda entry: entry.rank, default=None)
        if first is None:
            raise StoreError(f"study {name!r} has no trial yet")
        sides.append(_side(folder, meta, rows[first.trial], first, name, scores))
        metas.append(meta)
    if (metas[0].metric, metas[0].goal) != (metas[1].metric, metas[1].goal):
        raise ConfigError(
            f"{a} measures {metas[0].metric} and {b} {metas[1].metric}; "
            "only values of the same metric can be compared"
        )
    ids = [side.world["env"] for side in sides]
    if ids[0] != ids[1]:
        raise ConfigError(
            f"{a} ran in {ids[0]} and {b} in {ids[1]}; only values from the same environment "
            "can be compared"
        )
    ways = [side.scores.over for side in sides]
    if ways[0] != ways[1]:
        raise ConfigError(
            f"{a} takes the {ways[0]} over environments and {b} the {ways[1]}; only values of "
            "the same over_environments can be compared"
        )
    return metas[0], sides


def _side(
    folder: StudyFolder,
    meta: StudyMeta,
    row: TrialRow,
    entry: Entry,
    name: str,
    scores: EnvironmentScores,
) -> _Side:
    """Return the values of a trial by their seeds, and what they were measured in."""
    whole = entry.value is not None and entry.values  # else they come from an earlier point
    if not (whole or row.report_values):
        raise StoreError(
            f"trial {row.trial} of {folder.name!r} is {entry.state.value} and has no value of a "
            "full run; compare trials that finished"
        )
    study = recorded(meta.study_text)
    streams = {
        Stream.SEARCH: row.seed_values if whole else (),
        Stream.CHOOSE: row.choose_values,
    }
    kinds = {stream: str(stream) for stream in streams}
    if study.seeds.tolerate and len(row.seed_values) < study.seeds.per_config:
        # Some replicates diverged; which ones was not recorded.
        kinds[Stream.SEARCH] = f"search of trial {row.trial}"
    values = {
        stream: {(kinds[stream], index): value for index, value in enumerate(given)}
        for stream, given in streams.items()
    }
    found = {seed: value for seed, value in row.by_report_seed.items() if math.isfinite(value)}
    values[Stream.REPORT] = {(str(Stream.REPORT), seed): value for seed, value in found.items()}
    world = evaluated_in(plain(read_text(meta.study_text, "study.resolved.yaml")), row.params)
    return _Side(
        name, str(folder.path.resolve()), study.seed, row.trial, entry.rank == 1, values, world,
        scores,
    )  # fmt: skip


def _board(
    folder: StudyFolder,
) -> tuple[StudyMeta, dict[int, TrialRow], dict[int, Entry], EnvironmentScores]:
    with Journal(folder.path) as journal, journal.at_one_commit():
        rows = {row.trial: row for row in journal.trials()}
        meta = journal.meta
        scores = environment_scores(journal, list(rows.values()))
    return meta, rows, {e.trial: e for e in leaderboard_of(meta, list(rows.values()))}, scores


# ---------------------------------------------------------------------- the words


def _text(
    result: Comparison,
    sides: Sequence[_Side],
    meta: StudyMeta,
    caution: str,
    more: Sequence[str],
    verdict: str,
) -> str:
    lines = [f"{meta.metric}, {meta.goal}"]
    for letter, side, mean, iqm, count in zip(
        "AB", sides, result.means, result.iqms, result.seeds, strict=True
    ):
        middle = "" if iqm is None else f", IQM {iqm:.4g}"
        lines.append(
            f"  {letter}  {side.name}: mean {mean:.4g}{middle} over {counted(count, 'seed')}"
        )
    lines.append(f"  {_difference(result, sides)}")
    lines.append(
        f"  a run of A beats one of B with probability {result.probability:.2f}"
        f"{_shown(result.probability_interval, '.2f')}"
    )
    lines += [f"  {caution}"] if caution else []
    lines += more
    lines.append(verdict)
    return "\n".join(lines)


def _difference(result: Comparison, sides: Sequence[_Side]) -> str:
    """Return who is ahead and by how much, as a number that is positive for who is."""
    how = "paired by seed"
    if not result.paired:
        shared = sides[0].seed == sides[1].seed
        how = "not paired: not all seeds of one were run by the other" if shared else (
            "not paired: the seeds are different ones"
        )  # fmt: skip
    if result.difference == 0.0:
        around = _shown(result.difference_interval)
        return f"no difference of their means{around and ': 0'}{around}, {how}"
    ahead, low, high = "A", result.difference_interval.low, result.difference_interval.high
    if result.difference < 0.0:
        ahead = "B"
        low, high = (None if end is None else -end for end in (high, low))
    spread = Interval(low, high, result.difference_interval.kind)
    return f"{ahead} is ahead by {abs(result.difference):.4g}{_shown(spread)}, {how}"


def _shown(spread: object, form: str = ".4g") -> str:
    low, high = getattr(spread, "low", None), getattr(spread, "high", None)
    return "" if low is None or high is None else f" [{low:{form}}, {high:{form}}]"
