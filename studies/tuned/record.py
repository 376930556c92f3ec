"""One tuned configuration with its test results: the contents of a file in `results/tuned`.

A record is complete: it has the whole configuration of every contender, one value per seed, and
all settings needed to retrain every contender.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from ...environments.registry import full_id
from ...errors import ConfigError, StudyError, UnknownNameError
from ...files.plain_data import is_number
from ...knobs import AVERAGE_REWARD
from ..yaml_io import Node, Notes, plain, read_file

TUNED, DEFAULT = "tuned", "default"
PLACE = Path("results") / "tuned"
"""The folder written by `scripts/tuned`; its files take precedence over the package's."""
PREFIX = "tuned:"  # in place of a study file: `hpo train tuned:CartPole-v1`


@dataclass(frozen=True)
class Curve:
    """The learning curve of a configuration, over all seeds."""

    env_steps: tuple[int, ...]  # ascending
    greedy: tuple[float, ...]  # IQM of the evaluated metric over seeds
    low: tuple[float | None, ...]  # its 95 % interval
    high: tuple[float | None, ...]
    # mean over seeds of the mean return of the last 100 training episodes; None before the first
    training: tuple[float | None, ...]


@dataclass(frozen=True)
class TestCost:
    env_steps: int
    eval_env_steps: int
    cpu_seconds: float | None = None  # of the process, including compilation


@dataclass(frozen=True)
class Contender:
    """One configuration with its results on the test seeds; None for a diverged seed."""

    who: str  # tuned, default, or the publisher's name
    config: Mapping[str, Any]  # every hyperparameter
    greedy: tuple[float | None, ...]  # at the last evaluation, per seed
    training: tuple[float | None, ...]
    area: tuple[float | None, ...]  # mean height of the learning curve, per seed
    # env steps of the first evaluation that reaches the threshold, per seed; None: never
    to_threshold: tuple[int | None, ...]
    curve: Curve
    cost: TestCost
    # for published ones: by, repository, commit, file, env_steps, without (settings hpo lacks)
    source: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class Origin:
    """The study that found the configuration."""

    file: str  # relative to the parent folder of `results/tuned`
    sha256: str
    trial: int  # number of the winner
    trials: int
    verdict: str
    said: str  # the verdict as text
    env_steps: int  # of search and confirm
    seeds: Mapping[str, int]  # per trial: in search, selection and test
    bundle: str = ""  # sha256 of the `hpo bundle` file from which it was added


@dataclass(frozen=True)
class Provenance:
    """The software and machine of the test runs."""

    on: str  # date, such as 2026-11-22
    commit: str  # ends in `+` if there were changes; "": an installed package
    versions: Mapping[str, str]
    backend: str
    devices: int


@dataclass(frozen=True)
class TunedRecord:
    name: str
    env: str
    env_values: Mapping[str, Any]
    env_steps: int  # per run
    metric: str
    goal: Literal["maximize", "minimize"]
    # episodes (networks, if episodes do not end), steps (of each, if they do not end), greedy
    evaluation: Mapping[str, Any]
    seed: int  # root of the test seeds, used by no study
    threshold: float  # value whose first attainment is timed
    made: Provenance
    origin: Origin
    # the tuned configuration, the default, and then published ones
    contenders: Sequence[Contender]
    # for optical networks: name -> metric on the requests of the last evaluation, per seed
    heuristics: Mapping[str, tuple[float, ...]] = field(default_factory=dict[str, Any])

    @property
    def env_given(self) -> Any:
        if not self.env_values:
            return self.env
        return {"id": self.env, **self.env_values}

    @property
    def tuned(self) -> Contender:
        return self.contenders[0]

    @property
    def estimator(self) -> Literal["mean", "iqm"]:
        """The estimator over all seeds, which is the same for all contenders.

        It is the mean if heuristics ran on the same requests, because blocking rates are means,
        and comparisons with heuristics are differences of means.
        """
        if self.heuristics:
            return "mean"
        return "iqm"


def shipped() -> Path:
    return Path(__file__).parents[2] / PLACE


def folders(place: Path | None = None) -> list[Path]:
    """Return the folders to search, in order, or only `place` if it is given."""
    if place is not None:
        return [place]
    return list(dict.fromkeys(path.resolve() for path in (PLACE, shipped()) if path.is_dir()))


def file_name(name: str) -> str:
    """Return the file name for a record's name.

    >>> file_name("gym:LunarLander-v3")
    'gym-LunarLander-v3.yaml'
    """
    return name.replace(":", "-").replace("/", "-") + ".yaml"


def record_files(where: Sequence[Path]) -> dict[str, Path]:
    """Return the files by stem, sorted by name; earlier folders take precedence."""
    found: dict[str, Path] = {}
    for folder in where:
        for path in folder.glob("*.yaml"):
            found.setdefault(path.stem, path)
    return dict(sorted(found.items(), key=lambda item: item[0].lower()))


def known_record(name: str, place: Path | None = None) -> TunedRecord | None:
    files = record_files(folders(place))
    stems = (file_name(word).removesuffix(".yaml") for word in (name, full_id(name)))
    return next((read_record(files[stem]) for stem in stems if stem in files), None)


def find_record(name: str, place: Path | None = None) -> TunedRecord:
    found, files = known_record(name, place), record_files(folders(place))
    if found is not None:
        return found
    if not files:
        raise ConfigError(f"no tuned configuration in {place or PLACE}; create one", tuned=True)
    raise UnknownNameError("tuned configuration", name, files)


@dataclass(frozen=True)
class _Metric:
    name: str
    goal: Literal["maximize", "minimize"]


def read_record(path: Path) -> TunedRecord:
    """Read a record; a `StudyError` gives file and line."""
    reader, root = _RecordReader(Notes(str(path))), read_file(path, str(path))
    own = {key: reader.child(root, key) for key in ("env", "metric", "results", "study")}
    base, tuned = (plain(reader.child(root, key)) for key in ("defaults", "config"))
    if base.get(AVERAGE_REWARD) == 0:  # the default at the time, which now means `off`
        base[AVERAGE_REWARD] = None
    metric: _Metric = reader.filled(_Metric, own["metric"], "metric.")
    env = plain(own["env"])
    if not own["env"].is_map:
        env = {"id": env}
    results: dict[str, Node] = own["results"].value
    if next(iter(results), None) != TUNED:
        raise reader.fault(own["results"], "results: the first entry must be tuned")
    contenders: list[Contender] = []
    for who, node in results.items():
        changed = tuned
        if who != TUNED:
            changed = plain(reader.child(node, "config"))
        where, own_values = f"results.{who}.", {"who": who, "config": {**base, **changed}}
        contenders.append(reader.filled(Contender, node, where, **own_values))
    heuristics = root.value.get("heuristics", Node(None, {}))
    blocking = {
        name: reader.value(tuple[float, ...], node, name)
        for name, node in heuristics.value.items()
    }
    seeds = len(contenders[0].greedy)
    for name, values in blocking.items():
        if None in values or len(values) != seeds:
            text = f"heuristics.{name} needs {seeds} numbers, one per seed"
            raise reader.fault(heuristics.value[name], text)
    others = ("config", "defaults", "results", "heuristics", "env", "metric", "study")
    rest = {key: node for key, node in root.value.items() if key not in others}
    return reader.filled(
        TunedRecord,
        Node(root.line, {**rest, "origin": own["study"]}),
        "",
        env=str(env.pop("id", "")),
        env_values=env,
        metric=metric.name,
        goal=metric.goal,
        contenders=tuple(contenders),
        heuristics=blocking,
    )


@dataclass
class _RecordReader:
    """Creates dataclasses from a file's mappings, and checks each value against its annotation."""

    notes: Notes

    def fault(self, node: Node, text: str) -> StudyError:
        self.notes.add(text, node)
        return self.notes.error()

    def child(self, node: Node, key: str, where: str = "") -> Node:
        if not node.is_map or key not in node.value:
            raise self.fault(node, f"{where}{key} is missing; create the record again")
        return node.value[key]

    def filled(self, kind: Any, node: Node, where: str, **given: Any) -> Any:
        hints = get_type_hints(kind)
        for key, child in node.mapping.items():
            if key not in hints:
                text = f"{where}{key}: unknown; known: {', '.join(hints)}"
                raise self.fault(child, text)
        for one in fields(kind):
            optional = one.default is not MISSING or one.default_factory is not MISSING
            if one.name not in given and not (optional and one.name not in node.value):
                child = self.child(node, one.name, where)
                given[one.name] = self.value(hints[one.name], child, where + one.name)
        if len({len(given[name]) for name in given if isinstance(given[name], tuple)}) > 1:
            raise self.fault(node, f"{where.strip('.')}: the lists have different lengths")
        return kind(**given)

    def value(self, hint: Any, node: Node, where: str) -> Any:
        if is_dataclass(hint):
            return self.filled(hint, node, f"{where}.")
        value: Any = plain(node)
        parts, origin = get_args(hint) or (hint,), get_origin(hint)
        if origin is tuple and node.is_list:
            for one in value:
                if one is not None and not is_number(one):
                    raise self.fault(node, f"{where}: {one!r} is not a number")
            return tuple(value)
        if origin is Mapping and node.is_map:
            return value
        if origin is Literal:
            if value not in parts:
                raise self.fault(node, f"{where} is {value!r}; allowed: {', '.join(parts)}")
            return value
        types = set(parts)
        if float in types:
            types.add(int)
        if type(value) not in types:
            raise self.fault(node, f"{where}: {value!r} has the wrong type")
        if hint is float:
            return float(value)
        return value
