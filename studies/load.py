"""From a YAML file to a `Study`, or to every mistake in it at once.

This module puts the sections together; names and values of knobs are judged by `vocabulary`, the
search space is read by `space_section`, and `together` checks what must fit together.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from ..environments.table import ENVIRONMENTS, EnvEntry
from ..errors import ConfigError, suggestion
from ..spaces.space import Space
from .cross_section_checks import check_driver, check_executor, check_gymnasium, check_together
from .env_section import check_several, read_env, read_envs, read_eval_env, read_imports
from .overrides import apply_overrides
from .resolved import defaults_of_old
from .search_section import (
    named_fields,
    read_early_terminate,
    read_search,
    run_imports_for_names,
)
from .sections import read_section
from .several_environments import each_alone
from .space_section import SpaceReader, read_enqueue, space_nodes
from .spec import (
    Budget,
    Checkpoint,
    Confirm,
    Constraint,
    EnvSpec,
    Evaluation,
    Executor,
    Init,
    Logger,
    Metric,
    PopulationSpec,
    Racing,
    Seeds,
    Study,
)
from .study_keys import CONSTRAINT, COSTS, LOGGERS, RACING, SECTIONS, TOP, metric_fault
from .study_values import Vocabulary
from .yaml_io import Node, Notes, plain, read_file, read_text

DEFAULT_BASELINES = ("ksp_ff", "ff_ksp")
"""Of studies in optical networks that name none."""


def read_baselines(
    notes: Notes, items: Sequence[Node] | None, known: EnvEntry | None
) -> tuple[str, ...]:
    """Read the names; a study in an optical network has some unless it says `baselines: []`.

    Args:
        notes: where mistakes go.
        items: what is listed, None if the key is left out.
        known: the study's environment.
    """
    optical = known is not None and known.source == "optical"
    if items is None:
        return DEFAULT_BASELINES if optical else ()
    if items and not optical:
        text = "baselines are heuristics of optical networks, and env is none; leave them out"
        notes.add(text, items[0])
        return ()
    from ..core.envs.optical.optical_settings import parse_baseline  # no jax

    names: list[str] = []
    for item in items:
        given = item.value
        if not isinstance(given, str):
            notes.add(f"a baseline is {item.shown()}; type a heuristic such as ksp_bf@10", item)
            continue
        try:
            parse_baseline(given)
        except ConfigError as error:
            notes.add(f"baseline {given}: {error}", item)
            continue
        if given in names:
            notes.add(f"baseline {given} is listed twice; keep one", item)
        else:
            names.append(given)
    return tuple(names)


def read_init(
    notes: Notes, node: Node | None, values: Mapping[str, Any], source: Path | None
) -> Init | None:
    """Return where lanes start, or None where they start fresh or the section has mistakes.

    Args:
        notes: where mistakes go.
        node: the section; None or `null` when lanes start fresh.
        values: its fields, read.
        source: the study file's folder; None does not look for the policy.
    """
    if node is None or not node.is_map or "folder" not in values:
        return None
    init = Init(**values)
    if source is None:
        return init
    folder = source / init.folder
    if not (folder / "policy.json").is_file():
        text = f"init.from: {folder} is not a policy folder, such as .../policies/trial_N"
        notes.add(text, node, "from")
    elif init.optimiser == "restored" and init.keep != "all":
        text = f"init.optimiser is restored, which needs keep: all; here keep is {init.keep}"
        notes.add(text, node, "optimiser")
    elif init.optimiser == "restored" and not (folder / "parts" / "optimiser.npz").is_file():
        text = (
            f"init.optimiser is restored, but {folder} holds no state of the optimiser; make the "
            "policy with checkpoint: {parts: [optimiser]}, or start it fresh"
        )
        notes.add(text, node, "optimiser")
    return init


def read_loggers(notes: Notes, items: Sequence[Node]) -> tuple[Logger, ...]:
    """Return the loggers of a list, each a word or a mapping with `type`."""
    found = [_logger(notes, item) for item in items]
    return tuple(logger for logger in found if logger is not None)


def _logger(notes: Notes, item: Node) -> Logger | None:
    kind = item.value.get("type") if item.is_map else item
    if kind is None or not isinstance(kind.value, str):
        notes.add(f"a logger is {item.shown()}; allowed: {{type: csv}}", item)
        return None
    if kind.value not in LOGGERS:
        text = (
            f"unknown logger {kind.value!r};{suggestion(kind.value, LOGGERS)} "
            f"Known: {', '.join(LOGGERS)}"
        )
        notes.add(text, kind)
        return None
    rest = Node(item.line, {}, item.key_lines, item.origin, item.outer)
    if item.is_map:
        rest.value = {key: node for key, node in item.value.items() if key != "type"}
    options = read_section(notes, f"loggers: {kind.value}", rest, LOGGERS[kind.value])
    return Logger(kind.value, options)


def logger_of(kind: str, overrides: Sequence[str]) -> Logger:
    """Return one logger with options written as `key=value`.

    Raises:
        StudyError: an option is not known, or not with this value.
    """
    notes, node = Notes(kind), Node(None, {}, {})
    apply_overrides(notes, node, overrides)
    options = read_section(notes, kind, node, LOGGERS[kind])
    if notes:
        raise notes.error()
    return Logger(kind, options)


_TRIAL, _MOST_SEEDS = re.compile(r"-1|[0-9]{1,9}"), 1000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def load(path: str | Path, overrides: Sequence[str] = (), name: str | None = None) -> Study:
    """Load a study file.

    Args:
        path: the file.
        overrides: `key.key=value`, applied before anything is checked.
        name: replaces the study's name.

    Raises:
        StudyError: with every mistake in the file, each with its line.
    """
    path = Path(path)
    root = read_file(path, str(path))
    stem = path.name.removesuffix(".yaml").removesuffix(".yml").removesuffix(".resolved")
    return _study(root, str(path), path.parent, stem, overrides, name)


def loads(
    text: str,
    shown: str = "study.yaml",
    source: str | Path = ".",
    overrides: Sequence[str] = (),
    name: str | None = None,
) -> Study:
    """Load a study from text; `shown` is how messages name it, `source` its folder.

    Raises:
        StudyError: with every mistake in the text, each with its line.
    """
    root = read_text(text, shown)
    return _study(root, shown, Path(source), PurePosixPath(shown).stem, overrides, name)


def of_its_day(root: Node) -> list[str]:
    """Return what is to be overridden in a recorded study for the defaults that it began with."""
    return [f"fixed.{name}={json.dumps(value)}" for name, value in defaults_of_old(plain(root))]


def recorded(
    text: str, shown: str = "study.resolved.yaml", overrides: Sequence[str] = ()
) -> Study:
    """Load what a study was begun with, to look at it: the files it names need not be there now.

    Raises:
        StudyError: the text is not one that this version knows, or an override is not legal.
    """
    root, notes = read_text(text, shown), Notes(shown)
    apply_overrides(notes, root, [*of_its_day(root), *overrides])
    return _Reader(notes, root, Path("."), PurePosixPath(shown).stem, checked=True).read()


def _study(
    root: Node,
    shown: str,
    source: Path,
    stem: str,
    overrides: Sequence[str],
    name: str | None,
) -> Study:
    notes = Notes(shown)
    if not root.is_map:
        notes.add(f"the file is {root.shown()}; allowed: a mapping with env, env_steps, ...", root)
        raise notes.error()
    apply_overrides(notes, root, overrides)
    if name is not None:
        root.value["name"] = Node(None, name, origin="override: ")
        root.key_lines["name"] = None
    return _Reader(notes, root, source, stem).read()


@dataclass
class _Reader:
    """Reads one file's sections.

    Attributes:
        notes: where mistakes go.
        root: the file's mapping.
        source: its folder.
        stem: its name without folder and ending.
        checked: it was checked when its study began; what it names elsewhere is not looked for.
    """

    notes: Notes
    root: Node
    source: Path
    stem: str
    checked: bool = False

    def read(self) -> Study:
        """Return the study.

        Raises:
            StudyError: with every mistake.
        """
        notes, root = self.notes, self.root
        top = read_section(notes, "", root, TOP)
        files = None if self.checked else self.source
        imports = read_imports(notes, _items(root, "imports"), files)
        if not self.checked:
            run_imports_for_names(notes, root, imports, self.source)
        node, listed = root.value.get("env"), None
        if node is not None and node.is_list:
            listed, known = read_envs(notes, node, bool(imports), self.checked)
            env = listed.specs[0] if listed.specs else None
        else:
            env, known = read_env(notes, root, bool(imports), self.checked)
        specs = listed.specs if listed is not None else () if env is None else (env,)
        values = {key: value for one in reversed(specs) for key, value in one.values.items()}
        vocabulary = Vocabulary(known, values, bool(imports) or self.checked)
        # Without an environment every env.<name> would be a mistake that follows from that one.
        fixed = self._fixed(vocabulary)
        parameters, rules = space_nodes(notes, root, self.source)
        space = SpaceReader(notes, vocabulary, fixed).read(parameters, rules)
        parts = self._parts(top, known)
        if listed is not None:
            env, *more = listed.with_scales(notes, parts["metric"].name) or (None,)
            parts["more_envs"] = tuple(more)
        if notes or env is None:
            raise notes.error()
        enqueue = read_enqueue(notes, vocabulary, space, _items(root, "enqueue"))
        study = _assemble(
            {**top, **parts, "imports": imports, "env": env, "fixed": fixed, "space": space},
            enqueue,
            self.source,
        )
        if self.checked:
            return study
        check_together(notes, root, study)
        check_executor(notes, root, study)
        check_driver(notes, root, study)
        check_several(notes, root, study)
        for one in () if notes else each_alone(study):
            if one.env.id in ENVIRONMENTS and ENVIRONMENTS[one.env.id].source == "optical":
                from .optical_section import check_optical  # numpy and file readers, 0.1 s

                check_optical(notes, root, one)
            check_gymnasium(notes, root, one)
        if notes:
            raise notes.error()
        return study

    def _parts(self, top: Mapping[str, Any], env: EnvEntry | None) -> dict[str, Any]:
        """Return the dataclass of every section; None where mistakes were noted."""
        sections = {key: self._section(key) for key in SECTIONS}
        objectives = self._objectives(env)
        metric = objectives[0] if objectives else Metric(**sections["metric"])
        fault = None if objectives else metric_fault(metric.name, env)
        if fault is not None:
            self.notes.add(f"metric: {fault}", *self._place("metric", "name"))
        evaluation = Evaluation(
            **sections["evaluation"], env=read_eval_env(self.notes, self.root, env)
        )
        off = {key: _is_off(self.root.value.get(key)) for key in ("early_terminate", "confirm")}
        files = None if self.checked else self.source
        init = read_init(self.notes, self.root.value.get("init"), sections["init"], files)
        early = None
        if not off["early_terminate"]:
            values = sections["early_terminate"]
            early = read_early_terminate(self.root, values, top.get("env_steps"))
        population = sections["population"]
        for key in ("lanes", "workers", "step_timeout"):
            if population[key] == "auto":
                population[key] = None
        return {
            "name": self._name(top["name"]),
            "baselines": read_baselines(self.notes, self._baselines(), env),
            "metric": metric,
            "objectives": objectives if len(objectives) > 1 else (),
            "constraints": self._constraints(env),
            "evaluation": evaluation,
            "search": read_search(self.notes, self.root, sections["search"]),
            "early_terminate": early,
            "seeds": self._seeds(sections["seeds"]),
            "confirm": None if off["confirm"] else self._confirm(sections["confirm"]),
            "population": PopulationSpec(**population),
            "budget": Budget(**sections["budget"]),
            "executor": Executor(**sections["executor"]),
            "checkpoint": Checkpoint(**sections["checkpoint"]),
            "init": init,
            "loggers": read_loggers(self.notes, _items(self.root, "loggers")),
        }

    def _baselines(self) -> list[Node] | None:
        """Return what is listed; several environments have none unless some are asked for."""
        node = self.root.value.get("env")
        several = node is not None and node.is_list and "baselines" not in self.root.value
        return [] if several else _listed(self.root, "baselines")

    def _objectives(self, env: EnvEntry | None) -> tuple[Metric, ...]:
        """Return the entries of `objectives`; the first one must be measured."""
        items = _items(self.root, "objectives")
        if items and "metric" in self.root.value:
            text = "the study has a `metric` and `objectives`; put the metric first in objectives"
            self.notes.add(text, self.root, "objectives")
        found: list[Metric] = []
        for item in items:
            metric = Metric(**read_section(self.notes, "objectives", item, SECTIONS["metric"]))
            fault = None if found and metric.name in COSTS else metric_fault(metric.name, env)
            if metric.name in COSTS and not found:
                fault = f"{metric.name} is a cost, which cannot come first; put a metric before it"
            elif any(metric.name == other.name for other in found):
                fault = f"{metric.name} is given twice; keep one"
            if fault is not None:
                self.notes.add(f"objectives: {fault}", item)
            found.append(metric)
        return tuple(found)

    def _constraints(self, env: EnvEntry | None) -> tuple[Constraint, ...]:
        found: list[Constraint] = []
        for item in _items(self.root, "constraints"):
            values = read_section(self.notes, "constraints", item, CONSTRAINT)
            if "metric" not in values:
                continue
            limit = Constraint(**values)
            fault = None if limit.metric in COSTS else metric_fault(limit.metric, env)
            low, high = limit.min, limit.max
            if low is None and high is None:
                fault = fault or f"{limit.metric} has no bound; give min or max"
            elif low is not None and high is not None and low > high:
                fault = fault or f"min {low:g} is above max {high:g}"
            if fault is not None:
                self.notes.add(f"constraints: {fault}", item)
            found.append(limit)
        return tuple(found)

    def _section(self, key: str) -> dict[str, Any]:
        """Read a section; what is no mapping has been noted with the other keys of the top."""
        node = self.root.value.get(key)
        usable = node is not None and node.is_map
        fields = named_fields(self.root, key, self.checked)
        if fields is None:
            return {} if node is None else plain(node)
        if not usable:
            fields = tuple(field for field in fields if field.has_default)
        return read_section(self.notes, key, node if usable else None, fields)

    def _place(self, section: str, key: str) -> tuple[Node, str | None]:
        """Return where a key of a section stands, or the section, or the file."""
        node = self.root.value.get(section)
        if node is None:
            return self.root, None
        return (node, key) if node.is_map and key in node.value else (self.root, section)

    def _name(self, given: str | None) -> str:
        name = self.stem if given is None else given
        if not _NAME.fullmatch(name):
            text = (
                f"name is {name[:60]!r}; allowed: up to 100 letters, digits, '.', '_', '-', the "
                "first a letter or digit"
            )
            if given is None:
                self.notes.add(f"{text}; give `name:`", self.root)
            else:
                self.notes.add(text, self.root, "name")
        return name

    def _fixed(self, vocabulary: Vocabulary) -> dict[str, Any]:
        node = self.root.value.get("fixed")
        fixed: dict[str, Any] = {}
        if node is None or not node.is_map:
            return fixed
        for given, child in node.value.items():
            if given.startswith("env."):
                key = given.removeprefix("env.")
                text = f"write {given} under `env`, as env: {{id: ..., {key}: ...}}"
                self.notes.add(text, node, given)
                continue
            try:
                name = vocabulary.name(given)
                value = vocabulary.value(name, plain(child))
            except ConfigError as error:
                self.notes.add(str(error), node, given)
                continue
            if name in fixed:
                self.notes.add(f"{given!r} fixes {name} a second time; keep one", node, given)
            fixed[name] = value
        return fixed

    def _confirm(self, values: Mapping[str, Any]) -> Confirm:
        also = dict[int, int]()
        given = values["also"]
        for trial, child in given.value.items() if isinstance(given, Node) else ():
            seeds, number = child.value, int(trial) if _TRIAL.fullmatch(trial) else None
            is_count = isinstance(seeds, int) and not isinstance(seeds, bool)
            if number is None or not is_count or not 1 <= seeds <= _MOST_SEEDS:
                text = (
                    f"confirm.also has {trial}: {child.shown()}; allowed: a trial's number, or -1 "
                    f"for the default, and 1 to {_MOST_SEEDS} seeds, such as {{6: 16}}"
                )
                self.notes.add(text, given, trial)
                continue
            also[number] = seeds
        settled: dict[str, Any] = {**values, "also": tuple(sorted(also.items()))}
        return Confirm(**settled)

    def _seeds(self, values: Mapping[str, Any]) -> Seeds:
        given = dict(values)
        if given["racing"] is not None:
            racing = read_section(self.notes, "seeds.racing", given["racing"], RACING)
            given["racing"] = Racing(**racing)
        return Seeds(**given)


def _items(root: Node, key: str) -> list[Node]:
    node = root.value.get(key)
    return node.value if node is not None and node.is_list else []


def _listed(root: Node, key: str) -> list[Node] | None:
    return _items(root, key) if key in root.value else None


def _is_off(node: Node | None) -> bool:
    return node is None or not node.is_map


def _assemble(
    parts: Mapping[str, Any], enqueue: tuple[Mapping[str, Any], ...], source: Path
) -> Study:
    env: EnvSpec = parts["env"]
    space: Space = parts["space"]
    return Study(
        name=parts["name"],
        env=env,
        more_envs=parts.get("more_envs", ()),
        over_environments=parts["over_environments"],
        env_steps=parts["env_steps"],
        schedule_env_steps=parts["schedule_env_steps"],
        log_every=parts["log_every"],
        space=space,
        seed=parts["seed"],
        imports=parts["imports"],
        fixed=parts["fixed"],
        enqueue=enqueue,
        baselines=parts["baselines"],
        metric=parts["metric"],
        objectives=parts["objectives"],
        constraints=parts["constraints"],
        evaluation=parts["evaluation"],
        search=parts["search"],
        early_terminate=parts["early_terminate"],
        seeds=parts["seeds"],
        confirm=parts["confirm"],
        population=parts["population"],
        budget=parts["budget"],
        executor=parts["executor"],
        checkpoint=parts["checkpoint"],
        init=parts["init"],
        loggers=parts["loggers"],
        source=str(source),
    )
