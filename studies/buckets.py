"""Which buckets a study has: the distinct static parts of its configurations."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from ..environments import find
from ..errors import ConfigError
from ..knobs import KNOBS
from ..plain_data import as_lists
from ..spaces.distributions import freeze
from ..spaces.space import Parameter, Space
from .minibatches import Minibatches
from .quanta import Quanta, quanta_of
from .several import environments_of
from .spec import Study

__all__ = ["Bucket", "Buckets", "buckets_of", "static_searched", "words_of_bucket"]

_MOST_POINTS = 5000
_POINTS_OF_PARENTS = 5


@dataclass(frozen=True)
class Bucket:
    """One program's worth of configurations.

    Attributes:
        key: its name: what `bucket_key` gave.
        static: the static knobs that differ between buckets, name -> value.
        config: one complete configuration of it.
        quanta: how its runs are cut.
    """

    key: Any
    static: Mapping[str, Any]
    config: Mapping[str, Any]
    quanta: Quanta


@dataclass(frozen=True)
class Buckets:
    """All buckets found.

    Attributes:
        found: each once; that of the default configuration first.
        more: there are further ones that were not listed.
        endless: static knobs searched over real numbers: every trial is a bucket of its own.
        refused: what the knobs say of combinations they do not allow, each once.
        notes: what is legal but trains otherwise than it says.
    """

    found: tuple[Bucket, ...]
    more: bool
    endless: tuple[str, ...]
    refused: tuple[str, ...]
    notes: tuple[str, ...] = ()


def buckets_of(
    study: Study, bucket_key: Callable[[Mapping[str, Any]], Any] | None = None
) -> Buckets:
    """Enumerate the buckets of a study.

    Args:
        study: loaded.
        bucket_key: names the bucket of a complete configuration; left out, configurations with
            equal static knobs share one.
    """
    static = set(static_searched(study))
    part, endless = _static_part(study.space, static)
    found: dict[Any, Bucket] = {}
    refused: dict[str, None] = {}
    minibatches = Minibatches(study)
    default = study.space.default()
    points = itertools.chain([{}], part.grid(_POINTS_OF_PARENTS if endless else 2**31))
    taken = list(itertools.islice(points, _MOST_POINTS + 1))
    for point in taken[:_MOST_POINTS]:
        try:
            params = {**_without(default, part.names if point else ()), **point}
            config = study.complete(params, own_words=bool(study.imports))
        except ConfigError as error:
            refused[str(error)] = None
            continue
        minibatches.look(params, config)
        key = bucket_key(config) if bucket_key else _key(study, config)
        if key not in found:
            shown = {name: config[name] for name in config if name in static}
            steps = config["num_envs"] * config["rollout_length"]
            found[key] = Bucket(key, shown, config, quanta_of(study, steps))
    more = len(taken) > _MOST_POINTS or bool(endless)
    notes = tuple(minibatches.notes())
    return Buckets(tuple(found.values()), more, endless, tuple(refused), notes)


def static_searched(study: Study) -> list[str]:
    """Return the searched knobs whose values make programs."""
    return [name for name in study.space.names if _is_static(study, name)]


def words_of_bucket(study: Study, config: Mapping[str, Any], most: int = 36) -> str:
    """Return what tells a bucket from the others, in few words; its environment if nothing does.

    Knobs that differ from the default come first, because what finds no room is left out.

    Args:
        study: loaded.
        config: a complete configuration of the bucket.
        most: letters.
    """
    default, known = study.default(), {**study.space.constants, **config}
    active = [p.name for p in study.space.parameters if p.active(known)]
    names = [name for name in dict.fromkeys(active) if _is_static(study, name)]
    names.sort(key=lambda name: freeze(config[name]) == freeze(default[name]))
    found = [f"{name}={_word(config[name])}" for name in names]
    words = ", ".join(found) or study.env.id
    while len(words) > most and len(found) > 1:
        found.pop()
        words = ", ".join([*found, "..."])
    return words if len(words) <= most else f"{words[: most - 3]}..."


def _word(value: Any) -> str:
    plain: Any = as_lists(value)
    if isinstance(plain, list):
        words = [_word(part) for part in cast("list[Any]", plain)]
        return f"[{','.join(words)}]"
    return f"{plain:g}" if isinstance(plain, float) else str(plain)


def _is_static(study: Study, name: str) -> bool:
    if not name.startswith("env."):
        return not KNOBS[name].traced
    each = [find(one.id) for one in environments_of(study)]
    return any(known and name.removeprefix("env.") in known.keys for known in each)


def _key(study: Study, config: Mapping[str, Any]) -> Any:
    return tuple(freeze(value) for name, value in config.items() if _is_static(study, name))


def _without(params: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in params.items() if name not in names}


def _static_part(space: Space, static: set[str]) -> tuple[Space, tuple[str, ...]]:
    """Return the space of static knobs and what decides whether they are active."""
    wanted = set(static)
    while True:
        parents = {
            condition.name
            for parameter in space.parameters
            if parameter.name in wanted
            for condition in parameter.when
            if condition.name in space.names
        }
        if parents <= wanted:
            break
        wanted |= parents
    parameters: tuple[Parameter, ...] = tuple(p for p in space.parameters if p.name in wanted)
    rules = tuple(
        rule
        for rule in space.forbid
        if all(name in wanted or name in space.constants for name in rule.names)
    )
    endless = tuple(
        p.name for p in parameters if p.name in static and p.distribution.axis.kind == "real"
    )
    return Space(parameters, rules, space.constants), endless
