"""One tuned configuration with its test results: the data of a file under `results/tuned`.

A record is complete: the whole configuration of every contender, one value per seed, and all
settings needed to train each of them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from ...errors import ConfigError, Mistake, StudyError
from ...files.plain_data import is_mapping
from ..yaml_io import plain, read_file

TUNED, DEFAULT = "tuned", "default"


@dataclass(frozen=True)
class Curve:
    """The course of a configuration's runs, over all seeds."""

    env_steps: tuple[int, ...]  # ascending
    greedy: tuple[float, ...]  # IQM over seeds of the evaluated metric
    low: tuple[float | None, ...]  # its 95 % interval
    high: tuple[float | None, ...]
    # mean over seeds of the mean return of the last 100 training episodes; None before the first
    training: tuple[float | None, ...]


@dataclass(frozen=True)
class Cost:
    env_steps: int
    eval_env_steps: int
    cpu_seconds: float | None = None  # of the process, with compilation


@dataclass(frozen=True)
class Contender:
    """One configuration with its results on the test seeds; None for a seed that diverged."""

    who: str  # tuned, default, or the publisher
    config: Mapping[str, Any]  # every knob
    greedy: tuple[float | None, ...]  # of the last evaluation, per seed
    training: tuple[float | None, ...]
    area: tuple[float | None, ...]  # mean height of the curve, per seed
    # env steps of the first evaluation at the threshold, per seed; None: never
    to_threshold: tuple[int | None, ...]
    curve: Curve
    cost: Cost
    # of published ones: by, repository, commit, file, env_steps, without (settings hpo lacks)
    source: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class Origin:
    """The study that found the configuration."""

    file: str  # relative to the folder of `results/tuned`
    sha256: str
    trial: int  # the winner's number
    trials: int
    verdict: str
    said: str  # the verdict in words
    env_steps: int  # search and confirm
    seeds: Mapping[str, int]  # per trial: in search, selection and test


@dataclass(frozen=True)
class Made:
    """The software and machine of the test runs."""

    on: str  # as 2026-11-22
    commit: str  # `+` at its end: with changes; "": an installed package
    versions: Mapping[str, str]
    backend: str
    devices: int


@dataclass(frozen=True)
class Record:
    name: str
    env: str
    env_values: Mapping[str, Any]
    env_steps: int  # of one run
    metric: str
    goal: Literal["maximize", "minimize"]
    # episodes (networks, if episodes do not end), steps (of each, if they do not end), greedy
    evaluation: Mapping[str, Any]
    seed: int  # root of the test seeds, used by no study
    threshold: float  # its first reaching is timed
    made: Made
    origin: Origin
    # the tuned configuration, the default, then published ones
    contenders: Sequence[Contender]
    # of optical networks: name -> the metric on the requests of the last evaluation, per seed
    heuristics: Mapping[str, tuple[float, ...]] = field(default_factory=dict[str, Any])

    @property
    def env_given(self) -> Any:
        return {"id": self.env, **self.env_values} if self.env_values else self.env

    @property
    def tuned(self) -> Contender:
        return self.contenders[0]

    @property
    def estimator(self) -> Literal["mean", "iqm"]:
        """The estimator of the values of all seeds, the same for all contenders.

        The mean where heuristics serve the same requests: blocking is a rate, so the rate of all
        requests together is the mean, and a difference paired by seed is one of means.
        """
        return "mean" if self.heuristics else "iqm"

    def contender(self, who: str) -> Contender | None:
        return next((one for one in self.contenders if one.who == who), None)


_SEEDED = ("greedy", "training", "area", "to_threshold")


def read_record(path: Path) -> Record:
    """Read a record; a `StudyError` names file and line."""
    node = read_file(path, str(path))
    try:
        return _record(_Part(plain(node)))
    except _LackError as lack:
        line = node.line
        for key in lack.path:  # of the deepest key that exists
            if not node.is_map or key not in node.value:
                break
            node = node.value[key]
            line = node.line
        raise StudyError(str(path), [Mistake(line, str(lack))]) from None


class _LackError(ConfigError):
    def __init__(self, path: Sequence[str], text: str):
        self.path = tuple(path)
        super().__init__(f"{'.'.join(path)}: {text}" if path else text)


class _Part:
    def __init__(self, data: Any, path: tuple[str, ...] = ()):
        if not is_mapping(data):
            name = ".".join(path) or "the file"
            raise _LackError((), f"{name} is not a mapping of names and values")
        self.data, self.path = data, path

    def of(self, key: str, kind: Any) -> Any:
        if key not in self.data:
            raise self.lack("is missing; make the record again", key)
        value = self.data[key]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
            raise self.lack(f"{value!r} is of the wrong kind", key)
        return value

    def part(self, key: str, optional: bool = False) -> _Part:
        data = self.data.get(key, {}) if optional else self.of(key, dict)
        return _Part(data, (*self.path, key))

    def numbers(self, key: str) -> tuple[Any, ...]:
        values = self.of(key, list)
        for value in values:
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if value is not None and not number:
                raise self.lack(f"{value!r} is not a number", key)
        return tuple(values)

    def lists(self, names: Iterable[str], what: str) -> dict[str, tuple[Any, ...]]:
        """Return lists of numbers of one length."""
        found = {name: self.numbers(name) for name in names}
        if len({len(values) for values in found.values()}) != 1:
            raise self.lack(f"{what} have different lengths")
        return found

    def fill(self, kind: Any) -> Any:
        """Return a dataclass from a mapping with exactly its fields."""
        names = [field.name for field in fields(kind)]
        values = {name: self.of(name, object) for name in names}
        for name in self.data:
            if name not in names:
                raise self.lack(f"unknown; known: {', '.join(names)}", name)
        return kind(**values)

    def lack(self, text: str, *keys: str) -> _LackError:
        return _LackError((*self.path, *keys), text)


def _record(file: _Part) -> Record:
    env, metric, results = file.of("env", (str, dict)), file.part("metric"), file.part("results")
    env = _Part({"id": env} if isinstance(env, str) else env, ("env",))
    goal = metric.of("goal", str)
    if goal not in ("maximize", "minimize"):
        raise metric.lack(f"{goal!r}; allowed: maximize, minimize", "goal")
    if next(iter(results.data), None) != TUNED:
        raise results.lack("begins with tuned, the configuration of this file")
    base, config = file.part("defaults").data, file.part("config").data
    contenders = tuple(_contender(who, results.part(who), base, config) for who in results.data)
    heuristics, seeds = file.part("heuristics", optional=True), len(contenders[0].greedy)
    blocking = {name: heuristics.numbers(name) for name in heuristics.data}
    for name, values in blocking.items():
        if len(values) != seeds or None in values:
            raise heuristics.lack(f"it needs {seeds} numbers, one per seed", name)
    return Record(
        name=file.of("name", str),
        env=env.of("id", str),
        env_values={key: value for key, value in env.data.items() if key != "id"},
        env_steps=file.of("env_steps", int),
        metric=metric.of("name", str),
        goal=goal,
        evaluation=file.part("evaluation").data,
        seed=file.of("seed", int),
        threshold=float(file.of("threshold", (int, float))),
        made=file.part("made").fill(Made),
        origin=file.part("study").fill(Origin),
        contenders=contenders,
        heuristics=blocking,
    )


def _contender(
    who: str, data: _Part, base: Mapping[str, Any], tuned: Mapping[str, Any]
) -> Contender:
    config = tuned if who == TUNED else data.part("config").data
    points = data.part("curve").lists([field.name for field in fields(Curve)], "its lists")
    return Contender(
        who=who,
        config={**base, **config},
        **data.lists(_SEEDED, ", ".join(_SEEDED)),
        curve=Curve(**points),
        cost=data.part("cost").fill(Cost),
        source=data.part("source", optional=True).data,
    )
