"""Reads `imports`, `env` and `eval_env`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..environments.references import Reference, reference_of
from ..environments.registry import entry, gymnax_class
from ..environments.table import EnvEntry, EnvKey
from ..errors import ConfigError, MissingExtraError, UnimportedModuleError, UnknownNameError
from .overrides import apply_overrides
from .spec import EnvSpec, Study
from .study_keys import COSTS, metric_fault
from .study_values import check_env_value
from .user_code import is_inside
from .yaml_io import Node, Notes, place_of, plain, read_file

_MOST_IMPORTS = 100


def read_imports(notes: Notes, items: Sequence[Node], source: Path | None) -> tuple[str, ...]:
    """Read the paths of user code, which must exist beside the study; nothing is imported.

    Args:
        notes: where mistakes go.
        items: the paths.
        source: the study's folder; None does not look for them.
    """
    paths: list[str] = []
    if len(items) > _MOST_IMPORTS:
        notes.add(f"{len(items)} imports; allowed: {_MOST_IMPORTS}", items[0])
        return ()
    for item in items:
        given = item.value
        if not isinstance(given, str) or not given.endswith(".py"):
            notes.add(f"import {item.shown()}; allowed: a Python file such as my_envs.py", item)
        elif not is_inside(given):
            text = f"import {item.shown()} leaves the study's folder; put the file beside it"
            notes.add(text, item)
        elif source is not None and not (source / given).is_file():
            notes.add(f"import {item.shown()}: no such file beside the study", item)
        else:
            paths.append(given)
    return tuple(paths)


def read_env(
    notes: Notes, root: Node, imports: bool, checked: bool = False
) -> tuple[EnvSpec | None, EnvEntry | None]:
    """Read `env`: what the study asks for, and what the table knows of it.

    Args:
        notes: where mistakes go.
        root: the study.
        imports: user code may register ids that the table does not know.
        checked: the study ran before, to be looked at now; what makes the environment need not
            be installed here.
    """
    node = root.value.get("env")
    if node is None or node.is_list or node.value is None:
        return None, None  # noted with the other keys of the top
    if node.is_map and "scores" in node.value:
        text = "scores put several environments on one scale, but env is one; leave them out"
        notes.add(text, node, "scores")
    if node.is_map and "id" not in node.value:
        notes.add("env needs `id`, such as env: {id: CartPole-v1}", root, "env")
        return None, None
    return read_one_env(notes, node, imports, checked)


def read_one_env(
    notes: Notes, node: Node, imports: bool, checked: bool = False
) -> tuple[EnvSpec | None, EnvEntry | None]:
    """Read one environment, an id or a mapping; arguments as of `read_env`."""
    given = node.value.get("id") if node.is_map else node
    if given is None or node.is_list:
        notes.add(f"env is {node.shown()}; allowed: {{id: CartPole-v1}}, or an id alone", node)
        return None, None
    if not isinstance(given.value, str):
        notes.add(f"env is {given.shown()}; allowed: an id such as CartPole-v1", given)
        return None, None
    known, place = None, notes.shown if given.line is None else f"{notes.shown}:{given.line}"
    if gymnax_class(given.value) is not None:  # made when it runs: only then jax is there
        return EnvSpec(given.value, _values(notes, None, node), place=place), None
    try:
        known = entry(given.value)
    except UnknownNameError as error:
        if not (imports or checked):
            named = isinstance(error, UnimportedModuleError)
            hint = "" if named else "; own environments are registered by `imports`"
            notes.add(f"{error}{hint}", given)
            return None, None
    except (ConfigError, MissingExtraError) as error:
        if not checked:
            notes.add(str(error), given)
            return None, None
    return EnvSpec(given.value, _values(notes, known, node), place=place), known


def read_eval_env(notes: Notes, root: Node, known: EnvEntry | None) -> dict[str, Any]:
    """Read `eval_env`: the keys of the environment that differ in evaluation."""
    node = root.value.get("eval_env")
    if node is None or not node.is_map:
        return {}
    if "id" in node.value:
        text = "eval_env cannot name another environment; give only the keys that differ"
        notes.add(text, node, "id")
    return _values(notes, known, node)


def _values(notes: Notes, known: EnvEntry | None, node: Node) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if not node.is_map:
        return values
    for key, child in node.value.items():
        if key in ("id", "scores"):
            continue
        try:
            given = plain(child)
            values[key] = given if known is None else check_env_value(known, key, given)
        except ConfigError as error:
            notes.add(str(error), node, key)
    return values


@dataclass(frozen=True)
class EnvFile:
    """An environment as a file describes it.

    Attributes:
        spec: id and values.
        known: what the table knows of it.
        folder: of the file, which paths among the values start from.
    """

    spec: EnvSpec
    known: EnvEntry
    folder: str


def read_env_file(path: str | Path, overrides: Sequence[str] = ()) -> EnvFile:
    """Read a file whose top is the `env:` mapping, or a study, with what its `eval_env:` changes.

    Args:
        path: the file.
        overrides: each `key=value`, set over what the file says.

    Raises:
        StudyError: every mistake in it, with its line.
    """
    path = Path(path)
    notes = Notes(str(path))
    root = read_file(path, str(path))
    if not root.is_map or "env" not in root.value:
        root = Node(root.line, {"env": root}, {"env": root.line})
    section = "eval_env" if "eval_env" in root.value else "env"  # what is set is set over both
    apply_overrides(notes, root, [f"{section}.{given}" for given in overrides])
    spec, known = read_env(notes, root, imports=False)
    if spec is None and not notes:
        node: Node = root.value["env"]
        notes.add(f"the environment is {node.shown()}; allowed: {{id: rmsa, load: 250}}", node)
    held_out = read_eval_env(notes, root, known)
    if notes or spec is None or known is None:
        raise notes.error()
    spec = replace(spec, values={**spec.values, **held_out})
    folder = str(path.parent)
    if known.source == "optical":
        from .optical_section import read_settings  # numpy and file readers

        try:
            read_settings(spec.id, spec.values, folder)
        except ConfigError as error:
            notes.add(str(error), root.value["env"])
            raise notes.error() from error
    return EnvFile(spec, known, folder)


_MOST = 64


@dataclass(frozen=True)
class Listed:
    """A list of environments as the file has it.

    Attributes:
        specs: what is asked for; scores are still missing where the table has them.
        entries: what the table knows of each.
        items: where each stands.
    """

    specs: tuple[EnvSpec, ...]
    entries: tuple[EnvEntry | None, ...]
    items: tuple[Node, ...]

    def with_scales(self, notes: Notes, metric: str) -> tuple[EnvSpec, ...]:
        """Return them with their scores: those given, or those measured by a metric."""
        each = list(zip(self.items, self.specs, self.entries, strict=True))
        if not all(self.entries):  # otherwise noted where the metric is read
            for item, spec, entry in each:
                fault = None if entry is None else metric_fault(metric, entry)
                if fault is not None:
                    notes.add(f"metric: of {spec.id}: {fault}", item)
        found = [_scale(notes, *one, metric) for one in each]
        return tuple(
            replace(spec, scale=scale) for spec, scale in zip(self.specs, found, strict=True)
        )


def read_envs(
    notes: Notes, node: Node, imports: bool, checked: bool
) -> tuple[Listed, EnvEntry | None]:
    """Read a list of environments: what the study asks for, and what they have together.

    Args:
        notes: where mistakes go.
        node: the list.
        imports: user code may register ids that the table does not know.
        checked: as of `read_env`.
    """
    items: list[Node] = node.value
    if not 2 <= len(items) <= _MOST:
        text = f"env lists {len(items)} environments; allowed: 2 to {_MOST}, or one id alone"
        notes.add(text, items[0] if items else node)
        return Listed((), (), ()), None
    specs: list[EnvSpec] = []
    entries: list[EnvEntry | None] = []
    read: list[Node] = []
    for item in items:
        spec, entry = read_one_env(notes, item, imports, checked)
        if spec is None:
            continue
        if any((spec.id, spec.values) == (one.id, one.values) for one in specs):
            notes.add(f"env lists {spec.id} twice; keep one, or give them unlike keys", item)
        specs.append(spec)
        entries.append(entry)
        read.append(item)
    listed = Listed(tuple(specs), tuple(entries), tuple(read))
    return listed, merged_entry(specs, entries)


def _scale(
    notes: Notes, item: Node, spec: EnvSpec, entry: EnvEntry | None, metric: str
) -> Reference | None:
    """Return the scores given with an environment, or those that were measured."""
    given = item.value.get("scores") if item.is_map else None
    if given is not None:
        return _given_scale(notes, given)
    if metric_fault(metric, entry) is not None:
        return None  # noted
    changed = [key for key, value in spec.values.items() if not _is_default(entry, key, value)]
    found = None if changed else reference_of(spec.id, metric)
    if found is None:
        why = f"with another {changed[0]}" if changed else f"by {metric}"
        notes.add(
            f"{spec.id} {why} has no scores in the table; give them, as in {{id: {spec.id}, "
            "scores: {random: 0.1, reference: 0.9}}: the metric of random actions and of a good "
            "policy",
            item,
        )
        return None
    return Reference(float(found.random), float(found.reference))


def _given_scale(notes: Notes, node: Node) -> Reference | None:
    keys = ("random", "reference")
    values = [node.value.get(key) for key in keys] if node.is_map else []
    numbers = [
        float(one.value)
        for one in values
        if one is not None
        and isinstance(one.value, int | float)
        and not isinstance(one.value, bool)
    ]
    if len(numbers) != len(keys) or set(node.value) != set(keys):
        text = f"scores are {node.shown()}; allowed: {{random: 0.1, reference: 0.9}}"
        notes.add(text, node)
        return None
    try:
        return Reference(random=numbers[0], reference=numbers[1])
    except ConfigError as error:
        notes.add(f"scores: {error}", node)
        return None


def _is_default(entry: EnvEntry | None, key: str, value: object) -> bool:
    if entry is None:
        return False
    own = entry.params.get(key) if key in entry.params else None
    return value == (entry.keys[key].default if key in entry.keys else own)


def merged_entry(specs: Sequence[EnvSpec], entries: Sequence[EnvEntry | None]) -> EnvEntry | None:
    """Return what is known of several environments together; None where one is not known.

    Parameters and keys are those of any, the first one's where several have them; metrics are
    those of all.
    """
    known = [one for one in entries if one is not None]
    if not known or len(known) < len(specs):
        return None
    params: dict[str, float] = {}
    keys: dict[str, EnvKey] = {}
    elsewhere: dict[str, str] = {}
    for one in known:
        params = {**one.params, **params}
        keys = {**one.keys, **keys}
        elsewhere = {**one.elsewhere, **elsewhere}
    shared = [name for name in known[0].metrics if all(name in one.metrics for one in known)]
    actions = known[0].actions
    sources = {one.source for one in known}
    first: Mapping[str, str] = known[0].metrics
    return EnvEntry(
        id=" and ".join(dict.fromkeys(one.id for one in known)),
        source=sources.pop() if len(sources) == 1 else "several",
        actions=actions if all(one.actions == actions for one in known) else "any",
        params=params,
        keys=keys,
        positive=tuple(dict.fromkeys(name for one in known for name in one.positive)),
        metrics={name: meaning for name, meaning in first.items() if name in shared},
        elsewhere=elsewhere,
    )


def check_several(notes: Notes, root: Node, study: Study) -> None:
    """Note what a study over several environments cannot have."""
    if not study.more_envs:
        if "over_environments" in root.value:
            text = "over_environments is for several environments, but env is one; leave it out"
            notes.add(text, root, "over_environments")
        return
    for section, key, text in _refusals(study, root):
        notes.add(text, *place_of(root, section, key))


def _refusals(study: Study, root: Node) -> list[tuple[str, str | None, str]]:
    """Return (section, key, why) of each thing that does not go with several environments."""
    found: list[tuple[str, str | None, str]] = []
    costs = " and ".join(COSTS)
    if study.metric.goal == "minimize":
        section = "objectives" if study.objectives else "metric"
        text = "scores over several environments are maximised: 1 is the reference, whichever way "
        found.append((section, "goal", f"{text}the metric goes; leave goal out"))
    if any(one.name not in COSTS for one in study.objectives[1:]):
        text = f"beside the score over several environments only {costs} can be objectives"
        found.append(("objectives", None, text))
    if any(one.metric not in COSTS for one in study.constraints):
        text = f"over several environments only {costs} can be constraints"
        found.append(("constraints", None, text))
    for key, words in _ONE_ENV.items():
        if key in root.value and root.value[key].value not in (None, False, [], {}):
            found.append((key, None, f"{words} of one environment; env lists {study.spread}"))
    if study.executor.type != "local":
        text = "several environments run in one process; take executor: {type: local}"
        found.append(("executor", "type", text))
    if study.search.warm_start is not None:
        text = "a warm start takes trials of one environment; leave it out"
        found.append(("search", "warm_start", text))
    for logger in study.loggers:
        if logger.type in ("tensorboard", "wandb"):
            text = f"{logger.type} is written for one environment; take csv"
            found.append(("loggers", None, text))
    for parameter in study.space.parameters:
        if any(condition.name.startswith("env.") for condition in parameter.when):
            text = f"{parameter.name}: conditions on env.* are for one environment; leave it out"
            found.append(("space", parameter.name, text))
    if any(name.startswith("env.") for rule in study.space.forbid for name in rule.names):
        text = "rules that name env.* are for one environment; leave them out"
        found.append(("forbid", None, text))
    return found


_ONE_ENV = {
    "eval_env": "eval_env changes keys",
    "init": "a policy that lanes start from is one",
    "baselines": "baselines are heuristics",
}
