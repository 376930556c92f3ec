"""Reads `search` and `early_terminate`; methods and rules may be registered by `imports`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from .field import Field
from .search_methods import METHODS
from .sections import read_section
from .spec import EarlyTerminate, SearchSpec, WarmStart
from .stopping_rules import RULES
from .study_keys import SECTIONS, WARM_START
from .user_code import import_user_code
from .yaml_io import Node, Notes, plain

_NAMED: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "search": ("method", METHODS),
    "early_terminate": ("type", RULES),
}
"""Section -> the key that names a row of a table, and the table."""
_OPTIONS = ("scheduler_options", "searcher_options")


def run_imports_for_names(
    notes: Notes, root: Node, imports: tuple[str, ...], source: Path
) -> None:
    """Run `imports` where the study names a method or a rule that only they can bring.

    A file that raises is noted where it is named.
    """
    unknown = [
        name
        for section, (_, table) in _NAMED.items()
        if (name := _named(root, section)) is not None and name not in table
    ]
    if not unknown or not imports:
        return
    _ask_for_devices(root)
    try:
        import_user_code(imports, source)
    except ConfigError as error:
        notes.add(str(error), root, "imports")


def _ask_for_devices(root: Node) -> None:
    """Settle the host's devices before the study's own code, which may start jax, is run.

    Not where workers share the machine: how many each has is known to them alone.
    """
    if "executor" in root.value:
        return
    from ..core.device_request import ask_for_devices  # jax, which the code would bring as well

    node = root.value.get("population")
    given: dict[str, Node] = node.value if node is not None and node.is_map else {}
    asked = {name: child.value for name, child in given.items()}
    ask_for_devices(str(asked.get("device", "auto")), asked.get("deterministic") is True)


def named_fields(root: Node, section: str, checked: bool) -> tuple[Field, ...] | None:
    """Return the keys of a section; where a rule was registered, those of that rule.

    Of a study that ran before, whose rule is not known here, nobody knows the keys: None.

    Args:
        root: the study.
        section: its name.
        checked: the study ran before; its method and its rule need not be known here.
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
    """Read what `search` holds beside plain values: options, and an earlier study."""
    node = root.value.get("search")
    options = node.value.get("options") if node is not None and node.is_map else None
    method = "random" if values["driver"] == "ray_tune" else values["method"]
    usable = options if options is not None and options.is_map else None
    named = _named(root, "search")
    row = None if named is not None and named != values["method"] else METHODS.get(method)
    earlier = values["warm_start"]
    if earlier is not None:
        earlier = read_section(notes, "search.warm_start", earlier, WARM_START)
    if row is not None:
        given = read_section(notes, "search.options", usable, row.options)
    else:  # of a study that is looked at, or of a name that was noted as unknown
        given = plain(usable or Node(None, {}))
    return SearchSpec(
        method,
        values["random_share"],
        given,
        WarmStart(**earlier) if earlier else None,
        **{key: values[key] for key in ("ahead", "driver", "scheduler", "searcher")},
        **{key: plain(values[key]) for key in _OPTIONS if values[key]},
    )


def read_early_terminate(
    root: Node, values: Mapping[str, Any], env_steps: int | None
) -> EarlyTerminate | None:
    """Make the rule of what `early_terminate` holds; None where that was noted as wrong."""
    if "type" not in values or env_steps is None:
        return None
    rule = RULES.get(values["type"])
    if rule is None:  # of a study that is looked at
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
    """Return the method or the rule that a study names."""
    node = root.value.get(section)
    key, _ = _NAMED[section]
    child = node.value.get(key) if node is not None and node.is_map else None
    return child.value if child is not None and isinstance(child.value, str) else None
