"""Reads a section of the file: checks keys against its table of fields, and adds defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from ..errors import ConfigError, UnknownNameError, quoted_number, suggestion
from ..foreign_names.name_mapping import SEARCH_METHODS
from ..knobs import KNOBS, canonical_name, hint_of
from .field import Field, keys_of
from .overrides import SET
from .search_methods import METHODS
from .search_spec import EarlyTerminate, SearchSpec
from .stopping_rules import FIRST_RUNG, RULES
from .study_keys import SECTIONS, TOP
from .study_values import amount_meant
from .user_code import import_user_code
from .value_kinds import BAD, read_kind
from .yaml_io import Node, Notes, flow, node_of, plain

_POPULATION = ("population", "population_size", "pop_size", "popsize", "members")
"""Other systems' names for the number of trials that run at the same time; here all trials do."""
_OFF = (None, "off")
_NAMED: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "search": ("method", METHODS),
    "early_terminate": ("type", RULES),
}
"""Section -> its key whose value is the name of a table row, and that table."""
_OPTIONS = ("scheduler_options", "searcher_options")


def belongs(where: str, key: str, child: Node) -> str:
    """Return the section that accepts this misplaced key, as text; "" if none or several do."""
    section = where.split(".")[0]
    if where and section not in SECTIONS:
        return ""
    scalar = not (child.is_map or child.is_list)
    if key in _POPULATION and section in ("search", "early_terminate", "population") and scalar:
        correction = _correction_text("budget", "trials", child)
        return f" the population of pbt and pb2 consists of all trials:{correction}"
    homes = [name for name in _homes_of(key) if name != where]
    at_top = bool(where) and _has_key(TOP, key)
    if len(homes) + at_top != 1:
        return ""
    if at_top:
        return f" it belongs at the top of the file, not under `{section}`"
    return f" it belongs under `{homes[0]}`:{_correction_text(homes[0], key, child)}"


def _has_key(fields: Sequence[Field], key: str) -> bool:
    return any(field.key == key for field in fields)


def _homes_of(key: str) -> list[str]:
    """Return the sections that have this key."""
    return [name for name, fields in SECTIONS.items() if _has_key(fields, key)]


def key_of_option(name: str) -> str:
    """Return the study file's dotted key for an option's name; "" if there are none or several.

    >>> [key_of_option(name) for name in ("trials", "seeds", "lr", "env_steps", "type", "fast")]
    ['budget.trials', 'seeds.per_config', 'fixed.learning_rate', 'env_steps', '', '']
    """
    if name == "seeds":
        return "seeds.per_config"
    if name in SECTIONS:
        return ""
    if _has_key(TOP, name):
        return name
    homes = _homes_of(name)
    if len(homes) > 1:
        return ""
    if homes:
        return f"{homes[0]}.{name}"
    knob = canonical_name(name)
    if knob is None:
        return ""
    return f"fixed.{knob}"


def _correction_text(section: str, key: str, child: Node) -> str:
    """Return the correct key and value, written as an override if the mistake was in one."""
    value = flow(plain(child))
    if child.origin.startswith(SET):
        return f" use {section}.{key}={value}"
    return f" use `{section}: {{{key}: {value}}}`"


def defaults(fields: Sequence[Field]) -> dict[str, Any]:
    return {field.target: field.default for field in fields if field.has_default}


def checked_options(
    what: str, fields: Sequence[Field], given: Mapping[str, Any]
) -> dict[str, Any]:
    known, found = {field.key: field for field in fields}, defaults(fields)
    for key, value in given.items():
        if key not in known:
            raise UnknownNameError(f"option of {what}", key, known)
        found[key] = read_kind(known[key], node_of(value))
        if found[key] is BAD:
            raise ConfigError(f"{what}: {key} is {value!r}; allowed: {known[key].allowed()}")
    return found


def read_section(
    notes: Notes, where: str, node: Node | None, fields: Sequence[Field]
) -> dict[str, Any]:
    """Return field values by target; mistakes are noted, and wrong values replaced by defaults.

    `where` is the section's name in messages, "" at the top of the file.
    """
    values = defaults(fields)
    if node is None:
        return values
    if not node.is_map:
        example = _example_section(fields, node)
        notes.add(f"{where} is {node.shown()}; allowed: a mapping such as {example}", node)
        return values
    _note_unknown(notes, where, node, fields)
    for field in fields:
        if field.key in node.value:
            value = _read_nested(notes, where, field, _read_value(notes, where, node, field))
            if value is not BAD:
                values[field.target] = value
        elif not field.has_default:
            notes.add(f"{where or 'the study'} needs `{field.key}`: {field.meaning}", node)
    return values


def _note_unknown(notes: Notes, where: str, node: Node, fields: Sequence[Field]) -> None:
    known = {field.key: field for field in fields}
    for key, child in node.value.items():
        if key in known:
            continue
        what, hint = f"unknown key {key!r} in {where}", ""
        if not where:
            what, hint = f"unknown key {key!r}", _knob_place(node, key)
        hint = hint or belongs(where, key, child) or hint_of(key)
        hint = hint or f"{suggestion(key, known)} Known: {', '.join(known) or 'none'}"
        notes.add(f"{what};{hint}", node, key)


def _read_nested(notes: Notes, where: str, field: Field, value: Any) -> Any:
    """Return a field's value, read as a section if the field is one."""
    if not where or field.section is None or not isinstance(value, Node):
        return value
    keys = keys_of(field.section)
    inner = read_section(notes, f"{where}.{field.key}", value, keys)
    if not all(one.target in inner for one in keys):
        return None  # noted
    return field.section(**inner)


def _knob_place(root: Node, key: str) -> str:
    """Return advice on where to put a hyperparameter given as a top-level key; otherwise ""."""
    name = canonical_name(key)
    if name is None:
        return ""
    if "command" in root.value:
        return f" put it into the command, such as --{key} {{{key}}}, and under `space` or `fixed`"
    child, section = root.value[key], "fixed"
    searched = key in root.child("space").mapping
    several = child.is_map or (child.is_list and KNOBS[name].type != "widths")
    if several or searched:
        section = "space"
    given = child.origin.removeprefix(SET).removesuffix(": ")
    if given == child.origin:  # it is in the file
        return f" it is a knob: write it under `{section}`"
    if searched and not several:
        one = flow({"value": plain(child)})
        return f" it is a searched knob: use 'space.{key}={one}'"
    return f" it is a knob: use {section}.{given}"


def _read_value(notes: Notes, where: str, node: Node, field: Field) -> Any:
    """Return the value of a section's field; on a mistake, note it and return `BAD`."""
    child: Node = node.value[field.key]
    given = child.value
    if field.off and not child.is_map and not child.is_list and given in _OFF:
        return None
    value = read_kind(field, child)
    if value is not BAD:
        return value
    if field.type == "word" and isinstance(given, str):
        text = f"unknown {field.key} {given!r}{_hint_of_word(field, given)}"
        if where:
            text = f"{where}: {text}"
        notes.add(f"{text} Known: {', '.join(field.words)}", node, field.key)
        return BAD
    allowed, hint = field.allowed(), ""
    if field.key in SECTIONS:
        example = f"a mapping such as {_example_section(SECTIONS[field.key], child)}"
        allowed = allowed.replace("a mapping", example)
    hint = quoted_number(given)
    if field.type == "count" and (meant := amount_meant(given)):
        hint = f" did you mean {meant}?"
    name = ".".join(filter(None, [where, field.key]))
    notes.add(f"{name} is {child.shown()};{hint} allowed: {allowed}", node, field.key)
    return BAD


def _hint_of_word(field: Field, given: str) -> str:
    """Return a suggestion to replace an unknown word, preceded by a semicolon."""
    if field.key != "method":
        return f";{suggestion(given, field.words)}"
    later = ""
    if given == "bohb":
        later = " (not available in this version)"
    if given in RULES:
        return f"{later}; use `early_terminate: {{type: {given}}}`;"
    if given == "portfolio":
        return "; use `search: {method: random, portfolio: 5}`;"
    return f"{later};{suggestion(SEARCH_METHODS.get(given.lower(), given), field.words)}"


def _example_section(fields: Sequence[Field], given: Node) -> str:
    """Return an example of the section: the given value under the first key, if it fits there."""
    if fields and given.value is not None and read_kind(fields[0], given) is not BAD:
        return flow({fields[0].key: given.value})
    required = [field for field in fields if not field.has_default]
    needed = [f"{field.key}: {(*field.words, '...')[0]}" for field in required]
    usual = [
        f"{field.key}: {field.default}"
        for field in fields
        if field.type in ("count", "word") and field.default is not None
    ]
    first = [f"{field.key}: ..." for field in fields]
    return f"{{{''.join([*needed, *usual, *first][:1])}}}"


def run_imports_for_names(
    notes: Notes,
    root: Node,
    imports: tuple[str, ...],
    source: Path,
    before_code: Callable[[], None],
) -> None:
    """Run `imports` if the study names a method or a rule that is not in the tables.

    If a file raises an error, the error is reported at the key `imports`. `before_code` is called
    before any file runs.
    """
    named = [(_chosen_name(root, section), table) for section, (_, table) in _NAMED.items()]
    if imports and any(name is not None and name not in table for name, table in named):
        before_code()
        ask_for_devices_of(root)
        with notes.at(root, "imports"):
            import_user_code(imports, source)


def ask_for_devices_of(root: Node) -> None:
    """Request the host's devices before the study's code runs, because that code may start jax.

    Nothing is requested if workers share the machine, because only they know how many devices they
    use.
    """
    if "executor" in root.value:
        return
    from ..core.device_request import ask_for_devices  # imports jax, as the code would

    asked = {name: child.value for name, child in root.child("population").mapping.items()}
    ask_for_devices(str(asked.get("device", "auto")), asked.get("deterministic") is True)


def named_fields(root: Node, section: str, checked: bool) -> tuple[Field, ...] | None:
    """Return a section's keys; for a registered rule, the keys of that rule.

    Returns None for a recorded study (`checked`) with an unknown rule.
    """
    if section not in _NAMED:
        return SECTIONS[section]
    key, table = _NAMED[section]
    name = _chosen_name(root, section)
    words = tuple(table)
    if checked and name is not None and name not in table:
        if section == "early_terminate":
            return None
        words = (*table, name)
    found = list(SECTIONS[section])
    at = next(index for index, field in enumerate(found) if field.key == key)
    found[at] = replace(found[at], words=words)
    if section == "early_terminate" and name in RULES and RULES[name].registered:
        return (found[0], *RULES[name].fields)
    return tuple(found)


def read_search(notes: Notes, root: Node, values: Mapping[str, Any]) -> SearchSpec:
    options, method = values["options"], values["method"]
    if not isinstance(options, Node):
        options = Node(None, {})
    known = _chosen_name(root, "search") in (None, method)
    if values["driver"] == "ray_tune":
        method = "random"
    row = METHODS.get(method)
    if row is not None and known:
        given = read_section(notes, "search.options", options, row.options)
    else:  # a recorded study, or an unknown name that was already noted
        given = plain(options)
    made: dict[str, Any] = {**values, "method": method, "options": given}
    made |= {key: plain(values[key]) for key in _OPTIONS if values[key]}
    return SearchSpec(**made)


def read_early_terminate(
    root: Node, values: Mapping[str, Any], env_steps: int | None
) -> EarlyTerminate | None:
    """Return the rule, or None after noting a mistake."""
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
        share = FIRST_RUNG  # measured for asha alone
        if rule.name != "asha":
            share = found["eta"] ** -2
        found["min"] = max(1, round(env_steps * share))
    if found.get("every", 0) is None:
        found["every"] = max(1, round(env_steps / 16))
    if rule.registered:
        found["options"] = {field.key: found.pop(field.key) for field in rule.options}
    return EarlyTerminate(**found)


def _chosen_name(root: Node, section: str) -> str | None:
    key, _ = _NAMED[section]
    name = root.child(section).child(key).value
    if isinstance(name, str):
        return name
    return None
