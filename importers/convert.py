"""From what a source sets to a draft: whose it is, its values, its system's defaults."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..environments import find as find_environment
from ..errors import ConfigError, HpoError
from ..knobs import KNOBS, check_value, matters
from ..studies.fields import SECTIONS
from .common_table import COMMON
from .draft import Draft, Source, is_of_the_file
from .rows import UNKNOWN, Row, plain_name
from .rules import RULES
from .tables import another_algorithm, find, recognise, system, versions_of
from .transforms import NoCounterpart, Settings

__all__ = ["add_space", "begin", "is_idle", "settle", "take"]


def begin(draft: Draft, source: Source, given: Mapping[str, Any]) -> None:
    """Recognise whose names a source has; note what told, and which version they are read at."""
    draft.without = tuple(filter(None, str(given.get("without", "")).replace("-", "_").split(",")))
    if "system" in given:
        draft.system = system(str(given["system"]))
        return
    draft.system, why = recognise((*source.names(), *given), source.words, source.family)
    if source.family and draft.system is COMMON:
        draft.system, why = system(source.family), ""
    if why and not source.family:
        draft.note(f"taken for {draft.system.title}, as {why}; system=none: for none")
    one, names = draft.system, {name.replace("-", "_") for name in source.names()}
    others = "; ".join(f"{other.version}: system={other.name}" for other in versions_of(one))
    if one.name != one.family and any(mark <= names for mark in one.marks):
        draft.note(f"version: only {one.title} {one.version} has such names; others are {others}")
    elif others:
        draft.note(f"version: its names do not tell versions apart; {others}")


def take(draft: Draft, source: Source, given: Mapping[str, Any]) -> None:
    """Put everything that a source sets into a draft."""
    told = another_algorithm(source.words)
    if told and given.get("system") != COMMON.name:
        raise ConfigError(f"{draft.source}: {told}")
    draft.read = list(source.names())
    begin(draft, source, given)
    for name, value in given.items():
        if not is_of_the_file(name) and name not in ("system", "without", "metric", "name"):
            source.drop(name, name.replace("-", "_"))
            source.constants[name] = value
    for name in source.names():
        row = draft.row(name)
        if name.replace("-", "_") in draft.without and row is not None and row.fate == "taken":
            for given in (source.constants, source.searched):
                given.pop(name, None)
            draft.leave_out(name, "as asked")
    rules = RULES.get(draft.system.family)
    if rules is not None:
        rules.before(draft, source)
    for name in [name for name in source.names() if _names_env(draft, name)]:
        if name in source.constants:
            draft.constant(name, source.constants.pop(name))
        elif len(source.searched[name].get("values", ())) == 1:
            draft.constant(name, source.searched.pop(name)["values"][0])
    _once_each(draft, source)
    for name, value in source.constants.items():
        draft.constant(name, value)
    for name, distribution in source.searched.items():
        draft.searched(name, distribution)
    settle(draft, source)
    if rules is not None:
        rules.after(draft, source)
    unlisted = set(draft.unlisted())
    draft.taken |= {name: [] for name in draft.read if name in unlisted & source.used}


def _once_each(draft: Draft, source: Source) -> None:
    """Refuse names that would be one target, as actor.lr and critic.lr."""
    found: dict[str, list[str]] = {}
    for name in source.names():
        target = draft.target(name)
        if target is not None:
            found.setdefault(target, []).append(name)
    for target, names in found.items():
        if len(names) > 1 and _clash(draft, source, names):
            raise ConfigError(
                f"{' and '.join(names)} would both be {target} here, which has one value; leave "
                "one of them out",
                flags={"without": names[0]},
            )


def _clash(draft: Draft, source: Source, names: Sequence[str]) -> bool:
    """Return whether several names of one target of ours cannot all be meant.

    Names that a system's own table has beside each other are its rules' business.
    """
    if len({plain_name(name) for name in names}) < len(names):
        return True
    if all(draft.system.find(name) for name in names):
        return False
    given = [source.find(name) for name in names if name in source.constants]
    numbers = {one for one in given if isinstance(one, int | float)}
    return len(given) < len(names) or len(numbers) > 1


def _names_env(draft: Draft, name: str) -> bool:
    row = find(name, draft.system)
    return row is not None and row.target == "env"


# ---------------------------------------------------------- what the source leaves unsaid


def settle(draft: Draft, source: Source) -> None:
    """Write down what the system's program would do where the source is silent."""
    said = {name.replace("-", "_") for name in (*source.names(), *source.used)}
    for row in draft.system.rows:
        silent = row.default is UNKNOWN or row.name in draft.silent
        if row.fate != "taken" or silent or row.name.replace("-", "_") in said:
            continue
        if _is_set(draft, row.target) or is_idle(draft, row.target):
            continue
        draft.defaults.append(f"{row.name} {row.default}")
        _put_default(draft, row)
    _add_always(draft)


def _put_default(draft: Draft, row: Row) -> None:
    try:
        value = row.values.of(row.default)
    except NoCounterpart as reason:
        raise ConfigError(f"{draft.source}: its {row.name} is {row.default!r} by default: {reason}"
                          ) from None  # fmt: skip
    settings = value if isinstance(value, Settings) else {row.target: value}
    if not all(_same(draft, target, one) for target, one in settings.items()):
        for target, one in settings.items():
            draft.put(row.name, target, one)


def _add_always(draft: Draft) -> None:
    """Add what the system's program always does, and what differs whatever is set."""
    named = {row.target for row in draft.system.rows if row.default is not UNKNOWN}
    for target, value in draft.system.always.items():
        if target in named or _is_set(draft, target) or is_idle(draft, target):
            continue
        checked = check_value(target, value)
        if target == "hidden_sizes" and {"hidden_size", "num_layers"} & {
            *draft.fixed,
            *draft.space,
        }:
            continue  # fmt: skip
        draft.defaults.append(f"({target} {value})")
        if checked != KNOBS[target].default or _is_filled(draft, target):
            draft.fixed[target] = checked
    for text in draft.system.differs:
        draft.note(text)


def _is_filled(draft: Draft, target: str) -> bool:
    """Whether ours would not be the default that the table of knobs has."""
    filled = draft.fixed.get("network", "mlp") in ("cnn", "gnn", "transformer")
    return (target == "activation" and filled) or target == "reward_clip"


def is_idle(draft: Draft, target: str) -> bool:
    """Whether a knob changes nothing in this study."""
    network = draft.fixed.get("network", "mlp")
    if target in KNOBS and "network" not in draft.space and not matters(target, network):
        return True
    switches = {"observation_clip": "normalise_observations", "reward_clip": "normalise_rewards",
                "adv_clip": "normalise_advantages"}  # fmt: skip
    switch = switches.get(target)
    if switch is not None:
        return not draft.fixed.get(switch, KNOBS[switch].default) and switch not in draft.space
    if target in ("log_std_init", "distribution"):
        return _actions(draft) == "discrete"
    if target in ("lr_schedule_multiplier", "lr_decay_exponent"):
        return draft.fixed.get("lr_schedule", "constant") == "constant"
    return False


def _actions(draft: Draft) -> str:
    try:
        entry = find_environment(str(draft.env.get("id", "")))
    except HpoError:
        return "any"
    return "any" if entry is None else entry.actions


def _same(draft: Draft, target: str, value: Any) -> bool:
    if target in KNOBS and value is not None:
        value = check_value(target, value)
    return value == _ours(draft, target)


def _is_set(draft: Draft, target: str) -> bool:
    section, _, key = target.partition(".")
    if target in KNOBS:
        return target in draft.fixed or target in draft.space
    if section == "env":
        return target in draft.space or (key or "id") in draft.env
    return key in draft.rest.get(section, {}) if key else target in draft.rest


def _ours(draft: Draft, target: str) -> Any:
    """Return what we take where a study is silent."""
    section, _, key = target.partition(".")
    if target in KNOBS:
        return KNOBS[target].default
    entry = draft.entry
    if section == "env" and entry is not None:
        return entry.keys[key].default if key in entry.keys else entry.params.get(key)
    fields = {field.key: field.default for field in SECTIONS.get(section, ())}
    return fields.get(key, UNKNOWN)


# ----------------------------------------------------------------- around a configuration

_SEARCHED = ("learning_rate", "gamma", "gae_lambda", "clip_eps", "ent_coef", "update_epochs")


def add_space(draft: Draft, names: Iterable[str] = _SEARCHED) -> None:
    """Search around a draft's fixed values, which become the space's default configuration."""
    if draft.space:
        raise ConfigError(
            f"{draft.source} has a search space already; only a single configuration gets one"
        )
    for name in names:
        value = draft.fixed.get(name, KNOBS[name].default)
        fields = dict(KNOBS[name].search or {})
        if fields.get("distribution") == "one_minus_log" and value >= 1.0:
            draft.note(f"space: {name} stays {value!r}, the end of its range")
            continue
        draft.fixed.pop(name, None)
        if value > 0 or "zero" not in fields:
            fields["min"], fields["max"] = min(fields["min"], value), max(fields["max"], value)
        fields["default"] = value
        draft.space[name] = fields
    draft.note("space: around the file's values, which are the default and are tried first")
    draft.rest["search"] = {"method": "tpe"}
    draft.rest["early_terminate"] = {
        "type": "asha", "min": max(1, draft.rest.get("env_steps", 1_000_000) // 16), "eta": 4.0,
    }  # fmt: skip
    draft.rest["seeds"] = {"per_config": 3, **draft.rest.get("seeds", {})}
    draft.rest["budget"] = {"trials": 64}
