"""News in the published tables since a sink last read them: trials to show, points to add.

A sink's mark (how many points of which trial it has) is a small JSON file in the study's folder,
with which a resumed study continues. Rows are only ever appended to the tables.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any

from ..files import atomic_files
from .journal import Journal
from .libraries import np, pa, pc, pq
from .rows import Stream, TrialState

_LIVE = (
    TrialState.WAITING, TrialState.RUNNING, TrialState.INTERRUPTED, TrialState.PAUSED
)  # fmt: skip
_KEYS = ("trial", "stream", "replicate", "env_steps", "episode")
_EPISODES = {"episode_return": "return", "episode_length": "length"}


@dataclass(frozen=True)
class Point:
    """Finite values at one number of training env steps."""

    env_steps: int
    values: Mapping[str, float]


@dataclass(frozen=True)
class TrialNews:
    """One followed trial.

    `points`: `train/<metric>` are means over replicates and blocks of rows, `seeds/<number>` the
    training return of one of them, `eval/<metric>` means over the episodes of all replicates;
    `eval/..._median`, `_min`, `_max`, `_std` are means over replicates.
    """

    trial: int
    row: Mapping[str, Any]  # its row of `trials.parquet`
    params: Mapping[str, Any]
    points: tuple[Point, ...]  # new ones, by env steps
    ended: bool  # reported once more if its state, value or rank changes at the end of the study


@dataclass(frozen=True)
class News:
    """Changes since the last look."""

    env_steps: int  # training env steps of all trials
    states: Mapping[str, int]  # state -> number of trials
    best: float | None  # the first value of the leaderboard
    ended: tuple[Mapping[str, Any], ...]  # rows of `trials.parquet` that ended since, by trial
    trials: tuple[TrialNews, ...]
    table: Mapping[str, Sequence[Any]]  # `trials.parquet`, the best first: column -> values

    @property
    def point(self) -> Point:
        """The study's curves: number of trials per state, and the best value."""
        values = {f"trials/{state}": float(count) for state, count in sorted(self.states.items())}
        return Point(self.env_steps, values if self.best is None else values | {"best": self.best})


@dataclass
class Mark:
    """The progress of a sink."""

    points: dict[str, int] = field(default_factory=dict[str, int])  # trial -> curve rows
    evaluations: dict[str, int] = field(default_factory=dict[str, int])  # trial -> evaluations
    done: list[int] = field(default_factory=list[int])  # trials followed to their end
    told: list[int] = field(default_factory=list[int])  # trials reported in `News.ended`
    ends: dict[str, str] = field(default_factory=dict[str, str])  # trial -> reported end, as JSON
    kept: dict[str, Any] = field(default_factory=dict[str, Any])  # other data, such as run ids

    @classmethod
    def read(cls, directory: Path, sink: str) -> Mark:
        """Read the mark of a sink; an empty one if there is none."""
        path = directory / "sinks" / f"{sink}.json"
        found = atomic_files.read_text(path) if atomic_files.is_plain_file(path) else "{}"
        return cls(**json.loads(found))

    def write(self, directory: Path, sink: str) -> None:
        atomic_files.make_folder(directory / "sinks")
        path = directory / "sinks" / f"{sink}.json"
        atomic_files.write_text(path, json.dumps(vars(self)) + "\n")


@dataclass(frozen=True)
class Follower:
    """Reads the tables of a study for a sink."""

    top_k: int = 10  # of the best trials are followed; a trial once followed stays so
    every: int = 1  # rows of a curve whose mean is one point
    seeds: int = 1  # replicates of a trial; a point of a running trial waits for all of them
    # Trials of the study, if known: up to `top_k` are followed from their start, not the end.
    planned: int | None = None

    def news(self, directory: Path, mark: Mark, final: bool = False) -> News:
        """Return the news since the mark, and advance it; `final`: the study is finished."""
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
            trials += _changed_ends(by_number, mark)
        ended = sorted(
            (row for row in rows if row["state"] not in _LIVE and row["trial"] not in mark.told),
            key=lambda row: row["trial"],
        )
        mark.told += [row["trial"] for row in ended]
        return News(
            env_steps=sum(row["env_steps"] for row in rows),
            states=Counter(row["state"] for row in rows),
            best=rows[0]["value"] if rows else None,
            ended=tuple(ended),
            trials=tuple(item for item in trials if item.points or item.ended),
            table=table,
        )

    def _followed(self, rows: Sequence[Mapping[str, Any]], mark: Mark, final: bool) -> list[int]:
        few = self.planned is not None and self.planned <= self.top_k
        never = (TrialState.WAITING, TrialState.FAILED)
        best = [
            row["trial"]
            for row in rows
            if few or (final and row["state"] not in never) or row["value"] is not None
        ]
        known = dict.fromkeys([*map(int, mark.points), *best[: self.top_k]])
        return [number for number in known if number not in mark.done]

    def _trial(
        self, row: Mapping[str, Any], curves: pa.Table, episodes: pa.Table, mark: Mark
    ) -> TrialNews:
        number, ended = row["trial"], row["state"] not in _LIVE
        name = str(number)
        seeds = 1 if ended else self.seeds
        taken = mark.points.setdefault(name, 0)
        fresh = _complete(_curve_points(_rows_of(curves, number)), seeds)[taken:]
        if not ended:
            fresh = fresh[: len(fresh) // self.every * self.every]
        mark.points[name] = taken + len(fresh)
        points = block_means(fresh, self.every)
        evaluations = _complete(_evaluation_points(_rows_of(episodes, number)), seeds)
        points += evaluations[mark.evaluations.get(name, 0) :]
        mark.evaluations[name] = len(evaluations)
        if ended:
            mark.done.append(number)
            mark.ends[name] = _end(row)
        points.sort(key=lambda point: point.env_steps)
        return TrialNews(number, row, json.loads(row["params"]), tuple(points), ended)


def _changed_ends(rows: Mapping[int, Mapping[str, Any]], mark: Mark) -> list[TrialNews]:
    """Return the trials whose end has changed since it was reported, and mark it."""
    stale = [n for n in mark.done if n in rows and mark.ends.get(str(n)) != _end(rows[n])]
    mark.ends |= {str(n): _end(rows[n]) for n in stale}
    return [TrialNews(n, rows[n], json.loads(rows[n]["params"]), (), True) for n in stale]


def _end(row: Mapping[str, Any]) -> str:
    return json.dumps([row["state"], row["value"], row["rank"]])


def block_means(points: Sequence[Point], every: int) -> list[Point]:
    """Average blocks of `every` neighbours, at the env steps of the last point.

    >>> block_means([Point(1, {"a": 1.0}), Point(2, {"a": 3.0}), Point(3, {"b": 5.0})], 2)
    [Point(env_steps=2, values={'a': 2.0}), Point(env_steps=3, values={'b': 5.0})]
    """
    blocks = [points[start : start + every] for start in range(0, len(points), every)]
    found: list[Point] = []
    for block in blocks:
        names = dict.fromkeys(name for point in block for name in point.values)
        values = {name: [p.values[name] for p in block if name in p.values] for name in names}
        means = {name: math.fsum(some) / len(some) for name, some in values.items()}
        found.append(Point(block[-1].env_steps, means))
    return found


def is_finished(directory: Path) -> bool:
    with Journal(directory) as journal:
        return journal.head().phase == "finished"


def _of_trials(path: Path, trials: Iterable[int]) -> pa.Table:
    wanted = pc.field("trial").isin(list(trials)) & (pc.field("stream") == str(Stream.SEARCH))
    return pq.read_table(path, filters=wanted)


def _rows_of(table: pa.Table, trial: int) -> dict[str, np.ndarray]:
    """Return one trial's rows by columns, numbers only."""
    rows = table.filter(pc.field("trial") == trial)
    return {
        name: rows[name].to_numpy()
        for name in rows.column_names
        if name not in ("trial", "stream")
    }


_Seen = tuple[Point, int]  # a point, and how many replicates have it


def _complete(seen: Sequence[_Seen], seeds: int) -> list[Point]:
    """Return the points before the first that a replicate still lacks."""
    return [point for point, _ in takewhile(lambda one: one[1] >= seeds, seen)]


def _by_env_steps(env_steps: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield each number of env steps, rising, with the indices of its rows."""
    order = np.argsort(env_steps, kind="stable")
    found, starts = np.unique(env_steps[order], return_index=True)
    ends = [*starts[1:], len(order)]
    for at, first, end in zip(found.tolist(), starts, ends, strict=False):  # all empty: none
        yield at, order[first:end]


def _curve_points(rows: Mapping[str, np.ndarray]) -> list[_Seen]:
    """Return means over replicates."""
    found: list[_Seen] = []
    for at, here in _by_env_steps(rows["env_steps"]):
        values = {
            f"train/{name}": mean
            for name, column in rows.items()
            if name not in _KEYS and (mean := _finite_mean(column[here])) is not None
        }
        if (returns := rows.get("episode_return")) is not None:
            both = zip(rows["replicate"][here], returns[here], strict=True)
            values |= {f"seeds/{one}": float(x) for one, x in both if math.isfinite(x)}
        found.append((Point(at, values), len(here)))
    return found


def _evaluation_points(rows: Mapping[str, np.ndarray]) -> list[_Seen]:
    found: list[_Seen] = []
    for at, here in _by_env_steps(rows["env_steps"]):
        replicates = rows["replicate"][here]
        values: dict[str, float] = {}
        for name, column in rows.items():
            mean = None if name in _KEYS else _finite_mean(column[here])
            if mean is None:
                continue
            if name not in _EPISODES:
                values[f"eval/{name}"] = mean
                continue
            values[f"eval/{_EPISODES[name]}_mean"] = mean
            spreads = _spreads(column[here], replicates)
            values |= {f"eval/{_EPISODES[name]}_{word}": x for word, x in spreads.items()}
        found.append((Point(at, values), len(set(replicates.tolist()))))
    return found


def _spreads(values: np.ndarray, replicates: np.ndarray) -> dict[str, float]:
    """Return the mean over replicates of each statistic of their finite episodes."""
    each = [values[(replicates == one) & np.isfinite(values)] for one in np.unique(replicates)]
    return {
        word: float(np.mean([getattr(np, word)(episodes) for episodes in each if len(episodes)]))
        for word in ("median", "min", "max", "std")
    }


def _finite_mean(values: np.ndarray) -> float | None:
    finite = values[np.isfinite(values)]
    return float(np.mean(finite)) if len(finite) else None


class FollowingSink(ABC):
    """A sink that continues where it was; see `store.sinks.Sink`."""

    name: str

    def __init__(self, follower: Follower, target: Path | None = None):
        self._follower, self._target = follower, target
        self._directory: Path | None = None
        self._mark = Mark()

    def published(self, directory: Path) -> None:
        if self._directory is None:
            self._mark = Mark.read(self._place(directory), self.name)
        self._directory = directory
        self._follow(directory, final=False)

    def close(self) -> None:
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
    def _write(self, directory: Path, news: News) -> None: ...

    def _write_end(self, directory: Path, news: News) -> None:  # noqa: B027 - few have any
        """Write the summary of a finished study."""

    @abstractmethod
    def _close_all(self) -> None: ...
