"""Converts a source's settings to a draft study: system, values, and the system's defaults."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from ..environments.registry import find as find_environment
from ..errors import ConfigError, HpoError
from ..foreign_names.name_mapping import (
    COMMON,
    COMPUTED,
    UNKNOWN,
    NameRow,
    NoCounterpart,
    SettingsRow,
    System,
    in_words,
    plain_name,
)
from ..foreign_names.optax_calls import schedule_of
from ..foreign_names.plain_values import Unread
from ..foreign_names.tables import (
    another_algorithm,
    find,
    recognise,
    system,
    version_named,
    version_told,
    versions_of,
)
from ..knobs import KNOBS, check_value, matters
from ..spaces.make import make_distribution
from ..studies.init_file import SEARCHED
from ..studies.study_keys import SECTIONS
from ..studies.study_values import count_of
from .converted_study import ConvertedStudy, ImportSource, is_of_the_file
from .formats import plain_value, read_word
from .jaxdem_rules import SEGMENTS, counts_segments
from .lost_names import ask_about_the_system, refuse_lost
from .system_rules import rules_of

NOT_NAMES = ("system", "version", "without", "metric", "name", "imports")
"""Flags of the import, which a source does not have."""
_GONE = object()
# systems whose optimisers do not accept optax schedules
_OF_TORCH = ("sb3", "cleanrl", "torch_ppo")


def names_given(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flags that are names of the source, with their values."""
    return {
        name: value
        for name, value in given.items()
        if not is_of_the_file(name) and name not in NOT_NAMES
    }


def begin(draft: ConvertedStudy, source: ImportSource, given: Mapping[str, Any]) -> None:
    draft.without = tuple(filter(None, str(given.get("without", "")).replace("-", "_").split(",")))
    if "system" in given:
        draft.system = system(str(given["system"]))
        if "version" in given or draft.system.name == draft.system.family:
            _choose_version(draft, source, given)
        return
    draft.system, why = recognise((*source.names(), *given), source.words, source.family)
    if source.family and draft.system is COMMON:
        draft.system, why = system(source.family), ""
    if why and not source.family:
        draft.note(f"read as {draft.system.title}, because {why}; system=none turns this off")
    _choose_version(draft, source, given)


def _choose_version(draft: ConvertedStudy, source: ImportSource, given: Mapping[str, Any]) -> None:
    """Select a system's version: the given one, the only one with these names, or the newest."""
    if "version" in given:
        draft.system = version_named(draft.system, str(given["version"]))
        return
    names = {name.replace("-", "_") for name in (*source.names(), *source.mentioned, *given)}
    draft.system, identifying = version_told(draft.system, names)
    one, reason = draft.system, f"only this version has {', '.join(identifying)}"
    if not identifying and (small := counts_segments(draft, source)):
        draft.system = one = version_named(one, SEGMENTS)
        identifying, reason = ("minibatch_size",), small
    others = " or ".join(map(_version_flag, versions_of(one)))
    if identifying and others:
        draft.note(f"version: {one.title} {one.version}, because {reason}; otherwise {others}")
    elif others:
        draft.note(f"version: {one.title} {one.version}; the imported names also match {others}")


def _version_flag(one: System) -> str:
    """Return the option that selects the version; "" for a system without versions."""
    meaning = one.version
    if one.name != one.family:
        meaning = f"system={one.name}, {meaning}"
    return f"version={one.tag.partition(' ')[0]} ({meaning})"


def take(draft: ConvertedStudy, source: ImportSource, given: Mapping[str, Any]) -> None:
    """Translate a source into a draft study, with the settings given by the user."""
    other = another_algorithm(source.words)
    if other and given.get("system") != COMMON.name:
        raise draft.fault(other)
    begin(draft, source, given)
    source.negate(draft.system)
    draft.read = list(source.names())
    _give_environment(draft, source, given)
    if named_lengths(draft, given):
        source.loops = {}
    merged = _merge_given(draft, source, given)
    _apply_rules(draft, source)
    changed = (n for n, value in merged.items() if source.constants.get(n, _GONE) != value)
    draft.ruled = set(changed)
    put_env(draft, source)
    _count_loops(draft, source)
    ask_about_the_system(draft, source, given)
    refuse_lost(draft, source)
    _check_targets(draft, source)
    for name, value in source.constants.items():
        draft.constant(name, value)
    for name, distribution in source.searched.items():
        draft.searched(name, distribution)
    add_defaults(draft, source)
    for rule in rules_of(draft.system.family).after:
        rule(draft)
    unlisted = set(draft.unlisted())
    draft.taken |= {name: [] for name in draft.read if name in unlisted & source.used}


def _give_environment(
    draft: ConvertedStudy, source: ImportSource, given: Mapping[str, Any]
) -> None:
    """Replace the source's environment with the user's."""
    wanted = [str(given[name]).removeprefix("gym:") for name in named_env(draft, given)]
    if not wanted:
        return
    others = [name for name in named_env(draft, source.names()) if name not in given]
    for name in others:
        same = source.constants.get(name) in wanted
        source.drop(name)
        if not same:
            draft.leave_out(name, "a different environment is given")


def _merge_given(
    draft: ConvertedStudy, source: ImportSource, given: Mapping[str, Any]
) -> dict[str, Any]:
    """Add the user's names to the source; return them."""
    merged = names_given(given)
    draft.ours = {name for name in merged if _is_computed_there(draft, name)}
    for name, value in merged.items():
        source.drop(name, name.replace("-", "_"))
        for other in _overridden(draft, source, name):
            source.drop(other)
            draft.leave_out(other, f"{name} is given")
        source.constants[name] = value
    return merged


def _is_computed_there(draft: ConvertedStudy, given: str) -> bool:
    """Return whether a given name is ours, because the source only computes one of that name."""
    row = draft.system.find(given)
    return row is not None and row.because == COMPUTED and given.replace("-", "_") in KNOBS


def _overridden(draft: ConvertedStudy, source: ImportSource, given: str) -> list[str]:
    """Return the source's name for the setting that a user gives by our name.

    A name that sets more than that, or from which others are computed, is not overridden.
    """
    target = draft.target(given)
    is_theirs = draft.system.find(given) is not None and given not in draft.ours
    if target is None or is_theirs:
        return []
    targets = {target, _other_count(draft, target)}
    names = [name for name in source.names() if draft.target(name) in targets]
    computed = {name for one in draft.system.derived for name in one.from_}
    if len(names) != 1 or names[0] in computed or not _sets_only(draft, source, names[0]):
        return []
    return names


_COUNTS = {"num_minibatches": "minibatch_size", "minibatch_size": "num_minibatches"}
"""Two hyperparameters of which a study has one, unless it draws with priorities."""


def _other_count(draft: ConvertedStudy, target: str) -> str:
    """Return what a target replaces if the system has only one of the two; else the target."""
    other = _COUNTS.get(target, target)
    of_system = {row.target for row in draft.system.rows}
    if {target, other} <= of_system:
        return target
    return other


def _sets_only(draft: ConvertedStudy, source: ImportSource, name: str) -> bool:
    """Return whether a name's value sets its target and nothing else."""
    row = draft.row(name)
    if row is None or name in source.searched:
        return row is not None
    with suppress(NoCounterpart, ConfigError):
        return set(row.settings(read_word(source.constants[name]))) <= {row.target}
    return False


def _apply_rules(draft: ConvertedStudy, source: ImportSource) -> None:
    """Drop the names that the user excludes, then apply the system's import rules."""
    leave_out_asked(draft, source)
    draft.sought = set(source.searched)
    for name, reason in source.objects.items():
        draft.leave_out(name, reason)
    family = draft.system.family
    if family not in _OF_TORCH:
        _read_schedules(draft, source)
    for rule in rules_of(family).before:
        rule(draft, source)


def _read_schedules(draft: ConvertedStudy, source: ImportSource) -> None:
    """Replace an optax schedule by its initial or peak rate; set the schedule itself later."""
    for name, value in source.constants.items():
        if draft.target(name) != "learning_rate" or not isinstance(value, Unread):
            continue
        try:
            schedule = schedule_of(value)
        except NoCounterpart as reason:
            text = f"{draft.source}:{value.line}: {name} is {value}: {reason}"
            raise ConfigError(text, flags={name: "VALUE"}, without={"without": name}) from None
        if schedule is None:
            continue
        source.constants[name] = schedule.learning_rate
        if any(draft.target(other) == "lr_schedule" for other in source.names()):
            draft.note(
                f"{name}: {schedule.learning_rate:g} is taken from {value}, because "
                "another name sets the schedule"
            )
            continue
        draft.schedule = schedule
        draft.silent |= {row.name for row in draft.system.rows if row.target == "lr_schedule"}
        draft.note(f"{name}: {value} becomes {schedule.learning_rate:g} with an lr_schedule")


def _count_loops(draft: ConvertedStudy, source: ImportSource) -> None:
    """Multiply the length of a training call by the number of loop iterations that repeat it."""
    calls = ("learn", "train")
    if "AutoRLEnv" in source.calls:
        calls = ("step",)
    name = next(iter(named_lengths(draft, source.constants)), None)
    called = next((call for call in calls if source.loops.get(call, 1) != 1), None)
    if name is None or called is None:
        return
    total = count_of(source.find(name))
    if total is None:
        return
    times = source.loops[called]
    if not times:
        text = f"{called} is called in a loop of unknown length; give the total number of "
        raise draft.fault(f"{text}env steps", flags={"env_steps": 10 * total})
    source.constants[name] = total * times
    draft.note(f"{name}: {total:,}, repeated {times} times")


def put_env(draft: ConvertedStudy, source: ImportSource) -> None:
    """Put the environment first, because it determines the meaning of other names."""
    for name in named_env(draft, source.names()):
        if name in source.constants:
            draft.constant(name, source.constants.pop(name))
        elif len(source.searched[name].get("values", ())) == 1:
            draft.constant(name, source.searched.pop(name)["values"][0])


def leave_out_asked(draft: ConvertedStudy, source: ImportSource) -> None:
    for name in source.names():
        row = draft.row(name)
        if name.replace("-", "_") in draft.without and row is not None and row.fate == "taken":
            source.constants.pop(name, None)
            source.searched.pop(name, None)
            draft.leave_out(name, "as requested")


def named_lengths(draft: ConvertedStudy, names: Iterable[str]) -> list[str]:
    return [name for name in names if (row := draft.row(name)) and row.target == "env_steps"]


def named_env(draft: ConvertedStudy, names: Iterable[str]) -> list[str]:
    rows = {name: find(name, draft.system) for name in names}
    return [name for name, row in rows.items() if row and row.target == "env"]


def _check_targets(draft: ConvertedStudy, source: ImportSource) -> None:
    """Reject names that have the same target, such as actor.lr and critic.lr."""
    found: dict[str, list[str]] = {}
    for name in source.names():
        target = draft.target(name)
        if target is not None:
            found.setdefault(target, []).append(name)
    for target, names in found.items():
        if len(names) > 1 and _is_contradiction(draft, source, names):
            text = f"{' and '.join(names)} would both set {target}; remove one of them"
            raise ConfigError(text, flags={"without": names[0]})


def _is_contradiction(draft: ConvertedStudy, source: ImportSource, names: Sequence[str]) -> bool:
    """Return whether names with the same target contradict each other."""
    if len({repr(source.constants.get(name, name)) for name in names}) == 1:
        return False
    if len({plain_name(name) for name in names}) < len(names):
        return True
    if all(draft.system.find(name) for name in names):
        return False
    given = [source.find(name) for name in names if name in source.constants]
    numbers = {one for one in given if isinstance(one, int | float)}
    return len(given) < len(names) or len(numbers) > 1


def _add_critic(draft: ConvertedStudy) -> None:
    """Give the critic a separate optimiser if a source has a learning rate for it."""
    name = next(
        (
            name
            for name in draft.taken
            if plain_name(name) in ("critic_lr", "lr_critic")
            and draft.taken[name] == ["vf_learning_rate"]
        ),
        None,
    )
    if name is not None and "separate_vf_optimiser" not in draft.fixed:
        draft.fixed["separate_vf_optimiser"] = True
        draft.note(f"{name}: the critic has a separate optimiser (separate_vf_optimiser)")


def add_defaults(draft: ConvertedStudy, source: ImportSource) -> None:
    """Add the system's defaults that differ from ours, its unnamed settings, and notes."""
    _add_critic(draft)
    given = {name.replace("-", "_") for name in (*source.names(), *source.used)}
    for row in draft.system.rows:
        named = row.name in draft.silent or row.name.replace("-", "_") in given
        if row.default is not UNKNOWN and row.fate == "taken" and not named:
            _add_default(draft, row)
    named_targets = {row.target for row in draft.system.rows if row.default is not UNKNOWN}
    for target, value in draft.system.always.items():
        if target not in named_targets:
            _add_unnamed(draft, target, value)
    for target, value in {**draft.system.always, **unset_defaults(draft, {})}.items():
        if target in draft.space:
            _start_at_default(draft, target, value)
    for text in draft.system.differs:
        draft.note(text)


def unset_defaults(draft: ConvertedStudy, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the source's defaults of the searched settings that a configuration lacks."""
    found = dict[str, Any]()
    for row in draft.system.rows:
        given = row.target in config or row.target not in draft.space
        if given or row.fate != "taken" or row.default is UNKNOWN:
            continue
        settings = dict[str, Any]()
        with suppress(NoCounterpart):  # a default without counterpart is no value here
            settings = dict(row.settings(row.default))
        if row.target in settings and "when" not in draft.space[row.target]:
            found[row.target] = plain_value(row.target, settings[row.target])
    return found


def _start_at_default(draft: ConvertedStudy, target: str, value: Any) -> None:
    """Start a search at the source's default, unless it names one or excludes the value."""
    fields = draft.space[target]
    if {"default", "when"} & fields.keys() or _is_ours(draft, target, value):
        return
    with suppress(ConfigError):  # a fault of the space is reported when the study is checked
        if make_distribution(fields).why_not(value) is None:
            draft.space[target] = {**fields, "default": value}
            draft.defaults.append(f"{target} {in_words(value)} in trial 0")


def _add_default(draft: ConvertedStudy, row: NameRow) -> None:
    """Add a name's default in our terms, unless it is already set or has no effect."""
    if _is_set(draft, row.target) or _is_idle(draft, row.target):
        return
    if _is_set(draft, _other_count(draft, row.target)):
        return
    try:
        settings = row.settings(row.default)
    except NoCounterpart as reason:
        raise draft.fault(f"its {row.name} is {row.default!r} by default: {reason}") from None
    draft.defaults.append(_shown_default(row, settings))
    if all(_is_ours(draft, target, one) for target, one in settings.items()):
        return
    for target, one in settings.items():
        draft.put(row.name, target, one)


def _add_unnamed(draft: ConvertedStudy, target: str, value: Any) -> None:
    """Add a setting that is implicit in the system and has no name there."""
    if _is_set(draft, target) or _is_idle(draft, target):
        return
    checked = check_value(target, value)
    if target == "hidden_sizes" and {"hidden_size", "num_layers"} & {*draft.fixed, *draft.space}:
        return
    draft.defaults.append(f"({target} {value})")
    if _depends_on_others(draft, target) or checked != KNOBS[target].default:
        draft.fixed[target] = checked


def _depends_on_others(draft: ConvertedStudy, target: str) -> bool:
    """Return whether our default of a hyperparameter depends on other settings."""
    if target == "activation":
        return draft.fixed.get("network", "mlp") in ("cnn", "gnn", "transformer")
    return target == "reward_clip"


def _shown_default(row: NameRow, settings: Mapping[str, Any]) -> str:
    """Format a system's default, with ours in brackets if it differs."""
    shown = f"{row.name} {row.default}"
    if settings == {row.target: row.default} or not settings:
        return shown
    ours = in_words(SettingsRow(settings))
    if len(settings) == 1:
        ours = in_words(*settings.values())
    if ours == in_words(row.default):
        return shown
    return f"{shown} (here {ours})"


_SWITCHES = {
    "observation_clip": "normalise_observations",
    "reward_clip": "normalise_rewards",
    "adv_clip": "normalise_advantages",
    "average_reward_initial": "reward_centering",
}
"""Hyperparameter -> the switch without which it has no effect."""


def _is_idle(draft: ConvertedStudy, target: str) -> bool:
    """Return whether a setting has no effect in a draft, so that its default is omitted."""
    network = draft.fixed.get("network", "mlp")
    if target in KNOBS and "network" not in draft.space and not matters(target, network):
        return True
    if target in _SWITCHES:
        switch = _SWITCHES[target]
        on = draft.fixed.get(switch, KNOBS[switch].default)
        return not on and switch not in draft.space
    if target in ("log_std_init", "distribution"):
        return _has_discrete_actions(draft)
    if target in ("lr_schedule_multiplier", "lr_decay_exponent"):
        return draft.fixed.get("lr_schedule", "constant") == "constant"
    return False


def _has_discrete_actions(draft: ConvertedStudy) -> bool:
    with suppress(HpoError):
        entry = find_environment(str(draft.env.get("id", "")))
        return entry is not None and entry.actions == "discrete"
    return False


def _is_set(draft: ConvertedStudy, target: str) -> bool:
    if target == "lr_schedule" and draft.schedule is not None:
        return True
    section, _, key = target.partition(".")
    if target in KNOBS:
        return target in draft.fixed or target in draft.space
    if section == "env":
        return target in draft.space or (key or "id") in draft.env
    if key:
        return key in draft.rest.get(section, {})
    return target in draft.rest


def _is_ours(draft: ConvertedStudy, target: str, value: Any) -> bool:
    section, _, key = target.partition(".")
    if target in KNOBS:
        if value is not None:
            value = check_value(target, value)
        return value == KNOBS[target].default
    entry = draft.entry
    if section == "env" and entry is not None:
        return value == entry.default_of(key)
    defaults = {field.key: field.default for field in SECTIONS.get(section, ())}
    return value == defaults.get(key, UNKNOWN)


HAS_SPACE = "it already has a search space; ranges can be added only to a single configuration"
"""Why `--space` is rejected."""


def add_space(draft: ConvertedStudy) -> None:
    """Add ranges around a draft's fixed values, which become the default configuration."""
    if draft.space:
        raise draft.fault(HAS_SPACE)
    for name in SEARCHED:
        if name == "gae_lambda" and draft.fixed.get("gae_lambda_initial") is not None:
            draft.note("space: gae_lambda is not searched, because it is annealed in the source")
            continue
        value = draft.fixed.get(name, KNOBS[name].default)
        fields = dict(KNOBS[name].search or {})
        if fields.get("distribution") == "one_minus_log" and value >= 1.0:
            draft.note(f"space: {name} is not searched, because {value!r} is the end of its range")
            continue
        draft.fixed.pop(name, None)
        if value > 0 or "zero" not in fields:
            fields["min"], fields["max"] = min(fields["min"], value), max(fields["max"], value)
        draft.space[name] = {**fields, "default": value}
    draft.note(
        "space: ranges around the file's values, which are the defaults and are tried first"
    )
    draft.rest["search"] = {"method": "tpe"}
    draft.rest["early_terminate"] = {"type": "asha"}
    draft.rest["seeds"] = {"per_config": 3, **draft.rest.get("seeds", {})}
    draft.is_default = True
    draft.rest["budget"] = {"trials": 64}
