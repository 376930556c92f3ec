"""The tables of docs/ about study files: keys, search methods, rules and metrics."""

from __future__ import annotations

from collections.abc import Iterable

from hpo.files.plain_data import as_lists
from hpo.spaces.distributions import KINDS
from hpo.studies.field import Field, keys_of
from hpo.studies.search_methods import METHODS
from hpo.studies.search_spec import Constraint, Racing, WarmStart
from hpo.studies.stopping_rules import RULES
from hpo.studies.study_keys import COSTS, LOGGERS, METRICS, SECTIONS, TOP


def reference() -> str:
    """Return the tables of all keys, distributions and metrics."""
    parts = ["## The top of the file", _fields(TOP)]
    for name, fields in SECTIONS.items():
        parts += [f"## `{name}`", _fields(fields)]
    inner = {
        "An entry of `constraints`": Constraint,
        "`seeds.racing`": Racing,
        "`search.warm_start`": WarmStart,
    }
    for title, section in inner.items():
        parts += [f"## {title}", _fields(keys_of(section))]
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
        cells = (
            row.name,
            row.learns_from or "nothing",
            drawn,
            row.objectives,
            row.constraints,
            row.conditional,
            row.choices,
            row.extra and f"`{row.extra}`",
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def rules() -> str:
    """Return the table of `early_terminate` rules."""
    rows = ["| rule | what it does | rungs | keys |", "|---|---|---|---|"]
    for row in RULES.values():
        deed = "ends trials with their value" if row.finishes else "stops trials"
        deed = "copies states" if row.evolves else deed
        rungs = "min x eta^i" if not row.even else "multiples of `min`"
        rungs = "multiples of `every`" if row.evolves else rungs
        keys = _keys(f.key for f in row.fields if not (row.finishes and f.key == "audit"))
        rows.append(f"| {row.name} | {deed} | {rungs} | {keys} |")
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
