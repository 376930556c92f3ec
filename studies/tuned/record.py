"""One tuned configuration with its proof, as data: what a file under `results/tuned` holds.

A record stands alone: it has the whole configuration of everybody who ran, one value a seed, and
what it takes to train each of them again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from ...errors import ConfigError, Mistake, StudyError
from ...files.plain_data import as_lists, is_mapping, is_sequence
from ...knobs import complete
from ..yaml_io import Node, flow, plain, read_file

TUNED, DEFAULT = "tuned", "default"
SEEDS = 32
"""Fresh seeds that a proof rests on."""


@dataclass(frozen=True)
class Curve:
    """What a configuration's runs looked like on the way, over all seeds.

    Attributes:
        env_steps: of each point, ascending.
        greedy: IQM over seeds of the metric in evaluation.
        low, high: its 95 % interval.
        training: mean over seeds of the return of training episodes, the last 100 of each seed;
            None before the first one ended.
    """

    env_steps: tuple[int, ...]
    greedy: tuple[float, ...]
    low: tuple[float | None, ...]
    high: tuple[float | None, ...]
    training: tuple[float | None, ...]


@dataclass(frozen=True)
class Cost:
    """What all seeds of one configuration took together.

    Attributes:
        env_steps: trained.
        eval_env_steps: of evaluations.
        cpu_seconds: of the process, compiling included; None where that is not known.
    """

    env_steps: int
    eval_env_steps: int
    cpu_seconds: float | None = None


@dataclass(frozen=True)
class Contender:
    """One configuration with what it got on the seeds of the proof.

    A seed that diverged has None.

    Attributes:
        who: `tuned`, `default`, or who publishes it.
        config: the whole configuration, every knob.
        greedy: the metric in the last evaluation, one value a seed.
        training: the return of the last 100 training episodes, one value a seed.
        area: the mean height of the seed's evaluations over env steps.
        to_threshold: env steps of the first evaluation that reaches the threshold; None: never.
        curve: on the way.
        cost: of all seeds.
        source: where it was published: `by`, `repository`, `commit`, `file`, `env_steps`, and
            `without`, what could not be taken over; of others nothing.
    """

    who: str
    config: Mapping[str, Any]
    greedy: tuple[float | None, ...]
    training: tuple[float | None, ...]
    area: tuple[float | None, ...]
    to_threshold: tuple[int | None, ...]
    curve: Curve
    cost: Cost
    source: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class Origin:
    """The study that found the configuration.

    Attributes:
        file: the study file, relative to the folder that holds `results/tuned`.
        sha256: of its bytes.
        trial: the winner's number.
        trials: how many the study had.
        verdict: of its own conclusion.
        said: that conclusion in words.
        env_steps: trained by the study, its confirm stage included.
        seeds: of the search, of those that chose, of those that chose nothing; a trial's each.
    """

    file: str
    sha256: str
    trial: int
    trials: int
    verdict: str
    said: str
    env_steps: int
    seeds: Mapping[str, int]


@dataclass(frozen=True)
class Made:
    """What ran the proof.

    Attributes:
        on: the day, as 2026-11-22.
        commit: of the checkout, with `+` where it had changes; "" of an installed package.
        versions: package -> version.
        backend: `cpu` or `gpu`.
        devices: how many.
    """

    on: str
    commit: str
    versions: Mapping[str, str]
    backend: str
    devices: int


@dataclass(frozen=True)
class Record:
    """Everything about one environment.

    Attributes:
        name: of the file and in commands.
        env: its id.
        env_values: the keys given beside the id.
        env_steps: of one run.
        metric: what was optimised and is compared.
        goal: `maximize` or `minimize`.
        evaluation: how runs were evaluated: episodes (of a network without end, how many
            networks), env steps of each where they do not end, and whether greedy.
        seed: the root of the seeds of the proof, which no study used.
        threshold: the value whose first reaching is timed.
        made: what ran it.
        origin: the study.
        contenders: the tuned configuration first, then the default, then what others publish.
        heuristics: of an optical network, name -> the metric on the requests of each seed's last
            evaluation, one value a seed.
    """

    name: str
    env: str
    env_values: Mapping[str, Any]
    env_steps: int
    metric: str
    goal: Literal["maximize", "minimize"]
    evaluation: Mapping[str, Any]
    seed: int
    threshold: float
    made: Made
    origin: Origin
    contenders: Sequence[Contender]
    heuristics: Mapping[str, tuple[float, ...]] = field(default_factory=dict[str, Any])

    @property
    def tuned(self) -> Contender:
        """Ours."""
        return self.contenders[0]

    @property
    def estimator(self) -> Literal["mean", "iqm"]:
        """What the values of all seeds are summarised by, the same for everybody compared.

        The mean where heuristics serve the same requests: blocking is a rate, so that of all
        requests together is the mean, and a difference paired by seed is one of means.
        """
        return "mean" if self.heuristics else "iqm"

    def contender(self, who: str) -> Contender | None:
        """Return one of them by name."""
        return next((one for one in self.contenders if one.who == who), None)


_WIDTH = 98
_HEAD = """\
# A tuned configuration with its proof: `hpo tuned {name}` says it in words, and
# `hpo tuned verify {name}` trains it again. Written by `hpo tuned add`; lists have a value a seed.
"""
_SEEDED = ("greedy", "training", "area", "to_threshold")


def record_text(record: Record) -> str:
    """Return a record as the text of its file."""
    base = as_lists(_default_config(record.contenders))
    data: dict[str, Any] = {
        "name": record.name,
        "env": {"id": record.env, **record.env_values} if record.env_values else record.env,
        "env_steps": record.env_steps,
        "config": _difference(record.tuned.config, base),
        "metric": {"name": record.metric, "goal": record.goal},
        "evaluation": dict(record.evaluation),
        "seed": record.seed,
        "threshold": record.threshold,
        "study": asdict(record.origin),
        "made": asdict(record.made),
        "results": {one.who: _result(one, base) for one in record.contenders},
        **({"heuristics": dict(record.heuristics)} if record.heuristics else {}),
        "defaults": base,
    }
    return _HEAD.format(name=record.name) + "".join(
        _written(key, value, 0) for key, value in as_lists(data).items()
    )


def _result(one: Contender, base: Mapping[str, Any]) -> dict[str, Any]:
    data = asdict(one)
    del data["who"]
    data["config"] = _difference(one.config, base)
    if one.who == TUNED:  # it stands at the top of the file
        del data["config"]
    return {key: value for key, value in data.items() if key != "source" or value}


def _default_config(contenders: Sequence[Contender]) -> Mapping[str, Any]:
    """Return what configurations are written as differences from: the default's."""
    return next((one.config for one in contenders if one.who == DEFAULT), complete({}))


def _difference(config: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    plain_config = as_lists(dict(config))
    return {
        name: value
        for name, value in plain_config.items()
        if name not in base or base[name] != value or type(base[name]) is not type(value)
    }


def _written(key: str, value: Any, indent: int) -> str:
    """Write one key: mappings of mappings and lists in blocks, all else wrapped on lines."""
    pad, name = " " * indent, flow(key)
    nested = is_mapping(value) and any(is_mapping(v) or is_sequence(v) for v in value.values())
    if is_mapping(value) and (nested or indent == 0) and value and key != "defaults":
        inner = "".join(_written(k, v, indent + 2) for k, v in value.items())
        return f"{pad}{name}:\n{inner}"
    line = f"{pad}{name}: {flow(value)}"
    if len(line) <= _WIDTH or not (is_mapping(value) or is_sequence(value)):
        return line + "\n"
    return f"{pad}{name}:\n{_wrapped(value, indent + 2)}"


def _wrapped(value: Any, indent: int) -> str:
    """Write a flow mapping or list over several lines."""
    if is_mapping(value):
        ends, cells = "{}", [f"{flow(k)}: {flow(v)}" for k, v in value.items()]
    else:
        ends, cells = "[]", [flow(item) for item in value]
    lines, row = list[str](), " " * indent + ends[0]
    for place, cell in enumerate(cells):
        cell += ends[1] if place == len(cells) - 1 else ", "
        if len(row) + len(cell) > _WIDTH and row.strip() != ends[0]:
            lines.append(row.rstrip())
            row = " " * (indent + 1)
        row += cell
    return "\n".join([*lines, row]) + "\n"


# ---------------------------------------------------------------------- reading


def read_record(path: Path) -> Record:
    """Read a record.

    Raises:
        StudyError: the file is no YAML, or lacks something; with file and line.
    """
    node = read_file(path, str(path))
    try:
        return _record(_mapping(plain(node), "the file"))
    except _LackError as lack:
        line = _line_of(node, lack.path)
        raise StudyError(str(path), [Mistake(line, str(lack))]) from None


class _LackError(ConfigError):
    """Something is missing or of the wrong kind.

    Attributes:
        path: the keys that lead there.
    """

    def __init__(self, path: Sequence[str], text: str):
        self.path = tuple(path)
        super().__init__(f"{'.'.join(path)}: {text}" if path else text)


def _line_of(node: Node, path: Sequence[str]) -> int | None:
    """Return the line of the deepest key of a path that is there."""
    line = node.line
    for key in path:
        if not node.is_map or key not in node.value:
            break
        node = node.value[key]
        line = node.line
    return line


def _record(data: Mapping[str, Any]) -> Record:
    env = _of(data, "env", (str, dict))
    metric = _map(data, "metric")
    base = _map(data, "defaults")
    results = _map(data, "results")
    goal = _of(metric, "goal", str, "metric")
    if goal not in ("maximize", "minimize"):
        raise _LackError(("metric", "goal"), f"{goal!r}; allowed: maximize, minimize")
    if next(iter(results), None) != TUNED:
        raise _LackError(("results",), "begins with tuned, the configuration of this file")
    configs = {TUNED: _map(data, "config")}
    contenders = [_contender(who, results, {**base}, configs.get(who)) for who in results]
    heuristics = _mapping(data.get("heuristics", {}), "heuristics")
    return Record(
        name=_of(data, "name", str),
        env=env if isinstance(env, str) else _of(env, "id", str, "env"),
        env_values={} if isinstance(env, str) else {k: v for k, v in env.items() if k != "id"},
        env_steps=_of(data, "env_steps", int),
        metric=_of(metric, "name", str, "metric"),
        goal=goal,
        evaluation=_map(data, "evaluation"),
        seed=_of(data, "seed", int),
        threshold=float(_of(data, "threshold", (int, float))),
        made=_fields(Made, _map(data, "made"), "made"),
        origin=_fields(Origin, _map(data, "study"), "study"),
        contenders=tuple(contenders),
        heuristics={
            name: _seeds_of(heuristics, name, len(contenders[0].greedy)) for name in heuristics
        },
    )


def _seeds_of(heuristics: Mapping[str, Any], name: str, seeds: int) -> tuple[float, ...]:
    values = _values(heuristics, name, "heuristics")
    if len(values) != seeds or None in values:
        raise _LackError(("heuristics", name), f"it needs {seeds} numbers, one a seed")
    return values


def _contender(
    who: str, results: Mapping[str, Any], base: dict[str, Any], own: Mapping[str, Any] | None
) -> Contender:
    place = f"results.{who}"
    data = _map(results, who, "results")
    config = own if own is not None else _map(data, "config", place)
    curve = _map(data, "curve", place)
    points = {f.name: _values(curve, f.name, f"{place}.curve") for f in fields(Curve)}
    if len({len(values) for values in points.values()}) != 1:
        raise _LackError(("results", who, "curve"), "its lists are of unlike length")
    seeded = {name: _values(data, name, place) for name in _SEEDED}
    if len({len(values) for values in seeded.values()}) != 1:
        raise _LackError(("results", who), f"{', '.join(_SEEDED)} are of unlike length")
    return Contender(
        who=who,
        config={**base, **config},
        greedy=seeded["greedy"],
        training=seeded["training"],
        area=seeded["area"],
        to_threshold=seeded["to_threshold"],
        curve=Curve(**points),
        cost=_fields(Cost, _map(data, "cost", place), f"{place}.cost"),
        source=_mapping(data.get("source", {}), f"{place}.source"),
    )


def _values(data: Mapping[str, Any], key: str, place: str) -> tuple[Any, ...]:
    values = _of(data, key, list, place)
    for value in values:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not number:
            raise _LackError((*place.split("."), key), f"{value!r} is no number")
    return tuple(values)


def _fields(kind: Any, data: Mapping[str, Any], place: str) -> Any:
    """Return a dataclass made of a mapping that must have just its fields."""
    names = [f.name for f in fields(kind)]
    for name in names:
        _of(data, name, object, place)
    for name in data:
        if name not in names:
            raise _LackError((*place.split("."), name), f"unknown; known: {', '.join(names)}")
    return kind(**data)


def _map(data: Mapping[str, Any], key: str, place: str = "") -> Mapping[str, Any]:
    return _of(data, key, dict, place)


def _mapping(value: Any, what: str) -> Mapping[str, Any]:
    if not is_mapping(value):
        raise _LackError((), f"{what} is no mapping of names and values")
    return value


def _of(data: Mapping[str, Any], key: str, kind: Any, place: str = "") -> Any:
    path = (*place.split("."), key) if place else (key,)
    if key not in data:
        raise _LackError(path, "is missing; make the record again")
    value = data[key]
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
        raise _LackError(path, f"{value!r} is of the wrong kind")
    return value
