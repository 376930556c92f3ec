"""Reads `search` and `early_terminate`; methods and rules may be registered by `imports`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from .field import Field
from .search_methods import METHODS
from .sections import read_section
from .spec import EarlyTerminate, SearchSpec
from .stopping_rules import RULES
from .study_keys import SECTIONS
from .user_code import import_user_code
from .yaml_io import Node, Notes, plain

_NAMED: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "search": ("method", METHODS),
    "early_terminate": ("type", RULES),
}
"""Section -> its key that names a row of a table, and the table."""
_OPTIONS = ("scheduler_options", "searcher_options")


def run_imports_for_names(
    notes: Notes, root: Node, imports: tuple[str, ...], source: Path
) -> None:
    """Run `imports` if the study names a method or a rule that no table has.

    A file that raises is noted at its name.
    """
    unknown = [
        name
        for section, (_, table) in _NAMED.items()
        if (name := _named(root, section)) is not None and name not in table
    ]
    if not unknown or not imports:
        return
    ask_for_devices_of(root)
    with notes.at(root, "imports"):
        import_user_code(imports, source)


def ask_for_devices_of(root: Node) -> None:
    """Request the host's devices before the study's code, which may start jax, is run.

    Not if workers share the machine: only they know how many each has.
    """
    if "executor" in root.value:
        return
    from ..core.device_request import ask_for_devices  # jax, which the code would bring as well

    node = root.value.get("population")
    given: dict[str, Node] = node.value if node is not None and node.is_map else {}
    asked = {name: child.value for name, child in given.items()}
    ask_for_devices(str(asked.get("device", "auto")), asked.get("deterministic") is True)


def named_fields(root: Node, section: str, checked: bool) -> tuple[Field, ...] | None:
    """Return the keys of a section; of a registered rule, those of that rule.

    None for a recorded study (`checked`) whose rule is not known here.
    """
    if section not in _NAMED:
        return SECTIONS[section]
    key, table = _NAMED[section]
    name = _named(root, section)
    away = checked and name is not None and name not in table
    if away and section == "early_terminate":
        return None
    words = (*table, name) if away and name is not None else tuple(table)
    found = tuple(
        replace(field, words=words) if field.key == key else field for field in SECTIONS[section]
    )
    rule = RULES.get(name) if section == "early_terminate" and name is not None else None
    return (found[0], *rule.fields) if rule is not None and rule.registered else found


def read_search(notes: Notes, root: Node, values: Mapping[str, Any]) -> SearchSpec:
    options = values["options"] if isinstance(values["options"], Node) else Node(None, {})
    named, method = _named(root, "search"), values["method"]
    known = named in (None, method)
    method = "random" if values["driver"] == "ray_tune" else method
    row = METHODS.get(method)
    if row is not None and known:
        given = read_section(notes, "search.options", options, row.options)
    else:  # a recorded study, or a name that was noted as unknown
        given = plain(options)
    made: dict[str, Any] = {**values, "method": method, "options": given}
    made |= {key: plain(values[key]) for key in _OPTIONS if values[key]}
    return SearchSpec(**made)


def read_early_terminate(
    root: Node, values: Mapping[str, Any], env_steps: int | None
) -> EarlyTerminate | None:
    """Return the rule; None if it was noted as wrong."""
    if "type" not in values or env_steps is None:
        return None
    rule = RULES.get(values["type"])
    if rule is None:  # a recorded study
        given = plain(root.value["early_terminate"])
        own = {field.name for field in fields(EarlyTerminate)} - {"options"}
        options = {key: value for key, value in given.items() if key not in own}
        return EarlyTerminate(**{k: v for k, v in given.items() if k in own}, options=options)
    found = dict(values)
    if found.get("min", 0) is None:
        found["min"] = max(1, round(env_steps / found["eta"] ** 2))
    if found.get("every", 0) is None:
        found["every"] = max(1, round(env_steps / 16))
    if rule.registered:
        found["options"] = {field.key: found.pop(field.key) for field in rule.options}
    return EarlyTerminate(**found)


def _named(root: Node, section: str) -> str | None:
    node = root.value.get(section)
    key, _ = _NAMED[section]
    child = node.value.get(key) if node is not None and node.is_map else None
    return child.value if child is not None and isinstance(child.value, str) else None
