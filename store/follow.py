"""Changes in the published tables since a sink last read them: new trials and new points.

A sink's progress mark (the number of points per trial) is a small JSON file in the study's folder;
a resumed study continues from it. Rows are only appended to the tables.
"""

from __future__ import annotations

import importlib
import json
import math
import uuid
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any, Generic, TypeVar

from ..errors import MissingExtraError
from ..files import atomic_files
from .journal import Journal
from .libraries import np, pa, pc, pq
from .rows import Stream, TrialState

_LIVE = (TrialState.WAITING, TrialState.RUNNING, TrialState.INTERRUPTED, TrialState.PAUSED)
_KEYS = ("trial", "stream", "replicate", "env_steps", "episode")
_EPISODES = {"episode_return": "return", "episode_length": "length"}


@dataclass(frozen=True)
class LoggedPoint:
    env_steps: int
    values: Mapping[str, float]


@dataclass(frozen=True)
class TrialNews:
    """New data about one followed trial.

    In `points`, `train/<metric>` are means over replicates and blocks of rows, and
    `seeds/<number>` is one replicate's training return. `eval/<metric>` are means over all
    replicates' episodes; `eval/..._median`, `_min`, `_max` and `_std` are means over replicates.
    """

    trial: int
    row: Mapping[str, Any]  # its row of `trials.parquet`
    params: Mapping[str, Any]
    points: tuple[LoggedPoint, ...]  # new ones, by env steps
    # such a trial is reported again if its state, value or rank changes at the end of the study
    ended: bool


@dataclass(frozen=True)
class News:
    env_steps: int  # training env steps of all trials
    states: Mapping[str, int]  # state -> number of trials
    best: float | None  # the first value on the leaderboard
    # rows of `trials.parquet` that have ended since, by trial
    ended: tuple[Mapping[str, Any], ...]
    trials: tuple[TrialNews, ...]
    table: Mapping[str, Sequence[Any]]  # `trials.parquet`, best trial first: column -> values

    @property
    def point(self) -> LoggedPoint:
        values = {f"trials/{state}": float(count) for state, count in sorted(self.states.items())}
        if self.best is not None:
            values["best"] = self.best
        return LoggedPoint(self.env_steps, values)


@dataclass
class SinkProgress:
    points: dict[str, int] = field(default_factory=dict[str, int])  # trial -> number of curve rows
    # trial -> number of evaluations
    evaluations: dict[str, int] = field(default_factory=dict[str, int])
    done: list[int] = field(default_factory=list[int])  # trials followed to their end
    told: list[int] = field(default_factory=list[int])  # trials reported in `News.ended`
    ends: dict[str, str] = field(default_factory=dict[str, str])  # trial -> reported end, as JSON
    kept: dict[str, Any] = field(default_factory=dict[str, Any])  # other data, such as run ids

    @classmethod
    def read(cls, directory: Path, sink: str) -> SinkProgress:
        path = directory / "sinks" / f"{sink}.json"
        if not atomic_files.is_plain_file(path):
            return cls()
        return cls(**json.loads(atomic_files.read_text(path)))

    def forget(self, trial: int) -> None:
        """Forget the points of a trial that started over."""
        for known in (self.points, self.evaluations, self.ends):
            known.pop(str(trial), None)

    def write(self, directory: Path, sink: str) -> None:
        atomic_files.make_folder(directory / "sinks")
        path = directory / "sinks" / f"{sink}.json"
        atomic_files.write_text(path, json.dumps(vars(self)) + "\n")


@dataclass(frozen=True)
class Follower:
    top_k: int = 10  # number of best trials to follow; a trial is followed permanently
    every: int = 1  # number of curve rows whose mean is one point
    seeds: int = 1  # replicates per trial; a point of a running trial waits for all of them
    # Number of trials in the study, if known: up to `top_k` are followed from their start.
    planned: int | None = None

    def news(self, directory: Path, mark: SinkProgress, final: bool = False) -> News:
        """Return the data since the mark, and advance it; `final` means that the study ended."""
        table = pq.read_table(directory / "trials.parquet").to_pydict()
        rows = _search_trial_rows(table)
        followed = self._followed_trials(rows, mark, final)
        curves = _of_trials(directory / "curves.parquet", followed)
        episodes = _of_trials(directory / "evaluations.parquet", followed)
        by_number = {row["trial"]: row for row in rows}
        there = [number for number in followed if number in by_number]
        trials = [self._trial_news(by_number[number], curves, episodes, mark) for number in there]
        if final:
            trials += _changed_ends(by_number, mark)
        updated = tuple(item for item in trials if item.points or item.ended)
        ended = _newly_ended(rows, mark)
        best = None
        if rows:
            best = rows[0]["value"]
        mark.told += [row["trial"] for row in ended]
        return News(
            env_steps=sum(row["env_steps"] for row in rows),
            states=Counter(row["state"] for row in rows),
            best=best,
            ended=tuple(ended),
            trials=updated,
            table=table,
        )

    def reopen(self, directory: Path, mark: SinkProgress) -> list[int]:
        """Follow ended trials again that a resumed study has extended, or started over.

        Returns the trials that started over: their earlier points are no longer in the tables.
        """
        if not mark.done:
            return []
        table = pq.read_table(directory / "trials.parquet", columns=["trial", "state"]).to_pydict()
        states = dict(zip(table["trial"], table["state"], strict=True))
        done = [number for number in mark.done if number in states]
        counts = [
            _count_points(directory / f"{name}.parquet", done)
            for name in ("curves", "evaluations")
        ]
        over: list[int] = []
        for number in done:
            taken = [known.get(str(number), 0) for known in (mark.points, mark.evaluations)]
            now = [count[number] for count in counts]
            if _started_over(mark.ends.get(str(number)), states[number]) or now < taken:
                over.append(number)
                mark.forget(number)
            if number in over or now != taken or states[number] in _LIVE:
                mark.done.remove(number)
                mark.told = [told for told in mark.told if told != number]
        return over

    def _followed_trials(
        self, rows: Sequence[Mapping[str, Any]], mark: SinkProgress, final: bool
    ) -> list[int]:
        few = self.planned is not None and self.planned <= self.top_k
        never = (TrialState.WAITING, TrialState.FAILED)
        best = [
            row["trial"]
            for row in rows
            if few or (final and row["state"] not in never) or row["value"] is not None
        ]
        known = dict.fromkeys([*map(int, mark.points), *best[: self.top_k]])
        return [number for number in known if number not in mark.done]

    def _trial_news(
        self, row: Mapping[str, Any], curves: pa.Table, episodes: pa.Table, mark: SinkProgress
    ) -> TrialNews:
        number, ended = row["trial"], row["state"] not in _LIVE
        name = str(number)
        seeds = self.seeds
        if ended:
            seeds = 1
        taken = mark.points.setdefault(name, 0)
        fresh = _complete_points(_curve_points(_rows_of(curves, number)), seeds)[taken:]
        if not ended:
            fresh = fresh[: len(fresh) // self.every * self.every]
        mark.points[name] = taken + len(fresh)
        points = block_means(fresh, self.every)
        evaluations = _complete_points(_evaluation_points(_rows_of(episodes, number)), seeds)
        points += evaluations[mark.evaluations.get(name, 0) :]
        mark.evaluations[name] = len(evaluations)
        if ended:
            mark.done.append(number)
            mark.ends[name] = _end_state(row)
        points.sort(key=lambda point: point.env_steps)
        return TrialNews(number, row, json.loads(row["params"]), tuple(points), ended)


def _search_trial_rows(table: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return the rows of search trials in a table."""
    every = (dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True))
    return [row for row in every if row["trial"] >= 0]


def _newly_ended(rows: Iterable[dict[str, Any]], mark: SinkProgress) -> list[dict[str, Any]]:
    """Return the trials that have ended since the mark, by number; failed ones can start over."""
    open_ = (*_LIVE, TrialState.FAILED)
    ended = [row for row in rows if row["state"] not in open_ and row["trial"] not in mark.told]
    return sorted(ended, key=lambda row: row["trial"])


def _changed_ends(rows: Mapping[int, Mapping[str, Any]], mark: SinkProgress) -> list[TrialNews]:
    stale = [n for n in mark.done if n in rows and mark.ends.get(str(n)) != _end_state(rows[n])]
    mark.ends |= {str(n): _end_state(rows[n]) for n in stale}
    return [TrialNews(n, rows[n], json.loads(rows[n]["params"]), (), True) for n in stale]


def _end_state(row: Mapping[str, Any]) -> str:
    return json.dumps([row["state"], row["value"], row["rank"]])


def _started_over(end: str | None, state: str) -> bool:
    """Return whether a trial failed when its end was reported, but has not failed now."""
    if end is None or state == TrialState.FAILED:
        return False
    return json.loads(end)[0] == TrialState.FAILED


def _count_points(path: Path, trials: Iterable[int]) -> Counter[int]:
    """Return how many different env steps the search rows of each trial have."""
    wanted = pc.field("trial").isin(list(trials)) & (pc.field("stream") == str(Stream.SEARCH))
    rows = pq.read_table(path, columns=["trial", "env_steps"], filters=wanted)
    points = rows.group_by(["trial", "env_steps"]).aggregate([])
    return Counter(points["trial"].to_pylist())


def block_means(points: Sequence[LoggedPoint], every: int) -> list[LoggedPoint]:
    """Average blocks of `every` neighbouring points; a mean has its last point's env steps.

    >>> points = [LoggedPoint(1, {"a": 1.0}), LoggedPoint(2, {"a": 3.0})]
    >>> block_means([*points, LoggedPoint(3, {"b": 5.0})], 2)
    [LoggedPoint(env_steps=2, values={'a': 2.0}), LoggedPoint(env_steps=3, values={'b': 5.0})]
    """
    blocks = [points[start : start + every] for start in range(0, len(points), every)]
    found: list[LoggedPoint] = []
    for block in blocks:
        values: dict[str, list[float]] = {}
        for name, value in (pair for point in block for pair in point.values.items()):
            values.setdefault(name, []).append(value)
        means = {name: math.fsum(some) / len(some) for name, some in values.items()}
        found.append(LoggedPoint(block[-1].env_steps, means))
    return found


def is_finished(directory: Path) -> bool:
    with Journal(directory) as journal:
        return journal.head().phase == "finished"


def _of_trials(path: Path, trials: Iterable[int]) -> pa.Table:
    wanted = pc.field("trial").isin(list(trials)) & (pc.field("stream") == str(Stream.SEARCH))
    return pq.read_table(path, filters=wanted)


def _rows_of(table: pa.Table, trial: int) -> dict[str, np.ndarray]:
    rows = table.filter(pc.field("trial") == trial)
    return {
        name: rows[name].to_numpy()
        for name in rows.column_names
        if name not in ("trial", "stream")
    }


_Seen = tuple[LoggedPoint, int]  # a point, and the number of replicates that have it


def _complete_points(points: Sequence[_Seen], seeds: int) -> list[LoggedPoint]:
    return [point for point, _ in takewhile(lambda one: one[1] >= seeds, points)]


def _by_env_steps(env_steps: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    order = np.argsort(env_steps, kind="stable")
    found, starts = np.unique(env_steps[order], return_index=True)
    ends = [*starts[1:], len(order)]
    for at, first, end in zip(found.tolist(), starts, ends, strict=False):  # none if all are empty
        yield at, order[first:end]


def _curve_points(rows: Mapping[str, np.ndarray]) -> list[_Seen]:
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
        found.append((LoggedPoint(at, values), len(here)))
    return found


def _evaluation_points(rows: Mapping[str, np.ndarray]) -> list[_Seen]:
    found: list[_Seen] = []
    for at, here in _by_env_steps(rows["env_steps"]):
        replicates = rows["replicate"][here]
        values: dict[str, float] = {}
        for name, column in rows.items():
            if name in _KEYS or (mean := _finite_mean(column[here])) is None:
                continue
            if name not in _EPISODES:
                values[f"eval/{name}"] = mean
                continue
            values[f"eval/{_EPISODES[name]}_mean"] = mean
            spreads = _episode_spreads(column[here], replicates)
            values |= {f"eval/{_EPISODES[name]}_{word}": x for word, x in spreads.items()}
        found.append((LoggedPoint(at, values), len(set(replicates.tolist()))))
    return found


def _episode_spreads(values: np.ndarray, replicates: np.ndarray) -> dict[str, float]:
    """Return the mean over replicates of each statistic of their finite episodes."""
    each = [values[(replicates == one) & np.isfinite(values)] for one in np.unique(replicates)]
    known = [episodes for episodes in each if len(episodes)]
    spreads: dict[str, float] = {}
    for word in ("median", "min", "max", "std"):
        spreads[word] = float(np.mean([getattr(np, word)(episodes) for episodes in known]))
    return spreads


def _finite_mean(values: np.ndarray) -> float | None:
    finite = values[np.isfinite(values)]
    if not len(finite):
        return None
    return float(np.mean(finite))


FINAL = ("state", "value", "ci_low", "ci_high", "rank", "rung", "rung_value", "env_steps",
         "report_value", "stop_rule")  # fmt: skip
"""Columns of a trial's row that summarise its run."""


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """Names and configurations of runs on a tracking server."""

    name: str  # name of the study's run
    policy: bool = True  # whether to log the winner's policy as an artifact
    study: Mapping[str, Any] = field(default_factory=dict[str, Any])  # as plain data
    # hyperparameters that are not searched
    fixed: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def of_trial(self, news: TrialNews) -> dict[str, Any]:
        return {**self.fixed, **news.params, "trial": news.trial}

    def policy_folder(self, directory: Path, news: News) -> Path | None:
        """Return the winner's policy; None if there is none or it is not requested."""
        folder = directory / "policies" / f"trial_{news.table['trial'][0]}"
        if not self.policy or not folder.is_dir():
            return None
        return folder


Run = TypeVar("Run")


class FollowingSink(ABC, Generic[Run]):
    """A sink with one run for the study and one per followed trial; see `store.sinks.Sink`.

    The sink continues from its progress mark. After a crash some points may be logged twice, but
    none is missing.
    """

    name: str  # also the name of its extra
    package: str

    def __init__(self, follower: Follower, target: Path | None = None):
        try:
            importlib.import_module(self.package)  # in the study's thread: see `store.sinks`
        except ImportError as error:
            raise MissingExtraError(self.package, self.name, f"the {self.name} logger") from error
        self._follower, self._target = follower, target
        self._directory: Path | None = None
        self._mark = SinkProgress()
        self._runs: dict[str, Run] = {}  # open runs, by "study" or "trial-<n>"

    def published(self, directory: Path) -> None:
        if self._directory is None:
            self._mark = SinkProgress.read(self._log_folder(directory), self.name)
            self._reopen_trials(directory)
        self._directory = directory
        self._write_news(directory, final=False)

    def close(self) -> None:
        directory, self._directory = self._directory, None
        finished = directory is not None and is_finished(directory)
        state = "interrupted"
        if directory is not None:
            self._reopen_trials(directory)  # the first publication may precede a retry
            news = self._write_news(directory, finished)
            if finished and news.table["trial"]:
                self._write_end(directory, news)
        if finished:
            state = "finished"
        for run in self._runs.values():
            self._close_run(run, state)
        self._runs = {}

    def _log_folder(self, directory: Path) -> Path:
        return self._target or directory

    def _reopen_trials(self, directory: Path) -> None:
        for trial in self._follower.reopen(directory, self._mark):
            self._start_over(directory, f"trial-{trial}")

    def _start_over(self, directory: Path, key: str) -> None:
        """Leave a run whose trial started over: the trial gets a new run."""
        self._mark.kept.get("runs", {}).pop(key, None)

    def _write_news(self, directory: Path, final: bool) -> News:
        news = self._follower.news(directory, self._mark, final)
        self._log_news(directory, news)
        # Last, so that after a crash points may be repeated but none is missing.
        self._mark.write(self._log_folder(directory), self.name)
        return news

    def _run_id(self, directory: Path, key: str) -> str:
        """Return the permanent id of a run."""
        ids: dict[str, str] = self._mark.kept.setdefault("runs", {})
        if key not in ids:
            ids[key] = uuid.uuid4().hex[:12]
            # First, so that a crash cannot cause a second run.
            self._mark.write(self._log_folder(directory), self.name)
        return ids[key]

    def _log_news(self, directory: Path, news: News) -> None:
        study = self._open_run_once(directory, "study", None)
        self._log_points(study, "env_steps", _finite_points([news.point]))
        ends = [(row["trial"], row["search_value"]) for row in news.ended]
        values = [LoggedPoint(n, {"value_of_trial": x}) for n, x in ends if x is not None]
        self._log_points(study, "trial", _finite_points(values))
        for trial in news.trials:
            key = f"trial-{trial.trial}"
            run = self._open_run_once(directory, key, trial)
            self._log_points(run, "env_steps", _finite_points(trial.points))
            if trial.ended:
                self._log_end(run, trial)
                self._close_run(self._runs.pop(key), trial.row["state"])

    def _open_run_once(self, directory: Path, key: str, trial: TrialNews | None) -> Run:
        if key not in self._runs:
            self._runs[key] = self._open_run(directory, key, trial)
        return self._runs[key]

    @abstractmethod
    def _open_run(self, directory: Path, key: str, trial: TrialNews | None) -> Run:
        """Start or resume a run; `trial` is None for the study's run."""

    @abstractmethod
    def _log_points(self, run: Run, axis: str, points: Sequence[LoggedPoint]) -> None:
        """Add points with `axis` as their x value: `env_steps` or the number of the `trial`."""

    @abstractmethod
    def _log_end(self, run: Run, trial: TrialNews) -> None:
        """Add the summary of an ended trial."""

    def _write_end(self, directory: Path, news: News) -> None:
        """Write the summary of a finished study."""

    @abstractmethod
    def _close_run(self, run: Run, state: str) -> None: ...


def _finite_points(points: Sequence[LoggedPoint]) -> list[LoggedPoint]:
    found: list[LoggedPoint] = []
    for point in points:
        values = {name: value for name, value in point.values.items() if math.isfinite(value)}
        if values:
            found.append(LoggedPoint(point.env_steps, values))
    return found
