"""The JSON Schema of the study file, made from the tables that the loader checks with.

Editors complete and explain from it. It accepts every file that loads; what it cannot say (bounds
against each other, circles, names that user code registers) the loader says.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from ..environments.table import ENVIRONMENTS
from ..files.plain_data import as_lists
from ..knobs import KNOBS, REGISTRABLE, Knob, canonical_name
from ..spaces.distributions import KINDS
from .field import Field
from .search_methods import METHODS, Method
from .stopping_rules import RULES
from .study_keys import (
    CONSTRAINT,
    COSTS,
    DRIVEN_KEYS,
    LOGGERS,
    METRICS,
    RACING,
    SECTIONS,
    TOP,
    WARM_START,
)

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_AMOUNT = {"type": "string", "pattern": r"^\s*[0-9]{1,15}(\.[0-9]{1,9})?(k|K|M|G|B)\s*$"}
_TIME = {"type": "string", "pattern": r"^\s*([0-9]{1,9}(\.[0-9]{1,6})?[dhms]\s*)+$"}
_OFF = {"enum": [None, "off"]}
_AMERICAN = (("normalise", "normalize"), ("optimiser", "optimizer"))
_KEYS = {
    "min": "smallest value",
    "max": "largest value",
    "q": "step, counted from min",
    "mu": "mean",
    "sigma": "deviation",
    "values": "the values to choose from",
    "zero": "chance of exactly 0",
}


def schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of the study file."""
    properties = {field.key: _top(field) for field in TOP}
    return {
        "$schema": _DIALECT,
        "title": "hpo study",
        "description": "A study: what is trained, what is searched, by whom and for how long.",
        "type": "object",
        "additionalProperties": False,
        "required": [field.key for field in TOP if not field.has_default],
        "properties": properties,
        "if": {"not": {"required": ["imports"]}},
        "then": _without_imports(),
        "$defs": {
            "distribution": _distribution(),
            "condition": _condition("when all of these hold, the parameter is searched"),
        },
    }


def _top(field: Field) -> dict[str, Any]:
    special = {
        "env": _env,
        "fixed": _fixed,
        "space": _space,
        "forbid": _forbid,
        "enqueue": _enqueue,
        "imports": lambda: {"type": "array", "items": {"type": "string"}},
        "eval_env": lambda: {"type": "object"},
        "loggers": _loggers,
        "objectives": _objectives,
        "constraints": lambda: {"type": "array", "items": _section(CONSTRAINT)},
        "search": _search,
        "early_terminate": _early_terminate,
        "seeds": _seeds,
    }
    if field.key in special:
        body = special[field.key]()
    elif field.key in SECTIONS:
        body = _section(SECTIONS[field.key])
    else:
        body = _value(field)
    if field.off and field.type == "map":
        body = {"anyOf": [body, _OFF]}
    return {"description": field.meaning, **body}


def _section(fields: Iterable[Field], more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    fields = tuple(fields)
    properties = {field.key: {"description": field.meaning, **_value(field)} for field in fields}
    return {
        "type": "object",
        "additionalProperties": False,
        "required": [field.key for field in fields if not field.has_default],
        "properties": {**properties, **(more or {})},
    }


def _value(field: Field) -> dict[str, Any]:
    """Return the schema of one field."""
    options: list[dict[str, Any]] = []
    if field.type in ("text", "map", "list", "flag"):
        names = {"text": "string", "map": "object", "list": "array", "flag": "boolean"}
        options.append({"type": names[field.type]})
    elif field.type == "words":
        item = {"enum": list(field.words)}
        return {"type": "array", "items": item, "uniqueItems": True}
    elif field.type in ("count", "number", "seconds"):
        options += [_number(field), _TIME if field.type == "seconds" else _AMOUNT]
    elif field.type == "factors":
        options.append({"type": "array", "items": _number(field), "minItems": 1})
    elif field.type == "points":
        one = {"anyOf": [_number(field), _AMOUNT]}
        options += [one, {"type": "object", "additionalProperties": one}]
    if field.words:
        options.append({"enum": list(field.words)})
    if field.off:
        options.append(_OFF)
    if field.key == "name" and field.type == "text" and field.default in METRICS:
        options = [{"enum": list(METRICS)}, {"type": "string", "pattern": "^eval/"}]
    body = options[0] if len(options) == 1 else {"anyOf": options}
    plain_default = isinstance(field.default, bool | int | float | str)
    return {**body, "default": field.default} if plain_default else body


def _number(spec: Field | Knob) -> dict[str, Any]:
    whole = spec.type in ("count", "points", "int")
    body: dict[str, Any] = {"type": "integer" if whole else "number"}
    if spec.low > -math.inf:
        body["exclusiveMinimum" if spec.low_open else "minimum"] = spec.low
    if spec.high < math.inf:
        body["maximum"] = spec.high
    return body


def _env() -> dict[str, Any]:
    known = {"anyOf": [{"enum": list(ENVIRONMENTS)}, {"type": "string"}]}
    one = {
        "anyOf": [
            known,
            {"type": "object", "required": ["id"], "properties": {"id": known}},
        ]
    }
    several = {"type": "array", "minItems": 2, "items": one}
    return {"anyOf": [*one["anyOf"], several]}


def _spellings(name: str) -> tuple[str, ...]:
    """Return the name and its American spelling, if there is one that the loader takes."""
    american = name
    for ours, theirs in _AMERICAN:
        american = american.replace(ours, theirs)
    return (name, american) if american != name and canonical_name(american) == name else (name,)


def _each_knob(make: Mapping[str, Any]) -> dict[str, Any]:
    return {spelling: make[name] for name in KNOBS for spelling in _spellings(name)}


def _knob_value(knob: Knob) -> dict[str, Any]:
    options: list[dict[str, Any]] = []
    if knob.type == "bool":
        options.append({"type": "boolean"})
    elif knob.type == "widths":
        options.append({"type": "array", "items": {"type": "integer", "minimum": 1}})
    elif knob.type in ("float", "int"):
        options += [_number(knob), _AMOUNT]
    if knob.choices:
        options.append({"enum": list(knob.choices)})
    if knob.name in REGISTRABLE:
        options.append({"type": "string"})
    if knob.off:
        options.append({"enum": [None, False, "off"]})
    body = options[0] if len(options) == 1 else {"anyOf": options}
    return {"description": knob.meaning, **body}


def _fixed() -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": _each_knob({name: _knob_value(knob) for name, knob in KNOBS.items()}),
    }


def _parameters(nullable: bool = False) -> dict[str, Any]:
    one = {"$ref": "#/$defs/distribution"}
    options: list[dict[str, Any]] = [one, {"type": "array", "items": one, "minItems": 1}]
    if nullable:
        options.append({"type": "null"})
    made = {name: {"description": knob.meaning, "anyOf": options} for name, knob in KNOBS.items()}
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": _each_knob(made),
        "patternProperties": {r"^env\.": {"anyOf": options}},
    }


def _space() -> dict[str, Any]:
    from_file = {
        "type": "object",
        "additionalProperties": False,
        "required": ["file"],
        "properties": {
            "file": {"type": "string", "description": "such as spaces/ppo.yaml"},
            "override": _parameters(nullable=True),
        },
    }
    return {"if": {"required": ["file"]}, "then": from_file, "else": _parameters()}


def _distribution() -> dict[str, Any]:
    number = {"anyOf": [{"type": "number"}, _AMOUNT]}
    properties: dict[str, Any] = {
        key: {"description": meaning, **(number if key != "values" else {"type": "array"})}
        for key, meaning in _KEYS.items()
    }
    properties["distribution"] = {
        "description": "; ".join(f"{kind}: {cls.meaning}" for kind, cls in KINDS.items()),
        "enum": [*KINDS, None],
    }
    properties["value"] = {"description": "a single value"}
    properties["default"] = {"description": "its value in the default configuration"}
    properties["when"] = {"$ref": "#/$defs/condition"}
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "allOf": [{"if": _is_kind(kind), "then": _kind(kind)} for kind in KINDS],
    }


def _is_kind(kind: str) -> dict[str, Any]:
    return {"properties": {"distribution": {"const": kind}}, "required": ["distribution"]}


def _kind(kind: str) -> dict[str, Any]:
    cls = KINDS[kind]
    allowed = [*cls.required, *cls.optional, "distribution", "default", "when"]
    if cls.required == ("values",):
        return {
            "propertyNames": {"enum": [*allowed, "value"]},
            "anyOf": [{"required": ["values"]}, {"required": ["value"]}],
        }
    return {"required": list(cls.required), "propertyNames": {"enum": allowed}}


def _condition(meaning: str) -> dict[str, Any]:
    names = [spelling for name in KNOBS for spelling in _spellings(name)]
    return {
        "description": meaning,
        "type": "object",
        "minProperties": 1,
        "propertyNames": {"anyOf": [{"enum": names}, {"pattern": r"^env\."}]},
    }


def _forbid() -> dict[str, Any]:
    mapping = _condition("a combination of values")
    text = {"type": "string", "description": "such as gamma < gae_lambda - 0.15"}
    return {"type": "array", "items": {"anyOf": [mapping, text]}}


def _enqueue() -> dict[str, Any]:
    properties = _fixed()["properties"]
    entry = {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "patternProperties": {
            r"^env\.": {"type": ["number", "string", "boolean", "array"]},
        },
    }
    return {"type": "array", "items": entry}


def _search() -> dict[str, Any]:
    fields = [field for field in SECTIONS["search"] if field.type != "map"]
    body = _section(
        fields,
        {
            "options": {"description": "of the method", "type": "object"},
            "warm_start": {"anyOf": [_section(WARM_START), _OFF]},
            **{
                field.key: {"description": field.meaning, "type": "object"}
                for field in SECTIONS["search"]
                if field.key in DRIVEN_KEYS and field.type == "map"
            },
        },
    )
    usual = next(field.default for field in fields if field.key == "method")
    each = [
        {"if": _names("method", row.name, row.name == usual), "then": _options(row)}
        for row in METHODS.values()
    ]
    return {**_open(body, "method"), "allOf": each}


def _options(row: Method) -> dict[str, Any]:
    return {"properties": {"options": _section(row.options)}}


def _early_terminate() -> dict[str, Any]:
    body = _section(SECTIONS["early_terminate"])
    del body["additionalProperties"]  # a registered rule has keys of its own
    each = [
        {
            "if": _names("type", row.name),
            "then": {"propertyNames": {"enum": ["type", *(field.key for field in row.fields)]}},
        }
        for row in RULES.values()
    ]
    return {**_open(body, "type"), "allOf": each}


def _names(key: str, name: str, left_out: bool = False) -> dict[str, Any]:
    """Return the condition that a section names a row of a table, or names none."""
    return {"properties": {key: {"const": name}}, **({} if left_out else {"required": [key]})}


def _open(body: dict[str, Any], key: str) -> dict[str, Any]:
    """Let a section name what user code may register."""
    named = dict(body["properties"][key])
    named["anyOf"] = [{"enum": named.pop("enum")}, {"type": "string"}]
    return {**body, "properties": {**body["properties"], key: named}}


def _without_imports() -> dict[str, Any]:
    """Close what is open: without `imports` nobody registers a method or a rule."""
    closed = {"search": ("method", METHODS), "early_terminate": ("type", RULES)}
    return {
        "properties": {
            section: {"properties": {key: {"enum": list(table)}}}
            for section, (key, table) in closed.items()
        }
    }


def _objectives() -> dict[str, Any]:
    """Return entries like `metric`, which may name a cost, too."""
    entry = _section(SECTIONS["metric"])
    entry["properties"]["name"]["anyOf"].append({"enum": list(COSTS)})
    return {"type": "array", "items": entry}


def _seeds() -> dict[str, Any]:
    fields = [field for field in SECTIONS["seeds"] if field.type != "map"]
    return _section(fields, {"racing": {"anyOf": [_section(RACING), _OFF]}})


def _loggers() -> dict[str, Any]:
    entries: list[dict[str, Any]] = [{"enum": list(LOGGERS)}]
    for kind, options in LOGGERS.items():
        body = _section(options, {"type": {"const": kind}})
        entries.append({**body, "required": ["type", *body["required"]]})
    return {"type": "array", "items": {"anyOf": entries}}


def reference() -> str:
    """Return the tables of all keys, distributions and metrics."""
    parts = ["## The top of the file", _fields(TOP)]
    for name, fields in SECTIONS.items():
        parts += [f"## `{name}`", _fields(fields)]
    parts += ["## An entry of `constraints`", _fields(CONSTRAINT)]
    parts += ["## `seeds.racing`", _fields(RACING)]
    parts += ["## `search.warm_start`", _fields(WARM_START)]
    for method in METHODS.values():
        if method.options:
            parts += [f"## `search.options` of {method.name}", _fields(method.options)]
    for logger, fields in LOGGERS.items():
        if fields:
            parts += [f"## `loggers`: {logger}", _fields(fields)]
    parts += ["## Distributions", _distributions(), "## Metrics", _metrics()]
    return "\n\n".join(parts) + "\n"


def methods() -> str:
    """Return the table of search methods."""
    rows = [
        "| method | learns from | drawn | objectives | constraints | conditional parameters | "
        "choices | extra |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in METHODS.values():
        drawn = "while lanes train" if row.ahead else "when a lane is free"
        cells = (row.name, row.learns_from or "nothing", drawn, row.objectives, row.constraints,
                 row.conditional, row.choices, row.extra and f"`{row.extra}`")  # fmt: skip
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def rules() -> str:
    """Return the table of rules of `early_terminate`."""
    rows = ["| rule | what it does | rungs | keys |", "|---|---|---|---|"]
    for row in RULES.values():
        deed = "ends trials with their value" if row.finishes else "stops trials"
        deed = "copies states" if row.evolves else deed
        rungs = "min x eta^i" if not row.even else "multiples of `min`"
        rungs = "multiples of `every`" if row.evolves else rungs
        rows.append(f"| {row.name} | {deed} | {rungs} | {_keys(f.key for f in row.fields)} |")
    return "\n".join(rows) + "\n"


def _fields(fields: Iterable[Field]) -> str:
    rows = ["| key | default | allowed | meaning |", "|---|---|---|---|"]
    rows += [
        f"| `{field.key}` | {_default(field)} | {field.allowed()} | {field.meaning} |"
        for field in fields
    ]
    return "\n".join(rows)


def _default(field: Field) -> str:
    if not field.has_default:
        return "required"
    if field.default is None:
        return "auto" if "auto" in field.words else "none"
    if isinstance(field.default, bool):
        return "`true`" if field.default else "`false`"
    if field.default in ({}, ()):
        return "none"
    return f"`{as_lists(field.default)}`"


def _distributions() -> str:
    rows = ["| distribution | keys | optional | meaning |", "|---|---|---|---|"]
    rows += [
        f"| `{kind}` | {_keys(cls.required)} | {_keys(cls.optional)} | {cls.meaning} |"
        for kind, cls in KINDS.items()
    ]
    return "\n".join(rows)


def _keys(keys: Iterable[str]) -> str:
    return ", ".join(f"`{key}`" for key in keys)


def _metrics() -> str:
    rows = ["| metric | meaning |", "|---|---|"]
    rows += [f"| `{name}` | {meaning} |" for name, meaning in METRICS.items()]
    rows += [f"| `{name}` | {meaning} |" for name, meaning in COSTS.items()]
    rows.append("| `eval/<name>` | mean of a metric that the environment itself reports |")
    return "\n".join(rows)
