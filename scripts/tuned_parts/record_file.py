"""The text of a record, and the configurations that other projects publish."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import hpo
from hpo.files.plain_data import as_lists, is_mapping, is_sequence
from hpo.knobs import complete
from hpo.studies.tuned.record import DEFAULT, TUNED, Contender, TunedRecord
from hpo.studies.yaml_io import flow, plain, read_file

SEEDS = 32
"""The number of test seeds of a record."""
_WIDTH = 98
_HEAD = """\
# A tuned configuration with its proof: `hpo tuned {name}` says it in words, and
# `hpo tuned verify {name}` trains it again. Written by `scripts/tuned`; lists have a value a seed.
"""


def record_text(record: TunedRecord) -> str:
    defaults = (one.config for one in record.contenders if one.who == DEFAULT)
    base = as_lists(next(defaults, complete({})))  # configurations are written as differences
    data: dict[str, Any] = {
        "name": record.name,
        "env": record.env_given,
        "env_steps": record.env_steps,
        "config": _difference(record.tuned.config, base),
        "metric": {"name": record.metric, "goal": record.goal},
        "evaluation": dict(record.evaluation),
        "seed": record.seed,
        "threshold": record.threshold,
        "study": asdict(record.origin),
        "made": asdict(record.made),
        "results": {one.who: _result(one, base) for one in record.contenders},
        **({"heuristics": dict(record.heuristics)} if record.heuristics else {}),
        "defaults": base,
    }
    if not record.origin.bundle:
        del data["study"]["bundle"]
    return _HEAD.format(name=record.name) + "".join(
        _written(key, value, 0) for key, value in as_lists(data).items()
    )


def _result(one: Contender, base: Mapping[str, Any]) -> dict[str, Any]:
    data = {**asdict(one), "config": _difference(one.config, base)}
    omitted = {
        "who",
        *(["config"] if one.who == TUNED else []),
        *([] if one.source else ["source"]),
    }
    return {key: value for key, value in data.items() if key not in omitted}


def _difference(config: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    plain_config = as_lists(dict(config))
    return {
        name: value
        for name, value in plain_config.items()
        if name not in base or base[name] != value or type(base[name]) is not type(value)
    }


def _written(key: str, value: Any, indent: int) -> str:
    """Write one key: nested mappings and lists as blocks, everything else as wrapped lines."""
    pad, name = " " * indent, flow(key)
    nested = is_mapping(value) and any(is_mapping(v) or is_sequence(v) for v in value.values())
    if is_mapping(value) and (nested or indent == 0) and value and key != "defaults":
        inner = "".join(_written(k, v, indent + 2) for k, v in value.items())
        return f"{pad}{name}:\n{inner}"
    line = f"{pad}{name}: {flow(value)}"
    if len(line) <= _WIDTH or not (is_mapping(value) or is_sequence(value)):
        return line + "\n"
    return f"{pad}{name}:\n{_wrapped(value, indent + 2)}"


def _wrapped(value: Any, indent: int) -> str:
    if is_mapping(value):
        ends, cells = "{}", [f"{flow(k)}: {flow(v)}" for k, v in value.items()]
    else:
        ends, cells = "[]", [flow(item) for item in value]
    lines, row = list[str](), " " * indent + ends[0]
    for place, cell in enumerate(cells):
        cell += ends[1] if place == len(cells) - 1 else ", "
        if len(row) + len(cell) > _WIDTH and row.strip() != ends[0]:
            lines.append(row.rstrip())
            row = " " * (indent + 1)
        row += cell
    return "\n".join([*lines, row]) + "\n"


_FILE = Path(hpo.__file__).parent / "studies" / "tuned" / "published.yaml"


@dataclass(frozen=True)
class Published:
    by: str  # name of the project, for its row in tables
    # repository, commit, file, env_steps (its length); without (settings that hpo lacks);
    # written_for (a different environment)
    source: Mapping[str, Any]
    knobs: Mapping[str, Any]


def published(env: str) -> tuple[Published, ...]:
    return _all().get(env, ())


@lru_cache(maxsize=1)
def _all() -> Mapping[str, tuple[Published, ...]]:
    data = plain(read_file(_FILE, str(_FILE)))
    return {env: tuple(map(_one, items)) for env, items in data.items()}


def _one(item: Mapping[str, Any]) -> Published:
    source = {key: value for key, value in item.items() if key not in ("knobs", "by")}
    return Published(item["by"], source, item["knobs"])
