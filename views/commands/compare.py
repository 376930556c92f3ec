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
from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ...errors import ConfigError, StoreError, counted
from ...search.analysis.across_environments import (
    EnvironmentScores,
    environment_scores,
    leave_one_out,
)
from ...search.analysis.checkpoint_values import fresh_seeds, read_points
from ...search.analysis.verdict import apart, ceiling_of, evaluated_in
from ...store.codec import finite_json
from ...store.comparison import WORDS, Comparison, compare
from ...store.interim_analyses import Look, earlier_looks, looks_of
from ...store.journal import Journal
from ...store.leaderboard import Entry, leaderboard_of
from ...store.paired import FEWEST_PAIRS, Bounds
from ...store.rows import Stream, StudyMeta, TrialRow
from ...store.score_tables import BySeed, beside, on_each, profiles
from ...store.statistics import interval
from ...store.study_folder import StudyFolder, find_study, trials_seen
from ...store.value_bounds import value_bounds
from ...studies.load import recorded
from ...studies.yaml_io import plain, read_text
from ..environment_text import AGGREGATES_NOTE, beside_lines, left_out_text
from ..escape_control import note
from ..formatting import aligned, between, number, steps
from ..json_output import print_answer
from ..leaderboard_text import target
from ..terminal.console import in_columns


def environment_part(
    names: Sequence[str], ours: BySeed, theirs: BySeed, paired: bool
) -> tuple[dict[str, Any], list[str]]:
    """Return what two sides show on several environments, as plain data and as lines.

    Args:
        names: of the environments; none where there is one alone.
        ours: scores of A by seed.
        theirs: of B.
        paired: replicate i of both is the same seed; common ones are compared then.
    """
    if not names or not ours or not theirs:
        return {}, []
    sides = (ours, theirs)
    if paired:
        common = ours.keys() & theirs.keys()
        sides = ({n: ours[n] for n in sorted(common)}, {n: theirs[n] for n in sorted(common)})
    found = beside(*sides, paired=paired)
    told = [on_each(side) for side in sides]
    data = {
        "names": list(names),
        **found.as_json(),
        "together": [{over: asdict(one) for over, one in side.together.items()} for side in told],
        "scores": [[asdict(one) for one in side.each] for side in told],
        "profiles": [asdict(one) for one in profiles(sides)],
    }
    lines = ["", *beside_lines(names, sides, found), AGGREGATES_NOTE, ""]
    return {"environments": finite_json(data)}, lines


def print_left_out(folder: StudyFolder, as_json: bool) -> None:
    """Print what choices without one environment get there.

    Raises:
        ConfigError: the study is over one environment, or has several objectives.
        StoreError: no trial has finished its run.
    """
    with Journal(folder.path) as journal, journal.at_one_commit():
        found = leave_one_out(journal)
    print_answer(as_json, finite_json(found.as_json()), left_out_text(found))


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
        values: by stream, the value of each seed with a full run.
        partial: streams on which its runs belong to a confirm stage that did not come to its end.
        world: what it was evaluated in: the environment's id, every key and parameter.
        scores: of several environments, those of its study.
        looks: at how many test seeds trials of its study were seen.
        at: env steps per seed of the values, where these are not full runs.
    """

    name: str
    study: str
    seed: int
    trial: int
    wins: bool
    values: Mapping[Stream, _Seeds]
    partial: Set[Stream]
    world: Mapping[str, Any]
    scores: EnvironmentScores
    looks: tuple[Look, ...]
    at: int | None = None


@dataclass(frozen=True)
class _Chosen:
    """Which values are compared.

    Attributes:
        values: of both sides.
        paired: value i of both comes from the same seed.
        caution: that a side is flattered, or "".
        streams: of the values of either side.
        at: env steps per seed, where these are not full runs.
        goal: of the study.
        earlier: of how many of the pairs earlier looks at them were.
        bounds: between which the mean of either side can be.
    """

    values: list[list[float]]
    paired: bool
    caution: str
    streams: tuple[Stream, Stream]
    at: int | None = None
    goal: str = "maximize"
    earlier: tuple[int, ...] = ()
    bounds: Bounds = field(default_factory=Bounds)


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
    chosen = replace(_compared(*sides), goal=meta.goal, bounds=value_bounds(meta))
    ours, theirs = chosen.values
    study = plain(read_text(meta.study_text, "study.resolved.yaml"))
    result = compare(
        ours, theirs, meta.goal, chosen.paired, chosen.earlier, ceiling_of(study, meta)
    )
    differs = apart(sides[0].world, sides[1].world)
    verdict = (
        f"no verdict: they were evaluated in different environments ({differs})"
        if differs
        else result.sentence()
    )
    seeds = [one.scores.of(one.trial, at) for one, at in zip(sides, chosen.streams, strict=True)]
    names = () if differs else sides[0].scores.names
    on_each, lines = environment_part(names, seeds[0], seeds[1], chosen.paired)
    data = {"a": sides[0].name, "b": sides[1].name, "metric": meta.metric}
    unpaired = "" if chosen.paired else _unpaired(*sides)
    data |= {**result.as_json(), **on_each}
    data |= {"decision": None if differs else result.verdict, "verdict": verdict}
    data |= {"caution": chosen.caution, "unpaired": unpaired, "at": chosen.at}
    more = [unpaired, *lines] if unpaired else lines
    which = "" if sides[0].study != sides[1].study else target(Path(sides[0].study))
    text = _text(result, sides, chosen, differs, more, which)
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
        partial = stream in a.partial | b.partial and len(shared) < FEWEST_PAIRS
        if partial and _has_others(a, b, stream):
            continue
        paired = ours.keys() == theirs.keys() or len(shared) >= FEWEST_PAIRS
        values = [[side[seed] for seed in shared] if paired else list(side.values())
                  for side in (ours, theirs)]  # fmt: skip
        caution = "" if a.at is not None else _flattered(stream, a, b)
        earlier = _earlier(a, b, shared) if paired and stream is Stream.REPORT else ()
        return _Chosen(values, paired, caution, (stream, stream), a.at, earlier=earlier)
    raise StoreError(
        f"{a.name} and {b.name} have no seeds in common: {a.name} has {_held(a)}, {b.name} "
        f"{_held(b)}; to train both on test seeds: hpo confirm {a.trial} {b.trial}"
    )


def _has_others(a: _Side, b: _Side, stream: Stream) -> bool:
    """Return whether both sides have values on another stream, all of whose runs ended."""
    whole = [s for s in Stream if s is not stream and s not in a.partial | b.partial]
    return any(a.values.get(s) and b.values.get(s) for s in whole)


def _earlier(a: _Side, b: _Side, shared: Sequence[tuple[str, int]]) -> tuple[int, ...]:
    """Return of how many of these pairs of test seeds earlier looks were."""
    now = max(seed for _, seed in shared) + 1
    sizes = earlier_looks(a.looks, a.trial, b.trial, now)
    return tuple(sum(seed < size for _, seed in shared) for size in sizes)


def _held(side: _Side) -> str:
    """Return in words which seeds a side has values of."""
    held = [
        f"{len(side.values[stream])} {kind} seed{'s' * (len(side.values[stream]) != 1)}"
        for stream, kind in sorted(_KINDS.items(), key=lambda pair: pair[1])
        if side.values.get(stream)
    ]
    return " and ".join(held)


def _unpaired(a: _Side, b: _Side) -> str:
    """Return which seeds each side has, and what to type to compare them seed by seed."""
    if a.seed != b.seed:
        return (
            f"{a.name} ran with `seed: {a.seed}`, {b.name} with `seed: {b.seed}`. To pair them, "
            f"run {b.name}'s file again with --set seed={a.seed} --name {b.name}-seed{a.seed}."
        )
    said = f"{a.name} has {_held(a)}, {b.name} {_held(b)}"
    if a.study == b.study:
        return f"{said}; not all are the same ones."
    most = max(len(side.values[Stream.REPORT]) for side in (a, b))
    wanted = max(most, FEWEST_PAIRS)
    return (
        f"{said}. Test seeds are the same in both: run the files again with --set "
        f"confirm.report={wanted}, which adds those that are missing."
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
            cautions.append(f"The {seeds} of {side.name} also selected it, so its mean is high.")
    return _Chosen(values, False, " ".join(cautions), (streams[0], streams[1]))


def _flattered(stream: Stream, a: _Side, b: _Side) -> str:
    """Return a note if these seeds selected one of them, else ""."""
    if stream is Stream.REPORT:
        return ""
    winners = [side.name for side in (a, b) if side.wins]
    if len(winners) != 1:
        return ""
    return f"These seeds also picked {winners[0]} as the winner, so its mean is a little high."


# ---------------------------------------------------------------------- the two sides


def _trials(folder: StudyFolder, numbers: tuple[int, int]) -> tuple[StudyMeta, list[_Side]]:
    board = _board(folder)
    for trial in numbers:
        if trial not in board.rows:
            raise StoreError(
                f"study {folder.name!r} has no trial {trial}; see: hpo top {folder.name}"
            )
    whole = [
        board.entries[n].value is not None or any(board.fresh.get((n, s)) for s in _FRESH)
        for n in numbers
    ]
    common = None if all(whole) else _last_common(folder, numbers)
    sides = [_side(folder, board, number, f"trial {number}", common) for number in numbers]
    return board.meta, sides


_FRESH = (Stream.CHOOSE, Stream.REPORT)
_Common = tuple[int, Mapping[int, Sequence[float]]]
"""Env steps, and the value of every seed of either trial there."""


def _last_common(folder: StudyFolder, numbers: tuple[int, int]) -> _Common:
    """Return the values of two trials at the latest env steps at which both were evaluated.

    Raises:
        StoreError: there are none.
    """
    points = read_points(folder.path)
    found = [{at for kind, trial, at in points.seeds if kind == Stream.SEARCH and trial == number}
             for number in numbers]  # fmt: skip
    if not (both := found[0] & found[1]):
        raise StoreError(
            f"trials {numbers[0]} and {numbers[1]} of {folder.name!r} were not evaluated at equal "
            f"env steps; to compare full runs: hpo confirm {numbers[0]} {numbers[1]}"
        )
    at = max(both)
    return at, {n: points.seeds[str(Stream.SEARCH), n, at] for n in numbers}


def _studies(a: str, b: str, root: Path) -> tuple[StudyMeta, list[_Side]]:
    sides, metas = [], []
    for name in (a, b):
        folder = find_study(name, root, note)
        board = _board(folder)
        first = min(board.entries.values(), key=lambda entry: entry.rank, default=None)
        if first is None:
            raise StoreError(f"study {name!r} has no trial yet")
        sides.append(_side(folder, board, first.trial, name))
        metas.append(board.meta)
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


@dataclass(frozen=True)
class _Board:
    """What a study holds, as of one commit.

    Attributes:
        rows, entries: its trials, and their places on the leaderboard, by number.
        scores: over several environments.
        fresh: (trial, stream) -> replicate -> value, of every run on fresh seeds that ended.
        looks: at how many test seeds trials were seen.
    """

    meta: StudyMeta
    rows: Mapping[int, TrialRow]
    entries: Mapping[int, Entry]
    scores: EnvironmentScores
    fresh: Mapping[tuple[int, Stream], Mapping[int, float]]
    looks: tuple[Look, ...]


def _side(
    folder: StudyFolder, board: _Board, number: int, name: str, common: _Common | None = None
) -> _Side:
    """Return the values of a trial by their seeds, and what they were measured in.

    Args:
        folder: of the study.
        board: what it holds.
        number: the trial's.
        name: what to call it.
        common: its values are these, at an earlier point than the end of its run.
    """
    row, entry, meta = board.rows[number], board.entries[number], board.meta
    whole = entry.value is not None and entry.values  # else they come from an earlier point
    fresh = {
        stream: board.fresh.get((number, stream), {}) for stream in (Stream.CHOOSE, Stream.REPORT)
    }
    if common is None and not (whole or any(fresh.values())):
        raise StoreError(
            f"trial {row.trial} of {folder.name!r} is {entry.state.value} and has no value of a "
            "full run; compare trials that finished"
        )
    study = recorded(meta.study_text)
    kind = str(Stream.SEARCH)
    if study.seeds.tolerate and len(row.seed_values) < study.seeds.per_config:
        # Some replicates diverged; which ones was not recorded.
        kind = f"search of trial {row.trial}"
    searched = row.seed_values if whole else ()
    if common is not None:
        searched, fresh = common[1][number], {}
    values: dict[Stream, _Seeds] = {
        Stream.SEARCH: {(kind, index): value for index, value in enumerate(searched)}
    }
    for stream, known in fresh.items():
        finite = {seed: value for seed, value in known.items() if math.isfinite(value)}
        values[stream] = {(str(stream), seed): value for seed, value in finite.items()}
    told = {Stream.CHOOSE: row.choose_values, Stream.REPORT: row.by_report_seed}
    return _Side(
        name=name,
        study=str(folder.path.resolve()),
        seed=study.seed,
        trial=row.trial,
        wins=entry.rank == 1,
        values=values,
        partial={s for s, known in told.items() if fresh.get(s) and not known},
        world=evaluated_in(plain(read_text(meta.study_text, "study.resolved.yaml")), row.params),
        scores=board.scores,
        looks=board.looks,
        at=None if common is None else common[0],
    )


def _board(folder: StudyFolder) -> _Board:
    with Journal(folder.path) as journal, journal.at_one_commit():
        rows = {row.trial: row for row in trials_seen(journal)}
        meta = journal.meta
        scores = environment_scores(journal, list(rows.values()))
        fresh, looks = fresh_seeds(journal), looks_of(journal.attributes())
    entries = {entry.trial: entry for entry in leaderboard_of(meta, list(rows.values()))}
    return _Board(meta, rows, entries, scores, fresh, looks)


# ---------------------------------------------------------------------- the words

_KINDS = {Stream.REPORT: "test", Stream.CHOOSE: "selection", Stream.SEARCH: "search"}
_LISTED = 8
_ENOUGH = 8


def _text(
    result: Comparison,
    sides: Sequence[_Side],
    chosen: _Chosen,
    differs: str,
    more: Sequence[str],
    which: str,
) -> str:
    """Return the verdict, the values behind it, and what would decide where it is open."""
    verdict = _verdict(result, sides, chosen)
    if differs:
        verdict = f"No verdict: they were evaluated in different environments ({differs})."
    lines = [verdict, "", *_values(sides, chosen, result)]
    if result.paired and not differs:
        lines.append(_seed_by_seed(result, sides, chosen))
    lines += ["", chosen.caution] if chosen.caution else []
    lines += ["", *more] if more else []
    if not differs and result.verdict == "undecided":
        lines += ["", *_what_decides(result, sides, chosen, which)]
    return "\n".join(lines)


def _verdict(result: Comparison, sides: Sequence[_Side], chosen: _Chosen) -> str:
    """Return the verdict with its numbers."""
    a, b = (side.name for side in sides)
    seeds = _seeds_words(result, chosen)
    word = WORDS[result.verdict][:1].upper() + WORDS[result.verdict][1:]
    if result.equal:
        return f"{word}: {a} and {b} have the same value on each of {seeds}."
    if result.difference == 0.0:
        return f"{word}: {a} and {b} have the same mean on {seeds}."
    sign = -1.0 if result.difference < 0.0 else 1.0
    ahead, behind = (a, b) if sign > 0 else (b, a)
    low, high = result.difference_interval.low, result.difference_interval.high
    ends = sorted((sign * low, sign * high)) if low is not None and high is not None else None
    by = f"{abs(result.difference):.4g}" + (f" [{ends[0]:.4g}, {ends[1]:.4g}]" if ends else "")
    if result.verdict in ("better", "worse"):
        first = ahead.replace("trial ", "Trial ") if ahead.startswith("trial ") else ahead
        return f"{first} is better than {behind}: by {by} on {seeds}."
    return f"{word}: {ahead} leads {behind} by {by} on {seeds}."


def _seeds_words(result: Comparison, chosen: _Chosen) -> str:
    kinds = list(dict.fromkeys(_KINDS[stream] for stream in chosen.streams))
    kind = f"{kinds[0]} " if len(kinds) == 1 else ""
    at = "" if chosen.at is None else f" at {steps(chosen.at)} env steps, the last both reached"
    if result.paired:
        return f"{result.seeds[0]} shared {kind}seed{'s' * (result.seeds[0] != 1)}{at}"
    return f"{result.seeds[0]} and {result.seeds[1]} {kind}seeds, not paired{at}"


def _values(sides: Sequence[_Side], chosen: _Chosen, result: Comparison) -> list[str]:
    """Return a line per side: its mean, its interval, and its values where they are few."""
    rows: list[list[str]] = []
    for side, values, mean in zip(sides, chosen.values, result.means, strict=True):
        around = chosen.bounds.around(interval(values))
        few = " ".join(f"{value:.4g}" for value in values) if len(values) <= _LISTED else ""
        rows.append([f"  {side.name}", number(mean), between(around.low, around.high), few])
    header = ("  ", "mean", "95% interval", "every seed" if any(row[3] for row in rows) else "")
    used = [at for at in range(4) if any(row[at] for row in rows)]
    lines = aligned([header[n] for n in used], [[row[n] for n in used] for row in rows],
                    [n == 1 for n in used]).split("\n")  # fmt: skip
    return [lines[0], *lines[2:]]


def _seed_by_seed(result: Comparison, sides: Sequence[_Side], chosen: _Chosen) -> str:
    """Return how many seeds each side won, and how likely the better one wins on a new seed."""
    sign = 1.0 if chosen.goal == "maximize" else -1.0
    apart = [sign * (x - y) for x, y in zip(*chosen.values, strict=True)]
    ahead = 1 if result.difference < 0.0 else 0
    own = -1.0 if ahead else 1.0
    wins, losses = sum(own * d > 0 for d in apart), sum(own * d < 0 for d in apart)
    ties = len(apart) - wins - losses
    said = f"  Seed by seed {sides[ahead].name} wins {wins}, ties {ties}, loses {losses}."
    if result.verdict not in ("better", "worse"):
        return said
    chance, spread = result.probability, result.probability_interval
    low, high = spread.low, spread.high
    if ahead:
        chance = 1.0 - chance
        low, high = (None if end is None else 1.0 - end for end in (high, low))
    return f"{said} On a new seed: {chance:.2f} {between(low, high, '.2f')}".rstrip() + " to win."


def _what_decides(
    result: Comparison, sides: Sequence[_Side], chosen: _Chosen, which: str
) -> list[str]:
    """Return what to type to get a verdict."""
    more = result.more_seeds or 0
    if sides[0].study != sides[1].study:
        return [f"About {more} more test seeds of each would decide."] if more else []
    known = result.seeds[0] if chosen.streams[0] is Stream.REPORT and result.paired else 0
    wanted = max(_ENOUGH, known + more)
    trials = " ".join(str(side.trial) for side in sides)
    with Journal(Path(sides[0].study)) as journal:
        ended = journal.head().phase == "finished"
    first = "To decide, train both" if ended else "Once the study has finished, decide"
    return [f"{first} on {wanted} test seeds:  hpo confirm {trials} --seeds {wanted}{which}"]
