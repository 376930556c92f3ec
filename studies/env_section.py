"""Reads `imports`, `env` and `eval_env`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from ..environments.registry import Reference, entry, gymnax_class, reference_of, rooted
from ..environments.table import ENVIRONMENTS, EnvEntry
from ..errors import ConfigError, MissingExtraError, UnimportedModuleError, UnknownNameError
from .env_spec import EnvSpec
from .overrides import apply_overrides
from .programs import env_kinds
from .spec import Study
from .study_keys import metric_fault
from .study_values import check_env_value
from .user_code import is_inside
from .yaml_io import Node, Notes, plain, read_file

_Value = TypeVar("_Value")

_MOST_IMPORTS = 100
_MOST = 64
_SHAPES = ("directed", "slots", "k", "aggregate_slots", "fits", "no_op", "observation")
"""Keys that decide the number of actions and the observation."""


def read_imports(notes: Notes, items: Sequence[Node], source: Path | None) -> tuple[str, ...]:
    """Read the paths of user code, which must be in the study's folder, without importing it."""
    paths: list[str] = []
    if len(items) > _MOST_IMPORTS:
        notes.add(f"{len(items)} imports; allowed: {_MOST_IMPORTS}", items[0])
        return ()
    for item in items:
        given = item.value
        if not isinstance(given, str) or not given.endswith(".py"):
            notes.add(f"import {item.shown()}; allowed: a Python file such as my_envs.py", item)
        elif not is_inside(given):
            notes.add(f"import {item.shown()} is outside the study's folder; move it there", item)
        elif source is not None and not (source / given).is_file():
            notes.add(f"import {item.shown()}: no such file in the study's folder", item)
        else:
            paths.append(given)
    return tuple(paths)


@dataclass(frozen=True)
class EnvList:
    """A study's environments; `entries` and `items` are empty unless the study lists several."""

    specs: tuple[EnvSpec, ...] = ()
    entries: tuple[EnvEntry | None, ...] = ()
    items: tuple[Node, ...] = ()

    def with_scales(self, notes: Notes, metric: str) -> tuple[EnvSpec, ...]:
        """Add reference scores to the environments: given ones, or the metric's known scores."""
        found: list[EnvSpec] = []
        for item, spec, known in zip(self.items, self.specs, self.entries, strict=True):
            fault = metric_fault(metric, known)
            if known and fault and not all(self.entries):  # else noted at the metric
                notes.add(f"metric of {spec.id}: {fault}", item)
            found.append(replace(spec, scale=_read_scale(notes, item, spec, known, metric)))
        return tuple(found)


def read_env(
    notes: Notes, root: Node, imports: bool, checked: bool = False
) -> tuple[EnvList, EnvEntry | None]:
    """Read `env` (one environment or a list) and its table entry; a list gets a merged entry."""
    node = root.value.get("env")
    if node is None:
        return EnvList(), None  # noted with the other top-level keys
    if node.is_list:
        return _read_several(notes, node, imports, checked)
    if node.value is None:
        return EnvList(), None  # noted with the other top-level keys
    if node.is_map and "scores" in node.value:
        text = "scores apply only to several environments (here: one); remove them"
        notes.add(text, node, "scores")
    if node.is_map and "id" not in node.value:
        notes.add("env needs `id`, such as env: {id: CartPole-v1}", root, "env")
        return EnvList(), None
    spec, known = _read_one(notes, node, imports, checked)
    if spec is None:
        return EnvList(), None
    return EnvList((spec,)), known


def _read_several(
    notes: Notes, node: Node, imports: bool, checked: bool
) -> tuple[EnvList, EnvEntry | None]:
    items: list[Node] = node.value
    if not 2 <= len(items) <= _MOST:
        text = f"env lists {len(items)} environments; allowed: 2 to {_MOST}, or a single id"
        notes.add(text, next(iter(items), node))
        return EnvList(), None
    found: list[tuple[EnvSpec, EnvEntry | None, Node]] = []
    for item in items:
        spec, known = _read_one(notes, item, imports, checked)
        if spec is None:
            continue
        if any((spec.id, spec.values) == (one.id, one.values) for one, _, _ in found):
            text = f"env lists {spec.id} twice; keep one, or give them different keys"
            notes.add(text, item)
        found.append((spec, known, item))
    if not found:
        return EnvList(), None
    specs, entries, read = zip(*found, strict=True)
    return EnvList(specs, entries, read), merged_entry(specs, entries)


def _read_one(
    notes: Notes, node: Node, imports: bool, checked: bool
) -> tuple[EnvSpec | None, EnvEntry | None]:
    given = node.mapping.get("id", node)
    if node.is_list or (node.is_map and given is node):
        notes.wrong("env", node, "{id: CartPole-v1}, or an id alone")
        return None, None
    if not isinstance(given.value, str):
        notes.wrong("env", given, "an id such as CartPole-v1")
        return None, None
    known, place = None, notes.shown
    if given.line is not None:
        place = f"{place}:{given.line}"
    if gymnax_class(given.value) is not None:  # created when the study runs, since it needs jax
        return EnvSpec(given.value, _read_env_values(notes, None, node), place=place), None
    try:
        known = entry(given.value)
    except UnknownNameError as error:
        if not (imports or checked):
            text = str(error)
            if not isinstance(error, UnimportedModuleError):
                text += "; custom environments are registered by `imports`"
            notes.add(text, given)
            return None, None
    except (ConfigError, MissingExtraError) as error:
        if not checked:
            notes.add(str(error), given)
            return None, None
    return EnvSpec(given.value, _read_env_values(notes, known, node), place=place), known


def read_eval_env(notes: Notes, root: Node, known: EnvEntry | None) -> dict[str, Any]:
    node = root.value.get("eval_env")
    if node is None or not node.is_map:
        return {}
    if "id" in node.value:
        notes.add("eval_env accepts no id; give only the keys that differ", node, "id")
    return _read_env_values(notes, known, node)


def _read_env_values(notes: Notes, known: EnvEntry | None, node: Node) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, child in node.mapping.items():
        if key in ("id", "scores"):
            continue
        with notes.at(node, key):
            value = plain(child)
            if known is not None:
                value = check_env_value(known, key, value)
            values[key] = value
    return values


@dataclass(frozen=True)
class EnvFile:
    spec: EnvSpec
    known: EnvEntry
    folder: str  # folder of the file, in which relative paths start


def read_env_file(path: str | Path, overrides: Sequence[str] = ()) -> EnvFile:
    """Read an environment file, or the `env:` of a study with its `eval_env:` keys."""
    path = Path(path)
    notes = Notes(str(path))
    root = read_file(path, str(path))
    if not root.is_map or "env" not in root.value:
        root = Node(root.line, {"env": root}, {"env": root.line})
    section = "env"
    if "eval_env" in root.value:
        section = "eval_env"  # overrides apply to both
    apply_overrides(notes, root, [f"{section}.{given}" for given in overrides])
    listed, known = read_env(notes, root, imports=False)
    is_one = len(listed.specs) == 1
    if not is_one and not notes:
        notes.wrong("the environment", root.value["env"], "{id: rmsa, load: 250}")
    held_out = read_eval_env(notes, root, known)
    if notes or not is_one or known is None:
        raise notes.error()
    (spec,) = listed.specs
    spec = replace(spec, values={**spec.values, **held_out})
    folder = str(path.parent)
    if known.source == "optical":
        try:
            read_settings(spec.id, spec.values, folder)
        except ConfigError as error:
            notes.add(str(error), root.value["env"])
            raise notes.error() from error
    return EnvFile(spec, known, folder)


def _read_scale(
    notes: Notes, item: Node, spec: EnvSpec, entry: EnvEntry | None, metric: str
) -> Reference | None:
    if "scores" in item.mapping:
        return _given_scale(notes, item.mapping["scores"])
    if metric_fault(metric, entry) is not None:
        return None  # already noted
    changed = [
        key
        for key, value in spec.values.items()
        if entry is None or value != entry.default_of(key)
    ]
    found, why = reference_of(spec.id, metric), f"with metric {metric}"
    if changed:
        found, why = None, f"with a different {changed[0]}"
    if found is None:
        text = f"{spec.id} {why} has no scores in the table; give them, as in {{id: {spec.id}, "
        text += (
            "scores: {random: 0.1, reference: 0.9}} (the metric with random actions and with a "
        )
        notes.add(f"{text}good policy)", item)
        return None
    return Reference(float(found.random), float(found.reference))


def _given_scale(notes: Notes, node: Node) -> Reference | None:
    given = {key: plain(child) for key, child in node.mapping.items()}
    numbers = all(type(one) in (int, float) for one in given.values())
    if set(given) != {"random", "reference"} or not numbers:
        notes.wrong("scores", node, "{random: 0.1, reference: 0.9}")
        return None
    with notes.at(node, before="scores: "):
        return Reference(float(given["random"]), float(given["reference"]))
    return None


def merged_entry(specs: Sequence[EnvSpec], entries: Sequence[EnvEntry | None]) -> EnvEntry | None:
    """Return the common entry of several environments; None if one of them is unknown.

    The entry has the parameters and keys of all environments (for a shared name, those of the
    first environment), and their common metrics.
    """
    known = [one for one in entries if one is not None]
    if not known or len(known) < len(specs):
        return None
    actions = known[0].actions
    if any(one.actions != actions for one in known):
        actions = "any"
    return EnvEntry(
        id=" and ".join(_distinct_names([(one.id,) for one in known])),
        source=_common_value([one.source for one in known], "several"),
        actions=actions,
        metrics=_entries_in_all([one.metrics for one in known]),
        positive=_distinct_names([one.positive for one in known]),
        params=_merge_keeping_first([one.params for one in known]),
        keys=_merge_keeping_first([one.keys for one in known]),
        elsewhere=_merge_keeping_first([one.elsewhere for one in known]),
    )


def _common_value(values: Sequence[_Value], different: _Value) -> _Value:
    """Return the common value of all items, or `different` if there is none."""
    if len({*values}) > 1:
        return different
    return values[0]


def _entries_in_all(each: Sequence[Mapping[str, _Value]]) -> dict[str, _Value]:
    """Return the first mapping, restricted to names that are in all mappings."""
    shared = set(each[0]).intersection(*each)
    return {name: value for name, value in each[0].items() if name in shared}


def _distinct_names(names: Iterable[Iterable[str]]) -> tuple[str, ...]:
    """Return each name once, in order."""
    return tuple(dict.fromkeys(chain.from_iterable(names)))


def _merge_keeping_first(each: Sequence[Mapping[str, _Value]]) -> dict[str, _Value]:
    """Merge mappings; for a name that is in several of them, the first value is used."""
    found: dict[str, _Value] = {}
    for one in reversed(each):
        found |= one
    return found


class _FaultError(ConfigError):
    """An error with the environment key to blame, if known."""

    def __init__(self, text: str, key: str | None):
        self.key = key
        super().__init__(text)


def read_settings(id_: str, values: Mapping[str, Any], folder: str) -> Any:
    """Return the `OpticalSettings` for an `env:` mapping, and read each of its files once."""
    # imports numpy and file readers, 0.1 s
    from ..core.envs.optical.modulation import make_modulation
    from ..core.envs.optical.optical_settings import OpticalSettings
    from ..core.envs.optical.topology import make_topology
    from ..core.envs.optical.traffic_files import read_requests, read_traffic_matrix

    key: str | None = None
    try:
        settings = OpticalSettings.from_mapping({"id": id_, **rooted(id_, values, folder)})
        key = "topology"
        topology = make_topology(settings.topology, settings.directed)
        if settings.modulated:
            key = "modulation"
            make_modulation(settings.modulation)
        key = "traffic_matrix"
        read_traffic_matrix(settings.traffic_matrix, topology)
        if settings.requests:
            key = "requests"
            read_requests(settings.requests, topology)
    except ConfigError as error:
        named = [word.strip("`'.,:;()") for word in str(error).split()]
        first = next((word for word in named if word in ENVIRONMENTS[id_].keys), None)
        raise _FaultError(str(error), key or first) from error
    return settings


def optical_faults(study: Study) -> Iterator[tuple[str, str]]:
    """Yield (path, message) for each mistake in the environments of all buckets."""
    for values in env_kinds(study):
        section = "env"
        try:
            settings = read_settings(study.env.id, values, study.source)
            section = "eval_env"
            held_out = {**values, **study.evaluation.env}
            judged = read_settings(study.env.id, held_out, study.source)
        except _FaultError as error:
            text = str(error)
            if section == "eval_env":
                text = f"eval_env: {text}"
            yield _key_places(section, error.key), text
            continue
        for key in _SHAPES:
            train_value, eval_value = getattr(settings, key), getattr(judged, key)
            if train_value != eval_value:
                text = f"eval_env: {key} is {eval_value!r}, but {train_value!r} in training; the"
                yield (
                    _key_places("eval_env", key),
                    f"{text} policy needs the same observations and actions, so remove {key}",
                )
        endless = judged.continuous and not judged.end_first_blocking
        if endless and study.evaluation.steps is None:
            text = (
                "evaluation.steps is not given, but episodes never end in continuous operation; "
            )
            text += "set evaluation: {steps: 5000} to evaluate 5,000 requests after the warm-up"
            yield "evaluation.steps", text
        if study.metric.name.endswith("_share") and not judged.histograms:
            text = f"metric {study.metric.name} is reported only with env: {{histograms: true}}"
            yield "metric.name", text


def _key_places(section: str, key: str | None) -> str:
    """Return the keys an error may refer to, separated by `|`; the section if `key` is None."""
    if key is None:
        return section
    return f"{section}.{key}|space.env.{key}|env.{key}"
