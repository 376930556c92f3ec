"""Which buckets a study has: the distinct static parts of its configurations."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from ..environments.registry import find
from ..errors import ConfigError
from ..files.plain_data import as_lists
from ..knobs import KNOBS, RECURRENT_NETWORKS
from ..spaces.base import freeze
from ..spaces.space import Parameter, Space
from .chunk_sizes import Quanta, quanta_of
from .several_environments import environments_of
from .spec import Study
from .unused_knobs import possible_values

_LISTED = 4
_BODIES = ("agents", "num_agents")


@dataclass(frozen=True)
class _Cut:
    """How some rows are cut into minibatches.

    Attributes:
        rows: of a rollout.
        segments: rows are segments.
        alone: what one row's minibatch holds cannot be normalised.
    """

    rows: int
    segments: bool
    alone: bool

    def size(self, count: int) -> int:
        """Return the rows of each minibatch but the last, which may have fewer."""
        return math.ceil(self.rows / count)

    def made(self, count: int) -> int:
        """Return how many minibatches there are where `count` are asked for."""
        return math.ceil(self.rows / self.size(count))

    def right(self, count: int) -> bool:
        """Return whether so many are made, and none holds one sample alone."""
        size = self.size(count)
        return self.made(count) == count and not (self.alone and self.rows % size == 1 % size)

    def near(self, count: int) -> str:
        """Return the nearest numbers that are right, to be typed."""
        below = next((n for n in range(count, 0, -1) if self.right(n)), None)
        above = next((n for n in range(count, self.rows + 1) if self.right(n)), None)
        return " or ".join(str(n) for n in dict.fromkeys((below, above)) if n is not None)

    def words(self) -> str:
        """Return the rows in words."""
        if self.segments:
            return f"{self.rows:,} whole segments, one of each environment,"
        return f"{self.rows:,} samples (num_envs x rollout_length)"


@dataclass
class Minibatches:
    """Gathers what is to be said of the configurations of one study.

    Attributes:
        study: loaded.
        fewer: numbers asked for that are not made.
        single: numbers whose minibatches hold one sample each.
        rest: numbers whose last minibatch does.
    """

    study: Study
    fewer: dict[_Cut, dict[int, None]] = field(default_factory=dict[_Cut, dict[int, None]])
    single: dict[_Cut, dict[int, None]] = field(default_factory=dict[_Cut, dict[int, None]])
    rest: dict[_Cut, dict[int, None]] = field(default_factory=dict[_Cut, dict[int, None]])

    def look(self, params: Mapping[str, Any], config: Mapping[str, Any]) -> None:
        """Look at one configuration.

        Args:
            params: what is searched of it.
            config: all of it, complete.
        """
        given = {**self.study.fixed, **params}
        drawn = "num_minibatches" in given and given.get("minibatch_size") is not None
        if config["network"] not in KNOBS["network"].choices or drawn:
            return  # registered networks may need segments; rows that are drawn are cut as asked
        segments = self._by_segments(config)
        cut = _Cut(
            config["num_envs"] * (1 if segments else config["rollout_length"]),
            segments,
            not segments and self._normalises() and not self._has_bodies(),
        )
        asked = config["num_minibatches"]
        if given.get("minibatch_size") is None:
            asked = given.get("num_minibatches", KNOBS["num_minibatches"].default)
        if asked > cut.rows:
            return  # refused elsewhere
        size = cut.size(asked)
        if cut.made(asked) != asked:
            self.fewer.setdefault(cut, {})[asked] = None
        if cut.alone and cut.rows > 1 and size == 1:
            self.single.setdefault(cut, {})[asked] = None
        elif cut.alone and cut.rows % size == 1:
            self.rest.setdefault(cut, {})[asked] = None

    def notes(self) -> list[str]:
        """Return what is to be said, with what to type."""
        found: list[str] = []
        for cut, asked in self.fewer.items():
            made = [f"{n} (makes {cut.made(n)}; type {cut.near(n)})" for n in asked]
            found.append(
                f"{cut.words()} make fewer minibatches than num_minibatches says: {_listed(made)}"
            )
        for cut, asked in self.single.items():
            found.append(
                f"num_minibatches {_listed(asked)}: minibatches of one sample, whose advantage is "
                f"not normalised; type at most {cut.near(min(asked))}, or normalise_advantages: "
                "false"
            )
        for cut, asked in self.rest.items():
            made = [f"{n} (type {cut.near(n)})" for n in asked]
            found.append(
                "the last minibatch of an epoch is one sample, whose advantage is not normalised, "
                f"with num_minibatches {_listed(made)}"
            )
        return found

    def _by_segments(self, config: Mapping[str, Any]) -> bool:
        """Return what `Plan.by_segments` of the core will be."""
        traced = any(value is not None for value in possible_values(self.study, "rho_clip"))
        drawn = any(possible_values(self.study, "priority_alpha"))
        over = drawn and config["priority_over"] == "segments"
        return config["network"] in RECURRENT_NETWORKS or traced or over

    def _normalises(self) -> bool:
        return any(possible_values(self.study, "normalise_advantages"))

    def _has_bodies(self) -> bool:
        known = [find(one.id) for one in environments_of(self.study)]
        return any(entry and any(key in entry.keys for key in _BODIES) for entry in known)


def _listed(items: Iterable[Any]) -> str:
    words = [str(item) for item in items]
    more = len(words) - _LISTED
    return ", ".join(words[:_LISTED]) + (f" and {more} more" if more > 0 else "")


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


_MOST = 0.5  # of the time, that compiling may take without a word
_FEWEST = 6  # trials a program, where no time is known


def programs_note(
    study: Study,
    programs: int,
    trials: int | None,
    compile_seconds: float | None = None,
    seconds: float = 0.0,
) -> str:
    """Return a sentence if compiling takes more than half of the time, or nobody knows and may.

    Args:
        study: says which knobs make programs.
        programs: training programs, of which each is compiled once.
        trials: how many, None if only the budget says.
        compile_seconds: known or expected, None if not.
        seconds: of the whole study, likewise.
    """
    if programs < 2 or trials is None:
        return ""
    if compile_seconds is None:
        if trials >= _FEWEST * programs:
            return ""
        each = f"only {trials / programs:.1f} trials share a compile, which may outlast them"
    elif compile_seconds <= _MOST * seconds:
        return ""
    else:
        each = f"{compile_seconds / seconds:.0%} of the time is compiling"
    names = ", ".join(static_searched(study)) or "enqueue"
    return (
        f"{programs} programs for {trials} trials: {each}; give more trials, or search fewer "
        f"values of {names}"
    )
