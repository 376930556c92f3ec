"""The reference of the study file as Markdown, from the tables that the loader checks with.

docs/study.md holds this text; a test compares them. To bring it up to date, replace what stands
there after the heading "Reference" by what `python -m hpo.studies.reference` prints.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..spaces.distributions import KINDS
from .fields import CONSTRAINT, LOGGERS, METHODS, RACING, SECTIONS, TOP, WARM_START, Field
from .metrics import COSTS, METRICS

__all__ = ["reference"]


def reference() -> str:
    """Return the tables of all keys, distributions and metrics."""
    parts = ["### The top of the file", _fields(TOP)]
    for name, fields in SECTIONS.items():
        parts += [f"### `{name}`", _fields(fields)]
    parts += ["### An entry of `constraints`", _fields(CONSTRAINT)]
    parts += ["### `seeds.racing`", _fields(RACING)]
    parts += ["### `search.warm_start`", _fields(WARM_START)]
    for method, fields in METHODS.items():
        if fields:
            parts += [f"### `search.options` of {method}", _fields(fields)]
    for logger, fields in LOGGERS.items():
        if fields:
            parts += [f"### `loggers`: {logger}", _fields(fields)]
    parts += ["### Distributions", _distributions(), "### Metrics", _metrics()]
    return "\n\n".join(parts) + "\n"


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
    if isinstance(field.default, dict | tuple):
        shown = list(field.default) if isinstance(field.default, tuple) else field.default
        return "none" if not field.default else f"`{shown}`"
    return f"`{field.default}`"


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


if __name__ == "__main__":
    print(reference(), end="")
