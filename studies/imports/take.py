"""From what another system's file sets to a draft: whose it is, its defaults, its own rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ...elsewhere import (
    COMMON,
    Row,
    Settings,
    System,
    another_algorithm,
    recognise,
    system,
)
from ...elsewhere.rows import UNKNOWN, plain_name
from ...errors import ConfigError
from ...knobs import KNOBS, check_value
from ..fields import SECTIONS
from .always import add_always, is_idle
from .draft import Draft, is_of_the_file
from .words import read_word

__all__ = ["Rules", "Source", "recognised", "settle", "take", "unwanted"]


@dataclass
class Source:
    """What a file sets, in its own terms.

    Attributes:
        constants: name -> value; words of a command line are texts.
        searched: name -> distribution, as a study file writes it.
        words: of the command.
    """

    constants: dict[str, Any] = field(default_factory=dict[str, Any])
    searched: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    words: Sequence[str] = ()

    def names(self) -> tuple[str, ...]:
        """Return all names."""
        return (*self.constants, *self.searched)

    def find(self, name: str) -> Any:
        """Return the value of a constant as a number, a switch or a text.

        None if it is not one.
        """
        return read_word(self.constants.get(name))

    def values(self, name: str, default: Any) -> list[Any]:
        """Return all values that a name can have: its constant, its listed values or bounds.

        Of a normal distribution it is the middle.
        """
        if name in self.searched:
            fields = self.searched[name]
            listed = fields.get("values", [fields.get(key) for key in ("min", "max", "mu")])
            return [read_word(value) for value in listed if value is not None]
        return [read_word(self.constants.get(name, default))]

    def drop(self, *names: str) -> None:
        """Forget names."""
        for name in names:
            self.constants.pop(name, None)
            self.searched.pop(name, None)


class Rules(Protocol):
    """What follows from several names of one system together."""

    def before(self, draft: Draft, source: Source) -> None:
        """Change the source where names hang together, before any is translated."""

    def after(self, draft: Draft, source: Source) -> None:
        """Add to the draft what follows from all names."""


class _NoRules:
    def before(self, draft: Draft, source: Source) -> None:
        pass

    def after(self, draft: Draft, source: Source) -> None:
        pass


def recognised(draft: Draft, source: Source, given: Mapping[str, Any]) -> System:
    """Return the system that a source is of, and note what told."""
    if "system" in given:
        return system(str(given["system"]))
    found, why = recognise((*source.names(), *given), source.words)
    if why:
        draft.note(f"taken for {found.title}, as {why}; -- --system none for no system")
    return found


def take(
    draft: Draft, source: Source, given: Mapping[str, Any], rules: Mapping[str, Rules]
) -> None:
    """Put everything that a source sets into a draft.

    Args:
        draft: gets it.
        source: what the file sets; changed on the way.
        given: flags that override it; `system` and `without` are about the import itself.
        rules: of systems, by their names.

    Raises:
        ConfigError: a part of it would change the study and cannot be said.
    """
    told = another_algorithm(source.words)
    if told and given.get("system") != COMMON.name:
        raise ConfigError(f"{draft.source}: {told}")
    draft.system = recognised(draft, source, given)
    draft.without = unwanted(given)
    for name, value in given.items():
        if _is_of_the_source(draft, name):
            source.drop(name, name.replace("-", "_"))
            source.constants[name] = value
    own = rules.get(draft.system.name, _NoRules())
    own.before(draft, source)
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
    own.after(draft, source)


def unwanted(given: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of `--without NAME,NAME`."""
    without = str(given.get("without", "")).replace("-", "_")
    return tuple(name for name in without.split(",") if name)


def settle(draft: Draft, source: Source) -> None:
    """Write down what the system's program would do where the source is silent."""
    _defaults(draft, source)
    add_always(draft)


def _is_of_the_source(draft: Draft, name: str) -> bool:
    return not is_of_the_file(name) and name not in ("system", "without", "metric", "name")


def _once_each(draft: Draft, source: Source) -> None:
    """Refuse names that would be one target, as actor.lr and critic.lr, or lr and learning_rate.

    Raises:
        ConfigError: there are two, and `--without` names neither.
    """
    found: dict[str, list[str]] = {}
    for name in source.names():
        target = draft.target(name)
        if target is not None:
            found.setdefault(target, []).append(name)
    for target, names in found.items():
        kept = [name for name in names if name.replace("-", "_") not in draft.without]
        if not kept or len(names) == 1 or not _clash(draft, source, names):
            continue
        if len(kept) > 1:
            raise ConfigError(
                f"{' and '.join(kept)} would both be {target} here, which has one value; leave "
                f"one of them out, such as -- --without {kept[0]}"
            )
        for name in names:
            if name not in kept:
                source.drop(name)
                draft.leave_out(name, f"{kept[0]} is {target} here")


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
    row = draft.system.find(name) or COMMON.find(name)
    return row is not None and row.target == "env"


def _defaults(draft: Draft, source: Source) -> None:
    """Write down what the system would take where the file is silent and we would take else."""
    said = {name.replace("-", "_") for name in source.names()}
    for row in draft.system.rows:
        silent = row.default is UNKNOWN or row.name in draft.silent
        if row.fate != "taken" or silent or row.name.replace("-", "_") in said:
            continue
        if _is_set(draft, row.target) or _is_ours(draft, row) or is_idle(draft, row.target):
            continue
        before = (dict(draft.fixed), dict(draft.env), dict(draft.rest))
        draft.constant(row.name, row.default)
        if before != (draft.fixed, draft.env, draft.rest):
            draft.note(f"{row.name}: {row.default!r}, the default of {draft.system.title}")


def _is_ours(draft: Draft, row: Row) -> bool:
    """Whether a default there is what we take where a study is silent."""
    value = row.values.of(row.default)
    settings = value if isinstance(value, Settings) else {row.target: value}
    return all(_same(draft, target, one) for target, one in settings.items())


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
