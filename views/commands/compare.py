"""`hpo compare`: which of two trials, or of the best trials of two studies, is better.

Values are compared on the seeds that both ran on, preferably test seeds. Seeds that ranked the
trials give no verdict: two trials picked from a leaderboard differ on its seeds even if they are
equal, and a test on the same seeds would be wrong in a third of studies. In that case the output
is the difference, and the command that runs both trials on test seeds. Studies with the same
`seed` share their replicates' seeds. Trials in different environments get no verdict.
"""

from __future__ import annotations

import math
import sys
from argparse import Namespace
from bisect import bisect_left
from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ...errors import ConfigError, StoreError, counted
from ...search.analysis.across_environments import EnvironmentScores, environment_scores
from ...search.analysis.checkpoint_values import (
    CheckpointValues,
    fresh_seeds,
    ranking_objective,
    read_points,
)
from ...search.analysis.verdict import apart, conclusion_of, evaluated_in
from ...store.aggregate_environments import (
    Beside,
    BySeed,
    Estimate,
    OnEach,
    OneEnvironment,
    beside,
    of_seeds,
    on_each,
    profiles,
)
from ...store.codec import finite_json
from ...store.comparison import WORDS, Comparison, compare
from ...store.interim_analyses import (
    Look,
    begins_interim,
    earlier_looks,
    looks_of,
    pair_begins_interim,
    winners_looks,
)
from ...store.journal import Journal
from ...store.leaderboard import leaderboard_of
from ...store.mean_difference import FEWEST_PAIRS
from ...store.rows import Stream, StudyMeta, TrialRow
from ...store.statistics import NO_INTERVAL, constant, sign_of
from ...store.study_folder import StudyFolder, find_study, trials_seen
from ...store.study_verdict import COPIES_REMEDY, copies_sentence
from ...store.unobserved import Bounds, bounded_interval
from ...store.value_bounds import value_bounds
from ...studies.algorithm import ENV_STEPS
from ...studies.load import recorded
from ...studies.spec import Study
from ...studies.yaml_io import plain, read_text
from ..environment_text import AGGREGATES_NOTE, beside_lines
from ..formatting import (
    SEED_KINDS,
    aligned,
    between,
    number,
    seeds_text,
    steps,
    unit_of,
    with_interval,
)
from ..leaderboard_text import deciding_command, seeds_to_propose, target
from ..output import note, print_answer
from ..terminal.console import in_columns
from ..time_spent import confirm_command, confirm_cost
from ..trial_view import TrialView

_Seeds = Mapping[tuple[str, int], float]
"""(stream, replicate) -> value; replicates of a study share their seeds."""
_FRESH = (Stream.CHOOSE, Stream.REPORT)
_LISTED = 8  # largest number of values per side that are printed one by one


def _environment_part(
    sides: Sequence[_Side], chosen: _ComparedTrials, *, decides: bool
) -> tuple[dict[str, Any], list[str]]:
    """Return the scores on each of several environments, as JSON data and as lines."""
    names, bounds = sides[0].scores.names, sides[0].scores.bounds
    ours, theirs = map(_scores_of, sides, chosen.streams)
    if not names or not ours or not theirs:
        return {}, []
    if chosen.paired:
        common = sorted(ours.keys() & theirs.keys())
        ours, theirs = of_seeds(ours, common), of_seeds(theirs, common)
    found = beside(ours, theirs, paired=chosen.paired, bounds=bounds)
    if not decides:
        found = _without_intervals(found)
    told = [on_each(side, bounds) for side in (ours, theirs)]
    data = {
        "names": list(names),
        **asdict(found),
        "together": [_together(side) for side in told],
        "scores": [list(map(asdict, side.each)) for side in told],
        "profiles": [asdict(one) for one in profiles((ours, theirs))],
    }
    called = [one.name for one in sides]
    lines = beside_lines(names, (ours, theirs), found, called, bounds)
    return {"environments": finite_json(data)}, ["", *lines, AGGREGATES_NOTE]


def _scores_of(side: _Side, stream: Stream) -> BySeed:
    return side.scores.of(side.trial, stream)


def _together(side: OnEach) -> dict[str, Any]:
    return {over: asdict(one) for over, one in side.together.items()}


def _without_intervals(found: Beside) -> Beside:
    """Return differences on seeds that ranked the trials, without intervals."""
    each = [
        OneEnvironment(Estimate(one.difference.value), Estimate(one.probability.value))
        for one in found.each
    ]
    differences = {over: Estimate(one.value) for over, one in found.differences.items()}
    improvement = Estimate(found.improvement.value)
    return replace(found, each=tuple(each), differences=differences, improvement=improvement)


@dataclass(frozen=True)
class _Side:
    name: str
    study: str  # folder of the study
    seed: int  # seed of the study
    trial: int
    wins: bool
    values: Mapping[Stream, _Seeds]  # of each seed with a full run
    partial: Set[Stream]  # those whose confirm stage did not finish
    unfit: bool  # whether it violates a constraint
    world: Mapping[str, Any]  # id, keys and parameters of the environment
    weight: float  # weight of training returns, except on test seeds
    scores: EnvironmentScores
    looks: tuple[Look, ...]  # earlier numbers of test seeds
    default: bool = False
    # stream -> number of trials with values
    ranked: Mapping[Stream, int] = field(default_factory=dict[Stream, int])
    copies: tuple[str, ...] = ()  # streams on which two seeds trained identically
    at: int | None = None  # env steps per seed, if these are not full runs


@dataclass(frozen=True)
class _ComparedTrials:
    values: list[list[float]]
    paired: bool  # whether values with the same index come from the same seed
    streams: tuple[Stream, Stream]
    ranked: bool = False  # whether these values ranked the trials, and so led to this pair
    copied: tuple[str, ...] = ()  # sides with seeds that trained identically
    at: int | None = None  # env steps per seed, if these are not full runs
    goal: str = "maximize"
    unit: str = ENV_STEPS  # unit of a run's length
    earlier: tuple[int, ...] = ()  # number of pairs at each earlier look
    interim: bool = False  # the first look was an interim one
    bounds: Bounds = field(default_factory=Bounds)


def do_compare(args: Namespace) -> int:
    root = Path(args.out)
    if args.a is None or args.b is None:
        raise ConfigError("compare needs A and B: two trials of one study, or two studies")
    numbers = [n for n in map(number_in, (args.a, args.b)) if n is not None]
    if len(numbers) == 2:
        meta, sides = _trials(find_study(args.study, root, note), numbers)
    elif numbers:
        raise ConfigError("compare two trials of one study, or two studies; not one of each")
    elif args.study is not None:
        raise ConfigError(f"--study {args.study} needs two of its trials, not two studies")
    else:
        meta, sides = _studies(args.a, args.b, root)
    chosen = replace(
        _compared_values(*sides),
        goal=meta.goal,
        unit=unit_of(meta.study_text),
        bounds=value_bounds(meta),
    )
    chosen = replace(chosen, copied=_sides_with_copies(sides, chosen))
    result = _compare_values(chosen)
    refused = _refusal_reason(result, sides, chosen)
    data, text = _data_and_text(meta, result, sides, chosen, refused)
    print_answer(args.json, data, in_columns(text, sys.stdout, 2))
    return 0


@dataclass(frozen=True)
class _Refusal:
    why: str  # why there is no verdict
    # whether the values are of one kind, so that their difference is meaningful
    comparable: bool = True


def _refusal_reason(
    result: Comparison, sides: Sequence[_Side], chosen: _ComparedTrials
) -> _Refusal | None:
    """Return the reason why there is no verdict, if any."""
    if differs := apart(sides[0].world, sides[1].world):
        why = f"they were evaluated in different environments ({differs})"
        return _Refusal(why, comparable=False)
    weights = [
        0.0 if stream is Stream.REPORT else side.weight
        for side, stream in zip(sides, chosen.streams, strict=True)
    ]
    if weights[0] != weights[1]:
        first, second = (
            f"weight {weight:g} in the values of {side.name}"
            for weight, side in zip(weights, sides, strict=True)
        )
        return _Refusal(f"training returns have {first} and {second}", comparable=False)
    if chosen.copied:
        alike = copies_sentence(" and ".join(chosen.copied), str(chosen.streams[0]))
        return _Refusal(alike.removeprefix("No verdict: ").rstrip("."))
    if not chosen.ranked:
        return None
    return _Refusal(_why_ranked(result, sides, chosen))


def _sides_with_copies(sides: Sequence[_Side], chosen: _ComparedTrials) -> tuple[str, ...]:
    """Return the sides that have seeds which trained identically."""
    each = zip(sides, chosen.streams, strict=True)
    return tuple(side.name for side, stream in each if str(stream) in side.copies)


def _cautions_text(meta: StudyMeta, sides: Sequence[_Side], chosen: _ComparedTrials) -> str:
    said: list[str] = []
    if chosen.copied:
        said.append(COPIES_REMEDY)
    if meta.objectives:
        said.append(f"Of {len(meta.objectives)} objectives only {meta.metric} is compared.")
    if unfit := [side.name for side in sides if side.unfit]:
        where = "on seeds that ranked them, constraints are violated by"
        said.append(f"By value alone: {where} {' and '.join(unfit)}.")
    return " ".join(said)


def _data_and_text(
    meta: StudyMeta,
    result: Comparison,
    sides: Sequence[_Side],
    chosen: _ComparedTrials,
    refused: _Refusal | None,
) -> tuple[dict[str, Any], str]:
    """Return the answer as JSON data and as text."""
    comparable = refused is None or refused.comparable
    on_each, lines = dict[str, Any](), list[str]()
    if comparable:
        on_each, lines = _environment_part(sides, chosen, decides=refused is None)
    unpaired = ""
    if not chosen.paired:
        unpaired = _why_unpaired(*sides)
    caution = _cautions_text(meta, sides, chosen)
    data = {
        "a": sides[0].name,
        "b": sides[1].name,
        "metric": meta.metric,
        **asdict(result),
        **on_each,
        **_decision_data(result, refused),
        "caution": caution,
        "unpaired": unpaired,
        "at": chosen.at,
    }
    if chosen.ranked or chosen.copied:
        data["probability"] = None
    if refused is None:
        first = _verdict_sentence(result, sides, chosen)
    else:
        first = f"No verdict: {refused.why}."
    shown = [first, "", *_values_table(sides, chosen, result)]
    if result.paired and comparable:
        shown.append(_seed_by_seed(result, sides, chosen))
    deciding, more = list[str](), lines[1:]
    if comparable:
        deciding = _deciding_lines(result, sides, chosen)
    if unpaired:
        more = [unpaired, *lines]
    return data, _join_lines(shown, caution, more, deciding)


def _decision_data(result: Comparison, refused: _Refusal | None) -> dict[str, Any]:
    if refused is not None:
        return {"decision": None, "verdict": f"no verdict: {refused.why}"}
    return {"decision": result.verdict, "verdict": result.sentence()}


def _deciding_lines(
    result: Comparison, sides: Sequence[_Side], chosen: _ComparedTrials
) -> list[str]:
    """Return the command to run for a verdict; nothing if there is a verdict."""
    is_open = chosen.ranked or result.verdict == "undecided"
    if chosen.copied or not is_open:
        return []
    which = ""
    if sides[0].study == sides[1].study:
        which = target(Path(sides[0].study))
    return _what_decides(result, sides, chosen, which)


def _compare_values(chosen: _ComparedTrials) -> Comparison:
    """Compare values; seeds that ranked the trials, or copies, give only a difference."""
    ours, theirs = chosen.values
    found = compare(
        ours,
        theirs,
        chosen.goal,
        chosen.paired,
        chosen.earlier,
        bounds=chosen.bounds,
        interim=chosen.interim,
    )
    if not chosen.ranked and not chosen.copied:
        return found
    return replace(
        found,
        verdict="undecided",
        difference_interval=NO_INTERVAL,
        probability_interval=NO_INTERVAL,
        more_seeds=None,
    )


def _why_ranked(result: Comparison, sides: Sequence[_Side], chosen: _ComparedTrials) -> str:
    what, which = "chose the trials", "which"
    if sides[0].study == sides[1].study:
        what = "ranked the trials"
    if Stream.REPORT in chosen.streams:
        which = "some of which"
    return f"{_lead_text(result, sides, chosen)}, {which} also {what}"


def number_in(word: str) -> int | None:
    if word.isascii() and word.removeprefix("-").isdigit():
        return int(word)
    return None


def _compared_values(a: _Side, b: _Side) -> _ComparedTrials:
    if a.study != b.study:
        return _of_two_studies(a, b)
    for stream in (Stream.REPORT, Stream.CHOOSE, Stream.SEARCH):
        both = a.values.get(stream) and b.values.get(stream)
        if both and not _is_better_elsewhere(a, b, stream):
            return _on_stream(a, b, stream)
    counts = f"{a.name} has {_seed_counts(a)}, {b.name} {_seed_counts(b)}"
    told = f"{a.name} and {b.name} have no seeds in common: {counts}"
    raise StoreError(f"{told}; to train both on test seeds: hpo confirm {a.trial} {b.trial}")


def _of_two_studies(a: _Side, b: _Side) -> _ComparedTrials:
    """Compare on test seeds only; paired if the studies have the same seed."""
    ours, theirs = a.values[Stream.REPORT], b.values[Stream.REPORT]
    shared = [seed for seed in ours if seed in theirs]
    fewest = min(FEWEST_PAIRS, max(len(ours), len(theirs), 1))
    if a.seed != b.seed or len(shared) < fewest:
        return _unpaired_values(a, b)
    values = [_of_seeds(side, shared) for side in (ours, theirs)]
    return _ComparedTrials(values, True, (Stream.REPORT, Stream.REPORT))


def _is_better_elsewhere(a: _Side, b: _Side, stream: Stream) -> bool:
    """Return whether a different stream can replace one that still has few pairs."""
    partial, ours, theirs = a.partial | b.partial, a.values[stream], b.values[stream]
    if stream not in partial or len([seed for seed in ours if seed in theirs]) >= FEWEST_PAIRS:
        return False
    others = [other for other in Stream if other is not stream and other not in partial]
    return any(a.values.get(other) and b.values.get(other) for other in others)


def _on_stream(a: _Side, b: _Side, stream: Stream) -> _ComparedTrials:
    ours, theirs = a.values[stream], b.values[stream]
    shared = [seed for seed in ours if seed in theirs]
    paired = ours.keys() == theirs.keys() or len(shared) >= FEWEST_PAIRS
    values = [list(side.values()) for side in (ours, theirs)]
    if paired:
        values = [_of_seeds(side, shared) for side in (ours, theirs)]
    earlier, interim = _looks_at(a, b, [seed for _, seed in shared])
    is_test = stream is Stream.REPORT
    if not paired or not is_test:
        earlier = ()
    return _ComparedTrials(
        values,
        paired,
        (stream, stream),
        ranked=not is_test,
        at=a.at,
        earlier=earlier,
        interim=interim,
    )


def _of_seeds(side: _Seeds, seeds: Sequence[tuple[str, int]]) -> list[float]:
    return [side[seed] for seed in seeds]


def _looks_at(a: _Side, b: _Side, seeds: Sequence[int]) -> tuple[tuple[int, ...], bool]:
    """Return the pairs at each earlier look, and whether the first look was an interim one.

    For the winner and the default, these are the looks of the study's verdict.
    """
    looks, count = a.looks, max(seeds, default=-1) + 1
    winner, default = _winner_first(a, b)
    if winner.wins and default.default:
        sizes = winners_looks(looks, winner.trial, default.trial, count)
        interim = begins_interim(looks)
    else:
        sizes = earlier_looks(looks, a.trial, b.trial, count)
        interim = pair_begins_interim(looks, a.trial, b.trial)
    ordered = sorted(seeds)
    return tuple(bisect_left(ordered, size) for size in sizes), interim


def _winner_first(a: _Side, b: _Side) -> tuple[_Side, _Side]:
    if a.wins:
        return a, b
    return b, a


def _seed_counts(side: _Side) -> str:
    order = (Stream.SEARCH, Stream.CHOOSE, Stream.REPORT)
    known = [(stream, side.values.get(stream, ())) for stream in order]
    return " and ".join(seeds_text(len(values), stream) for stream, values in known if values)


def _why_unpaired(a: _Side, b: _Side) -> str:
    if a.seed != b.seed:
        told = f"{a.name} ran with `seed: {a.seed}`, {b.name} with `seed: {b.seed}`. To pair them,"
        return f"{told} run {b.name}'s file with --set seed={a.seed} --name {b.name}-seed{a.seed}."
    said = f"{a.name} has {_seed_counts(a)}, {b.name} {_seed_counts(b)}"
    commands = _test_commands((a, b))
    if a.study == b.study or not commands:
        return f"{said}; not all of these are shared."
    return "\n".join([f"{said}. To pair them on test seeds:", *commands])


def _unpaired_values(a: _Side, b: _Side) -> _ComparedTrials:
    x, y = _last_stream(a), _last_stream(b)
    values = [list(side.values[stream].values()) for side, stream in ((a, x), (b, y))]
    ranked = any(
        stream is not Stream.REPORT and side.ranked.get(stream, 0) > 1
        for side, stream in ((a, x), (b, y))
    )
    return _ComparedTrials(values, False, (x, y), ranked=ranked)


def _last_stream(side: _Side) -> Stream:
    """Return the seeds that ran last."""
    order = (Stream.REPORT, Stream.CHOOSE, Stream.SEARCH)
    return next(stream for stream in order if side.values.get(stream))


def _trials(folder: StudyFolder, numbers: Sequence[int]) -> tuple[StudyMeta, list[_Side]]:
    board = _read_board(folder)
    for trial in numbers:
        if trial not in board.rows:
            raise StoreError(f"study {folder.name!r} has no trial {trial}", trials=folder.name)
    common = None
    if not all(board.has_full_run(number) for number in numbers):
        common = _values_in_common(folder, numbers)
    sides = [_make_side(folder, board, number, f"trial {number}", common) for number in numbers]
    return board.meta, sides


@dataclass(frozen=True)
class _Common:
    """The latest env steps that two trials reached, and the values of their seeds there."""

    at: int
    values: Mapping[int, Sequence[float]]  # trial -> values


def _values_in_common(folder: StudyFolder, numbers: Sequence[int]) -> _Common:
    points = read_points(folder.path)
    ours, theirs = (_reached(points, number) for number in numbers)
    if not (both := ours & theirs):
        one, other = numbers
        text = f"trials {one} and {other} of {folder.name!r} were not evaluated at equal "
        text += points.study.algorithm.unit
        if lost := [n for n in numbers if points.trials[n].report_diverged]:
            raise StoreError(f"{text}, and trial {lost[0]} diverged on test seeds")
        which = f"{one} {other}{target(folder.path)}"
        raise StoreError(f"{text}; to compare full runs: hpo confirm {which}")
    at = max(both)
    return _Common(at, {n: points.seeds[str(Stream.SEARCH), n, at] for n in numbers})


def _reached(points: CheckpointValues, number: int) -> set[int]:
    """Return the env steps at which a trial was evaluated in the search."""
    found = ((trial, at) for kind, trial, at in points.seeds if kind == Stream.SEARCH)
    return {at for trial, at in found if trial == number}


def _studies(a: str, b: str, root: Path) -> tuple[StudyMeta, list[_Side]]:
    sides, metas = [], []
    for name in (a, b):
        folder = find_study(name, root, note)
        board = _read_board(folder)
        first = min(board.trials.values(), key=lambda one: one.place, default=None)
        if first is None:
            raise StoreError(f"study {name!r} has no trial yet")
        sides.append(_make_side(folder, board, first.trial, name))
        metas.append(board.meta)
    for does, what, (ours, theirs) in (
        ("measures {}", "of the same metric", [meta.metric for meta in metas]),
        ("has the goal to {}", "of the same goal", [meta.goal for meta in metas]),
        ("ran in {}", "from the same environment", [side.world["env"] for side in sides]),
        (
            "takes the {} over environments",
            "of the same over_environments",
            [side.scores.over for side in sides],
        ),
    ):
        if ours != theirs:
            told = f"{a} {does.format(ours)} and {b} {does.format(theirs)}"
            raise ConfigError(f"{told}; only values {what} can be compared")
    return metas[0], sides


@dataclass(frozen=True)
class _ComparedBoard:
    meta: StudyMeta
    rows: Mapping[int, TrialRow]
    trials: Mapping[int, TrialView]
    scores: EnvironmentScores
    fresh: Mapping[tuple[int, Stream], Mapping[int, float]]  # of finished runs, by replicate
    looks: tuple[Look, ...]
    weight: float  # weight of training returns in values used for selection

    @property
    def ranked(self) -> dict[Stream, int]:
        """Return the number of trials with values on the seeds of each ranking stream."""
        searched = [one for one in self.trials.values() if one.search.value is not None]
        chosen = [
            trial
            for (trial, stream), known in self.fresh.items()
            if stream is Stream.CHOOSE and known
        ]
        return {Stream.SEARCH: len(searched), Stream.CHOOSE: len(chosen)}

    def fresh_of(self, trial: int) -> dict[Stream, Mapping[int, float]]:
        return {stream: self.fresh.get((trial, stream), {}) for stream in _FRESH}

    def has_full_run(self, trial: int) -> bool:
        return self.trials[trial].has_value or any(self.fresh_of(trial).values())


def _make_side(
    folder: StudyFolder,
    board: _ComparedBoard,
    number: int,
    name: str,
    common: _Common | None = None,
) -> _Side:
    row, view, meta = board.rows[number], board.trials[number], board.meta
    whole = view.has_value and view.seeds > 0  # otherwise the values are from an earlier point
    fresh = board.fresh_of(number)
    if common is None and not (whole or any(fresh.values())):
        told = f"trial {row.trial} of {folder.name!r} is {view.state.value}, without a full run"
        raise StoreError(f"{told}; compare trials that finished")
    searched, at = (), None
    if whole:
        searched = row.seed_values
    if common is not None:
        searched, fresh, at = common.values[number], {}, common.at
    study = recorded(meta.study_text)
    return _Side(
        name=name,
        study=str(folder.path.resolve()),
        seed=study.seed,
        trial=row.trial,
        wins=view.place == 1 and len(board.trials) > 1,
        values={Stream.SEARCH: _search_seeds(study, row, searched), **_finite_seeds(fresh)},
        partial=_partial(row, fresh),
        world=evaluated_in(plain(read_text(meta.study_text, "study.resolved.yaml")), row.params),
        weight=board.weight,
        unfit=view.feasible is False,
        scores=board.scores,
        looks=board.looks,
        at=at,
        default=view.is_default,
        copies=row.copies,
        ranked=board.ranked,
    )


def _search_seeds(study: Study, row: TrialRow, values: Sequence[float]) -> _Seeds:
    kind = str(Stream.SEARCH)
    if study.seeds.tolerate and len(row.seed_values) < study.seeds.per_config:
        # Some replicates diverged; the record does not say which.
        kind = f"search of trial {row.trial}"
    return {(kind, place): value for place, value in enumerate(values)}


def _finite_seeds(fresh: Mapping[Stream, Mapping[int, float]]) -> dict[Stream, _Seeds]:
    """Return the seeds of each stream, without those that diverged."""
    return {stream: _finite(stream, known) for stream, known in fresh.items()}


def _finite(stream: Stream, known: Mapping[int, float]) -> _Seeds:
    return {(str(stream), n): value for n, value in known.items() if math.isfinite(value)}


def _partial(row: TrialRow, fresh: Mapping[Stream, Mapping[int, float]]) -> set[Stream]:
    """Return the streams whose confirm stage did not finish."""
    ended = {Stream.CHOOSE: row.choose_values, Stream.REPORT: row.by_report_seed}
    return {stream for stream, known in ended.items() if fresh.get(stream) and not known}


def _read_board(folder: StudyFolder) -> _ComparedBoard:
    with Journal(folder.path) as journal, journal.at_one_commit():
        rows = {row.trial: row for row in trials_seen(journal)}
        meta = journal.meta
        scores = environment_scores(journal, list(rows.values()))
        fresh, looks = fresh_seeds(journal), looks_of(journal.attributes())
        weight = ranking_objective(journal).metric.training_weight
    views = map(TrialView.of, leaderboard_of(meta, list(rows.values())))
    trials = {view.trial: view for view in views}
    return _ComparedBoard(meta, rows, trials, scores, fresh, looks, weight)


def _join_lines(
    lines: Sequence[str], caution: str, more: Sequence[str], deciding: Sequence[str]
) -> str:
    shown = [*lines]
    if caution:
        shown += ["", caution]
    if more:
        shown += ["", *more]
    return "\n".join([*shown, *deciding])


def _verdict_sentence(result: Comparison, sides: Sequence[_Side], chosen: _ComparedTrials) -> str:
    a, b = (side.name for side in sides)
    seeds = _seeds_words(result, chosen)
    word = WORDS[result.verdict][:1].upper() + WORDS[result.verdict][1:]
    if result.equal:
        return f"{word}: {a} and {b} have the same value on each of {seeds}."
    if result.verdict in ("better", "worse"):
        ahead, behind, by = _leader_and_lead(result, sides)
        first = "T" + ahead[1:] if ahead.startswith("trial ") else ahead
        return f"{first} is better than {behind}: by {by} on {seeds}."
    return f"{word}: {_lead_text(result, sides, chosen)}."


def _lead_text(result: Comparison, sides: Sequence[_Side], chosen: _ComparedTrials) -> str:
    a, b = (side.name for side in sides)
    seeds = _seeds_words(result, chosen)
    if result.difference == 0.0:
        return f"{a} and {b} have the same mean on {seeds}"
    ahead, behind, by = _leader_and_lead(result, sides)
    return f"{ahead} leads {behind} by {by} on {seeds}"


def _leader_and_lead(result: Comparison, sides: Sequence[_Side]) -> tuple[str, str, str]:
    """Return the leader, the other side, and the lead."""
    a, b = (side.name for side in sides)
    ahead, behind = a, b
    if result.difference < 0.0:
        ahead, behind = b, a
    low, high = result.difference_interval.low, result.difference_interval.high
    if result.difference < 0.0 and low is not None and high is not None:
        low, high = -high, -low
    return ahead, behind, with_interval(abs(result.difference), low, high)


def _seeds_words(result: Comparison, chosen: _ComparedTrials) -> str:
    kinds = {SEED_KINDS[stream] for stream in chosen.streams}
    kind, at = "", ""
    if len(kinds) == 1:
        kind = f"{kinds.pop()} "
    if chosen.at is not None:
        at = f" at {steps(chosen.at)} {chosen.unit}, the last point both reached"
    if result.paired:
        return f"{result.seeds[0]} shared {kind}seed{'s' * (result.seeds[0] != 1)}{at}"
    return f"{result.seeds[0]} and {result.seeds[1]} {kind}seeds, not paired{at}"


def _values_table(
    sides: Sequence[_Side], chosen: _ComparedTrials, result: Comparison
) -> list[str]:
    rows: list[list[str]] = []
    for side, values, mean in zip(sides, chosen.values, result.means, strict=True):
        around = bounded_interval(values, chosen.bounds)
        if side.name in chosen.copied:
            around = NO_INTERVAL
        few = ""
        if len(values) <= _LISTED:
            few = " ".join(map(number, values))
        rows.append([f"  {side.name}", number(mean), between(around.low, around.high), few])
    header = ("  ", "mean", "95% interval", "every seed")
    columns = [column for column in zip(header, *rows, strict=True) if any(column[1:])]
    first, *others = zip(*columns, strict=True)
    right = [at == 1 for at in range(len(columns))]
    lines = aligned(first, others, right).split("\n")
    return [lines[0], *lines[2:]]


def _seed_by_seed(result: Comparison, sides: Sequence[_Side], chosen: _ComparedTrials) -> str:
    ahead = int(result.difference < 0.0)
    ours, theirs = chosen.values[ahead], chosen.values[1 - ahead]
    sign = sign_of(chosen.goal)
    apart = [sign * (x - y) for x, y in zip(ours, theirs, strict=True)]
    wins, losses = sum(d > 0 for d in apart), sum(d < 0 for d in apart)
    ties = len(apart) - wins - losses
    said = f"  Seed by seed {sides[ahead].name} wins {wins}, ties {ties}, loses {losses}."
    if result.verdict not in ("better", "worse"):
        return said
    chance, spread = result.probability, result.probability_interval
    low, high = spread.low, spread.high
    if ahead:
        chance = 1.0 - chance
        low, high = (None if end is None else 1.0 - end for end in (high, low))
    return f"{said} P(win on a new seed): {with_interval(chance, low, high, '.2f')}."


def _what_decides(
    result: Comparison, sides: Sequence[_Side], chosen: _ComparedTrials, which: str
) -> list[str]:
    said = _at_the_limit(chosen)
    if sides[0].study != sides[1].study:
        return [*said, *_what_decides_studies(result, sides, chosen, bool(said))]
    command, cost, ended = _deciding_command(result, sides, chosen, which)
    first = "Once the study has finished, decide"
    if ended:
        first = "To decide, train both"
    return [*said, "", f"{first} on test seeds ({cost}):", f"  {command}"]


def _at_the_limit(chosen: _ComparedTrials) -> list[str]:
    top, bounds = chosen.values[0][0], chosen.bounds
    alike = constant([*chosen.values[0], *chosen.values[1]])
    if not alike or top not in (bounds.low, bounds.high):
        return []
    return ["", f"Both reach {number(top)}, the environment's limit; more seeds may differ."]


def _deciding_command(
    result: Comparison, sides: Sequence[_Side], chosen: _ComparedTrials, which: str
) -> tuple[str, str, bool]:
    """Return the command to run for a verdict, its cost, and whether the study has finished.

    For the winner and the default, it is the command printed by `hpo run` and `hpo top`.
    """
    folder = Path(sides[0].study)
    with Journal(folder) as journal, journal.at_one_commit():
        ended = journal.head().phase == "finished"
        entries = leaderboard_of(journal.meta, trials_seen(journal))
        conclusion = conclusion_of(journal, entries=entries)
    winner, default = _winner_first(*sides)
    if winner.wins and default.default:
        found = deciding_command(conclusion, entries, folder)
        if found is not None:
            return *found, ended
    tested = 0
    if chosen.streams[0] is Stream.REPORT and result.paired:
        tested = result.seeds[0]
    wanted = seeds_to_propose(tested, result.more_seeds or 0)
    trials = [side.trial for side in sides]
    command = confirm_command(trials, wanted, which)
    return command, confirm_cost(folder, trials, wanted), ended


def _what_decides_studies(
    result: Comparison, sides: Sequence[_Side], chosen: _ComparedTrials, is_limit: bool
) -> list[str]:
    more = result.more_seeds or 0
    if not chosen.ranked:
        if is_limit or not more or set(chosen.streams) != {Stream.REPORT}:
            return []
        return ["", f"About {counted(more, 'more test seed')} per side would decide."]
    if sides[0].seed == sides[1].seed:  # `_why_unpaired` has named the commands
        return []
    return ["", "To decide, run both on test seeds:", *_test_commands(sides)]


def _test_commands(sides: Sequence[_Side]) -> list[str]:
    """Return the commands that give each side as many test seeds as a verdict needs."""
    tested = [len(side.values[Stream.REPORT]) for side in sides]
    wanted = max(*tested, FEWEST_PAIRS)
    if not any(tested):
        wanted = max(wanted, seeds_to_propose(0, 0))
    lack = [side for side, known in zip(sides, tested, strict=True) if known < wanted]
    return [f"  {confirm_command([one.trial], wanted, target(Path(one.study)))}" for one in lack]
