"""The `hpo bench` file: methods, written like studies, and the tables to compare them on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from ..errors import ConfigError, UnknownNameError
from .execution_spec import Budget
from .field import key, keys_of
from .load import of_its_day, study_of
from .overrides import apply_overrides
from .search_spec import Metric
from .sections import read_section
from .spec import Study
from .yaml_io import Node, Notes, node_of, read_file, read_text

METHOD_KEYS = ("imports", "search", "enqueue", "evaluation", "early_terminate", "seeds", "confirm",
               "population", "metric")  # fmt: skip
"""Study keys that a method can set; the table provides the others."""
_OWN: Mapping[str, Any] = {
    "budget": {"trials": 1_000_000},
    "checkpoint": {"keep_best": 0},
    "baselines": [],
}
_FROM_TABLE = ("env", "env_steps", "fixed", "space", "forbid", "metric", "log_every")


@dataclass(frozen=True)
class BenchSpec:
    """The section `bench`."""

    tables: str = key("results/atlas", "folder of the recorded tables, relative to this file")
    environments: tuple[str, ...] = key(
        (), "names of the tables; omitted: all in the folder", type="words"
    )
    budgets: tuple[int, ...] = key(
        (8, 16, 24, 48, 96), "search budgets, in full runs of one seed", type="counts"
    )
    searches: int = key(60, "searches per method, environment and budget", low=2)
    move: bool = key(
        True,
        "move proposals to the nearest recorded configuration not yet tried; "
        "off: keep the proposals, but use the runs of that configuration",
    )
    lanes: int = key(12, "lanes per search", low=1)
    test_seeds: int = key(2, "recorded seeds used only to evaluate the selected trials", low=1)
    baseline: str | None = key(None, "method to compare the others with; omitted: the first")
    baseline_budget: int | None = key(
        None, "budget of the baseline; omitted: 48 if listed, else the largest"
    )
    seed: int = key(1, "seed of the first search")


@dataclass(frozen=True)
class BenchFile:
    spec: BenchSpec
    methods: Mapping[str, Node]  # name -> its node
    shown: str  # name of the file in messages
    source: Path  # folder of the file

    @property
    def tables(self) -> Path:
        return self.source / self.spec.tables

    def environments(self) -> list[str]:
        """Return the names of the tables."""
        found = sorted(
            path.parent.relative_to(self.tables).as_posix()
            for path in self.tables.rglob("trials.parquet")
        )
        if not found:
            raise ConfigError(
                f"{self.tables} contains no tables; set bench.tables to the folder of the tables"
            )
        for name in self.spec.environments:
            if name not in found:
                raise UnknownNameError(f"table of {self.tables}", name, found)
        return list(self.spec.environments or found)

    def study(self, method: str, table_text: str) -> Study:
        """Return a method's study on a table's environment; `table_text` is the table's study.

        Raises `StudyError` with all mistakes in the method, or `ConfigError` if the method cannot
        use recorded runs.
        """
        root, own, notes = read_text(table_text, self.shown), self.methods[method], Notes("table")
        apply_overrides(notes, root, of_its_day(root))
        if "algorithm" in root.value or "command" in root.value:
            what = "runs of a custom training or command"
            raise ConfigError(f"{self.shown}: a table has {what}; a benchmark needs those of PPO")
        kept = {name: root.value[name] for name in _FROM_TABLE if name in root.value}
        extra = {name: node_of(value) for name, value in _OWN.items()}
        made = Node(own.line, {**kept, **own.value, **extra}, dict(own.key_lines))
        given = own.value.get("evaluation", node_of({}))
        every = {"every": node_of("rungs")}
        if given.is_map:  # episodes and steps are those of the record
            values = {**root.value["evaluation"].value, **every, **given.value}
            made.value["evaluation"] = Node(given.line, values, given.key_lines)
        metric = root.value.get("metric", node_of({}))
        weight = own.value.get("metric", node_of({}))
        if weight.is_map:  # a check ensures that it has only training_weight
            shows = metric.value.get("name", node_of(Metric.name)).value == Metric.name
            values: dict[str, Node] = {**metric.value, **(weight.value if shows else {})}
            made.value["metric"] = Node(weight.line, values, weight.key_lines)
        study = study_of(made, self.shown, self.source, "bench", ())
        early = study.early_terminate
        for wrong, why in (
            (
                early is not None and early.evolves,
                "early_terminate: copied trials have no recorded runs; use a different rule",
            ),
            (study.search.driver != "lanes", "search.driver: tables work only with driver lanes"),
            (study.search.warm_start is not None, "search.warm_start does not work with tables"),
        ):
            if wrong:
                raise ConfigError(f"{self.shown}: method {method}: {why}")
        return study

    def budgeted(self, study: Study, runs: int) -> Study:
        """Return the study with a search budget of `runs` full runs, plus the confirm stage."""
        env_steps = (runs + study.confirming) * study.env_steps
        return replace(study, budget=Budget(trials=None, env_steps=env_steps))


def read_bench(path: str | Path, overrides: Sequence[str] = ()) -> BenchFile:
    """Read an `hpo bench` file; mistakes within a method are found by `BenchFile.study`."""
    path = Path(path)
    root, notes = read_file(path, str(path)), Notes(str(path))
    if not root.is_map:
        notes.wrong("the file", root, "a mapping with bench and methods")
        raise notes.error()
    apply_overrides(notes, root, overrides)
    for name in root.value:
        if name not in ("bench", "methods"):
            notes.add(f"unknown key {name!r}; known: bench, methods", root, name)
    values = read_section(notes, "bench", root.value.get("bench"), keys_of(BenchSpec))
    values["budgets"] = tuple(sorted(values["budgets"]))
    methods = root.value.get("methods")
    if methods is None or not methods.is_map or not methods.value:
        notes.add("methods is missing; map each name to the keys of a study", root)
        raise notes.error()
    for name, own in methods.value.items():
        _check_method(notes, methods, name, own)
    spec = BenchSpec(**{one.name: values[one.name] for one in fields(BenchSpec)})
    _check_baseline(notes, root, spec, methods.value)
    if notes:
        raise notes.error()
    return BenchFile(spec, methods.value, str(path), path.parent)


def _check_method(notes: Notes, methods: Node, name: str, own: Node) -> None:
    if not own.is_map:
        notes.wrong(f"method {name}", own, "a mapping", methods, name)
        return
    for word in own.value:
        if word not in METHOD_KEYS:
            unknown = UnknownNameError("key", word, METHOD_KEYS)
            notes.add(f"method {name}: {unknown}", own, word)
    metric = own.value.get("metric")
    if metric is not None and (not metric.is_map or [*metric.value] != ["training_weight"]):
        text = "metric accepts only training_weight; the table sets its name and goal"
        notes.add(f"method {name}: {text}", own, "metric")


def _check_baseline(
    notes: Notes, root: Node, spec: BenchSpec, methods: Mapping[str, Node]
) -> None:
    if spec.baseline is not None and spec.baseline not in methods:
        unknown = UnknownNameError("method", spec.baseline, methods)
        notes.add(f"bench.baseline: {unknown}", root, "bench")
    if spec.baseline_budget is not None and spec.baseline_budget not in spec.budgets:
        notes.add("bench.baseline_budget is not one of bench.budgets", root, "bench")
