"""The JSON Schema of the study file, generated from the loader's tables.

It accepts every file that loads, and some others: rules across keys are only checked by the
loader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..environments.table import ENVIRONMENTS
from ..knobs import REGISTRABLE, Knob, canonical_name
from ..spaces.distributions import KINDS
from .algorithm import Algorithm
from .field import Field, keys_of
from .search_methods import METHODS
from .search_spec import Constraint
from .stopping_rules import RULES, StoppingRule
from .study_keys import COSTS, LOGGERS, METRICS, SECTIONS, TOP
from .value_kinds import AMOUNT, kind_of, range_schema

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_OFF = {"enum": [None, "off"]}
_AMERICAN = (("normalise", "normalize"), ("optimiser", "optimizer"))
_KEYS = {
    "min": "smallest value", "max": "largest value", "q": "step, counted from min", "mu": "mean",
    "sigma": "standard deviation", "values": "the values to choose from",
    "zero": "probability of exactly 0",
}  # fmt: skip


_PPO = Algorithm()


def schema(algorithm: Algorithm = _PPO) -> dict[str, Any]:
    """Return the schema for studies of one algorithm; by default, of PPO or of any command."""
    names = _condition_schema(
        "the parameter is searched if all conditions hold", _names_schema(algorithm.knobs)
    )
    found: dict[str, Any] = {
        "$schema": _DIALECT,
        "title": "hpo study",
        "description": "A study: environment, search space, search method and budget.",
        "$defs": {"distribution": _distribution_schema("condition"), "condition": names},
    }
    if not algorithm.is_ppo:
        return {**found, **_of_algorithm(algorithm)}
    found["$defs"] |= {
        "distribution_of_command": _distribution_schema("condition_of_command"),
        "condition_of_command": _condition_schema(
            "the parameter is searched if all conditions hold", {}
        ),
    }
    either = {"then": _of_command(), "else": _of_algorithm(algorithm)}
    return {**found, "if": {"required": ["command"]}, **either}


def _of_algorithm(algorithm: Algorithm) -> dict[str, Any]:
    properties = _top_schemas(_special_of_algorithm(algorithm))
    required = {"required": [field.key for field in TOP if not field.has_default]}
    if not algorithm.is_ppo:
        if not algorithm.takes_env:
            del properties["env"]
        properties["length"] = _length_schema(algorithm.unit)
        required = _with_length("algorithm")
    return {**_object_schema(properties), **required, **_closed_without_imports()}


def _of_command() -> dict[str, Any]:
    """Return the schema for a study whose hyperparameters are placeholders in its command."""
    properties = _top_schemas({**_special_of_algorithm(_PPO), **_special_of_command()})
    properties["length"] = _length_schema("env steps, or in the unit written after the number")
    needed = _any_of([{"required": ["metric"]}, {"required": ["objectives"]}])
    return {
        **_object_schema(properties),
        **_with_length("command"),
        **_closed_without_imports(),
        **needed,
    }


def _closed_without_imports() -> dict[str, Any]:
    """Return the schema for studies without `imports`: only methods and rules in the tables."""
    sections = {
        "search": {"properties": {"method": {"enum": list(METHODS)}}},
        "early_terminate": {"properties": {"type": {"enum": list(RULES)}}},
    }
    return {"if": {"not": {"required": ["imports"]}}, "then": {"properties": sections}}


def _length_schema(unit: str) -> dict[str, Any]:
    return {"description": f"length of a full run, in {unit}", "type": ["integer", "string"]}


def _with_length(key: str) -> dict[str, Any]:
    return {"oneOf": [{"required": [key, length]} for length in ("length", "env_steps")]}


def _object_schema(properties: Mapping[str, Any], required: Sequence[str] = ()) -> dict[str, Any]:
    closed = {"type": "object", "additionalProperties": False}
    return {**closed, "required": list(required), "properties": dict(properties)}


def _array_schema(items: Any, **more: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, **more}


def _any_of(options: Sequence[Any]) -> dict[str, Any]:
    if len(options) == 1:
        return dict(options[0])
    return {"anyOf": list(options)}


def _with_meaning(field: Field, body: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a top-level key that can also be `off`."""
    options = [body]
    if field.off:
        options.append(_OFF)
    return {"description": field.meaning, **_any_of(options)}


def _top_schemas(special: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the schemas of all top-level keys; `special` has those that no field describes."""
    found: dict[str, Any] = {}
    for field in TOP:
        if field.key in special:
            found[field.key] = _with_meaning(field, special[field.key])
        else:
            found[field.key] = {"description": field.meaning, **_field_schema(field)}
    return found


def _special_of_algorithm(algorithm: Algorithm) -> dict[str, dict[str, Any]]:
    knobs = algorithm.knobs
    known = _any_of([{"enum": list(ENVIRONMENTS)}, {"type": "string"}])
    given = {"type": "object", "required": ["id"], "properties": {"id": known}}
    rule = {"type": "string", "description": "such as gamma < gae_lambda - 0.15"}
    values = {r"^env\.": {"type": ["number", "string", "boolean", "array"]}}
    fixed = _object_schema(_each_knob(knobs, _knob_value))
    return {
        "env": _any_of([known, given, _array_schema(_any_of([known, given]), minItems=2)]),
        "algorithm": {"const": algorithm.name},
        "fixed": fixed,
        "space": _space_schema(
            _parameters_schema(knobs), _parameters_schema(knobs, nullable=True)
        ),
        "forbid": _array_schema(
            _any_of([_condition_schema("a combination of values", _names_schema(knobs)), rule])
        ),
        "enqueue": _array_schema({**fixed, "patternProperties": values}),
        "imports": _array_schema({"type": "string"}),
        "eval_env": {"type": "object"},
        "loggers": _loggers_schema(),
        "objectives": _objectives_schema(),
        "constraints": _array_schema(_section_schema(keys_of(Constraint))),
        "search": _search_schema(),
        "early_terminate": _early_terminate_schema(),
    }


def _special_of_command() -> dict[str, dict[str, Any]]:
    """Return the schemas that differ in a study with `command`."""
    any_object = {"type": "object"}
    one = {"$ref": "#/$defs/distribution_of_command"}
    options = _any_of([one, _array_schema(one, minItems=1)])
    metric = _with_any("name", {"type": "string"}, SECTIONS["metric"])
    default = _any_of([{"type": "boolean"}, any_object])
    return {
        "env": _any_of([{"type": "string"}, any_object]),  # in a resolved study
        "algorithm": any_object,  # in a resolved study
        "fixed": any_object,
        "space": _space_schema({"type": "object", "additionalProperties": options}),
        "forbid": _array_schema(_any_of([any_object, {"type": "string"}])),
        "enqueue": _array_schema(any_object),
        "metric": metric,
        "objectives": _array_schema(metric),
        "confirm": _with_any("default", default, SECTIONS["confirm"]),
    }


def _with_any(key: str, value: dict[str, Any], fields: Iterable[Field]) -> dict[str, Any]:
    """Return a section's schema with different values for one key."""
    section = _section_schema(fields)
    section["properties"][key] = value
    return section


def _section_schema(fields: Iterable[Field]) -> dict[str, Any]:
    fields = tuple(fields)
    properties = {
        field.key: {"description": field.meaning, **_field_schema(field)} for field in fields
    }
    return _object_schema(properties, [field.key for field in fields if not field.has_default])


def _field_schema(field: Field) -> dict[str, Any]:
    if field.type == "words":
        return kind_of(field).schema(field)[0]
    if field.section is not None:
        options = [_section_schema(keys_of(field.section))]
    else:
        options = kind_of(field).schema(field)
    if field.words:
        options.append({"enum": list(field.words)})
    if field.off:
        options.append(_OFF)
    if field.key == "name" and field.type == "text" and field.default in METRICS:
        options = [{"enum": list(METRICS)}, {"type": "string", "pattern": "^eval/"}]
    found = _any_of(options)
    if isinstance(field.default, bool | int | float | str):
        found["default"] = field.default
    return found


def _number_schema(knob: Knob) -> dict[str, Any]:
    types = {"int": "integer", "float": "number"}
    return {"type": types[knob.type], **range_schema(knob)}


def _knob_spellings(name: str) -> tuple[str, ...]:
    """Return a name, and its American spelling if the loader accepts one."""
    american = name
    for british_word, american_word in _AMERICAN:
        american = american.replace(british_word, american_word)
    if american == name or canonical_name(american) != name:
        return (name,)
    return (name, american)


def _each_knob(
    knobs: Mapping[str, Knob], make: Callable[[Knob], dict[str, Any]]
) -> dict[str, Any]:
    made = [(knob.name, {"description": knob.meaning, **make(knob)}) for knob in knobs.values()]
    return {spelling: one for name, one in made for spelling in _knob_spellings(name)}


def _knob_value(knob: Knob) -> dict[str, Any]:
    options: list[dict[str, Any]] = []
    if knob.type == "bool":
        options.append({"type": "boolean"})
    elif knob.type == "widths":
        options.append(_array_schema({"type": "integer", "minimum": 1}))
    elif knob.type in ("float", "int"):
        options += [_number_schema(knob), AMOUNT]
    if knob.choices:
        options.append({"enum": list(knob.choices)})
    if knob.name in REGISTRABLE:
        options.append({"type": "string"})
    if knob.off:
        options.append({"enum": [None, False, "off"]})
    return _any_of(options)


def _parameters_schema(knobs: Mapping[str, Knob], nullable: bool = False) -> dict[str, Any]:
    one = {"$ref": "#/$defs/distribution"}
    forms = [one, _array_schema(one, minItems=1)]
    if nullable:
        forms.append({"type": "null"})
    options = _any_of(forms)
    each = _object_schema(_each_knob(knobs, lambda _: options))
    return {**each, "patternProperties": {r"^env\.": options}}


def _space_schema(
    parameters: dict[str, Any], override: dict[str, Any] | None = None
) -> dict[str, Any]:
    file = {"type": "string", "description": "such as spaces/ppo.yaml"}
    from_file = _object_schema({"file": file, "override": override or parameters}, ["file"])
    return {"if": {"required": ["file"]}, "then": from_file, "else": parameters}


def _distribution_schema(condition: str) -> dict[str, Any]:
    types = dict.fromkeys(_KEYS, _any_of([{"type": "number"}, AMOUNT]))
    types["values"] = {"type": "array"}
    properties: dict[str, Any] = {
        key: {"description": meaning, **types[key]} for key, meaning in _KEYS.items()
    }
    kinds = "; ".join(f"{kind}: {cls.meaning}" for kind, cls in KINDS.items())
    properties |= {
        "distribution": {"description": kinds, "enum": [*KINDS, None]},
        "value": {"description": "a single value"},
        "default": {"description": "the value in the default configuration"},
        "when": {"$ref": f"#/$defs/{condition}"},
    }
    each = [_if_key_is("distribution", kind, _kind_schema(kind)) for kind in KINDS]
    return {**_object_schema(properties), "allOf": each}


def _kind_schema(kind: str) -> dict[str, Any]:
    cls = KINDS[kind]
    allowed = [*cls.required, *cls.optional, "distribution", "default", "when"]
    if cls.required == ("values",):
        either = [{"required": ["values"]}, {"required": ["value"]}]
        return {"propertyNames": {"enum": [*allowed, "value"]}, "anyOf": either}
    return {"required": list(cls.required), "propertyNames": {"enum": allowed}}


def _names_schema(knobs: Mapping[str, Knob]) -> dict[str, Any]:
    spelled = [spelling for name in knobs for spelling in _knob_spellings(name)]
    return {"propertyNames": _any_of([{"enum": spelled}, {"pattern": r"^env\."}])}


def _condition_schema(meaning: str, names: Mapping[str, Any]) -> dict[str, Any]:
    return {"description": meaning, "type": "object", "minProperties": 1, **names}


def _search_schema() -> dict[str, Any]:
    fields = SECTIONS["search"]
    usual = next(field.default for field in fields if field.key == "method")
    each = [
        _if_key_is(
            "method",
            row.name,
            {"properties": {"options": _section_schema(row.options)}},
            row.name == usual,
        )
        for row in METHODS.values()
    ]
    return {**_allow_any_text(_section_schema(fields), "method"), "allOf": each}


def _early_terminate_schema() -> dict[str, Any]:
    body = _section_schema(SECTIONS["early_terminate"])
    del body["additionalProperties"]  # to allow the keys of registered rules
    return {**_allow_any_text(body, "type"), "allOf": [_of_rule(row) for row in RULES.values()]}


def _of_rule(row: StoppingRule) -> dict[str, Any]:
    keys = ["type", *(field.key for field in row.fields)]
    return _if_key_is("type", row.name, {"propertyNames": {"enum": keys}})


def _if_key_is(
    key: str, name: str, then: Mapping[str, Any], left_out: bool = False
) -> dict[str, Any]:
    """Return a schema that applies if a key has this value, and optionally if it is omitted."""
    condition: dict[str, Any] = {"properties": {key: {"const": name}}}
    if not left_out:
        condition["required"] = [key]
    return {"if": condition, "then": then}


def _allow_any_text(body: dict[str, Any], key: str) -> dict[str, Any]:
    named = dict(body["properties"][key])
    named["anyOf"] = [{"enum": named.pop("enum")}, {"type": "string"}]
    return {**body, "properties": {**body["properties"], key: named}}


def _objectives_schema() -> dict[str, Any]:
    entry = _section_schema(SECTIONS["metric"])
    entry["properties"]["name"]["anyOf"].append({"enum": list(COSTS)})
    return _array_schema(entry)


def _loggers_schema() -> dict[str, Any]:
    entries: list[dict[str, Any]] = [{"enum": list(LOGGERS)}]
    for kind, options in LOGGERS.items():
        properties = {"type": {"const": kind}, **_section_schema(options)["properties"]}
        entries.append(_object_schema(properties, ["type"]))
    return _array_schema(_any_of(entries))
