"""A study's buckets: the distinct static parts of its configurations, with one program each."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from ..environments.registry import find
from ..environments.table import EnvEntry
from ..errors import ConfigError
from ..files.plain_data import as_lists, freeze
from ..knobs import KNOBS, RECURRENT_NETWORKS
from ..spaces.space import Parameter, Space
from .chunk_sizes import ChunkSizes, chunk_sizes_of
from .spec import Study
from .study_environments import env_settings, environments_of, searched_settings
from .unused_knobs import possible_values

_LISTED = 4
_AGENTS = ("agents", "num_agents")  # keys with the number of agents
_MOST_POINTS = 5000
_POINTS_OF_PARENTS = 5
_MOST = 0.5  # share of the time that compiling may take without a note
_FEWEST = 6  # least trials per program, if no time is known


def _minibatch_counts(rows: int, count: int, alone: bool) -> tuple[int, bool]:
    """Return the number of minibatches for these rows, and whether one has a single sample."""
    size = math.ceil(rows / count)
    return math.ceil(rows / size), alone and rows > 1 and rows % size == 1 % size


def _minibatch_notes(
    study: Study, points: Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]]
) -> list[str]:
    """Return notes on adjusted minibatch counts, given (parameters, configuration) points."""
    cutting = _Cutting.of(study)
    fewer: dict[str, dict[str, None]] = {}  # start of a note -> counts
    single: dict[str, None] = {}
    for params, config in points:
        given = {**study.fixed, **params}
        both = "num_minibatches" in given and given.get("minibatch_size") is not None
        if config["network"] not in KNOBS["network"].choices or both:
            # registered networks may need segments; prioritised rows are divided as requested
            continue
        asked = config["num_minibatches"]
        if given.get("minibatch_size") is None:
            asked = given.get("num_minibatches", KNOBS["num_minibatches"].default)
        rows, alone = cutting.rows(config), cutting.is_normalised_alone(config)
        if asked > rows:
            continue  # rejected elsewhere
        made, is_single = _minibatch_counts(rows, asked, alone)
        better = _better_counts(rows, asked, alone)
        if made != asked:
            head = f"{rows:,} {cutting.words(config)} make fewer minibatches than "
            counts = fewer.setdefault(f"{head}num_minibatches: ", {})
            counts[f"{asked} (makes {made}; {better})"] = None
        if is_single:
            single[f"{asked} ({better})"] = None
    if single:
        head = "num_minibatches makes minibatches of a single sample, whose advantages are not "
        fewer[f"{head}normalised: "] = single
    return [f"{head}{_shortened_list(counts)}" for head, counts in fewer.items()]


def _better_counts(rows: int, asked: int, alone: bool) -> str:
    """Suggest the nearest possible minibatch counts below and above."""
    near = dict[int, None]()
    for counts in (range(asked, 0, -1), range(asked, rows + 1)):
        exact = next((n for n in counts if _minibatch_counts(rows, n, alone) == (n, False)), None)
        if exact is not None:
            near[exact] = None
    return f"use {' or '.join(map(str, near))}"


def _entries_of(study: Study) -> list[EnvEntry | None]:
    """Return the entries of a study's environments; None for one that only user code defines."""
    return [find(one.id) for one in environments_of(study)]


@dataclass(frozen=True)
class _Cutting:
    """How a study's rollouts are divided into minibatches, like `Plan.by_segments` in the core."""

    traced: bool  # whether V-trace may be on, which needs whole segments
    drawn: bool  # whether rows are sampled by priority
    normalises: bool  # advantages are normalised, with a single agent

    @classmethod
    def of(cls, study: Study) -> _Cutting:
        known = _entries_of(study)
        agents = any(entry and not set(_AGENTS).isdisjoint(entry.keys) for entry in known)
        return cls(
            traced=any(value is not None for value in possible_values(study, "rho_clip")),
            drawn=any(possible_values(study, "priority_alpha")),
            normalises=any(possible_values(study, "normalise_advantages")) and not agents,
        )

    def by_segments(self, config: Mapping[str, Any]) -> bool:
        over = self.drawn and config["priority_over"] == "segments"
        return config["network"] in RECURRENT_NETWORKS or self.traced or over

    def rows(self, config: Mapping[str, Any]) -> int:
        if self.by_segments(config):
            return config["num_envs"]
        return config["num_envs"] * config["rollout_length"]

    def words(self, config: Mapping[str, Any]) -> str:
        if self.by_segments(config):
            return "whole segments, one per environment,"
        return "samples (num_envs x rollout_length)"

    def is_normalised_alone(self, config: Mapping[str, Any]) -> bool:
        """Return whether normalisation would zero the advantage of a single-sample minibatch."""
        return self.normalises and not self.by_segments(config)


def _shortened_list(items: Iterable[Any]) -> str:
    words = [str(item) for item in items]
    text = ", ".join(words[:_LISTED])
    if len(words) > _LISTED:
        text += f" and {len(words) - _LISTED} more"
    return text


@dataclass(frozen=True)
class ProgramShape:
    key: Any  # return value of `bucket_key`
    static: Mapping[str, Any]  # hyperparameters that differ between buckets
    config: Mapping[str, Any]  # a complete configuration
    chunk_sizes: ChunkSizes


@dataclass(frozen=True)
class ProgramShapes:
    found: tuple[ProgramShape, ...]  # the default configuration's shape is first
    more: bool  # whether there are more
    endless: tuple[str, ...]  # static hyperparameters over real numbers: one bucket per trial
    refused: tuple[str, ...]  # errors of illegal combinations
    notes: tuple[str, ...] = ()  # legal, but training differs from the configuration


def buckets_of(
    study: Study, bucket_key: Callable[[Mapping[str, Any]], Any] | None = None
) -> ProgramShapes:
    """Enumerate a study's buckets.

    `bucket_key` returns the bucket's name for a complete configuration; by default, configurations
    with equal static hyperparameters share a bucket.
    """
    static = set(static_searched(study))
    part, endless = _static_part(study.space, static)
    found: dict[Any, ProgramShape] = {}
    refused: dict[str, None] = {}
    complete: list[tuple[Mapping[str, Any], Mapping[str, Any]]] = []
    default, most = study.space.default(), 2**31
    if endless:
        most = _POINTS_OF_PARENTS
    points = itertools.chain([{}], part.grid(most))
    taken = list(itertools.islice(points, _MOST_POINTS + 1))
    for point in taken[:_MOST_POINTS]:
        try:
            params = {n: v for n, v in default.items() if not point or n not in part.names} | point
            config = study.complete(params, own_words=bool(study.imports))
        except ConfigError as error:
            refused[str(error)] = None
            continue
        complete.append((params, config))
        if bucket_key:
            key = bucket_key(config)
        else:
            key = tuple(freeze(config[name]) for name in config if is_static(study, name))
        if key not in found:
            shown = {name: config[name] for name in config if name in static}
            steps = study.steps_per_update(config)
            found[key] = ProgramShape(key, shown, config, chunk_sizes_of(study, steps))
    more, notes = len(taken) > _MOST_POINTS or bool(endless), tuple[str, ...]()
    if study.algorithm.is_ppo:
        notes = tuple(_minibatch_notes(study, complete))
    return ProgramShapes(tuple(found.values()), more, endless, tuple(refused), notes)


def env_kinds(study: Study) -> list[dict[str, Any]]:
    """Return the distinct environment settings that occur in the study's buckets."""
    kinds: list[dict[str, Any]] = []
    for bucket in buckets_of(study).found:
        searched = env_settings(bucket.config)
        if (kind := {**study.env.values, **searched}) not in kinds:
            kinds.append(kind)
    return kinds


def static_searched(study: Study) -> list[str]:
    """Return the searched hyperparameters whose values need different programs."""
    return [name for name in study.space.names if is_static(study, name)]


def words_of_bucket(study: Study, config: Mapping[str, Any], most: int = 36) -> str:
    """Return a bucket's static hyperparameters, or its environment, in at most `most` characters.

    Hyperparameters that differ from the default come first, because the last ones are cut off.
    """
    default, known = study.default(), {**study.space.constants, **config}
    active = [p.name for p in study.space.parameters if p.active(known)]
    names = [name for name in dict.fromkeys(active) if is_static(study, name)]
    names.sort(key=lambda name: freeze(config[name]) == freeze(default[name]))
    found = [f"{name}={_value_text(config[name])}" for name in names]
    words = ", ".join(found) or study.env.id
    while len(words) > most and len(found) > 1:
        found.pop()
        words = ", ".join([*found, "..."])
    if len(words) > most:
        words = f"{words[: most - 3]}..."
    return words


def _value_text(value: Any) -> str:
    plain: Any = as_lists(value)
    if isinstance(plain, list):
        words = [_value_text(part) for part in cast("list[Any]", plain)]
        return f"[{','.join(words)}]"
    if isinstance(plain, float):
        return f"{plain:g}"
    return str(plain)


def is_static(study: Study, name: str) -> bool:
    """Return whether a hyperparameter or environment key is compiled into the program."""
    if not name.startswith("env."):
        return not study.algorithm.knobs[name].traced
    key, each = name.removeprefix("env."), _entries_of(study)
    return any(known and known.makes_program(key) for known in each)


def _static_part(space: Space, static: set[str]) -> tuple[Space, tuple[str, ...]]:
    """Return the space of static hyperparameters, and of the parents that activate them."""
    wanted = set(static)
    while True:
        inside = [parameter for parameter in space.parameters if parameter.name in wanted]
        parents = {one.name for parameter in inside for one in parameter.when} & {*space.names}
        if parents <= wanted:
            break
        wanted |= parents
    parameters: tuple[Parameter, ...] = tuple(p for p in space.parameters if p.name in wanted)
    known = wanted | {*space.constants}
    rules = tuple(rule for rule in space.forbid if known >= {*rule.names})
    searched = [one for one in parameters if one.name in static]
    endless = tuple(one.name for one in searched if one.distribution.axis.kind == "real")
    return Space(parameters, rules, space.constants), endless


def programs_note(
    study: Study,
    programs: int,
    trials: int | None,
    compile_seconds: float | None = None,
    seconds: float = 0.0,
) -> str:
    """Return a sentence if compiling takes, or may take, more than half of the time."""
    if programs < 2 or trials is None:
        return ""
    if compile_seconds is None:
        if trials >= _FEWEST * programs:
            return ""
        share = f"only {trials / programs:.1f} trials share each program"
        each = f"{share}, so compiling may take longer than training"
    elif compile_seconds <= _MOST * seconds:
        return ""
    else:
        each = f"{compile_seconds / seconds:.0%} of the time is spent compiling"
    names = ", ".join(static_searched(study)) or _with_several_values(study)
    text = f"{programs} programs for {trials} trials: {each}; run more trials, or search fewer"
    return f"{text} values of {names}{_open_advice(study)}"


def _with_several_values(study: Study) -> str:
    """Explain why there are several programs although no static hyperparameter is searched."""
    if study.enqueue:
        return "enqueue"
    return ", ".join(searched_settings(study)) or "the space"


def open_searched(study: Study) -> list[str]:
    """Return the searched numbers that an environment's constructor accepts through `**kwargs`."""
    found: list[str] = []
    known = _entries_of(study)
    for name in static_searched(study):
        key = name.removeprefix("env.")
        if key != name and any(one and one.is_unnamed(key) for one in known):
            found.append(name)
    return found


def _open_advice(study: Study) -> str:
    names = [name.removeprefix("env.") for name in open_searched(study)]
    if not names:
        return ""
    argument = f"{names[0]}: float = ..."
    return f"; or declare it in the environment's constructor ({argument}) to share one program"
