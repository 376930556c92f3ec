"""Reads `env` where it lists several environments, and says what such a study cannot have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..env_entry import EnvEntry, EnvKey
from ..environment_references import Reference, reference_of
from ..errors import ConfigError
from .env_section import read_one_env
from .env_spec import EnvSpec
from .metrics import COSTS, metric_fault
from .notes import Notes
from .reader import Node
from .spec import Study
from .together_places import place_of

__all__ = ["Listed", "check_several", "merged_entry", "read_envs"]

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
