"""What is new in the published tables since a sink last looked: trials to show, points to add.

A sink's mark (how many points of which trial it has) is a small JSON file in the study's folder,
so that a resumed study goes on where the sink was; the tables only ever grow at their end.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..files import atomic_files
from .journal import Journal
from .rows import Stream, TrialState

if TYPE_CHECKING:  # loaded on use: pyarrow costs 0.15 s
    import numpy as np
    import pyarrow as pa

SINKS = "sinks"
_LIVE = (
    TrialState.WAITING, TrialState.RUNNING, TrialState.INTERRUPTED, TrialState.PAUSED
)  # fmt: skip
_NEVER_RAN = (TrialState.WAITING, TrialState.FAILED)
_KEYS = ("trial", "stream", "replicate", "env_steps", "episode")
_CURVE = "episode_return"
_OWN = {"episode_return": "return", "episode_length": "length"}
_SPREADS = ("median", "min", "max", "std")  # of an evaluation's episodes, as metrics are named


@dataclass(frozen=True)
class Point:
    """Some values at one number of training env steps; every one is finite."""

    env_steps: int
    values: Mapping[str, float]


@dataclass(frozen=True)
class TrialNews:
    """One trial that is followed.

    Attributes:
        trial: its number.
        row: its row of `trials.parquet`, column -> value.
        params: the searched knobs that are active.
        points: new ones, in order: `train/<metric>` are means over the replicates and over
            blocks of rows, `seeds/<replicate>` the training return of one of them,
            `eval/<metric>` means over the episodes of all replicates, and with `_median`, `_min`,
            `_max` and `_std` instead of `_mean` means over replicates of that of their episodes.
        ended: it is over, and these are its last points. Told once more, without points, where
            the end of the study gave it another state, value or rank: by confirming it.
    """

    trial: int
    row: Mapping[str, Any]
    params: Mapping[str, Any]
    points: tuple[Point, ...]
    ended: bool


@dataclass(frozen=True)
class News:
    """What has changed.

    Attributes:
        env_steps: training env steps of all trials so far.
        states: how many trials are in each state.
        best: the value at the top of the leaderboard, None without one.
        ended: rows of `trials.parquet` of trials that ended since, in the order of their numbers.
        trials: those that are followed and have something new.
        table: `trials.parquet`, the best first: column -> one value a trial.
    """

    env_steps: int
    states: Mapping[str, int]
    best: float | None
    ended: tuple[Mapping[str, Any], ...]
    trials: tuple[TrialNews, ...]
    table: Mapping[str, Sequence[Any]]


@dataclass
class Mark:
    """How far a sink has got.

    Attributes:
        points: trial -> rows of its curve taken.
        evaluations: trial -> evaluations taken.
        done: trials followed to their end.
        told: trials whose end was told.
        ends: trial -> state, value and rank that its end was told with, as text.
        kept: whatever else the sink must remember, such as the id of a run elsewhere.
    """

    points: dict[str, int] = field(default_factory=dict[str, int])
    evaluations: dict[str, int] = field(default_factory=dict[str, int])
    done: list[int] = field(default_factory=list[int])
    told: list[int] = field(default_factory=list[int])
    ends: dict[str, str] = field(default_factory=dict[str, str])
    kept: dict[str, Any] = field(default_factory=dict[str, Any])

    @classmethod
    def read(cls, directory: Path, sink: str) -> Mark:
        """Return the mark a sink left in a study's folder; an empty one if there is none."""
        path = directory / SINKS / f"{sink}.json"
        return (
            cls(**json.loads(atomic_files.read_text(path)))
            if atomic_files.is_plain_file(path)
            else cls()
        )

    def write(self, directory: Path, sink: str) -> None:
        """Leave it there."""
        atomic_files.make_folder(directory / SINKS)
        atomic_files.write_text(directory / SINKS / f"{sink}.json", json.dumps(vars(self)) + "\n")


@dataclass(frozen=True)
class Follower:
    """Reads the tables of a study for a sink.

    Attributes:
        top_k: how many of the best trials are followed; a trial once followed stays so.
        every: rows of its curve whose mean is one point.
        seeds: replicates of a trial; a point waits for all of them while the trial runs.
        planned: trials that the study will have, None if that is not known. No more than `top_k`
            are followed from their start, else a trial is followed once it is finished.
    """

    top_k: int = 10
    every: int = 1
    seeds: int = 1
    planned: int | None = None

    def news(self, directory: Path, mark: Mark, final: bool = False) -> News:
        """Return what is new since the mark, and move the mark.

        Args:
            directory: of the study.
            mark: of the sink; `write` it once the news are safe.
            final: the study is finished, so stopped trials may fill up the best `top_k`.
        """
        import pyarrow.parquet as pq

        table = pq.read_table(directory / "trials.parquet").to_pydict()
        every = [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]
        rows = [row for row in every if row["trial"] >= 0]  # those of the search
        followed = self._followed(rows, mark, final)
        curves = _of_trials(directory / "curves.parquet", followed)
        episodes = _of_trials(directory / "evaluations.parquet", followed)
        by_number = {row["trial"]: row for row in rows}
        trials = [
            self._trial(by_number[number], curves, episodes, mark)
            for number in followed
            if number in by_number
        ]
        if final:
            trials += _told_otherwise(by_number, mark)
        ended = sorted(
            (row for row in rows if row["state"] not in _LIVE and row["trial"] not in mark.told),
            key=lambda row: row["trial"],
        )
        mark.told += [row["trial"] for row in ended]
        states: dict[str, int] = {}
        for row in rows:
            states[row["state"]] = states.get(row["state"], 0) + 1
        return News(
            env_steps=sum(row["env_steps"] for row in rows),
            states=states,
            best=rows[0]["value"] if rows else None,
            ended=tuple(ended),
            trials=tuple(item for item in trials if item.points or item.ended),
            table=table,
        )

    def _followed(self, rows: Sequence[Mapping[str, Any]], mark: Mark, final: bool) -> list[int]:
        """Return the trials to look at, those done left out."""
        few = self.planned is not None and self.planned <= self.top_k
        best = [
            row["trial"]
            for row in rows
            if few or (final and row["state"] not in _NEVER_RAN) or row["value"] is not None
        ]
        known = [int(name) for name in mark.points]
        return [
            number
            for number in dict.fromkeys([*known, *best[: self.top_k]])
            if number not in mark.done
        ]

    def _trial(
        self, row: Mapping[str, Any], curves: pa.Table, episodes: pa.Table, mark: Mark
    ) -> TrialNews:
        number, ended = row["trial"], row["state"] not in _LIVE
        name = str(number)
        seeds = 1 if ended else self.seeds
        chunks = _whole(_curve_points(_rows_of(curves, number)), seeds)
        taken = mark.points.setdefault(name, 0)
        fresh = chunks[taken:]
        if not ended:
            fresh = fresh[: len(fresh) // self.every * self.every]
        mark.points[name] = taken + len(fresh)
        points = block_means(fresh, self.every)
        evaluations = _whole(_evaluation_points(_rows_of(episodes, number)), seeds)
        seen = mark.evaluations.setdefault(name, 0)
        points += evaluations[seen:]
        mark.evaluations[name] = len(evaluations)
        if ended:
            mark.done.append(number)
            mark.ends[name] = _end(row)
        points.sort(key=lambda point: point.env_steps)
        return TrialNews(number, row, json.loads(row["params"]), tuple(points), ended)


def _told_otherwise(rows: Mapping[int, Mapping[str, Any]], mark: Mark) -> list[TrialNews]:
    """Return the trials whose end was told as it is no more, and note how it is now."""
    stale = [n for n in mark.done if n in rows and mark.ends.get(str(n)) != _end(rows[n])]
    mark.ends |= {str(n): _end(rows[n]) for n in stale}
    return [TrialNews(n, rows[n], json.loads(rows[n]["params"]), (), True) for n in stale]


def _end(row: Mapping[str, Any]) -> str:
    return json.dumps([row["state"], row["value"], row["rank"]])


def block_means(points: Sequence[Point], every: int) -> list[Point]:
    """Average blocks of `every` neighbours; a block stands at its last point's env steps.

    >>> block_means([Point(1, {"a": 1.0}), Point(2, {"a": 3.0}), Point(3, {"b": 5.0})], 2)
    [Point(env_steps=2, values={'a': 2.0}), Point(env_steps=3, values={'b': 5.0})]
    """
    blocks = [points[start : start + every] for start in range(0, len(points), every)]
    return [Point(block[-1].env_steps, _means(block)) for block in blocks]


def _means(block: Sequence[Point]) -> dict[str, float]:
    names = dict.fromkeys(name for point in block for name in point.values)
    found = {name: [p.values[name] for p in block if name in p.values] for name in names}
    return {name: math.fsum(values) / len(values) for name, values in found.items()}


def is_finished(directory: Path) -> bool:
    """Return whether a study has nothing left to do."""
    with Journal(directory) as journal:
        return journal.head().phase == "finished"


# ---------------------------------------------------------------------- tables


def _of_trials(path: Path, trials: Iterable[int]) -> pa.Table:
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    wanted = pc.field("trial").isin(list(trials)) & (pc.field("stream") == str(Stream.SEARCH))
    return pq.read_table(path, filters=wanted)


def _rows_of(table: pa.Table, trial: int) -> dict[str, np.ndarray]:
    """Return one trial's rows by columns, numbers only."""
    import pyarrow.compute as pc

    rows = table.filter(pc.field("trial") == trial)
    return {
        name: rows[name].to_numpy()
        for name in rows.column_names
        if name not in ("trial", "stream")
    }


@dataclass(frozen=True)
class _Seen:
    """A point and the replicates that have it."""

    point: Point
    replicates: int


def _whole(seen: Sequence[_Seen], seeds: int) -> list[Point]:
    """Return the points up to the first that a replicate still lacks."""
    points: list[Point] = []
    for item in seen:
        if item.replicates < seeds:
            break
        points.append(item.point)
    return points


def _curve_points(rows: Mapping[str, np.ndarray]) -> list[_Seen]:
    """Return the mean over replicates at every number of env steps, in their order."""
    found: list[_Seen] = []
    for at, here in _by_env_steps(rows["env_steps"]):
        values = {
            f"train/{name}": mean
            for name, column in rows.items()
            if name not in _KEYS and (mean := _finite_mean(column[here])) is not None
        }
        if _CURVE in rows:
            both = zip(rows["replicate"][here], rows[_CURVE][here], strict=True)
            values |= {f"seeds/{one}": float(x) for one, x in both if math.isfinite(x)}
        found.append(_Seen(Point(at, values), len(here)))
    return found


def _by_env_steps(env_steps: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield every number of env steps, rising, with the rows that have it."""
    import numpy as np

    order = np.argsort(env_steps, kind="stable")
    found, starts = np.unique(env_steps[order], return_index=True)
    ends = [*starts[1:], len(order)]
    for at, first, end in zip(found.tolist(), starts, ends, strict=False):  # all empty: none
        yield at, order[first:end]


def _evaluation_points(rows: Mapping[str, np.ndarray]) -> list[_Seen]:
    import numpy as np

    found: list[_Seen] = []
    for at in np.unique(rows["env_steps"]):
        here = rows["env_steps"] == at
        replicates = rows["replicate"][here]
        values: dict[str, float] = {}
        for name, column in rows.items():
            mean = None if name in _KEYS else _finite_mean(column[here])
            if mean is not None:
                values[f"eval/{_OWN[name]}_mean" if name in _OWN else f"eval/{name}"] = mean
            if mean is not None and name in _OWN:
                spreads = _spreads(column[here], replicates)
                values |= {f"eval/{_OWN[name]}_{word}": x for word, x in spreads.items()}
        found.append(_Seen(Point(int(at), values), len(np.unique(replicates))))
    return found


def _spreads(values: np.ndarray, replicates: np.ndarray) -> dict[str, float]:
    """Return the mean over replicates of each statistic of their finite episodes."""
    import numpy as np

    each = [values[(replicates == one) & np.isfinite(values)] for one in np.unique(replicates)]
    return {
        word: float(np.mean([getattr(np, word)(episodes) for episodes in each if len(episodes)]))
        for word in _SPREADS
    }


def _finite_mean(values: np.ndarray) -> float | None:
    import numpy as np

    finite = values[np.isfinite(values)]
    return float(np.mean(finite)) if len(finite) else None


class FollowingSink(ABC):
    """A sink that goes on where it was; see `store.sinks.Sink`.

    Args:
        follower: says which trials to show.
        target: the folder to write into; None is the study's.
    """

    name: str

    def __init__(self, follower: Follower, target: Path | None = None):
        self._follower, self._target = follower, target
        self._directory: Path | None = None
        self._mark = Mark()

    def published(self, directory: Path) -> None:
        """Take what is new."""
        if self._directory is None:
            self._mark = Mark.read(self._place(directory), self.name)
        self._directory = directory
        self._follow(directory, final=False)

    def close(self) -> None:
        """Take what only the end decides, and close what was opened."""
        directory, self._directory = self._directory, None
        if directory is not None:
            finished = is_finished(directory)
            news = self._follow(directory, finished)
            if finished:
                self._write_end(directory, news)
        self._close_all()

    def _place(self, directory: Path) -> Path:
        """Return the folder to write into, for a study's folder."""
        return self._target or directory

    def _follow(self, directory: Path, final: bool) -> News:
        news = self._follower.news(directory, self._mark, final)
        self._write(directory, news)
        self._keep_mark(directory)  # last: after a crash points come twice, and none is missing
        return news

    def _keep_mark(self, directory: Path) -> None:
        self._mark.write(self._place(directory), self.name)

    @abstractmethod
    def _write(self, directory: Path, news: News) -> None:
        """Write what is new."""

    def _write_end(self, directory: Path, news: News) -> None:  # noqa: B027 - few have any
        """Write what a finished study has besides."""

    @abstractmethod
    def _close_all(self) -> None:
        """Close what was opened."""
