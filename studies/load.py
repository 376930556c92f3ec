"""Converts a YAML file to a `Study`, or reports all of its mistakes at once."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import Any

from ..environments.table import EnvEntry
from ..errors import ConfigError, Mistake, StudyError, UnknownNameError
from ..files.plain_data import is_mapping, is_sequence
from .algorithm_section import read_algorithm, set_custom_keys
from .cross_section_checks import stages
from .env_section import read_env, read_eval_env, read_imports
from .execution_spec import Executor, Init, Logger, MetricFiles, Processes
from .field import keys_of
from .overrides import apply_overrides
from .resolved import defaults_of_old, lanes_of_old, meanings_of_old, resolved_yaml
from .search_spec import Confirm, Constraint, Evaluation, Metric
from .sections import (
    named_fields,
    read_early_terminate,
    read_search,
    read_section,
    run_imports_for_names,
)
from .space_section import SpaceReader, read_enqueue, space_nodes
from .spec import Study
from .study_keys import COSTS, LOGGERS, SECTIONS, TOP, metric_fault
from .study_values import Vocabulary
from .yaml_io import Node, Notes, place_of, plain, read_file, read_text, text_of, to_yaml

DEFAULT_BASELINES = ("ksp_ff", "ff_ksp")  # for studies of optical networks that list none
_WITHOUT_RULES = ("seeds", "population", "budget", "checkpoint")
_OF_JOBS = {
    "partition": "use executor.partition instead",
    "time": "use executor.time instead, such as 4h",
    "gpus": "use processes.gpus instead",
    "cpus-per-task": "use processes.threads instead",
    "array": "each process is a separate job; remove it",
    "job-name": "hpo names the jobs; remove it",
    "output": "hpo sets this option itself; remove it",
}  # fmt: skip
"""sbatch option -> the key that sets it."""
_TRIAL, _MOST_SEEDS = re.compile(r"-1|[0-9]{1,9}"), 1000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


BeforeCode = Callable[[str], None]
"""Called with a study's name before any Python file that it names is run; may raise."""


def load(
    path: str | Path,
    overrides: Sequence[str] = (),
    name: str | None = None,
    before_code: BeforeCode | None = None,
) -> Study:
    """Load a study file; a `StudyError` contains every mistake in it, each with its line.

    `overrides` are `key.key=value` settings, applied before any check; `name` replaces the study's
    name.
    """
    path = Path(path)
    root = read_file(path, str(path))
    shown, stem = str(path), _study_stem(path)
    return study_of(root, shown, path.parent, stem, overrides, name=name, before_code=before_code)


def loads(
    text: str,
    shown: str = "study.yaml",
    source: str | Path = ".",
    overrides: Sequence[str] = (),
    name: str | None = None,
) -> Study:
    """Load a study from text, like `load`; `shown` is its file name in messages."""
    root = read_text(text, shown)
    return study_of(root, shown, Path(source), PurePosixPath(shown).stem, overrides, name=name)


def loads_elsewhere(text: str, shown: str) -> Study:
    """Load a study that runs on other machines, without looking up its files and packages here."""
    return _read_unchecked(read_text(text, shown), Notes(shown))


def _read_unchecked(root: Node, notes: Notes) -> Study:
    stem = PurePosixPath(notes.shown).stem
    return _StudyReader(notes, root, Path("."), stem, checked=True).read()


def of_its_day(root: Node) -> list[str]:
    """Return overrides that give a recorded study the defaults that were valid when it ran."""
    data = plain(root)
    fixed = [*defaults_of_old(data), *meanings_of_old(data).items()]
    found = [f"fixed.{name}={json.dumps(value)}" for name, value in fixed]
    return [*found, *(f"population.{name}={value}" for name, value in lanes_of_old(data).items())]


def recorded(
    text: str, shown: str = "study.resolved.yaml", overrides: Sequence[str] = ()
) -> Study:
    """Load the text of a study that has already run; its files may no longer exist."""
    root, notes = read_text(text, shown), Notes(shown)
    apply_overrides(notes, root, [*of_its_day(root), *overrides])
    return _read_unchecked(root, notes)


def logger_of(kind: str, overrides: Sequence[str]) -> Logger:
    """Read one logger, whose options may be written as `key=value`."""
    notes, node = Notes(kind), Node(None, {}, {})
    apply_overrides(notes, node, overrides)
    options = read_section(notes, kind, node, LOGGERS[kind])
    if notes:
        raise notes.error()
    return Logger(kind, options)


def study_of(
    root: Node,
    shown: str,
    source: Path,
    stem: str,
    overrides: Sequence[str],
    *,
    name: str | None = None,
    before_code: BeforeCode | None = None,
) -> Study:
    """Load a study from its nodes; see `loads`."""
    notes = Notes(shown)
    if not root.is_map:
        notes.wrong("the file", root, "a mapping with env, env_steps, ...")
        raise notes.error()
    apply_overrides(notes, root, overrides)
    if name is not None:
        root.value["name"] = Node(None, name, origin="override: ")
        root.key_lines["name"] = None
    return _StudyReader(notes, root, source, stem, before_code=before_code).read()


@dataclass
class _StudyReader:
    notes: Notes
    root: Node
    source: Path  # folder of the file
    stem: str
    # whether the study has run: its files and packages are then not looked up
    checked: bool = False
    before_code: BeforeCode | None = None
    is_process: bool = False  # whether metrics have the names that the command gives them

    def read(self) -> Study:
        notes, root = self.notes, self.root
        files: Path | None = self.source
        if self.checked:
            files = None
        algorithm = read_algorithm(notes, root, files, self._ask_before_code)
        set_custom_keys(notes, root, algorithm)
        if notes:
            raise notes.error()
        top = read_section(notes, "", root, TOP)
        imports = read_imports(notes, self._list_items("imports"), files)
        if not self.checked:
            run_imports_for_names(notes, root, imports, self.source, self._ask_before_code)
        self.is_process = algorithm.is_process
        own = bool(self._list_items("imports")) or self.is_process  # even if a file is missing
        listed, known = read_env(notes, root, own, self.checked)
        values: dict[str, Any] = {}
        for one in reversed(listed.specs):
            values |= one.values
        vocabulary = Vocabulary(known, values, bool(imports) or self.checked, algorithm)
        # Without an environment, each env.<name> would be a further mistake.
        fixed = self._read_fixed(vocabulary)
        parameters, rules = space_nodes(notes, root, files)
        space = SpaceReader(notes, vocabulary, fixed).read(parameters, rules)
        if not algorithm.acts:
            known = None
        parts: dict[str, Any] = {**top, **self._read_sections(top, known)}
        parts |= {"fixed": fixed, "space": space}
        specs = listed.specs
        if listed.items:
            specs = listed.with_scales(notes, parts["metric"].name)
        if notes or not specs:
            raise notes.error()
        parts["env"], *more = specs
        parts["enqueue"] = read_enqueue(notes, vocabulary, space, self._list_items("enqueue"))
        parts["algorithm"] = algorithm
        parts |= {"more_envs": tuple(more), "imports": imports, "source": str(self.source)}
        parts["goals_left_out"] = self._goals_left_out(parts["objectives"], parts["metric"])
        study = Study(**{field.name: parts[field.name] for field in fields(Study)})
        if not self.checked:
            self._check_in_stages(study)
        return study

    def _check_in_stages(self, study: Study) -> None:
        """Run the checks in stages, and raise all mistakes from the first stage that finds any."""
        for problems in stages(self.root, study):
            for path, text in problems:
                self.notes.add(text, *place_of(self.root, path))
            if self.notes:
                raise self.notes.error()

    def _ask_before_code(self) -> None:
        given = self.root.value.get("name", Node(None, self.stem)).value
        if self.before_code is not None and isinstance(given, str):
            self.before_code(given)

    def _read_sections(self, top: Mapping[str, Any], env: EnvEntry | None) -> dict[str, Any]:
        """Return the dataclass of every section; None if any mistake was noted."""
        given = {key: self._read_section(key) for key in SECTIONS}
        objectives = self._read_objectives(env)
        if objectives:
            metric = objectives[0]
        else:
            metric = Metric(**given["metric"])
            self._check_metric(metric.name, env)
        eval_env = read_eval_env(self.notes, self.root, env)
        early = confirm = processes = metrics = None
        if self._is_map("early_terminate"):
            values = given["early_terminate"]
            early = read_early_terminate(self.root, values, top.get("env_steps"))
        if self._is_map("confirm"):
            values = given["confirm"]
            values["also"] = self._read_also(values["also"])
            confirm = Confirm(**values)
        if self.is_process:
            processes = Processes(**given["processes"])
            metrics = MetricFiles(**given["metrics"])
        several: tuple[Metric, ...] = ()
        if len(objectives) > 1:
            several = objectives
        return {
            "name": self._read_name(top["name"]),
            "baselines": self._read_baselines(env),
            "metric": metric,
            "objectives": several,
            "constraints": self._read_constraints(env),
            "evaluation": Evaluation(**given["evaluation"], env=eval_env),
            "search": read_search(self.notes, self.root, given["search"]),
            "early_terminate": early,
            "confirm": confirm,
            "init": self._read_init(given["init"]),
            "executor": self._read_executor(given["executor"]),
            "processes": processes,
            "metrics": metrics,
            "loggers": tuple(filter(None, map(self._read_logger, self._list_items("loggers")))),
            **{
                field.key: field.section(**given[field.key])
                for field in TOP
                if field.key in _WITHOUT_RULES
            },
        }

    def _check_metric(self, name: str, env: EnvEntry | None) -> None:
        """Note a mistake if a study without `objectives` names a metric that is not measured."""
        fault = self._metric_fault(name, env)
        if self.is_process and "metric" not in self.root.value:
            fault = "name a metric that the command prints, such as metric: {name: eval_return}"
        if fault is not None:
            self.notes.add(f"metric: {fault}", *place_of(self.root, "metric.name"))

    def _read_executor(self, values: dict[str, Any]) -> Executor:
        """Read the options for sbatch, whose values are words, numbers, or true for a flag."""
        node, given = values["options"], dict[str, Any]()
        if isinstance(node, Node):
            given = plain(node)
        for name, value in given.items():
            if name in _OF_JOBS:
                text = f"executor.options has {name}; {_OF_JOBS[name]}"
                self.notes.add(text, node, name)
            elif not isinstance(value, str | int | float):
                text = (
                    f"executor.options.{name} is {value!r}; allowed: a string, a number, or true"
                )
                self.notes.add(f"{text} for a flag without a value", node, name)
        made: dict[str, Any] = {**values, "options": given}
        return Executor(**made)

    def _list_items(self, key: str) -> list[Node]:
        return self.root.child(key).elements

    def _is_map(self, key: str) -> bool:
        return self.root.child(key).is_map

    def _read_section(self, key: str) -> dict[str, Any]:
        """Read a section; a value that is not a mapping has already been noted as a mistake."""
        node = self.root.child(key)
        known = named_fields(self.root, key, self.checked)
        if known is None:
            return plain(node)
        if not node.is_map:
            node, known = None, tuple(field for field in known if field.has_default)
        return read_section(self.notes, key, node, known)

    def _read_name(self, given: str | None) -> str:
        name, hint = given, ""
        if name is None:
            name, hint = self.stem, "; give `name:`"
        if not _NAME.fullmatch(name):
            text = "allowed: up to 100 letters, digits, '.', '_', '-'; the first a letter or digit"
            self.notes.add(f"name is {name[:60]!r}; {text}{hint}", self.root, "name")
        return name

    def _read_fixed(self, vocabulary: Vocabulary) -> dict[str, Any]:
        node = self.root.value.get("fixed")
        fixed: dict[str, Any] = {}
        if node is None or not node.is_map:
            return fixed
        for given, child in node.value.items():
            with self.notes.at(node, given):
                if given.startswith("env."):
                    words = f"env: {{id: ..., {given.removeprefix('env.')}: ...}}"
                    raise ConfigError(f"write {given} under `env`, as {words}")
                name = vocabulary.name(given)
                value = vocabulary.value(name, plain(child))
                if name in fixed:
                    raise ConfigError(f"{given!r} fixes {name} a second time; keep one")
                fixed[name] = value
        return fixed

    def _metric_fault(self, name: str, env: EnvEntry | None) -> str | None:
        if self.is_process:
            return None
        return metric_fault(name, env)

    def _read_objectives(self, env: EnvEntry | None) -> tuple[Metric, ...]:
        """Return the entries of `objectives`; the first one must be a measured metric."""
        items = self._list_items("objectives")
        if items and "metric" in self.root.value:
            text = "the study has a `metric` and `objectives`; put the metric first in objectives"
            self.notes.add(text, self.root, "objectives")
        found: list[Metric] = []
        for item in items:
            metric = Metric(**read_section(self.notes, "objectives", item, keys_of(Metric)))
            fault = None
            if metric.name not in COSTS:
                fault = self._metric_fault(metric.name, env)
            elif not found:
                fault = f"{metric.name} is a cost, which cannot come first; put a metric before it"
            if any(metric.name == other.name for other in found):
                fault = f"{metric.name} is given twice; keep one"
            if fault is not None:
                self.notes.add(f"objectives: {fault}", item)
            found.append(metric)
        return tuple(found)

    def _goals_left_out(self, objectives: Sequence[Metric], first: Metric) -> tuple[str, ...]:
        items = self._list_items("objectives") or [self.root.child("metric")]
        metrics = objectives or (first,)
        given = ["goal" in item.mapping for item in items]
        return tuple(one.name for one, known in zip(metrics, given, strict=True) if not known)

    def _read_constraints(self, env: EnvEntry | None) -> tuple[Constraint, ...]:
        found: list[Constraint] = []
        for item in self._list_items("constraints"):
            values = read_section(self.notes, "constraints", item, keys_of(Constraint))
            if "metric" not in values:
                continue
            found.append(limit := Constraint(**values))
            fault = None
            if limit.metric not in COSTS:
                fault = self._metric_fault(limit.metric, env)
            if limit.min is None and limit.max is None:
                fault = fault or f"{limit.metric} has no bound; give min or max"
            elif limit.min is not None and limit.max is not None and limit.min > limit.max:
                fault = fault or f"min {limit.min:g} is above max {limit.max:g}"
            if fault is not None:
                self.notes.add(f"constraints: {fault}", item)
        return tuple(found)

    def _read_also(self, given: Any) -> tuple[tuple[int, int], ...]:
        also = dict[int, int]()
        if not isinstance(given, Node):
            return ()
        for trial, child in given.value.items():
            seeds = child.value
            is_count = isinstance(seeds, int) and not isinstance(seeds, bool)
            if _TRIAL.fullmatch(trial) and is_count and 1 <= seeds <= _MOST_SEEDS:
                also[int(trial)] = seeds
                continue
            text = f"confirm.also has {trial}: {child.shown()}; allowed: a trial's number, or -1 "
            text += f"for the default, and 1 to {_MOST_SEEDS} seeds, such as {{6: 16}}"
            self.notes.add(text, given, trial)
        return tuple(sorted(also.items()))

    def _read_baselines(self, env: EnvEntry | None) -> tuple[str, ...]:
        """Read the heuristics; there are defaults for a study of a single optical network."""
        items, several = self._list_items("baselines"), self.root.child("env").is_list
        optical = env is not None and env.source == "optical"
        if "baselines" not in self.root.value:
            if several or not optical:
                return ()
            return DEFAULT_BASELINES
        if not optical:
            for item in items[:1]:
                self.notes.add("baselines need an optical network as env; remove them", item)
            return ()
        from ..core.envs.optical.optical_settings import parse_baseline  # does not import jax

        names: list[str] = []
        for item in items:
            name = item.value
            if not isinstance(name, str):
                self.notes.wrong("a baseline", item, "a heuristic such as ksp_bf@10")
                continue
            with self.notes.at(item, before=f"baseline {name}: "):
                parse_baseline(name)
                if name in names:
                    raise ConfigError("it is listed twice; keep one")
                names.append(name)
        return tuple(names)

    def _read_init(self, values: Mapping[str, Any]) -> Init | None:
        node = self.root.value.get("init")
        if node is None or not node.is_map or "folder" not in values:
            return None
        init = Init(**values)
        folder, restored = self.source / init.folder, init.optimiser == "restored"
        if not (self.checked or (folder / "policy.json").is_file()):
            text = f"init.from: {folder} is not a policy folder, such as .../policies/trial_N"
            self.notes.add(text, node, "from")
        elif restored and init.keep != "all":
            text = f"init.optimiser is `restored`, which needs keep: all, but keep is {init.keep}"
            self.notes.add(text, node, "optimiser")
        elif restored and not (self.checked or (folder / "parts/optimiser.npz").is_file()):
            text = f"init.optimiser is `restored`, but {folder} has no optimiser state; "
            text += "save the policy with checkpoint: {parts: [optimiser]}, or use fresh"
            self.notes.add(text, node, "optimiser")
        return init

    def _read_logger(self, item: Node) -> Logger | None:
        kind = item
        if item.is_map:
            kind = item.child("type")
        if not isinstance(kind.value, str):
            self.notes.wrong("a logger", item, "{type: csv}")
            return None
        name = kind.value
        if name not in LOGGERS:
            self.notes.add(str(UnknownNameError("logger", name, LOGGERS)), kind)
            return None
        options = {key: node for key, node in item.mapping.items() if key != "type"}
        rest = Node(item.line, options, item.key_lines, item.origin, item.outer)
        return Logger(name, read_section(self.notes, f"loggers: {name}", rest, LOGGERS[name]))


@dataclass(frozen=True)
class YamlText:
    text: str


Written = YamlText | Mapping[str, Any] | str | PathLike[str]
"""The forms of a study that is not loaded yet."""

Source = Study | Written
"""All forms of a study that functions accept."""


def yaml(text: str) -> YamlText:
    """Mark a string as the text of a study, as opposed to the path of its file.

    >>> yaml("env: CartPole-v1").text
    'env: CartPole-v1'
    """
    return YamlText(text)


@dataclass(frozen=True)
class StudyText:
    """The text of a study that is not loaded yet; none of its code has run."""

    text: str
    shown: str  # its name in messages
    source: Path  # folder of the files that it names
    stem: str  # the study's name if its text has none
    is_mapping: bool = False  # whether it was given as data, so that its lines have no author

    def load(self, name: str | None = None, before_code: BeforeCode | None = None) -> Study:
        """Load the study; the arguments are those of `load`."""
        try:
            root = read_text(self.text, self.shown)
            return study_of(
                root, self.shown, self.source, self.stem, (), name=name, before_code=before_code
            )
        except StudyError as error:
            if not self.is_mapping:
                raise
            mistakes = [Mistake(None, mistake.text) for mistake in error.mistakes]
            raise StudyError("the mapping", mistakes) from None


def written_study(given: Written) -> StudyText:
    """Return the text of a study that is given in any form except as a `Study`."""
    if isinstance(given, YamlText):
        return StudyText(given.text, "hpo.yaml(...)", Path("."), "study")
    if isinstance(given, Mapping):
        return StudyText(to_yaml(_yaml_value(given)), "study.yaml", Path("."), "study", True)
    if isinstance(given, str) and "\n" in given:
        raise ConfigError('multi-line text is not a path; use hpo.yaml("""...""")')
    try:
        path = Path(given)
    except TypeError:
        text = f"a study is given as {type(given).__name__}; allowed: a path, hpo.yaml(text) or a"
        raise ConfigError(f"{text} mapping") from None
    return StudyText(text_of(path, str(path)), str(path), path.parent, _study_stem(path))


def read_study(given: Source, name: str | None = None) -> tuple[Study, str]:
    """Return a study and its text; text or a mapping without a name gets the name `study`."""
    if isinstance(given, Study):
        study = given
        if name is not None:
            study = replace(given, name=name)
        return study, resolved_yaml(study)
    written = written_study(given)
    return written.load(name), written.text


def _study_stem(path: Path) -> str:
    return path.name.removesuffix(".yaml").removesuffix(".yml").removesuffix(".resolved")


def _yaml_value(value: Any) -> Any:
    """Replace NumPy numbers, paths and similar objects with YAML values."""
    if is_mapping(value):
        return {str(key): _yaml_value(item) for key, item in value.items()}
    if is_sequence(value) or isinstance(value, range):
        return [_yaml_value(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    of_numpy: Any = getattr(value, "tolist", None)
    if of_numpy is not None:
        return of_numpy()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise ConfigError(f"a study cannot contain a {type(value).__name__}: {value!r}")
